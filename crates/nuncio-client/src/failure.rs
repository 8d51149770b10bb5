//! A call that failed, and how far it got: only that decides whether it may be repeated.

use std::{error::Error as StdError, fmt};

use nuncio_protocol::{Error, ErrorKind};

/// The source of an error of a call that reached nobody, with what was known of its cause.
#[derive(Debug)]
struct Unreached(Option<String>);

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("no connection came about"))
    }
}

impl StdError for Unreached {}

/// True if the call that failed so did not go out: no connection came about, and the agent knows nothing of it.
/// Whoever has to know that a message was not taken asks here; when in doubt the answer is no.
#[must_use]
pub fn was_not_sent(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<Unreached>())
}

/// The cause of an error of a call that was answered as one to no agent.
#[derive(Debug)]
pub(crate) struct NoAgent;

impl fmt::Display for NoAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no agent at the address")
    }
}

impl StdError for NoAgent {}

/// True if a server answered the call and has no agent at its address (HTTP 404, without an error of the protocol).
/// The card of an agent may be public while its calls are not.
#[must_use]
pub fn has_no_agent(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<NoAgent>())
}

/// The progress of a call before it failed.
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
    /// The progress of the call.
    pub(crate) reached: Reached,
    /// The error for the caller.
    pub(crate) error: Error,
}

impl Failure {
    /// The peer has not seen the call.
    pub(crate) fn nobody(error: Error) -> Self {
        let cause = error.source().map(ToString::to_string);
        Self { reached: Reached::Nobody, error: error.with_source(Unreached(cause)) }
    }

    /// Nobody knows whether the peer acted on the call.
    pub(crate) fn perhaps(error: Error) -> Self {
        Self { reached: Reached::Perhaps, error }
    }

    /// The peer's own answer, or our reason not to ask it.
    pub(crate) fn answered(error: Error) -> Self {
        Self { reached: Reached::Answered, error }
    }

    /// The same of a call that was made before, and perhaps reached the peer then.
    pub(crate) fn and_perhaps_before(self) -> Self {
        match self.reached {
            // Without what says that it was not sent.
            Reached::Nobody => Self::perhaps(Error::new(self.error.kind(), self.error.message())),
            Reached::Perhaps | Reached::Answered => self,
        }
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
