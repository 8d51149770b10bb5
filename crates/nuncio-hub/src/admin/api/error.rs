//! The body of every refusal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of a refusal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// The reason of a refusal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// The HTTP status.
    pub code: u16,
    /// The kind of error, for programs.
    pub status: ErrorStatus,
    /// The reason and the remedy, for people.
    pub message: String,
}

/// Kinds of errors, by the names of gRPC and Google's APIs, as elsewhere in the hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorStatus {
    Aborted,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Unimplemented,
}
