//! The memory of answers: what they take from when they are made until they are written.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{Error, ErrorKind, Result};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// An answer up to this many bytes takes nothing of the budget: small answers go out whatever others do.
pub(super) const SMALL: usize = 64 * 1024;

/// How long an answer waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is counted: a permit is so many bytes.
const UNIT: usize = 1024;

/// What a caller is told to wait when there is no memory for its answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory that large answers may take together until they are written. Clones share it.
#[derive(Clone, Debug)]
pub struct AnswerMemory {
    permits: Arc<Semaphore>,
    units: u32,
}

/// Memory of one answer; given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Held(Option<OwnedSemaphorePermit>);

impl Held {
    /// True if the answer is a small one.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }
}

impl AnswerMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let units = u32::try_from((bytes / UNIT).min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { permits: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// An answer that is larger than all there is takes all there is: it goes out alone.
    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units)
    }

    /// Memory for an answer of so many bytes, if it is free now.
    pub(super) fn try_hold(&self, bytes: usize) -> Option<Held> {
        if bytes <= SMALL {
            return Some(Held::default());
        }
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(self.units(bytes)).ok()?;
        Some(Held(Some(permit)))
    }

    /// The same when it is free.
    ///
    /// # Errors
    /// `ResourceExhausted`, with when to come again, if it is not in time.
    pub(super) async fn hold(&self, bytes: usize) -> Result<Held> {
        let permit = Arc::clone(&self.permits).acquire_many_owned(self.units(bytes));
        match timeout(PATIENCE, permit).await {
            Ok(Ok(permit)) => Ok(Held(Some(permit))),
            // The semaphore is ours and never closed, so that it is the time.
            Ok(Err(_)) | Err(_) => Err(exhausted()),
        }
    }
}

impl Default for AnswerMemory {
    /// 256 MiB.
    fn default() -> Self {
        Self::new(256 * 1024 * 1024)
    }
}

/// The error of an answer for which there is no memory.
pub(super) fn exhausted() -> Error {
    let why = "too many large answers are being written; try again later, or ask for less";
    Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn large_answers_share_their_memory_until_they_are_written() {
        const MIB: usize = 1024 * 1024;
        let memory = AnswerMemory::new(4 * MIB);
        let one = memory.try_hold(3 * MIB).unwrap();
        assert!(memory.try_hold(2 * MIB).is_none());
        assert!(memory.try_hold(SMALL).is_some_and(|held| held.is_nothing()), "small ones always");
        let two = memory.try_hold(MIB).unwrap();
        let refused = memory.hold(MIB).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(refused.retry_after().is_some());
        let waiting = tokio::spawn({
            let memory = memory.clone();
            // More than there is.
            async move { memory.hold(100 * MIB).await }
        });
        tokio::task::yield_now().await;
        drop((one, two));
        let all = waiting.await.unwrap().unwrap();
        assert!(memory.try_hold(2 * SMALL).is_none(), "it has all there is");
        drop(all);
        assert!(memory.try_hold(4 * MIB).is_some());
    }
}
