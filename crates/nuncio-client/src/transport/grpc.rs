//! gRPC (spec 10): one rpc per call, in the protobuf form of any version.
//!
//! Framing is tonic's, with a codec that passes messages as bytes. Below it is a channel that sends through
//! [`Egress`](crate::Egress). The channel sees headers and trailers first, and takes every error of the
//! peer or the connection from them. So any error that tonic itself reports means that the answer is not
//! gRPC.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT, CONTENT_TYPE},
    uri::PathAndQuery,
};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use jiff::Timestamp;
use nuncio_protocol::{
    CallContext, Error, ErrorKind, Result, StreamItem,
    op::{Call, Op, Reply},
    pb::{self, Codec},
};
use parking_lot::Mutex;
use tonic::{
    Code, Request, Status, Streaming,
    body::Body,
    client::Grpc,
    codec::{self, DecodeBuf, EncodeBuf},
    metadata::MetadataMap,
};
use tower::Service;
use url::Url;

use super::{
    Transport, WireStream, endpoint::Endpoint, headers, no_such_operation, status, with_tenant, within,
};
use crate::{
    auth::Granted,
    egress::{failure, shown},
    failure::{Failure, Reached},
    http_headers,
};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Base64 of binary metadata, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// One gRPC interface of an agent.
pub(crate) struct GrpcTransport {
    channel: Channel,
    tenant: Option<String>,
}

impl GrpcTransport {
    pub(crate) fn new(endpoint: Endpoint, tenant: Option<String>, codec: &'static Codec) -> Self {
        let peer = Arc::new(Peer { endpoint, is_known: AtomicBool::new(false) });
        Self { channel: Channel { peer, codec }, tenant }
    }

    /// A client for one call with answers up to `limit` bytes.
    fn client(&self, limit: usize) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(limit)
    }

    /// The request of a call, and the path of its rpc.
    async fn request(
        &self,
        cx: &CallContext,
        call: &Call,
    ) -> Result<(Request<Bytes>, PathAndQuery), Failure> {
        let (op, codec) = (call.op(), self.channel.codec);
        // The call cannot be encoded, so nothing was sent, and a retry would not help.
        let path = path(codec, op).map_err(Failure::answered)?;
        let mut message = Vec::new();
        let call = with_tenant(call, self.tenant.as_deref());
        (codec.encode_call)(&call, &mut message).map_err(Failure::answered)?;
        let mut headers = headers::outgoing(cx, codec.version, op, &self.channel.endpoint().granted).await?;
        // gRPC sets these itself.
        headers.remove(CONTENT_TYPE);
        headers.remove(ACCEPT);
        let mut request = Request::new(Bytes::from(message));
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        if let Some(deadline) = cx.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        Ok((request, path))
    }
}

fn path(codec: &Codec, op: Op) -> Result<PathAndQuery> {
    let rpc = (codec.rpc_name)(op).ok_or_else(|| no_such_operation(op, codec.version))?;
    PathAndQuery::try_from(format!("/{}/{rpc}", codec.service)).map_err(Error::internal)
}

#[async_trait]
impl Transport for GrpcTransport {
    fn granted(&self) -> &Granted {
        &self.channel.endpoint().granted
    }

    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let (request, path) = self.request(cx, call).await?;
        let limit = self.channel.endpoint().egress.max_body();
        let mut client = self.client(limit);
        let answer = within(cx.deadline, async {
            client.unary(request, path, Raw).await.map_err(|status| self.channel.failure(&status, limit))
        });
        let message = answer.await?.into_inner();
        (self.channel.codec.decode_reply)(call.op(), message).map_err(Failure::answered)
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let (request, path) = self.request(cx, call).await?;
        let limit = self.channel.endpoint().egress.max_event();
        let (mut client, channel) = (self.client(limit), self.channel.clone());
        let mut opening = Box::pin(async move {
            match client.server_streaming(request, path, Raw).await {
                Ok(answer) => Ok(events(answer.into_inner(), channel, limit)),
                Err(status) => Err(channel.failure(&status, limit)),
            }
        });
        let opened = async {
            match tokio::time::timeout(HEAD_TIMEOUT, &mut opening).await {
                Ok(opened) => opened.map(Some),
                Err(_) => Ok(None),
            }
        };
        Ok(match within(cx.deadline, opened).await? {
            Some(events) => events,
            None => stream::once(opening).try_flatten().boxed(),
        })
    }
}

/// Many servers send no headers before the first event, which may take long. After this time the stream
/// counts as open; a later refusal is returned as its first event.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);

/// The events of a connection, until it ends, breaks, or has an error.
fn events(messages: Streaming<Bytes>, channel: Channel, limit: usize) -> WireStream {
    let events = stream::unfold(Some((messages, channel)), move |connection| async move {
        let (mut messages, channel) = connection?;
        let item = match messages.message().await {
            Ok(message) => (channel.codec.decode_event)(message?).map_err(Failure::answered),
            Err(status) => Err(channel.failure(&status, limit)),
        };
        Some(match item {
            Ok(mut event) => {
                let seq = pb::take_number(&mut event);
                (Ok(StreamItem::new(seq, Arc::new(event))), Some((messages, channel)))
            }
            Err(failure) => (Err(failure), None),
        })
    });
    events.boxed()
}

/// A codec that passes bytes through: the codec of the version encodes and decodes them.
#[derive(Clone, Copy)]
struct Raw;

impl codec::Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl codec::Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl codec::Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

/// The connection to one interface, as a tower service for tonic.
#[derive(Clone)]
struct Channel {
    peer: Arc<Peer>,
    codec: &'static Codec,
}

struct Peer {
    endpoint: Endpoint,
    /// The peer has answered before, so it speaks HTTP/2.
    is_known: AtomicBool,
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = Cut;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Cut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let channel = self.clone();
        async move { channel.exchange(request).await.map_err(Cut::new) }.boxed()
    }
}

impl Channel {
    fn endpoint(&self) -> &Endpoint {
        &self.peer.endpoint
    }

    /// Adds a hint to the failure of a first connection: the peer may not speak HTTP/2.
    fn doubt(&self, failure: Failure) -> Failure {
        if failure.reached != Reached::Perhaps || self.peer.is_known.load(Ordering::Relaxed) {
            return failure;
        }
        let message = format!("{}; does it speak HTTP/2, as gRPC does?", failure.error.message());
        Failure::perhaps(Error::new(failure.kind(), message).with_source(failure.error))
    }

    /// Sends a request and checks the headers of the answer.
    async fn exchange(self, request: http::Request<Body>) -> Result<http::Response<Body>, Failure> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|status| Failure::answered(Error::internal(status)))?;
        let mut url = self.endpoint().url.clone();
        url.set_path(parts.uri.path());
        let response = self.endpoint().egress.post_http2(&url, parts.headers, body.to_bytes()).await;
        let response = response.map_err(|failure| self.doubt(failure))?;
        self.peer.is_known.store(true, Ordering::Relaxed);
        let mut response: http::Response<reqwest::Body> = response.into();
        // An answer without a message has its trailers in the headers.
        let is_whole = self.settle(response.headers_mut())?;
        if !is_whole {
            self.check_head(&response)?;
        }
        Ok(response.map(|body| if is_whole { Body::empty() } else { self.frames(body) }))
    }

    /// Takes the status out of headers or trailers; true if there is one and it is OK.
    fn settle(&self, headers: &mut HeaderMap) -> Result<bool, Failure> {
        // Removed here, because tonic panics if they are not base64.
        let details = headers.remove(DETAILS);
        if !headers.contains_key(STATUS) {
            return Ok(false);
        }
        let Some(status) = Status::from_header_map(headers).filter(|status| status.code() != Code::Ok) else {
            return Ok(true);
        };
        let details = details.and_then(|details| BASE64.decode(details).ok()).unwrap_or_default();
        let error = (self.codec.decode_status)(status.code().into(), status.message(), &details);
        Err(Failure::answered(status::hint(error, self.endpoint().granted.withheld)))
    }

    /// Refuses the answer of a web server or proxy that is not gRPC.
    fn check_head(&self, response: &http::Response<reqwest::Body>) -> Result<(), Failure> {
        let (code, headers) = (response.status(), response.headers());
        let media_type = http_headers::media_type(headers);
        if !code.is_success() {
            let head = self.endpoint().head(code, headers);
            return Err(Failure::answered(head.told(None, Timestamp::now())));
        }
        if media_type == "application/grpc" || media_type.starts_with("application/grpc+") {
            return Ok(());
        }
        Err(Failure::answered(self.endpoint().unexpected("gRPC", media_type)))
    }

    /// The frames of an answer up to its trailers. Without trailers the answer is incomplete.
    fn frames(self, body: reqwest::Body) -> Body {
        let frames = stream::unfold(Some((self, body)), |answer| async move {
            let (channel, mut body) = answer?;
            let frame = match body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Some((Err(Cut::new(failure(&channel.endpoint().url, error))), None));
                }
                None => return Some((Err(Cut::new(channel.ended_early())), None)),
            };
            Some(match frame.into_trailers() {
                Err(frame) => (Ok(frame), Some((channel, body))),
                Ok(trailers) => (channel.last(trailers).map_err(Cut::new), None),
            })
        });
        Body::new(StreamBody::new(frames))
    }

    fn last(&self, mut trailers: HeaderMap) -> Result<Frame<Bytes>, Failure> {
        if self.settle(&mut trailers)? { Ok(Frame::trailers(trailers)) } else { Err(self.ended_early()) }
    }

    fn ended_early(&self) -> Failure {
        let message = format!("{} ended its answer without a status", shown(&self.endpoint().url));
        Failure::perhaps(Error::new(ErrorKind::Unavailable, message))
    }

    /// The failure of a call: our own failure if the status has one as its source, else the error of tonic.
    fn failure(&self, status: &Status, limit: usize) -> Failure {
        let cut = std::error::Error::source(status).and_then(|source| source.downcast_ref::<Cut>());
        if let Some(failure) = cut.and_then(Cut::take) {
            return failure;
        }
        let url = shown(&self.endpoint().url);
        let message = if status.code() == Code::OutOfRange {
            format!("the answer of {url} is larger than the limit of {limit} bytes")
        } else {
            format!("the answer of {url} is not gRPC: {}", status.message())
        };
        Failure::answered(Error::new(ErrorKind::InvalidAgentResponse, message))
    }
}

/// A failure that passes through tonic, which converts it to a status and keeps it as the source.
struct Cut(Mutex<Option<Failure>>);

impl Cut {
    fn new(failure: Failure) -> Self {
        Self(Mutex::new(Some(failure)))
    }

    fn take(&self) -> Option<Failure> {
        self.0.lock().take()
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cut")
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call failed")
    }
}

impl std::error::Error for Cut {}

/// The URL of a gRPC interface: `host:port`, or a URL as in older cards (trap T-35). If the card does not
/// say whether to use TLS, the scheme of the card's URL decides.
///
/// # Errors
/// `InvalidAgentResponse` if it is not a valid URL.
pub fn grpc_url(text: &str, home: &Url) -> Result<Url> {
    let invalid = |why: &str| {
        let message = format!("the interface {text:?} of the card is not a gRPC address: {why}");
        Error::new(ErrorKind::InvalidAgentResponse, message)
    };
    let (scheme, place) = match text.split_once("://") {
        None => (home.scheme(), text),
        Some((scheme, place)) => match scheme.to_ascii_lowercase().as_str() {
            "http" | "grpc" => ("http", place),
            "https" | "grpcs" => ("https", place),
            _ => return Err(invalid("expected host:port, http, https, grpc or grpcs")),
        },
    };
    let url = Url::parse(&format!("{scheme}://{place}")).map_err(|error| invalid(&error.to_string()))?;
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("a gRPC service is at the root of its host, so no path may follow"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("it holds a user or a password"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        // Trap T-35
        let tls = Url::parse("https://agent.example/.well-known/agent-card.json").unwrap();
        let plain = Url::parse("http://agent.example/").unwrap();
        for (text, home, expected) in [
            ("grpc.example.com:443", &tls, "https://grpc.example.com/"),
            ("grpc.example.com:50051", &tls, "https://grpc.example.com:50051/"),
            ("localhost:50051", &plain, "http://localhost:50051/"),
            ("127.0.0.1:50051", &plain, "http://127.0.0.1:50051/"),
            ("[::1]:50051", &plain, "http://[::1]:50051/"),
            ("agent.example", &tls, "https://agent.example/"),
            ("agent.example:50051/", &tls, "https://agent.example:50051/"),
            ("https://agent.example:50051", &plain, "https://agent.example:50051/"),
            ("http://agent.example:50051/", &tls, "http://agent.example:50051/"),
            ("grpc://agent.example:50051", &tls, "http://agent.example:50051/"),
            ("GRPCS://agent.example:50051", &plain, "https://agent.example:50051/"),
        ] {
            assert_eq!(grpc_url(text, home).unwrap().as_str(), expected, "{text}");
        }
        for (text, why) in [
            ("https://agent.example/a2a", "no path may follow"),
            ("agent.example:50051/a2a", "no path may follow"),
            ("agent.example:50051?x=1", "no path may follow"),
            ("dns:///agent.example:50051", "expected host:port"),
            ("unix:///run/agent.sock", "expected host:port"),
            ("agent.example:port", "invalid port"),
            ("user:secret@agent.example", "it holds a user"),
            ("", "empty host"),
        ] {
            let error = grpc_url(text, &tls).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
            assert!(error.message().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn credentials_stay_at_home() {
        // Lesson 10, for addresses without a scheme, too.
        let credentials = crate::Credentials::none().bearer("t").unwrap();
        let home = Url::parse("https://agent.example:8443/card.json").unwrap();
        for (text, sent) in [
            ("agent.example:8443", true),
            ("https://agent.example:8443", true),
            ("grpc://agent.example:8443", false),
            ("agent.example:50051", false),
            ("agent.example", false),
            ("evil.example:8443", false),
        ] {
            let url = grpc_url(text, &home).unwrap();
            let egress = crate::Egress::operator().unwrap();
            let (_, granted) = credentials.for_target(egress, &url, &home.origin());
            let headers = granted.headers().now_or_never().unwrap().unwrap();
            assert_eq!((!headers.is_empty(), granted.withheld), (sent, !sent), "{text}");
        }
    }
}
