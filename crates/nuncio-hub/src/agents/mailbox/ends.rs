//! Ends waits and leases that expire, and leases that are taken over.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{ErrorKind, Message, Metadata, Part, Result, TaskState, Timestamp};
use nuncio_server::{
    Emitter,
    store::{Heard, StoreError},
};
use tokio::time::Instant;

use super::{
    card,
    executor::status,
    memo::TaskMemo,
    registry::{Mailbox, Mailboxes},
};
use crate::{
    agents::{
        hex::random_hex,
        lease::{Book, Due, Kept, PAGE, Poison, Stage, changes, key},
    },
    clock,
    telemetry::LeaseEnd,
};

/// The shortest pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The longest one.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Pauses are at least this many times as long as the sweep before, so that large mailboxes cost little.
const SWEEP_SHARE: u32 = 30;

/// The time for which claims and ends of leases are remembered for repeats.
const REPEAT_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The interval at which older ones are forgotten.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10 * 60);

impl Mailboxes {
    /// Ends a lease as if it had expired; true if this call has ended it.
    pub(super) async fn end_lease(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        kept: &Kept,
    ) -> std::result::Result<bool, StoreError> {
        let due = kept.row.after_lease(&mailbox.rules());
        self.settle(mailbox, kept, due).await
    }

    /// Does what is due for a turn; false if another was faster, or the task cannot be written now.
    pub(super) async fn settle(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        kept: &Kept,
        due: Due,
    ) -> std::result::Result<bool, StoreError> {
        let name = &*mailbox.name;
        let reason = match due {
            Due::Return => return self.put_back(mailbox, kept).await,
            Due::Unclaimed => {
                let until = Timestamp::from_millis(kept.row.deadline).unwrap_or(Timestamp::MAX);
                format!("no worker of {name} took it until {until}")
            }
            Due::Lost => {
                "the worker was lost after it had begun; the work may have been done in part".to_owned()
            }
            Due::Poison => {
                format!("it was offered to workers {} times, and none has finished it", kept.row.attempt)
            }
        };
        let Some(runtime) = mailbox.runtime() else { return Ok(false) };
        let scope = Arc::new(kept.row.owner.scope(name));
        let out = match runtime.write_to(&scope, &kept.row.task).await {
            Ok(out) => out,
            Err(error)
                if matches!(error.kind(), ErrorKind::TaskNotFound | ErrorKind::UnsupportedOperation) =>
            {
                self.drop_row(mailbox, kept).await?;
                return Ok(true);
            }
            Err(error) => {
                tracing::debug!(task = %kept.row.task, %error, "a turn cannot be ended now");
                return Ok(false);
            }
        };
        let row_key = key(name, kept.turn);
        match give_up(&self.book, mailbox, &out, kept, due, reason).await {
            Ok(gone) => {
                mailbox.count(-gone);
                tracing::info!(mailbox = name, task = %kept.row.task, ?due, "a turn of a mailbox was given up");
                self.metrics.lease_ended(name, due.into());
                self.announce_lease(&row_key);
                self.announce(name);
                Ok(true)
            }
            Err(error) => {
                tracing::debug!(task = %kept.row.task, %error, "a turn was changed by others meanwhile");
                Ok(false)
            }
        }
    }

    /// Lets a turn wait again.
    async fn put_back(&self, mailbox: &Mailbox, kept: &Kept) -> std::result::Result<bool, StoreError> {
        let name = &*mailbox.name;
        let mut row = kept.row.clone();
        row.put_back(&mailbox.rules(), self.now());
        if self.book.change(name, kept, row, None).await?.is_none() {
            return Ok(false);
        }
        if kept.row.stage != Stage::Waiting {
            self.metrics.lease_ended(name, LeaseEnd::Returned);
        }
        self.announce_lease(&key(name, kept.turn));
        self.announce(name);
        Ok(true)
    }

    /// Does what is due beside the caller's work.
    pub(super) fn settle_later(self: &Arc<Self>, mailbox: &Arc<Mailbox>, kept: Kept, due: Due) {
        let (mailboxes, mailbox) = (Arc::clone(self), Arc::clone(mailbox));
        tokio::spawn(async move {
            if let Err(error) = mailboxes.settle(&mailbox, &kept, due).await {
                tracing::debug!(%error, "a turn of a mailbox could not be ended");
            }
        });
    }

    /// Ends waits and leases that are over, counts turns, and wakes claims and heartbeats of this hub when another
    /// hub has changed something. Never returns.
    pub(crate) async fn work(self: Arc<Self>) -> std::convert::Infallible {
        let hear = async {
            let store = self.book.store();
            if !store.is_shared() {
                return std::future::pending().await;
            }
            let mut signals = store.signals().subscribe(changes());
            loop {
                match signals.next().await {
                    Heard::Keys(names) => names.iter().for_each(|name| self.wakes.wake(name)),
                    Heard::Everything => self.wakes.wake_all(),
                }
            }
        };
        let hear_of_cards = async {
            let store = self.book.store();
            if !store.is_shared() {
                return std::future::pending().await;
            }
            let mut signals = store.signals().subscribe(card::changes());
            loop {
                let heard = signals.next().await;
                for mailbox in self.all().iter().filter(|mailbox| heard.concerns(&mailbox.name)) {
                    if let Err(error) = card::show(&self, mailbox).await {
                        tracing::debug!(%error, "a card that was put at another hub cannot be read");
                    }
                }
            }
        };
        let sweep = async {
            let mut pruned = None::<Instant>;
            loop {
                let begun = Instant::now();
                for mailbox in self.all() {
                    if let Err(error) = self.sweep(&mailbox).await {
                        tracing::warn!(mailbox = &*mailbox.name, %error, "a mailbox could not be swept; trying again");
                    }
                }
                if pruned.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL) {
                    pruned = Some(Instant::now());
                    let before = clock::earlier(clock::now(), REPEAT_WINDOW);
                    if let Err(error) = self.book.prune(before).await {
                        tracing::warn!(%error, "old claims of mailboxes cannot be removed");
                    }
                }
                let pause = begun.elapsed() * SWEEP_SHARE;
                tokio::time::sleep(pause.clamp(SWEEP_INTERVAL, MAX_SWEEP_INTERVAL)).await;
            }
        };
        tokio::select! {
            never = hear => never,
            never = hear_of_cards => never,
            never = sweep => never,
            never = self.deliver_for_all() => never,
        }
    }

    /// Looks at every turn of a mailbox once.
    pub(super) async fn sweep(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
    ) -> std::result::Result<(), StoreError> {
        let rules = mailbox.rules();
        let (mut level, mut after) = (Level::default(), None);
        loop {
            let page = self.book.page(&mailbox.name, after, PAGE).await?;
            after = page.next;
            for kept in page.turns {
                level.add(&kept);
                if let Some(due) = kept.row.due(&rules, self.now(), self.grace(&rules)) {
                    self.settle(mailbox, &kept, due).await?;
                }
            }
            if after.is_none() {
                break;
            }
        }
        if mailbox.webhook.is_some() {
            self.metrics.webhook_gone(&mailbox.name, self.gone_since(mailbox).await?.is_some());
        }
        mailbox.counted(level.waiting + level.leased);
        self.metrics.mailbox(&mailbox.name, level.waiting, level.leased, level.oldest_age(self.now()));
        Ok(())
    }
}

/// Fails the task and takes its turns out of the mailbox, in one transaction; returns their number.
async fn give_up(
    book: &Book,
    mailbox: &Mailbox,
    out: &Emitter,
    kept: &Kept,
    due: Due,
    reason: String,
) -> Result<isize> {
    let (name, row) = (&*mailbox.name, &kept.row);
    let memo = TaskMemo::read(out.memo().as_deref());
    let mut records = Book::delete_with(name, kept);
    records.extend(book.delete_others(name, &memo.turns, kept.turn).await?);
    if due == Due::Poison {
        let (owner, task, holder) = (row.owner.clone(), row.task.clone(), row.holder.clone());
        let poison = Poison { owner, task, attempts: row.attempt, holder };
        records.push(Book::put_poison(name, kept.turn, &poison)?);
    }
    let message = Message {
        task_id: Some(out.task_id().clone()),
        context_id: Some(out.context_id().clone()),
        ..Message::agent(random_hex::<16>(), vec![Part::text(reason)])
    };
    out.emit_with(status(TaskState::Failed, Some(message), Metadata::new()), records, None).await?;
    out.flush().await?;
    Ok(memo.turns.len().max(1).cast_signed())
}

impl From<Due> for LeaseEnd {
    fn from(due: Due) -> Self {
        match due {
            Due::Unclaimed => Self::Unclaimed,
            Due::Return => Self::Returned,
            Due::Lost => Self::Lost,
            Due::Poison => Self::Poison,
        }
    }
}

/// The turns of a mailbox as a sweep has seen them.
#[derive(Default)]
struct Level {
    waiting: usize,
    leased: usize,
    oldest: Option<i64>,
}

impl Level {
    fn add(&mut self, kept: &Kept) {
        if kept.row.stage == Stage::Waiting {
            self.waiting += 1;
            self.oldest.get_or_insert(kept.row.arrived);
        } else {
            self.leased += 1;
        }
    }

    /// The age of the oldest turn that waits.
    fn oldest_age(&self, now: i64) -> Duration {
        let age = self.oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        Duration::from_millis(u64::try_from(age).unwrap_or_default())
    }
}
