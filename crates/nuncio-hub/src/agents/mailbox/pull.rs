//! The pull API: what workers call, with the key of their mailbox.
//!
//! | call | answer |
//! |---|---|
//! | `POST /mailboxes/NAME:claim` | a lease with its message, or 204 |
//! | `POST /mailboxes/NAME/leases/LEASE:update` | the lines of a worker are stored |
//! | `POST /mailboxes/NAME/leases/LEASE:heartbeat` | the lease goes on |
//! | `POST /mailboxes/NAME/leases/LEASE:release` | the turn goes back |
//! | `PUT /mailboxes/NAME/card` | the card for callers |
//! | `…/access`, `…/access:accept` and so on | consent by the agent itself: see `access` |

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, any},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use nuncio_server::bind::{BindOptions, ReadBody, read_body};
use serde::Serialize;

use super::{
    access, card,
    claim::Claim,
    lines,
    problem::{Problem, Reason},
    registry::{Mailbox, Mailboxes},
};
use crate::{
    agents::{Consents, Decision, lease::LeaseId},
    identity::{Authenticator, for_this_worker},
};

/// The prefix of all paths.
const PREFIX: &str = "/mailboxes/";

/// The longest wait that a call may ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The name of a worker that gives none.
const WORKER: &str = "worker";

/// Characters of the name of a worker.
const MAX_WORKER_CHARS: usize = 64;

/// Bytes of an idempotency key.
const MAX_KEY_BYTES: usize = 255;

/// The parts that the calls work on.
pub(crate) struct PullApi {
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) identity: Arc<Authenticator>,
    /// The limits of bodies.
    pub(crate) options: BindOptions,
    pub(crate) consents: Arc<Consents>,
}

/// A call.
enum Call {
    Claim,
    Update(LeaseId),
    Heartbeat(LeaseId),
    Release(LeaseId),
    Card,
    ListCallers,
    Decide(Decision),
}

impl PullApi {
    /// The route of all calls.
    pub(crate) fn route(self) -> (String, MethodRouter<(), Infallible>) {
        let api = Arc::new(self);
        let answer = move |request: Request| {
            let api = Arc::clone(&api);
            async move {
                let mut response = api.answer(request).await.unwrap_or_else(Problem::into_response);
                let headers = response.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                for_this_worker(&mut response);
                response
            }
        };
        (format!("{PREFIX}{{*call}}"), any(answer))
    }

    async fn answer(&self, request: Request) -> Result<Response, Problem> {
        let nothing =
            || Problem::new(Reason::NotFound, "there is no such call; docs/mailboxes.md lists them");
        let (name, call) = read(request.method(), request.uri().path()).ok_or_else(nothing)?;
        let name = name.to_owned();
        self.identity.admit_worker(&name, &request)?;
        let mailbox = self.mailboxes.find(&name).ok_or_else(|| {
            Problem::new(Reason::NotFound, format!("this hub serves no mailbox {name}; create it first"))
        })?;
        let (head, body) = request.into_parts();
        let headers = &head.headers;
        match call {
            Call::Claim => self.claim(&mailbox, headers).await,
            Call::Update(lease) => {
                let first = first_line(headers)?;
                let body = self.body(body).await?;
                let lines = body.decode(|bytes| Ok(lines::parse(&bytes)));
                let lines = lines.await.map_err(|error| Problem::of_body(&error))?;
                // The memory of the body is reserved until its lines are stored.
                let progress = self.mailboxes.write_lines(&mailbox, &lease, first, &lines).await?;
                drop(body);
                json(&progress)
            }
            Call::Heartbeat(lease) => {
                json(&self.mailboxes.heartbeat(&mailbox, &lease, wait(headers)?).await?)
            }
            Call::Release(lease) => {
                self.mailboxes.release(&mailbox, &lease).await?;
                json(&serde_json::json!({}))
            }
            Call::Card => {
                let body = self.body(body).await?;
                card::publish(&self.mailboxes, &mailbox, body.bytes().clone()).await?;
                Ok(StatusCode::NO_CONTENT.into_response())
            }
            Call::ListCallers => {
                access::list(&self.consents, &mailbox, head.uri.query().unwrap_or_default()).await
            }
            Call::Decide(decision) => {
                let body = self.body(body).await?;
                access::decide(&self.consents, &self.identity, &mailbox, decision, body.bytes()).await
            }
        }
    }

    async fn claim(&self, mailbox: &Arc<Mailbox>, headers: &HeaderMap) -> Result<Response, Problem> {
        let claim = Claim {
            worker: worker(headers)?,
            key: idempotency_key(headers)?,
            take_over: headers.get("nuncio-take-over").is_some_and(|value| value.as_bytes() == b"true"),
            wait: wait(headers)?,
        };
        let Some(handed) = self.mailboxes.claim(mailbox, &claim).await? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        let mut response = as_json(handed.json);
        if let Some(parent) = handed.traceparent.and_then(|parent| HeaderValue::from_str(&parent).ok()) {
            response.headers_mut().insert("traceparent", parent);
        }
        Ok(response)
    }

    async fn body(&self, body: Body) -> Result<ReadBody, Problem> {
        read_body(body, &self.options).await.map_err(|error| Problem::of_body(&error))
    }
}

/// Reads a path; `None` if there is no such call.
fn read<'a>(method: &Method, path: &'a str) -> Option<(&'a str, Call)> {
    let path = path.strip_prefix(PREFIX)?;
    let (name, call) = match path.split_once('/') {
        None => (path.strip_suffix(":claim").filter(|_| method == Method::POST)?, Call::Claim),
        Some((name, "card")) if method == Method::PUT => (name, Call::Card),
        Some((name, "access")) if method == Method::GET => (name, Call::ListCallers),
        Some((name, below)) if method == Method::POST && below.starts_with("access:") => {
            (name, Call::Decide(access::decision(below.strip_prefix("access:")?)?))
        }
        Some((name, below)) if method == Method::POST => {
            let (lease, verb) = below.strip_prefix("leases/")?.rsplit_once(':')?;
            let lease = lease.parse().ok();
            let call = match verb {
                "update" => Call::Update(lease?),
                "heartbeat" => Call::Heartbeat(lease?),
                "release" => Call::Release(lease?),
                _ => return None,
            };
            (name, call)
        }
        Some(_) => return None,
    };
    (!name.is_empty()).then_some((name, call))
}

/// The wait of `Prefer: wait=SECONDS` (RFC 7240); none without it.
fn wait(headers: &HeaderMap) -> Result<Duration, Problem> {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let wait = preferences.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').to_owned())
    });
    let Some(wait) = wait else { return Ok(Duration::ZERO) };
    let seconds: u64 = wait
        .parse()
        .map_err(|_| Problem::invalid("Prefer: wait is no number of seconds; expected wait=50"))?;
    Ok(Duration::from_secs(seconds).min(MAX_WAIT))
}

/// The number of the first line of a body.
fn first_line(headers: &HeaderMap) -> Result<u64, Problem> {
    let Some(value) = headers.get("nuncio-first") else { return Ok(1) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.filter(|number| (1..u64::MAX / 2).contains(number)).ok_or_else(|| {
        Problem::invalid("Nuncio-First is no number of a line; expected 1 for the first line of a lease")
    })
}

fn worker(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get("nuncio-worker") else { return Ok(WORKER.to_owned()) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@:-".contains(c);
    let name = value.to_str().ok().map(str::trim);
    name.filter(|name| !name.is_empty() && name.len() <= MAX_WORKER_CHARS && name.chars().all(is_plain))
        .map(str::to_owned)
        .ok_or_else(|| {
            Problem::invalid(format!(
                "Nuncio-Worker is no name of a worker; expected 1 to {MAX_WORKER_CHARS} of the characters a-z A-Z 0-9 . _ @ : -"
            ))
        })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().ok().map(str::trim);
    key.filter(|key| !key.is_empty() && key.len() <= MAX_KEY_BYTES)
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            Problem::invalid(format!(
                "Idempotency-Key is invalid; expected 1 to {MAX_KEY_BYTES} visible characters"
            ))
        })
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value).map_err(nuncio_server::store::StoreError::broken)?;
    Ok(as_json(text))
}

fn as_json(text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_and_nothing_else() {
        let lease = "0199e2a1-0000-7000-8000-000000000000.3";
        for (method, path, expected) in [
            (Method::POST, "/mailboxes/coder:claim".to_owned(), Some("coder")),
            (Method::POST, format!("/mailboxes/coder/leases/{lease}:update"), Some("coder")),
            (Method::POST, format!("/mailboxes/coder/leases/{lease}:heartbeat"), Some("coder")),
            (Method::POST, format!("/mailboxes/coder/leases/{lease}:release"), Some("coder")),
            (Method::PUT, "/mailboxes/coder/card".to_owned(), Some("coder")),
            (Method::GET, "/mailboxes/coder/access".to_owned(), Some("coder")),
            (Method::POST, "/mailboxes/coder/access:block".to_owned(), Some("coder")),
            (Method::POST, "/mailboxes/coder/access:own".to_owned(), None),
            (Method::GET, "/mailboxes/coder/access:accept".to_owned(), None),
            (Method::GET, "/mailboxes/coder:claim".to_owned(), None),
            (Method::POST, "/mailboxes/:claim".to_owned(), None),
            (Method::POST, "/mailboxes/coder".to_owned(), None),
            (Method::POST, "/mailboxes/coder/leases/x:update".to_owned(), None),
            (Method::POST, format!("/mailboxes/coder/leases/{lease}:steal"), None),
            (Method::POST, format!("/mailboxes/coder/leases/{lease}"), None),
            (Method::GET, "/mailboxes/coder/card".to_owned(), None),
        ] {
            assert_eq!(read(&method, &path).map(|(name, _)| name), expected, "{method} {path}");
        }
    }

    #[test]
    fn headers_of_a_worker() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(header::HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        for (value, expected) in [
            ("wait=50", Some(50)),
            ("respond-async, wait=5", Some(5)),
            ("Wait = \"7\"", Some(7)),
            ("wait=500", Some(60)),
            ("respond-async", Some(0)),
            ("wait=soon", None),
            ("wait=-1", None),
        ] {
            let waited = wait(&headers("prefer", value)).ok();
            assert_eq!(waited, expected.map(Duration::from_secs), "{value}");
        }
        for (value, expected) in [("1", Some(1)), ("17", Some(17)), ("0", None), ("x", None), ("-1", None)] {
            assert_eq!(first_line(&headers("nuncio-first", value)).ok(), expected, "{value}");
        }
        for (value, is_good) in [("w1", true), ("host.example:2", true), ("a b", false), ("", false)] {
            assert_eq!(worker(&headers("nuncio-worker", value)).is_ok(), is_good, "{value}");
        }
    }
}
