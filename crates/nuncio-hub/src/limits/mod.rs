//! Limits of each caller, and of each agent for all callers together.
//!
//! | limit | counts | until |
//! |---|---|---|
//! | rate | every operation | GCRA: `burst` at once, `per_second` in the long run |
//! | tasks | sends, streaming or not | the call is answered, or its stream ends |
//! | streams | streaming sends and subscriptions | the stream ends |
//! | unfinished tasks | tasks that a runtime works on, also in the background | the task is settled |
//! | caller share | executions, processes and calls of one agent | as above |
//!
//! The last two are counted where the work is done, by [`TaskQuota`] and
//! [`CallerPool`](nuncio_server::CallerPool); only their settings are here. Callers differ by principal and
//! tenant; all anonymous callers are one.
//!
//! Reading order: this file keeps the quotas, `quota` counts. Every call passes a [`Gate`] in `dispatch`.

mod quota;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, op::Op};
use nuncio_server::{CallerShare, TaskQuota};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use self::quota::Permit;
use self::quota::{Bounds, Quota};
use crate::{
    config::{AgentLimits, Limits},
    identity::{ApiKeyLimits, CallerId},
};

/// Idle time after which a caller's quota is dropped: its burst is available again by then, or nearly.
const FORGET: Duration = Duration::from_secs(10 * 60);

/// Retry-After of a hub that shuts down: time for a restart.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The quotas of all callers.
pub(crate) struct Callers {
    rules: ArcSwap<Rules>,
    /// At least one caller has a limit.
    any: AtomicBool,
    /// The hub shuts down: new messages are refused.
    closed: AtomicBool,
    /// The part of each agent's capacity that one caller may hold while others want it.
    share: CallerShare,
    /// The configured percentage of that part; it applies while callers can be told apart.
    share_percent: AtomicU32,
    /// Callers can be told apart: there are credentials.
    apart: AtomicBool,
    quota: TaskQuota,
    /// Locked for lookups, and now and then for a walk over all quotas.
    quotas: Mutex<HashMap<CallerId, CallerQuota>>,
}

#[derive(Default)]
struct Rules {
    default_bounds: Bounds,
    special: HashMap<CallerId, Bounds>,
}

impl Rules {
    fn of(&self, who: &CallerId) -> Bounds {
        self.special.get(who).copied().unwrap_or(self.default_bounds)
    }
}

struct CallerQuota {
    quota: Arc<Quota>,
    used: Instant,
}

impl Callers {
    pub(crate) fn new(limits: &Limits, special: &HashMap<CallerId, ApiKeyLimits>) -> Self {
        let (rules, any, closed, quotas) = Default::default();
        let (share, share_percent, apart, quota) = Default::default();
        let callers = Self { rules, any, closed, share, share_percent, apart, quota, quotas };
        callers.configure(limits, special);
        callers
    }

    /// Replaces the limits. Callers with other limits than before start with a fresh quota.
    pub(crate) fn configure(&self, limits: &Limits, special: &HashMap<CallerId, ApiKeyLimits>) {
        let default_bounds = Bounds { rate: limits.rate, tasks: limits.tasks, streams: limits.streams };
        let bounds = |own: &ApiKeyLimits| Bounds {
            rate: own.rate().or(default_bounds.rate),
            tasks: own.tasks.or(default_bounds.tasks),
            streams: own.streams.or(default_bounds.streams),
        };
        let special = special.iter().map(|(who, own)| (who.clone(), bounds(own))).collect();
        let rules = Rules { default_bounds, special };
        let any = !default_bounds.is_none() || !rules.special.is_empty();
        let mut quotas = self.quotas.lock();
        quotas.retain(|who, kept| kept.quota.bounds() == rules.of(who));
        self.rules.store(Arc::new(rules));
        self.any.store(any, Ordering::Release);
        drop(quotas);
        self.quota.set(limits.unfinished_tasks.unwrap_or_default());
        self.share_percent.store(limits.caller_share_percent, Ordering::Relaxed);
        self.tell_apart(self.apart.load(Ordering::Relaxed));
    }

    /// Sets whether callers can be told apart. If not, all callers are one, and no capacity is kept free for
    /// others.
    pub(crate) fn tell_apart(&self, apart: bool) {
        self.apart.store(apart, Ordering::Relaxed);
        self.share.set(if apart { self.share_percent.load(Ordering::Relaxed) } else { 0 });
    }

    /// The part of an agent's capacity that one caller may hold while others want it.
    pub(crate) fn share(&self) -> &CallerShare {
        &self.share
    }

    /// The limit of unfinished tasks per caller.
    pub(crate) fn quota(&self) -> &TaskQuota {
        &self.quota
    }

    /// Refuses messages from now on, of durable and proxied agents alike.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn check_open(&self, op: Op) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) && matches!(op, Op::SendMessage | Op::SendStreamingMessage) {
            let error = Error::new(ErrorKind::Unavailable, "the hub is shutting down");
            return Err(error.with_retry_after(DEFAULT_RETRY_AFTER));
        }
        Ok(())
    }

    /// Drops the quotas of callers that have been idle for long.
    pub(crate) fn forget(&self, now: Instant) {
        let mut quotas = self.quotas.lock();
        quotas.retain(|_, kept| now.duration_since(kept.used) < FORGET || !kept.quota.is_idle());
    }

    /// The quota of a caller; `None` if it has no limit.
    fn quota_of(&self, caller: &Caller, now: Instant) -> Option<Arc<Quota>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let who = CallerId::from(caller);
        let mut quotas = self.quotas.lock();
        if let Some(kept) = quotas.get_mut(&who) {
            kept.used = now;
            return Some(Arc::clone(&kept.quota));
        }
        let bounds = self.rules.load().of(&who);
        let quota = Quota::new(bounds, "you");
        quotas.insert(who, CallerQuota { quota: Arc::clone(&quota), used: now });
        Some(quota)
    }
}

/// Admits calls to an agent.
pub(crate) struct Gate {
    callers: Arc<Callers>,
    agent: Option<Arc<Quota>>,
}

impl Gate {
    pub(crate) fn new(callers: &Arc<Callers>, limits: &AgentLimits) -> Self {
        let bounds = Bounds { rate: limits.rate, tasks: limits.tasks, streams: limits.streams };
        let agent = (!bounds.is_none()).then(|| Quota::new(bounds, "all callers of this agent together"));
        Self { callers: Arc::clone(callers), agent }
    }

    /// Admits a call; it counts until the permit is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted`, or `Unavailable` if the hub shuts down, each with a time to retry after.
    pub(crate) fn admit(&self, caller: &Caller, op: Op) -> Result<Permit> {
        self.callers.check_open(op)?;
        let caller = self.callers.quota_of(caller, Instant::now());
        let mut permit = Permit::default();
        for quota in caller.iter().chain(&self.agent) {
            permit.hold(quota.admit(op)?);
        }
        Ok(permit)
    }
}

#[cfg(test)]
mod tests;
