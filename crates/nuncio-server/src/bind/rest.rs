//! The HTTP+JSON binding: methods and paths below the agent's URL, for both versions.

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
    wire::rest::{self, RestRefusal, Route},
};

use super::{
    AgentInner, PublicBase, RequestId,
    answer::{self, A2A_JSON, JSON},
    body::{self, ReadBody},
    card, context, piece_body,
    refuse::Head,
    sealed::{self, SealedCall},
    sse::{self, EventEnvelope},
    version::{self, IMPLIED, RestForm},
};
use crate::memory::MemoryReservation;

/// Answers a request to an agent at the path `prefix`.
pub(super) async fn serve(agent: &AgentInner, prefix: &str, request: Box<Request>) -> Response {
    let (parts, body) = request.into_parts();
    // The raw path, not the one that the router has unescaped: an escaped slash is no separator (trap T-49).
    let path = parts.uri.path();
    let path = path.strip_prefix(prefix).unwrap_or(path);
    let form = version::rest_form(path, &parts.headers);
    let mut response = RestExchange { agent, form, parts: &parts }.serve(path, body).await;
    version::name(form.dialect.version(), response.headers_mut());
    response
}

/// The head of a request, with its agent and its version's form.
struct RestExchange<'a> {
    agent: &'a AgentInner,
    form: &'static RestForm,
    parts: &'a Parts,
}

impl RestExchange<'_> {
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

    /// Checks everything that does not need the body. An unknown path comes first: no version would help.
    /// Then the version, before any parameters, so that a body of another version is refused for its version.
    fn route<'p>(&self, path: &'p str) -> Result<Route<'p>, RestRefusal> {
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
        let op = route.op();
        let decoded = if body.is_large() {
            // Boxed: few are large.
            Box::pin(self.decode_large(path, &body)).await
        } else {
            let incoming = route.decode(method.as_str(), uri.query(), &body.bytes);
            incoming.map(|incoming| incoming.decode_call(self.form.dialect))
        };
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(refused) => return self.refuse(refused),
        };
        let cx = match self.context() {
            Ok(cx) => cx,
            Err(error) => return self.error(None, error),
        };
        // The body may be large, and the response takes as long as the agent works.
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

    /// Passes the call to the relay, still sealed.
    async fn relay(&self, route: &Route<'_>, path: &str, body: &Bytes) -> Option<Result<Response>> {
        self.agent.relay.as_ref()?;
        let Parts { method, uri, headers, .. } = self.parts;
        let (summary, form) = sealed::rest(self.form, route, uri.query(), body, self.parts.extensions.get())?;
        let cx = self.context().ok()?;
        let call = SealedCall {
            binding: Binding::HttpJson,
            version: self.form.dialect.version(),
            op: route.op(),
            summary,
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

    /// Decodes a large body, all of it on a blocking thread.
    async fn decode_large(&self, path: &str, body: &ReadBody) -> Result<Result<Call>, RestRefusal> {
        let (form, path, method) = (self.form, path.to_owned(), self.parts.method.clone());
        let query = self.parts.uri.query().map(ToOwned::to_owned);
        let decoding = body.decode(move |bytes| {
            // The route borrows the path: it is found again, which is nothing beside the body.
            let incoming = rest::find_route(&form.paths, method.as_str(), &path)
                .and_then(|route| route.decode(method.as_str(), query.as_deref(), &bytes));
            Ok(incoming.map(|incoming| incoming.decode_call(form.dialect)))
        });
        decoding.await.unwrap_or_else(|error| Ok(Err(error)))
    }

    async fn dispatch(&self, decoded: Result<Call>, cx: &CallContext) -> Result<(Reply, MemoryReservation)> {
        self.agent.carry_out(decoded?, cx, self.parts.extensions.get::<PublicBase>(), 1).await
    }

    fn reply(&self, op: Op, reply: Reply, held: MemoryReservation) -> Response {
        if let Reply::Stream(stream) = reply {
            let envelope = EventEnvelope::Bare { error: self.form.error_event };
            let request_id = self.parts.extensions.get();
            return sse::respond(stream, self.form.dialect, envelope, request_id, &self.agent.options);
        }
        let told = answer::header_of(&reply);
        if !held.is_empty() {
            return match self.form.dialect.reply_pieces(op, reply) {
                Ok(pieces) => {
                    let mut response = piece_body::respond(self.media_type(), pieces, held);
                    response.headers_mut().extend(told);
                    response
                }
                Err(error) => self.error(None, error),
            };
        }
        let mut out = Vec::with_capacity(2048);
        if let Err(error) = self.form.dialect.encode_reply(op, &reply, &mut out) {
            return self.error(None, error);
        }
        let mut response = answer::typed(StatusCode::OK, self.media_type(), out);
        response.headers_mut().extend(told);
        if op == Op::GetExtendedAgentCard {
            card::for_this_caller_only(response.headers_mut());
        }
        response
    }

    /// Refuses a body of another media type before it is parsed (REQ-031).
    fn refuse_type(&self) -> Response {
        self.error(Some(StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16()), answer::not_json(JSON))
    }

    fn refuse(&self, refused: RestRefusal) -> Response {
        let status = match &refused {
            RestRefusal::NotFound | RestRefusal::MethodNotAllowed { .. } => Some(refused.status()),
            RestRefusal::Invalid(_) => None,
        };
        let allow = match &refused {
            RestRefusal::MethodNotAllowed { allow } => {
                let verbs: Vec<_> = allow.iter().copied().map(Verb::as_str).collect();
                HeaderValue::from_str(&verbs.join(", ")).ok()
            }
            RestRefusal::NotFound | RestRefusal::Invalid(_) => None,
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
pub(super) fn refuse(path: &str, head: Head<'_>, status: Option<StatusCode>, error: Error) -> Response {
    let (form, status) = (version::rest_form(path, head.headers), status.map(|status| status.as_u16()));
    let mut response = self::error(form, head.headers, head.extensions.get(), status, error);
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

/// The protocol's own media type (spec 11.1), unless the caller shows that it knows only the other one.
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
        // A caller that accepts neither, such as one of streams only, more likely knows the older one (trap
        // T-07).
        if name == header::ACCEPT && headers.contains_key(&name) && !mentions(&name, "/*") {
            return JSON;
        }
    }
    A2A_JSON
}
