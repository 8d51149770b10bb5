//! A call that failed, and how far it got: only that decides whether it may be repeated.

use nuncio_protocol::{Error, ErrorKind};

/// How far a call got before it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    /// No connection came about: the peer has not seen the call, and it may be made again elsewhere.
    Nobody,
    /// The call went out and no whole answer came back: the peer may or may not have acted on it.
    Perhaps,
    /// The peer answered, and this is its answer.
    Answered,
}

/// An error with how far the call got.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How far the call got.
    pub(crate) reached: Reached,
    /// What the caller is told.
    pub(crate) error: Error,
}

impl Failure {
    /// The peer has not seen the call.
    pub(crate) fn nobody(error: Error) -> Self {
        Self { reached: Reached::Nobody, error }
    }

    /// Nobody knows whether the peer acted on the call.
    pub(crate) fn perhaps(error: Error) -> Self {
        Self { reached: Reached::Perhaps, error }
    }

    /// The peer's own answer, or our reason not to ask it.
    pub(crate) fn answered(error: Error) -> Self {
        Self { reached: Reached::Answered, error }
    }

    /// The kind of the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}
