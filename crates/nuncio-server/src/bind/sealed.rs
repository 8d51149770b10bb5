//! Sealed calls: calls that are forwarded as bytes, without being decoded.
//!
//! A binding reads the operation, version and subject of a call without decoding it. A [`Relay`] may then
//! take the call as bytes and answer with bytes. All other calls are decoded and go to the service.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::{Body as _, Frame};
#[cfg(feature = "grpc")]
use nuncio_protocol::pb::Codec;
use nuncio_protocol::{
    Binding, CallContext, ContextId, Error, ErrorKind, Event, Result, TaskId, Version,
    op::Op,
    wire::{
        Dialect,
        jsonrpc::{self as envelope, ErrorData, IncomingBody, RefusedRequest},
        peek::{self, RequestSummary},
        rest::{self, Route},
        sse,
    },
};

use super::{AgentInner, RequestId, piece_body::HeldBody, version::RestForm};
use crate::memory::MemoryUse;

/// Handles sealed calls.
#[async_trait]
pub trait Relay: Send + Sync + 'static {
    /// Answers a call that its caller is permitted to make; `None` if the call must be decoded and go to the
    /// service. The binding encodes an error in its own form.
    async fn relay(&self, cx: &CallContext, call: SealedCall<'_>) -> Option<Result<Response>>;
}

/// A call as it was received, with the data that its binding has read from it.
#[derive(Debug)]
pub struct SealedCall<'a> {
    /// The binding of the request.
    pub binding: Binding,
    /// The version of the request.
    pub version: Version,
    /// The operation.
    pub op: Op,
    /// The subject: task, context and tenant. A tenant that selected this agent has been removed.
    pub summary: RequestSummary<'a>,
    /// The HTTP method.
    pub method: &'a Method,
    /// The path below the agent's URL, still escaped; for gRPC the whole path.
    pub path: &'a str,
    /// The query, still escaped.
    pub query: Option<&'a str>,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body; for gRPC the message in it.
    pub body: Bytes,
    /// Reads the responses to the call.
    pub form: AnswerForm,
}

/// The form of the responses to a call. Reads their subject and their errors, and encodes an error that ends
/// a stream.
#[derive(Clone, Debug)]
pub struct AnswerForm {
    kind: SealedKind,
    request_id: Option<RequestId>,
}

#[derive(Clone)]
enum SealedKind {
    JsonRpc {
        dialect: &'static dyn Dialect,
        /// The request, for its id.
        request: Bytes,
        /// The form of an error's `data`.
        data: ErrorData,
    },
    Rest(&'static RestForm),
    #[cfg(feature = "grpc")]
    Grpc(&'static Codec),
}

impl std::fmt::Debug for SealedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::JsonRpc { .. } => "JsonRpc",
            Self::Rest(_) => "Rest",
            #[cfg(feature = "grpc")]
            Self::Grpc(_) => "Grpc",
        })
    }
}

/// The subject of a response.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Subject {
    /// The task.
    pub task: Option<TaskId>,
    /// The context of the task or message.
    pub context: Option<ContextId>,
}

impl AnswerForm {
    fn new(kind: SealedKind, request_id: Option<&RequestId>) -> Self {
        Self { kind, request_id: request_id.cloned() }
    }

    /// The subject of the response to a send, or of an event of a stream: of the body, the data of an SSE
    /// frame, or the gRPC message. `None` if it cannot be decoded as an event, as an error cannot.
    #[must_use]
    pub fn subject(&self, answer: &Bytes) -> Option<Subject> {
        let seen_by = |dialect: &dyn Dialect, frame| peek::task_of(dialect.task_shape()?, frame, answer);
        let seen = match &self.kind {
            SealedKind::JsonRpc { dialect, .. } => seen_by(*dialect, peek::EventEnvelope::JsonRpc),
            SealedKind::Rest(form) => seen_by(form.dialect, peek::EventEnvelope::Bare),
            #[cfg(feature = "grpc")]
            SealedKind::Grpc(_) => None,
        };
        if let Some([task, context]) = seen {
            return Some(Subject { task: Some((&*task).into()), context: Some((&*context).into()) });
        }
        let event = match &self.kind {
            SealedKind::JsonRpc { dialect, .. } => {
                envelope::decode_response(answer).and_then(|result| dialect.decode_event(result))
            }
            SealedKind::Rest(form) => {
                rest::decode_body(answer).and_then(|json| form.dialect.decode_event(json))
            }
            #[cfg(feature = "grpc")]
            SealedKind::Grpc(codec) => (codec.decode_event)(answer.clone()),
        };
        event.ok().map(|event| Subject::of(&event))
    }

    /// The kind of error that a whole response is, or for gRPC that its head states; `None` if it is none.
    #[must_use]
    pub fn refusal(&self, head: &http::response::Parts, body: &[u8]) -> Option<ErrorKind> {
        let error = match &self.kind {
            // Nearly all are successes, which this shows without decoding them.
            SealedKind::JsonRpc { .. }
                if head.status.is_success() && memchr::memmem::find(body, b"\"error\"").is_none() =>
            {
                None
            }
            SealedKind::JsonRpc { .. } => envelope::decode_response(body).err(),
            SealedKind::Rest(_) => {
                (!head.status.is_success()).then(|| rest::decode_error(head.status.as_u16(), body))
            }
            #[cfg(feature = "grpc")]
            SealedKind::Grpc(codec) => {
                let status = tonic::Status::from_header_map(&head.headers);
                status.filter(|status| status.code() != tonic::Code::Ok).map(|status| {
                    (codec.decode_status)(status.code().into(), status.message(), status.details())
                })
            }
        };
        error.map(|error| error.kind())
    }

    /// A gRPC message with the upstream's tenant; `None` if the message has no such field.
    #[cfg(feature = "grpc")]
    #[must_use]
    pub fn with_tenant(&self, message: &Bytes, tenant: Option<&str>) -> Option<Bytes> {
        match &self.kind {
            SealedKind::Grpc(codec) => (codec.with_tenant)(message, tenant),
            SealedKind::JsonRpc { .. } | SealedKind::Rest(_) => None,
        }
    }

    /// The last frame of a stream that has begun and cannot continue.
    #[must_use]
    pub fn last_words(&self, error: Error) -> Frame<Bytes> {
        let request_id = self.request_id.as_ref();
        let reword = |dialect: &dyn Dialect, error| {
            super::answer::log(&error);
            RequestId::put(request_id, dialect.reword(error))
        };
        let mut out = Vec::with_capacity(512);
        match &self.kind {
            SealedKind::JsonRpc { dialect, request, data } => sse::encode_frame(None, &mut out, |out| {
                let id = match envelope::decode_body(request) {
                    Ok(IncomingBody::Single(request)) => request.id,
                    Err(RefusedRequest { id, .. }) => id,
                    Ok(IncomingBody::Batch(_)) => None,
                };
                envelope::encode_error(id, &reword(*dialect, error), *data, out);
            }),
            SealedKind::Rest(form) => sse::encode_frame(None, &mut out, |out| {
                (form.error_event)(&reword(form.dialect, error), out);
            }),
            #[cfg(feature = "grpc")]
            SealedKind::Grpc(codec) => {
                return Frame::trailers(super::grpc::trailers(codec, request_id, error));
            }
        }
        Frame::data(out.into())
    }
}

impl Subject {
    /// The subject of an event.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        let (task, context) = match event {
            Event::Task(task) => (Some(&task.id), Some(&task.context_id)),
            Event::Message(message) => (message.task_id.as_ref(), message.context_id.as_ref()),
            Event::StatusUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
            Event::ArtifactUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
        };
        Self {
            task: task.filter(|task| !task.as_str().is_empty()).cloned(),
            context: context.filter(|context| !context.as_str().is_empty()).cloned(),
        }
    }
}

/// The subject and response form of a JSON-RPC call; `None` if it must be decoded.
pub(super) fn jsonrpc<'a>(
    dialect: &'static dyn Dialect,
    op: Op,
    params: Option<&'a str>,
    body: &'a Bytes,
    data: ErrorData,
    request_id: Option<&RequestId>,
) -> Option<(RequestSummary<'a>, AnswerForm)> {
    let envelope = std::str::from_utf8(body).ok().filter(|envelope| peek::is_plain_envelope(envelope));
    envelope?;
    let summary = RequestSummary::at(op, params)?;
    Some((summary, AnswerForm::new(SealedKind::JsonRpc { dialect, request: body.clone(), data }, request_id)))
}

/// The subject and response form of an HTTP+JSON call; `None` if it must be decoded.
pub(super) fn rest<'a>(
    form: &'static RestForm,
    route: &'a Route<'_>,
    query: Option<&str>,
    body: &'a Bytes,
    request_id: Option<&RequestId>,
) -> Option<(RequestSummary<'a>, AnswerForm)> {
    if !peek::is_plain_query(query.unwrap_or_default()) {
        return None;
    }
    let body = std::str::from_utf8(body).ok()?;
    let said = (!body.trim_ascii().is_empty()).then_some(body);
    let mut summary = RequestSummary::at(route.op(), said)?;
    let task = route.task()?;
    // The body may repeat the values of the path, but not contradict them.
    if task.is_some() {
        if summary.task.is_some() && summary.task != task {
            return None;
        }
        summary.task = task;
    }
    if let Some(tenant) = route.tenant() {
        if summary.tenant.is_some() {
            return None;
        }
        summary.tenant = Some(Cow::Borrowed(tenant));
    }
    Some((summary, AnswerForm::new(SealedKind::Rest(form), request_id)))
}

/// The response form of a gRPC call.
#[cfg(feature = "grpc")]
pub(super) fn grpc(codec: &'static Codec, request_id: Option<&RequestId>) -> AnswerForm {
    AnswerForm::new(SealedKind::Grpc(codec), request_id)
}

impl AgentInner {
    /// Passes a sealed call to the relay, if there is one; `None` if the call must be decoded.
    pub(super) async fn relay(&self, cx: &CallContext, call: SealedCall<'_>) -> Option<Result<Response>> {
        let relay = self.relay.as_deref()?;
        let is_other = |tenant: &str| self.options.agent_name.as_deref().is_some_and(|name| name != tenant);
        if call.summary.tenant.as_deref().is_some_and(is_other) {
            // Refused when it is decoded.
            return None;
        }
        if let Err(error) = self.permit(call.op, cx) {
            return Some(Err(error));
        }
        match relay.relay(cx, call).await? {
            Ok(response) => Some(self.hold(response).await),
            Err(error) => Some(Err(error)),
        }
    }

    /// Adds a reservation of memory to a relayed response, until it is written. A stream needs none: it has
    /// no known length and is forwarded piece by piece.
    async fn hold(&self, response: Response) -> Result<Response> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let held = self.options.memory.reserve(MemoryUse::Responses, bytes.unwrap_or_default()).await?;
        if held.is_empty() {
            return Ok(response);
        }
        Ok(response.map(|body| Body::new(HeldBody { body, _memory: Arc::new(held) })))
    }
}
