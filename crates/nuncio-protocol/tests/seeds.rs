//! Payloads of the shapes that the seed reports show (`docs/seeds.md`), read as the specification has it: what is
//! official becomes the same in v1.0, and the rest is refused by its field.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use nuncio_protocol::{
    Error, ErrorKind, Result,
    op::{Call, Op},
    v03,
    wire::{Dialect, V1, jsonrpc},
};
use serde::Deserialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// A payload and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    /// The row of `docs/seeds.md`.
    row: String,
    /// `event VERSION`, `notification VERSION`, `call OP VERSION`, `card` or `error`.
    read_as: String,
    given: Value,
    /// The same in v1.0.
    v1: Option<Value>,
    /// Refused, with these words.
    refused: Option<String>,
    /// Read as this error.
    error: Option<ReadError>,
}

#[derive(Deserialize)]
struct ReadError {
    kind: String,
    /// The detail of a type that is not ours.
    detail: Option<Value>,
}

impl Sample {
    fn read(&self) -> Result<Value> {
        let words: Vec<&str> = self.read_as.split(' ').collect();
        match words[..] {
            ["event", version] => {
                let body = self.given.to_string();
                event(dialect(version), jsonrpc::decode_response(body.as_bytes())?)
            }
            ["notification", version] => event(dialect(version), &raw(&self.given)),
            ["call", op, version] => {
                let call =
                    dialect(version).decode_call(Op::from_name(op).unwrap(), Some(&raw(&self.given)))?;
                validate(&call)?;
                Ok(written(|out| V1.encode_call(&call, out).unwrap()))
            }
            ["card"] => {
                let card = v03::decode_card(self.given.to_string().as_bytes())?;
                Ok(serde_json::to_value(card).unwrap())
            }
            ["error"] => jsonrpc::decode_response(self.given.to_string().as_bytes()).map(|_| Value::Null),
            _ => panic!("{}", self.read_as),
        }
    }

    fn check(&self, name: &str) {
        match (self.read(), self) {
            (Ok(read), Self { v1: Some(v1), .. }) => {
                assert_eq!(read, *v1, "{name}");
                self.check_written(v1, name);
            }
            (Err(error), Self { refused: Some(words), .. }) => {
                let text = format!("{error} {:?}", error.violations());
                assert!(text.contains(words), "{name}: expected {words:?} in {text}");
            }
            (Err(error), Self { error: Some(expected), .. }) => {
                assert_eq!(format!("{:?}", error.kind()), expected.kind, "{name}");
                let details = error.details();
                assert_eq!(details.get(1), expected.detail.as_ref(), "{name}: {details:?}");
            }
            (read, _) => panic!("{name}: {read:?}"),
        }
    }

    /// An event of v0.3 is written again as it was given.
    fn check_written(&self, v1: &Value, name: &str) {
        if self.read_as == "event 0.3" {
            let event = V1.decode_event(&raw(v1)).unwrap();
            let again = written(|out| v03::JsonRpc.encode_event(&event, out));
            assert_eq!(again, self.given["result"], "{name}: down");
        }
    }
}

fn dialect(version: &str) -> &'static dyn Dialect {
    match version {
        "1.0" => &V1,
        "0.3" => &v03::JsonRpc,
        _ => panic!("{version}"),
    }
}

fn event(dialect: &dyn Dialect, json: &RawValue) -> Result<Value> {
    let event = dialect.decode_event(json)?;
    Ok(written(|out| V1.encode_event(&event, out)))
}

fn validate(call: &Call) -> Result<()> {
    use nuncio_protocol::Validate as _;
    match call {
        Call::SendMessage(req) => req.validate(),
        Call::CreateTaskPushNotificationConfig(req) => req.validate(),
        other => Err(Error::new(ErrorKind::Internal, format!("{:?} is not sampled", other.op()))),
    }
}

fn raw(json: &Value) -> Box<RawValue> {
    to_raw_value(json).unwrap()
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice(&out).expect("what is written is JSON")
}

#[test]
fn samples_of_the_seeds_are_read_as_the_specification_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/seeds");
    let mut rows = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let sample: Sample = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(name.to_uppercase().starts_with(&sample.row), "{name} is of row {}", sample.row);
        sample.check(name);
        rows.insert(sample.row);
    }
    let each = [
        "N-20", "R-28", "R-45", "R-50", "V-02", "V-07", "B-01", "B-02", "B-21", "B-31", "L-10", "L-20",
        "L-29",
    ];
    for row in each {
        assert!(rows.contains(row), "the sample of {row} is missing");
    }
}
