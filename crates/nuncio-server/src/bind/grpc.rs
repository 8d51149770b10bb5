//! The gRPC binding. The services of both versions share the port of the other bindings. tonic does the
//! framing; the path of a call selects its version, and its tenant selects the agent.

use std::{cmp::Ordering, fmt, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::Response,
    routing::{MethodRouter, any},
};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::Full;
use nuncio_protocol::{
    Binding, CallContext, Caller, Error, ErrorKind, EventStream, RESUME_EXTENSION, Result, StreamItem,
    op::{Call, Op, Reply},
    pb::{self, Codec},
    wire::excerpt,
};
use tonic::{
    Code, Status,
    codec::{BufferSettings, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    server,
};
use tower::service_fn;

use super::{
    Agent, AgentInner, BindOptions, Directory, PublicBase, RequestId, answer,
    body::{self, ReadBody},
    context,
    directory::refuse_tenant,
    piece_body::HeldBody,
    sealed::{self, SealedCall},
    shared_root::ANSWERED_BY,
    version::{self, CODECS},
};
use crate::{
    memory::{MemoryAccount, MemoryReservation, MemoryUse},
    size,
};

/// The gRPC services of one port, shared by all agents behind it.
#[derive(Clone)]
pub struct Grpc {
    behind: Behind,
}

#[derive(Clone)]
enum Behind {
    /// One agent, which gives tenants a meaning of its own.
    One(Agent),
    /// Several agents; the tenant is the name of one.
    Many { directory: Arc<dyn Directory>, options: Arc<BindOptions> },
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc").finish_non_exhaustive()
    }
}

impl Grpc {
    /// One agent, which gets all calls with any tenant.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        Self { behind: Behind::One(agent.clone()) }
    }

    /// Several agents by name, which callers give as the tenant. The name only selects the agent and does not
    /// become part of a task's scope.
    #[must_use]
    pub fn shared(directory: Arc<dyn Directory>, options: BindOptions) -> Self {
        Self { behind: Behind::Many { directory, options: Arc::new(options) } }
    }

    /// The names of the services, one per version.
    pub fn services() -> impl Iterator<Item = &'static str> {
        CODECS.iter().map(|codec| codec.service)
    }

    /// The routes of all services.
    pub fn router(&self) -> Router {
        self.routes().into_iter().fold(Router::new(), |router, (path, route)| router.route(&path, route))
    }

    /// The path of each service, with its handler.
    pub fn routes(&self) -> Vec<(String, MethodRouter)> {
        let route = |codec: &'static Codec| {
            let grpc = self.clone();
            let serve = move |request: Request| async move { grpc.serve(codec, request).await };
            (format!("/{}/{{rpc}}", codec.service), any(serve))
        };
        CODECS.into_iter().map(route).collect()
    }

    async fn serve(self, codec: &'static Codec, request: Request) -> Response {
        if let Some(refusal) = no_grpc(&request) {
            return refusal;
        }
        let mut response = self.answer(codec, request).await;
        version::name(codec.version, response.headers_mut());
        response
    }

    async fn answer(self, codec: &'static Codec, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let request_id = parts.extensions.get::<RequestId>().cloned();
        let codec = version::codec_for(codec, &parts.headers);
        let rpc = parts.uri.path().rsplit('/').next().unwrap_or_default();
        let Some(op) = (codec.op_from_rpc)(rpc) else {
            return unimplemented(&format!("{} has no method of this name", codec.service));
        };
        // Read here and not by tonic, so that the limits are those of all bindings.
        let body = body::read(body, self.options()).await;
        let body = match body.and_then(|body| check_frame(&body.bytes).map(|()| body)) {
            Ok(body) => body,
            Err(error) => return status(codec, request_id.as_ref(), error).into_http::<Body>(),
        };
        let exchange = GrpcExchange { grpc: self, codec, op, request_id };
        if let Some(relayed) = exchange.relay(&parts, &body.bytes).await {
            return relayed;
        }
        let mut request = http::Request::from_parts(parts, Full::new(body.bytes.clone()));
        // The reservation of its memory goes along until the message is decoded.
        request.extensions_mut().insert(body.with_bytes(Bytes::new()));
        drop(body);
        let mut server = server::Grpc::new(BytesCodec).max_decoding_message_size(usize::MAX);
        let response = if op.row().streaming {
            let call = service_fn(|request| exchange.stream(request));
            server.server_streaming(call, request).await
        } else {
            let call = service_fn(|request| exchange.unary(request));
            server.unary(call, request).await
        };
        let mut response = response.map(Body::new);
        match response.extensions_mut().remove::<Arc<MemoryReservation>>() {
            Some(held) => response.map(|body| Body::new(HeldBody { body, _memory: held })),
            None => response,
        }
    }

    fn options(&self) -> &BindOptions {
        match &self.behind {
            Behind::One(agent) => &agent.inner.options,
            Behind::Many { options, .. } => options,
        }
    }

    /// Finds the agent of a call, and removes its name from the call.
    fn route(&self, call: &mut Call, extensions: &http::Extensions) -> Result<Agent> {
        let directory = match &self.behind {
            Behind::One(agent) => return Ok(agent.clone()),
            Behind::Many { directory, .. } => directory,
        };
        directory.permit(call.tenant(), extensions)?;
        let agent = directory
            .find(call.tenant(), extensions)
            .ok_or_else(|| refuse_tenant(&**directory, call.tenant(), extensions))?;
        call.set_tenant(None);
        Ok(agent)
    }

    /// Metadata with the name of the agent, for a call without a tenant. It shows a client that dropped the
    /// card's tenant that it has reached the default agent.
    fn named(&self, agent: &AgentInner, tenant: Option<&str>) -> Option<(HeaderName, HeaderValue)> {
        if matches!(self.behind, Behind::One(_)) || tenant.is_some() {
            return None;
        }
        let name = agent.options.agent_name.as_deref()?;
        Some((ANSWERED_BY, HeaderValue::from_str(name).ok()?))
    }
}

/// True for gRPC with protobuf, the default message format. Others, such as gRPC-Web, have frames or messages
/// that this binding cannot read.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.and_then(|media_type| media_type.split(';').next()).unwrap_or_default().trim();
    ["application/grpc", "application/grpc+proto"].iter().any(|own| essence.eq_ignore_ascii_case(own))
}

/// The response to an unknown gRPC method.
#[must_use]
pub fn unimplemented(message: &str) -> Response {
    Status::unimplemented(message).into_http::<Body>()
}

/// Refuses a request that is not gRPC, by an HTTP status.
fn no_grpc(request: &Request) -> Option<Response> {
    let (status, message) = if !is_grpc(request.headers()) {
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected Content-Type: application/grpc\n")
    } else if request.method() != Method::POST {
        (StatusCode::METHOD_NOT_ALLOWED, "gRPC calls use POST\n")
    } else if request.version() < http::Version::HTTP_2 {
        // The status of a call is in the trailers, which would be lost.
        (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2\n")
    } else {
        return None;
    };
    let mut response = answer::typed(status, "text/plain", message.into());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    Some(response)
}

/// The copies of a response: the message, and tonic's copy of it for the wire.
const COPIES: usize = 2;

/// The bytes before a message: a flag for compression, and the length.
const FRAME: usize = 5;

/// Checks that the body is one message in one frame. tonic itself would allocate the length that a frame
/// claims, even if the bytes are missing, and would ignore further messages after the first.
fn check_frame(body: &Bytes) -> Result<()> {
    let Some((head, message)) = body.split_first_chunk::<FRAME>() else {
        let error = if body.is_empty() {
            Error::new(ErrorKind::InvalidRequest, "expected one message, got none")
        } else {
            Error::new(ErrorKind::ParseError, "the frame of the message is cut off")
        };
        return Err(error);
    };
    let [_compressed, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    match message.len().cmp(&length) {
        Ordering::Less => {
            let why = format!("the message is cut off: expected {length} bytes, got {}", message.len());
            Err(Error::new(ErrorKind::ParseError, why))
        }
        Ordering::Equal => Ok(()),
        Ordering::Greater => {
            Err(Error::new(ErrorKind::InvalidRequest, "expected one message, got more than one"))
        }
    }
}

/// A call with its message not decoded yet.
struct GrpcExchange {
    grpc: Grpc,
    codec: &'static Codec,
    op: Op,
    request_id: Option<RequestId>,
}

type GrpcAnswer<T> = std::result::Result<tonic::Response<T>, Status>;

impl GrpcExchange {
    /// Passes the call to the relay, still sealed. `None` also for an invalid call: its error is reported
    /// when it is decoded.
    async fn relay(&self, parts: &Parts, body: &Bytes) -> Option<Response> {
        let mut message = body.clone();
        let is_compressed = message.split_to(FRAME).first() != Some(&0);
        if is_compressed || matches!(&self.grpc.behind, Behind::One(agent) if agent.inner.relay.is_none()) {
            return None;
        }
        let mut summary = (self.codec.peek)(self.op, message.clone())?;
        let (agent, tenant) = match &self.grpc.behind {
            Behind::One(agent) => (agent.clone(), None),
            Behind::Many { directory, .. } => {
                let tenant = summary.tenant.take();
                (directory.look_ahead(tenant.as_deref(), &parts.extensions)?, tenant)
            }
        };
        let (agent, headers) = (&agent.inner, &parts.headers);
        agent.relay.as_ref()?;
        body::check_size(body.len(), &agent.options).ok()?;
        let requested = version::requested(headers, None).ok()?;
        agent.grpc.confirm(self.codec.version, requested).ok()?;
        let cx = self.context(headers, parts.extensions.get::<Caller>(), &agent.options.keep_headers).ok()?;
        let call = SealedCall {
            binding: Binding::Grpc,
            version: self.codec.version,
            op: self.op,
            summary,
            method: &parts.method,
            path: parts.uri.path(),
            query: None,
            headers,
            body: message,
            form: sealed::grpc(self.codec, self.request_id.as_ref()),
        };
        let relayed = agent.relay(&cx, call).await?;
        let mut response = relayed.unwrap_or_else(|error| self.status(error).into_http::<Body>());
        response.headers_mut().extend(self.grpc.named(agent, tenant.as_deref()));
        Some(response)
    }

    async fn unary(&self, request: tonic::Request<Bytes>) -> GrpcAnswer<Bytes> {
        self.carry_out(request, |reply, _| {
            // Allocates no more than needed, so that the conversion to `Bytes` does not copy.
            let mut out = Vec::new();
            (self.codec.encode_reply)(self.op, &reply, &mut out)?;
            Ok(out.into())
        })
        .await
    }

    async fn stream(&self, request: tonic::Request<Bytes>) -> GrpcAnswer<Messages> {
        self.carry_out(request, |reply, is_active| match reply {
            Reply::Stream(stream) => {
                let memory = self.grpc.options().memory.clone();
                let request_id = self.request_id.clone();
                Ok(messages(self.codec, stream, is_active(RESUME_EXTENSION), memory, request_id))
            }
            _ => Err(Error::internal("a streaming operation answered without a stream")),
        })
        .await
    }

    async fn carry_out<T>(
        &self,
        request: tonic::Request<Bytes>,
        encode: impl FnOnce(Reply, &dyn Fn(&str) -> bool) -> Result<T>,
    ) -> GrpcAnswer<T> {
        let (headers, mut extensions, message) = request.into_parts();
        let headers = headers.into_headers();
        let mut told = HeaderMap::new();
        let result = async {
            // The path already states the version, so a missing header means that version (trap T-06).
            let requested = version::requested(&headers, None)?;
            version::agrees(self.codec.version, requested, &[self.codec.version])?;
            let size = FRAME + message.len();
            let body = extensions.remove::<ReadBody>().unwrap_or_else(ReadBody::none).with_bytes(message);
            let (decode, op) = (self.codec.decode_call, self.op);
            let mut call = body.decode(move |message| decode(op, message)).await?;
            drop(body);
            let tenant = call.tenant().map(str::to_owned);
            let agent = &self.grpc.route(&mut call, &extensions)?.inner;
            told.extend(self.grpc.named(agent, tenant.as_deref()));
            body::check_size(size, &agent.options)?;
            agent.grpc.confirm(self.codec.version, requested)?;
            let cx = self.context(&headers, extensions.get::<Caller>(), &agent.options.keep_headers)?;
            told.extend(agent.activated(&cx));
            let (reply, held) = agent.carry_out(call, &cx, extensions.get::<PublicBase>(), COPIES).await?;
            told.extend(answer::header_of(&reply));
            let answer = encode(reply, &|uri| agent.is_active(&cx, uri))?;
            Ok((answer, held))
        };
        match result.await {
            Ok((answer, held)) => {
                let mut extensions = http::Extensions::new();
                if !held.is_empty() {
                    // Handed to the body, which is made from the response later.
                    extensions.insert(Arc::new(held));
                }
                Ok(tonic::Response::from_parts(MetadataMap::from_headers(told), answer, extensions))
            }
            Err(error) => {
                let mut status = self.status(error);
                status.metadata_mut().as_mut().extend(told);
                Err(status)
            }
        }
    }

    fn status(&self, error: Error) -> Status {
        status(self.codec, self.request_id.as_ref(), error)
    }

    fn context(
        &self,
        headers: &HeaderMap,
        caller: Option<&Caller>,
        keep: &[HeaderName],
    ) -> Result<CallContext> {
        let mut cx = context::read(self.codec.version, Binding::Grpc, headers, caller, keep)?;
        cx.deadline = context::deadline(headers);
        Ok(cx)
    }
}

/// The answer to a call that goes no further.
pub(super) fn refuse(request: &Request, error: Error) -> Response {
    let service = request.uri().path().split('/').nth(1).unwrap_or_default();
    let [newest, ..] = CODECS;
    let codec = CODECS.into_iter().find(|codec| codec.service == service).unwrap_or(newest);
    let codec = version::codec_for(codec, request.headers());
    let mut response = status(codec, request.extensions().get(), error).into_http::<Body>();
    version::name(codec.version, response.headers_mut());
    response
}

/// The maximum size of an error's details in the trailers. Clients accept 8 KiB of headers by default, with
/// base64 and all other headers included.
const MAX_DETAILS_BYTES: usize = 4 * 1024;

fn status(codec: &Codec, request_id: Option<&RequestId>, error: Error) -> Status {
    answer::log(&error);
    let error = RequestId::put(request_id, (codec.reword)(error));
    let code = Code::from_i32((codec.status_code)(error.kind()).number);
    let details = (codec.encode_status)(&error);
    let mut status = if details.len() > MAX_DETAILS_BYTES {
        let short = Error::new(error.kind(), excerpt(error.message().to_owned()));
        let short = RequestId::put(request_id, short);
        Status::with_details(code, (codec.status_message)(&short), (codec.encode_status)(&short).into())
    } else {
        Status::with_details(code, (codec.status_message)(&error), details.into())
    };
    answer::when_again(status.metadata_mut().as_mut(), &error);
    status
}

/// The trailers of a response that has begun and cannot continue.
pub(super) fn trailers(codec: &Codec, request_id: Option<&RequestId>, error: Error) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // Fails only for values that are invalid in trailers; `status` has left those out.
    let _ = status(codec, request_id, error).add_header(&mut trailers);
    trailers
}

type Messages = BoxStream<'static, Result<Bytes, Status>>;

/// Encodes a stream of events as messages. An error ends the stream and goes into the trailers. The memory of
/// a large message is held until the next one is polled.
fn messages(
    codec: &'static Codec,
    events: EventStream,
    numbered: bool,
    memory: MemoryAccount,
    request_id: Option<RequestId>,
) -> Messages {
    let write = if numbered { pb::encode_numbered_item } else { pb::encode_item };
    let encode = move |(mut events, written): (EventStream, MemoryReservation)| {
        drop(written);
        let (memory, request_id) = (memory.clone(), request_id.clone());
        async move {
            let item = events.next().await?;
            let message = async {
                let item = item?;
                let held = reserve(&memory, &item).await?;
                Ok((write(codec, &item)?, held))
            };
            Some(match message.await {
                Ok((message, held)) => (Ok(message), (events, held)),
                Err(error) => {
                    let status = status(codec, request_id.as_ref(), error);
                    (Err(status), (events, MemoryReservation::default()))
                }
            })
        }
    };
    stream::unfold((events, MemoryReservation::default()), encode).boxed()
}

/// Reserves the memory of an event on the wire.
async fn reserve(memory: &MemoryAccount, item: &StreamItem) -> Result<MemoryReservation> {
    let bytes = size::event(item.event()) * COPIES;
    match memory.try_reserve(MemoryUse::Responses, bytes) {
        Some(held) => Ok(held),
        // Boxed: it is rare.
        None => Box::pin(memory.reserve(MemoryUse::Responses, bytes)).await,
    }
}

/// A codec that passes messages through as bytes; [`Codec`] decodes and encodes them.
struct BytesCodec;

impl tonic::codec::Codec for BytesCodec {
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

/// Small, because an idle stream keeps its buffer.
fn buffer() -> BufferSettings {
    BufferSettings::new(1024, 64 * 1024)
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer()
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer()
    }
}
