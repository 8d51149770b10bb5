//! What is answered when something is wrong: as JSON, in words that say what to do.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use nuncio_server::store::StoreError;
use serde_json::json;

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
        let message = "the task store does not answer; the hub's log says why, and /readyz when it is back";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { code, status, message, challenge } = self;
        let body = json!({ "error": { "code": code.as_u16(), "status": status, "message": message } });
        let mut response = (code, Json(body)).into_response();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
