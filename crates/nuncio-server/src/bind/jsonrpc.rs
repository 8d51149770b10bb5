//! The JSON-RPC binding: one URL for both versions.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use nuncio_protocol::{
    Binding, CallContext, Caller, Error, ErrorKind, Result, Version,
    op::{self, Op, Reply},
    wire::{
        self, Dialect,
        jsonrpc::{self as envelope, ErrorData, IncomingBody, RefusedRequest},
    },
};
use serde_json::value::RawValue;

use super::{
    AgentInner, PublicBase, RequestId,
    answer::{self, JSON},
    body::{self, ReadBody},
    card, context, piece_body,
    refuse::Head,
    sealed::{self, SealedCall},
    sse::{self, EventEnvelope},
    version::{self, IMPLIED, jsonrpc_dialect},
};
use crate::memory::MemoryReservation;

pub(super) async fn serve(agent: &Arc<AgentInner>, request: Box<Request>) -> Response {
    let (parts, body) = request.into_parts();
    if !answer::is_json(&parts.headers) {
        // To a gRPC client `/agents/echo` is the method `echo` of a service `agents`.
        #[cfg(feature = "grpc")]
        if super::is_grpc(&parts.headers) {
            return super::unimplemented("there is no such service here");
        }
        // Refused before it is parsed (REQ-031).
        let form = ErrorForm::of(Head::from(&parts), None);
        return error_response(None, answer::not_json(JSON), form, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let body = match body::read(body, &agent.options).await {
        Ok(body) => body,
        Err(error) => return error_answer(None, error, ErrorForm::of(Head::from(&parts), None)),
    };
    let call = Call { agent, headers: &parts.headers, uri: &parts.uri, extensions: &parts.extensions };
    let decoded = if body.is_large() && agent.relay.is_none() {
        // Boxed: few are large.
        Box::pin(decode_large(agent, &call, &body)).await
    } else {
        call.decode(&body).await
    };
    // The body may be large, and the response takes as long as the agent works.
    drop(body);
    match decoded {
        Ok(decoded) => call.answer(decoded).await,
        Err(response) => response,
    }
}

/// Decodes a large body, all of it on a blocking thread: finding its envelope alone takes as long as it is large.
async fn decode_large<'a>(
    agent: &Arc<AgentInner>,
    call: &Call<'a>,
    body: &ReadBody,
) -> Result<Decoded<'a>, Response> {
    let (agent, headers, uri) = (Arc::clone(agent), call.headers.clone(), call.uri.clone());
    let mut extensions = Extensions::new();
    call.extensions.get::<Caller>().map(|caller| extensions.insert(caller.clone()));
    call.extensions.get::<RequestId>().map(|id| extensions.insert(id.clone()));
    let decoding = body.decode(move |bytes| {
        let call = Call { agent: &agent, headers: &headers, uri: &uri, extensions: &extensions };
        Ok(call.decode_here(&bytes).map(|decoded| decoded.map(|decoded| decoded.of_request(None))))
    });
    match decoding.await {
        Ok(Some(Ok(decoded))) => Ok(decoded.of_request(call.extensions.get())),
        Ok(Some(Err(response))) => Err(*response),
        // Without batches there is no need to look at this one.
        Ok(None) if call.agent.options.batch == 0 => Err(call.answer_batch(&[], body).await),
        Ok(None) => call.decode(body).await,
        Err(error) => Err(error_answer(None, error, call.error_form(None))),
    }
}

/// The version and operation of a request, and the form of its errors.
struct Opened<'a> {
    dialect: &'static dyn Dialect,
    op: Op,
    cx: CallContext,
    form: ErrorForm<'a>,
}

/// A decoded request, which does not need its body any more.
struct Decoded<'a> {
    id: Option<Box<RawValue>>,
    form: ErrorForm<'a>,
    dialect: &'static dyn Dialect,
    cx: CallContext,
    call: op::Call,
}

impl Decoded<'_> {
    /// The same with errors that have this id of the request.
    fn of_request(self, request_id: Option<&RequestId>) -> Decoded<'_> {
        let Self { id, form: ErrorForm { data, in_stream, dialect: words, .. }, dialect, cx, call } = self;
        Decoded { id, form: ErrorForm { data, in_stream, dialect: words, request_id }, dialect, cx, call }
    }
}

/// The form of an error for a caller.
#[derive(Clone, Copy)]
struct ErrorForm<'a> {
    data: ErrorData,
    /// True if the error is sent as the only frame of a stream.
    in_stream: bool,
    /// The dialect whose names the error uses, once it is known.
    dialect: Option<&'static dyn Dialect>,
    request_id: Option<&'a RequestId>,
}

impl<'a> ErrorForm<'a> {
    /// The form for a caller with these headers and query, and this method if it is known.
    fn of(head: Head<'a>, method: Option<&str>) -> Self {
        let data = version::error_data(head.headers, head.uri.query(), method);
        let in_stream = answer::takes_stream_only(head.headers);
        Self { data, in_stream, dialect: None, request_id: head.extensions.get() }
    }

    fn in_words_of(self, dialect: &'static dyn Dialect) -> Self {
        Self { dialect: Some(dialect), ..self }
    }

    /// The error with the names of the caller's version and the id of the request.
    fn told(&self, error: Error) -> Error {
        let error = match self.dialect {
            Some(dialect) => dialect.reword(error),
            None => error,
        };
        RequestId::put(self.request_id, error)
    }

    /// The form for an operation: only a streaming one is refused in a stream.
    fn for_op(self, op: Op) -> Self {
        Self { in_stream: self.in_stream && op.row().streaming, ..self }
    }
}

/// The head of a request, with its agent.
struct Call<'a> {
    agent: &'a AgentInner,
    headers: &'a HeaderMap,
    uri: &'a Uri,
    /// The caller, the URL under which it reaches the server, and the id of the request.
    extensions: &'a Extensions,
}

impl<'a> Call<'a> {
    /// The request of a body decoded, or the answer if it gets no further.
    async fn decode(&self, body: &ReadBody) -> Result<Decoded<'a>, Response> {
        match envelope::decode_body(&body.bytes) {
            Ok(IncomingBody::Single(request)) => self.decode_single(request, body).await,
            // Boxed: few come in batches.
            Ok(IncomingBody::Batch(requests)) => Err(Box::pin(self.answer_batch(&requests, body)).await),
            Err(RefusedRequest { id, error }) => Err(error_answer(id, error, self.error_form(None))),
        }
    }

    async fn decode_single(
        &self,
        request: envelope::Request<'_>,
        body: &ReadBody,
    ) -> Result<Decoded<'a>, Response> {
        let opened = self.open_single(&request).map_err(|response| *response)?;
        let Opened { dialect, op, cx, form } = &opened;
        if let Some(relayed) = self.relay(*dialect, *op, cx, &request, &body.bytes, form.data).await {
            let mut response = relayed.unwrap_or_else(|error| error_answer(request.id, error, *form));
            version::name(dialect.version(), response.headers_mut());
            return Err(response);
        }
        let call = decode(*dialect, *op, request.params, body).await;
        self.close(request.id, opened, call).map_err(|response| *response)
    }

    /// The request of a body decoded without a wait; `None` if it is a batch.
    fn decode_here(&self, body: &[u8]) -> Option<Result<Decoded<'a>, Box<Response>>> {
        let request = match envelope::decode_body(body) {
            Ok(IncomingBody::Single(request)) => request,
            Ok(IncomingBody::Batch(_)) => return None,
            Err(RefusedRequest { id, error }) => {
                return Some(Err(Box::new(error_answer(id, error, self.error_form(None)))));
            }
        };
        Some(self.open_single(&request).and_then(|opened| {
            let call = opened.dialect.decode_call(opened.op, request.params);
            self.close(request.id, opened, call)
        }))
    }

    /// Opens a request that is not in a batch, or returns the response that refuses it.
    fn open_single(&self, request: &envelope::Request<'_>) -> Result<Opened<'a>, Box<Response>> {
        let (id, form) = (request.id, self.error_form(Some(&request.method)));
        let (dialect, is_inferred) =
            self.dialect(&request.method).map_err(|error| Box::new(error_answer(id, error, form)))?;
        let form = form.in_words_of(dialect);
        let refuse = |id, error: Error, form| {
            let mut response = error_answer(id, error, form);
            version::name(dialect.version(), response.headers_mut());
            Box::new(response)
        };
        let (op, cx) = self.open(dialect, is_inferred, request).map_err(|error| refuse(id, error, form))?;
        let form = form.for_op(op);
        if id.is_none() && op.row().streaming {
            let error = Error::new(ErrorKind::InvalidRequest, "id: a streaming call needs one");
            return Err(refuse(None, error, form));
        }
        Ok(Opened { dialect, op, cx, form })
    }

    /// The request with its call, or the answer if that could not be decoded.
    fn close(
        &self,
        id: Option<&RawValue>,
        opened: Opened<'a>,
        call: Result<op::Call>,
    ) -> Result<Decoded<'a>, Box<Response>> {
        let Opened { dialect, op, cx, form } = opened;
        match call {
            Ok(call) => Ok(Decoded { id: id.map(ToOwned::to_owned), form, dialect, cx, call }),
            Err(error) => {
                let response = refuse_call(id, dialect, op, error, form);
                Err(Box::new(self.finish(response, op, &cx)))
            }
        }
    }

    async fn answer(&self, decoded: Decoded<'_>) -> Response {
        let Decoded { id, form, dialect, cx, call } = decoded;
        let (id, op) = (id.as_deref(), call.op());
        let done = self.agent.carry_out(call, &cx, self.extensions.get::<PublicBase>(), 1).await;
        let told = done.as_ref().ok().and_then(|(reply, _)| answer::header_of(reply));
        let mut response = match done {
            // A notification is executed and gets no response (JSON-RPC 2.0, section 4.1). If it is refused
            // it gets one nevertheless, because an HTTP client waits for it.
            Ok(_) if id.is_none() => no_content(),
            Ok((Reply::Stream(stream), _)) => {
                let envelope = EventEnvelope::jsonrpc(id, form.data);
                sse::respond(stream, dialect, envelope, form.request_id, &self.agent.options)
            }
            Ok((reply, held)) if !held.is_empty() => match dialect.reply_pieces(op, reply) {
                Ok(pieces) => piece_body::respond(JSON, envelope::result_pieces(id, pieces), held),
                Err(error) => error_answer(id, error, form),
            },
            Ok((reply, _)) => {
                let mut out = Vec::with_capacity(2048);
                match envelope::encode_result(id, &mut out, |out| dialect.encode_reply(op, &reply, out)) {
                    Ok(()) => answer::typed(StatusCode::OK, JSON, out),
                    Err(error) => error_answer(id, error, form),
                }
            }
            Err(error) => refuse_call(id, dialect, op, error, form),
        };
        response.headers_mut().extend(told);
        self.finish(response, op, &cx)
    }

    fn error_form(&self, method: Option<&str>) -> ErrorForm<'a> {
        let Self { headers, uri, extensions, .. } = *self;
        ErrorForm::of(Head { headers, uri, extensions }, method)
    }

    /// Adds the response headers that depend on the call.
    fn finish(&self, mut response: Response, op: Op, cx: &CallContext) -> Response {
        version::name(cx.version, response.headers_mut());
        if let Some((name, value)) = self.agent.activated(cx) {
            response.headers_mut().insert(name, value);
        }
        if op == Op::GetExtendedAgentCard {
            card::for_this_caller_only(response.headers_mut());
        }
        response
    }

    /// Passes the call to the relay, still sealed. Notifications are always decoded: the subject of their
    /// response would not be known.
    async fn relay(
        &self,
        dialect: &'static dyn Dialect,
        op: Op,
        cx: &CallContext,
        request: &envelope::Request<'_>,
        body: &Bytes,
        data: ErrorData,
    ) -> Option<Result<Response>> {
        if self.agent.relay.is_none() || request.id.is_none() {
            return None;
        }
        let (params, request_id) = (request.params.map(RawValue::get), self.extensions.get());
        let (summary, form) = sealed::jsonrpc(dialect, op, params, body, data, request_id)?;
        let call = SealedCall {
            binding: Binding::JsonRpc,
            version: dialect.version(),
            op,
            summary,
            method: &Method::POST,
            path: "",
            query: None,
            headers: self.headers,
            body: body.clone(),
            form,
        };
        self.agent.relay(cx, call).await
    }

    async fn answer_batch(&self, requests: &[&RawValue], body: &ReadBody) -> Response {
        let (most, form) = (self.agent.options.batch, self.error_form(None));
        if most == 0 {
            let error = Error::new(ErrorKind::InvalidRequest, "batches are not accepted; send one request");
            return error_answer(None, error, form);
        }
        if requests.len() > most {
            let error = Error::new(ErrorKind::InvalidRequest, format!("at most {most} requests in a batch"));
            return error_answer(None, error, form);
        }
        let mut out = vec![b'['];
        for json in requests {
            if let Some(answer) = self.answer_one(json, body).await {
                if out.len() > 1 {
                    out.push(b',');
                }
                out.extend_from_slice(&answer);
            }
        }
        if out.len() == 1 {
            // Only notifications: no response body, not an empty list (JSON-RPC 2.0, section 6).
            return no_content();
        }
        out.push(b']');
        let mut response = answer::typed(StatusCode::OK, JSON, out);
        self.finish_batch(response.headers_mut());
        response
    }

    /// Adds the version and the active extensions to the response to a batch.
    fn finish_batch(&self, headers: &mut HeaderMap) -> Option<()> {
        let requested = version::requested(self.headers, self.uri.query()).ok()?;
        let version = self.agent.jsonrpc.choose(requested).ok()?;
        version::name(version, headers);
        let (name, value) = self.agent.activated(&self.context(version).ok()?)?;
        headers.insert(name, value);
        Some(())
    }

    /// The response to one request of a batch; `None` for a notification.
    async fn answer_one(&self, json: &RawValue, body: &ReadBody) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let request = match envelope::open(json) {
            Ok(request) => request,
            Err(RefusedRequest { id, error }) => {
                let form = self.error_form(None);
                envelope::encode_error(id, &form.told(error), form.data, &mut out);
                return Some(out);
            }
        };
        let (id, mut form) = (request.id, self.error_form(Some(&request.method)));
        let result = match self.dialect(&request.method) {
            Ok((dialect, is_inferred)) => {
                form = form.in_words_of(dialect);
                self.answer_in(dialect, is_inferred, &request, body, &mut out).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            answer::log(&error);
            envelope::encode_error(id, &form.told(error), form.data, &mut out);
        }
        id.map(|_| out)
    }

    async fn answer_in(
        &self,
        dialect: &'static dyn Dialect,
        is_inferred: bool,
        request: &envelope::Request<'_>,
        body: &ReadBody,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (op, cx) = self.open(dialect, is_inferred, request)?;
        if op.row().streaming {
            return Err(Error::new(ErrorKind::InvalidRequest, "streaming calls are not allowed in a batch"));
        }
        let (reply, _held) = self.dispatch(dialect, op, &cx, request.params, body).await?;
        envelope::encode_result(request.id, out, |out| dialect.encode_reply(op, &reply, out))
    }

    /// Selects the dialect of a call; true if only the method shows it. The version is selected before the method: a
    /// body of another version is refused for its version, not for its fields.
    fn dialect(&self, method: &str) -> Result<(&'static dyn Dialect, bool)> {
        let requested = version::requested(self.headers, self.uri.query())?;
        if requested.is_none()
            && let Some(dialect) = self.proven(method)?
        {
            return Ok((dialect, true));
        }
        Ok((jsonrpc_dialect(self.agent.jsonrpc.choose(requested)?), false))
    }

    fn open(
        &self,
        dialect: &'static dyn Dialect,
        version_inferred: bool,
        request: &envelope::Request<'_>,
    ) -> Result<(Op, CallContext)> {
        let version = dialect.version();
        let op = dialect.op(&request.method).ok_or_else(|| {
            let method = wire::excerpt(request.method.to_string());
            Error::new(ErrorKind::MethodNotFound, format!("version {version} has no method {method}"))
        })?;
        let has_unknown_fields = !version_inferred && dialect.says_more(op, request.params);
        Ok((op, CallContext { has_unknown_fields, version_inferred, ..self.context(version)? }))
    }

    fn context(&self, version: Version) -> Result<CallContext> {
        let (caller, keep) = (self.extensions.get::<Caller>(), &self.agent.options.keep_headers);
        context::read(version, Binding::JsonRpc, self.headers, caller, keep)
    }

    /// Handles a method that only version 1.0 has, from a caller that sent no version: accepted if the
    /// options are lenient, otherwise refused with a clear error. The shape of the payload never decides.
    fn proven(&self, method: &str) -> Result<Option<&'static dyn Dialect>> {
        let newest = jsonrpc_dialect(Version::V1_0);
        if newest.op(method).is_none() || !self.agent.jsonrpc.has(Version::V1_0) {
            return Ok(None);
        }
        if self.agent.options.lenient_version {
            return Ok(Some(newest));
        }
        let why = format!(
            "{method} is a method of version 1.0, but no A2A-Version was sent, which means {IMPLIED}"
        );
        Err(self.agent.jsonrpc.refuse(&why))
    }

    async fn dispatch(
        &self,
        dialect: &'static dyn Dialect,
        op: Op,
        cx: &CallContext,
        params: Option<&RawValue>,
        body: &ReadBody,
    ) -> Result<(Reply, MemoryReservation)> {
        let call = decode(dialect, op, params, body).await?;
        self.agent.carry_out(call, cx, self.extensions.get::<PublicBase>(), 1).await
    }
}

async fn decode(
    dialect: &'static dyn Dialect,
    op: Op,
    params: Option<&RawValue>,
    body: &ReadBody,
) -> Result<op::Call> {
    body.decode_json(params, move |params| dialect.decode_call(op, params)).await
}

/// The response to a refused call, in the form that its version expects.
fn refuse_call(
    id: Option<&RawValue>,
    dialect: &dyn Dialect,
    op: Op,
    error: Error,
    form: ErrorForm<'_>,
) -> Response {
    let in_stream = op.row().streaming && dialect.refuses_in_stream();
    error_answer(id, error, ErrorForm { in_stream: form.in_stream || in_stream, ..form })
}

/// The response to a request that is refused before it is decoded. `status` is that of HTTP, if it is not that of the
/// error's kind.
pub(super) fn refuse(head: Head<'_>, status: Option<StatusCode>, error: Error) -> Response {
    let form = ErrorForm::of(head, None);
    let response = match status {
        Some(status) => error_response(None, error, form, status),
        None => error_answer(None, error, form),
    };
    in_requested_version(head, response)
}

/// The response to a request with this id, to this method, that reaches no agent.
pub(super) fn refuse_request(
    id: Option<&RawValue>,
    method: Option<&str>,
    head: Head<'_>,
    error: Error,
) -> Response {
    in_requested_version(head, error_answer(id, error, ErrorForm::of(head, method)))
}

/// The response with its version, as far as the head of the request shows it.
fn in_requested_version(head: Head<'_>, mut response: Response) -> Response {
    let requested = version::requested(head.headers, head.uri.query());
    if let Ok(Some(version)) = requested.map(|text| text.and_then(Version::parse)) {
        version::name(version, response.headers_mut());
    }
    response
}

fn error_answer(id: Option<&RawValue>, error: Error, form: ErrorForm<'_>) -> Response {
    let status = StatusCode::from_u16(error.kind().jsonrpc_http_status()).unwrap_or(StatusCode::OK);
    // An error of HTTP itself is reported by its status, in every version.
    if form.in_stream && status == StatusCode::OK {
        return sse::refuse(&form.told(error), &EventEnvelope::jsonrpc(id, form.data));
    }
    error_response(id, error, form, status)
}

fn error_response(id: Option<&RawValue>, error: Error, form: ErrorForm<'_>, status: StatusCode) -> Response {
    let error = form.told(error);
    answer::log(&error);
    let mut out = Vec::with_capacity(512);
    envelope::encode_error(id, &error, form.data, &mut out);
    let mut response = answer::typed(status, JSON, out);
    answer::explain(&mut response, &error);
    response
}

fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
