//! Requests to a mailbox and the answers to them.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use url::Url;

use super::{Claim, RETRY_BACKOFF};
use crate::{Egress, auth::secret::Secret, http_headers};

/// The time that an answer may take beyond the time that the hub was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The media type of lines.
const NDJSON: &str = "application/x-ndjson";

/// The reason why a call of a worker failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The address of the hub, or a value to be sent, is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The key is wrong, or the mailbox does not exist.
    #[error("the hub refuses the worker: {0}")]
    Unauthorized(String),
    /// The lease expired, was taken over, or its task has ended.
    #[error("the lease is lost: {0}")]
    Lost(String),
    /// The hub refuses the request.
    #[error("the hub refuses the request: {detail} (HTTP {status})")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// The word for the reason, such as `invalid-line`.
        reason: String,
        /// The reason in words.
        detail: String,
    },
    /// The hub cannot be reached, or asks to come back later.
    #[error("{detail}")]
    Unavailable {
        /// The reason in words.
        detail: String,
        /// The pause that the hub asks for.
        retry_after: Option<Duration>,
    },
}

impl WorkerError {
    /// True if the same call may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The pause before the next attempt after so many failures: the one that the hub asks for, or a growing one.
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let asked = match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Invalid(_) | Self::Unauthorized(_) | Self::Lost(_) | Self::Refused { .. } => None,
        };
        asked.unwrap_or_else(|| RETRY_BACKOFF.jittered(failures, 0.5..=1.0, rand::random()))
    }
}

/// A mailbox of a hub, as one worker sees it.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// `…/mailboxes/NAME`.
    pub(super) url: Url,
    pub(super) key: Option<Secret>,
    pub(super) name: String,
    pub(super) egress: Egress,
}

/// A request.
pub(super) struct Call<'a> {
    method: Method,
    /// Appended to the path of the mailbox.
    path: &'a str,
    wait: Option<Duration>,
    pub(super) query: Option<&'a str>,
    pub(super) content_type: Option<&'static str>,
    headers: Vec<(&'static str, String)>,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, query: None, wait: None, content_type: None, headers: Vec::new() }
    }
}

/// The state of a lease.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Standing {
    /// The number of lines that the hub has.
    pub(super) have: u64,
    /// The caller has canceled the task.
    pub(super) cancel: bool,
    /// A final line is stored: the lease is over.
    pub(super) done: bool,
}

/// An answer that is not 2xx (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
    reason: String,
    line: Option<u64>,
    have: Option<u64>,
}

/// The answer to lines.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Updated {
    Stored(Standing),
    /// Lines before the first one are missing; the hub has this many.
    Gap(u64),
    /// The line of this number cannot be read.
    InvalidLine(u64, String),
    TooLarge,
}

/// The outcome of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// The turn waits for another worker, or its cancel is acknowledged.
    Released,
    /// The lease had begun and goes on until it expires.
    Begun,
}

impl Mailbox {
    /// Claims a lease under this key; `None` if there is no work.
    pub(super) async fn claim(
        &self,
        key: &str,
        wait: Duration,
        take_over: bool,
    ) -> Result<Option<Claim>, WorkerError> {
        let mut call = Call { wait: Some(wait), ..Call::new(Method::POST, ":claim") };
        call.headers.push(("idempotency-key", key.to_owned()));
        call.headers.push(("nuncio-worker", self.name.clone()));
        if take_over {
            call.headers.push(("nuncio-take-over", "true".to_owned()));
        }
        let answer = self.call(call, Bytes::new()).await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        decode(&answer).map(Some)
    }

    /// Writes lines of a lease.
    pub(super) async fn update(&self, lease: &str, first: u64, body: Bytes) -> Result<Updated, WorkerError> {
        let path = format!("/leases/{lease}:update");
        let mut call = Call { content_type: Some(NDJSON), ..Call::new(Method::POST, &path) };
        call.headers.push(("nuncio-first", first.to_string()));
        let answer = self.exchange(call, body).await?;
        if answer.status().is_success() {
            return decode(&answer).map(Updated::Stored);
        }
        let problem = problem(&answer);
        match (answer.status(), &*problem.reason) {
            (StatusCode::CONFLICT, "gap") => Ok(Updated::Gap(problem.have.unwrap_or_default())),
            (StatusCode::BAD_REQUEST, "invalid-line") => {
                Ok(Updated::InvalidLine(problem.line.unwrap_or(first), problem.detail))
            }
            (StatusCode::PAYLOAD_TOO_LARGE, _) => Ok(Updated::TooLarge),
            _ => Err(refusal(&answer, problem)),
        }
    }

    /// Prolongs a lease, and waits for news of it.
    pub(super) async fn heartbeat(&self, lease: &str, wait: Duration) -> Result<Standing, WorkerError> {
        let path = format!("/leases/{lease}:heartbeat");
        let call = Call { wait: Some(wait), ..Call::new(Method::POST, &path) };
        decode(&self.call(call, Bytes::new()).await?)
    }

    /// Hands back a lease.
    pub(super) async fn release(&self, lease: &str) -> Result<Release, WorkerError> {
        let path = format!("/leases/{lease}:release");
        match self.call(Call::new(Method::POST, &path), Bytes::new()).await {
            Ok(_) => Ok(Release::Released),
            Err(WorkerError::Refused { reason, .. }) if reason == "begun" => Ok(Release::Begun),
            // It is nobody's already.
            Err(WorkerError::Lost(_)) => Ok(Release::Released),
            Err(error) => Err(error),
        }
    }

    /// Sends a request; any answer but 2xx is an error.
    pub(super) async fn call(&self, call: Call<'_>, body: Bytes) -> Result<Response<Bytes>, WorkerError> {
        let answer = self.exchange(call, body).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let problem = problem(&answer);
        Err(refusal(&answer, problem))
    }

    async fn exchange(&self, call: Call<'_>, body: Bytes) -> Result<Response<Bytes>, WorkerError> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{}", self.url.path(), call.path));
        url.set_query(call.query);
        let mut request = Request::builder().method(call.method).uri(url.as_str());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.reveal()));
        }
        if let Some(content_type) = call.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(wait) = call.wait {
            request = request.header("prefer", format!("wait={}", wait.as_secs()));
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| WorkerError::Invalid(error.to_string()))?;
        let unavailable = |detail| WorkerError::Unavailable { detail, retry_after: None };
        let limit = call.wait.unwrap_or_default() + ANSWER_TIMEOUT;
        match timeout(limit, self.egress.fetch(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unavailable(error.message().to_owned())),
            Err(_) => Err(unavailable(format!("the hub did not answer within {} seconds", limit.as_secs()))),
        }
    }
}

pub(super) fn decode<T: DeserializeOwned>(answer: &Response<Bytes>) -> Result<T, WorkerError> {
    serde_json::from_slice(answer.body()).map_err(|error| WorkerError::Refused {
        status: answer.status().as_u16(),
        reason: "invalid-answer".to_owned(),
        detail: format!("the answer cannot be read: {error}"),
    })
}

fn problem(answer: &Response<Bytes>) -> Problem {
    let mut problem: Problem = serde_json::from_slice(answer.body()).unwrap_or_default();
    if problem.detail.is_empty() {
        let status = answer.status();
        problem.detail = match &*problem.title {
            "" => status.canonical_reason().unwrap_or("no reason was given").to_owned(),
            title => title.to_owned(),
        };
    }
    problem
}

/// The error of an answer that is not 2xx.
fn refusal(answer: &Response<Bytes>, Problem { detail, reason, .. }: Problem) -> WorkerError {
    let status = answer.status();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => WorkerError::Unauthorized(detail),
        StatusCode::CONFLICT if reason == "lease-lost" => WorkerError::Lost(detail),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => unavailable(answer.headers(), detail),
        _ if status.is_server_error() => unavailable(answer.headers(), detail),
        _ => WorkerError::Refused { status: status.as_u16(), reason, detail },
    }
}

fn unavailable(headers: &HeaderMap, detail: String) -> WorkerError {
    WorkerError::Unavailable { detail, retry_after: http_headers::retry_after(headers, Timestamp::now()) }
}
