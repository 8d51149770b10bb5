//! Claims: the first free turn of a mailbox goes to a worker, and its message is read from the log of its task.

use std::{borrow::Cow, sync::Arc, time::Duration};

use nuncio_protocol::{Message, Role, Task, TaskStatus};
use nuncio_server::{
    EarlierLimit,
    store::{Projection, StoreError},
};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    memo::TaskMemo,
    problem::Problem,
    registry::{ClaimPermit, Mailbox, Mailboxes},
};
use crate::agents::{
    json_lines::input::{Input, Parts},
    lease::{Due, FIRST_PAGE, Found, Kept, PAGE, Scan, Stage, TurnPage, key},
};

/// Claims of one mailbox that may wait at this hub.
const MAX_WAITING_CLAIMS: usize = 1_000;

/// Growth of the pages that a claim reads, from the first one on.
const PAGE_GROWTH: usize = 4;

/// The longest pause between two looks of a claim that waits: a lease may end meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A worker's claim.
pub(super) struct Claim {
    pub(super) worker: String,
    /// A repeat under the same key gets the same lease.
    pub(super) key: Option<String>,
    /// End the leases that this worker still holds under other keys.
    pub(super) take_over: bool,
    /// The time to wait for a turn.
    pub(super) wait: Duration,
}

/// The answer to a claim: the lease, and the message as a program that writes JSON reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    lease: String,
    generation: u64,
    attempt: u32,
    ttl_seconds: u64,
    resumed: bool,
    have: u64,
    cancel: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    memo: Option<&'a Value>,
    repeat_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hops: &'a [String],
    #[serde(flatten)]
    input: Input<'a>,
}

/// A turn that was handed out, encoded for its worker.
pub(super) struct Handed {
    pub(super) json: Vec<u8>,
    pub(super) traceparent: Option<String>,
}

impl Mailboxes {
    /// Hands a turn to the worker; waits for one if there is none.
    pub(super) async fn claim(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        claim: &Claim,
    ) -> Result<Option<Handed>, Problem> {
        let Some(_permit) = ClaimPermit::take(mailbox, MAX_WAITING_CLAIMS) else {
            return Err(Problem::unavailable("too many workers wait at this mailbox; try again"));
        };
        mailbox.saw(&claim.worker);
        if claim.take_over {
            self.take_over(mailbox, claim).await?;
        }
        let until = Instant::now() + claim.wait;
        let wake = self.wakes.listen(&mailbox.name);
        loop {
            let changed = wake.changed();
            while let Some(kept) = self.next(mailbox, claim).await? {
                if let Some(handed) = self.hand(mailbox, &kept).await? {
                    return Ok(Some(handed));
                }
            }
            if Instant::now() >= until || !mailbox.is_open() {
                return Ok(None);
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_INTERVAL)) => {}
            }
        }
    }

    /// The turn that this claim got before, or the first free one, which it gets now.
    async fn next(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        claim: &Claim,
    ) -> Result<Option<Kept>, StoreError> {
        let name = &*mailbox.name;
        // Of the workers of this hub one looks at a time; those of other hubs are kept apart by versions.
        let _alone = mailbox.claiming.lock().await;
        if let Some(claim_key) = &claim.key
            && let Some(turn) = self.book.claimed(name, claim_key).await?
            && let Some(kept) = self.book.turn(name, turn).await?
            && kept.row.stage != Stage::Waiting
            && kept.row.claim.as_ref() == Some(claim_key)
        {
            return Ok(Some(kept));
        }
        let rules = mailbox.rules();
        let mut scan = Scan::new(rules.serial);
        let (mut after, mut limit) = (None, FIRST_PAGE);
        loop {
            let TurnPage { turns, next } = self.book.page(name, after, limit).await?;
            for kept in turns {
                let now = self.now();
                let mut row = kept.row.clone();
                match row.due(&rules, now, self.grace(&rules)) {
                    None => {}
                    Some(Due::Return) => row.put_back(&rules, now),
                    Some(due @ (Due::Unclaimed | Due::Lost | Due::Poison)) => {
                        self.settle_later(mailbox, kept.clone(), due);
                    }
                }
                if scan.next(&row) == Found::Busy || row.due(&rules, now, self.grace(&rules)).is_some() {
                    continue;
                }
                let was_held = kept.row.stage != Stage::Waiting;
                row.offer(&claim.worker, claim.key.as_deref(), &rules, now);
                if let Some(kept) = self.book.change(name, &kept, row, claim.key.as_deref()).await? {
                    if was_held {
                        self.announce_lease(&key(name, kept.turn));
                    }
                    self.metrics.lease_offered(name);
                    return Ok(Some(kept));
                }
            }
            if next.is_none() {
                return Ok(None);
            }
            // Few leases are before the first free turn, unless there are many workers.
            (after, limit) = (next, (limit * PAGE_GROWTH).min(PAGE));
        }
    }

    /// Ends the leases that a worker of this name holds under other keys, as if they had expired.
    async fn take_over(self: &Arc<Self>, mailbox: &Arc<Mailbox>, claim: &Claim) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.book.page(&mailbox.name, after, PAGE).await?;
            after = page.next;
            for kept in page.turns {
                let is_own = kept.row.stage != Stage::Waiting
                    && kept.row.holder.as_ref() == Some(&claim.worker)
                    && (claim.key.is_none() || kept.row.claim != claim.key);
                if is_own {
                    self.end_lease(mailbox, &kept).await?;
                }
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Encodes a turn for its worker; `None` if its task has ended, and then its row is gone as well.
    async fn hand(&self, mailbox: &Mailbox, kept: &Kept) -> Result<Option<Handed>, Problem> {
        let (name, row, store) = (&*mailbox.name, &kept.row, self.book.store());
        let scope = Arc::new(row.owner.scope(name));
        let stored = store.task(&scope, &row.task).await?;
        let message = stored.as_ref().and_then(|stored| message(&stored.task, row.message));
        let (Some(stored), Some(message)) = (&stored, message) else {
            self.drop_row(mailbox, kept).await?;
            return Ok(None);
        };
        let mut task = Cow::Borrowed(&stored.task);
        if task.status.state.is_terminal() {
            self.drop_row(mailbox, kept).await?;
            return Ok(None);
        }
        if let Some(state) = row.rest {
            // As an agent of any kind sees it that is asked on: its question is in the history, and no question anew.
            task.to_mut().status = TaskStatus { state, message: None, ..stored.task.status.clone() };
        }
        let Some(runtime) = mailbox.runtime() else { return Err(gone(name)) };
        let earlier = runtime
            .earlier(&scope, &row.context, &row.task, EarlierLimit::default())
            .await
            .map_err(|error| Problem::of_write(&error))?;
        let mut references = Vec::new();
        for id in &message.reference_task_ids {
            references.extend(store.shown(&scope, id, Projection::WHOLE).await?);
        }
        let call = self.book.call(name, kept).await?;
        let memo = TaskMemo::read(stored.memo.as_deref()).memo;
        let memo = match &row.memo {
            Some(new) => new.value.as_ref(),
            None => memo.as_ref(),
        };
        let caller = row.owner.caller();
        let is_new = row.message == 1 && !row.resumed;
        let parts = Parts {
            agent: name,
            caller: &caller,
            task_id: &row.task,
            context_id: &row.context,
            message,
            task: (!is_new).then_some(&*task),
            references: &references,
            earlier: &earlier,
            accepted_output_modes: &call.accepted_output_modes,
            metadata: &call.metadata,
        };
        let trace = row.trace.as_ref();
        let answer = Answer {
            lease: kept.lease().to_string(),
            generation: row.generation,
            attempt: row.attempt,
            ttl_seconds: mailbox.rules().lease.as_secs(),
            resumed: row.resumed,
            have: row.have,
            cancel: row.canceled,
            memo,
            repeat_id: &row.repeat,
            traceparent: trace.map(|trace| &*trace.parent),
            tracestate: trace.and_then(|trace| trace.state.as_deref()),
            hops: trace.map_or(&[][..], |trace| &trace.hops),
            input: parts.translate(&self.contexts),
        };
        let json = serde_json::to_vec(&answer).map_err(StoreError::broken)?;
        Ok(Some(Handed { json, traceparent: trace.map(|trace| trace.parent.clone()) }))
    }

    /// Deletes the row of a turn whose task has ended or is gone.
    pub(super) async fn drop_row(&self, mailbox: &Mailbox, kept: &Kept) -> Result<(), StoreError> {
        if self.book.delete(&mailbox.name, kept).await? {
            mailbox.count(-1);
            self.announce_lease(&key(&mailbox.name, kept.turn));
        }
        Ok(())
    }
}

/// The message of a caller with this number.
fn message(task: &Task, number: usize) -> Option<&Message> {
    let mut said = task.history.iter().filter(|message| message.role == Role::User);
    said.nth(number.checked_sub(1)?).map(|message| &**message)
}

/// The refusal of a mailbox that is not served any more.
pub(super) fn gone(name: &str) -> Problem {
    Problem::unavailable(format!("the mailbox {name} is not served by this hub now; try again"))
}
