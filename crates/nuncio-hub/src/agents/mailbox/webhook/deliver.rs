//! Takes turns for a webhook, posts them, and stores the outcome.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use nuncio_protocol::{Part, TaskState};
use nuncio_server::{
    push::{Ask, Courier},
    store::StoreError,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::Instant,
};

use super::{
    MAX_DELIVERIES, Webhook,
    answer::{Verdict, judge},
    request::{Post, answer_time},
};
use crate::agents::{
    lease::{Due, Kept, LeaseId, Stage, key, millis},
    mailbox::{
        lines::Line,
        problem::{Problem, Reason},
        registry::{Mailbox, Mailboxes},
    },
};

/// The holder of a lease that is a delivery.
const HOLDER: &str = "webhook";

/// Deliveries that one hub has under way.
pub(in crate::agents::mailbox) const MAX_ALL_DELIVERIES: usize = 256;

/// Bytes of an answer. What is longer is written as lines.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The longest pause between two looks: a lease may end, or another hub may have missed a signal.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of looks at the lease of a delivery that is under way, beside the signals about it.
const LEASE_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a look that failed.
const FAILED_INTERVAL: Duration = Duration::from_secs(1);

/// The pause between attempts to store an answer.
const STORE_INTERVAL: Duration = Duration::from_millis(250);

/// The turn for a webhook.
pub(in crate::agents::mailbox) enum Next {
    Turn(Box<Kept>),
    /// There is none before this time, as far as is known.
    Nothing(Option<i64>),
}

impl Mailboxes {
    /// Delivers for all mailboxes with a webhook. Never returns.
    pub(in crate::agents::mailbox) async fn deliver_for_all(self: &Arc<Self>) -> Infallible {
        let all = Arc::new(Semaphore::new(MAX_ALL_DELIVERIES));
        let mut loops = JoinSet::new();
        loop {
            let served = self.served_one.notified();
            for mailbox in self.all() {
                if mailbox.webhook.is_some() && !mailbox.is_delivering.swap(true, Ordering::Relaxed) {
                    loops.spawn(Arc::clone(self).deliver_for(mailbox, Arc::clone(&all)));
                }
            }
            tokio::select! {
                () = served => {}
                Some(_) = loops.join_next(), if !loops.is_empty() => {}
            }
        }
    }

    /// Delivers for one mailbox until the hub serves it no more, or closes.
    async fn deliver_for(self: Arc<Self>, mailbox: Arc<Mailbox>, all: Arc<Semaphore>) {
        let Some(webhook) = mailbox.webhook.clone() else { return };
        let wake = self.wakes.listen(&mailbox.name);
        while self.serves(&mailbox) && !self.closing.is_cancelled() {
            let changed = wake.changed();
            let Some(places) = places(&webhook, &all).await else { return };
            let pause = match self.next_delivery(&mailbox, &webhook).await {
                Ok(Next::Turn(kept)) => {
                    let (mailboxes, mailbox) = (Arc::clone(&self), Arc::clone(&mailbox));
                    let under_way = self.deliveries.token();
                    let webhook_of_it = Arc::clone(&webhook);
                    webhook.push.spawn(async move {
                        mailboxes.deliver(&mailbox, &webhook_of_it, &kept).await;
                        drop((places, under_way));
                    });
                    continue;
                }
                Ok(Next::Nothing(soonest)) => soonest.map_or(LOOK_INTERVAL, |at| {
                    let left = u64::try_from(at.saturating_sub(self.now())).unwrap_or_default();
                    Duration::from_millis(left).min(LOOK_INTERVAL)
                }),
                Err(error) => {
                    tracing::warn!(mailbox = &*mailbox.name, %error, "turns of a webhook cannot be read; trying again");
                    FAILED_INTERVAL
                }
            };
            drop(places);
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
                () = self.closing.cancelled() => return,
            }
        }
    }

    /// Takes no further turns, and waits for the answers to those that are under way.
    pub(crate) async fn finish_deliveries(&self, grace: Duration) {
        self.closing.cancel();
        self.deliveries.close();
        // A delivery that is cut off is repeated after the next start.
        let _ = tokio::time::timeout(grace, self.deliveries.wait()).await;
    }

    /// Takes the first turn that is due for the webhook.
    pub(in crate::agents::mailbox) async fn next_delivery(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        webhook: &Webhook,
    ) -> Result<Next, StoreError> {
        let closed_until = webhook.closed_until.load(Ordering::Relaxed);
        if closed_until > self.now() {
            return Ok(Next::Nothing(Some(closed_until)));
        }
        if self.gone_since(mailbox).await?.is_some() {
            return Ok(Next::Nothing(None));
        }
        let _alone = mailbox.claiming.lock().await;
        let rules = mailbox.rules();
        let mut soonest = None::<i64>;
        let offer = |row: &mut crate::agents::lease::TurnRow, now: i64| {
            if row.not_before > now {
                soonest = Some(soonest.map_or(row.not_before, |soonest| soonest.min(row.not_before)));
                return false;
            }
            row.deliver(HOLDER, &rules, now);
            true
        };
        let taken = self.take(mailbox, &rules, offer, None).await?;
        Ok(taken.map_or(Next::Nothing(soonest), |kept| Next::Turn(Box::new(kept))))
    }

    /// Posts a turn, and does what follows from the answer.
    pub(in crate::agents::mailbox) async fn deliver(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        webhook: &Webhook,
        kept: &Kept,
    ) {
        let lease = kept.lease();
        let posted = match self.post(mailbox, webhook, kept).await {
            Ok(Some(post)) => tokio::select! {
                verdict = self.ask(mailbox, webhook, kept, post) => verdict,
                () = self.until_over(mailbox, &lease) => return,
            },
            Ok(None) => return,
            Err(problem) => {
                tracing::warn!(%lease, ?problem, "a turn cannot be read for its webhook; trying again");
                Verdict::Retry { counts: false, after: FAILED_INTERVAL }
            }
        };
        self.metrics.delivered(&mailbox.name, posted.word());
        tracing::debug!(mailbox = &*mailbox.name, %lease, outcome = posted.word(), "a message was delivered to a webhook");
        self.follow(mailbox, webhook, &lease, posted).await;
    }

    async fn ask(&self, mailbox: &Mailbox, webhook: &Webhook, kept: &Kept, post: Post) -> Verdict {
        mailbox.saw(HOLDER);
        let delivery = kept.lease().to_string();
        let Post { task, headers, trace } = post;
        let ask = Ask {
            delivery: &delivery,
            attempt: kept.row.failures.saturating_add(1),
            url: &webhook.url,
            version: webhook.version,
            task,
            headers,
            trace,
            courier: webhook.egress.as_ref().map(|egress| egress as &dyn Courier),
            deadline: answer_time(mailbox),
            max_body: MAX_ANSWER_BYTES,
        };
        let options = webhook.options(&mailbox.name);
        judge(webhook.push.ask(&options, ask).await, webhook.version)
    }

    /// Ends when the lease is over before it was answered: the task was canceled, or somebody has taken it over. The agent
    /// sees it by the end of its connection.
    async fn until_over(&self, mailbox: &Mailbox, lease: &LeaseId) {
        let wake = self.wakes.listen(&key(&mailbox.name, lease.turn));
        loop {
            let changed = wake.changed();
            match self.is_over(mailbox, lease).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(%lease, %error, "a delivery cannot be looked after"),
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(LEASE_LOOK_INTERVAL) => {}
            }
        }
    }

    /// True for a lease that is over, unless the agent itself has ended it by a line.
    async fn is_over(&self, mailbox: &Mailbox, lease: &LeaseId) -> Result<bool, StoreError> {
        let name = &*mailbox.name;
        match self.book.turn(name, lease.turn).await? {
            Some(kept) => Ok(!kept.row.is_held_by(lease)),
            None => Ok(self.book.done(name, lease.turn).await?.is_none()),
        }
    }

    /// Does what follows from a delivery. While the store is down this is tried again, for as long as the lease lives.
    async fn follow(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        webhook: &Webhook,
        lease: &LeaseId,
        verdict: Verdict,
    ) {
        let until = Instant::now() + mailbox.rules().lease;
        loop {
            let done = match &verdict {
                Verdict::Answered(lines) => self.answered(mailbox, lease, lines).await,
                Verdict::Begun => self.store_answer(mailbox, lease, &[]).await,
                Verdict::Refused(why) => self.answered(mailbox, lease, &[failed(why)]).await,
                Verdict::Retry { counts, after } => {
                    self.again(mailbox, webhook, lease, *counts, *after).await
                }
                Verdict::Later(at) => {
                    webhook.closed_until.fetch_max(at.as_millis(), Ordering::Relaxed);
                    self.back(mailbox, lease, at.as_millis()).await
                }
                Verdict::Gone => match self.disable(mailbox, webhook).await {
                    Ok(()) => self.back(mailbox, lease, 0).await,
                    Err(error) => Err(error.into()),
                },
            };
            match done {
                Ok(()) => return,
                Err(problem) if problem.reason == Reason::LeaseLost => {
                    tracing::debug!(%lease, "the answer of a webhook came after the end of its lease");
                    return;
                }
                Err(problem) if Instant::now() >= until => {
                    tracing::warn!(%lease, ?problem, "the outcome of a delivery could not be stored; it is repeated");
                    return;
                }
                Err(_) => tokio::time::sleep(STORE_INTERVAL).await,
            }
        }
    }

    /// Stores an answer; one that cannot be stored fails the task.
    async fn answered(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
        lines: &[Line],
    ) -> Result<(), Problem> {
        match self.store_answer(mailbox, lease, lines).await {
            Err(problem) if problem.reason == Reason::TooLarge => {
                let why = "the answer of the webhook is larger than a task may be";
                self.store_answer(mailbox, lease, &[failed(why)]).await
            }
            stored => stored,
        }
    }

    /// Lets a turn be delivered again. A worker that has begun meanwhile keeps it.
    async fn again(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        webhook: &Webhook,
        lease: &LeaseId,
        counts: bool,
        after: Duration,
    ) -> Result<(), Problem> {
        let Some(kept) = self.offered(mailbox, lease).await? else { return Ok(()) };
        if counts && kept.row.attempt >= mailbox.rules().max_attempts {
            let settled = self.settle(mailbox, &kept, Due::Poison).await?;
            return if settled { Ok(()) } else { Err(changed()) };
        }
        let pause = webhook.push.pause_after(kept.row.failures.saturating_add(1)).max(after);
        let at = self.now().saturating_add(millis(pause)).min(kept.row.deadline);
        self.put_off(mailbox, &kept, counts, at).await
    }

    /// Lets a turn wait that was not sent.
    async fn back(&self, mailbox: &Mailbox, lease: &LeaseId, not_before: i64) -> Result<(), Problem> {
        match self.offered(mailbox, lease).await? {
            Some(kept) => self.put_off(mailbox, &kept, false, not_before.min(kept.row.deadline)).await,
            None => Ok(()),
        }
    }

    async fn put_off(&self, mailbox: &Mailbox, kept: &Kept, counts: bool, at: i64) -> Result<(), Problem> {
        let mut row = kept.row.clone();
        row.deliver_later(counts, at);
        if self.book.change(&mailbox.name, kept, row, None).await?.is_none() {
            return Err(changed());
        }
        self.metrics.lease_ended(&mailbox.name, crate::telemetry::LeaseEnd::Returned);
        self.announce_lease(&key(&mailbox.name, kept.turn));
        self.announce(&mailbox.name);
        Ok(())
    }

    /// The row that this lease holds and has not begun.
    async fn offered(&self, mailbox: &Mailbox, lease: &LeaseId) -> Result<Option<Kept>, StoreError> {
        let kept = self.book.turn(&mailbox.name, lease.turn).await?;
        Ok(kept.filter(|kept| kept.row.is_held_by(lease) && kept.row.stage == Stage::Offered))
    }
}

/// A place for a delivery of this mailbox, and one of all; `None` if there are none any more.
async fn places(
    webhook: &Webhook,
    all: &Arc<Semaphore>,
) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
    let own = Arc::clone(&webhook.places).acquire_owned().await.ok()?;
    Some((own, Arc::clone(all).acquire_owned().await.ok()?))
}

fn changed() -> Problem {
    Problem::unavailable("the lease was changed by others at the same time")
}

fn failed(why: &str) -> Line {
    Line::Status(TaskState::Failed, vec![Part::text(why)])
}

const _: () = assert!(MAX_DELIVERIES <= MAX_ALL_DELIVERIES);
