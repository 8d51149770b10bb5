//! A budget for memory: bodies, answers and tasks draw from it, and what does not fit is refused before it is there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use nuncio_protocol::{Error, ErrorKind, Result};

/// Reservations below this size are not refused because of the memory that the process has in fact: small requests
/// go on while large ones wait.
const SMALL: usize = 64 * 1024;
/// When a caller that was refused may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes that may be reserved, alone or as part of another budget. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    reserved: AtomicUsize,
    /// Memory of the process as the system counts it. Not everything is reserved, so that counts as well.
    resident: AtomicUsize,
    refused: AtomicUsize,
    parent: Option<MemoryBudget>,
}

impl MemoryBudget {
    /// A budget of its own.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with_parent(limit, None)
    }

    /// A part of this budget: a reservation needs room in both.
    #[must_use]
    pub fn part(&self, limit: usize) -> Self {
        Self::with_parent(limit.min(self.limit()), Some(self.clone()))
    }

    fn with_parent(limit: usize, parent: Option<Self>) -> Self {
        let [reserved, resident, refused] = [const { AtomicUsize::new(0) }; 3];
        Self(Arc::new(Inner { limit, reserved, resident, refused, parent }))
    }

    /// Takes so many bytes until the reservation is dropped.
    ///
    /// # Errors
    /// They are not free; the error tells when to try again.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation> {
        let mut taken = Reservation { budget: self.clone(), bytes: 0 };
        taken.grow(bytes)?;
        Ok(taken)
    }

    /// The number of bytes that may be reserved.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The number of bytes that are reserved.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.0.reserved.load(Ordering::Relaxed)
    }

    /// The number of reservations that were refused, here or in a part.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Sets the memory that the process has in fact.
    pub fn set_resident(&self, bytes: usize) {
        self.0.resident.store(bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let resident = if bytes < SMALL { 0 } else { self.0.resident.load(Ordering::Relaxed) };
        let fits = |reserved: usize| {
            let after = reserved.checked_add(bytes)?;
            (after <= self.0.limit && resident.saturating_add(bytes) <= self.0.limit).then_some(after)
        };
        let taken = self.0.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        let taken = taken
            && match &self.0.parent {
                None => true,
                Some(parent) if parent.take(bytes) => true,
                Some(_) => {
                    self.0.reserved.fetch_sub(bytes, Ordering::Relaxed);
                    false
                }
            };
        if !taken {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, bytes: usize) {
        self.0.reserved.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.give_back(bytes);
        }
    }
}

/// Bytes of a [`MemoryBudget`]; a drop gives them back.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: usize,
}

impl Reservation {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// They are not free; what was reserved before stays.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        if !self.budget.take(bytes) {
            return Err(Error::new(ErrorKind::ResourceExhausted, "short of memory; try again later")
                .with_retry_after(RETRY_AFTER));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_counted_until_it_is_dropped() {
        let budget = MemoryBudget::new(100);
        let mut reservation = budget.reserve(60).unwrap();
        reservation.grow(30).unwrap();
        assert_eq!((reservation.bytes(), budget.reserved()), (90, 90));
        let error = reservation.grow(11).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.retry_after().is_some());
        assert_eq!((budget.reserved(), budget.refused()), (90, 1), "a refusal takes nothing");
        assert!(budget.reserve(usize::MAX).is_err());
        drop(reservation);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_part_needs_room_in_the_whole() {
        let whole = MemoryBudget::new(100);
        let (bodies, answers) = (whole.part(80), whole.part(80));
        let taken = bodies.reserve(70).unwrap();
        assert!(bodies.reserve(20).is_err(), "more than its own limit");
        assert!(answers.reserve(40).is_err(), "more than the whole has left");
        assert_eq!((answers.reserved(), whole.reserved()), (0, 70), "a refusal takes nothing");
        let _rest = answers.reserve(30).unwrap();
        drop(taken);
        assert_eq!((bodies.reserved(), whole.reserved()), (0, 30));
    }

    #[test]
    fn large_reservations_wait_while_the_process_is_large_and_small_ones_do_not() {
        let budget = MemoryBudget::new(100 * SMALL);
        budget.set_resident(99 * SMALL + 1);
        assert!(budget.part(10 * SMALL).reserve(SMALL).is_err());
        assert!(budget.part(10 * SMALL).reserve(SMALL - 1).is_ok());
        budget.set_resident(98 * SMALL);
        assert!(budget.reserve(SMALL).is_ok());
    }
}
