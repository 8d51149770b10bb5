//! Sealed calls: calls that stay the bytes as which they came.
//!
//! A binding finds the operation of a call, its version and its subject without decoding it. Then a [`Relay`] may take
//! the call as bytes and answer with bytes. Every other call is decoded and goes to the service.

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
        glance::{self, Glance},
        jsonrpc::{self as envelope, ErrorData, Incoming, Refused},
        rest::{self, Route},
        sse,
    },
};

use super::{Inner, RequestId, piece_body::HeldBody, version::RestForm};
use crate::memory::MemoryUse;

/// Takes sealed calls.
#[async_trait]
pub trait Relay: Send + Sync + 'static {
    /// Answers a call that its caller may make; `None` if the call has to be decoded and given to the service.
    /// The binding writes an error in its own form.
    async fn relay(&self, cx: &CallContext, call: SealedCall<'_>) -> Option<Result<Response>>;
}

/// A call as it came, with what its binding knows of it.
#[derive(Debug)]
pub struct SealedCall<'a> {
    /// The binding that it came by.
    pub binding: Binding,
    /// The version it is in.
    pub version: Version,
    /// The operation.
    pub op: Op,
    /// The subject. A tenant that led to this agent is no longer in it.
    pub glance: Glance<'a>,
    /// The verb.
    pub method: &'a Method,
    /// The path below the agent's address, still escaped; of gRPC the whole path.
    pub path: &'a str,
    /// The query, still escaped.
    pub query: Option<&'a str>,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body; of gRPC the message in it.
    pub body: Bytes,
    /// Reads its answers.
    pub form: AnswerForm,
}

/// The form of the answers to a call: reads their subject and their errors, and writes an error at the end of one.
#[derive(Clone, Debug)]
pub struct AnswerForm {
    kind: Kind,
    request_id: Option<RequestId>,
}

#[derive(Clone)]
enum Kind {
    JsonRpc {
        dialect: &'static dyn Dialect,
        /// The request, for its id.
        request: Bytes,
        /// The data of an error.
        data: ErrorData,
    },
    Rest(&'static RestForm),
    #[cfg(feature = "grpc")]
    Grpc(&'static Codec),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::JsonRpc { .. } => "JsonRpc",
            Self::Rest(_) => "Rest",
            #[cfg(feature = "grpc")]
            Self::Grpc(_) => "Grpc",
        })
    }
}

/// Whom an answer is about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Subject {
    /// Its task.
    pub task: Option<TaskId>,
    /// The context of its task or message.
    pub context: Option<ContextId>,
}

impl AnswerForm {
    fn new(kind: Kind, request_id: Option<&RequestId>) -> Self {
        Self { kind, request_id: request_id.cloned() }
    }

    /// Whom the answer to a send, or an event of a stream, is about: the body, the data of a frame, or the message.
    /// `None` if it says so to nobody who reads as we do; an error is one.
    #[must_use]
    pub fn subject(&self, answer: &Bytes) -> Option<Subject> {
        let seen_by = |dialect: &dyn Dialect, frame| glance::task_of(dialect.task_place()?, frame, answer);
        let seen = match &self.kind {
            Kind::JsonRpc { dialect, .. } => seen_by(*dialect, glance::Frame::JsonRpc),
            Kind::Rest(form) => seen_by(form.dialect, glance::Frame::Bare),
            #[cfg(feature = "grpc")]
            Kind::Grpc(_) => None,
        };
        if let Some([task, context]) = seen {
            return Some(Subject { task: Some((&*task).into()), context: Some((&*context).into()) });
        }
        let event = match &self.kind {
            Kind::JsonRpc { dialect, .. } => {
                envelope::decode_response(answer).and_then(|result| dialect.decode_event(result))
            }
            Kind::Rest(form) => rest::decode_body(answer).and_then(|json| form.dialect.decode_event(json)),
            #[cfg(feature = "grpc")]
            Kind::Grpc(codec) => (codec.decode_event)(answer.clone()),
        };
        event.ok().map(|event| Subject::of(&event))
    }

    /// What kind of error a whole answer is, or of gRPC one that its head says; `None`: it is none.
    #[must_use]
    pub fn refusal(&self, head: &http::response::Parts, body: &[u8]) -> Option<ErrorKind> {
        let error = match &self.kind {
            // Nearly all are none, which is seen without reading them.
            Kind::JsonRpc { .. }
                if head.status.is_success() && memchr::memmem::find(body, b"\"error\"").is_none() =>
            {
                None
            }
            Kind::JsonRpc { .. } => envelope::decode_response(body).err(),
            Kind::Rest(_) => {
                (!head.status.is_success()).then(|| rest::decode_error(head.status.as_u16(), body))
            }
            #[cfg(feature = "grpc")]
            Kind::Grpc(codec) => {
                let status = tonic::Status::from_header_map(&head.headers);
                status.filter(|status| status.code() != tonic::Code::Ok).map(|status| {
                    (codec.decode_status)(status.code().into(), status.message(), status.details())
                })
            }
        };
        error.map(|error| error.kind())
    }

    /// A message of gRPC with the upstream's tenant; `None` if it has no place for one.
    #[cfg(feature = "grpc")]
    #[must_use]
    pub fn with_tenant(&self, message: &Bytes, tenant: Option<&str>) -> Option<Bytes> {
        match &self.kind {
            Kind::Grpc(codec) => (codec.with_tenant)(message, tenant),
            Kind::JsonRpc { .. } | Kind::Rest(_) => None,
        }
    }

    /// What ends a stream that has begun and cannot go on.
    #[must_use]
    pub fn last_words(&self, error: Error) -> Frame<Bytes> {
        let request_id = self.request_id.as_ref();
        let reword = |dialect: &dyn Dialect, error| {
            super::answer::log(&error);
            RequestId::put(request_id, dialect.reword(error))
        };
        let mut out = Vec::with_capacity(512);
        match &self.kind {
            Kind::JsonRpc { dialect, request, data } => sse::encode_frame(None, &mut out, |out| {
                let id = match envelope::decode_body(request) {
                    Ok(Incoming::Single(request)) => request.id,
                    Err(Refused { id, .. }) => id,
                    Ok(Incoming::Batch(_)) => None,
                };
                envelope::encode_error(id, &reword(*dialect, error), *data, out);
            }),
            Kind::Rest(form) => sse::encode_frame(None, &mut out, |out| {
                (form.error_event)(&reword(form.dialect, error), out);
            }),
            #[cfg(feature = "grpc")]
            Kind::Grpc(codec) => return Frame::trailers(super::grpc::trailers(codec, request_id, error)),
        }
        Frame::data(out.into())
    }
}

impl Subject {
    /// Whom an event is about.
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

/// A JSON-RPC call as it came; `None` if it has to be decoded.
pub(super) fn jsonrpc<'a>(
    dialect: &'static dyn Dialect,
    op: Op,
    params: Option<&'a str>,
    body: &'a Bytes,
    data: ErrorData,
    request_id: Option<&RequestId>,
) -> Option<(Glance<'a>, AnswerForm)> {
    let envelope = std::str::from_utf8(body).ok().filter(|envelope| glance::is_plain_envelope(envelope));
    envelope?;
    let glance = Glance::at(op, params)?;
    Some((glance, AnswerForm::new(Kind::JsonRpc { dialect, request: body.clone(), data }, request_id)))
}

/// An HTTP+JSON call as it came; `None` if it has to be decoded.
pub(super) fn rest<'a>(
    form: &'static RestForm,
    route: &'a Route<'_>,
    query: Option<&str>,
    body: &'a Bytes,
    request_id: Option<&RequestId>,
) -> Option<(Glance<'a>, AnswerForm)> {
    if !glance::is_plain_query(query.unwrap_or_default()) {
        return None;
    }
    let body = std::str::from_utf8(body).ok()?;
    let said = (!body.trim_ascii().is_empty()).then_some(body);
    let mut glance = Glance::at(route.op(), said)?;
    let task = route.task()?;
    // What stands in the path may be repeated in the body, and not contradicted.
    if task.is_some() {
        if glance.task.is_some() && glance.task != task {
            return None;
        }
        glance.task = task;
    }
    if let Some(tenant) = route.tenant() {
        if glance.tenant.is_some() {
            return None;
        }
        glance.tenant = Some(Cow::Borrowed(tenant));
    }
    Some((glance, AnswerForm::new(Kind::Rest(form), request_id)))
}

/// The form of gRPC.
#[cfg(feature = "grpc")]
pub(super) fn grpc(codec: &'static Codec, request_id: Option<&RequestId>) -> AnswerForm {
    AnswerForm::new(Kind::Grpc(codec), request_id)
}

impl Inner {
    /// Gives a sealed call to the relay, if there is one; `None` if the call is to be decoded.
    pub(super) async fn relay(&self, cx: &CallContext, call: SealedCall<'_>) -> Option<Result<Response>> {
        let relay = self.relay.as_deref()?;
        if let Err(error) = self.permit(call.op, cx) {
            return Some(Err(error));
        }
        match relay.relay(cx, call).await? {
            Ok(response) => Some(self.hold(response).await),
            Err(error) => Some(Err(error)),
        }
    }

    /// A relayed answer with the memory that it takes until it is written. A stream has a length of its own only at its
    /// end: it is handed on piece by piece, and takes none.
    async fn hold(&self, response: Response) -> Result<Response> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let held = self.options.memory.reserve(MemoryUse::Responses, bytes.unwrap_or_default()).await?;
        if held.is_empty() {
            return Ok(response);
        }
        Ok(response.map(|body| Body::new(HeldBody { body, _memory: Arc::new(held) })))
    }
}
