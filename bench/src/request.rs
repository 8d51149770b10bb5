//! Requests as bytes, made once and patched per call, so that the generator costs little.

use std::fmt;

use anyhow::{Context as _, Result};
use nuncio_protocol::{
    Binding, GetTaskRequest, Message, Part, SendMessageConfiguration, SendMessageRequest,
    TaskPushNotificationConfig, Version,
    op::{Call, Op},
    pb, v03,
    wire::{
        Dialect, V1,
        rest::{self, Paths},
    },
};
use uuid::Uuid;

/// The agent that is asked, which is the tenant of gRPC.
pub(crate) const AGENT: &str = "echo";

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A blocking send.
    Send,
    /// A send that streams.
    Stream,
    /// A finished task.
    Get,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Send, Self::Stream, Self::Get];

    pub(crate) fn op(self) -> Op {
        match self {
            Self::Send => Op::SendMessage,
            Self::Stream => Op::SendStreamingMessage,
            Self::Get => Op::GetTask,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Stream => "stream",
            Self::Get => "get",
        })
    }
}

/// In which binding and version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Wire {
    JsonRpcV1,
    JsonRpcV03,
    HttpJsonV1,
    HttpJsonV03,
    GrpcV1,
    GrpcV03,
}

impl Wire {
    pub(crate) const ALL: [Self; 6] =
        [Self::JsonRpcV1, Self::JsonRpcV03, Self::HttpJsonV1, Self::HttpJsonV03, Self::GrpcV1, Self::GrpcV03];

    pub(crate) fn binding(self) -> Binding {
        match self {
            Self::JsonRpcV1 | Self::JsonRpcV03 => Binding::JsonRpc,
            Self::HttpJsonV1 | Self::HttpJsonV03 => Binding::HttpJson,
            Self::GrpcV1 | Self::GrpcV03 => Binding::Grpc,
        }
    }

    pub(crate) fn version(self) -> Version {
        match self {
            Self::JsonRpcV1 | Self::HttpJsonV1 | Self::GrpcV1 => Version::V1_0,
            Self::JsonRpcV03 | Self::HttpJsonV03 | Self::GrpcV03 => Version::V0_3,
        }
    }

    /// The same binding in version 1.0.
    pub(crate) fn newest(self) -> Self {
        match self {
            Self::JsonRpcV1 | Self::JsonRpcV03 => Self::JsonRpcV1,
            Self::HttpJsonV1 | Self::HttpJsonV03 => Self::HttpJsonV1,
            Self::GrpcV1 | Self::GrpcV03 => Self::GrpcV1,
        }
    }

    /// Bytes that every successful answer to a request of the benchmark contains.
    pub(crate) fn completed(self) -> &'static [u8] {
        match self {
            Self::JsonRpcV1 | Self::HttpJsonV1 | Self::HttpJsonV03 => b"TASK_STATE_COMPLETED",
            Self::JsonRpcV03 => b"\"completed\"",
            // A status: `state` (field 1) is 3, then `timestamp` (field 3).
            Self::GrpcV1 | Self::GrpcV03 => b"\x08\x03\x1a",
        }
    }

    /// The path of a gRPC method.
    pub(crate) fn rpc(self, op: Op) -> Result<String> {
        let codec = self.codec();
        let rpc = (codec.rpc_name)(op).context("there is no such rpc")?;
        Ok(format!("/{}/{rpc}", codec.service))
    }

    fn codec(self) -> &'static pb::Codec {
        match self.version() {
            Version::V1_0 => &pb::CODEC,
            Version::V0_3 => &v03::pb::CODEC,
        }
    }

    fn jsonrpc(self) -> &'static dyn Dialect {
        match self.version() {
            Version::V1_0 => &V1,
            Version::V0_3 => &v03::JsonRpc,
        }
    }

    fn http_json(self) -> (Paths, &'static dyn Dialect) {
        match self.version() {
            Version::V1_0 => (Paths::V1, &V1),
            Version::V0_3 => (v03::PATHS, &v03::Rest),
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = match self.binding() {
            Binding::JsonRpc => "JSON-RPC",
            Binding::HttpJson => "HTTP+JSON",
            Binding::Grpc => "gRPC",
        };
        write!(f, "{binding} {}", self.version())
    }
}

/// A place that is patched: as wide as an id.
pub(crate) const HOLE: &str = "00000000-0000-4000-8000-000000000000";

/// A request with holes: of HTTP/1.1 all of it, of gRPC the message with its length before it.
pub(crate) struct Template {
    bytes: Vec<u8>,
    holes: Vec<usize>,
}

impl Template {
    pub(crate) fn send(path: &str, wire: Wire, text: &str, stream: bool) -> Result<Self> {
        let message = Message::user(HOLE, [Part::text(text)]);
        let request = Box::new(SendMessageRequest { message, ..SendMessageRequest::default() });
        let call = if stream { Call::SendStreamingMessage(request) } else { Call::SendMessage(request) };
        Self::new(path, wire, call)
    }

    /// A send over JSON-RPC that names a webhook, if there is one.
    pub(crate) fn send_with_webhook(path: &str, text: &str, url: Option<String>) -> Result<Self> {
        let webhook = url.map(|url| TaskPushNotificationConfig {
            url,
            token: Some("a token of the receiver".to_owned()),
            ..TaskPushNotificationConfig::default()
        });
        let configuration = webhook.map(|webhook| SendMessageConfiguration {
            task_push_notification_config: Some(webhook),
            ..SendMessageConfiguration::default()
        });
        let message = Message::user(HOLE, [Part::text(text)]);
        let request = SendMessageRequest { message, configuration, ..SendMessageRequest::default() };
        Self::new(path, Wire::JsonRpcV1, Call::SendMessage(Box::new(request)))
    }

    pub(crate) fn get(path: &str, wire: Wire, task: &str) -> Result<Self> {
        let request = GetTaskRequest { id: task.into(), ..GetTaskRequest::default() };
        Self::new(path, wire, Call::GetTask(Box::new(request)))
    }

    pub(crate) fn new(path: &str, wire: Wire, mut call: Call) -> Result<Self> {
        let bytes = match wire.binding() {
            Binding::JsonRpc => {
                let dialect = wire.jsonrpc();
                let method = dialect.method(call.op()).context("there is no such method")?;
                let mut body =
                    format!(r#"{{"jsonrpc":"2.0","id":"{HOLE}","method":"{method}","params":"#).into_bytes();
                dialect.encode_call(&call, &mut body)?;
                body.push(b'}');
                http("POST", path, wire, &body)
            }
            Binding::HttpJson => {
                let (paths, dialect) = wire.http_json();
                let request = rest::encode_request(&paths, dialect, call)?;
                let path = format!("{path}{}", request.target());
                http(request.verb.as_str(), &path, wire, &request.body.unwrap_or_default())
            }
            Binding::Grpc => {
                if wire.version() == Version::V1_0 {
                    call.set_tenant(Some(AGENT.to_owned()));
                }
                let mut message = vec![0; 5];
                (wire.codec().encode_call)(&call, &mut message)?;
                let length = u32::try_from(message.len() - 5)?;
                message[1..5].copy_from_slice(&length.to_be_bytes());
                message
            }
        };
        let holes = memchr::memmem::find_iter(&bytes, HOLE).collect();
        Ok(Self { bytes, holes })
    }

    /// The same from a caller with this key, over HTTP/1.1.
    pub(crate) fn shown(mut self, key: Option<&str>) -> Self {
        if let Some(key) = key {
            self.insert_header(&format!("authorization: Bearer {key}\r\n"));
        }
        self
    }

    /// The same under an `Idempotency-Key` that no other request has, over HTTP/1.1.
    pub(crate) fn keyed(mut self) -> Self {
        self.insert_header(&format!("idempotency-key: {}-{HOLE}\r\n", Uuid::now_v7()));
        self.holes = memchr::memmem::find_iter(&self.bytes, HOLE).collect();
        self
    }

    fn insert_header(&mut self, header: &str) {
        let at = memchr::memmem::find(&self.bytes, b"\r\n").map_or(0, |line| line + 2);
        self.bytes.splice(at..at, header.bytes());
        self.holes.iter_mut().filter(|hole| **hole >= at).for_each(|hole| *hole += header.len());
    }

    /// The request with this number in its holes.
    pub(crate) fn fill(&mut self, number: u64) -> &[u8] {
        let digits = format!("{number:012x}");
        for &hole in &self.holes {
            self.bytes[hole + 24..hole + 36].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }
}

fn http(verb: &str, path: &str, wire: Wire, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{verb} {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\na2a-version: {}\r\n",
        wire.version()
    );
    if !body.is_empty() {
        request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    request
}

/// A text of this many bytes.
pub(crate) fn text(prefix: &str, bytes: usize) -> String {
    let mut text = prefix.to_owned();
    while text.len() < bytes {
        text.push_str("the quick brown fox jumps over the lazy dog and runs away ");
    }
    text.truncate(bytes.max(prefix.len()));
    text
}
