//! Connections for slow queries: lists and counts of callers, and queries of operators.
//!
//! Each query has a connection of its own, so that it neither waits for others nor delays them. The server
//! cancels a statement after its timeout: a query that is too slow fails alone.

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

/// The time beyond the statement timeout that we wait for a response: the server shall cancel the statement
/// before we close the connection.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// A fixed number of connections, each used by one query at a time.
#[derive(Debug)]
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    free: Arc<Free>,
    address: Arc<Address>,
    /// The timeout of waiting for a connection.
    patience: Duration,
}

/// The idle connections. The lock is held only briefly.
#[derive(Debug)]
struct Free(Mutex<Vec<Link>>);

impl Free {
    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.0.lock()
    }
}

impl Pool {
    /// Creates a pool. Connections are opened at their first use.
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

    /// Takes a connection for one query.
    ///
    /// # Errors
    /// [`StoreError::busy`] if none is free in time.
    pub(super) async fn lend(&self) -> Result<Lent, StoreError> {
        let permit = timeout(self.patience, Arc::clone(&self.permits).acquire_owned()).await;
        // The semaphore is never closed, so this is the timeout.
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

/// A connection in use. A query ends with [`Self::end`].
pub(super) struct Lent {
    /// `None` once it is returned.
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

    /// Returns the connection and the result.
    ///
    /// # Errors
    /// That of the query; [`StoreError::busy`] if the server has cancelled it after its timeout.
    pub(super) fn end<T>(mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() {
            // Nothing is running any more.
            self.free.lock().extend(self.link.take());
        }
        answer.map_err(too_slow)
    }
}

impl Drop for Lent {
    /// Handles a caller that went away, or a query that failed in part: a statement may still be running. It
    /// is cancelled, and the connection returns to the pool when the server has finished, so that callers
    /// that leave early never cause more concurrent queries than there are connections.
    fn drop(&mut self) {
        let (Some(link), Some(permit)) = (self.link.take(), self.permit.take()) else { return };
        let (free, address) = (Arc::clone(&self.free), Arc::clone(&self.address));
        let stopped = async move {
            link.stop(&address).await;
            free.lock().push(link);
            drop(permit);
        };
        // Without a runtime there are no callers either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(stopped);
        }
    }
}

/// Turns the cancellation of a statement after its timeout into [`StoreError::busy`].
fn too_slow(error: StoreError) -> StoreError {
    match code(&error) {
        Some(code) if *code == SqlState::QUERY_CANCELED => StoreError::busy(error),
        _ => error,
    }
}
