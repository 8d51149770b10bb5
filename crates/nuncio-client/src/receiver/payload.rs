//! Decodes the body of a notification, in any of these shapes:
//!
//! | shape | sender |
//! |---|---|
//! | `{"task": …}`, `{"statusUpdate": …}`, … | v1.0 (REQ-162) |
//! | `{"kind": "task", …}` | v0.3 |
//! | `{"kind": "status-update", …}`, … | the JavaScript SDK for v0.3 |
//! | `{"jsonrpc": "2.0", "result": …}` around one of them | the dialect `neuralpost` |
//! | a task without `kind` | SDKs that leave it out |
//!
//! Most senders do not state their version, so the shape decides here.

use nuncio_protocol::{
    Error, Event, Version,
    op::{Op, Reply},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::Rejected;
use crate::choose::jsonrpc_dialect;

/// The members that distinguish the shapes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape<'a> {
    jsonrpc: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    kind: Option<IgnoredAny>,
    task: Option<IgnoredAny>,
    message: Option<IgnoredAny>,
    #[serde(alias = "status_update")]
    status_update: Option<IgnoredAny>,
    #[serde(alias = "artifact_update")]
    artifact_update: Option<IgnoredAny>,
}

impl<'a> Shape<'a> {
    fn of(json: &'a RawValue) -> Result<Self, Rejected> {
        serde_json::from_str(json.get()).map_err(|_| no_object())
    }

    fn is_wrapped(&self) -> bool {
        [&self.task, &self.message, &self.status_update, &self.artifact_update].iter().any(|m| m.is_some())
    }
}

fn no_object() -> Rejected {
    Rejected::Invalid("the body is not a JSON object".to_owned())
}

/// The event of a body, and its version; `said` is the version that the sender states. The sender is not
/// authenticated here.
///
/// # Errors
/// The body is not a notification.
pub fn decode(body: &[u8], said: Option<Version>) -> Result<(Version, Event), Rejected> {
    let json: &RawValue = serde_json::from_slice(body).map_err(|_| no_object())?;
    let outer = Shape::of(json)?;
    let (version, event) = match (&outer.jsonrpc, outer.result) {
        (None, _) => event(json, &outer, said)?,
        (Some(_), Some(result)) => event(result, &Shape::of(result)?, said)?,
        (Some(_), None) => return Err(Rejected::Invalid("a JSON-RPC envelope without a result".to_owned())),
    };
    let has_task = event.task_id().is_some_and(|id| !id.is_empty());
    if !has_task && !matches!(event, Event::Message(_)) {
        return Err(Rejected::Invalid("the id of the task is missing".to_owned()));
    }
    Ok((version, event))
}

fn event(json: &RawValue, shape: &Shape<'_>, said: Option<Version>) -> Result<(Version, Event), Rejected> {
    let version = match (&shape.kind, said) {
        (Some(_), _) => Version::V0_3,
        (None, Some(version)) => version,
        (None, None) if shape.is_wrapped() => Version::V1_0,
        (None, None) => Version::V0_3,
    };
    let dialect = jsonrpc_dialect(version);
    let event = if version == Version::V1_0 && !shape.is_wrapped() {
        dialect.decode_reply(Op::GetTask, json).and_then(|reply| match reply {
            Reply::Task(task) => Ok(Event::Task(task)),
            _ => Err(Error::internal("a task is decoded as a task")),
        })
    } else {
        dialect.decode_event(json)
    };
    event.map(|event| (version, event)).map_err(|error| Rejected::unreadable(&error))
}
