//! The JSON-RPC binding: one URL for both versions.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use nuncio_protocol::{
    Binding, CallContext, Caller, Error, ErrorKind, Result, Version,
    op::{self, Op, Reply},
    wire::{
        self, Dialect,
        jsonrpc::{self as envelope, ErrorData, Incoming, Refused},
    },
};
use serde_json::value::RawValue;

use super::{
    Inner, PublicBase,
    answer::{self, JSON},
    body::{self, ReadBody},
    card, context, piece_body,
    sealed::{self, SealedCall},
    sse::{self, Envelope},
    version::{self, IMPLIED, jsonrpc_dialect},
};
use crate::memory::Reservation;

pub(super) async fn serve(agent: &Arc<Inner>, request: Box<Request>) -> Response {
    let (parts, body) = request.into_parts();
    if !answer::is_json(&parts.headers) {
        // To a gRPC client `/agents/echo` is the method `echo` of a service `agents`.
        #[cfg(feature = "grpc")]
        if super::is_grpc(&parts.headers) {
            return super::unimplemented("there is no such service here");
        }
        // Refused before it is parsed (REQ-031).
        let form = ErrorForm::of(&parts.headers, parts.uri.query(), None);
        return error_response(None, &answer::not_json(JSON), form, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let body = match body::read(body, &agent.options).await {
        Ok(body) => body,
        Err(error) => return refuse(&parts.headers, parts.uri.query(), &error),
    };
    let (caller, base) = (parts.extensions.get::<Caller>(), parts.extensions.get::<PublicBase>());
    let call = Call { agent, headers: &parts.headers, uri: &parts.uri, caller, base };
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

/// Decodes a large body, all of it on a blocking thread: already its envelope takes as long to find as it is large.
async fn decode_large(agent: &Arc<Inner>, call: &Call<'_>, body: &ReadBody) -> Result<Decoded, Response> {
    let (agent, headers, uri) = (Arc::clone(agent), call.headers.clone(), call.uri.clone());
    let caller = call.caller.cloned();
    let decoding = body.decode(move |bytes| {
        let (agent, caller) = (&*agent, caller.as_ref());
        Ok(Call { agent, headers: &headers, uri: &uri, caller, base: None }.decode_here(&bytes))
    });
    match decoding.await {
        Ok(Some(decoded)) => decoded.map_err(|response| *response),
        // Without batches there is no need to look at this one.
        Ok(None) if call.agent.options.batch == 0 => Err(call.answer_batch(&[], body).await),
        Ok(None) => call.decode(body).await,
        Err(error) => Err(error_answer(None, &error, call.error_form(None))),
    }
}

/// The version and operation of a request, and the form of its errors.
struct Opened {
    dialect: &'static dyn Dialect,
    op: Op,
    cx: CallContext,
    form: ErrorForm,
}

/// A request that needs its body no more.
struct Decoded {
    id: Option<Box<RawValue>>,
    form: ErrorForm,
    dialect: &'static dyn Dialect,
    cx: CallContext,
    call: op::Call,
}

/// The form of an error for a caller.
#[derive(Clone, Copy)]
struct ErrorForm {
    data: ErrorData,
    /// True if the error is sent as the only frame of a stream.
    in_stream: bool,
}

impl ErrorForm {
    /// The form for a caller with these headers and query, and this method if it is known.
    fn of(headers: &HeaderMap, query: Option<&str>, method: Option<&str>) -> Self {
        let data = version::error_data(headers, query, method);
        Self { data, in_stream: answer::takes_stream_only(headers) }
    }

    /// The form for an operation: only a streaming one is refused in a stream.
    fn for_op(self, op: Op) -> Self {
        Self { in_stream: self.in_stream && op.row().streaming, ..self }
    }
}

/// The head of a request, with its agent.
struct Call<'a> {
    agent: &'a Inner,
    headers: &'a HeaderMap,
    uri: &'a Uri,
    caller: Option<&'a Caller>,
    /// The URL under which this caller reaches the server.
    base: Option<&'a PublicBase>,
}

impl Call<'_> {
    /// The request of a body decoded, or the answer if it gets no further.
    async fn decode(&self, body: &ReadBody) -> Result<Decoded, Response> {
        match envelope::decode_body(&body.bytes) {
            Ok(Incoming::Single(request)) => self.decode_single(request, body).await,
            // Boxed: few come in batches.
            Ok(Incoming::Batch(requests)) => Err(Box::pin(self.answer_batch(&requests, body)).await),
            Err(Refused { id, error }) => Err(error_answer(id, &error, self.error_form(None))),
        }
    }

    async fn decode_single(
        &self,
        request: envelope::Request<'_>,
        body: &ReadBody,
    ) -> Result<Decoded, Response> {
        let opened = self.open_single(&request).map_err(|response| *response)?;
        let Opened { dialect, op, cx, form } = &opened;
        if let Some(relayed) = self.relay(*dialect, *op, cx, &request, &body.bytes, form.data).await {
            return Err(relayed.unwrap_or_else(|error| error_answer(request.id, &error, *form)));
        }
        let call = decode(*dialect, *op, request.params, body).await;
        self.close(request.id, opened, call).map_err(|response| *response)
    }

    /// The request of a body decoded without a wait; `None` if it is a batch.
    fn decode_here(&self, body: &[u8]) -> Option<Result<Decoded, Box<Response>>> {
        let request = match envelope::decode_body(body) {
            Ok(Incoming::Single(request)) => request,
            Ok(Incoming::Batch(_)) => return None,
            Err(Refused { id, error }) => {
                return Some(Err(Box::new(error_answer(id, &error, self.error_form(None)))));
            }
        };
        Some(self.open_single(&request).and_then(|opened| {
            let call = opened.dialect.decode_call(opened.op, request.params);
            self.close(request.id, opened, call)
        }))
    }

    /// Opens a request that is not of a batch, or gives the answer if it gets no further.
    fn open_single(&self, request: &envelope::Request<'_>) -> Result<Opened, Box<Response>> {
        let (id, form) = (request.id, self.error_form(Some(&request.method)));
        let refuse = |id, error: &Error, form| Box::new(error_answer(id, error, form));
        let (dialect, op, cx) = self.open(request).map_err(|error| refuse(id, &error, form))?;
        let form = form.for_op(op);
        if id.is_none() && op.row().streaming {
            let error = Error::new(ErrorKind::InvalidRequest, "id: a streaming call needs one");
            return Err(refuse(None, &error, form));
        }
        Ok(Opened { dialect, op, cx, form })
    }

    /// The request with its call, or the answer if that could not be decoded.
    fn close(
        &self,
        id: Option<&RawValue>,
        opened: Opened,
        call: Result<op::Call>,
    ) -> Result<Decoded, Box<Response>> {
        let Opened { dialect, op, cx, form } = opened;
        match call {
            Ok(call) => Ok(Decoded { id: id.map(ToOwned::to_owned), form, dialect, cx, call }),
            Err(error) => {
                let response = refuse_call(id, dialect, op, &error, form);
                Err(Box::new(self.finish(response, op, &cx)))
            }
        }
    }

    async fn answer(&self, decoded: Decoded) -> Response {
        let Decoded { id, form, dialect, cx, call } = decoded;
        let (id, op) = (id.as_deref(), call.op());
        let response = match self.agent.carry_out(call, &cx, self.base, 1).await {
            // A notification is executed and gets no response (JSON-RPC 2.0, section 4.1). If it is refused
            // it gets one nevertheless, because an HTTP client waits for it.
            Ok(_) if id.is_none() => no_content(),
            Ok((Reply::Stream(stream), _)) => {
                sse::respond(stream, dialect, Envelope::jsonrpc(id, form.data), &self.agent.options)
            }
            Ok((reply, held)) if !held.is_empty() => match dialect.reply_pieces(op, reply) {
                Ok(pieces) => piece_body::respond(JSON, envelope::result_pieces(id, pieces), held),
                Err(error) => error_answer(id, &error, form),
            },
            Ok((reply, _)) => {
                let mut out = Vec::with_capacity(2048);
                match envelope::encode_result(id, &mut out, |out| dialect.encode_reply(op, &reply, out)) {
                    Ok(()) => answer::typed(StatusCode::OK, JSON, out),
                    Err(error) => error_answer(id, &error, form),
                }
            }
            Err(error) => refuse_call(id, dialect, op, &error, form),
        };
        self.finish(response, op, &cx)
    }

    fn error_form(&self, method: Option<&str>) -> ErrorForm {
        ErrorForm::of(self.headers, self.uri.query(), method)
    }

    /// Adds the response headers that depend on the call.
    fn finish(&self, mut response: Response, op: Op, cx: &CallContext) -> Response {
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
        let (summary, form) = sealed::jsonrpc(dialect, op, request.params.map(RawValue::get), body, data)?;
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
            return error_answer(None, &error, form);
        }
        if requests.len() > most {
            let error = Error::new(ErrorKind::InvalidRequest, format!("at most {most} requests in a batch"));
            return error_answer(None, &error, form);
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
        if let Some((name, value)) = self.echo() {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// The header of active extensions for the response to a batch.
    fn echo(&self) -> Option<(HeaderName, HeaderValue)> {
        let requested = version::requested(self.headers, self.uri.query()).ok()?;
        let version = self.agent.jsonrpc.choose(requested).ok()?;
        self.agent.activated(&self.context(version).ok()?)
    }

    /// The response to one request of a batch; `None` for a notification.
    async fn answer_one(&self, json: &RawValue, body: &ReadBody) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let request = match envelope::open(json) {
            Ok(request) => request,
            Err(Refused { id, error }) => {
                envelope::encode_error(id, &error, self.error_form(None).data, &mut out);
                return Some(out);
            }
        };
        let id = request.id;
        let result = match self.open(&request) {
            Ok((_, op, _)) if op.row().streaming => {
                Err(Error::new(ErrorKind::InvalidRequest, "streaming calls are not allowed in a batch"))
            }
            Ok((dialect, op, cx)) => match self.dispatch(dialect, op, &cx, request.params, body).await {
                Ok((reply, _held)) => {
                    envelope::encode_result(id, &mut out, |out| dialect.encode_reply(op, &reply, out))
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            answer::log(&error);
            envelope::encode_error(id, &error, self.error_form(Some(&request.method)).data, &mut out);
        }
        id.map(|_| out)
    }

    /// Selects the version, then the method. A body of another version is refused for its version, not for
    /// its fields.
    fn open(&self, request: &envelope::Request<'_>) -> Result<(&'static dyn Dialect, Op, CallContext)> {
        let requested = version::requested(self.headers, self.uri.query())?;
        if requested.is_none()
            && let Some((dialect, op)) = self.proven(&request.method)?
        {
            let cx = self.context(dialect.version())?;
            return Ok((dialect, op, CallContext { version_inferred: true, ..cx }));
        }
        let version = self.agent.jsonrpc.choose(requested)?;
        let dialect = jsonrpc_dialect(version);
        let op = dialect.op(&request.method).ok_or_else(|| {
            let method = wire::excerpt(request.method.to_string());
            Error::new(ErrorKind::MethodNotFound, format!("version {version} has no method {method}"))
        })?;
        let has_unknown_fields = dialect.says_more(op, request.params);
        Ok((dialect, op, CallContext { has_unknown_fields, ..self.context(version)? }))
    }

    fn context(&self, version: Version) -> Result<CallContext> {
        context::read(version, Binding::JsonRpc, self.headers, self.caller, &self.agent.options.keep_headers)
    }

    /// Handles a method that only version 1.0 has, from a caller that sent no version: accepted if the
    /// options are lenient, otherwise refused with a clear error. The shape of the payload never decides.
    fn proven(&self, method: &str) -> Result<Option<(&'static dyn Dialect, Op)>> {
        let newest = jsonrpc_dialect(Version::V1_0);
        let Some(op) = newest.op(method).filter(|_| self.agent.jsonrpc.has(Version::V1_0)) else {
            return Ok(None);
        };
        if self.agent.options.lenient_version {
            return Ok(Some((newest, op)));
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
    ) -> Result<(Reply, Reservation)> {
        let call = decode(dialect, op, params, body).await?;
        self.agent.carry_out(call, cx, self.base, 1).await
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
    error: &Error,
    form: ErrorForm,
) -> Response {
    let in_stream = op.row().streaming && dialect.refuses_in_stream();
    error_answer(id, error, ErrorForm { in_stream: form.in_stream || in_stream, ..form })
}

/// The response to a request that is refused before it is decoded.
pub(super) fn refuse(headers: &HeaderMap, query: Option<&str>, error: &Error) -> Response {
    refuse_request(None, None, headers, query, error)
}

/// The same for a request with this id, to this method.
pub(super) fn refuse_request(
    id: Option<&RawValue>,
    method: Option<&str>,
    headers: &HeaderMap,
    query: Option<&str>,
    error: &Error,
) -> Response {
    error_answer(id, error, ErrorForm::of(headers, query, method))
}

fn error_answer(id: Option<&RawValue>, error: &Error, form: ErrorForm) -> Response {
    let status = StatusCode::from_u16(error.kind().jsonrpc_http_status()).unwrap_or(StatusCode::OK);
    // An error of HTTP itself is reported by its status, in every version.
    if form.in_stream && status == StatusCode::OK {
        return sse::refuse(error, &Envelope::jsonrpc(id, form.data));
    }
    error_response(id, error, form, status)
}

fn error_response(id: Option<&RawValue>, error: &Error, form: ErrorForm, status: StatusCode) -> Response {
    answer::log(error);
    let mut out = Vec::with_capacity(512);
    envelope::encode_error(id, error, form.data, &mut out);
    let mut response = answer::typed(status, JSON, out);
    answer::explain(&mut response, error);
    response
}

fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
