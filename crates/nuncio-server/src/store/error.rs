//! The two kinds of store errors: the refusal of one write, and a failure of the store.

use std::fmt;

use nuncio_protocol::Seq;

/// The reason for which a write was refused. Nothing of it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The log or record is at another version: another writer came first.
    Version(Seq),
    /// The task does not exist in this scope.
    NotFound,
    /// Another owner holds the task.
    Held,
    /// No other owner holds the task: a turn for its owner is one for whoever writes to it next.
    NotHeld,
    /// A record that the entry changes is of another version.
    Record,
    /// The idempotency key is taken.
    KeyTaken,
    /// The store has no capacity for another task, or the task for another waiting turn.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(seq) => write!(f, "it is at version {}", seq.0),
            Self::NotFound => f.write_str("the task does not exist"),
            Self::Held => f.write_str("another owner holds the task"),
            Self::NotHeld => f.write_str("no other owner holds the task"),
            Self::Record => f.write_str("a record of the entry is of another version"),
            Self::KeyTaken => f.write_str("the idempotency key is taken"),
            Self::Full => f.write_str("there is no capacity for another task or turn"),
        }
    }
}

/// A failure of the store itself. Its text is for the log, never for a caller.
#[derive(Debug)]
pub struct StoreError {
    trouble: Trouble,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// The prospect of a failed store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// It may recover by itself.
    Down,
    /// It works, but this query exceeded its time or its queue.
    Busy,
    /// It needs an operator.
    Broken,
}

impl StoreError {
    /// The store is unreachable or full, and may recover by itself: writers wait and retry.
    pub fn down(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Down, source: source.into() }
    }

    /// The store works, but a query takes too long, or too many are running: only that one fails, and may be
    /// retried.
    pub fn busy(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Busy, source: source.into() }
    }

    /// The store is damaged, or not what it should be: it needs an operator.
    pub fn broken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Broken, source: source.into() }
    }

    /// True if the store may recover by itself.
    #[must_use]
    pub fn is_down(&self) -> bool {
        match self.trouble {
            Trouble::Down | Trouble::Busy => true,
            Trouble::Broken => false,
        }
    }

    /// True if only this query was too much.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.trouble == Trouble::Busy
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task store failed: {}", self.source)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// The message for a caller whose query took too long.
const TOO_SLOW: &str = "the store took too long to answer this; try again later, or ask for less: fewer tasks on a page, \
                        or those of one context";

impl From<StoreError> for nuncio_protocol::Error {
    fn from(error: StoreError) -> Self {
        // A store that is down may recover: the caller gets a time to retry, the log gets the cause.
        let kind = nuncio_protocol::ErrorKind::Unavailable;
        let told = match error.trouble {
            Trouble::Busy => Self::new(kind, TOO_SLOW),
            Trouble::Down | Trouble::Broken => Self::from(kind),
        };
        told.with_retry_after(std::time::Duration::from_secs(1)).with_source(error)
    }
}
