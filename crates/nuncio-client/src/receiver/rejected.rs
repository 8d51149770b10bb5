//! Every reason to reject a notification, and its HTTP status.

use http::StatusCode;
use nuncio_protocol::{Error, TaskId, wire::excerpt};

use crate::notification::{Invalid, WrongSignature};

/// The reason why a notification is rejected. Its text is fit for logs: no secrets, and no control
/// characters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The body is too large.
    #[error("the body has more than {limit} bytes")]
    TooLarge {
        /// The maximum size.
        limit: usize,
    },
    /// The content type is not JSON.
    #[error(
        "expected the content type application/a2a+json or application/json, got {}",
        if *.is_absent { "none" } else { "another" }
    )]
    MediaType {
        /// True if the header is missing.
        is_absent: bool,
    },
    /// A proof is missing.
    #[error("there is no {0}")]
    Missing(&'static str),
    /// A token or an authorization is wrong.
    #[error("the {0} is not the expected one")]
    Wrong(&'static str),
    /// The signature by a shared secret is invalid.
    #[error("the signature by the secret is refused: {0}")]
    Secret(#[from] WrongSignature),
    /// The signed claims are invalid.
    #[error("the signature is refused: {0}")]
    Signature(#[from] Invalid),
    /// The keys of the sender cannot be fetched now.
    #[error("the keys of the sender cannot be fetched now: {0}")]
    NoKeys(String),
    /// The notification cannot be decoded.
    #[error("{0}")]
    Invalid(String),
    /// The task is not expected, or not yet (REQ-171).
    #[error("the task {:?} is not expected", .0.as_str())]
    Unexpected(TaskId),
    /// The same delivery is being handled now.
    #[error("the delivery {0:?} is being handled")]
    InProgress(String),
    /// The same delivery was handled before (REQ-172).
    #[error("the delivery {0:?} has been handled before")]
    Duplicate(String),
}

impl Rejected {
    /// The status of the answer. A duplicate is answered with success, because it was handled before.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Missing(_) | Self::Wrong(_) | Self::Secret(_) | Self::Signature(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::NoKeys(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            // Senders retry after these two.
            Self::Unexpected(_) => StatusCode::NOT_FOUND,
            Self::InProgress(_) => StatusCode::CONFLICT,
            Self::Duplicate(_) => StatusCode::OK,
        }
    }

    /// A body that cannot be decoded. The error may quote any part of it, so it is escaped.
    pub(super) fn unreadable(error: &Error) -> Self {
        let mut safe = String::new();
        for c in excerpt(error.message().to_owned()).chars() {
            if c.is_control() { safe.extend(c.escape_default()) } else { safe.push(c) }
        }
        Self::Invalid(safe)
    }
}
