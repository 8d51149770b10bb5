//! Refusals of the pull API, as problem details (RFC 9457).

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use nuncio_protocol::{Error, ErrorKind};
use nuncio_server::store::StoreError;
use serde::Serialize;

use crate::identity::WorkerRefusal;

/// The media type of problem details.
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// `Retry-After` of a hub that cannot answer now.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The reason of a refusal, as a word for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    Invalid,
    InvalidLine,
    Unauthorized,
    NotFound,
    Gap,
    LeaseLost,
    Begun,
    Taken,
    NothingToDecide,
    TooLarge,
    Timeout,
    Unavailable,
}

impl Reason {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::InvalidLine => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Gap | Self::LeaseLost | Self::Begun | Self::Taken | Self::NothingToDecide => {
                StatusCode::CONFLICT
            }
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Invalid => "The request is invalid",
            Self::InvalidLine => "A line is invalid",
            Self::Unauthorized => "Authentication required",
            Self::NotFound => "Not found",
            Self::Gap => "Lines are missing",
            Self::LeaseLost => "The lease is over",
            Self::Begun => "The lease has begun",
            Self::Taken => "The name is taken",
            Self::NothingToDecide => "There is nothing to decide",
            Self::TooLarge => "The body is too large",
            Self::Timeout => "The body came too slowly",
            Self::Unavailable => "Unavailable",
        }
    }
}

/// A refusal.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    detail: String,
    have: Option<u64>,
    line: Option<u64>,
    challenge: Option<HeaderValue>,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    have: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

impl Problem {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), have: None, line: None, challenge: None, retry_after: None }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, detail)
    }

    pub(super) fn lease_lost() -> Self {
        Self::new(
            Reason::LeaseLost,
            "the lease is over: it expired, was taken over, or its task has ended; claim again",
        )
    }

    pub(super) fn gap(first: u64, have: u64) -> Self {
        let detail = format!("line {first} came after line {have}: lines are missing; go on at {}", have + 1);
        Self { have: Some(have), ..Self::new(Reason::Gap, detail) }
    }

    pub(super) fn invalid_line(line: u64, have: u64, why: impl Into<String>) -> Self {
        Self { have: Some(have), line: Some(line), ..Self::new(Reason::InvalidLine, why) }
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(RETRY_AFTER), ..Self::new(Reason::Unavailable, detail) }
    }
}

/// The cause goes to the log only.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the task store did not answer a worker");
        Self::unavailable("the hub's task store does not answer; try again")
    }
}

impl From<WorkerRefusal> for Problem {
    fn from(WorkerRefusal { error, challenge }: WorkerRefusal) -> Self {
        let reason = match error.kind() {
            ErrorKind::ResourceExhausted | ErrorKind::Unavailable => Reason::Unavailable,
            _ => Reason::Unauthorized,
        };
        Self { challenge, retry_after: error.retry_after(), ..Self::new(reason, error.message()) }
    }
}

impl Problem {
    /// The refusal of a body that was not read.
    pub(super) fn of_body(error: &Error) -> Self {
        let reason = match error.kind() {
            ErrorKind::PayloadTooLarge => Reason::TooLarge,
            ErrorKind::DeadlineExceeded => Reason::Timeout,
            ErrorKind::ResourceExhausted | ErrorKind::Internal => return Self::unavailable(error.message()),
            _ => Reason::Invalid,
        };
        Self::new(reason, error.message())
    }

    /// The refusal of a write to a task by its runtime.
    pub(super) fn of_write(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::TaskNotFound | ErrorKind::UnsupportedOperation | ErrorKind::TaskNotCancelable => {
                Self::lease_lost()
            }
            ErrorKind::Unavailable => Self::unavailable("the hub cannot write the task now; try again"),
            // Of memory there may be more later, of the task's limit not.
            ErrorKind::ResourceExhausted if error.retry_after().is_some() => {
                Self::unavailable(error.message())
            }
            ErrorKind::ResourceExhausted => Self::new(Reason::TooLarge, error.message()),
            _ => {
                tracing::warn!(%error, "a line of a worker could not be recorded");
                Self::unavailable("the line could not be recorded; the hub's log has the cause")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { reason, detail, have, line, challenge, retry_after } = self;
        let status = reason.status();
        let body = Body {
            r#type: "about:blank",
            title: reason.title(),
            status: status.as_u16(),
            detail: &detail,
            reason,
            have,
            line,
        };
        // Texts and numbers are always valid JSON.
        let text = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(challenge) = challenge {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(after) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}
