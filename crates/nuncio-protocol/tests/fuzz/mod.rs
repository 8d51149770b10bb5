//! Properties of any input: no panic, and no broken law. Plain functions, run over the committed
//! corpus by `tests/fuzz_corpus.rs` and at length by `cargo fuzz` in `/fuzz`.

use nuncio_protocol::{
    AgentCard, Event, Version,
    op::{Call, Op},
    v03,
    wire::{
        Dialect, V1,
        jsonrpc::{self, ErrorData, IncomingBody},
        peek,
        rest::{self, Paths},
        sse::{DecodeError, Decoder, Frame},
    },
};
use serde_json::{Value, value::RawValue};

/// A function that takes any bytes.
type Target = fn(&[u8]);

/// Every function, by the name of its corpus.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("jsonrpc_body", jsonrpc_body),
    ("jsonrpc_response", jsonrpc_response),
    ("sse", sse),
    ("v1_call", v1_call),
    ("v1_event", v1_event),
    ("v03_call", v03_call),
    ("v03_event", v03_event),
    ("card", card),
    ("rest_path", rest_path),
    ("rest_error", rest_error),
];

/// Runs the function of this name.
pub(crate) fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    target(data);
}

/// Any request gets one answer: JSON with the id that was sent, or none.
fn jsonrpc_body(data: &[u8]) {
    let answer = |id: Option<&RawValue>| {
        let mut out = Vec::new();
        jsonrpc::encode_error(id, &nuncio_protocol::ErrorKind::Internal.into(), ErrorData::List, &mut out);
        let answer: Value = serde_json::from_slice(&out).expect("an answer is JSON");
        let sent = id.map_or(Value::Null, |id| serde_json::from_str(id.get()).expect("an id is JSON"));
        assert_eq!(answer["id"], sent, "the id is echoed");
    };
    match jsonrpc::decode_body(data) {
        Ok(IncomingBody::Single(request)) => {
            answer(request.id);
            if let Some(op) = V1.op(&request.method) {
                let _ = V1.decode_call(op, request.params);
            }
        }
        Ok(IncomingBody::Batch(requests)) => {
            for request in requests {
                match jsonrpc::open(request) {
                    Ok(request) => answer(request.id),
                    Err(refused) => answer(refused.id),
                }
            }
        }
        Err(refused) => answer(refused.id),
    }
}

/// An answer is a result, or an error that survives being passed on.
fn jsonrpc_response(data: &[u8]) {
    let Err(error) = jsonrpc::decode_response(data) else { return };
    let mut out = Vec::new();
    jsonrpc::encode_error(None, &error, ErrorData::Object, &mut out);
    let again = jsonrpc::decode_response(&out).expect_err("an error stays an error");
    assert_eq!((again.kind(), again.message()), (error.kind(), error.message()));
    assert_eq!(again.details(), error.details());
}

/// The frames are the same however the bytes are cut. The first byte says where to cut.
fn sse(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let cut = usize::from(*cut).max(1);
    assert_eq!(frames(data, cut), frames(data, usize::MAX), "cut every {cut} bytes");
}

/// Id, name and data of frames, and what ended them.
type Frames = (Vec<(Option<String>, Option<String>, String)>, Option<DecodeError>);

fn frames(data: &[u8], cut: usize) -> Frames {
    let mut decoder = Decoder::new(64);
    let mut frames = Vec::new();
    for chunk in data.chunks(cut) {
        decoder.push(chunk.to_vec().into());
        loop {
            match decoder.next_frame() {
                Ok(Some(Frame { id, event, data })) => {
                    frames.push((id.map(str::to_owned), event.map(str::to_owned), data.to_owned()));
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// Parameters that are read once are written so that they are read the same. The first byte picks the
/// operation.
fn v1_call(data: &[u8]) {
    call_is_stable(&V1, data);
}

/// As [`v1_call`], for events.
fn v1_event(data: &[u8]) {
    event_is_stable(&V1, data);
}

/// As [`v1_call`], in both forms of v0.3.
fn v03_call(data: &[u8]) {
    call_is_stable(&v03::JsonRpc, data);
    call_is_stable(&v03::Rest, data);
}

/// As [`v1_event`], in both forms of v0.3.
fn v03_event(data: &[u8]) {
    event_is_stable(&v03::JsonRpc, data);
    event_is_stable(&v03::Rest, data);
}

fn call_is_stable(dialect: &dyn Dialect, data: &[u8]) {
    let Some((op, data)) = data.split_first() else { return };
    let op = Op::TABLE[usize::from(*op) % Op::TABLE.len()].op;
    let Ok(params) = serde_json::from_slice::<&RawValue>(data) else { return };
    let Ok(call) = dialect.decode_call(op, Some(params)) else { return };
    survives(dialect, &call, |call| {
        let mut written = Vec::new();
        dialect.encode_call(call, &mut written).ok()?;
        let written = serde_json::from_slice(&written).expect("we write JSON");
        dialect.decode_call(op, Some(written)).ok()
    });
}

/// Encoding and decoding again is the identity. v0.3 cannot express some absent or open members of a call, so
/// there it holds from the second time on.
fn survives(dialect: &dyn Dialect, call: &Call, pass: impl Fn(&Call) -> Option<Call>) {
    let again = pass(call);
    if dialect.version() == Version::V1_0 {
        let again = again.expect("what we write, we read");
        assert_eq!((again.op(), params_of(&again)), (call.op(), params_of(call)));
        return;
    }
    let Some(once) = again else { return };
    let twice = pass(&once).expect("what we wrote once, we write again");
    assert_eq!((twice.op(), meaning(&params_of(&twice))), (once.op(), meaning(&params_of(&once))));
}

fn params_of(call: &Call) -> String {
    let mut out = Vec::new();
    V1.encode_call(call, &mut out).expect("v1.0 can say everything");
    String::from_utf8(out).expect("JSON is text")
}

fn event_is_stable(dialect: &dyn Dialect, data: &[u8]) {
    let Ok(json) = serde_json::from_slice::<&RawValue>(data) else { return };
    let Ok(event) = dialect.decode_event(json) else { return };
    let written = event_of(dialect, &event);
    let json = serde_json::from_str(&written).expect("we write JSON");
    let again = dialect.decode_event(json).expect("what we write, we read");
    assert_eq!(meaning(&event_of(&V1, &again)), meaning(&event_of(&V1, &event)), "{written}");
    let place = dialect.task_shape();
    let seen = place.and_then(|place| peek::task_of(place, peek::EventEnvelope::Bare, written.as_bytes()));
    if let Some([id, context]) = seen {
        let Event::Task(task) = &again else { panic!("no task: {written}") };
        assert_eq!([task.id.as_str(), task.context_id.as_str()], [&*id, &*context], "{written}");
    }
}

/// JSON without the order of its members: metadata that was set aside for v0.3 comes back behind the rest.
fn meaning(json: &str) -> Value {
    serde_json::from_str(json).expect("we write JSON")
}

fn event_of(dialect: &dyn Dialect, event: &Event) -> String {
    let mut out = Vec::new();
    dialect.encode_event(event, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// A card of any version is one of ours, and stays equal: signatures are made over it.
fn card(data: &[u8]) {
    let Ok(card) = v03::decode_card(data) else { return };
    let written = serde_json::to_string(&card).expect("a card can be written");
    let again: AgentCard = serde_json::from_str(&written).expect("what we write, we read");
    assert_eq!(again, card);
}

/// A request that is understood is written by our client so that it is understood the same. The input is
/// four lines: verb, path, query, body.
fn rest_path(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let mut text = || std::str::from_utf8(lines.next().unwrap_or_default()).ok();
    let (Some(verb), Some(path), Some(query)) = (text(), text(), text()) else { return };
    let body = lines.next().unwrap_or_default();
    let both: [(Paths, &dyn Dialect); 2] = [(Paths::V1, &V1), (v03::PATHS, &v03::Rest)];
    for (paths, dialect) in both {
        let read = |verb: &str, path: &str, query: &str, body: &[u8]| {
            rest::decode_request(&paths, verb, path, Some(query), body).ok()?.decode_call(dialect).ok()
        };
        let Some(call) = read(verb, path, query, body) else { continue };
        let write = |call: &Call| rest::encode_request(&paths, dialect, call.clone());
        // Some ids and tenants cannot stand in a path; they then do not go out at all.
        if write(&call).is_err() {
            continue;
        }
        survives(dialect, &call, |call| {
            let request = write(call).ok()?;
            let body = request.body.as_deref().unwrap_or_default();
            read(request.verb.as_str(), &request.path, &request.query, body)
        });
    }
}

/// An error that is understood is passed on as the same. The first two bytes are the HTTP status.
fn rest_error(data: &[u8]) {
    let [high, low, body @ ..] = data else { return };
    let error = rest::decode_error(u16::from_be_bytes([*high, *low]), body);
    let mut out = Vec::new();
    rest::encode_error(error.kind().row().http, &error, &mut out);
    let again = rest::decode_error(0, &out);
    assert_eq!((again.kind(), again.message()), (error.kind(), error.message()));
    assert_eq!(again.details(), error.details());
}
