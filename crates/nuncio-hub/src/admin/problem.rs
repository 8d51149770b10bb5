//! Refusals: a status, and a message with the remedy.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use nuncio_server::store::StoreError;

use super::api::{ErrorBody, ErrorDetail, ErrorStatus};

/// The reason why a request was refused.
#[derive(Debug)]
pub(crate) struct AdminProblem {
    code: StatusCode,
    status: ErrorStatus,
    message: String,
    challenge: Option<&'static str>,
}

impl AdminProblem {
    fn new(code: StatusCode, status: ErrorStatus, message: impl Into<String>) -> Self {
        Self { code, status, message: message.into(), challenge: None }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorStatus::NotFound, message)
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorStatus::InvalidArgument, message)
    }

    /// The name is taken, or the state of the resource does not allow this.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, ErrorStatus::FailedPrecondition, message)
    }

    /// Another change came first.
    pub(super) fn changed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, ErrorStatus::Aborted, message)
    }

    /// The API does not allow this to anybody.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorStatus::PermissionDenied, message)
    }

    /// The token is of a viewer.
    pub(super) fn viewer() -> Self {
        Self::forbidden("this token is of a viewer, which only reads; use the token of an operator")
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorStatus::InvalidArgument, message)
    }

    /// A fault of the hub; the cause is in the log.
    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorStatus::Internal,
            "internal error of the hub; its log has the cause",
        )
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorStatus::Unavailable, message)
    }

    pub(super) fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, ErrorStatus::Unimplemented, message)
    }

    /// The session of a browser has ended.
    pub(super) fn signed_out() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            ErrorStatus::Unauthenticated,
            "the session has ended: sign in again, and repeat what you did",
        )
    }

    pub(super) fn code(&self) -> StatusCode {
        self.code
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The heading of a page that shows it.
    pub(super) fn title(&self) -> &'static str {
        match self.status {
            ErrorStatus::NotFound => "Not found",
            ErrorStatus::InvalidArgument => "Invalid input",
            ErrorStatus::FailedPrecondition | ErrorStatus::Aborted => "Not possible now",
            ErrorStatus::PermissionDenied => "Refused",
            ErrorStatus::Unauthenticated => "Signed out",
            ErrorStatus::Unavailable => "Unavailable",
            ErrorStatus::Unimplemented => "Not supported",
            ErrorStatus::Internal => "Internal error",
        }
    }

    /// The request has no token, or a wrong one (RFC 6750, section 3).
    pub(super) fn no_token(has_one: bool) -> Self {
        const REMEDY: &str = "send 'Authorization: Bearer TOKEN' with the token from the file that the hub named at \
                           its start; the commands of nuncio read it by themselves";
        let (what, challenge) = match has_one {
            true => ("the token is wrong", r#"Bearer realm="nuncio admin", error="invalid_token""#),
            false => ("the admin token is missing", r#"Bearer realm="nuncio admin""#),
        };
        let problem =
            Self::new(StatusCode::UNAUTHORIZED, ErrorStatus::Unauthenticated, format!("{what}; {REMEDY}"));
        Self { challenge: Some(challenge), ..problem }
    }
}

/// The cause goes to the log only.
impl From<StoreError> for AdminProblem {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the task store did not answer an admin request");
        Self::unavailable(
            "the task store does not answer; see the hub's log for the cause, and /readyz for its return",
        )
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let Self { code, status, message, challenge } = self;
        let body = ErrorBody { error: ErrorDetail { code: code.as_u16(), status, message } };
        let mut response = (code, Json(body)).into_response();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
