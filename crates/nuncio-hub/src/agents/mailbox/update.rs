//! The calls of the holder of a lease: lines, heartbeats, and the return of the turn.
//!
//! Every line is one transaction: the entry in the log of the task, and the row with the number of the line. The row
//! is written only over the version that was read, so that a lease which is over writes nothing.

use std::{borrow::Cow, sync::Arc, time::Duration};

use nuncio_protocol::{
    Artifact, ErrorKind, Event, Message, Metadata, Part, TaskArtifactUpdateEvent, TaskId, TaskState,
};
use nuncio_server::{
    Emitter,
    store::{Expect, Scope, StoreError},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    WAITS_FOR, WORKER,
    claim::gone,
    executor::status,
    lines::{self, Line, WrongLine},
    memo::TaskMemo,
    problem::{Problem, Reason},
    registry::{Mailbox, Mailboxes},
};
use crate::{
    agents::{
        hex::random_hex,
        lease::{Book, Kept, LeaseId, NewMemo, Stage, Tombstone, TurnId, TurnRow, key},
    },
    telemetry::LeaseEnd,
};

/// Attempts of a change that conflicts with another.
const MAX_ATTEMPTS: u32 = 8;

/// The first pause after a conflict.
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// Interval of looks of a heartbeat that waits, beside the signals about its lease.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The name of the artifact with a worker's plain text.
const TEXT_NAME: &str = "output";

/// The beginning of the names of metadata that the hub writes.
const HUB_METADATA: &str = "nuncio.";

/// Lines of one lease.
const MAX_LINES: u64 = 1_000_000;

/// The state of a lease, as its holder learns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    have: u64,
    cancel: bool,
    waiting: usize,
    ttl_seconds: u64,
    done: bool,
}

/// The reason why lines were not stored.
enum Unwritten {
    /// Another writer came first: read the row again.
    Changed,
    /// For good, or until the hub can write again.
    Problem(Problem),
}

impl From<Problem> for Unwritten {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for Unwritten {
    fn from(error: StoreError) -> Self {
        Self::Problem(error.into())
    }
}

impl From<nuncio_protocol::Error> for Unwritten {
    fn from(error: nuncio_protocol::Error) -> Self {
        match error.kind() {
            // The copy of the task was out of date, or the row was: both show when they are read again.
            ErrorKind::Unavailable => Self::Changed,
            _ => Self::Problem(Problem::of_write(&error)),
        }
    }
}

impl Mailboxes {
    /// Stores the lines of a worker, of which the first has this number. Lines that are stored already are dropped.
    #[cfg(test)]
    pub(super) async fn update(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
        first: u64,
        body: &[u8],
    ) -> Result<Progress, Problem> {
        self.write_lines(mailbox, lease, first, &lines::parse(body)).await
    }

    /// The same for lines that are parsed already.
    pub(super) async fn write_lines(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
        first: u64,
        lines: &Result<Vec<Line>, WrongLine>,
    ) -> Result<Progress, Problem> {
        for attempt in 1..=MAX_ATTEMPTS {
            let kept = match self.held(mailbox, lease).await? {
                Held::Yes(kept) => *kept,
                Held::Done(done) => return finished(done, first, lines.as_deref().unwrap_or_default()),
            };
            let have = kept.row.have;
            let lines = match lines {
                Ok(lines) => lines,
                Err(wrong) => {
                    let number = first.saturating_add(wrong.at);
                    let why = format!("line {number} {}", wrong.why);
                    return Err(Problem::invalid_line(number, have, why));
                }
            };
            if first > have + 1 {
                return Err(Problem::gap(first, have));
            }
            let known = usize::try_from(have + 1 - first).unwrap_or(usize::MAX);
            let new = lines.get(known..).unwrap_or_default();
            if have.saturating_add(new.len() as u64) > MAX_LINES {
                return Err(Problem::invalid_line(have, have, format!("a lease may have {MAX_LINES} lines")));
            }
            let written = match new {
                [] => {
                    self.renew(mailbox, &kept).await?.map(|kept| (kept.row, false)).ok_or(Unwritten::Changed)
                }
                new => self.write(mailbox, &kept, new, Spoken::Lines).await,
            };
            match written {
                Ok((row, done)) => return self.progress(mailbox, &row, done).await,
                // Another server may be at work on the task for a moment.
                Err(Unwritten::Changed) => tokio::time::sleep(CONFLICT_PAUSE * attempt).await,
                Err(Unwritten::Problem(problem)) => return Err(problem),
            }
        }
        Err(Problem::unavailable(
            "the task or the lease is changed by others at the same time; send the lines again",
        ))
    }

    /// Renews a lease, and answers when its wait is over, or as soon as there is something to tell.
    pub(super) async fn heartbeat(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
        wait: Duration,
    ) -> Result<Progress, Problem> {
        let row_key = key(&mailbox.name, lease.turn);
        let wake = self.wakes.listen(&row_key);
        // A wait must not outlive the lease that it renews.
        let until = Instant::now() + wait.min(mailbox.rules().lease / 2);
        let mut renewed = false;
        loop {
            let changed = wake.changed();
            let mut kept = match self.held(mailbox, lease).await? {
                Held::Yes(kept) => *kept,
                Held::Done(_) => return Err(Problem::lease_lost()),
            };
            if !renewed {
                match self.renew(mailbox, &kept).await? {
                    Some(now) => kept = now,
                    None => continue,
                }
                renewed = true;
            }
            if kept.row.canceled || Instant::now() >= until || !mailbox.is_open() {
                return self.progress(mailbox, &kept.row, false).await;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_INTERVAL)) => {}
            }
        }
    }

    /// Takes a turn back from its worker, which has not begun, or stops because of a cancel.
    pub(super) async fn release(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
    ) -> Result<(), Problem> {
        for _ in 0..MAX_ATTEMPTS {
            let Held::Yes(kept) = self.held(mailbox, lease).await? else { return Err(Problem::lease_lost()) };
            let kept = *kept;
            if kept.row.canceled {
                self.drop_row(mailbox, &kept).await?;
                return Ok(());
            }
            if kept.row.stage == Stage::Begun {
                let why = "the lease has begun, and its turn is not given to another; end it by a line";
                return Err(Problem::new(Reason::Begun, why));
            }
            let mut row = kept.row.clone();
            row.hand_back(&mailbox.rules(), self.now());
            if self.book.change(&mailbox.name, &kept, row, None).await?.is_some() {
                self.announce(&mailbox.name);
                return Ok(());
            }
        }
        Err(Problem::unavailable("the lease was changed by others at the same time; try again"))
    }

    /// The row that the lease holds, or its end.
    async fn held(&self, mailbox: &Mailbox, lease: &LeaseId) -> Result<Held, Problem> {
        if let Some(kept) = self.book.turn(&mailbox.name, lease.turn).await? {
            if let Some(holder) = kept.row.holder.as_ref().filter(|_| kept.row.is_held_by(lease)) {
                mailbox.saw(holder);
                return Ok(Held::Yes(Box::new(kept)));
            }
            return Err(Problem::lease_lost());
        }
        let done = self.book.done(&mailbox.name, lease.turn).await?;
        done.filter(|done| done.generation == lease.generation)
            .map(Held::Done)
            .ok_or_else(Problem::lease_lost)
    }

    /// Stores the answer that a webhook has given to its delivery, after the lines that it has written before; without
    /// lines, that it has begun.
    pub(super) async fn store_answer(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        lease: &LeaseId,
        lines: &[Line],
    ) -> Result<(), Problem> {
        let spoken = if lines.is_empty() { Spoken::Lines } else { Spoken::Answer };
        for attempt in 1..=MAX_ATTEMPTS {
            let Held::Yes(kept) = self.held(mailbox, lease).await? else { return Err(Problem::lease_lost()) };
            if lines.is_empty() && kept.row.stage == Stage::Begun {
                return Ok(());
            }
            match self.write(mailbox, &kept, lines, spoken).await {
                Ok(_) => return Ok(()),
                Err(Unwritten::Changed) => tokio::time::sleep(CONFLICT_PAUSE * attempt).await,
                Err(Unwritten::Problem(problem)) => return Err(problem),
            }
        }
        Err(Problem::unavailable("the lease was changed by others at the same time"))
    }

    /// Lets the lease go on; `None` if another writer came first.
    async fn renew(&self, mailbox: &Mailbox, kept: &Kept) -> Result<Option<Kept>, StoreError> {
        let mut row = kept.row.clone();
        row.renew(&mailbox.rules(), self.now());
        self.book.change(&mailbox.name, kept, row, None).await
    }

    async fn progress(&self, mailbox: &Mailbox, row: &TurnRow, done: bool) -> Result<Progress, Problem> {
        let waiting = match done {
            true => 0,
            false => self.behind(mailbox, row).await?,
        };
        let ttl_seconds = mailbox.rules().lease.as_secs();
        Ok(Progress { have: row.have, cancel: row.canceled, waiting, ttl_seconds, done })
    }

    /// The number of messages to the same task that wait behind this turn.
    async fn behind(&self, mailbox: &Mailbox, row: &TurnRow) -> Result<usize, StoreError> {
        let scope = row.owner.scope(&mailbox.name);
        Ok(self.memo_of(&scope, &row.task).await?.turns.len().saturating_sub(1))
    }

    /// Writes lines, each with the row that has its number. Returns the row after them, and whether the turn is over.
    async fn write(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        kept: &Kept,
        new: &[Line],
        spoken: Spoken,
    ) -> Result<(TurnRow, bool), Unwritten> {
        let name = &*mailbox.name;
        if spoken == Spoken::Lines
            && kept.row.stage == Stage::Begun
            && new.iter().all(|line| matches!(line, Line::Memo(_)))
        {
            let mut row = kept.row.clone();
            row.renew(&mailbox.rules(), self.now());
            for line in new {
                if let Line::Memo(memo) = line {
                    take_memo(&mut row, memo);
                }
            }
            let changed = self.book.change(name, kept, row, None).await?;
            return changed.map(|kept| (kept.row, false)).ok_or(Unwritten::Changed);
        }
        let runtime = mailbox.runtime().ok_or_else(|| gone(name))?;
        let scope = Arc::new(kept.row.owner.scope(name));
        let out = match runtime.write_to(&scope, &kept.row.task).await {
            Ok(out) => out,
            Err(error)
                if matches!(error.kind(), ErrorKind::TaskNotFound | ErrorKind::UnsupportedOperation) =>
            {
                self.drop_row(mailbox, kept).await?;
                return Err(Problem::lease_lost().into());
            }
            // Unavailable: another hub is at work on the task, for a moment.
            Err(error) => return Err(error.into()),
        };
        let mut row = kept.row.clone();
        row.answered |= spoken == Spoken::Answer;
        row.renew(&mailbox.rules(), self.now());
        let mut entries = Entries { mailbox, out: &out, turn: kept.turn, version: kept.version };
        let mut rest = new;
        if row.stage == Stage::Offered {
            row.stage = Stage::Begun;
            // The time of a webhook that has begun is another one.
            row.renew(&mailbox.rules(), self.now());
            while let [Line::Memo(memo), others @ ..] = rest {
                take_memo(&mut row, memo);
                rest = others;
            }
            entries.put(&row, begun(&row)).await?;
        }
        // A memo goes with the next entry.
        let mut memo_waits = false;
        while let Some(line) = rest.first() {
            if let Some((text, last, count)) = lines::joined(rest) {
                rest = rest.get(count..).unwrap_or_default();
                let piece = text_piece(kept, &row, text, last);
                row.have += count as u64;
                row.open_text = !last;
                entries.put(&row, piece).await?;
                memo_waits = false;
                continue;
            }
            rest = rest.get(1..).unwrap_or_default();
            let event = match line {
                Line::Memo(memo) => {
                    take_memo(&mut row, memo);
                    memo_waits = true;
                    continue;
                }
                Line::Status(state, parts) => said_status(*state, parts, &out),
                Line::Event(event) => own(event, &out),
                // Taken by `joined`.
                Line::Text { .. } => continue,
            };
            if line.settles() {
                if row.open_text {
                    let piece = text_piece(kept, &row, String::new(), true);
                    let closed = TurnRow { open_text: false, ..row.clone() };
                    // The number of the last line is stored with that line.
                    match entries.put(&closed, piece).await {
                        Ok(()) => row = closed,
                        // A task that has reached its limit takes its end only.
                        Err(Unwritten::Problem(problem)) if problem.reason == Reason::TooLarge => {}
                        Err(error) => return Err(error),
                    }
                }
                row.have += 1;
                self.finish(&entries, &row, event).await?;
                return Ok((row, true));
            }
            row.have += 1;
            entries.put(&row, event).await?;
            memo_waits = false;
        }
        out.flush().await?;
        if memo_waits {
            let kept = Kept { turn: kept.turn, row: row.clone(), version: entries.version };
            let changed = self.book.change(name, &kept, row, None).await?;
            return changed.map(|kept| (kept.row, false)).ok_or(Unwritten::Changed);
        }
        Ok((row, false))
    }

    /// Writes the last line of a turn: the row goes, and the end of the lease is remembered.
    async fn finish(&self, entries: &Entries<'_>, row: &TurnRow, event: Event) -> Result<(), Unwritten> {
        let Entries { mailbox, out, turn, version } = *entries;
        let name = &*mailbox.name;
        let memo = TaskMemo::read(out.memo().as_deref());
        let mut records = Book::delete_with(name, &Kept { turn, row: row.clone(), version });
        let (mut gone, mut memo_after) = (1, None);
        if event.status().is_some_and(|status| status.state.is_terminal()) {
            gone = memo.turns.len().max(1).cast_signed();
            records.extend(self.book.delete_others(name, &memo.turns, turn).await?);
        } else {
            let left = match row.memo.clone() {
                Some(new) => new.value,
                None => memo.memo.clone(),
            };
            memo_after = Some(memo.without(turn, left).encode()?.into());
        }
        let done = Tombstone { generation: row.generation, have: row.have };
        records.push(Book::put_done(name, turn, done)?);
        out.emit_with(event, records, memo_after).await?;
        out.flush().await?;
        mailbox.count(-gone);
        self.metrics.lease_ended(name, LeaseEnd::Done);
        self.announce(name);
        self.announce_lease(&key(name, turn));
        Ok(())
    }

    /// The memo of a task.
    pub(super) async fn memo_of(&self, scope: &Scope, task: &TaskId) -> Result<TaskMemo, StoreError> {
        let stored = self.book.store().task(scope, task).await?;
        Ok(TaskMemo::read(stored.as_ref().and_then(|stored| stored.memo.as_deref())))
    }
}

/// The way in which lines came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spoken {
    /// A worker has written them, with numbers.
    Lines,
    /// They are the answer of a webhook to its delivery: if it cannot be stored whole, it is asked for again.
    Answer,
}

/// The holder of a turn, for a lease.
enum Held {
    Yes(Box<Kept>),
    /// The lease has said its last line.
    Done(Tombstone),
}

/// The answer to a repeat of the last lines of a turn.
fn finished(done: Tombstone, first: u64, lines: &[Line]) -> Result<Progress, Problem> {
    let last = first.saturating_sub(1).saturating_add(lines.len() as u64);
    if last > done.have {
        return Err(Problem::lease_lost());
    }
    Ok(Progress { have: done.have, cancel: false, waiting: 0, ttl_seconds: 0, done: true })
}

fn take_memo(row: &mut TurnRow, memo: &Value) {
    row.memo = Some(NewMemo { value: Some(memo.clone()).filter(|memo| !memo.is_null()) });
    row.have += 1;
}

/// The entries of one call, each with a row of the next version.
struct Entries<'a> {
    mailbox: &'a Mailbox,
    out: &'a Emitter,
    turn: TurnId,
    version: u64,
}

impl Entries<'_> {
    /// Writes an event together with the row.
    async fn put(&mut self, row: &TurnRow, event: Event) -> Result<(), Unwritten> {
        let record = Book::put(&self.mailbox.name, self.turn, row, Expect::Version(self.version))?;
        self.out.emit_with(event, vec![record], None).await?;
        self.version += 1;
        Ok(())
    }
}

/// The status of a task whose worker has begun.
fn begun(row: &TurnRow) -> Event {
    let worker = json!({ "name": row.holder, "generation": row.generation });
    let metadata = Metadata::from_iter([(WORKER, worker), (WAITS_FOR, Value::Null)]);
    status(TaskState::Working, None, metadata)
}

/// A piece of the artifact with plain text. The text of an earlier lease of the turn is replaced.
fn text_piece(kept: &Kept, row: &TurnRow, text: String, last: bool) -> Event {
    let artifact = Artifact::new(format!("text-{}", kept.turn), Part::text(text)).with_name(TEXT_NAME);
    Event::ArtifactUpdate(TaskArtifactUpdateEvent {
        artifact: Arc::new(artifact),
        append: row.open_text,
        last_chunk: last,
        joins: true,
        ..TaskArtifactUpdateEvent::default()
    })
}

/// A status of a worker in few words.
fn said_status(state: TaskState, parts: &[Part], out: &Emitter) -> Event {
    let message = (!parts.is_empty()).then(|| Message::agent(random_hex::<16>(), parts.to_vec()));
    own(&status(state, message, Metadata::new()), out)
}

/// An event of a worker, whose message gets the ids of the task. The emitter sets those of the event. Metadata of the
/// hub's is for the hub to write.
fn own(event: &Event, out: &Emitter) -> Event {
    let mut event = event.clone();
    if let Event::StatusUpdate(update) = &mut event {
        let reserved = |name: &str| name.starts_with(HUB_METADATA);
        let forged: Vec<String> =
            update.metadata.keys().filter(|name| reserved(name)).map(Cow::into_owned).collect();
        for name in forged {
            update.metadata.remove(&name);
        }
        if let Some(message) = &mut update.status.message {
            let message = Arc::make_mut(message);
            message.task_id = Some(out.task_id().clone());
            message.context_id = Some(out.context_id().clone());
        }
    }
    event
}
