//! Extracts the data that a relay needs from the bytes of a request: see [`RequestSummary`].

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{self, DecodeContext, WireType},
};

use crate::{op::Op, wire::peek::RequestSummary};

/// The field number of the tenant, in every request that is relayed.
const TENANT: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Send {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(message, optional, tag = "2")]
    message: Option<Said>,
    #[prost(message, optional, tag = "3")]
    configuration: Option<Configuration>,
}

/// The relevant fields of a message. The numbers are the same in both versions; references are only in
/// v1.0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Said {
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(string, tag = "3")]
    task_id: String,
    #[prost(string, repeated, tag = "8")]
    reference_task_ids: Vec<String>,
}

/// The relevant field of a configuration, in both versions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Configuration {
    #[prost(bytes = "vec", optional, tag = "2")]
    webhook: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Target {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
}

/// The summary of a request.
pub(super) fn peek(op: Op, bytes: Bytes) -> Option<RequestSummary<'static>> {
    Some(match op {
        Op::SendMessage | Op::SendStreamingMessage => {
            let send = Send::decode(bytes).ok()?;
            let mut summary = at_message(send.message?, send.configuration);
            summary.tenant = some(send.tenant);
            summary
        }
        Op::GetTask | Op::CancelTask | Op::SubscribeToTask => {
            let target = Target::decode(bytes).ok()?;
            RequestSummary { tenant: some(target.tenant), task: some(target.id), ..RequestSummary::default() }
        }
        // Its second field is a context.
        Op::ListTasks => {
            RequestSummary { tenant: some(Target::decode(bytes).ok()?.tenant), ..RequestSummary::default() }
        }
        _ => return None,
    })
}

pub(crate) fn at_message(said: Said, configuration: Option<Configuration>) -> RequestSummary<'static> {
    RequestSummary {
        tenant: None,
        task: some(said.task_id),
        context: some(said.context_id),
        references: said.reference_task_ids.into_iter().map(Into::into).collect(),
        webhook: configuration.is_some_and(|configuration| configuration.webhook.is_some()),
    }
}

pub(crate) fn some(text: String) -> Option<std::borrow::Cow<'static, str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Replaces the tenant of a request; all other bytes stay unchanged.
pub(super) fn with_tenant(bytes: &Bytes, tenant: Option<&str>) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(bytes.len() + tenant.map_or(0, |tenant| tenant.len() + 8));
    if let Some(tenant) = tenant {
        encoding::encode_key(TENANT, WireType::LengthDelimited, &mut out);
        encoding::encode_varint(tenant.len() as u64, &mut out);
        out.put_slice(tenant.as_bytes());
    }
    let mut rest = bytes.clone();
    while rest.has_remaining() {
        let from = bytes.len() - rest.len();
        let (field, wire_type) = encoding::decode_key(&mut rest).ok()?;
        encoding::skip_field(wire_type, field, &mut rest, DecodeContext::default()).ok()?;
        if field != TENANT {
            out.put_slice(&bytes[from..bytes.len() - rest.len()]);
        }
    }
    Some(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::generated as pb;

    #[test]
    fn whom_a_request_is_about() {
        let send = pb::SendMessageRequest {
            tenant: "agent".to_owned(),
            message: Some(pb::Message {
                message_id: "m".to_owned(),
                context_id: "c".to_owned(),
                task_id: "t".to_owned(),
                extensions: vec!["e".to_owned()],
                reference_task_ids: vec!["r".to_owned()],
                ..pb::Message::default()
            }),
            ..pb::SendMessageRequest::default()
        };
        let summary = peek(Op::SendMessage, send.encode_to_vec().into()).unwrap();
        assert_eq!(summary.tenant.as_deref(), Some("agent"));
        assert_eq!((summary.task.as_deref(), summary.context.as_deref()), (Some("t"), Some("c")));
        assert_eq!((summary.references.as_slice(), summary.webhook), (&["r".into()][..], false));
        let list = pb::ListTasksRequest { context_id: "c".to_owned(), ..pb::ListTasksRequest::default() };
        assert_eq!(peek(Op::ListTasks, list.encode_to_vec().into()), Some(RequestSummary::default()));
    }

    #[test]
    fn another_tenant_changes_nothing_else() {
        let get = pb::GetTaskRequest {
            tenant: "agent".to_owned(),
            id: "t".to_owned(),
            ..pb::GetTaskRequest::default()
        };
        // A field that nobody knows, and the tenant once more.
        let mut bytes = get.encode_to_vec();
        bytes.extend_from_slice(&[0xfa, 0x01, 0x01, b'x', 0x0a, 0x01, b'b']);
        let bytes = Bytes::from(bytes);
        let without = with_tenant(&bytes, None).unwrap();
        assert_eq!(&without[..], [0x12, 0x01, b't', 0xfa, 0x01, 0x01, b'x']);
        let with = with_tenant(&bytes, Some("up")).unwrap();
        assert_eq!(pb::GetTaskRequest::decode(with.clone()).unwrap().tenant, "up");
        assert_eq!(&with[4..], &without[..]);
        assert_eq!(with_tenant(&bytes.slice(..3), None), None, "cut off");
    }
}
