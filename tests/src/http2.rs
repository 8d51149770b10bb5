//! HTTP/2 and gRPC by hand, for what our own client would never send.

use std::net::SocketAddr;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::{Buf as _, Bytes, BytesMut};
use h2::{
    RecvStream, SendStream,
    client::{self, SendRequest},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use nuncio_protocol::{
    Error, Event,
    op::{Call, Op},
    pb::Codec,
};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::within;

/// With padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A connection.
#[derive(Debug)]
pub struct Http2 {
    /// Opens streams.
    pub sender: SendRequest<Bytes>,
    address: SocketAddr,
    /// Ends with the connection, by whomever it is ended.
    pub driver: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = within("the handshake", client::handshake(stream)).await.unwrap();
        Self { sender, address, driver: tokio::spawn(connection) }
    }

    /// Opens a gRPC stream without sending its message.
    ///
    /// # Panics
    /// When there is no stream left.
    pub async fn open(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (client::ResponseFuture, SendStream<Bytes>) {
        self.sender = within("room for a stream", self.sender.clone().ready()).await.unwrap();
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = format!("http://{}{path}", self.address).parse().expect("a path");
        let own = [("content-type", "application/grpc"), ("te", "trailers")];
        let own = own.iter().filter(|(name, _)| !headers.iter().any(|(given, _)| given == name));
        for (name, value) in own.chain(headers) {
            let name: HeaderName = name.parse().expect("a name of a header");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value of a header"));
        }
        self.sender.send_request(request, false).unwrap()
    }

    /// Sends a body and waits for the first of the answer.
    ///
    /// # Panics
    /// When nothing comes.
    pub async fn begin(&mut self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Incoming {
        let (response, mut stream) = self.open(path, headers).await;
        // An answer may come before the whole body is taken, and then the rest of it is not wanted.
        let _ = stream.send_data(body.into(), true);
        let response = within("the answer", response).await.unwrap();
        let (parts, body) = response.into_parts();
        let is_head_only = body.is_end_stream();
        Incoming { http: parts.status, headers: parts.headers, is_head_only, body, buffer: BytesMut::new() }
    }

    /// Sends a body and reads the whole answer.
    pub async fn ask(&mut self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Outcome {
        self.begin(path, headers, body).await.finish().await
    }

    /// Makes a gRPC call.
    pub async fn call(&mut self, codec: &Codec, headers: &[(&str, &str)], call: &Call) -> Outcome {
        self.ask(&rpc(codec, call.op()), headers, frame(&encode(codec, call))).await
    }
}

/// An answer that is still coming.
#[derive(Debug)]
pub struct Incoming {
    /// The HTTP status.
    pub http: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The HEADERS frame has ended the stream (`Trailers-Only`).
    is_head_only: bool,
    body: RecvStream,
    buffer: BytesMut,
}

impl Incoming {
    /// The next message; `None` at the end of them.
    ///
    /// # Panics
    /// When the stream breaks.
    pub async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some((head, rest)) = self.buffer.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if rest.len() >= length {
                    self.buffer.advance(5);
                    return Some(self.buffer.split_to(length).freeze());
                }
            }
            let data = within("a message", self.body.data()).await?.unwrap();
            let _ = self.body.flow_control().release_capacity(data.len());
            self.buffer.extend_from_slice(&data);
        }
    }

    /// The rest.
    ///
    /// # Panics
    /// When the stream breaks.
    pub async fn finish(mut self) -> Outcome {
        let mut messages = Vec::new();
        while let Some(message) = self.message().await {
            messages.push(message);
        }
        let trailers = within("the trailers", self.body.trailers()).await.unwrap().unwrap_or_default();
        let Self { http, headers, is_head_only, .. } = self;
        Outcome { http, headers, is_head_only, messages, trailers }
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Outcome {
    /// The HTTP status.
    pub http: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The HEADERS frame has ended the stream (`Trailers-Only`).
    pub is_head_only: bool,
    /// The messages, without their frames.
    pub messages: Vec<Bytes>,
    trailers: HeaderMap,
}

impl Outcome {
    /// A member of the status. It is in the trailers, or in a head that ends the stream: a status in a head that
    /// goes on is none to most clients of gRPC.
    fn trailer(&self, name: &str) -> Option<&str> {
        let place = if self.is_head_only { &self.headers } else { &self.trailers };
        place.get(name)?.to_str().ok()
    }

    /// The gRPC status; `None` if there is none.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.trailer("grpc-status")?.parse().ok()
    }

    /// The bytes of `google.rpc.Status`.
    #[must_use]
    pub fn details(&self) -> Vec<u8> {
        let text = self.trailer("grpc-status-details-bin").unwrap_or_default();
        BASE64.decode(text).expect("details are in base64")
    }

    /// The error it says.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn error(&self, codec: &Codec) -> Error {
        let code = self.code().unwrap_or_else(|| panic!("no status: {self:?}"));
        assert_ne!(code, 0, "expected an error: {self:?}");
        (codec.decode_status)(code, self.trailer("grpc-message").unwrap_or_default(), &self.details())
    }

    /// The events of a stream.
    ///
    /// # Panics
    /// When a message is none.
    #[must_use]
    pub fn events(&self, codec: &Codec) -> Vec<Event> {
        self.messages.iter().map(|message| (codec.decode_event)(message.clone()).unwrap()).collect()
    }
}

/// A message in its gRPC frame.
///
/// # Panics
/// When it is larger than any message can be.
#[must_use]
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message is at most 4 GiB").to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// The path of an operation.
///
/// # Panics
/// When the version does not have it.
#[must_use]
pub fn rpc(codec: &Codec, op: Op) -> String {
    format!("/{}/{}", codec.service, (codec.rpc_name)(op).expect("this version has the operation"))
}

/// The message of a call.
///
/// # Panics
/// When it cannot be said in protobuf.
#[must_use]
pub fn encode(codec: &Codec, call: &Call) -> Vec<u8> {
    let mut message = Vec::new();
    (codec.encode_call)(call, &mut message).unwrap();
    message
}
