//! Rounds as values: the record of a room, and the pure rules of a conversation.
//!
//! ```text
//! event of a seat ──► Round::say ──► its new state, and a pending entry for the other seat
//! ```
//! The record is written in one transaction with the entry of the seat that speaks. What the other seat is owed
//! stands in the record until the entry of that seat is written, in one transaction with the record again.
//!
//! **Invariant:** entries of a round are numbered without a gap, and reach the other seat in that order, once.

use std::collections::VecDeque;

use nuncio_protocol::{ArtifactId, ContextId, MessageId, Metadata, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};

use super::lease::SeatLease;

/// The extension by which parties say who speaks next.
pub(crate) const ROOM_EXTENSION: &str = "https://nuncio.dev/a2a/room/v1";
/// The member of the metadata that other bridges use for the same.
const NEXT_STATE: &str = "nextState";

/// One of the two seats of a room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The seat on the other side.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The name of the seat.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// A value for each seat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PerSide<T>([T; 2]);

impl<T> PerSide<T> {
    /// A value for this seat, and one for the other.
    pub(crate) fn new(side: Side, own: T, other: T) -> Self {
        match side {
            Side::A => Self([own, other]),
            Side::B => Self([other, own]),
        }
    }

    pub(crate) fn of(&self, side: Side) -> &T {
        &self.0[side.index()]
    }

    pub(crate) fn of_mut(&mut self, side: Side) -> &mut T {
        &mut self.0[side.index()]
    }
}

/// The words of a message about the conversation itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The other side speaks.
    Yield,
    /// The same side goes on.
    Hold,
    /// The other side has to authorize something.
    Authorize,
    /// The round has ended in this state.
    End(TaskState),
}

impl Next {
    /// Reads the metadata of a message; a word that is not known hands over, as no word does.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said {
            next: String,
        }
        let own = metadata.get(ROOM_EXTENSION).and_then(|said| said.get::<Said>().ok());
        let alias = || metadata.get(NEXT_STATE).and_then(|said| said.get::<String>().ok());
        let word = own.map(|said| said.next).filter(|next| !next.is_empty()).or_else(alias);
        match word.unwrap_or_default().to_ascii_lowercase().as_str() {
            "hold" | "working" => Self::Hold,
            "authorize" | "auth-required" => Self::Authorize,
            "complete" | "completed" => Self::End(TaskState::Completed),
            "fail" | "failed" => Self::End(TaskState::Failed),
            "reject" | "rejected" => Self::End(TaskState::Rejected),
            _ => Self::Yield,
        }
    }
}

/// The record of a room.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// Tells the tasks of this room from those of an earlier one of the same name.
    pub(crate) instance: String,
    /// The open rounds, those whose entries have not all been mirrored, and the last one.
    pub(crate) rounds: Vec<Round>,
    /// The leases of the seats.
    #[serde(default)]
    pub(crate) leases: PerSide<SeatLease>,
}

/// A conversation: one task per seat.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) context_id: ContextId,
    pub(crate) tasks: PerSide<TaskId>,
    pub(crate) states: PerSide<TaskState>,
    /// The task of the seat exists, or an entry that makes it is pending.
    pub(crate) begun: PerSide<bool>,
    /// The last message of each seat that has been applied, so that it is not applied again after a crash.
    pub(crate) said: PerSide<Option<MessageId>>,
    /// The number of messages.
    pub(crate) turns: u64,
    /// The number of the last entry.
    pub(crate) entries: u64,
    /// Entries that a seat is owed.
    pub(crate) pending: VecDeque<Entry>,
    pub(crate) opened: Timestamp,
    pub(crate) changed: Timestamp,
    /// The hubs and agents that the last call from outside has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hops: Vec<String>,
    /// The open task of the agent in each seat.
    #[serde(default)]
    pub(crate) delegated: PerSide<Option<Delegated>>,
}

/// A task of the agent in a seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Delegated {
    pub(crate) task: TaskId,
    /// The last message that the agent has for it.
    pub(crate) message: MessageId,
}

/// A status that a seat is owed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// The seat that gets it.
    pub(crate) to: Side,
    pub(crate) state: TaskState,
    /// The message of the other seat that comes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<MessageId>,
    /// An artifact of the other seat, in place of a status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact: Option<ArtifactId>,
    /// The reason why the hub has ended the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndReason>,
    /// It makes the task of its seat.
    #[serde(default)]
    pub(crate) begins: bool,
}

/// The reason why the hub has ended a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndReason {
    /// Nobody was at a seat.
    Absent,
    /// Nobody came in time.
    Expired,
    /// The round has its last message.
    MaxTurns,
}

/// The reason why an event is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleBreak {
    /// The round has ended.
    Ended,
    /// The other side speaks now, and the room is strict about it.
    OutOfTurn,
}

impl Ledger {
    pub(crate) fn new(instance: String) -> Self {
        Self { instance, rounds: Vec::new(), leases: PerSide::default() }
    }

    /// The round that this task of a seat belongs to.
    pub(crate) fn of_task(&self, side: Side, task: &TaskId) -> Option<&Round> {
        self.rounds.iter().find(|round| round.tasks.of(side) == task)
    }

    pub(crate) fn of_task_mut(&mut self, side: Side, task: &TaskId) -> Option<&mut Round> {
        self.rounds.iter_mut().find(|round| round.tasks.of(side) == task)
    }

    /// The rounds that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(|round| !round.has_ended())
    }

    /// Opens a round by a message of this seat. Without `parallel` the rounds that are open end.
    pub(crate) fn begin(&mut self, opening: Opening, parallel: bool) -> &mut Round {
        let Opening { side, task, context_id, message, next, now } = opening;
        if !parallel {
            self.rounds.iter_mut().for_each(|round| round.cancel(now));
        }
        let number = self.rounds.last().map_or(1, |round| round.number + 1);
        let theirs = TaskId::from(self.task_id(number, side.other()));
        let mut round = Round {
            number,
            context_id,
            tasks: PerSide::new(side, task, theirs),
            states: PerSide::new(side, TaskState::InputRequired, TaskState::Submitted),
            begun: PerSide::new(side, true, false),
            said: PerSide::default(),
            turns: 0,
            entries: 0,
            pending: VecDeque::new(),
            opened: now,
            changed: now,
            hops: Vec::new(),
            delegated: PerSide::default(),
        };
        // The seat that begins has the floor.
        let _ = round.say(side, message, next, false, now);
        self.rounds.retain(|round| !round.is_done());
        self.rounds.push(round);
        let last = self.rounds.len() - 1;
        &mut self.rounds[last]
    }

    /// Opens a round in which seat a has the floor, without a message. The rounds that are open end.
    pub(crate) fn begin_again(&mut self, context_id: ContextId, now: Timestamp) {
        self.rounds.iter_mut().for_each(|round| round.cancel(now));
        let number = self.rounds.last().map_or(1, |round| round.number + 1);
        let task = |side: Side| TaskId::from(self.task_id(number, side));
        let mut round = Round {
            number,
            context_id,
            tasks: PerSide::new(Side::A, task(Side::A), task(Side::B)),
            states: PerSide::default(),
            begun: PerSide::default(),
            said: PerSide::default(),
            turns: 0,
            entries: 0,
            pending: VecDeque::new(),
            opened: now,
            changed: now,
            hops: Vec::new(),
            delegated: PerSide::default(),
        };
        round.owe(Side::A, TaskState::InputRequired, None, now);
        round.owe(Side::B, TaskState::Working, None, now);
        self.rounds.retain(|round| !round.is_done());
        self.rounds.push(round);
    }

    /// The id of a task that the hub begins: the same at every hub and after a crash.
    fn task_id(&self, number: u64, side: Side) -> String {
        format!("{}-{number}-{}", self.instance, side.name())
    }

    /// Drops rounds that have ended and are mirrored, except the last one, by which a repeat of its first message is
    /// known.
    pub(crate) fn tidy(&mut self) {
        let last = self.rounds.last().map(|round| round.number);
        self.rounds.retain(|round| !round.is_done() || Some(round.number) == last);
    }
}

/// The first message of a round.
pub(crate) struct Opening {
    pub(crate) side: Side,
    pub(crate) task: TaskId,
    pub(crate) context_id: ContextId,
    pub(crate) message: MessageId,
    pub(crate) next: Next,
    pub(crate) now: Timestamp,
}

impl Round {
    /// True if it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        Side::BOTH.iter().any(|side| self.states.of(*side).is_terminal())
    }

    /// True if it has ended and nobody is owed anything of it.
    fn is_done(&self) -> bool {
        let is_delegated = Side::BOTH.iter().any(|side| self.delegated.of(*side).is_some());
        self.has_ended() && self.pending.is_empty() && !is_delegated
    }

    /// True if this seat waits for a party that is not there.
    pub(crate) fn waits_for(&self, side: Side) -> bool {
        !self.has_ended() && *self.states.of(side.other()) == TaskState::Submitted
    }

    /// The seat that speaks now.
    pub(crate) fn turn(&self) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.states.of(*side).is_interrupted())
    }

    /// A message of this seat.
    ///
    /// # Errors
    /// The rules refuse it, and nothing has changed.
    pub(crate) fn say(
        &mut self,
        side: Side,
        message: MessageId,
        next: Next,
        strict: bool,
        now: Timestamp,
    ) -> Result<(), RuleBreak> {
        self.check(side, next, strict)?;
        let has_floor = self.states.of(side).is_interrupted();
        let (own, theirs) = match next {
            Next::End(state) => (state, state),
            // Out of turn nothing changes but the transcript.
            Next::Yield | Next::Hold | Next::Authorize if !has_floor => {
                (*self.states.of(side), *self.states.of(side.other()))
            }
            Next::Yield => (TaskState::Working, TaskState::InputRequired),
            Next::Hold => (TaskState::InputRequired, TaskState::Working),
            Next::Authorize => (TaskState::Working, TaskState::AuthRequired),
        };
        *self.states.of_mut(side) = own;
        *self.said.of_mut(side) = Some(message.clone());
        self.turns += 1;
        self.owe(side.other(), theirs, Some(message), now);
        Ok(())
    }

    /// Lets the message that this seat has just said wait, because nobody is at the other one.
    pub(crate) fn wait(&mut self, side: Side) {
        if *self.states.of(side) == TaskState::Working && self.turn() == Some(side.other()) {
            *self.states.of_mut(side) = TaskState::Submitted;
        }
    }

    /// Lets the other seat know that a party is at this one now. False if it knows.
    pub(crate) fn attend(&mut self, side: Side, now: Timestamp) -> bool {
        let waits = self.waits_for(side);
        if waits {
            self.owe(side.other(), TaskState::Working, None, now);
        }
        waits
    }

    /// Lets the other seat know that nobody is at this one. False if it knows, or does not wait.
    pub(crate) fn miss(&mut self, side: Side, now: Timestamp) -> bool {
        let waits = self.turn() == Some(side) && *self.states.of(side.other()) == TaskState::Working;
        if waits {
            self.owe(side.other(), TaskState::Submitted, None, now);
        }
        waits
    }

    /// Ends the round for both seats, for a reason of the hub.
    pub(crate) fn fail(&mut self, reason: EndReason, now: Timestamp) {
        if self.has_ended() {
            return;
        }
        for side in Side::BOTH {
            self.owe(side, TaskState::Failed, None, now);
            if let Some(entry) = self.pending.back_mut() {
                entry.ended = Some(reason);
            }
        }
    }

    /// Ends the round for both seats with the message that was just said, for a reason of the hub.
    pub(crate) fn cut(&mut self, reason: EndReason) {
        for side in Side::BOTH {
            *self.states.of_mut(side) = TaskState::Failed;
        }
        if let Some(entry) = self.pending.back_mut() {
            (entry.state, entry.ended) = (TaskState::Failed, Some(reason));
        }
    }

    /// Notes that the other seat gets an artifact of this one.
    pub(crate) fn make(&mut self, side: Side, artifact: ArtifactId, now: Timestamp) {
        let state = *self.states.of(side.other());
        self.owe(side.other(), state, None, now);
        if let Some(entry) = self.pending.back_mut() {
            entry.artifact = Some(artifact);
        }
    }

    /// Checks whether the rules admit such a message now.
    ///
    /// # Errors
    /// The rules refuse it.
    pub(crate) fn check(&self, side: Side, next: Next, strict: bool) -> Result<(), RuleBreak> {
        if self.has_ended() {
            return Err(RuleBreak::Ended);
        }
        let ends = matches!(next, Next::End(_));
        if strict && !ends && !self.states.of(side).is_interrupted() {
            return Err(RuleBreak::OutOfTurn);
        }
        Ok(())
    }

    /// Cancels the round for both seats.
    pub(crate) fn cancel(&mut self, now: Timestamp) {
        for side in Side::BOTH.into_iter().filter(|_| !self.has_ended()).collect::<Vec<_>>() {
            self.owe(side, TaskState::Canceled, None, now);
        }
    }

    /// Ends the round for the other seat, because the task of this one has ended outside of the conversation.
    pub(crate) fn end_after(&mut self, side: Side, state: TaskState, now: Timestamp) {
        *self.states.of_mut(side) = state;
        self.owe(side.other(), state, None, now);
    }

    /// Notes that a seat gets this status.
    fn owe(&mut self, to: Side, state: TaskState, message: Option<MessageId>, now: Timestamp) {
        *self.states.of_mut(to) = state;
        self.entries += 1;
        let begins = !std::mem::replace(self.begun.of_mut(to), true);
        let number = self.entries;
        self.pending.push_back(Entry { number, to, state, message, artifact: None, ended: None, begins });
        self.changed = now;
    }
}
