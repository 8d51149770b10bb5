//! Broken streams.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Case, J0, send};
use crate::{
    agent::Behaviour,
    breaker::{Asked, Breaker, Told, WHOLE},
};

fn is_sent(asked: &Asked) -> bool {
    matches!(asked.rpc(), "SendStreamingMessage" | "message/stream")
}

/// Changes the events of the stream of a message.
macro_rules! events {
    ($check:literal, |$events:ident| $change:expr) => {{
        fn after(asked: &Asked, told: &mut Told) {
            if is_sent(asked) && told.is_stream {
                let $events = &mut told.json;
                $change;
            }
        }
        send($check, Breaker { after: Some(after), streams: is_sent, ..WHOLE })
    }};
}

fn find<'a>(events: &'a mut [Value], name: &str) -> &'a mut Value {
    let found = events.iter_mut().find(|event| event["result"][name].is_object());
    &mut found.expect("the stream has such an event")["result"][name]
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        send(
            "stream.opens",
            Breaker {
                after: Some(|asked, told| {
                    if is_sent(asked) && told.is_stream {
                        told.is_stream = false;
                        told.json.truncate(1);
                        told.set("content-type", "application/json");
                    }
                }),
                streams: is_sent,
                ..WHOLE
            },
        ),
        events!("stream.envelope", |events| events[1]["id"] = json!(7)),
        events!("stream.first", |events| drop(events.remove(0))),
        events!("stream.order", |events| find(events, "artifactUpdate")["taskId"] = json!("other")),
        events!("stream.kind", |events| find(events, "statusUpdate")["final"] = json!(true)),
        Case {
            on: J0,
            ..events!("stream.kind", |events| {
                for event in events.iter_mut().filter(|event| event["result"]["kind"] == "status-update") {
                    event["result"]["final"] = json!(false);
                }
            })
        },
        events!("stream.chunks", |events| find(events, "artifactUpdate")["append"] = json!(true)),
        events!("stream.terminal", |events| drop(events.pop())),
        send("stream.closes", Breaker { hangs: is_sent, ..WHOLE }),
        Case {
            alone: true,
            behaviour: Behaviour { pace: Duration::from_secs(1), ..Default::default() },
            ..send("stream.leaving", Breaker { breaks_off: is_sent, ..WHOLE })
        },
        send(
            "stream.readers",
            Breaker {
                after: Some(|asked, told| {
                    if asked.rpc() == "SubscribeToTask" && told.is_stream {
                        told.json.pop();
                    }
                }),
                streams: |asked| asked.rpc() == "SubscribeToTask",
                ..WHOLE
            },
        ),
    ]
}
