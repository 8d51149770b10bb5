//! Parties within the hub: people who have joined, and the drivers of agents. They are clients of their seat.

use std::sync::Arc;

use nuncio_protocol::{
    A2aService as _, CallContext, ContextId, ErrorKind, Message, MessageId, Part, Result, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskId, TaskState, Version,
};
use nuncio_server::store::Projection;
use serde_json::json;
use uuid::Uuid;

use super::{
    Room,
    lease::Authority,
    round::{Delegated, EndReason, Ledger, ROOM_EXTENSION, Round, Side},
};

use crate::{clock::now, config::Absent};

/// A message by a party within the hub.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) id: MessageId,
    pub(crate) parts: Vec<Part>,
    /// The word for who speaks next; `None` hands over.
    pub(crate) next: Option<&'static str>,
    /// The task of the seat; `None` begins a round.
    pub(crate) task: Option<TaskId>,
    /// The hops that brought it.
    pub(crate) hops: Vec<String>,
}

/// Words for who speaks next, as a party may choose them.
pub(crate) const NEXT_WORDS: [&str; 6] = ["yield", "hold", "authorize", "complete", "fail", "reject"];

impl Room {
    /// Says something as the holder of a lease.
    ///
    /// # Errors
    /// The lease is over; the rules of the room refuse the message.
    pub(crate) async fn say_as_holder(&self, side: Side, lease: &str, words: Words) -> Result<Task> {
        self.say_by(side, &Authority::Lease(lease.to_owned()), words).await
    }

    /// Says something as the agent in the seat.
    ///
    /// # Errors
    /// A person has taken the seat over; the rules of the room refuse the message.
    pub(crate) async fn say_as_agent(&self, side: Side, words: Words) -> Result<Task> {
        self.say_by(side, &Authority::Driver, words).await
    }

    async fn say_by(&self, side: Side, by: &Authority, words: Words) -> Result<Task> {
        let Some(runtime) = self.runtime(side) else { return Err(ErrorKind::Unavailable.into()) };
        let mut message = Message { task_id: words.task, ..Message::user(words.id, words.parts) };
        if let Some(next) = words.next {
            message.metadata.insert(ROOM_EXTENSION, json!({ "next": next }));
        }
        let configuration =
            SendMessageConfiguration { return_immediately: true, ..SendMessageConfiguration::default() };
        let request = SendMessageRequest {
            message,
            configuration: Some(configuration),
            ..SendMessageRequest::default()
        };
        let mut cx = CallContext { hops: words.hops, ..CallContext::new(Version::V1_0) };
        by.put_on(&mut cx, self.secret());
        match runtime.send_message(&cx, request).await? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(_) => Err(ErrorKind::Internal.into()),
        }
    }

    /// The task of a seat as it sees it.
    pub(crate) async fn task(&self, side: Side, round: &Round) -> Result<Option<Task>> {
        Ok(self.store().shown(self.scope(side), round.tasks.of(side), Projection::WHOLE).await?)
    }

    /// Remembers the task of the agent in a seat, so that it goes on after a restart; `None` if it has ended.
    pub(crate) async fn delegate(&self, side: Side, round: u64, task: Option<Delegated>) -> Result<()> {
        self.change(|ledger| {
            let round = ledger.rounds.iter_mut().find(|known| known.number == round)?;
            let known = round.delegated.of_mut(side);
            if *known == task {
                return None;
            }
            known.clone_from(&task);
            ledger.tidy();
            Some(())
        })
        .await
        .map(drop)
    }

    /// Begins the first round, in which seat a has the floor, in a room that had none.
    pub(crate) async fn begin_first(&self) -> Result<()> {
        let begin = |ledger: &mut Ledger| {
            let context = ContextId::from(Uuid::now_v7().to_string());
            ledger.rounds.is_empty().then(|| ledger.begin_again(context, now()))
        };
        self.change(begin).await.map(drop)
    }

    /// Notes whether the agent of a seat can be reached: rounds wait for it, or fail if nobody waits here.
    pub(crate) async fn note_presence(&self, side: Side, round: u64, is_present: bool) -> Result<()> {
        let fails = self.settings().absent == Absent::Fail;
        self.change(|ledger| {
            let now = now();
            let round = ledger.rounds.iter_mut().find(|known| known.number == round)?;
            if is_present {
                return round.attend(side, now).then_some(());
            }
            if fails && !round.has_ended() {
                round.fail(EndReason::Absent, now);
                return Some(());
            }
            round.miss(side, now).then_some(())
        })
        .await
        .map(drop)
    }

    /// Cancels a round for both seats.
    pub(crate) async fn cancel_round(&self, side: Side, task: &TaskId) -> Result<()> {
        self.cancel(side, task).await.map(drop)
    }

    /// The state of the task of a seat, by the record.
    pub(crate) async fn state(&self, side: Side, round: u64) -> Result<Option<TaskState>> {
        let rounds = self.rounds().await?;
        Ok(rounds.iter().find(|known| known.number == round).map(|round| *round.states.of(side)))
    }

    /// The key of a message by the agent of a seat: the same for every repeat of a turn, at every hub.
    pub(crate) fn message_id(&self, round: &Round, side: Side, turn: usize) -> MessageId {
        // The id of a task that the hub has made tells the rounds of one room from those of an earlier one.
        format!("{}-{}-{}-{turn}", self.name(), round.tasks.of(Side::B), side.name()).into()
    }

    /// True if a person holds the seat now.
    pub(crate) async fn is_leased(&self, side: Side) -> Result<bool> {
        Ok(self.leases().await?.of(side).holder(now()).is_some())
    }
}

/// The messages of the other seat that this one has not answered, the first one first.
pub(crate) fn unanswered(task: &Task) -> Vec<Arc<Message>> {
    let all: Vec<_> = task.history.iter().chain(&task.status.message).cloned().collect();
    let last = all.iter().rposition(|message| message.role == Role::User);
    all[last.map_or(0, |last| last + 1)..].to_vec()
}
