//! The life of a runtime: open for new work, draining, and the executions that a drain waits for.

use nuncio_protocol::{Error, ErrorKind, Result};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::RETRY_AFTER;

/// The executions of a runtime, and whether more are taken.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// Fires when no new work is taken.
    pub(super) draining: CancellationToken,
    pub(super) executions: TaskTracker,
}

impl Lifecycle {
    pub(super) fn is_open(&self) -> bool {
        !self.draining.is_cancelled()
    }

    /// Refuses new work while the server ends.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the server is shutting down").with_retry_after(RETRY_AFTER))
    }

    /// Takes no new work from now on.
    pub(super) fn close(&self) {
        self.draining.cancel();
        self.executions.close();
    }
}
