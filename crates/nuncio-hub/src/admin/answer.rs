//! What is answered when something is wrong: as JSON, in words that say what to do.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use nuncio_server::store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

/// How it is written.
#[derive(Serialize, JsonSchema)]
pub(super) struct Failure {
    error: Told,
}

#[derive(Serialize, JsonSchema)]
struct Told {
    /// The status of HTTP.
    code: u16,
    /// Its name, for programs.
    status: &'static str,
    /// What is wrong and what to do, for people.
    message: String,
}

/// What is wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    code: StatusCode,
    /// By the names that gRPC and Google's APIs have for them, as elsewhere in the hub.
    status: &'static str,
    message: String,
    challenge: Option<&'static str>,
}

impl Problem {
    fn new(code: StatusCode, status: &'static str, message: impl Into<String>) -> Self {
        Self { code, status, message: message.into(), challenge: None }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)
    }

    /// Something of this name is there already, or it is not such that this could be done to it.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "FAILED_PRECONDITION", message)
    }

    /// Somebody else has changed it since the caller looked.
    pub(super) fn changed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "ABORTED", message)
    }

    /// It cannot be done from here, whoever asks.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "PERMISSION_DENIED", message)
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT", message)
    }

    /// Our own fault; what it is stands in the log.
    pub(super) fn broken() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL",
            "this went wrong in the hub; its log says why",
        )
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }

    pub(super) fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "UNIMPLEMENTED", message)
    }

    /// The request has no token, or one that is not ours (RFC 6750, section 3).
    pub(super) fn no_token(has_one: bool) -> Self {
        const HOW: &str = "send 'Authorization: Bearer TOKEN' with what is in the file that the hub named at \
                           its start; the commands of nuncio read it by themselves";
        let (what, challenge) = match has_one {
            true => ("this token is not the hub's", r#"Bearer realm="nuncio admin", error="invalid_token""#),
            false => ("this needs the hub's token", r#"Bearer realm="nuncio admin""#),
        };
        let problem = Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", format!("{what}; {HOW}"));
        Self { challenge: Some(challenge), ..problem }
    }
}

/// The store did not do it; what is wrong with it is for the log.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the task store did not answer to administration");
        Self::unavailable(
            "the task store does not answer; the hub's log says why, and /readyz when it is back",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { code, status, message, challenge } = self;
        let body = Failure { error: Told { code: code.as_u16(), status, message } };
        let mut response = (code, Json(body)).into_response();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
