//! The JSON-RPC binding: one URL, both versions.

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
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
    Inner, PublicBase, RequestId,
    answer::{self, JSON},
    body::{self, ReadBody},
    card, context, piece_body,
    sealed::{self, SealedCall},
    sse::{self, Envelope},
    version::{self, IMPLIED, jsonrpc_dialect},
};
use crate::memory::Reservation;

pub(super) async fn serve(agent: &Inner, request: Box<Request>) -> Response {
    let (parts, body) = request.into_parts();
    if !answer::is_json(&parts.headers) {
        // `/agents/echo` may be a service and an rpc to somebody.
        #[cfg(feature = "grpc")]
        if super::is_grpc(&parts.headers) {
            return super::unimplemented("there is no such service here");
        }
        // Refused before parsing (REQ-031).
        let form = ErrorForm::of(&parts.headers, &parts.uri, parts.extensions.get(), None);
        return error_response(None, answer::not_json(JSON), form, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let body = match body::read(body, &agent.options).await {
        Ok(body) => body,
        Err(error) => {
            let form = ErrorForm::of(&parts.headers, &parts.uri, parts.extensions.get(), None);
            return error_answer(None, error, form);
        }
    };
    let call = Call { agent, headers: &parts.headers, uri: &parts.uri, extensions: &parts.extensions };
    let decoded = match envelope::decode_body(&body.bytes) {
        Ok(Incoming::Single(request)) => call.decode_single(request, &body).await,
        // Boxed: few come in batches.
        Ok(Incoming::Batch(requests)) => Err(Box::pin(call.answer_batch(&requests, &body)).await),
        Err(Refused { id, error }) => Err(error_answer(id, error, call.error_form(None))),
    };
    // It may be large, and an answer takes as long as the agent does.
    drop(body);
    match decoded {
        Ok(decoded) => call.answer(decoded).await,
        Err(response) => response,
    }
}

/// A request that needs its body no more.
struct Decoded<'a> {
    id: Option<Box<RawValue>>,
    form: ErrorForm<'a>,
    dialect: &'static dyn Dialect,
    cx: CallContext,
    call: op::Call,
}

/// The form of an error for a caller.
#[derive(Clone, Copy)]
struct ErrorForm<'a> {
    data: ErrorData,
    /// As the only frame of a stream.
    in_stream: bool,
    /// The dialect in whose words it is told, once that is known.
    dialect: Option<&'static dyn Dialect>,
    request_id: Option<&'a RequestId>,
}

impl<'a> ErrorForm<'a> {
    /// The form for a caller with this head, and this method if it is known.
    fn of(headers: &HeaderMap, uri: &Uri, request_id: Option<&'a RequestId>, method: Option<&str>) -> Self {
        let data = version::error_data(headers, uri.query(), method);
        Self { data, in_stream: answer::takes_stream_only(headers), dialect: None, request_id }
    }

    fn in_words_of(self, dialect: &'static dyn Dialect) -> Self {
        Self { dialect: Some(dialect), ..self }
    }

    /// The error as this caller is told it.
    fn told(&self, error: Error) -> Error {
        let error = match self.dialect {
            Some(dialect) => dialect.reword(error),
            None => error,
        };
        RequestId::put(self.request_id, error)
    }

    /// The form for an operation: what is no stream is not refused by one.
    fn for_op(self, op: Op) -> Self {
        Self { in_stream: self.in_stream && op.row().streaming, ..self }
    }
}

/// A request with what its headers say.
struct Call<'a> {
    agent: &'a Inner,
    headers: &'a HeaderMap,
    uri: &'a Uri,
    /// Who calls, where the caller sees us, and the id of the request.
    extensions: &'a Extensions,
}

impl<'a> Call<'a> {
    /// The request decoded, or the answer if it gets no further.
    async fn decode_single(
        &self,
        request: envelope::Request<'_>,
        body: &ReadBody,
    ) -> Result<Decoded<'a>, Response> {
        let (id, form) = (request.id, self.error_form(Some(&request.method)));
        let (dialect, is_inferred) =
            self.dialect(&request.method).map_err(|error| error_answer(id, error, form))?;
        let form = form.in_words_of(dialect);
        let decoded = match self.open(dialect, is_inferred, &request) {
            Ok((op, cx)) => self.decode_call(dialect, op, cx, request, body, form.for_op(op)).await,
            Err(error) => Err(error_answer(id, error, form)),
        };
        decoded.map_err(|mut response| {
            version::name(dialect.version(), response.headers_mut());
            response
        })
    }

    async fn decode_call(
        &self,
        dialect: &'static dyn Dialect,
        op: Op,
        cx: CallContext,
        request: envelope::Request<'_>,
        body: &ReadBody,
        form: ErrorForm<'a>,
    ) -> Result<Decoded<'a>, Response> {
        let id = request.id;
        if id.is_none() && op.row().streaming {
            let error = Error::new(ErrorKind::InvalidRequest, "id: a streaming call needs one");
            return Err(error_answer(None, error, form));
        }
        if let Some(relayed) = self.relay(dialect, op, &cx, &request, &body.bytes, form.data).await {
            return Err(relayed.unwrap_or_else(|error| error_answer(id, error, form)));
        }
        match decode(dialect, op, request.params, body).await {
            Ok(call) => Ok(Decoded { id: id.map(ToOwned::to_owned), form, dialect, cx, call }),
            Err(error) => {
                let response = refuse_call(id, dialect, op, error, form);
                Err(self.finish(response, op, &cx))
            }
        }
    }

    async fn answer(&self, decoded: Decoded<'_>) -> Response {
        let Decoded { id, form, dialect, cx, call } = decoded;
        let (id, op) = (id.as_deref(), call.op());
        let response = match self.agent.carry_out(call, &cx, self.extensions.get::<PublicBase>(), 1).await {
            // A notification is carried out and gets no answer (JSON-RPC 2.0, section 4.1); if it is
            // refused it gets one all the same, because over HTTP somebody waits for it.
            Ok(_) if id.is_none() => no_content(),
            Ok((Reply::Stream(stream), _)) => {
                let envelope = Envelope::jsonrpc(id, form.data);
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
        self.finish(response, op, &cx)
    }

    fn error_form(&self, method: Option<&str>) -> ErrorForm<'a> {
        ErrorForm::of(self.headers, self.uri, self.extensions.get(), method)
    }

    /// The headers of an answer that follow from its call.
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

    /// Gives the call to the relay, still sealed. A notification is decoded: the subject of its answer would not be
    /// known.
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
        let (glance, form) = sealed::jsonrpc(dialect, op, params, body, data, request_id)?;
        let call = SealedCall {
            binding: Binding::JsonRpc,
            version: dialect.version(),
            op,
            glance,
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
            let error = Error::new(ErrorKind::InvalidRequest, "batches are not taken; send one request");
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
            // Nothing but notifications: no answer, not an empty one (JSON-RPC 2.0, section 6).
            return no_content();
        }
        out.push(b']');
        let mut response = answer::typed(StatusCode::OK, JSON, out);
        self.finish_batch(response.headers_mut());
        response
    }

    /// The version and the extensions of an answer to several calls.
    fn finish_batch(&self, headers: &mut HeaderMap) -> Option<()> {
        let requested = version::requested(self.headers, self.uri.query()).ok()?;
        let version = self.agent.jsonrpc.choose(requested).ok()?;
        version::name(version, headers);
        let (name, value) = self.agent.activated(&self.context(version).ok()?)?;
        headers.insert(name, value);
        Some(())
    }

    /// One of a batch; `None` for a notification.
    async fn answer_one(&self, json: &RawValue, body: &ReadBody) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let request = match envelope::open(json) {
            Ok(request) => request,
            Err(Refused { id, error }) => {
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
            return Err(Error::new(ErrorKind::InvalidRequest, "a batch takes no streaming calls"));
        }
        let (reply, _held) = self.dispatch(dialect, op, &cx, request.params, body).await?;
        envelope::encode_result(request.id, out, |out| dialect.encode_reply(op, &reply, out))
    }

    /// The dialect of a call, and whether only its method tells that. Version, then method: a body of another version
    /// is told so, not that its fields are wrong.
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

    /// A caller that sent no version, but a method that only 1.0 has: told clearly, or taken if the
    /// options are lenient. Never decided by the shape of the payload.
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
    ) -> Result<(Reply, Reservation)> {
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

/// The answer to a call that is refused, in the way that its version expects.
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

/// The answer to a request that goes no further. `status` is that of HTTP, if it is not that of the error's kind.
pub(super) fn refuse(request: &Request, status: Option<StatusCode>, error: Error) -> Response {
    let (headers, uri) = (request.headers(), request.uri());
    let form = ErrorForm::of(headers, uri, request.extensions().get(), None);
    let mut response = match status {
        Some(status) => error_response(None, error, form, status),
        None => error_answer(None, error, form),
    };
    // As far as its head tells.
    if let Ok(Some(version)) =
        version::requested(headers, uri.query()).map(|text| text.and_then(Version::parse))
    {
        version::name(version, response.headers_mut());
    }
    response
}

fn error_answer(id: Option<&RawValue>, error: Error, form: ErrorForm<'_>) -> Response {
    let status = StatusCode::from_u16(error.kind().jsonrpc_http_status()).unwrap_or(StatusCode::OK);
    // What concerns HTTP itself is told by its status, whatever the version.
    if form.in_stream && status == StatusCode::OK {
        return sse::refuse(&form.told(error), &Envelope::jsonrpc(id, form.data));
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
