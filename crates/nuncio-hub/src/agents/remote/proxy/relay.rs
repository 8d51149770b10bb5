//! The byte path: a call in a version and binding of the agent is forwarded without being decoded, and so
//! is its answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use nuncio_client::{Forward, ForwardBody, Handed};
use nuncio_protocol::{Binding, CallContext, Caller, Error, ErrorKind, Result, op::Op};
use nuncio_server::{
    CallerPermit, MemoryUse,
    bind::{AnswerForm, SealedCall},
};
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::{
    super::link::refusal,
    Interfaces, Proxy,
    counted_body::CountedBody,
    headers, late,
    progress::{Due, Progress},
    relay_stream::{Framing, Learning, RelayStream},
};
use crate::call::{SealedAnswer, SealedBackend};

/// The interface that a sealed call is relayed to.
pub(crate) struct RelayRoute {
    interfaces: Arc<Interfaces>,
    /// The index of the interface.
    at: usize,
}

impl Proxy {
    /// The interface that can take this call unchanged.
    fn way(&self, interfaces: &Interfaces, call: &SealedCall<'_>) -> Option<usize> {
        let has_more_to_it = match call.op {
            Op::SendMessage | Op::SendStreamingMessage => call.summary.webhook,
            Op::GetTask | Op::CancelTask | Op::SubscribeToTask => false,
            // A list has to be filtered by owner.
            Op::ListTasks => self.owners().is_some(),
            _ => true,
        };
        let at = interfaces.same(call.binding, call.version).filter(|_| !has_more_to_it)?;
        let theirs = interfaces.raw[at].candidate().interface.tenant.as_deref();
        let fits = match call.binding {
            // The tenant is written into the message or the path, so the call must not have one.
            Binding::Grpc | Binding::HttpJson => call.summary.tenant.is_none(),
            Binding::JsonRpc => call.summary.tenant.as_deref() == theirs,
        };
        fits.then_some(at)
    }
}

impl SealedBackend for Proxy {
    type Route = RelayRoute;

    fn route(&self, call: &SealedCall<'_>) -> Result<Option<RelayRoute>> {
        let interfaces = self.interfaces()?;
        Ok(self.way(&interfaces, call).map(|at| RelayRoute { interfaces, at }))
    }

    async fn forward(
        &self,
        route: &RelayRoute,
        cx: &CallContext,
        call: SealedCall<'_>,
    ) -> Result<SealedAnswer> {
        let (interfaces, way) = (&*route.interfaces, &route.interfaces.raw[route.at]);
        let summary = &call.summary;
        if let Some(owners) = self.owners() {
            let references = summary.references.iter().map(AsRef::as_ref);
            match call.op {
                Op::GetTask | Op::CancelTask | Op::SubscribeToTask => {
                    owners.require(&cx.caller, summary.task.as_deref().unwrap_or_default()).await?;
                }
                _ => {
                    let (task, context) = (summary.task.as_deref(), summary.context.as_deref());
                    owners.admit(&cx.caller, task, context, references).await?;
                }
            }
        }
        let hops = self.hops(cx)?;
        let settings = &interfaces.link.settings;
        let mut sent = headers::outgoing(&call, &settings.forward_headers, &self.trace(cx, &hops), &hops);
        headers::set_idempotency_key(&mut sent, self.idempotency_key(cx).as_deref());
        let as_caller = settings.forward_headers.contains(&http::header::AUTHORIZATION);
        let tenant = way.candidate().interface.tenant.as_deref();
        let body = match call.binding {
            Binding::Grpc => {
                call.form.with_tenant(&call.body, tenant).ok_or_else(|| interfaces.link.out_of_reach())?
            }
            Binding::JsonRpc | Binding::HttpJson => call.body.clone(),
        };
        let handed =
            Handed { method: call.method.clone(), path: call.path, query: call.query, headers: sent, body };
        let place = interfaces.link.admit_call(&cx.caller, call.op).await?;
        let patience = cx.deadline.map_or_else(
            || interfaces.patience(call.op),
            |deadline| {
                interfaces
                    .patience(call.op)
                    .min(deadline.saturating_duration_since(std::time::Instant::now()))
            },
        );
        let answer = match timeout(patience, way.send(handed)).await {
            Ok(answer) => answer,
            Err(_) => Err(late()),
        };
        let answer = match answer {
            Ok(answer) => understood(way, call.binding, patience, answer).await,
            Err(error) => Err(error),
        };
        interfaces.link.learn(&answer);
        let answer = answer.map_err(|error| refusal::shown(&error, as_caller))?;
        let due = match call.op {
            Op::SendStreamingMessage if cx.last_event_id.is_none() => Due::First,
            // A resumed or subscribed stream may be silent for long.
            op if op.row().streaming => Due::Rest,
            _ => Due::Answer,
        };
        // Events may be large in any stream.
        let patience = if due == Due::Rest { settings.send_timeout } else { patience };
        let (caller, form) = (&cx.caller, call.form);
        let exchange = Exchange { proxy: self, way, patience, due, op: call.op, caller, form };
        exchange.respond(answer, place).await
    }
}

/// The body of an answer.
enum AnswerBody {
    /// Not read yet.
    Coming(ForwardBody),
    /// Read already.
    Whole(Bytes),
}

/// Refuses an answer that is not A2A, such as the error page of a proxy in between. Some agents send JSON
/// as plain text: it is accepted if it parses.
async fn understood(
    way: &Forward,
    binding: Binding,
    patience: Duration,
    answer: http::Response<ForwardBody>,
) -> Result<http::Response<AnswerBody>> {
    let Err(foreign) = check_media_type(&answer) else { return Ok(answer.map(AnswerBody::Coming)) };
    if headers::media_type(answer.headers()) != "text/plain" {
        return Err(foreign);
    }
    let (mut parts, body) = answer.into_parts();
    match timeout(patience, way.collect(body)).await {
        Ok(Ok(body)) if is_json_answer(binding, &body) => {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(http::Response::from_parts(parts, AnswerBody::Whole(body)))
        }
        Ok(Ok(_) | Err(_)) | Err(_) => Err(foreign),
    }
}

/// True for a JSON object; over JSON-RPC, for a response object.
fn is_json_answer(binding: Binding, body: &[u8]) -> bool {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) else { return false };
    let has = |name: &str| members.contains_key(name);
    match binding {
        Binding::JsonRpc => has("jsonrpc") && (has("result") || has("error")),
        Binding::HttpJson => true,
        Binding::Grpc => false,
    }
}

fn check_media_type(answer: &http::Response<ForwardBody>) -> Result<()> {
    let media_type = headers::media_type(answer.headers());
    let is_ours = media_type.contains("json")
        || matches!(media_type, "text/event-stream" | "application/grpc")
        || media_type.starts_with("application/grpc+")
        || (media_type.is_empty() && answer.status().is_success());
    if is_ours {
        return Ok(());
    }
    let kind = match answer.status() {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            ErrorKind::Unavailable
        }
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::ResourceExhausted,
        _ => ErrorKind::InvalidAgentResponse,
    };
    let why = format!("the agent answered {} with {media_type}, which is not A2A", answer.status());
    Err(Error::new(kind, why))
}

/// True for the headers of a gRPC answer that is only an error (`Trailers-Only`).
fn is_grpc_error(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|status| status != "0")
}

/// An answer that is relayed to the caller.
struct Exchange<'a> {
    proxy: &'a Proxy,
    way: &'a Forward,
    patience: Duration,
    due: Due,
    op: Op,
    caller: &'a Caller,
    form: AnswerForm,
}

impl Exchange<'_> {
    /// Builds the response. `place` is held until the answer is complete.
    async fn respond(
        self,
        answer: http::Response<AnswerBody>,
        place: Option<CallerPermit>,
    ) -> Result<SealedAnswer> {
        let (parts, body) = answer.into_parts();
        let framing = match headers::media_type(&parts.headers) {
            "text/event-stream" => Some(Framing::Sse),
            media_type if media_type.starts_with("application/grpc") => Some(Framing::Grpc),
            _ => None,
        };
        let mut refusal = None;
        let body = match framing {
            // After an error in the headers, any body is ignored.
            Some(Framing::Grpc) if is_grpc_error(&parts.headers) => {
                refusal = self.form.refusal(&parts, b"");
                Body::empty()
            }
            Some(framing) if let AnswerBody::Coming(body) = body => {
                if framing == Framing::Grpc {
                    refusal = self.form.refusal(&parts, b"");
                }
                let learning = self.learning();
                let progress = Progress::new(framing, self.due, self.patience);
                let form = (self.form, framing);
                let stream = RelayStream::new(&self.proxy.name, body, form, learning, progress, place);
                // A gRPC answer without a message has its status in the headers.
                let is_whole = parts.headers.contains_key("grpc-status");
                Body::new(if is_whole { stream.whole() } else { stream })
            }
            _ => {
                let body = self.whole(body).await?;
                refusal = self.form.refusal(&parts, &body);
                Body::from(body)
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers::incoming(parts.headers);
        if framing.is_some() {
            // The relayed stream may end early, and a wrong length would hide that.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        Ok(SealedAnswer { response, refusal, is_streaming: self.op.row().streaming })
    }

    /// The caller to record as the owner; only for sends with isolated callers.
    fn learning(&self) -> Option<Learning> {
        let is_send = matches!(self.op, Op::SendMessage | Op::SendStreamingMessage);
        let owners = self.proxy.owners().filter(|_| is_send)?;
        let reservation = self.proxy.memory.growing(MemoryUse::Responses);
        Some(Learning { owners: owners.clone(), caller: self.caller.clone(), reservation })
    }

    /// Reads the whole answer, and records the owner of its task before it is sent.
    async fn whole(&self, body: AnswerBody) -> Result<Bytes> {
        let body = match body {
            AnswerBody::Whole(body) => body,
            AnswerBody::Coming(body) => {
                let body = CountedBody::new(body, self.proxy.memory.growing(MemoryUse::Responses));
                match timeout(self.patience, self.way.collect(body)).await {
                    Ok(body) => body.map_err(|error| refusal::shown(&error, false))?,
                    Err(_) => return Err(refusal::shown(&late(), false)),
                }
            }
        };
        if let Some(Learning { owners, caller, .. }) = self.learning()
            && let Some(subject) = self.form.subject(&body)
        {
            owners.record(&caller, &subject).await?;
        }
        Ok(body)
    }
}
