//! Version 1.0: the JSON form of our own types.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Dialect, Pieces, jsonrpc, peek::TaskShape, pieces};
use crate::{
    Error, ErrorKind, Event, Result, SendMessageResponse, Version,
    json::decode,
    op::{Call, Op, Reply},
};

/// The v1.0 dialect, for JSON-RPC and HTTP+JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct V1;

fn params<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<Box<T>> {
    match params {
        Some(json) => decode(ErrorKind::InvalidParams, json.get()).map(Box::new),
        None => Ok(Box::default()),
    }
}

fn result<T: DeserializeOwned>(json: &RawValue) -> Result<T> {
    decode(ErrorKind::InvalidAgentResponse, json.get())
}

fn write(value: &impl Serialize, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, value).map_err(Error::internal)
}

impl Dialect for V1 {
    fn version(&self) -> Version {
        Version::V1_0
    }

    fn slot(&self) -> usize {
        0
    }

    fn method(&self, op: Op) -> Option<&'static str> {
        Some(op.name())
    }

    fn op(&self, method: &str) -> Option<Op> {
        Op::from_name(method)
    }

    fn decode_call(&self, op: Op, json: Option<&RawValue>) -> Result<Call> {
        Ok(match op {
            Op::SendMessage => Call::SendMessage(params(json)?),
            Op::SendStreamingMessage => Call::SendStreamingMessage(params(json)?),
            Op::GetTask => Call::GetTask(params(json)?),
            Op::ListTasks => Call::ListTasks(params(json)?),
            Op::CancelTask => Call::CancelTask(params(json)?),
            Op::SubscribeToTask => Call::SubscribeToTask(params(json)?),
            Op::CreateTaskPushNotificationConfig => Call::CreateTaskPushNotificationConfig(params(json)?),
            Op::GetTaskPushNotificationConfig => Call::GetTaskPushNotificationConfig(params(json)?),
            Op::ListTaskPushNotificationConfigs => Call::ListTaskPushNotificationConfigs(params(json)?),
            Op::GetExtendedAgentCard => Call::GetExtendedAgentCard(params(json)?),
            Op::DeleteTaskPushNotificationConfig => Call::DeleteTaskPushNotificationConfig(params(json)?),
        })
    }

    fn encode_reply(&self, _op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Sent(sent) => write(sent, out),
            Reply::Task(task) => write(task, out),
            Reply::Tasks(page) => write(page, out),
            Reply::PushConfig(config) => write(config, out),
            Reply::PushConfigs(page) => write(page, out),
            Reply::Card(card) => write(card, out),
            Reply::Empty => {
                out.extend_from_slice(b"{}");
                Ok(())
            }
            Reply::Stream(_) => {
                Err(Error::internal("the service returned a stream for an operation with a single response"))
            }
        }
    }

    fn reply_pieces(&self, op: Op, reply: Reply) -> Result<Pieces> {
        let around = |text: &'static [u8]| std::iter::once(Bytes::from_static(text));
        Ok(match reply {
            Reply::Tasks(page) => pieces::page(page),
            Reply::Task(task) => Box::new(pieces::task(task)),
            Reply::Sent(SendMessageResponse::Task(task)) => {
                Box::new(around(br#"{"task":"#).chain(pieces::task(task)).chain(around(b"}")))
            }
            reply => {
                let mut out = Vec::new();
                self.encode_reply(op, &reply, &mut out)?;
                Box::new(std::iter::once(out.into()))
            }
        })
    }

    fn encode_event(&self, event: &Event, out: &mut Vec<u8>) {
        // Our types have only string keys and finite numbers, so serializing to memory cannot fail.
        let _ = write(event, out);
    }

    fn encode_call(&self, call: &Call, out: &mut Vec<u8>) -> Result<()> {
        match call {
            Call::SendMessage(req) | Call::SendStreamingMessage(req) => write(req, out),
            Call::GetTask(req) => write(req, out),
            Call::ListTasks(req) => write(req, out),
            Call::CancelTask(req) => write(req, out),
            Call::SubscribeToTask(req) => write(req, out),
            Call::CreateTaskPushNotificationConfig(req) => write(req, out),
            Call::GetTaskPushNotificationConfig(req) => write(req, out),
            Call::ListTaskPushNotificationConfigs(req) => write(req, out),
            Call::GetExtendedAgentCard(req) => write(req, out),
            Call::DeleteTaskPushNotificationConfig(req) => write(req, out),
        }
    }

    fn decode_reply(&self, op: Op, json: &RawValue) -> Result<Reply> {
        Ok(match op {
            Op::SendMessage => Reply::Sent(result(json)?),
            Op::GetTask | Op::CancelTask => Reply::Task(result(json)?),
            Op::ListTasks => Reply::Tasks(result(json)?),
            Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
                Reply::PushConfig(result(json)?)
            }
            Op::ListTaskPushNotificationConfigs => Reply::PushConfigs(result(json)?),
            Op::GetExtendedAgentCard => Reply::Card(result(json)?),
            // `{}`, or `null` from some peers (trap T-29).
            Op::DeleteTaskPushNotificationConfig => Reply::Empty,
            Op::SendStreamingMessage | Op::SubscribeToTask => {
                return Err(Error::internal("a streaming operation has no single answer"));
            }
        })
    }

    fn task_shape(&self) -> Option<TaskShape> {
        Some(TaskShape::Inside("task"))
    }

    fn decode_event(&self, json: &RawValue) -> Result<Event> {
        result(json)
    }

    fn event_of(&self, response: &str) -> Option<Event> {
        jsonrpc::decode_whole(response)
    }
}
