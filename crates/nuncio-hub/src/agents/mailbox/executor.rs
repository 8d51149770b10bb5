//! The executor of a mailbox: a message becomes a row, and its task waits in nobody's hands.
//!
//! Row and first status are one transaction, so the executor may be asked again after a crash: either both are there,
//! and the task is parked, or neither is.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{
    Error, ErrorKind, Event, Message, Metadata, Part, Result, Role, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use nuncio_server::{
    Emitter, ExecContext, Executor,
    store::{Expect, Scope, StoreError},
};
use serde_json::json;

use super::{
    WAITS_FOR,
    memo::TaskMemo,
    registry::{Fullness, Mailbox, Mailboxes},
};
use crate::agents::{
    hex::random_hex,
    lease::{Book, CallData, Owner, Stage, Trace, TurnId, TurnRow, key, millis},
};

/// `Retry-After` of a mailbox that is full.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The time for which the worker of a canceled task may stop by itself. Less than the grace of the runtime.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// The grace of the runtime for a canceled task.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(8);

/// Interval of looks at a canceled turn, beside the signals about it.
const CANCEL_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The executor of a mailbox.
pub(super) struct MailboxExecutor {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) mailboxes: Arc<Mailboxes>,
}

#[async_trait]
impl Executor for MailboxExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let Self { mailbox, mailboxes } = self;
        let passage = match mailbox.hop.pass(&cx.call.hops) {
            Ok(passage) => passage,
            Err(error) => return out.refuse(error),
        };
        if !mailboxes.admits(mailbox).await? {
            let why =
                format!("the mailbox {} is full: its workers are behind; try again later", mailbox.name);
            return out
                .refuse(Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(FULL_RETRY_AFTER));
        }
        let turn = TurnId::now();
        let trace = passage.trace(cx.call.trace.as_ref());
        let trace = Trace { parent: trace.parent, state: trace.state, hops: passage.hops };
        let call = CallData {
            accepted_output_modes: cx.configuration.accepted_output_modes.clone(),
            metadata: cx.metadata.clone(),
        };
        let now = mailboxes.now();
        let row = TurnRow {
            owner: owner(&cx, out.scope()),
            task: cx.task_id.clone(),
            context: cx.context_id.clone(),
            message: message_number(&cx),
            repeat: cx.repeat_id.as_deref().map_or_else(|| turn.to_string(), str::to_owned),
            stage: Stage::Waiting,
            arrived: now,
            deadline: now.saturating_add(millis(mailbox.settings.load().wait)),
            generation: 0,
            attempt: 0,
            holder: None,
            claim: None,
            expires: 0,
            rest: cx.task.as_ref().map(|task| task.status.state).filter(|state| state.is_interrupted()),
            have: 0,
            open_text: false,
            resumed: false,
            canceled: false,
            memo: None,
            trace: Some(trace),
            has_call: !call.is_empty(),
        };
        let mut memo = TaskMemo::read(out.memo().as_deref());
        memo.turns.push(turn);
        let mut records = vec![Book::put(&mailbox.name, turn, &row, Expect::Absent)?];
        if row.has_call {
            records.push(Book::put_call(&mailbox.name, turn, &call)?);
        }
        let event = waiting(&cx, &out, &mailbox.name, row.deadline);
        out.park()?;
        out.emit_with(event, records, Some(memo.encode()?.into())).await?;
        out.flush().await?;
        mailbox.count(1);
        mailboxes.announce(&mailbox.name);
        Ok(())
    }

    /// Takes the turns of the task back. A worker that has begun is told, and may stop by itself for a while.
    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        for turn in TaskMemo::read(cx.memo.as_deref()).turns {
            self.withdraw(turn).await?;
        }
        Ok(())
    }

    fn is_idempotent(&self) -> bool {
        true
    }
}

impl MailboxExecutor {
    /// Takes a turn out of the mailbox, after its worker has stopped or its time is over.
    async fn withdraw(&self, turn: TurnId) -> Result<()> {
        let name = &*self.mailbox.name;
        let row_key = key(name, turn);
        let wake = self.mailboxes.wakes.listen(&row_key);
        let until = tokio::time::Instant::now() + CANCEL_WAIT;
        loop {
            let changed = wake.changed();
            let Some(kept) = self.mailboxes.book.turn(name, turn).await? else { return Ok(()) };
            let may_stop_by_itself = kept.row.stage == Stage::Begun && tokio::time::Instant::now() < until;
            if !may_stop_by_itself {
                if self.mailboxes.book.delete(name, &kept).await? {
                    self.mailbox.count(-1);
                    self.mailboxes.announce_lease(&row_key);
                    self.mailboxes.announce(name);
                    return Ok(());
                }
                continue;
            }
            if !kept.row.canceled {
                let row = TurnRow { canceled: true, ..kept.row.clone() };
                if self.mailboxes.book.change(name, &kept, row, None).await?.is_none() {
                    continue;
                }
                self.mailboxes.announce_lease(&row_key);
            }
            let look = tokio::time::Instant::now() + CANCEL_LOOK_INTERVAL;
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(look.min(until)) => {}
            }
        }
    }
}

impl Mailboxes {
    /// True if there is room for one more turn, which counts from now on.
    pub(super) async fn admits(&self, mailbox: &Mailbox) -> std::result::Result<bool, StoreError> {
        let most = mailbox.settings.load().max_waiting;
        let is_shared = self.book.store().is_shared();
        match mailbox.seems_full(is_shared) {
            Fullness::Room => return Ok(true),
            Fullness::Full => return Ok(false),
            Fullness::Unknown => {}
        }
        let turns = self.book.count(&mailbox.name, most).await?;
        mailbox.counted(turns);
        Ok(turns < most)
    }

    /// Counts the turns of a mailbox.
    #[cfg(test)]
    pub(super) async fn count(&self, mailbox: &Mailbox) -> std::result::Result<usize, StoreError> {
        self.book.count(&mailbox.name, usize::MAX >> 1).await
    }
}

fn owner(cx: &ExecContext, scope: &Scope) -> Owner {
    let proved = cx.call.caller.tenant().is_some();
    Owner { principal: scope.owner.clone(), tenant: scope.tenant.clone(), proved }
}

/// The number of the message among the caller's messages to its task.
fn message_number(cx: &ExecContext) -> usize {
    let said = cx.task.iter().flat_map(|task| &task.history);
    let said = said.filter(|message| message.role == Role::User).count();
    // The task of a message that is executed again has it already.
    if cx.resumed { said.max(1) } else { said + 1 }
}

/// The status of a task whose message waits. A task that a worker is busy with stays as it is.
fn waiting(cx: &ExecContext, out: &Emitter, mailbox: &str, deadline: i64) -> Event {
    let is_busy = out.with_task(|task| task.is_some_and(|task| task.status.state == TaskState::Working));
    if is_busy {
        return status(TaskState::Working, None, Metadata::new());
    }
    let until = Timestamp::from_millis(deadline).unwrap_or(Timestamp::MAX);
    let text = format!("waits for a worker of {mailbox} until {until}");
    let metadata =
        Metadata::from_iter([(WAITS_FOR, json!({ "agent": mailbox, "until": until.to_string() }))]);
    let message = Message {
        task_id: Some(cx.task_id.clone()),
        context_id: Some(cx.context_id.clone()),
        ..Message::agent(random_hex::<16>(), vec![Part::text(text)])
    };
    status(TaskState::Submitted, Some(message), metadata)
}

/// A change of the state. The emitter sets the ids of the task.
pub(super) fn status(state: TaskState, message: Option<Message>, metadata: Metadata) -> Event {
    let status = TaskStatus { state, message: message.map(Arc::new), timestamp: None };
    Event::StatusUpdate(TaskStatusUpdateEvent { status, metadata, ..TaskStatusUpdateEvent::default() })
}
