//! Extracts the data that a relay needs from a request: see [`RequestSummary`]. v0.3 names tasks by a path, and has
//! no tenant.

use bytes::Bytes;
use prost::Message;

use crate::{
    op::Op,
    pb::peek::{Configuration, Said, at_message},
    v03::{leftover::LEFTOVER, name::Name},
    wire::peek::RequestSummary,
};

#[derive(Clone, PartialEq, Message)]
struct OldSend {
    #[prost(message, optional, tag = "1")]
    request: Option<Said>,
    #[prost(message, optional, tag = "2")]
    configuration: Option<Configuration>,
}

#[derive(Clone, PartialEq, Message)]
struct OldTarget {
    #[prost(string, tag = "1")]
    name: String,
}

pub(super) fn peek(op: Op, bytes: Bytes) -> Option<RequestSummary<'static>> {
    Some(match op {
        Op::SendMessage | Op::SendStreamingMessage => {
            // The leftover in the metadata may reference further tasks.
            if bytes.windows(LEFTOVER.len()).any(|part| part == LEFTOVER.as_bytes()) {
                return None;
            }
            let send = OldSend::decode(bytes).ok()?;
            at_message(send.request?, send.configuration)
        }
        Op::GetTask | Op::CancelTask | Op::SubscribeToTask => {
            let (task, None) = Name::parse(&OldTarget::decode(bytes).ok()?.name)?.split() else {
                return None;
            };
            RequestSummary {
                task: task.map(|task| task.as_str().to_owned().into()),
                ..RequestSummary::default()
            }
        }
        _ => return None,
    })
}

pub(super) fn with_tenant(bytes: &Bytes, tenant: Option<&str>) -> Option<Bytes> {
    tenant.is_none().then(|| bytes.clone())
}
