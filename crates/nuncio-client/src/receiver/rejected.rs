//! Every reason not to handle a notification, and what to answer.

use http::StatusCode;
use nuncio_protocol::{Error, TaskId, wire::excerpt};

use crate::notification::{Invalid, WrongSignature};

/// The reason why a notification is not handled. Its text is fit for logs: no secrets, and nothing that acts on
/// terminals.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The body is too large.
    #[error("the body has more than {limit} bytes")]
    TooLarge {
        /// The most that is accepted.
        limit: usize,
    },
    /// It is no JSON by its own account.
    #[error(
        "expected the content type application/a2a+json or application/json, got {}",
        if *.is_absent { "none" } else { "another" }
    )]
    MediaType {
        /// True if it does not say what it is.
        is_absent: bool,
    },
    /// A proof is not there.
    #[error("there is no {0}")]
    Missing(&'static str),
    /// A token or an authorization is not the expected one.
    #[error("the {0} is not the expected one")]
    Wrong(&'static str),
    /// The signature by a shared secret does not hold.
    #[error("the signature by the secret is refused: {0}")]
    Secret(#[from] WrongSignature),
    /// The signed claims do not hold.
    #[error("the signature is refused: {0}")]
    Signature(#[from] Invalid),
    /// The keys of the sender cannot be had now.
    #[error("the keys of the sender cannot be had now: {0}")]
    NoKeys(String),
    /// It cannot be read.
    #[error("{0}")]
    Invalid(String),
    /// It is about a task that is not expected, or not yet (REQ-171).
    #[error("the task {:?} is not expected", .0.as_str())]
    Unexpected(TaskId),
    /// The same delivery is being handled.
    #[error("the delivery {0:?} is being handled")]
    InProgress(String),
    /// The same delivery has been handled (REQ-172).
    #[error("the delivery {0:?} has been handled before")]
    Duplicate(String),
}

impl Rejected {
    /// The status of the answer. A duplicate is answered as if it had been handled, because it has been.
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
            // Senders try again after these two.
            Self::Unexpected(_) => StatusCode::NOT_FOUND,
            Self::InProgress(_) => StatusCode::CONFLICT,
            Self::Duplicate(_) => StatusCode::OK,
        }
    }

    /// The body cannot be read. What the error repeats of it may be anything.
    pub(super) fn unreadable(error: &Error) -> Self {
        let mut safe = String::new();
        for c in excerpt(error.message().to_owned()).chars() {
            if c.is_control() { safe.extend(c.escape_default()) } else { safe.push(c) }
        }
        Self::Invalid(safe)
    }
}
