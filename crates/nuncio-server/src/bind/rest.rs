//! The HTTP+JSON binding: verbs and paths below the agent's address, both versions.

use std::borrow::Cow;

use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use nuncio_protocol::{
    Binding, CallContext, Caller, Error, Result,
    op::{Call, Op, Reply, Verb},
    wire::rest::{self, Refused, Route},
};
use serde_json::value::RawValue;

use super::{
    Inner, PublicBase, RequestId,
    answer::{self, A2A_JSON, JSON},
    body::{self, ReadBody},
    card, context, piece_body,
    sealed::{self, SealedCall},
    sse::{self, Envelope},
    version::{self, IMPLIED, RestForm},
};
use crate::memory::Reservation;

/// Answers a request to an agent whose address has the path `prefix`.
pub(super) async fn serve(agent: &Inner, prefix: &str, request: Box<Request>) -> Response {
    let (parts, body) = request.into_parts();
    // As it came, not as the router has decoded it: an escaped slash is no slash (trap T-49).
    let path = parts.uri.path();
    let path = path.strip_prefix(prefix).unwrap_or(path);
    let form = version::rest_form(path, &parts.headers);
    let mut response = Exchange { agent, form, parts: &parts }.serve(path, body).await;
    version::name(form.dialect.version(), response.headers_mut());
    response
}

/// A request with what its head says.
struct Exchange<'a> {
    agent: &'a Inner,
    form: &'static RestForm,
    parts: &'a Parts,
}

impl Exchange<'_> {
    async fn serve(&self, path: &str, body: Body) -> Response {
        let Self { agent, parts, .. } = self;
        let route = match self.route(path) {
            Ok(route) => route,
            Err(refused) => return self.refuse(refused),
        };
        let body = if parts.method == Method::POST && !body.is_end_stream() {
            let is_typed = parts.headers.contains_key(header::CONTENT_TYPE);
            if is_typed && !answer::is_json(&parts.headers) {
                return self.refuse_type();
            }
            match body::read(body, &agent.options).await {
                // That there is nothing in a body may be known only at its end; nothing has no type.
                Ok(body) if !is_typed && !body.bytes.is_empty() => return self.refuse_type(),
                Ok(body) => body,
                Err(error) => return self.error(None, error),
            }
        } else {
            ReadBody::none()
        };
        self.answer(route, path, body).await
    }

    /// What can be told without the body. Version before parameters: a body of another version is told so.
    /// But where nothing is, no version will help.
    fn route<'p>(&self, path: &'p str) -> Result<Route<'p>, Refused> {
        let agent = self.agent;
        let proven = self.form.dialect.version();
        let route = rest::find_route(&self.form.paths, self.parts.method.as_str(), path)?;
        let requested = version::requested(&self.parts.headers, self.parts.uri.query())?;
        if requested.is_none() && proven != IMPLIED && !agent.options.lenient_version {
            let why = format!(
                "this path is of version {proven}, but no A2A-Version was sent, which means {IMPLIED}"
            );
            return Err(agent.rest.refuse(&why).into());
        }
        agent.rest.confirm(proven, requested)?;
        Ok(route)
    }

    async fn answer(&self, route: Route<'_>, path: &str, body: ReadBody) -> Response {
        let Parts { method, uri, .. } = self.parts;
        if let Some(relayed) = self.relay(&route, path, &body.bytes).await {
            return relayed.unwrap_or_else(|error| self.error(None, error));
        }
        let incoming = match route.decode(method.as_str(), uri.query(), &body.bytes) {
            Ok(incoming) => incoming,
            Err(refused) => return self.refuse(refused),
        };
        let op = incoming.op;
        let cx = match self.context() {
            Ok(cx) => cx,
            Err(error) => return self.error(None, error),
        };
        let decoded = self.decode(incoming, &body).await;
        // It may be large, and an answer takes as long as the agent does.
        drop(body);
        let mut response = match self.dispatch(decoded, &cx).await {
            Ok((reply, held)) => self.reply(op, reply, held),
            Err(error) => self.error(None, error),
        };
        if let Some((name, value)) = self.agent.activated(&cx) {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Gives the call to the relay, still sealed.
    async fn relay(&self, route: &Route<'_>, path: &str, body: &Bytes) -> Option<Result<Response>> {
        self.agent.relay.as_ref()?;
        let Parts { method, uri, headers, .. } = self.parts;
        let (glance, form) = sealed::rest(self.form, route, uri.query(), body, self.parts.extensions.get())?;
        let cx = self.context().ok()?;
        let call = SealedCall {
            binding: Binding::HttpJson,
            version: self.form.dialect.version(),
            op: route.op(),
            glance,
            method,
            path,
            query: uri.query(),
            headers,
            body: body.clone(),
            form,
        };
        self.agent.relay(&cx, call).await
    }

    fn context(&self) -> Result<CallContext> {
        let Parts { headers, uri, extensions, .. } = self.parts;
        let version = self.form.dialect.version();
        let (caller, keep) = (extensions.get::<Caller>(), &self.agent.options.keep_headers);
        let mut cx = context::read(version, Binding::HttpJson, headers, caller, keep)?;
        cx.version_inferred = version != IMPLIED && version::requested(headers, uri.query())?.is_none();
        Ok(cx)
    }

    async fn decode(&self, incoming: rest::Incoming<'_>, body: &ReadBody) -> Result<Call> {
        let (dialect, tenant, op) = (self.form.dialect, incoming.tenant, incoming.op);
        let decode = move |params: Option<&RawValue>| {
            let params = Cow::Borrowed(params.unwrap_or(RawValue::NULL));
            rest::Incoming { tenant, op, params }.decode_call(dialect)
        };
        body.decode_json(Some(&incoming.params), decode).await
    }

    async fn dispatch(&self, decoded: Result<Call>, cx: &CallContext) -> Result<(Reply, Reservation)> {
        self.agent.carry_out(decoded?, cx, self.parts.extensions.get::<PublicBase>(), 1).await
    }

    fn reply(&self, op: Op, reply: Reply, held: Reservation) -> Response {
        if let Reply::Stream(stream) = reply {
            let envelope = Envelope::Bare { error: self.form.error_event };
            let request_id = self.parts.extensions.get();
            return sse::respond(stream, self.form.dialect, envelope, request_id, &self.agent.options);
        }
        if !held.is_empty() {
            return match self.form.dialect.reply_pieces(op, reply) {
                Ok(pieces) => piece_body::respond(self.media_type(), pieces, held),
                Err(error) => self.error(None, error),
            };
        }
        let mut out = Vec::with_capacity(2048);
        if let Err(error) = self.form.dialect.encode_reply(op, &reply, &mut out) {
            return self.error(None, error);
        }
        let mut response = answer::typed(StatusCode::OK, self.media_type(), out);
        if op == Op::GetExtendedAgentCard {
            card::for_this_caller_only(response.headers_mut());
        }
        response
    }

    /// A body of another type is refused before it is parsed (REQ-031).
    fn refuse_type(&self) -> Response {
        self.error(Some(StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16()), answer::not_json(JSON))
    }

    fn refuse(&self, refused: Refused) -> Response {
        let status = match &refused {
            Refused::NotFound | Refused::MethodNotAllowed { .. } => Some(refused.status()),
            Refused::Invalid(_) => None,
        };
        let allow = match &refused {
            Refused::MethodNotAllowed { allow } => {
                let verbs: Vec<_> = allow.iter().copied().map(Verb::as_str).collect();
                HeaderValue::from_str(&verbs.join(", ")).ok()
            }
            Refused::NotFound | Refused::Invalid(_) => None,
        };
        let mut response = self.error(status, refused.into_error());
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }

    fn error(&self, status: Option<u16>, error: Error) -> Response {
        let Parts { headers, extensions, .. } = self.parts;
        self::error(self.form, headers, extensions.get(), status, error)
    }

    fn media_type(&self) -> &'static str {
        media_type(self.form, &self.parts.headers)
    }
}

/// The answer to a request, to this path below the agent's address, that goes no further. `status` is that of HTTP,
/// if it is not that of the error's kind.
pub(super) fn refuse(path: &str, request: &Request, status: Option<StatusCode>, error: Error) -> Response {
    let (form, status) = (version::rest_form(path, request.headers()), status.map(|status| status.as_u16()));
    let mut response = self::error(form, request.headers(), request.extensions().get(), status, error);
    version::name(form.dialect.version(), response.headers_mut());
    response
}

fn error(
    form: &RestForm,
    headers: &HeaderMap,
    request_id: Option<&RequestId>,
    status: Option<u16>,
    error: Error,
) -> Response {
    let error = RequestId::put(request_id, form.dialect.reword(error));
    answer::log(&error);
    let (status, body) = (form.error)(status, &error);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = answer::typed(status, media_type(form, headers), body);
    answer::explain(&mut response, &error);
    response
}

/// The protocol's own media type (spec 11.1), unless the caller shows that it knows the other one only.
fn media_type(form: &RestForm, headers: &HeaderMap) -> &'static str {
    let mentions = |name: &HeaderName, media_type: &str| {
        headers
            .get_all(name)
            .iter()
            .any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains(media_type)))
    };
    if !form.has_own_media_type {
        return JSON;
    }
    for name in [header::ACCEPT, header::CONTENT_TYPE] {
        if mentions(&name, A2A_JSON) {
            return A2A_JSON;
        }
        if mentions(&name, JSON) {
            return JSON;
        }
        // Whoever takes neither, such as a stream only, rather knows the older one (trap T-07).
        if name == header::ACCEPT && headers.contains_key(&name) && !mentions(&name, "/*") {
            return JSON;
        }
    }
    A2A_JSON
}
