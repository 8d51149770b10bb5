//! The lifecycle of a runtime: open for new work, then draining until its executions are over.

use nuncio_protocol::{Error, ErrorKind, Result};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::RETRY_AFTER;

/// The running executions of a runtime, and whether it admits new ones.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// Cancelled when the drain begins.
    pub(super) draining: CancellationToken,
    pub(super) executions: TaskTracker,
}

impl Lifecycle {
    pub(super) fn is_open(&self) -> bool {
        !self.draining.is_cancelled()
    }

    /// Refuses new work during the drain.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the server is shutting down").with_retry_after(RETRY_AFTER))
    }

    /// Begins the drain: no new work is admitted.
    pub(super) fn close(&self) {
        self.draining.cancel();
        self.executions.close();
    }
}
