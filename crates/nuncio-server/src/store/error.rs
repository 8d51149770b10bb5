//! The two ways in which a store says no: a refusal of one write, and a failure of the store.

use std::fmt;

use nuncio_protocol::Seq;

/// The reason why a write was refused. Nothing of it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The log, or the record, is at another version: somebody else wrote.
    Version(Seq),
    /// The task does not exist in this scope.
    NotFound,
    /// The task is in progress in the hands of another owner.
    Held,
    /// The idempotency key is taken.
    KeyTaken,
    /// There is no room for another task.
    Full,
}

/// The store itself failed. The words are for the log, never for a caller.
#[derive(Debug)]
pub struct StoreError {
    trouble: Trouble,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// What is to be expected of a store that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// It may be well again by itself.
    Down,
    /// It is well, and this question was too much for it at present.
    Busy,
    /// Nothing will help but people.
    Broken,
}

impl StoreError {
    /// It cannot be reached, or has no room, and may be well again by itself: whoever writes waits.
    pub fn down(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Down, source: source.into() }
    }

    /// It is well, but a question takes too long, or too many are asked at a time: that one fails alone, and may be
    /// asked again.
    pub fn busy(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Busy, source: source.into() }
    }

    /// It is damaged, or not what it should be: nothing will help but people.
    pub fn broken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Broken, source: source.into() }
    }

    /// True if it may be well again by itself.
    #[must_use]
    pub fn is_down(&self) -> bool {
        match self.trouble {
            Trouble::Down | Trouble::Busy => true,
            Trouble::Broken => false,
        }
    }

    /// True if only this question was too much for it.
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

/// What a caller is told whose question took too long.
const TOO_SLOW: &str = "the store took too long to answer this; try again later, or ask for less: fewer tasks on a page, \
                        or those of one context";

impl From<StoreError> for nuncio_protocol::Error {
    fn from(error: StoreError) -> Self {
        // A store that is down may be up again: the caller is told to come back, the log gets the cause.
        let kind = nuncio_protocol::ErrorKind::Unavailable;
        let told = match error.trouble {
            Trouble::Busy => Self::new(kind, TOO_SLOW),
            Trouble::Down | Trouble::Broken => Self::from(kind),
        };
        told.with_retry_after(std::time::Duration::from_secs(1)).with_source(error)
    }
}
