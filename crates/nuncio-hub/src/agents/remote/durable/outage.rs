//! Messages that wait for an agent that is down (`when_down = "wait"`).
//!
//! ```text
//! certainly not sent ──► SUBMITTED "waits for NAME until T", memo: waits ──► the agent is back
//!                              │                                                   │
//!                              └ T has passed: failed                  memo: as before, committed ──► sent
//! ```
//! **Invariant:** the memo says that a message waits exactly as long as no attempt to send it has begun, so
//! that a hub which resumes the task knows whether it may send.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{
    Error, Event, Message, Metadata, Part, Result, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use nuncio_server::{Emitter, ExecContext};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{Durable, turn::Memo};
use crate::{
    agents::{
        WAITS_FOR,
        hex::random_hex,
        remote::link::{Link, card},
    },
    clock,
};

/// The longest pause between two looks at an agent that gave no sign of being back.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The memo of a task whose message waits.
#[derive(Serialize, Deserialize)]
struct WaitMemo {
    /// The end of the wait, in milliseconds since the epoch.
    waits_until: i64,
    /// The memo before the wait: a follow-up has a remote task already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Memo>,
}

/// The memo of a task: the ids of the remote task, also while a message waits.
pub(super) fn remote_memo(memo: Option<&[u8]>) -> Option<Memo> {
    Memo::read(memo).or_else(|| WaitMemo::read(memo)?.before)
}

impl WaitMemo {
    fn read(memo: Option<&[u8]>) -> Option<Self> {
        memo.and_then(|memo| serde_json::from_slice(memo).ok())
    }
}

/// The end of a pause.
pub(super) enum Waited {
    /// The agent may be back: try again.
    Back,
    /// The time is over: the message is refused with this error.
    Over(Error),
    /// The task is canceled, or the hub shuts down.
    Stopped,
}

/// The wait of one message.
pub(super) struct Outage<'a> {
    durable: &'a Arc<Durable>,
    cx: &'a ExecContext,
    out: &'a Emitter,
    /// `None` while the message does not wait.
    until: Mutex<Option<Timestamp>>,
}

impl<'a> Outage<'a> {
    /// A message that has not waited, or waited when another hub stopped.
    pub(super) fn new(durable: &'a Arc<Durable>, cx: &'a ExecContext, out: &'a Emitter) -> Self {
        let memo = WaitMemo::read(cx.memo.as_deref()).filter(|_| cx.resumed);
        let until = memo.and_then(|memo| Timestamp::from_millis(memo.waits_until));
        Self { durable, cx, out, until: Mutex::new(until) }
    }

    /// True if no attempt to send the message has begun since it waits.
    pub(super) fn waits(&self) -> bool {
        self.until.lock().is_some()
    }

    /// Waits until the agent may be back, after `error` has proved that the message was not sent. `seen` is
    /// the count of `Probe::answers` before the attempt.
    pub(super) async fn wait(&self, link: &Link, seen: u64, error: &Error) -> Result<Waited> {
        let until = match *self.until.lock() {
            Some(until) => Ok(until),
            None => Err(clock::now() + link.settings.wait),
        };
        let until = match until {
            Ok(until) => until,
            Err(until) => {
                self.begin(until).await?;
                until
            }
        };
        let left = u64::try_from(until.as_millis() - clock::now().as_millis()).unwrap_or_default();
        tokio::select! {
            biased;
            () = self.cx.cancellation.cancelled() => Ok(Waited::Stopped),
            () = sleep(Duration::from_millis(left)) => Ok(Waited::Over(self.over(until, error))),
            () = is_back(link, seen) => Ok(Waited::Back),
        }
    }

    /// Ends the wait before the message is sent: from here on it may have arrived.
    pub(super) async fn end(&self) -> Result<()> {
        if self.until.lock().take().is_none() {
            return Ok(());
        }
        let memo = match remote_memo(self.cx.memo.as_deref()) {
            Some(memo) => serde_json::to_vec(&memo).map_err(Error::internal)?,
            None => b"{}".to_vec(),
        };
        self.out.remember(memo)?;
        let name = &*self.durable.name;
        self.emit(format!("{name} is back; the message is sent"), serde_json::Value::Null).await?;
        self.out.flush().await
    }

    async fn begin(&self, until: Timestamp) -> Result<()> {
        let before = remote_memo(self.cx.memo.as_deref());
        let memo = WaitMemo { waits_until: until.as_millis(), before };
        self.out.remember(serde_json::to_vec(&memo).map_err(Error::internal)?)?;
        let name = &*self.durable.name;
        let metadata = serde_json::json!({ "agent": name, "until": until.to_string() });
        self.emit(format!("waits for {name} until {until}"), metadata).await?;
        self.out.flush().await?;
        *self.until.lock() = Some(until);
        Ok(())
    }

    async fn emit(&self, text: String, waits_for: serde_json::Value) -> Result<()> {
        let message = Message {
            task_id: Some(self.cx.task_id.clone()),
            context_id: Some(self.cx.context_id.clone()),
            ..Message::agent(random_hex::<16>(), vec![Part::text(text)])
        };
        let status =
            TaskStatus { state: TaskState::Submitted, message: Some(Arc::new(message)), timestamp: None };
        let metadata = Metadata::from_iter([(WAITS_FOR, waits_for)]);
        let update = TaskStatusUpdateEvent { status, metadata, ..TaskStatusUpdateEvent::default() };
        self.out.emit(Event::StatusUpdate(update)).await
    }

    fn over(&self, until: Timestamp, error: &Error) -> Error {
        let why = format!(
            "the message was not sent: {} was not reached until {until}; send it again later",
            self.durable.name
        );
        Error::new(error.kind(), why).with_source(error.message())
    }
}

/// Returns when the agent has answered anybody since `seen`, or its card can be fetched.
async fn is_back(link: &Link, seen: u64) {
    loop {
        tokio::select! {
            () = link.probe.until_answer(seen) => return,
            () = sleep(MAX_PAUSE) => {}
        }
        if card::fetch(link).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A follow-up that waits has a remote task, which its answer or a cancel is for.
    #[test]
    fn the_remote_task_is_known_while_a_message_waits() {
        let ids = br#"{"task":"t","context":"c","interface":"i"}"#;
        let memo = Memo::read(Some(ids));
        assert!(memo.is_some());
        let waits = |before| serde_json::to_vec(&WaitMemo { waits_until: 7, before }).unwrap();
        for (text, expected) in [
            (ids.to_vec(), &memo),
            (waits(memo.clone()), &memo),
            (waits(None), &None),
            (b"{}".to_vec(), &None),
        ] {
            assert_eq!(&remote_memo(Some(&text)), expected, "{}", String::from_utf8_lossy(&text));
        }
        assert!(WaitMemo::read(Some(ids)).is_none() && WaitMemo::read(Some(b"{}")).is_none());
    }
}
