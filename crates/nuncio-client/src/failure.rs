//! A failed call and its progress, which alone decides whether it may be repeated.

use std::{error::Error as StdError, fmt};

use nuncio_protocol::{Error, ErrorKind};

/// The source of an error of a call that was not sent, with the text of its cause.
#[derive(Debug)]
struct Unreached(Option<String>);

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("no connection was made"))
    }
}

impl StdError for Unreached {}

/// True if the failed call was not sent: no connection was made, and the agent has not received it. In
/// doubt the result is false.
#[must_use]
pub fn was_not_sent(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<Unreached>())
}

/// The source of an error of a call to a URL without an agent.
#[derive(Debug)]
pub(crate) struct NoAgent;

impl fmt::Display for NoAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no agent at the address")
    }
}

impl StdError for NoAgent {}

/// True if a server answered the call and has no agent at its URL (HTTP 404, without an error of the
/// protocol). The card of an agent may be public while its calls are not.
#[must_use]
pub fn has_no_agent(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<NoAgent>())
}

/// The progress of a call before it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    /// No connection was made: the peer has not received the call, and it may be sent elsewhere.
    Nobody,
    /// The call was sent and no complete answer arrived: the peer may have acted on it.
    Perhaps,
    /// The peer answered.
    Answered,
}

/// An error with the progress of the call.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The progress of the call.
    pub(crate) reached: Reached,
    /// The error for the caller.
    pub(crate) error: Error,
}

impl Failure {
    /// The peer has not received the call.
    pub(crate) fn nobody(error: Error) -> Self {
        let cause = error.source().map(ToString::to_string);
        Self { reached: Reached::Nobody, error: error.with_source(Unreached(cause)) }
    }

    /// The peer may have acted on the call.
    pub(crate) fn perhaps(error: Error) -> Self {
        Self { reached: Reached::Perhaps, error }
    }

    /// The peer's own answer, or our reason not to send the call.
    pub(crate) fn answered(error: Error) -> Self {
        Self { reached: Reached::Answered, error }
    }

    /// The failure of a repeated call, which may have arrived the first time.
    pub(crate) fn and_perhaps_before(self) -> Self {
        match self.reached {
            // Without the source that marks it as not sent.
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
