//! Translation of version 0.3. All code outside of this folder uses v1.0; this folder converts v0.3 to our
//! types (*upgrade*) and our types to v0.3 (*downgrade*).
//!
//! v0.3 has two JSON forms: [`JsonRpc`] and [`Rest`]. Decoding is lenient and accepts either form; encoding
//! is exact. Members of messages, tasks, artifacts and events that v0.3 cannot express travel in metadata
//! under [`LEFTOVER`], so that downgrading and upgrading again is the identity. docs/protocol-notes.md
//! lists the other losses.
//!
//! Reading order: `form` (the names in the two forms), `downgrade`, `shape` and `upgrade` (messages, tasks
//! and events), `leftover`, `files` (their content in the protobuf forms), `call` and `push` (requests),
//! `card`, `error`, `words`, `loss`.

mod call;
mod card;
mod downgrade;
mod error;
mod files;
mod form;
mod leftover;
mod loss;
mod name;
#[cfg(feature = "grpc")]
pub mod pb;
mod push;
mod shape;
mod upgrade;
mod words;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

pub use self::{
    card::{decode_card, downgrade_card, union_card, upgrade_card},
    error::{decode_rest_error, rest_error, rest_error_frame},
    files::FileBytes,
    form::{JsonRpc, Rest, RestWith},
    leftover::LEFTOVER,
};
use self::{downgrade::down, form::JsonForm, shape::Up};
use crate::{
    Error, ErrorKind, Event, Result, Version,
    json::decode,
    op::{Call, Op, Reply},
    wire::{Dialect, jsonrpc, peek::TaskShape, rest::Paths},
};

/// The routes of v0.3's HTTP+JSON (03 section 3.5.6).
pub const PATHS: Paths = Paths { prefix: "/v1", card: "/card", tenants: false };

/// The JSON-RPC methods (REQ-033).
const METHODS: &[(Op, &str)] = &[
    (Op::SendMessage, "message/send"),
    (Op::SendStreamingMessage, "message/stream"),
    (Op::GetTask, "tasks/get"),
    (Op::CancelTask, "tasks/cancel"),
    (Op::SubscribeToTask, "tasks/resubscribe"),
    (Op::CreateTaskPushNotificationConfig, "tasks/pushNotificationConfig/set"),
    (Op::GetTaskPushNotificationConfig, "tasks/pushNotificationConfig/get"),
    (Op::ListTaskPushNotificationConfigs, "tasks/pushNotificationConfig/list"),
    (Op::DeleteTaskPushNotificationConfig, "tasks/pushNotificationConfig/delete"),
    (Op::GetExtendedAgentCard, "agent/getAuthenticatedExtendedCard"),
    // The misspelling of 03 section 11.1.3; accepted, never sent.
    (Op::GetExtendedAgentCard, "agent/authenticatedExtendedCard"),
];

fn result<T>(json: &RawValue) -> Result<T>
where
    Up<T>: DeserializeOwned,
{
    decode::<Up<T>>(ErrorKind::InvalidAgentResponse, json.get()).map(|Up(value)| value)
}

fn write(value: &impl Serialize, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, value).map_err(Error::internal)
}

/// Runs a decoder or an encoder of the form `F`, with the current form of files.
fn scoped<F: JsonForm, T>(run: impl FnOnce() -> T) -> T {
    if F::HAS_KIND { run() } else { files::with_any(run) }
}

impl<F: JsonForm> Dialect for F {
    fn version(&self) -> Version {
        Version::V0_3
    }

    fn slot(&self) -> usize {
        F::SLOT
    }

    fn method(&self, op: Op) -> Option<&'static str> {
        METHODS.iter().find(|row| row.0 == op).and_then(|row| F::method(row.1))
    }

    fn op(&self, method: &str) -> Option<Op> {
        METHODS.iter().find(|row| F::method(row.1) == Some(method)).map(|row| row.0)
    }

    fn decode_call(&self, op: Op, params: Option<&RawValue>) -> Result<Call> {
        scoped::<F, _>(|| call::upgrade::<F>(op, params))
    }

    fn says_more(&self, op: Op, params: Option<&RawValue>) -> bool {
        loss::says_more::<F>(op, params)
    }

    fn encode_reply(&self, _op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        scoped::<F, _>(|| match reply {
            Reply::Sent(sent) => write(&down::<F, _>(sent), out),
            Reply::Task(task) => write(&down::<F, _>(task), out),
            Reply::Tasks(_) => Err(call::no_list_tasks()),
            Reply::PushConfig(config) => write(&down::<F, _>(config), out),
            Reply::PushConfigs(page) => write(&down::<F, _>(page), out),
            Reply::Card(card) => write(&downgrade_card(card)?, out),
            Reply::Empty => {
                out.extend_from_slice(if F::HAS_KIND { b"null" } else { b"{}" });
                Ok(())
            }
            Reply::Stream(_) => {
                Err(Error::internal("the service returned a stream for an operation with a single response"))
            }
        })
    }

    fn encode_event(&self, event: &Event, out: &mut Vec<u8>) {
        // Our types have only string keys and finite numbers, so serializing to memory cannot fail.
        let _ = scoped::<F, _>(|| write(&down::<F, _>(event), out));
    }

    fn reword(&self, error: Error) -> Error {
        words::reword::<F>(error)
    }

    /// The v0.3 SDKs read the answer to a streaming method as a stream, independent of its content type.
    fn refuses_in_stream(&self) -> bool {
        true
    }

    fn encode_call(&self, call: &Call, out: &mut Vec<u8>) -> Result<()> {
        scoped::<F, _>(|| write(&call::params::<F>(call)?, out))
    }

    fn decode_reply(&self, op: Op, json: &RawValue) -> Result<Reply> {
        scoped::<F, _>(|| {
            Ok(match op {
                Op::SendMessage => Reply::Sent(result(json)?),
                Op::GetTask | Op::CancelTask => Reply::Task(result(json)?),
                Op::ListTasks => return Err(call::no_list_tasks()),
                Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
                    Reply::PushConfig(result(json)?)
                }
                Op::ListTaskPushNotificationConfigs => Reply::PushConfigs(result(json)?),
                Op::GetExtendedAgentCard => Reply::Card(Box::new(decode_card(json.get().as_bytes())?)),
                // `null`, `{}`, or empty (trap T-29).
                Op::DeleteTaskPushNotificationConfig => Reply::Empty,
                Op::SendStreamingMessage | Op::SubscribeToTask => {
                    return Err(Error::internal("a streaming operation has no single answer"));
                }
            })
        })
    }

    fn task_shape(&self) -> Option<TaskShape> {
        F::HAS_KIND.then_some(TaskShape::Marked("kind", "task"))
    }

    fn decode_event(&self, json: &RawValue) -> Result<Event> {
        scoped::<F, _>(|| result(json))
    }

    fn event_of(&self, response: &str) -> Option<Event> {
        scoped::<F, _>(|| jsonrpc::decode_whole(response).map(|Up(event)| event))
    }
}

impl Dialect for RestWith {
    fn version(&self) -> Version {
        Rest.version()
    }

    fn slot(&self) -> usize {
        if self.0 == FileBytes::Raw { RestWith::RAW_SLOT } else { Rest.slot() }
    }

    fn method(&self, op: Op) -> Option<&'static str> {
        Rest.method(op)
    }

    fn op(&self, method: &str) -> Option<Op> {
        Rest.op(method)
    }

    fn decode_call(&self, op: Op, params: Option<&RawValue>) -> Result<Call> {
        files::with(self.0, || Rest.decode_call(op, params))
    }

    fn says_more(&self, op: Op, params: Option<&RawValue>) -> bool {
        Rest.says_more(op, params)
    }

    fn encode_reply(&self, op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        files::with(self.0, || Rest.encode_reply(op, reply, out))
    }

    fn encode_event(&self, event: &Event, out: &mut Vec<u8>) {
        files::with(self.0, || Rest.encode_event(event, out));
    }

    fn reword(&self, error: Error) -> Error {
        Rest.reword(error)
    }

    fn refuses_in_stream(&self) -> bool {
        Rest.refuses_in_stream()
    }

    fn encode_call(&self, call: &Call, out: &mut Vec<u8>) -> Result<()> {
        files::with(self.0, || Rest.encode_call(call, out))
    }

    fn decode_reply(&self, op: Op, json: &RawValue) -> Result<Reply> {
        files::with(self.0, || Rest.decode_reply(op, json))
    }

    fn task_shape(&self) -> Option<TaskShape> {
        Rest.task_shape()
    }

    fn decode_event(&self, json: &RawValue) -> Result<Event> {
        files::with(self.0, || Rest.decode_event(json))
    }

    fn event_of(&self, response: &str) -> Option<Event> {
        files::with(self.0, || Rest.event_of(response))
    }
}
