//! The worker of one leased webhook: sends its deliveries in order, until one fails.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;

use super::{
    Engine,
    agent::PushOptions,
    config::{self, Config},
    courier::{Failure, ReceiverResponse},
    large_bodies::LARGE,
    leases::LeaseHandle,
    payload::{Ahead, NotificationBody, PayloadSource},
    request::{Attempted, Request},
    schedule::{self, Verdict},
    settle::Settler,
};
use crate::store::{
    Attempt, DeliveryId, DeliveryOutcome, DeliveryState, FailureCause, Leased, Owed, Settled, StoreError,
    Then,
};

/// The pause of a webhook that was sealed with another key. It is short because a server with that key finds
/// the same due time in the store.
const UNREADABLE: Duration = Duration::from_secs(10);

/// The maximum length of a stored error text, in bytes.
const MAX_REASON_BYTES: usize = 300;

pub(super) struct Worker {
    pub(super) engine: Arc<Engine>,
    pub(super) settler: Settler,
    pub(super) leased: Leased,
    /// Says when to stop: the webhook is deleted, or the server ends.
    pub(super) hand: LeaseHandle,
}

/// An attempt and its consequence.
struct Tried {
    attempt: Attempt,
    verdict: Verdict,
}

impl Worker {
    /// Runs until the lease is released and its outcome is stored.
    pub(super) async fn run(self) {
        let _done = self.hand.done.clone().drop_guard();
        let nothing_more = self.hand.ended.clone().drop_guard();
        let (noted, then) = self.serve().await;
        drop(nothing_more);
        self.settler.settle(self.settled(noted, then)).await;
    }

    fn settled(&self, outcomes: Vec<DeliveryOutcome>, then: Then) -> Settled {
        Settled { webhook: Arc::clone(&self.leased.webhook.uid), outcomes, then }
    }

    async fn serve(&self) -> (Vec<DeliveryOutcome>, Then) {
        let engine = &self.engine;
        let Some(options) = engine.options(&self.leased.scope.agent) else {
            return (Vec::new(), Then::Release(engine.now() + engine.retry.max_pause));
        };
        let Some(config) = config::open(&engine.vault, &self.leased.task_id, &self.leased.webhook) else {
            return self.unreadable();
        };
        let url: Arc<str> = config.url.as_str().into();
        let (mut noted, mut ahead) = (Vec::new(), Ahead::new());
        for (number, owed) in self.leased.owed.iter().enumerate() {
            // Stored while the next delivery is on its way.
            if !noted.is_empty() {
                self.settler.note(self.settled(std::mem::take(&mut noted), Then::Keep));
            }
            // The lease itself has just been read; later, another server may have changed the webhook.
            if number > 0 && engine.store.is_shared() && !self.is_as_leased().await {
                return (noted, Then::Release(engine.now()));
            }
            if engine.paused.has(&self.leased.webhook.target) {
                return (noted, Then::Release(engine.now()));
            }
            // REQ-161: a delivery that is about to be given up gets its last attempt even while the breaker
            // is open.
            let now = engine.now();
            if now < owed.since + engine.retry.give_up
                && let Err(until) = engine.breakers().check(&url, now, engine.deadline)
            {
                return (noted, Then::Release(until));
            }
            let tried = tokio::select! {
                // REQ-159: no new attempt for a deleted webhook.
                biased;
                () = self.hand.over.cancelled() => return (noted, Then::Release(engine.now())),
                tried = self.try_once(&options, &config, &url, *owed, &mut ahead) => tried,
            };
            let Some(Tried { attempt, verdict }) = tried else {
                return (noted, Then::Release(engine.now() + engine.retry.first));
            };
            let (state, then) = match verdict {
                Verdict::Delivered => (DeliveryState::Delivered, None),
                Verdict::Dead => (DeliveryState::Dead, None),
                Verdict::Stop => (DeliveryState::Dead, Some(Then::Stop)),
                Verdict::Retry(at) => (DeliveryState::Pending, Some(Then::Release(at))),
            };
            noted.push(DeliveryOutcome { seq: owed.seq, state, attempt });
            if let Some(then) = then {
                return (noted, then);
            }
        }
        // If more deliveries were stored meanwhile, the webhook is due again at once.
        (noted, Then::Release(engine.now()))
    }

    /// Postpones a webhook that was sealed with another key: its deliveries go on when that key is back.
    /// Logged once per webhook.
    fn unreadable(&self) -> (Vec<DeliveryOutcome>, Then) {
        let (now, webhook) = (self.engine.now(), &self.leased.webhook.uid);
        let again = Then::Release(now + UNREADABLE);
        if !self.engine.leases().is_news(webhook) {
            return (Vec::new(), again);
        }
        tracing::error!(%webhook, "cannot open a webhook: it was sealed with another key; start the hub with it");
        let why = "the webhook was sealed with another key; start the hub with that key";
        let cause = Some(FailureCause::Internal);
        let attempt = Attempt { at: now, took: 0, status: None, cause, error: Some(why.into()) };
        let outcome = |owed: &Owed| DeliveryOutcome {
            seq: owed.seq,
            state: DeliveryState::Pending,
            attempt: attempt.clone(),
        };
        let told = self.leased.owed.first().map(outcome);
        (told.into_iter().collect(), again)
    }

    /// False if the webhook was deleted or replaced since it was leased. True if the store cannot tell: the
    /// attempt will show the fault.
    async fn is_as_leased(&self) -> bool {
        let Leased { scope, task_id, webhook, .. } = &self.leased;
        let kept = self.engine.store.webhook(scope, task_id, &webhook.id).await;
        kept.map_or(true, |kept| kept.is_some_and(|kept| kept == *webhook))
    }

    /// Makes an attempt. `None` means that the store is unavailable, which says nothing about this delivery.
    async fn try_once(
        &self,
        options: &PushOptions,
        config: &Config,
        url: &Arc<str>,
        owed: Owed,
        ahead: &mut Ahead,
    ) -> Option<Tried> {
        let (webhook, seq) = (&self.leased.webhook.uid, owed.seq);
        match AssertUnwindSafe(self.attempt(options, config, url, owed, ahead)).catch_unwind().await {
            Ok(Ok(tried)) => Some(tried),
            Ok(Err(error)) if error.is_down() => {
                tracing::warn!(%error, "cannot read a delivery from the store; trying again");
                None
            }
            Ok(Err(error)) => {
                tracing::error!(%webhook, %seq, %error, "cannot read a delivery; the attempt failed");
                Some(self.failed(owed, "the notification cannot be read from the store"))
            }
            Err(_) => {
                tracing::error!(%webhook, %seq, "a delivery attempt panicked");
                Some(self.failed(owed, "the server failed unexpectedly"))
            }
        }
    }

    /// The result of an attempt that failed by our own fault. It counts as an attempt, so that the pauses
    /// grow and it ends.
    fn failed(&self, owed: Owed, why: &str) -> Tried {
        let (now, error) = (self.engine.now(), Arc::from(why));
        let cause = FailureCause::Internal;
        let result = Err(Failure::Failed(cause, Arc::clone(&error)));
        let verdict = self.engine.retry.judge(&result, owed.attempts, owed.since, now, rand::random());
        let attempt = Attempt { at: now, took: 0, status: None, cause: Some(cause), error: Some(error) };
        Tried { attempt, verdict }
    }

    async fn attempt(
        &self,
        options: &PushOptions,
        config: &Config,
        url: &Arc<str>,
        owed: Owed,
        ahead: &mut Ahead,
    ) -> Result<Tried, StoreError> {
        let engine = &self.engine;
        let delivery =
            DeliveryId { webhook: Arc::clone(&self.leased.webhook.uid), seq: owed.seq }.to_string();
        let mut payload = self.payload(options, config, owed, &delivery, ahead).await?;
        let mut _room = None;
        if payload.as_ref().is_some_and(|payload| payload.body.len() > LARGE) {
            // Dropped while waiting, to use no memory.
            drop(payload.take());
            _room = Some(engine.large.enter(&self.leased.webhook.target).await);
            payload = self.payload(options, config, owed, &delivery, ahead).await?;
        }
        let (at, began) = (engine.now(), Instant::now());
        let result = match payload {
            Some(payload) => {
                let attempted = Attempted {
                    delivery: &delivery,
                    task_id: &self.leased.task_id,
                    attempt: owed.attempts.saturating_add(1),
                    now: at,
                };
                let sign = options.sign.as_ref();
                let request = Request::new(config, payload, &attempted, sign, engine.sign.as_ref());
                engine.courier.post(&config.url, request.headers, request.body, engine.deadline).await
            }
            None => Err(Failure::Blocked("the task is gone".into())),
        };
        let now = engine.now();
        if schedule::is_trouble(&result) {
            engine.breakers().failed(url, now);
        } else {
            engine.breakers().well(url);
        }
        let verdict = engine.retry.judge(&result, owed.attempts, owed.since, now, rand::random());
        self.log(&delivery, &result, &verdict);
        let (status, reason) = outcome(&result);
        let error = reason.filter(|_| verdict != Verdict::Delivered);
        let took = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
        Ok(Tried { attempt: Attempt { at, took, status, cause: cause(&result), error }, verdict })
    }

    async fn payload(
        &self,
        options: &PushOptions,
        config: &Config,
        owed: Owed,
        delivery: &str,
        ahead: &mut Ahead,
    ) -> Result<Option<NotificationBody>, StoreError> {
        let entry = PayloadSource {
            store: &*self.engine.store,
            scope: &self.leased.scope,
            task_id: &self.leased.task_id,
            seq: owed.seq,
            chunks: options.chunks,
        };
        entry.payload(config.version, options.dialect, delivery, ahead).await
    }

    fn log(&self, delivery: &str, result: &Result<ReceiverResponse, Failure>, verdict: &Verdict) {
        let target = &self.leased.webhook.target;
        match (verdict, result) {
            (Verdict::Delivered, _) => tracing::debug!(%delivery, %target, "delivered"),
            (Verdict::Retry(at), result) => {
                tracing::debug!(%delivery, %target, ?result, until = %at, "not delivered; trying again");
            }
            (Verdict::Dead, result) => {
                let (status, reason) = outcome(result);
                let reason = reason.as_deref();
                tracing::warn!(%delivery, %target, status, reason, "delivery given up");
            }
            (Verdict::Stop, _) => tracing::warn!(%delivery, %target, "stopped: the receiver is gone (410)"),
        }
    }
}

/// The status of an attempt, and the reason for which it may have failed.
fn outcome(result: &Result<ReceiverResponse, Failure>) -> (Option<u16>, Option<Arc<str>>) {
    match result {
        Ok(answer) => (Some(answer.status.as_u16()), reason(answer)),
        Err(Failure::Blocked(why) | Failure::Failed(_, why)) => (None, Some(Arc::clone(why))),
    }
}

/// The reason for which there was no response.
fn cause(result: &Result<ReceiverResponse, Failure>) -> Option<FailureCause> {
    match result {
        Ok(_) => None,
        Err(Failure::Blocked(_)) => Some(FailureCause::Blocked),
        Err(Failure::Failed(cause, _)) => Some(*cause),
    }
}

/// The beginning of the receiver's response as one line.
fn reason(answer: &ReceiverResponse) -> Option<Arc<str>> {
    let mut text = answer.excerpt.replace(|c: char| c.is_control(), " ");
    text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
    let text = text.trim();
    (!text.is_empty()).then(|| text.into())
}
