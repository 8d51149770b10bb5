//! Reads standard output within its size limit, and only for a limited time after the program's end.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    process::ChildStdout,
    time::{Instant, sleep_until},
};

use super::{Stop, process::Exit};
use crate::config::Command;

/// Bytes per read: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// The standard output of a program.
pub(super) struct Output {
    stdout: ChildStdout,
    exit: Arc<Exit>,
    limit: u64,
    /// Remaining bytes of the limit.
    left: u64,
    grace: Duration,
    /// Deadline for other processes that hold the output open after the program has ended.
    until: OnceLock<Instant>,
}

impl Output {
    pub(super) fn new(stdout: ChildStdout, exit: &Arc<Exit>, settings: &Command) -> Self {
        Self {
            stdout,
            exit: Arc::clone(exit),
            limit: settings.output_limit,
            left: settings.output_limit,
            grace: settings.grace,
            until: OnceLock::new(),
        }
    }

    /// Appends the next bytes to the buffer; false at the end. Cancel-safe: no bytes are lost if the future
    /// is dropped.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Stop> {
        buffer.reserve(READ_BYTES);
        let held = held(&self.exit, &self.until, self.grace);
        let count = tokio::select! {
            // Available output is read even after the deadline.
            biased;
            count = self.stdout.read_buf(buffer) => count,
            () = held => {
                tracing::debug!("a program has ended, but another process holds its output open; reading stops");
                return Ok(false);
            }
        };
        let count = match count {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(%error, "the output of a program could not be read");
                return Ok(false);
            }
        };
        let count_of_limit = u64::try_from(count).unwrap_or(u64::MAX);
        if count_of_limit > self.left {
            let too_much = count.saturating_sub(usize::try_from(self.left).unwrap_or(usize::MAX));
            buffer.truncate(buffer.len().saturating_sub(too_much));
            self.left = 0;
            return Err(Stop::Refused(format!("the program wrote more than {} bytes", self.limit)));
        }
        self.left -= count_of_limit;
        Ok(count > 0)
    }

    /// Reads to the end and discards the bytes.
    pub(super) async fn drain(&mut self) {
        let _ = tokio::io::copy(&mut self.stdout, &mut tokio::io::sink()).await;
    }
}

/// Returns when the program has ended and the grace is over for other processes that hold its output open.
async fn held(exit: &Exit, until: &OnceLock<Instant>, grace: Duration) {
    exit.exited().await;
    sleep_until(*until.get_or_init(|| Instant::now() + grace)).await;
}
