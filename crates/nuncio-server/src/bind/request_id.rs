//! The id of a request in the errors that answer it.

use std::sync::Arc;

use nuncio_protocol::Error;

/// The member of `ErrorInfo.metadata` with the id of the request.
const REQUEST_ID: &str = "requestId";

/// The id of a request, as an extension of it. Errors repeat it, so that a caller can name the request to an operator.
#[derive(Clone, Debug)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The id of a request, which callers get to see.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The error with the id of its request, if the request has one. An id that a remote agent gave is replaced.
    pub(super) fn put(id: Option<&Self>, error: Error) -> Error {
        match id {
            Some(Self(id)) => error.with_metadata(REQUEST_ID, &**id),
            None => error,
        }
    }
}
