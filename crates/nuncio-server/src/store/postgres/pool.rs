//! Connections for what may take long: lists and counts of callers, and what operators ask for.
//!
//! Each question has a connection for itself, so that it waits for nothing else and nothing waits for it. The server
//! ends a statement that takes too long: a question that is too slow fails alone.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_postgres::error::SqlState;

use super::{
    address::Address,
    link::{Link, Setup, code},
};
use crate::store::{Durability, StoreError};

/// How much longer than a statement may take we wait for its answer: the server is to end it, not we the connection.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// Some connections, each lent to one question at a time.
#[derive(Debug)]
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    free: Arc<Free>,
    address: Arc<Address>,
    /// How long a question waits for a connection.
    patience: Duration,
}

/// The connections that nobody uses. The lock is held for a moment.
#[derive(Debug)]
struct Free(Mutex<Vec<Link>>);

impl Free {
    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.0.lock()
    }
}

impl Pool {
    /// So many connections, made when they are first needed, for statements that may take so long.
    pub(super) fn new(
        address: &Arc<Address>,
        durability: Durability,
        connections: usize,
        statement_timeout: Duration,
    ) -> Self {
        let setup = Setup { durability, patience: statement_timeout + ANSWER_GRACE, statement_timeout };
        let link = || Link::new(Arc::clone(address), setup);
        Self {
            permits: Arc::new(Semaphore::new(connections)),
            free: Arc::new(Free(Mutex::new((0..connections).map(|_| link()).collect()))),
            address: Arc::clone(address),
            patience: statement_timeout,
        }
    }

    /// A connection for one question.
    ///
    /// # Errors
    /// [`StoreError::busy`] if there is none in time.
    pub(super) async fn lend(&self) -> Result<Lent, StoreError> {
        let permit = timeout(self.patience, Arc::clone(&self.permits).acquire_owned()).await;
        // The semaphore is ours and never closed, so that it is the time.
        let Ok(Ok(permit)) = permit else {
            return Err(StoreError::busy("all connections for lists are in use"));
        };
        let link = self.free.lock().pop();
        let link = link.ok_or_else(|| StoreError::broken("a permit without its connection"))?;
        Ok(Lent {
            link: Some(link),
            permit: Some(permit),
            free: Arc::clone(&self.free),
            address: Arc::clone(&self.address),
        })
    }
}

/// A connection that is in use. What is asked by it ends with [`Self::end`].
pub(super) struct Lent {
    /// `None` once it is given back.
    link: Option<Link>,
    permit: Option<OwnedSemaphorePermit>,
    free: Arc<Free>,
    address: Arc<Address>,
}

impl Lent {
    #[expect(clippy::expect_used, reason = "it is taken by what consumes it, and nowhere else")]
    pub(super) fn link(&self) -> &Link {
        self.link.as_ref().expect("it is lent")
    }

    /// Gives it back with the answer.
    ///
    /// # Errors
    /// That of the question; [`StoreError::busy`] if the server has ended it after its time.
    pub(super) fn end<T>(mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() {
            // Nothing is under way any more.
            self.free.lock().extend(self.link.take());
        }
        answer.map_err(too_slow)
    }
}

impl Drop for Lent {
    /// Whoever asked has left, or part of the question has failed: something may still run. It is stopped, and the
    /// connection is lent again when the server is done with it, so that those who leave early do not make the server
    /// work for more questions at a time than there are connections.
    fn drop(&mut self) {
        let (Some(link), Some(permit)) = (self.link.take(), self.permit.take()) else { return };
        let (free, address) = (Arc::clone(&self.free), Arc::clone(&self.address));
        let stopped = async move {
            link.stop(&address).await;
            free.lock().push(link);
            drop(permit);
        };
        // Without a runtime nobody asks any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(stopped);
        }
    }
}

/// The server has ended a statement after its time.
fn too_slow(error: StoreError) -> StoreError {
    match code(&error) {
        Some(code) if *code == SqlState::QUERY_CANCELED => StoreError::busy(error),
        _ => error,
    }
}
