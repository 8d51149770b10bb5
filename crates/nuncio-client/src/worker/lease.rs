//! A lease: its lines are sent in order, its heartbeat keeps it alive.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Claim, Line, Release, WorkerError,
    outbox::Outbox,
    wire::{Mailbox, Standing, Updated},
};

/// The longest time that a heartbeat waits for news.
const HEARTBEAT_WAIT: Duration = Duration::from_secs(20);

/// The number of heartbeats within the time of a lease.
const HEARTBEATS_PER_TTL: u32 = 3;

/// The right to work on one turn of a task. While it lives, it is prolonged in the background. If it is dropped before
/// its final line is stored, it expires, and the hub offers the turn again or fails it.
pub struct Lease {
    claim: Claim,
    shared: Arc<Shared>,
    _sending: AbortOnDropHandle<()>,
    _beating: AbortOnDropHandle<()>,
}

/// The state that a lease shares with its background tasks.
struct Shared {
    mailbox: Arc<Mailbox>,
    lease: String,
    outbox: Mutex<Outbox>,
    /// Wakes the sender: there are lines.
    written: Notify,
    /// Wakes those that wait for their lines to be stored.
    stored: Notify,
    cancel: CancellationToken,
    lost: CancellationToken,
    /// The reason of a loss.
    reason: Mutex<Option<WorkerError>>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.shared.lease).finish()
    }
}

impl Lease {
    pub(super) fn begin(mailbox: &Arc<Mailbox>, claim: Claim) -> Self {
        let shared = Arc::new(Shared {
            mailbox: Arc::clone(mailbox),
            lease: claim.lease.clone(),
            outbox: Mutex::new(Outbox::after(claim.have)),
            written: Notify::new(),
            stored: Notify::new(),
            cancel: CancellationToken::new(),
            lost: CancellationToken::new(),
            reason: Mutex::default(),
        });
        if claim.cancel {
            shared.cancel.cancel();
        }
        let ttl = Duration::from_secs(claim.ttl_seconds.max(1));
        let sending = tokio::spawn(Arc::clone(&shared).send_lines());
        let beating = tokio::spawn(Arc::clone(&shared).beat(ttl));
        Self {
            claim,
            shared,
            _sending: AbortOnDropHandle::new(sending),
            _beating: AbortOnDropHandle::new(beating),
        }
    }

    /// The work.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Writes a line. It is sent in the background, after the lines before it; lines after the final one, and those of
    /// a lost lease, are dropped.
    pub fn write(&self, line: Line) {
        if self.shared.outbox.lock().push(line) {
            self.shared.written.notify_one();
        }
    }

    /// Writes several lines, so that the hub gets them in one request.
    pub fn write_all(&self, lines: impl IntoIterator<Item = Line>) {
        {
            let mut outbox = self.shared.outbox.lock();
            for line in lines {
                outbox.push(line);
            }
        }
        self.shared.written.notify_one();
    }

    /// Waits until the hub has stored all lines. While the hub cannot be reached, this waits.
    ///
    /// # Errors
    /// The lease is lost.
    pub async fn flush(&self) -> Result<(), WorkerError> {
        loop {
            let stored = self.shared.stored.notified();
            if let Some(reason) = self.shared.reason.lock().clone() {
                return Err(reason);
            }
            if self.shared.outbox.lock().is_empty() {
                return Ok(());
            }
            stored.await;
        }
    }

    /// Writes the final line, and waits until the hub has stored it.
    ///
    /// # Errors
    /// The lease is lost.
    pub async fn finish(self, line: Line) -> Result<(), WorkerError> {
        self.write(line);
        self.flush().await
    }

    /// Fires when the caller has canceled the task. Stop the work, and write the end or [`Self::release`] the lease.
    #[must_use]
    pub fn canceled(&self) -> &CancellationToken {
        &self.shared.cancel
    }

    /// Fires when the lease is lost: it expired, was taken over, or its task has ended. Stop the work.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.shared.lost
    }

    /// True if the hub has stored a final line, or takes no more lines.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.outbox.lock().is_closed()
    }

    /// Hands back a lease that has not begun, so that another worker gets the turn at once; or acknowledges a cancel,
    /// so that the task ends at once.
    ///
    /// # Errors
    /// The hub cannot be reached; the lease expires by itself.
    pub async fn release(self) -> Result<Release, WorkerError> {
        self.shared.mailbox.release(&self.shared.lease).await
    }
}

impl Shared {
    /// Sends lines in order, for as long as the lease lives.
    async fn send_lines(self: Arc<Self>) {
        let mut failures = 0;
        // A hub that refuses the end as well takes nothing.
        let mut has_given_up = false;
        loop {
            let written = self.written.notified();
            let batch = self.outbox.lock().batch();
            let Some(batch) = batch else {
                if self.outbox.lock().is_closed() {
                    return;
                }
                written.await;
                continue;
            };
            let sent = self.mailbox.update(&self.lease, batch.first, batch.body.clone()).await;
            match sent {
                Ok(Updated::Stored(standing)) => {
                    failures = 0;
                    self.take_in(&standing);
                }
                Ok(Updated::Gap(have)) => self.go_on_after(have),
                Ok(Updated::TooLarge) => {
                    if self.outbox.lock().shrink(&batch) {
                        continue;
                    }
                    let why = format!("a line of {} bytes is larger than the hub accepts", batch.body.len());
                    if std::mem::replace(&mut has_given_up, true) {
                        return self.lose(WorkerError::Invalid(why));
                    }
                    self.outbox.lock().replace_from(batch.first, Line::failed(why));
                }
                Ok(Updated::InvalidLine(_, why)) if has_given_up => {
                    return self.lose(WorkerError::Invalid(why));
                }
                Ok(Updated::InvalidLine(number, why)) => {
                    has_given_up = true;
                    tracing::warn!(lease = %self.lease, number, why, "the hub cannot read a line; the task fails");
                    self.outbox.lock().replace_from(number.max(batch.first), Line::failed(why));
                }
                Err(error) if error.is_temporary() => {
                    tracing::debug!(lease = %self.lease, %error, "lines could not be sent; trying again");
                    let pause = tokio::time::sleep(error.pause(failures));
                    failures = failures.saturating_add(1);
                    tokio::select! {
                        () = pause => {}
                        () = self.lost.cancelled() => return,
                    }
                }
                Err(error) => return self.lose(error),
            }
        }
    }

    /// Prolongs the lease until it is over.
    async fn beat(self: Arc<Self>, ttl: Duration) {
        let interval = ttl / HEARTBEATS_PER_TTL;
        let wait = Duration::from_secs(interval.min(HEARTBEAT_WAIT).as_secs());
        let mut failures = 0;
        while !self.outbox.lock().is_closed() {
            // After a cancel there is no other news to wait for.
            let is_canceled = self.cancel.is_cancelled();
            let wait = if is_canceled { Duration::ZERO } else { wait };
            let begun = tokio::time::Instant::now();
            let pause = match self.mailbox.heartbeat(&self.lease, wait).await {
                Ok(standing) => {
                    failures = 0;
                    self.take_news(&standing);
                    // A hub that answers before the wait is over has news, or does not wait.
                    if standing.cancel && !is_canceled {
                        Duration::ZERO
                    } else {
                        interval.saturating_sub(begun.elapsed())
                    }
                }
                Err(error) if error.is_temporary() => {
                    failures += 1;
                    error.pause(failures - 1).min(interval)
                }
                // The final line may be stored, and its answer on its way: then the answer decides.
                Err(WorkerError::Lost(_)) if !self.outbox.lock().is_empty() => return,
                Err(error) => return self.lose(error),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.lost.cancelled() => return,
            }
        }
    }

    /// Notes the answer to lines.
    fn take_in(&self, standing: &Standing) {
        self.go_on_after(standing.have);
        if standing.done {
            self.outbox.lock().close();
            self.written.notify_one();
        }
        self.take_news(standing);
        self.stored.notify_waiters();
    }

    fn take_news(&self, standing: &Standing) {
        if standing.cancel {
            self.cancel.cancel();
        }
    }

    fn go_on_after(&self, have: u64) {
        if !self.outbox.lock().stored(have) {
            self.lose(WorkerError::Lost(format!(
                "the hub has only {have} lines of those that it had acknowledged"
            )));
        }
    }

    fn lose(&self, reason: WorkerError) {
        {
            let mut outbox = self.outbox.lock();
            if outbox.is_closed() {
                // Its last line is stored.
                return;
            }
            outbox.close();
        }
        self.reason.lock().get_or_insert(reason);
        self.lost.cancel();
        self.written.notify_one();
        self.stored.notify_waiters();
    }
}
