//! The outbox: webhooks by uid, and due webhooks by target and time.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
    sync::Arc,
};

use async_trait::async_trait;
use nuncio_protocol::{PushConfigId, Seq, TaskId, Timestamp};

use super::{MemoryInner, MemoryStore, Owner, Stored};
use crate::store::{
    Attempt, Backlog, Delivery, DeliveryId, DeliveryQuery, DeliveryState, Lease, Leased, Leases,
    MAX_WEBHOOKS, Outbox, Owed, Redrive, Refused, Scope, Settled, StoreError, Then, Webhook,
    outbox::MAX_ATTEMPTS,
};

#[derive(Debug, Default)]
pub(super) struct WebhookTable {
    hooks: BTreeMap<Arc<str>, Hook>,
    /// Webhooks with pending deliveries that are not leased.
    due: BTreeSet<Due>,
    /// Leased webhooks.
    held: HashSet<Arc<str>>,
}

/// Target, due time, uid.
type Due = (Arc<str>, Timestamp, Arc<str>);

#[derive(Debug)]
struct Hook {
    scope: Arc<Scope>,
    task_id: TaskId,
    webhook: Webhook,
    /// The due time, if a delivery is pending.
    due: Option<Timestamp>,
    holder: Option<Owner>,
    stopped: bool,
    deliveries: BTreeMap<Seq, DeliveryRecord>,
}

#[derive(Debug)]
struct DeliveryRecord {
    state: DeliveryState,
    since: Timestamp,
    attempts: u32,
    recent: Vec<Attempt>,
}

impl DeliveryRecord {
    fn owed(since: Timestamp) -> Self {
        Self { state: DeliveryState::Pending, since, attempts: 0, recent: Vec::new() }
    }

    fn is_pending(&self) -> bool {
        self.state == DeliveryState::Pending
    }
}

impl Hook {
    fn owes(&self) -> bool {
        self.deliveries.values().any(DeliveryRecord::is_pending)
    }

    fn key(&self) -> Option<Due> {
        let due = self.due.filter(|_| self.holder.is_none())?;
        Some((Arc::clone(&self.webhook.target), due, Arc::clone(&self.webhook.uid)))
    }

    fn lease(&self, most: usize) -> Leased {
        let owed = self.deliveries.iter().filter(|(_, record)| record.is_pending()).take(most);
        let owed =
            owed.map(|(seq, record)| Owed { seq: *seq, since: record.since, attempts: record.attempts });
        Leased {
            scope: Arc::clone(&self.scope),
            task_id: self.task_id.clone(),
            webhook: self.webhook.clone(),
            owed: owed.collect(),
        }
    }

    fn tell(&self, seq: Seq, record: &DeliveryRecord) -> Delivery {
        Delivery {
            scope: Arc::clone(&self.scope),
            task_id: self.task_id.clone(),
            webhook: self.webhook.clone(),
            seq,
            state: record.state,
            since: record.since,
            attempts: record.attempts,
            recent: record.recent.clone(),
            due: self.due.filter(|_| record.is_pending() && self.holder.is_none()),
        }
    }
}

impl WebhookTable {
    /// Changes a webhook and updates the indexes.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Hook) -> T) -> Option<T> {
        let hook = self.hooks.get_mut(uid)?;
        if let Some(key) = hook.key() {
            self.due.remove(&key);
        }
        let changed = change(hook);
        self.due.extend(hook.key());
        match hook.holder {
            Some(_) => self.held.insert(Arc::clone(&hook.webhook.uid)),
            None => self.held.remove(uid),
        };
        Some(changed)
    }

    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(hook) = self.hooks.remove(uid) {
            if let Some(key) = hook.key() {
                self.due.remove(&key);
            }
            self.held.remove(uid);
        }
    }

    /// Adds a pending delivery of this entry to the webhooks.
    pub(super) fn owe<'a>(&mut self, uids: impl Iterator<Item = &'a Arc<str>>, seq: Seq, at: Timestamp) {
        for uid in uids {
            self.change(uid, |hook| {
                if !hook.stopped {
                    hook.deliveries.insert(seq, DeliveryRecord::owed(at));
                    hook.due.get_or_insert(at);
                }
            });
        }
    }

    /// The targets of due webhooks, beginning after `after` and wrapping around.
    fn targets<'a>(&'a self, after: &'a Arc<str>) -> impl Iterator<Item = Arc<str>> + 'a {
        let last: Arc<str> = Arc::from("\u{10ffff}");
        let beyond = move |target: &Arc<str>| {
            let from = (Arc::clone(target), Timestamp::MAX, Arc::clone(&last));
            self.due
                .range((Bound::Excluded(from), Bound::Unbounded))
                .next()
                .map(|(target, ..)| Arc::clone(target))
        };
        let first = || self.due.first().map(|(target, ..)| Arc::clone(target));
        let later = std::iter::successors(beyond(after), {
            let beyond = beyond.clone();
            move |target| beyond(target)
        });
        let earlier = std::iter::successors(first(), move |target| beyond(target));
        later.chain(earlier.take_while(move |target| target <= after))
    }

    fn of<'a>(&'a self, target: &'a Arc<str>) -> impl Iterator<Item = (Timestamp, &'a Hook)> + 'a {
        let from = (Arc::clone(target), Timestamp::MIN, Arc::from(""));
        let of = self.due.range(from..).take_while(move |(of, ..)| of == target);
        of.filter_map(|(_, due, uid)| Some((*due, self.hooks.get(uid)?)))
    }
}

impl Stored {
    /// Registers a webhook, and sets its uid to that of the one it replaces, if any.
    fn take_webhook(&mut self, webhook: &mut Webhook) {
        let uid = self.webhooks.entry(webhook.id.clone()).or_insert_with(|| Arc::clone(&webhook.uid));
        webhook.uid = Arc::clone(uid);
    }
}

impl MemoryInner {
    /// Stores a webhook of an existing task.
    pub(super) fn upsert_webhook(&mut self, id: &TaskId, mut webhook: Webhook, now: Timestamp) {
        let Some(stored) = self.tasks.get_mut(id) else { return };
        stored.take_webhook(&mut webhook);
        let (uid, scope) = (Arc::clone(&webhook.uid), Arc::clone(&stored.scope));
        self.outbox.hooks.entry(Arc::clone(&uid)).or_insert_with(|| Hook {
            scope,
            task_id: id.clone(),
            webhook: webhook.clone(),
            due: None,
            holder: None,
            stopped: false,
            deliveries: BTreeMap::new(),
        });
        self.outbox.change(&uid, |hook| {
            hook.webhook = webhook;
            hook.stopped = false;
            hook.due = hook.due.map(|_| now);
        });
    }

    fn theirs(&self, scope: &Scope, id: &TaskId) -> Option<&Stored> {
        self.tasks.get(id).map(|stored| &**stored).filter(|stored| *stored.scope == *scope)
    }

    /// The webhooks of a task, without stopped ones.
    fn active<'a>(&'a self, stored: &'a Stored) -> impl Iterator<Item = &'a Webhook> + 'a {
        let hooks = stored.webhooks.values().filter_map(|uid| self.outbox.hooks.get(uid));
        hooks.filter(|hook| !hook.stopped).map(|hook| &hook.webhook)
    }

    pub(super) fn put_webhook(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let stored = self.theirs(scope, id).ok_or(Refused::NotFound)?;
        if self.active(stored).filter(|known| known.id != webhook.id).count() >= MAX_WEBHOOKS {
            return Err(Refused::Full);
        }
        self.upsert_webhook(id, webhook, now);
        Ok(())
    }

    pub(super) fn webhook(&self, scope: &Scope, id: &TaskId, webhook: &PushConfigId) -> Option<Webhook> {
        self.active(self.theirs(scope, id)?).find(|known| known.id == *webhook).cloned()
    }

    pub(super) fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Option<Vec<Webhook>> {
        let active = self.active(self.theirs(scope, id)?);
        let wanted = active.filter(|webhook| after.is_none_or(|after| webhook.id > *after));
        Some(wanted.take(limit).cloned().collect())
    }

    pub(super) fn delete_webhook(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Arc<str>>, Refused> {
        self.theirs(scope, id).ok_or(Refused::NotFound)?;
        let uid = self.tasks.get_mut(id).and_then(|stored| stored.webhooks.remove(webhook));
        uid.iter().for_each(|uid| self.outbox.forget(uid));
        Ok(uid)
    }

    pub(super) fn lease(&mut self, me: Owner, lease: &Lease) -> Leases {
        let in_hand: HashSet<&Arc<str>> = lease.in_hand.iter().collect();
        let outbox = &mut self.outbox;
        for uid in outbox.held.clone() {
            let free = |hook: &mut Hook| {
                let lost = hook.holder == Some(me) && !in_hand.contains(&uid);
                hook.holder = hook.holder.filter(|holder| !lost && !self.gone.contains(holder));
            };
            outbox.change(&uid, free);
        }
        let (mut uids, mut next) = (Vec::new(), None::<Timestamp>);
        for target in outbox.targets(&lease.after) {
            if lease.except.contains(&target) {
                continue;
            }
            let of = outbox.of(&target).filter(|(_, hook)| lease.agents.contains(&hook.scope.agent));
            for (taken, (due, hook)) in of.enumerate() {
                if due <= lease.now && taken < lease.each && uids.len() < lease.limit {
                    uids.push(Arc::clone(&hook.webhook.uid));
                } else {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    break;
                }
            }
        }
        let next = next.filter(|_| uids.len() < lease.limit);
        let take = |hook: &mut Hook| {
            hook.holder = Some(me);
            hook.lease(lease.owed)
        };
        Leases { leased: uids.iter().filter_map(|uid| outbox.change(uid, take)).collect(), next }
    }

    pub(super) fn settle(&mut self, me: Owner, settled: Settled) {
        let Settled { webhook, outcomes, then } = settled;
        self.outbox.change(&webhook, |hook| {
            if hook.holder != Some(me) {
                return;
            }
            for outcome in outcomes {
                let record = hook.deliveries.get_mut(&outcome.seq).filter(|record| record.is_pending());
                let Some(record) = record else { continue };
                record.state = outcome.state;
                record.attempts += 1;
                if record.recent.len() == MAX_ATTEMPTS {
                    record.recent.remove(0);
                }
                record.recent.push(outcome.attempt);
            }
            match then {
                Then::Keep => return,
                Then::Release(at) => hook.due = Some(at),
                Then::Stop => {
                    hook.stopped = true;
                    let pending = hook.deliveries.values_mut().filter(|record| record.is_pending());
                    pending.for_each(|record| record.state = DeliveryState::Dead);
                }
            }
            hook.holder = None;
            hook.due = hook.due.filter(|_| hook.owes());
        });
    }

    pub(super) fn deliveries(&self, query: &DeliveryQuery) -> (Vec<Delivery>, bool) {
        let ids = |id: &DeliveryId| (Arc::clone(&id.webhook), id.seq);
        let (wanted, after) = (query.id.as_ref().map(ids), query.after.as_ref().map(ids));
        let matches = |hook: &Hook, seq: Seq, record: &DeliveryRecord| {
            let id = (Arc::clone(&hook.webhook.uid), seq);
            wanted.as_ref().is_none_or(|wanted| *wanted == id)
                && after.as_ref().is_none_or(|after| id < *after)
                && query.agent.as_ref().is_none_or(|agent| *agent == hook.scope.agent)
                && query.task_id.as_ref().is_none_or(|task| *task == hook.task_id)
                && query.target.as_ref().is_none_or(|target| *target == hook.webhook.target)
                && query.state.is_none_or(|state| state == record.state)
                && query.since.is_none_or(|since| record.since >= since)
        };
        let all = self.outbox.hooks.values().rev();
        let all =
            all.flat_map(|hook| hook.deliveries.iter().rev().map(move |(seq, record)| (hook, *seq, record)));
        let found = all.filter(|(hook, seq, record)| matches(hook, *seq, record));
        let mut found: Vec<Delivery> = found
            .map(|(hook, seq, record)| hook.tell(seq, record))
            .take(query.limit.saturating_add(1))
            .collect();
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        (found, more)
    }

    pub(super) fn backlog(&self) -> Backlog {
        // Only due and leased webhooks have pending deliveries.
        let outbox = &self.outbox;
        let uids = outbox.due.iter().map(|(_, _, uid)| uid).chain(&outbox.held);
        let hooks = uids.filter_map(|uid| outbox.hooks.get(uid));
        let pending = hooks.flat_map(|hook| hook.deliveries.values().filter(|record| record.is_pending()));
        pending.fold(Backlog::default(), |backlog, record| Backlog {
            pending: backlog.pending + 1,
            oldest: Some(backlog.oldest.map_or(record.since, |oldest| oldest.min(record.since))),
        })
    }

    pub(super) fn redrive(&mut self, what: &Redrive, now: Timestamp) -> usize {
        let uids: Vec<Arc<str>> = match what {
            Redrive::One(id) => vec![Arc::clone(&id.webhook)],
            Redrive::Dead { .. } => self.outbox.hooks.keys().cloned().collect(),
        };
        let again = |hook: &mut Hook| {
            let mut redriven = 0;
            for (seq, record) in &mut hook.deliveries {
                let wanted = match what {
                    Redrive::One(id) => id.seq == *seq,
                    Redrive::Dead { agent, since } => {
                        !hook.stopped
                            && record.state == DeliveryState::Dead
                            && record.since >= *since
                            && agent.as_ref().is_none_or(|agent| *agent == hook.scope.agent)
                    }
                };
                if wanted {
                    (record.state, record.since, record.attempts) = (DeliveryState::Pending, now, 0);
                    redriven += 1;
                }
            }
            if redriven > 0 {
                (hook.stopped, hook.due) = (false, Some(now));
            }
            redriven
        };
        uids.iter().filter_map(|uid| self.outbox.change(uid, again)).sum()
    }
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().put_webhook(scope, id, webhook, now))
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        Ok(self.lock().webhook(scope, id, webhook))
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        Ok(self.lock().webhooks(scope, id, after, limit))
    }

    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        Ok(self.lock().delete_webhook(scope, id, webhook))
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        Ok(self.lock().lease(self.me, lease))
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let mut inner = self.lock();
        settled.into_iter().for_each(|settled| inner.settle(self.me, settled));
        Ok(())
    }
}
