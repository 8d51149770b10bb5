//! The memory account of a server: request bodies, responses and live tasks draw from one limit.
//!
//! Content is counted in bytes, several times where several copies of it exist at once. The account is an
//! estimate, so the measured size of the process ([`MemoryAccount::set_resident`]) counts as well. Three
//! rules keep a server useful while it is short of memory:
//!
//! - Small content is never refused. Its number is bounded by other limits (connections, executions).
//! - Each use may take half of the limit, so that none of them starves the others.
//! - A use that holds nothing may always reserve once: large content passes one at a time, even if the
//!   process is over the limit.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::timeout};

/// Content up to this size is never refused.
pub(crate) const SMALL: usize = 64 * 1024;

/// Tasks up to this size are not counted: most are smaller, and counting takes a lock.
const UNCOUNTED_TASK: usize = 4 * 1024;

/// The copies of a live task's content: the folded task, and its log or the entries that wait for their
/// commit.
const TASK_COPIES: usize = 2;

/// The longest time that a response waits for memory.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay after which a refused caller may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A reason to take memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryUse {
    /// Request bodies that arrive or are decoded, and calls in progress.
    Requests,
    /// Responses that are not written yet.
    Responses,
    /// Tasks that execute, wait or are followed.
    Tasks,
}

impl MemoryUse {
    /// Every use.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Responses, Self::Tasks];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::Tasks => "tasks",
        }
    }
}

/// An amount of memory that requests, responses and tasks share. Clones are the same account.
#[derive(Clone, Debug)]
pub struct MemoryAccount(Arc<AccountInner>);

#[derive(Debug)]
struct AccountInner {
    limit: usize,
    state: Mutex<AccountState>,
    /// Wakes the reservations that wait.
    released: Notify,
}

/// The figures of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AccountState {
    used: [usize; MemoryUse::ALL.len()],
    refused: [u64; MemoryUse::ALL.len()],
    /// The measured size of the process; 0 if it was never measured.
    resident: usize,
    /// The sum of `used` when it was measured.
    used_when_measured: usize,
}

/// The bytes that a use holds, and its refusals since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes reserved now.
    pub used: usize,
    /// Reservations refused.
    pub refused: u64,
}

impl Default for MemoryAccount {
    /// 1 GiB.
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

impl MemoryAccount {
    /// An account of this many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(AccountInner { limit, state: Mutex::default(), released: Notify::new() }))
    }

    /// The bytes that all uses may take together.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The figures of one use.
    #[must_use]
    pub fn usage(&self, of: MemoryUse) -> MemoryUsage {
        let state = self.lock();
        MemoryUsage { used: state.used[of as usize], refused: state.refused[of as usize] }
    }

    /// Sets the measured size of the process. Call it several times a second.
    pub fn set_resident(&self, bytes: usize) {
        let mut state = self.lock();
        state.resident = bytes;
        state.used_when_measured = state.total();
        drop(state);
        self.0.released.notify_waiters();
    }

    /// Reserves bytes if they are free; `None` counts as a refusal.
    pub(crate) fn try_reserve(&self, of: MemoryUse, bytes: usize) -> Option<MemoryReservation> {
        let mut reservation = MemoryReservation::default();
        reservation.try_resize(self, of, bytes).then_some(reservation)
    }

    /// Reserves bytes, and waits a few seconds until they are free.
    ///
    /// # Errors
    /// `ResourceExhausted`, with a time to try again, if they are not free in time.
    pub(crate) async fn reserve(&self, of: MemoryUse, bytes: usize) -> Result<MemoryReservation> {
        let mut reservation = MemoryReservation::default();
        let reserved = async {
            loop {
                let released = self.0.released.notified();
                if reservation.resize(self, of, bytes) {
                    return;
                }
                released.await;
            }
        };
        match timeout(RESERVE_TIMEOUT, reserved).await {
            Ok(()) => Ok(reservation),
            Err(_) => {
                self.lock().refused[of as usize] += 1;
                Err(exhausted())
            }
        }
    }

    /// A reservation of nothing, for content that grows while it is read.
    #[must_use]
    pub fn growing(&self, of: MemoryUse) -> GrowingReservation {
        GrowingReservation { account: self.clone(), of, held: MemoryReservation::default() }
    }

    /// True if a task of this size may begin.
    pub(crate) fn admits_task(&self, bytes: usize) -> bool {
        if bytes <= SMALL {
            return true;
        }
        let mut state = self.lock();
        let fits = state.fits(MemoryUse::Tasks, bytes * TASK_COPIES, self.0.limit);
        state.refused[MemoryUse::Tasks as usize] += u64::from(!fits);
        fits
    }

    /// The size of a live task, which counts from now on.
    pub(crate) fn task_size(&self, bytes: usize) -> TaskSize {
        let mut size = TaskSize { account: self.clone(), bytes: 0, counted: 0 };
        size.set(bytes);
        size
    }

    fn release(&self, of: MemoryUse, bytes: usize) {
        self.lock().used[of as usize] -= bytes;
        self.0.released.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, AccountState> {
        self.0.state.lock()
    }
}

impl AccountState {
    fn total(&self) -> usize {
        self.used.iter().sum()
    }

    /// True if `bytes` more may be used.
    fn fits(&self, of: MemoryUse, bytes: usize, limit: usize) -> bool {
        let (used, total) = (self.used[of as usize], self.total());
        if used == 0 {
            return true;
        }
        // The measurement is a moment old: reservations since then come on top of it.
        let resident = self.resident + total.saturating_sub(self.used_when_measured);
        used + bytes <= limit / 2 && total.max(resident) + bytes <= limit
    }
}

/// The error of a call for which there is no memory.
pub(crate) fn exhausted() -> Error {
    let why = "the server is short of memory (memory_limit_bytes); try again later, or send and ask for less";
    Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(RETRY_AFTER)
}

/// Reserved memory; released on drop. Nothing is reserved for small content.
#[derive(Debug, Default)]
pub(crate) struct MemoryReservation(Option<Reserved>);

#[derive(Debug)]
struct Reserved {
    account: MemoryAccount,
    of: MemoryUse,
    bytes: usize,
}

impl MemoryReservation {
    /// True if nothing is reserved, because the content is small.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Grows the reservation to this many bytes in all, of the same account and use as before. False, which
    /// counts as a refusal, if they are not free.
    pub(crate) fn try_resize(&mut self, account: &MemoryAccount, of: MemoryUse, bytes: usize) -> bool {
        let fits = self.resize(account, of, bytes);
        if !fits {
            account.lock().refused[of as usize] += 1;
        }
        fits
    }

    fn resize(&mut self, account: &MemoryAccount, of: MemoryUse, bytes: usize) -> bool {
        let before = self.0.as_ref().map_or(0, |reserved| reserved.bytes);
        if bytes <= SMALL.max(before) {
            return true;
        }
        let mut state = account.lock();
        let is_alone = state.used[of as usize] == before;
        if !is_alone && !state.fits(of, bytes - before, account.0.limit) {
            return false;
        }
        state.used[of as usize] += bytes - before;
        drop(state);
        match &mut self.0 {
            Some(reserved) => reserved.bytes = bytes,
            None => self.0 = Some(Reserved { account: account.clone(), of, bytes }),
        }
        true
    }
}

/// Memory of content that grows while it is read; released on drop.
#[derive(Debug)]
pub struct GrowingReservation {
    account: MemoryAccount,
    of: MemoryUse,
    held: MemoryReservation,
}

impl GrowingReservation {
    /// Grows the reservation to this many bytes in all.
    ///
    /// # Errors
    /// `ResourceExhausted`, with a time to try again, if they are not free.
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if self.held.try_resize(&self.account, self.of, bytes) { Ok(()) } else { Err(exhausted()) }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.account.release(self.of, self.bytes);
    }
}

/// The size of a live task; counts in the account until it is dropped.
#[derive(Debug)]
pub(crate) struct TaskSize {
    account: MemoryAccount,
    bytes: usize,
    /// The part that the account has.
    counted: usize,
}

impl TaskSize {
    /// The size in bytes.
    pub(crate) fn get(&self) -> usize {
        self.bytes
    }

    /// Sets the size. It counts also if the account is exhausted: the content is in memory already.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.bytes = bytes;
        let counted = if bytes <= UNCOUNTED_TASK { 0 } else { bytes * TASK_COPIES };
        let before = std::mem::replace(&mut self.counted, counted);
        if counted > before {
            self.account.lock().used[MemoryUse::Tasks as usize] += counted - before;
        } else if counted < before {
            self.account.release(MemoryUse::Tasks, before - counted);
        }
    }

    /// True if the task may grow by this many bytes.
    pub(crate) fn may_grow(&self, bytes: usize) -> bool {
        if self.bytes + bytes <= SMALL {
            return true;
        }
        let mut state = self.account.lock();
        let others = state.used[MemoryUse::Tasks as usize] - self.counted;
        let fits = others == 0 || state.fits(MemoryUse::Tasks, bytes * TASK_COPIES, self.account.0.limit);
        state.refused[MemoryUse::Tasks as usize] += u64::from(!fits);
        fits
    }
}

impl Drop for TaskSize {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.account.release(MemoryUse::Tasks, self.counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryUse::*, *};

    const MIB: usize = 1 << 20;

    #[test]
    fn large_content_shares_the_limit_and_small_content_always_passes() {
        let account = MemoryAccount::new(10 * MIB);
        let first = account.try_reserve(Requests, 3 * MIB).unwrap();
        assert!(account.try_reserve(Requests, 3 * MIB).is_none(), "half of the limit is for requests");
        assert!(account.try_reserve(Requests, SMALL).is_some_and(|small| small.is_empty()));
        let second = account.try_reserve(Requests, 2 * MIB).unwrap();
        let response = account.try_reserve(Responses, 4 * MIB).unwrap();
        assert!(account.try_reserve(Responses, MIB + 1).is_none(), "no more than the limit in all");
        assert_eq!(account.usage(Requests), MemoryUsage { used: 5 * MIB, refused: 1 });
        assert_eq!(account.usage(Responses), MemoryUsage { used: 4 * MIB, refused: 1 });
        drop((first, second, response));
        assert!(MemoryUse::ALL.iter().all(|of| account.usage(*of).used == 0));
    }

    #[test]
    fn content_larger_than_the_limit_passes_alone() {
        let account = MemoryAccount::new(MIB);
        let alone = account.try_reserve(Responses, 100 * MIB).unwrap();
        assert!(account.try_reserve(Responses, 2 * SMALL).is_none());
        drop(alone);
        assert!(account.try_reserve(Responses, 2 * SMALL).is_some());
    }

    #[test]
    fn the_measured_size_of_the_process_counts() {
        let account = MemoryAccount::new(100 * MIB);
        let _first = account.try_reserve(Requests, MIB).unwrap();
        account.set_resident(95 * MIB);
        assert!(account.try_reserve(Requests, 6 * MIB).is_none());
        let _second = account.try_reserve(Requests, 4 * MIB).unwrap();
        assert!(account.try_reserve(Requests, 4 * MIB).is_none(), "reserved since the measurement");
        assert!(account.try_reserve(Responses, 6 * MIB).is_some(), "one at a time always passes");
        account.set_resident(20 * MIB);
        assert!(account.try_reserve(Requests, 6 * MIB).is_some());
    }

    #[test]
    fn a_task_counts_by_its_size_until_it_leaves_memory() {
        let account = MemoryAccount::new(10 * MIB);
        let mut task = account.task_size(UNCOUNTED_TASK);
        assert_eq!(account.usage(Tasks).used, 0);
        assert!(task.may_grow(100 * MIB), "a single task is bounded by its own limit");
        task.set(2 * MIB);
        assert_eq!(account.usage(Tasks).used, 2 * MIB * TASK_COPIES);
        let other = account.task_size(0);
        assert!(other.may_grow(SMALL));
        assert!(!other.may_grow(MIB));
        assert!(!account.admits_task(MIB));
        assert!(account.admits_task(SMALL));
        task.set(MIB);
        assert!(other.may_grow(MIB) && account.admits_task(MIB));
        drop(task);
        assert_eq!(account.usage(Tasks).used, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_for_memory_for_a_while() {
        let account = MemoryAccount::new(2 * MIB);
        let held = account.try_reserve(Responses, MIB).unwrap();
        let refused = account.reserve(Responses, MIB).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(refused.retry_after().is_some());
        let waiting = tokio::spawn({
            let account = account.clone();
            async move { account.reserve(Responses, MIB).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap().is_ok());
    }
}
