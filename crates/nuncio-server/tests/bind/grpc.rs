//! The gRPC binding: a call by hand, frame and trailers included. The tests are in `grpc_calls.rs` (what
//! calls mean) and `grpc_frames.rs` (what is wrong before they mean anything).

use axum::{body::Body, response::Response};
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use nuncio_server::protocol::{
    Error, Event, Message, Part, SendMessageRequest,
    op::{Call, Op, Reply},
    pb::{self, Codec},
    v03,
};
use tonic::{Code, Status};

use crate::Port;

/// The packages of both versions.
pub(crate) const BOTH: [&Codec; 2] = [&pb::CODEC, &v03::pb::CODEC];

/// A message in its frame.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A request as gRPC has it.
pub(crate) fn request(path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::post(path).version(Version::HTTP_2).header("te", "trailers");
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header(header::CONTENT_TYPE, "application/grpc");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

/// The complete answer.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) http: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) messages: Vec<Bytes>,
    /// `None` if there was no gRPC status at all.
    pub(crate) status: Option<Status>,
}

impl Outcome {
    pub(crate) async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        let mut bytes = body.to_bytes();
        let mut messages = Vec::new();
        let is_grpc =
            parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/grpc");
        while is_grpc && bytes.has_remaining() {
            assert_eq!(bytes.get_u8(), 0, "not compressed");
            let length = bytes.get_u32() as usize;
            messages.push(bytes.split_to(length));
        }
        // Either with the headers, when there is nothing else, or at the very end; never twice.
        let early = Status::from_header_map(&parts.headers);
        let late = trailers.as_ref().and_then(Status::from_header_map);
        assert!(early.is_none() || (late.is_none() && messages.is_empty()), "{early:?} {late:?}");
        Self { http: parts.status, headers: parts.headers, messages, status: early.or(late) }
    }

    pub(crate) fn code(&self) -> Code {
        self.status.as_ref().unwrap_or_else(|| panic!("no status: {self:?}")).code()
    }

    pub(crate) fn error(&self, codec: &Codec) -> Error {
        let status = self.status.as_ref().unwrap();
        assert_ne!(status.code(), Code::Ok, "{self:?}");
        (codec.decode_status)(status.code().into(), status.message(), status.details())
    }

    pub(crate) fn reply(&self, codec: &Codec, op: Op) -> Reply {
        assert_eq!((self.code(), self.messages.len()), (Code::Ok, 1), "{self:?}");
        (codec.decode_reply)(op, self.messages[0].clone()).unwrap()
    }

    pub(crate) fn events(&self, codec: &Codec) -> Vec<Event> {
        self.messages.iter().map(|message| (codec.decode_event)(message.clone()).unwrap()).collect()
    }
}

pub(crate) fn path(codec: &Codec, op: Op) -> String {
    format!("/{}/{}", codec.service, (codec.rpc_name)(op).unwrap())
}

pub(crate) fn encode(codec: &Codec, call: &Call) -> Vec<u8> {
    let mut bytes = Vec::new();
    (codec.encode_call)(call, &mut bytes).unwrap();
    bytes
}

pub(crate) fn send(text: &str) -> SendMessageRequest {
    SendMessageRequest { message: Message::user("m-1", Part::text(text)), ..SendMessageRequest::default() }
}

impl Port {
    pub(crate) async fn grpc(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Outcome {
        Outcome::read(self.request(request(path, headers, body)).await).await
    }

    /// Makes a call.
    pub(crate) async fn call_grpc(&self, codec: &Codec, headers: &[(&str, &str)], call: &Call) -> Outcome {
        self.grpc(&path(codec, call.op()), headers, frame(&encode(codec, call))).await
    }
}
