//! A route of the API with the handler that serves it.
//!
//! A handler is typed by its route: it takes the request and returns the route's answer. It knows nothing of HTTP,
//! so a page of the hub may call it as well.

use std::{any::TypeId, fmt, pin::Pin, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream::BoxStream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use url::form_urlencoded;

use super::{
    AdminState,
    api::{self, RequestParts, Role, Route, What},
    caller::AdminCaller,
    problem::AdminProblem,
    query, sse,
};

/// The header with the id of the last event that a client has seen, as the HTML standard names it.
const LAST_EVENT_ID: &str = "last-event-id";

/// A row of the table.
pub(super) struct Endpoint {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) status: StatusCode,
    pub(super) versioned: bool,
    pub(super) trail: Option<What>,
    pub(super) is_stream: bool,
    pub(super) schemas: Schemas,
    run: Run,
}

type Run = Box<
    dyn Fn(Arc<AdminState>, Received) -> Pin<Box<dyn Future<Output = Result<Done, AdminProblem>> + Send>>
        + Send
        + Sync,
>;

type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// The schemas of a route, for the OpenAPI document; `None` where there is nothing.
#[derive(Clone, Copy)]
pub(super) struct Schemas {
    pub(super) query: Option<MakeSchema>,
    pub(super) body: Option<MakeSchema>,
    pub(super) answer: Option<MakeSchema>,
}

/// A request to a known route, not yet read as the route's type.
pub(super) struct Received {
    pub(super) names: Vec<String>,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) caller: AdminCaller,
}

/// A handler's answer.
pub(super) struct Reply<A> {
    pub(super) answer: A,
    /// The version of the answer.
    version: Option<u64>,
    /// The subject of the row in the trail, if it is not the name in the path.
    subject: Option<String>,
    /// The principal of that row.
    principal: Option<String>,
}

impl<A> Reply<A> {
    pub(super) fn new(answer: A) -> Self {
        Self { answer, version: None, subject: None, principal: None }
    }

    /// Sets the version, which is returned as an ETag and accepted in If-Match.
    pub(super) fn version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Puts more into the answer.
    pub(super) fn map<B>(self, more: impl FnOnce(A) -> B) -> Reply<B> {
        let Self { answer, version, subject, principal } = self;
        Reply { answer: more(answer), version, subject, principal }
    }

    /// Sets the subject of the row in the trail.
    pub(super) fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Sets the principal of the row in the trail.
    pub(super) fn principal(self, principal: impl Into<String>) -> Self {
        Self { principal: Some(principal.into()), ..self }
    }
}

/// The response to a request that succeeded, and the subject of its row in the trail.
pub(super) struct Done {
    pub(super) response: Response,
    pub(super) subject: String,
    pub(super) principal: Option<String>,
}

/// Serves a route by this handler; the type of the request determines the route.
pub(super) fn endpoint<R, F>(
    handler: impl Fn(Arc<AdminState>, R) -> F + Copy + Send + Sync + 'static,
) -> Endpoint
where
    R: Route,
    F: Future<Output = Result<Reply<R::Answer>, AdminProblem>> + Send,
{
    let run: Run = Box::new(move |state, received| {
        Box::pin(async move {
            let (subject, role) = (received.names.join(" "), received.caller.role);
            let mut reply = handler(state, read::<R>(received)?).await?;
            if let (Role::Viewer, Some(redact)) = (role, R::REDACT) {
                redact(&mut reply.answer);
            }
            respond(R::STATUS, reply, subject)
        })
    });
    endpoint_of::<R>(run)
}

/// Serves a route that answers a stream of events; a client goes on after the id of the last one it has seen.
pub(super) fn stream_endpoint<R, F>(
    handler: impl Fn(Arc<AdminState>, R) -> F + Copy + Send + Sync + 'static,
) -> Endpoint
where
    R: Route,
    F: Future<Output = Result<BoxStream<'static, R::Answer>, AdminProblem>> + Send,
{
    let run: Run = Box::new(move |state, mut received| {
        Box::pin(async move {
            if let Some(last) = received.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()) {
                received.query = after(&received.query, last);
            }
            let (revoked, role) = (received.caller.revoked.clone(), received.caller.role);
            let items = handler(state, read::<R>(received)?).await?;
            let items = items.map(move |mut item| {
                if let (Role::Viewer, Some(redact)) = (role, R::REDACT) {
                    redact(&mut item);
                }
                item
            });
            let response = sse::response::<R>(items.take_until(revoked.cancelled_owned()));
            Ok(Done { response, subject: String::new(), principal: None })
        })
    });
    endpoint_of::<R>(run)
}

/// The query with this value of `after` in place of its own.
fn after(query: &str, last: &str) -> String {
    let others = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name != "after");
    form_urlencoded::Serializer::new(String::new()).extend_pairs(others).append_pair("after", last).finish()
}

fn endpoint_of<R: Route>(run: Run) -> Endpoint {
    Endpoint {
        method: R::METHOD,
        path: R::PATH,
        id: R::ID,
        summary: R::SUMMARY,
        status: R::STATUS,
        versioned: R::VERSIONED,
        trail: R::TRAIL,
        is_stream: R::STREAM.is_some(),
        schemas: Schemas {
            query: schema::<R::Query>(),
            body: schema::<R::Body>(),
            answer: schema::<R::Answer>(),
        },
        run,
    }
}

/// Serves a route by a handler that asks who calls.
pub(super) fn caller_endpoint<R, F>(
    handler: impl Fn(Arc<AdminState>, AdminCaller, R) -> F + Copy + Send + Sync + 'static,
) -> Endpoint
where
    R: Route,
    F: Future<Output = Result<Reply<R::Answer>, AdminProblem>> + Send,
{
    let run: Run = Box::new(move |state, received| {
        Box::pin(async move {
            let (subject, caller) = (received.names.join(" "), received.caller.clone());
            let reply = handler(state, caller, read::<R>(received)?).await?;
            respond(R::STATUS, reply, subject)
        })
    });
    endpoint_of::<R>(run)
}

/// Runs a handler for a page of the hub: with the rights of its caller, and with the row of its route in the trail.
pub(super) async fn call<R, F>(
    state: &Arc<AdminState>,
    caller: &AdminCaller,
    handler: impl FnOnce(Arc<AdminState>, R) -> F,
    request: R,
) -> Result<R::Answer, AdminProblem>
where
    R: Route,
    F: Future<Output = Result<Reply<R::Answer>, AdminProblem>>,
{
    if !admits(&R::METHOD, caller.role) {
        return Err(AdminProblem::viewer());
    }
    let named = request.names().join(" ");
    let Reply { mut answer, subject, principal, .. } = handler(Arc::clone(state), request).await?;
    if let (Role::Viewer, Some(redact)) = (caller.role, R::REDACT) {
        redact(&mut answer);
    }
    if let Some(what) = R::TRAIL {
        state.note(what, subject.unwrap_or(named), principal, caller.name.as_deref());
    }
    Ok(answer)
}

/// True if a caller of this role may use this method: a viewer reads only.
fn admits(method: &Method, role: Role) -> bool {
    match role {
        Role::Viewer => *method == Method::GET,
        Role::Operator => true,
    }
}

fn is_unit<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

fn schema<T: JsonSchema + 'static>() -> Option<MakeSchema> {
    (!is_unit::<T>()).then_some(|generator| generator.subschema_for::<T>())
}

fn read<R: Route>(received: Received) -> Result<R, AdminProblem> {
    let body: &[u8] = if is_unit::<R::Body>() { b"null" } else { &received.body };
    let body = serde_json::from_slice(body)
        .map_err(|error| AdminProblem::invalid(format!("the body is invalid: {error}")))?;
    Ok(R::from_parts(RequestParts {
        query: query::read(&received.query)?,
        if_match: if_match(&received.headers)?,
        names: received.names,
        body,
    }))
}

/// If-Match (RFC 9110, section 13.1.1), with a version from an ETag of an earlier answer.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, AdminProblem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version =
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(|| {
        AdminProblem::invalid("If-Match: expected the ETag of an earlier answer, such as \"3\"")
    })
}

fn respond<A: Serialize + 'static>(
    status: StatusCode,
    reply: Reply<A>,
    named: String,
) -> Result<Done, AdminProblem> {
    let Reply { answer, version, subject, principal } = reply;
    let mut response = if is_unit::<A>() { ().into_response() } else { Json(answer).into_response() };
    *response.status_mut() = status;
    if let Some(version) = version {
        let tag = HeaderValue::try_from(format!("\"{version}\"")).map_err(|_| AdminProblem::internal())?;
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(Done { response, subject: subject.unwrap_or(named), principal })
}

impl Endpoint {
    pub(super) async fn run(&self, state: Arc<AdminState>, received: Received) -> Result<Done, AdminProblem> {
        (self.run)(state, received).await
    }

    /// True if a caller of this role may call the endpoint.
    pub(super) fn admits(&self, role: Role) -> bool {
        admits(&self.method, role)
    }

    /// The names in this path, if it matches the endpoint.
    pub(super) fn names(&self, path: &str) -> Option<Vec<String>> {
        api::names(self.path, path)
    }

    /// True if the endpoint is about the same resource as this path, with any verb.
    pub(super) fn is_near(&self, path: &str) -> bool {
        api::is_near(self.path, path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_bound_to_the_version_of_an_etag() {
        for (text, expected) in [
            (None, Some(None)),
            (Some("*"), Some(None)),
            (Some("\"7\""), Some(Some(7))),
            (Some("7"), None),
            (Some("W/\"7\""), None),
            (Some("\"x\""), None),
        ] {
            let headers = text.map(|text| (header::IF_MATCH, HeaderValue::from_static(text)));
            assert_eq!(if_match(&headers.into_iter().collect()).ok(), expected, "{text:?}");
        }
    }
}
