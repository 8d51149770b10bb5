//! The five forms that a message can have on a wire, behind one pair of functions.

use std::{str, sync::LazyLock};

use bytes::Bytes;
use nuncio_protocol::{
    Binding, Error, Event, Result, Version,
    op::{Call, Op, Reply},
    pb::{self, Codec, DESCRIPTOR_SET},
    v03,
    wire::{
        Dialect, V1,
        jsonrpc::{self, ErrorData},
    },
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::{Value, json, value::RawValue};

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Call(Op),
    Reply(Op),
    Event,
    Error,
}

/// A message in our own types.
pub(crate) enum Thing {
    Call(Call),
    Reply(Op, Reply),
    Event(Event),
    Error(Error),
}

/// A form of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    /// v1.0, JSON-RPC and HTTP+JSON alike.
    V1Json,
    /// v1.0, gRPC.
    V1Grpc,
    /// v0.3, JSON-RPC.
    JsonRpc,
    /// v0.3, HTTP+JSON: the ProtoJSON of its proto, except for cards.
    Rest,
    /// v0.3, gRPC.
    Grpc,
}

/// The common encoding of the forms.
enum Format {
    Json(&'static dyn Dialect),
    Protobuf(&'static Codec),
}

static V1_CODEC: Codec = pb::CODEC;
static OLD_CODEC: Codec = v03::pb::CODEC;

impl Wire {
    /// The forms of v0.3.
    pub(crate) const OLD: [Self; 3] = [Self::JsonRpc, Self::Rest, Self::Grpc];
    /// The forms of v1.0.
    pub(crate) const NEW: [Self; 2] = [Self::V1Json, Self::V1Grpc];

    /// The version and a binding that speaks like this.
    pub(crate) fn spoken(self) -> (Version, Binding) {
        match self {
            Self::V1Json => (Version::V1_0, Binding::JsonRpc),
            Self::V1Grpc => (Version::V1_0, Binding::Grpc),
            Self::JsonRpc => (Version::V0_3, Binding::JsonRpc),
            Self::Rest => (Version::V0_3, Binding::HttpJson),
            Self::Grpc => (Version::V0_3, Binding::Grpc),
        }
    }

    fn format(self) -> Format {
        match self {
            Self::V1Json => Format::Json(&V1),
            Self::JsonRpc => Format::Json(&v03::JsonRpc),
            Self::Rest => Format::Json(&v03::Rest),
            Self::V1Grpc => Format::Protobuf(&V1_CODEC),
            Self::Grpc => Format::Protobuf(&OLD_CODEC),
        }
    }

    pub(crate) fn write(self, thing: &Thing) -> Result<Bytes> {
        let mut out = Vec::new();
        match (thing, self.format()) {
            (Thing::Call(call), Format::Json(dialect)) => dialect.encode_call(call, &mut out)?,
            (Thing::Call(call), Format::Protobuf(codec)) => (codec.encode_call)(call, &mut out)?,
            (Thing::Reply(op, reply), Format::Json(dialect)) => dialect.encode_reply(*op, reply, &mut out)?,
            (Thing::Reply(op, reply), Format::Protobuf(codec)) => (codec.encode_reply)(*op, reply, &mut out)?,
            (Thing::Event(event), Format::Json(dialect)) => dialect.encode_event(event, &mut out),
            (Thing::Event(event), Format::Protobuf(codec)) => (codec.encode_event)(event, &mut out)?,
            (Thing::Error(error), Format::Json(_)) if self == Self::Rest => {
                let (status, body) = v03::rest_error(error);
                out = json!({"status": status, "body": body}).to_string().into();
            }
            (Thing::Error(error), Format::Json(_)) => {
                let mut body = Vec::new();
                let data = if self == Self::JsonRpc { ErrorData::Object } else { ErrorData::List };
                jsonrpc::encode_error(None, error, data, &mut body);
                let body: Value = serde_json::from_slice(&body).unwrap();
                out = body["error"].to_string().into();
            }
            (Thing::Error(error), Format::Protobuf(codec)) => out = (codec.encode_status)(error),
        }
        Ok(out.into())
    }

    pub(crate) fn read(self, kind: Kind, bytes: Bytes) -> Result<Thing> {
        Ok(match (kind, self.format()) {
            (Kind::Call(op), Format::Json(dialect)) => {
                Thing::Call(dialect.decode_call(op, Some(raw(&bytes)))?)
            }
            (Kind::Call(op), Format::Protobuf(codec)) => Thing::Call((codec.decode_call)(op, bytes)?),
            (Kind::Reply(op), Format::Json(dialect)) => {
                Thing::Reply(op, dialect.decode_reply(op, raw(&bytes))?)
            }
            (Kind::Reply(op), Format::Protobuf(codec)) => Thing::Reply(op, (codec.decode_reply)(op, bytes)?),
            (Kind::Event, Format::Json(dialect)) => Thing::Event(dialect.decode_event(raw(&bytes))?),
            (Kind::Event, Format::Protobuf(codec)) => Thing::Event((codec.decode_event)(bytes)?),
            (Kind::Error, Format::Json(_)) if self == Self::Rest => {
                let answer: Value = serde_json::from_slice(&bytes).unwrap();
                let status = answer["status"].as_u64().and_then(|status| status.try_into().ok()).unwrap();
                Thing::Error(v03::decode_rest_error(status, answer["body"].to_string().as_bytes()))
            }
            (Kind::Error, Format::Json(_)) => {
                let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}}", raw(&bytes));
                Thing::Error(jsonrpc::decode_response(body.as_bytes()).unwrap_err())
            }
            (Kind::Error, Format::Protobuf(codec)) => {
                let Status { code, message } = Status::decode(&*bytes).unwrap();
                Thing::Error((codec.decode_status)(code, &message, &bytes))
            }
        })
    }

    /// Reads what was just written.
    pub(crate) fn pass(self, kind: Kind, thing: &Thing) -> Result<Thing> {
        self.read(kind, self.write(thing)?)
    }

    /// The bytes of a document in this form; protobuf is given as its ProtoJSON.
    pub(crate) fn bytes(self, kind: Kind, tree: &Value) -> Bytes {
        match (self.format(), kind) {
            (Format::Json(_), _) => tree.to_string().into(),
            (Format::Protobuf(_), Kind::Error) => {
                let message = tree["message"].as_str().unwrap().to_owned();
                let code = tree["code"].as_i64().and_then(|code| code.try_into().ok()).unwrap();
                Status { code, message }.encode_to_vec().into()
            }
            (Format::Protobuf(_), _) => {
                let json = tree.to_string();
                let mut reader = serde_json::Deserializer::from_str(&json);
                DynamicMessage::deserialize(message_of(kind), &mut reader)
                    .unwrap_or_else(|error| panic!("{error}\n{tree:#}"))
                    .encode_to_vec()
                    .into()
            }
        }
    }

    /// The document that these bytes are; of an error in protobuf, its code and message.
    pub(crate) fn tree(self, kind: Kind, bytes: &[u8]) -> Value {
        match (self.format(), kind) {
            (Format::Json(_), _) => serde_json::from_slice(bytes).unwrap(),
            (Format::Protobuf(_), Kind::Error) => {
                let Status { code, message } = Status::decode(bytes).unwrap();
                json!({"code": code, "message": message})
            }
            (Format::Protobuf(_), _) => {
                let message = DynamicMessage::decode(message_of(kind), bytes).unwrap();
                serde_json::to_value(&message).unwrap()
            }
        }
    }
}

fn raw(bytes: &[u8]) -> &RawValue {
    serde_json::from_slice(bytes).unwrap()
}

/// v1.0 JSON, in which the two ends of a translation are compared.
pub(crate) fn read_v1(kind: Kind, json: &Value) -> Thing {
    Wire::V1Json
        .read(kind, json.to_string().into())
        .unwrap_or_else(|error| panic!("{kind:?}: {error}\n{json:#}"))
}

pub(crate) fn write_v1(thing: &Thing) -> Value {
    serde_json::from_slice(&Wire::V1Json.write(thing).unwrap()).unwrap()
}

/// The head of `google.rpc.Status`, which gRPC sends beside the whole of it.
#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTOR_SET).expect("the descriptors are generated"));

/// The message of v0.3 that a document is.
fn message_of(kind: Kind) -> MessageDescriptor {
    let name = match kind {
        Kind::Call(Op::SendMessage | Op::SendStreamingMessage) => "SendMessageRequest",
        Kind::Call(Op::GetTask) => "GetTaskRequest",
        Kind::Call(Op::CancelTask) => "CancelTaskRequest",
        Kind::Call(Op::SubscribeToTask) => "TaskSubscriptionRequest",
        Kind::Call(Op::CreateTaskPushNotificationConfig) => "CreateTaskPushNotificationConfigRequest",
        Kind::Call(Op::GetTaskPushNotificationConfig) => "GetTaskPushNotificationConfigRequest",
        Kind::Call(Op::ListTaskPushNotificationConfigs) => "ListTaskPushNotificationConfigRequest",
        Kind::Call(Op::DeleteTaskPushNotificationConfig) => "DeleteTaskPushNotificationConfigRequest",
        Kind::Call(Op::GetExtendedAgentCard) => "GetAgentCardRequest",
        Kind::Reply(Op::SendMessage) => "SendMessageResponse",
        Kind::Reply(Op::GetTask | Op::CancelTask) => "Task",
        Kind::Reply(Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig) => {
            "TaskPushNotificationConfig"
        }
        Kind::Reply(Op::ListTaskPushNotificationConfigs) => "ListTaskPushNotificationConfigResponse",
        Kind::Reply(Op::GetExtendedAgentCard) => "AgentCard",
        // `google.protobuf.Empty` is not in the set; this one is as empty.
        Kind::Reply(Op::DeleteTaskPushNotificationConfig) => "GetAgentCardRequest",
        Kind::Event => "StreamResponse",
        Kind::Call(Op::ListTasks)
        | Kind::Reply(Op::ListTasks | Op::SendStreamingMessage | Op::SubscribeToTask)
        | Kind::Error => panic!("{kind:?} has no message"),
    };
    POOL.get_message_by_name(&format!("a2a.v1.{name}")).expect("a message of the descriptors")
}
