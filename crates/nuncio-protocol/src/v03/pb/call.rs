//! Calls, answers and events of v0.3 as the bytes of protobuf messages.

use bytes::Bytes;

use super::generated as pb;
use crate::{
    Error, ErrorKind, Event, Result,
    op::{Call, Op, Reply},
    pb::{lists::check_lists, params, result, write},
    v03::{call::no_list_tasks, card::interfaces_for_v03},
};

/// The gRPC service: calls go to `/{SERVICE}/{rpc}`.
pub const SERVICE: &str = "a2a.v1.A2AService";

/// The messages with lists in a `SendMessageRequest`: `request`, `configuration`, and the authentication of a webhook.
const LISTS: &[&[u32]] = &[&[1], &[2], &[2, 2, 4]];

/// The rpc of an operation; v0.3 cannot list tasks.
#[must_use]
pub fn rpc_name(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::SendMessage => "SendMessage",
        Op::SendStreamingMessage => "SendStreamingMessage",
        Op::GetTask => "GetTask",
        Op::ListTasks => return None,
        Op::CancelTask => "CancelTask",
        Op::SubscribeToTask => "TaskSubscription",
        Op::CreateTaskPushNotificationConfig => "CreateTaskPushNotificationConfig",
        Op::GetTaskPushNotificationConfig => "GetTaskPushNotificationConfig",
        Op::ListTaskPushNotificationConfigs => "ListTaskPushNotificationConfig",
        Op::GetExtendedAgentCard => "GetAgentCard",
        Op::DeleteTaskPushNotificationConfig => "DeleteTaskPushNotificationConfig",
    })
}

/// The operation of an rpc.
#[must_use]
pub fn op_from_rpc(name: &str) -> Option<Op> {
    Op::TABLE.iter().map(|row| row.op).find(|op| rpc_name(*op) == Some(name))
}

/// Server: decodes a request. Files in it share its memory.
///
/// # Errors
/// `ParseError` if the bytes are not such a message, `InvalidParams` with the field if a value is invalid,
/// `UnsupportedOperation` for operations that v0.3 does not have.
pub fn decode_call(op: Op, bytes: Bytes) -> Result<Call> {
    Ok(match op {
        Op::SendMessage => {
            Call::SendMessage(params::<pb::SendMessageRequest, _>(check_lists(bytes, LISTS)?)?)
        }
        Op::SendStreamingMessage => {
            Call::SendStreamingMessage(params::<pb::SendMessageRequest, _>(check_lists(bytes, LISTS)?)?)
        }
        Op::GetTask => Call::GetTask(params::<pb::GetTaskRequest, _>(bytes)?),
        Op::ListTasks => return Err(no_list_tasks()),
        Op::CancelTask => Call::CancelTask(params::<pb::CancelTaskRequest, _>(bytes)?),
        Op::SubscribeToTask => Call::SubscribeToTask(params::<pb::TaskSubscriptionRequest, _>(bytes)?),
        Op::CreateTaskPushNotificationConfig => Call::CreateTaskPushNotificationConfig(params::<
            pb::CreateTaskPushNotificationConfigRequest,
            _,
        >(bytes)?),
        Op::GetTaskPushNotificationConfig => {
            Call::GetTaskPushNotificationConfig(params::<pb::GetTaskPushNotificationConfigRequest, _>(bytes)?)
        }
        Op::ListTaskPushNotificationConfigs => Call::ListTaskPushNotificationConfigs(params::<
            pb::ListTaskPushNotificationConfigRequest,
            _,
        >(bytes)?),
        Op::GetExtendedAgentCard => Call::GetExtendedAgentCard(params::<pb::GetAgentCardRequest, _>(bytes)?),
        Op::DeleteTaskPushNotificationConfig => Call::DeleteTaskPushNotificationConfig(params::<
            pb::DeleteTaskPushNotificationConfigRequest,
            _,
        >(bytes)?),
    })
}

/// Client: encodes a request. Members that v0.3 does not have are left out: the tenant, the metadata of a
/// cancel, and a history length of 0, for which the caller has to remove the history itself.
///
/// # Errors
/// `InvalidParams` with the field if protobuf cannot express a value, `UnsupportedOperation` for operations
/// that v0.3 does not have.
pub fn encode_call(call: &Call, out: &mut Vec<u8>) -> Result<()> {
    check_ids(call)?;
    let kind = ErrorKind::InvalidParams;
    match call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => {
            write::<pb::SendMessageRequest, _>(kind, &**req, out)
        }
        Call::GetTask(req) => write::<pb::GetTaskRequest, _>(kind, &**req, out),
        Call::ListTasks(_) => Err(no_list_tasks()),
        Call::CancelTask(req) => write::<pb::CancelTaskRequest, _>(kind, &**req, out),
        Call::SubscribeToTask(req) => write::<pb::TaskSubscriptionRequest, _>(kind, &**req, out),
        Call::CreateTaskPushNotificationConfig(req) => {
            write::<pb::CreateTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
        Call::GetTaskPushNotificationConfig(req) => {
            write::<pb::GetTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
        Call::ListTaskPushNotificationConfigs(req) => {
            write::<pb::ListTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
        Call::GetExtendedAgentCard(req) => write::<pb::GetAgentCardRequest, _>(kind, &**req, out),
        Call::DeleteTaskPushNotificationConfig(req) => {
            write::<pb::DeleteTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
    }
}

/// Refuses empty ids: the peer would report an invalid name instead of the missing id.
fn check_ids(call: &Call) -> Result<()> {
    let (field, id) = match call {
        Call::GetTask(req) => ("id", &req.id),
        Call::CancelTask(req) => ("id", &req.id),
        Call::SubscribeToTask(req) => ("id", &req.id),
        Call::ListTaskPushNotificationConfigs(req) => ("taskId", &req.task_id),
        Call::GetTaskPushNotificationConfig(req) => ("taskId", &req.task_id),
        Call::DeleteTaskPushNotificationConfig(req) => ("taskId", &req.task_id),
        Call::SendMessage(_)
        | Call::SendStreamingMessage(_)
        | Call::ListTasks(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetExtendedAgentCard(_) => return Ok(()),
    };
    if id.is_empty() { Err(Error::invalid_field(field, "required")) } else { Ok(()) }
}

/// Server: encodes an answer other than a stream.
///
/// # Errors
/// `InvalidAgentResponse` with the field if protobuf cannot express a value, `UnsupportedOperation` for
/// operations that v0.3 does not have, `VersionNotSupported` for the card of an agent without a v0.3
/// interface.
pub fn encode_reply(_op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
    let kind = ErrorKind::InvalidAgentResponse;
    match reply {
        Reply::Sent(sent) => write::<pb::SendMessageResponse, _>(kind, sent, out),
        Reply::Task(task) => write::<pb::Task, _>(kind, task, out),
        Reply::Tasks(_) => Err(no_list_tasks()),
        Reply::PushConfig(config) => write::<pb::TaskPushNotificationConfig, _>(kind, config, out),
        Reply::PushConfigs(page) => write::<pb::ListTaskPushNotificationConfigResponse, _>(kind, page, out),
        Reply::Card(card) => {
            if interfaces_for_v03(card).next().is_none() {
                let text = "the agent has no interface of version 0.3";
                return Err(Error::new(ErrorKind::VersionNotSupported, text));
            }
            write::<pb::AgentCard, _>(kind, &**card, out)
        }
        // `google.protobuf.Empty` has no bytes.
        Reply::Empty => Ok(()),
        Reply::Stream(_) => {
            Err(Error::internal("the service returned a stream for an operation with a single response"))
        }
    }
}

/// Client: decodes an answer other than a stream. Files in it share its memory.
///
/// # Errors
/// `InvalidAgentResponse` with the field, `UnsupportedOperation` for operations that v0.3 does not have.
pub fn decode_reply(op: Op, bytes: Bytes) -> Result<Reply> {
    Ok(match op {
        Op::SendMessage => Reply::Sent(result::<pb::SendMessageResponse, _>(bytes)?),
        Op::GetTask | Op::CancelTask => Reply::Task(result::<pb::Task, _>(bytes)?),
        Op::ListTasks => return Err(no_list_tasks()),
        Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
            Reply::PushConfig(result::<pb::TaskPushNotificationConfig, _>(bytes)?)
        }
        Op::ListTaskPushNotificationConfigs => {
            Reply::PushConfigs(result::<pb::ListTaskPushNotificationConfigResponse, _>(bytes)?)
        }
        Op::GetExtendedAgentCard => Reply::Card(Box::new(result::<pb::AgentCard, _>(bytes)?)),
        Op::DeleteTaskPushNotificationConfig => Reply::Empty,
        Op::SendStreamingMessage | Op::SubscribeToTask => {
            return Err(Error::internal("a streaming operation has no single answer"));
        }
    })
}

/// Server: encodes an event.
///
/// # Errors
/// `InvalidAgentResponse` with the field if protobuf cannot express a value.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) -> Result<()> {
    write::<pb::StreamResponse, _>(ErrorKind::InvalidAgentResponse, event, out)
}

/// Client: decodes an event. Files in it share its memory.
///
/// # Errors
/// `InvalidAgentResponse` with the field.
pub fn decode_event(bytes: Bytes) -> Result<Event> {
    result::<pb::StreamResponse, _>(bytes)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::lenient::MAX_LIST;

    #[test]
    fn a_request_with_an_endless_list_is_refused_before_it_is_decoded() {
        let many = MAX_LIST + 1;
        let parts = pb::Message { content: vec![pb::Part::default(); many], ..pb::Message::default() };
        let authentication = pb::AuthenticationInfo {
            schemes: vec![String::new(); many],
            ..pb::AuthenticationInfo::default()
        };
        let webhook = pb::PushNotificationConfig {
            authentication: Some(authentication),
            ..pb::PushNotificationConfig::default()
        };
        let schemes = pb::SendMessageConfiguration { push_notification: Some(webhook), ..Default::default() };
        let requests = [
            pb::SendMessageRequest { request: Some(parts), ..Default::default() },
            pb::SendMessageRequest { configuration: Some(schemes), ..Default::default() },
        ];
        for request in requests {
            let refused = decode_call(Op::SendMessage, request.encode_to_vec().into()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidParams);
            assert!(refused.message().contains("262144"), "{refused}");
        }
    }
}
