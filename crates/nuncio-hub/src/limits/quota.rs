//! The usage of one caller, or of all callers of one agent.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use nuncio_protocol::{Error, ErrorKind, Result, op::Op};

use crate::{call::StreamObserver, config::Rate};

/// Retry-After where the time is unknown, because another call has to end first.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits of a quota; `None`: unlimited.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Bounds {
    pub(super) rate: Option<Rate>,
    pub(super) tasks: Option<u32>,
    pub(super) streams: Option<u32>,
}

impl Bounds {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) struct Quota {
    bounds: Bounds,
    rate: Option<DefaultDirectRateLimiter>,
    tasks: AtomicU32,
    streams: AtomicU32,
    /// The user of the quota, for messages.
    whose: &'static str,
}

impl Quota {
    pub(super) fn new(bounds: Bounds, whose: &'static str) -> Arc<Self> {
        let rate = bounds.rate.and_then(rate_quota).map(RateLimiter::direct);
        let (tasks, streams) = Default::default();
        Arc::new(Self { bounds, rate, tasks, streams, whose })
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// True if no call in progress is counted.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.load(Ordering::Relaxed) == 0 && self.streams.load(Ordering::Relaxed) == 0
    }

    /// Admits a call. Calls in progress are checked before the rate, so that a refusal for them costs no
    /// rate.
    pub(super) fn admit(self: &Arc<Self>, op: Op) -> Result<QuotaGuard> {
        let mut held = QuotaGuard { quota: Arc::clone(self), task: false, stream: false };
        if matches!(op, Op::SendMessage | Op::SendStreamingMessage) {
            self.take(&self.tasks, self.bounds.tasks, "sends in progress")?;
            held.task = true;
        }
        if op.row().streaming {
            self.take(&self.streams, self.bounds.streams, "open streams")?;
            held.stream = true;
        }
        if let Some(Err(until)) = self.rate.as_ref().map(RateLimiter::check) {
            let wait = until.wait_time_from(DefaultClock::default().now());
            return Err(self.exhausted("requests", wait));
        }
        Ok(held)
    }

    fn take(&self, count: &AtomicU32, max: Option<u32>, what: &str) -> Result<()> {
        let max = max.unwrap_or(u32::MAX);
        let one_more = |count: u32| (count < max).then(|| count + 1);
        match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.exhausted(what, DEFAULT_RETRY_AFTER)),
        }
    }

    fn exhausted(&self, what: &str, wait: Duration) -> Error {
        let why = format!("too many {what} of {}; try again later", self.whose);
        Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(wait)
    }
}

/// A limiter's quota; `None` for a rate of zero, which the settings exclude.
fn rate_quota(rate: Rate) -> Option<governor::Quota> {
    let period = Duration::try_from_secs_f64(rate.per_second.recip()).ok()?;
    let quota = governor::Quota::with_period(period.max(Duration::from_nanos(1)))?;
    Some(quota.allow_burst(NonZeroU32::new(rate.burst())?))
}

/// The part of a quota that a call uses, until it is dropped.
pub(super) struct QuotaGuard {
    quota: Arc<Quota>,
    task: bool,
    stream: bool,
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        for (is_held, count) in [(self.task, &self.quota.tasks), (self.stream, &self.quota.streams)] {
            if is_held {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// The quotas of an admitted call, until it is dropped.
#[derive(Default)]
#[must_use]
pub(crate) struct Permit([Option<QuotaGuard>; 2]);

impl Permit {
    pub(super) fn hold(&mut self, held: QuotaGuard) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(held);
        }
    }

    /// True if the call is not counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// A stream is counted until it ends.
impl StreamObserver for Permit {}
