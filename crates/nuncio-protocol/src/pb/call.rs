//! Calls, answers and events of v1.0 as the bytes of protobuf messages, like the JSON dialects for their
//! bindings. The gRPC framing is not part of it.

use bytes::Bytes;
use prost::Message;

use super::{
    convert::{Convert, Mismatch},
    generated as pb,
    lists::check_lists,
};
use crate::{
    Error, ErrorKind, Event, ListTasksRequest, Result,
    op::{Call, Op, Reply},
};

/// The gRPC service: calls go to `/{SERVICE}/{rpc}`.
pub const SERVICE: &str = "lf.a2a.v1.A2AService";

/// The messages with lists in a `SendMessageRequest`: `message` and `configuration`.
const LISTS: &[&[u32]] = &[&[2], &[3]];

/// The rpc of an operation.
#[must_use]
pub fn rpc_name(op: Op) -> Option<&'static str> {
    Some(op.name())
}

/// The operation of an rpc.
#[must_use]
pub fn op_from_rpc(name: &str) -> Option<Op> {
    Op::from_name(name)
}

/// Server: decodes a request. Files in it share its memory.
///
/// # Errors
/// `ParseError` if the bytes are not such a message; `InvalidParams` with the field if a value is invalid.
pub fn decode_call(op: Op, bytes: Bytes) -> Result<Call> {
    Ok(match op {
        Op::SendMessage => {
            Call::SendMessage(params::<pb::SendMessageRequest, _>(check_lists(bytes, LISTS)?)?)
        }
        Op::SendStreamingMessage => {
            Call::SendStreamingMessage(params::<pb::SendMessageRequest, _>(check_lists(bytes, LISTS)?)?)
        }
        Op::GetTask => Call::GetTask(params::<pb::GetTaskRequest, _>(bytes)?),
        Op::ListTasks => {
            let mut req: Box<ListTasksRequest> = params::<pb::ListTasksRequest, _>(bytes)?;
            // Official clients set the field to 0 if no size was chosen. In JSON 0 is refused (REQ-121).
            req.page_size.take_if(|size| *size == 0);
            Call::ListTasks(req)
        }
        Op::CancelTask => Call::CancelTask(params::<pb::CancelTaskRequest, _>(bytes)?),
        Op::SubscribeToTask => Call::SubscribeToTask(params::<pb::SubscribeToTaskRequest, _>(bytes)?),
        Op::CreateTaskPushNotificationConfig => {
            Call::CreateTaskPushNotificationConfig(params::<pb::TaskPushNotificationConfig, _>(bytes)?)
        }
        Op::GetTaskPushNotificationConfig => {
            Call::GetTaskPushNotificationConfig(params::<pb::GetTaskPushNotificationConfigRequest, _>(bytes)?)
        }
        Op::ListTaskPushNotificationConfigs => Call::ListTaskPushNotificationConfigs(params::<
            pb::ListTaskPushNotificationConfigsRequest,
            _,
        >(bytes)?),
        Op::GetExtendedAgentCard => {
            Call::GetExtendedAgentCard(params::<pb::GetExtendedAgentCardRequest, _>(bytes)?)
        }
        Op::DeleteTaskPushNotificationConfig => Call::DeleteTaskPushNotificationConfig(params::<
            pb::DeleteTaskPushNotificationConfigRequest,
            _,
        >(bytes)?),
    })
}

/// Client: encodes a request.
///
/// # Errors
/// `InvalidParams` with the field if protobuf cannot express a value.
pub fn encode_call(call: &Call, out: &mut Vec<u8>) -> Result<()> {
    let kind = ErrorKind::InvalidParams;
    match call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => {
            write::<pb::SendMessageRequest, _>(kind, &**req, out)
        }
        Call::GetTask(req) => write::<pb::GetTaskRequest, _>(kind, &**req, out),
        // It would be decoded as no size; see `decode_call`.
        Call::ListTasks(req) if req.page_size == Some(0) => {
            Err(Error::invalid_field("pageSize", "must be from 1 to 100"))
        }
        Call::ListTasks(req) => write::<pb::ListTasksRequest, _>(kind, &**req, out),
        Call::CancelTask(req) => write::<pb::CancelTaskRequest, _>(kind, &**req, out),
        Call::SubscribeToTask(req) => write::<pb::SubscribeToTaskRequest, _>(kind, &**req, out),
        Call::CreateTaskPushNotificationConfig(req) => {
            write::<pb::TaskPushNotificationConfig, _>(kind, &**req, out)
        }
        Call::GetTaskPushNotificationConfig(req) => {
            write::<pb::GetTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
        Call::ListTaskPushNotificationConfigs(req) => {
            write::<pb::ListTaskPushNotificationConfigsRequest, _>(kind, &**req, out)
        }
        Call::GetExtendedAgentCard(req) => write::<pb::GetExtendedAgentCardRequest, _>(kind, &**req, out),
        Call::DeleteTaskPushNotificationConfig(req) => {
            write::<pb::DeleteTaskPushNotificationConfigRequest, _>(kind, &**req, out)
        }
    }
}

/// Server: encodes an answer other than a stream.
///
/// # Errors
/// `InvalidAgentResponse` with the field if protobuf cannot express a value.
pub fn encode_reply(_op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
    let kind = ErrorKind::InvalidAgentResponse;
    match reply {
        Reply::Sent(sent) => write::<pb::SendMessageResponse, _>(kind, sent, out),
        Reply::Task(task) => write::<pb::Task, _>(kind, task, out),
        Reply::Tasks(page) => write::<pb::ListTasksResponse, _>(kind, page, out),
        Reply::PushConfig(config) => write::<pb::TaskPushNotificationConfig, _>(kind, config, out),
        Reply::PushConfigs(page) => write::<pb::ListTaskPushNotificationConfigsResponse, _>(kind, page, out),
        Reply::Card(card) => write::<pb::AgentCard, _>(kind, &**card, out),
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
/// `InvalidAgentResponse` with the field.
pub fn decode_reply(op: Op, bytes: Bytes) -> Result<Reply> {
    Ok(match op {
        Op::SendMessage => Reply::Sent(result::<pb::SendMessageResponse, _>(bytes)?),
        Op::GetTask | Op::CancelTask => Reply::Task(result::<pb::Task, _>(bytes)?),
        Op::ListTasks => Reply::Tasks(result::<pb::ListTasksResponse, _>(bytes)?),
        Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
            Reply::PushConfig(result::<pb::TaskPushNotificationConfig, _>(bytes)?)
        }
        Op::ListTaskPushNotificationConfigs => {
            Reply::PushConfigs(result::<pb::ListTaskPushNotificationConfigsResponse, _>(bytes)?)
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

/// Decodes the parameters of a call from the message `P`.
pub(crate) fn params<P: Message + Default, T: Convert<P>>(bytes: Bytes) -> Result<Box<T>> {
    let pb = P::decode(bytes).map_err(|error| malformed(ErrorKind::ParseError, &error))?;
    convert(ErrorKind::InvalidParams, || T::from_pb(pb)).map(Box::new)
}

/// Decodes an answer from the message `P`.
pub(crate) fn result<P: Message + Default, T: Convert<P>>(bytes: Bytes) -> Result<T> {
    let kind = ErrorKind::InvalidAgentResponse;
    let pb = P::decode(bytes).map_err(|error| malformed(kind, &error))?;
    convert(kind, || T::from_pb(pb))
}

/// Encodes `value` as the message `P`; a failure has this kind and leaves `out` unchanged.
pub(crate) fn write<P: Message, T: Convert<P>>(kind: ErrorKind, value: &T, out: &mut Vec<u8>) -> Result<()> {
    let pb = convert(kind, || value.to_pb())?;
    out.reserve(pb.encoded_len());
    pb.encode(out).map_err(Error::internal)
}

fn convert<T>(kind: ErrorKind, convert: impl FnOnce() -> Result<T, Mismatch>) -> Result<T> {
    convert().map_err(|mismatch| mismatch.into_error(kind))
}

fn malformed(kind: ErrorKind, error: &prost::DecodeError) -> Error {
    Error::new(kind, format!("invalid protobuf payload: {error}"))
}
