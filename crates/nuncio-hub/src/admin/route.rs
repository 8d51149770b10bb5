//! A route of the API: what is matched, what runs, and what the document says about it, in one place.
//!
//! A path is written as in the document: `/agents/{name}`, or `/agents/{name}:refresh` for what is done to
//! something. A handler says by its types what it takes and what it answers; `()` is nothing.

use std::{any::TypeId, fmt, pin::Pin, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use nuncio_server::store::Expect;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};

use super::{Desk, answer::Problem, query};
use crate::trail::What;

/// One line of the table.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Its name in the document, such as `agents.add`.
    pub(super) id: &'static str,
    /// What it does, in a sentence.
    pub(super) summary: &'static str,
    pub(super) shape: Shape,
    /// It may be bound to a version by If-Match.
    pub(super) versioned: bool,
    /// Something comes to be by it.
    creates: bool,
    /// What the trail calls it.
    pub(super) what: Option<What>,
    run: Run,
}

type Run = Box<
    dyn Fn(Arc<Desk>, Given) -> Pin<Box<dyn Future<Output = Result<Done, Problem>> + Send>> + Send + Sync,
>;

/// What goes in and what comes out, for the document. `None`: nothing.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) query: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(super) body: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(super) answer: Option<fn(&mut SchemaGenerator) -> Schema>,
}

/// A request, as far as it has been read.
pub(super) struct Given {
    pub(super) path: Vec<String>,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A request as a handler sees it.
pub(super) struct Call<Q = (), B = ()> {
    /// What stands in the braces of the path, in this order.
    pub(super) path: Vec<String>,
    pub(super) query: Q,
    pub(super) body: B,
    /// What the caller has seen of what it changes.
    pub(super) expect: Expect,
}

impl<Q, B> Call<Q, B> {
    /// What the path names.
    pub(super) fn name(&self) -> &str {
        self.path.first().map(String::as_str).unwrap_or_default()
    }
}

/// What is answered.
pub(super) struct Reply<A> {
    body: A,
    /// Which version of it this is.
    version: Option<u64>,
    /// What the trail says that was changed, if the path does not name it.
    about: Option<String>,
}

impl<A> Reply<A> {
    pub(super) fn new(body: A) -> Self {
        Self { body, version: None, about: None }
    }

    /// Shown as an ETag, which a later write can be bound to by If-Match.
    pub(super) fn version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// What was changed.
    pub(super) fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }
}

/// What was answered, and what the trail says it was about.
pub(super) struct Done {
    pub(super) response: Response,
    pub(super) about: String,
}

/// A line of the table: the types of the handler are what the document says.
pub(super) fn route<Q, B, A, F>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl Fn(Arc<Desk>, Call<Q, B>) -> F + Copy + Send + Sync + 'static,
) -> Route
where
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    B: DeserializeOwned + JsonSchema + Send + 'static,
    A: Serialize + JsonSchema + 'static,
    F: Future<Output = Result<Reply<A>, Problem>> + Send,
{
    let shape = Shape { query: schema::<Q>(), body: schema::<B>(), answer: schema::<A>() };
    let run: Run = Box::new(move |desk, given| {
        Box::pin(async move {
            let about = given.path.join(" ");
            let call = read(given)?;
            answer(handler(desk, call).await?, about)
        })
    });
    Route { method, path, id, summary, shape, versioned: false, creates: false, what: None, run }
}

fn is_nothing<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

fn schema<T: JsonSchema + 'static>() -> Option<fn(&mut SchemaGenerator) -> Schema> {
    (!is_nothing::<T>()).then_some(|generator| generator.subschema_for::<T>())
}

fn read<Q, B>(given: Given) -> Result<Call<Q, B>, Problem>
where
    Q: DeserializeOwned + JsonSchema + 'static,
    B: DeserializeOwned + 'static,
{
    let body: &[u8] = if is_nothing::<B>() { b"null" } else { &given.body };
    let body = serde_json::from_slice(body)
        .map_err(|error| Problem::invalid(format!("the body is not what is expected here: {error}")))?;
    Ok(Call { query: query::read(&given.query)?, expect: expect(&given.headers)?, path: given.path, body })
}

/// If-Match (RFC 9110, section 13.1.1), with a version that an ETag of ours has shown.
fn expect(headers: &HeaderMap) -> Result<Expect, Problem> {
    let Some(given) = headers.get(header::IF_MATCH) else { return Ok(Expect::Anything) };
    let text = given.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(Expect::Anything);
    }
    let version =
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse().ok());
    version
        .map(Expect::Version)
        .ok_or_else(|| Problem::invalid("If-Match: expected the ETag of an earlier answer, such as \"3\""))
}

fn answer<A: Serialize + 'static>(reply: Reply<A>, named: String) -> Result<Done, Problem> {
    let Reply { body, version, about } = reply;
    let mut response = if is_nothing::<A>() { ().into_response() } else { Json(body).into_response() };
    if let Some(version) = version {
        let tag = HeaderValue::try_from(format!("\"{version}\"")).map_err(|_| Problem::broken())?;
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(Done { response, about: about.unwrap_or(named) })
}

impl Route {
    pub(super) async fn run(&self, desk: Arc<Desk>, given: Given) -> Result<Done, Problem> {
        let mut done = (self.run)(desk, given).await?;
        *done.response.status_mut() = self.status();
        Ok(done)
    }

    /// It may be bound to a version of what it changes.
    pub(super) fn versioned(self) -> Self {
        Self { versioned: true, ..self }
    }

    /// Something comes to be by it.
    pub(super) fn creates(self) -> Self {
        Self { creates: true, ..self }
    }

    /// It leaves a row in the trail.
    pub(super) fn noted(self, what: What) -> Self {
        Self { what: Some(what), ..self }
    }

    /// How HTTP says that it is done.
    pub(super) fn status(&self) -> StatusCode {
        match (self.shape.answer, self.creates) {
            (None, _) => StatusCode::NO_CONTENT,
            (Some(_), true) => StatusCode::CREATED,
            (Some(_), false) => StatusCode::OK,
        }
    }

    /// What stands in the braces, if this path is meant.
    pub(super) fn matches(&self, path: &str) -> Option<Vec<String>> {
        matches(self.path, path)
    }

    /// True if it is about what this path names, in whatever way.
    pub(super) fn is_near(&self, path: &str) -> bool {
        matches(thing(self.path), thing(path)).is_some()
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A path without what is done there.
fn thing(path: &str) -> &str {
    let last = path.rfind('/').map_or(0, |at| at + 1);
    path[last..].rfind(':').map_or(path, |colon| &path[..last + colon])
}

fn matches(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut named = Vec::new();
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(named),
            (Some(wanted), Some(given)) => {
                match wanted.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                    None if wanted == given => {}
                    Some((_, verb)) => {
                        let value = given.strip_suffix(verb).filter(|value| !value.is_empty())?;
                        named.push(unescape(value));
                    }
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

fn unescape(segment: &str) -> String {
    // What means something in a query and nothing in a path.
    let text = format!("={}", segment.replace('+', "%2B").replace('&', "%26"));
    url::form_urlencoded::parse(text.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_whole_and_what_they_name_is_unescaped() {
        for (pattern, path, expected) in [
            ("/agents", "/agents", Some(vec![])),
            ("/agents", "/agents/", None),
            ("/agents", "/agents/a", None),
            ("/agents/{name}", "/agents/a", Some(vec!["a"])),
            ("/agents/{name}", "/agents/", None),
            ("/agents/{name}", "/agents/a/b", None),
            ("/agents/{name}", "/agents/a%2Fb", Some(vec!["a/b"])),
            ("/tasks/{id}", "/tasks/a+b%20c&d%2525", Some(vec!["a+b c&d%25"])),
            ("/agents/{name}:refresh", "/agents/a:refresh", Some(vec!["a"])),
            ("/agents/{name}:refresh", "/agents/:refresh", None),
            ("/agents/{name}:refresh", "/agents/a", None),
            ("/tasks/{id}:cancel", "/tasks/x%3Acancel:cancel", Some(vec!["x:cancel"])),
            ("/agents/{name}/health", "/agents/a/health", Some(vec!["a"])),
            ("/config:reload", "/config:reload", Some(vec![])),
        ] {
            let expected = expected.map(|named| named.into_iter().map(str::to_owned).collect());
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn what_a_writer_has_seen() {
        for (text, expected) in [
            (None, Some(Expect::Anything)),
            (Some("*"), Some(Expect::Anything)),
            (Some("\"7\""), Some(Expect::Version(7))),
            (Some("7"), None),
            (Some("W/\"7\""), None),
            (Some("\"x\""), None),
        ] {
            let headers = text.map(|text| (header::IF_MATCH, HeaderValue::from_static(text)));
            assert_eq!(expect(&headers.into_iter().collect()).ok(), expected, "{text:?}");
        }
    }
}
