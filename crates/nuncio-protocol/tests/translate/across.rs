//! From form to form, and with what HTTP puts around a call.

use std::collections::BTreeMap;

use nuncio_protocol::{
    ErrorKind,
    op::Op,
    v03,
    wire::{V1, rest},
};
use serde_json::Value;

use crate::{
    document::{Document, of_v1, of_v03},
    down::{compare, predicted, there_and_back},
    loss::Seen,
    wire::{Kind, Thing, Wire, read_v1, write_v1},
};

#[test]
fn from_form_to_form_each_loses_its_own() {
    let mut failures = Vec::new();
    let every = [Wire::JsonRpc, Wire::Rest, Wire::Grpc, Wire::V1Grpc];
    for document in of_v1() {
        let kind = document.kind;
        for first in every {
            let Ok(json) = there_and_back(kind, &document.json, &[first]) else { continue };
            for second in every.into_iter().filter(|second| *second != first) {
                let expected = predicted(kind, &json, &[second], &mut Seen::default());
                let found = there_and_back(kind, &json, &[second]);
                let name = format!("{} as {kind:?} from {first:?} to {second:?}", document.name);
                failures.extend(compare(&name, &json, &expected, &found));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Values upgraded from one form of v0.3 can be downgraded to the others.
#[test]
fn from_a_form_of_v03_to_the_others() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for from in Wire::OLD {
        for document in of_v03(from) {
            let kind = document.kind;
            let up = from.read(kind, from.bytes(kind, &document.json)).unwrap();
            let json = write_v1(&up);
            for to in Wire::OLD {
                let expected = predicted(kind, &json, &[to], &mut Seen::default());
                let found = there_and_back(kind, &json, &[to]);
                failures.extend(compare(
                    &format!("{} from {from:?} to {to:?}", document.name),
                    &json,
                    &expected,
                    &found,
                ));
                count += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} differ\n\n{}", failures.len(), failures.join("\n\n"));
}

/// A case that several forms have says the same in all of them, as far as JSON-RPC can say it.
#[test]
fn the_forms_of_v03_say_the_same() {
    let up = |wire: Wire| -> BTreeMap<String, (Kind, Value)> {
        let golden = of_v03(wire).into_iter().filter(|document| document.name.starts_with("v03/"));
        golden
            .map(|Document { name, kind, json }| {
                let thing = wire.read(kind, wire.bytes(kind, &json)).unwrap();
                (name.rsplit('/').next().unwrap().to_owned(), (kind, write_v1(&thing)))
            })
            .collect()
    };
    let json_rpc = up(Wire::JsonRpc);
    for other in [Wire::Rest, Wire::Grpc] {
        for (case, (kind, said)) in up(other) {
            let said = predicted(kind, &said, &[Wire::JsonRpc], &mut Seen::default());
            assert_eq!(Ok(json_rpc[&case].1.clone()), said, "{case} in {other:?}");
        }
    }
}

/// HTTP spreads a call over verb, path, query and body; nothing more is lost by that.
#[test]
fn calls_over_http() {
    let mut failures = Vec::new();
    for document in of_v1() {
        let Kind::Call(op) = document.kind else { continue };
        let (kind, json) = (document.kind, &document.json);
        let Thing::Call(call) = read_v1(kind, json) else { panic!("another kind") };
        for (paths, wire) in [(&v03::PATHS, Wire::Rest), (&rest::Paths::V1, Wire::V1Json)] {
            let is_old = wire == Wire::Rest;
            let expected =
                predicted(kind, json, if is_old { &[Wire::Rest] } else { &[] }, &mut Seen::default());
            let found = (|| {
                let sent = if is_old {
                    rest::encode_request(paths, &v03::Rest, call.clone())?
                } else {
                    rest::encode_request(paths, &V1, call.clone())?
                };
                let body = sent.body.unwrap_or_default();
                let came =
                    rest::decode_request(paths, sent.verb.as_str(), &sent.path, Some(&sent.query), &body)
                        .map_err(rest::RestRefusal::into_error)?;
                assert_eq!(came.op, op);
                if is_old { came.decode_call(&v03::Rest) } else { came.decode_call(&V1) }
            })();
            let found = found.map(|call| write_v1(&Thing::Call(call))).map_err(|error| error.kind());
            let name = format!("{} over HTTP in {wire:?}", document.name);
            let no_path = op == Op::CreateTaskPushNotificationConfig && json.get("taskId").is_none();
            if no_path {
                // There is no path to the webhooks of no task, in either version.
                assert_eq!(found, Err(ErrorKind::InvalidParams), "{name}");
            } else {
                failures.extend(compare(&name, json, &expected, &found));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n\n{}", failures.len(), failures.join("\n\n"));
}
