//! The state of a live task: what it is by now, what travels with its next entry, what runs and what waits.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{Error, Message, Result, Seq, StreamItem, Task, TaskState};
use tokio_util::sync::CancellationToken;

use super::{attendance::Attending, turn::Turn};
use crate::{
    memory::{MemoryAccount, TaskSize},
    size,
    store::{Commit, IdempotencyKey, StoredTask, StoredTurn, Webhook},
};

/// How many of a live task's events are kept for subscribers that follow closely; one that lags
/// further behind reads from the store.
const RING: usize = 256;

/// The state of a live task, behind its lock.
pub(super) struct State {
    /// What has become of the message that is at work.
    pub(super) phase: Phase,
    /// About how many bytes its log has. What was replaced counts as well, because the log keeps it. Of a task that was
    /// read from the store, the content counts.
    pub(super) bytes: TaskSize,
    /// Another owner works on it.
    pub(super) owned_elsewhere: bool,
    /// Travels with the next entry.
    pub(super) attached: Attached,
    /// What the agent keeps with the task.
    pub(super) memo: Option<Bytes>,
    /// It has webhooks, as far as we know.
    pub(super) pushes: bool,
    /// How many streams follow closely.
    pub(super) followers: usize,
    /// The callers that wait, where tasks end without them.
    pub(super) attending: Attending,
    /// Recent events, in order and without a gap up to what is committed; empty while nobody follows.
    ring: VecDeque<StreamItem>,
    /// The running execution, if one runs.
    pub(super) running: Option<Running>,
    /// Messages that wait for the running execution to end.
    pub(super) queue: VecDeque<Turn>,
}

/// The kinds of a live task.
pub(super) enum Phase {
    /// There is no task yet. Its first event makes one, with this message as its history.
    Opening(Arc<Message>),
    /// A task.
    Task(Tracked),
    /// A direct reply was given instead of a task.
    Replied {
        reply: Arc<Message>,
        /// The reply may be shown: it is in the store, if it was to be kept.
        stored: bool,
    },
    /// The caller gets this error instead of a task.
    Refused(Arc<Error>),
    /// The store refused an entry, or another owner has the task: memory is not the truth any more, and nothing is
    /// written.
    Lost(Lost),
}

/// A task, and how far it has come.
pub(super) struct Tracked {
    /// As it is folded.
    pub(super) task: Task,
    /// How far it is folded.
    pub(super) folded: Progress,
    /// How far it is in the store.
    pub(super) committed: Progress,
}

impl Tracked {
    fn stored(task: Task, seq: Seq) -> Self {
        let progress = Progress { seq, settled: task.status.state.is_settled().then_some(seq) };
        Self { task, folded: progress, committed: progress }
    }

    fn is_committed(&self) -> bool {
        self.folded.seq == self.committed.seq
    }
}

/// What is still known of a task that was lost.
#[derive(Default)]
pub(super) struct Lost {
    /// The task as it was folded last, for the execution that has not noticed yet.
    task: Option<Task>,
    /// The store has a task or a reply of it.
    answered: bool,
}

/// What is stored in one piece with the next entry.
#[derive(Default)]
pub(super) struct Attached {
    /// A repeat of the message finds the task under this key.
    pub(super) idempotency: Option<IdempotencyKey>,
    /// The task is reserved in the store, until its first entry.
    pub(super) reserved: bool,
    /// The turn that the task works on, or is to work on.
    pub(super) turn: Option<StoredTurn>,
    /// Registered with the entry.
    pub(super) webhook: Option<Webhook>,
    /// What the agent keeps with the task from now on.
    pub(super) memo: Option<Bytes>,
}

impl Attached {
    /// How many bytes it adds to an entry.
    pub(super) fn bytes(&self) -> usize {
        self.memo.as_ref().map_or(0, Bytes::len)
    }

    /// Puts all of it on an entry.
    pub(super) fn put_on(self, commit: &mut Commit) {
        let Self { idempotency, reserved, turn, webhook, memo } = self;
        // A task that is reserved has the key of its reservation.
        commit.idempotency = idempotency.filter(|_| !reserved);
        (commit.reserved, commit.turn, commit.webhook, commit.memo) = (reserved, turn, webhook, memo);
    }
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// The number of the last entry.
    pub(super) seq: Seq,
    /// The number of the status that is terminal or interrupted, if the present one is.
    pub(super) settled: Option<Seq>,
}

impl Progress {
    /// Takes in the next entries.
    pub(super) fn advance(&mut self, batch: &[Commit]) {
        for commit in batch {
            self.seq = commit.expected.next();
            if let Some(status) = commit.event.status() {
                self.settled = status.state.is_settled().then_some(self.seq);
            }
        }
    }
}

/// A step of a task, when the store has its entries.
pub(super) struct Advance {
    committed: Progress,
    items: Vec<StreamItem>,
}

/// What becomes of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReservationEnd {
    /// It has ended already, with the task or the reply.
    Answered,
    /// Its task is to be made, as failed.
    Failed,
    /// It is given back.
    Released,
}

/// A running execution.
pub(super) struct Running {
    /// Stops it.
    pub(super) token: CancellationToken,
    /// Why it is being stopped, once it is; emits fail from then on.
    pub(super) stop: Option<Stop>,
}

/// Why an execution is being stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The caller asked for it.
    Cancel,
    /// The server ends.
    Shutdown,
    /// The executor has said nothing for too long.
    Silence,
    /// The task has grown to its limit of bytes. Nothing more is recorded but its end.
    TooLarge,
    /// The server has no memory for more of it. Nothing more is recorded but its end.
    OutOfMemory,
}

impl Stop {
    /// True if nobody wants the work any more, here or elsewhere. (After a shutdown it may go on.)
    pub(super) fn is_for_good(self) -> bool {
        match self {
            Self::Cancel | Self::TooLarge | Self::OutOfMemory => true,
            Self::Shutdown | Self::Silence => false,
        }
    }
}

impl State {
    pub(super) fn new(phase: Phase, memory: &MemoryAccount) -> Self {
        let bytes = match &phase {
            Phase::Task(tracked) => size::task(&tracked.task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => 0,
        };
        Self {
            phase,
            bytes: memory.task_size(bytes),
            owned_elsewhere: false,
            attached: Attached::default(),
            memo: None,
            pushes: false,
            followers: 0,
            attending: Attending::default(),
            ring: VecDeque::new(),
            running: None,
            queue: VecDeque::new(),
        }
    }

    /// The state of a task that was read from the store.
    pub(super) fn stored(stored: StoredTask, memory: &MemoryAccount) -> Self {
        let StoredTask { task, seq, held, pushes, memo } = stored;
        let phase = Phase::Task(Tracked::stored(task, seq));
        Self { owned_elsewhere: held, pushes, memo, ..Self::new(phase, memory) }
    }

    /// True if memory is not the truth any more.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost(_))
    }

    /// Refuses what is about a task that is lost: whoever comes next reads the store.
    pub(super) fn check_kept(&self) -> Result<()> {
        if self.is_lost() { Err(super::unavailable()) } else { Ok(()) }
    }

    /// The task, if there is one.
    pub(super) fn task(&self) -> Option<&Task> {
        match &self.phase {
            Phase::Task(tracked) => Some(&tracked.task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => None,
        }
    }

    /// The task as its execution sees it, which may not know yet that it is lost.
    pub(super) fn last_task(&self) -> Option<&Task> {
        match &self.phase {
            Phase::Task(Tracked { task, .. }) | Phase::Lost(Lost { task: Some(task), .. }) => Some(task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => None,
        }
    }

    /// How far the task is folded.
    pub(super) fn folded(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.folded,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// How far the task is in the store.
    pub(super) fn committed(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.committed,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// Takes in what the store has, where another owner writes, or wrote; false if what is here stands.
    pub(super) fn follow(&mut self, stored: StoredTask) -> bool {
        let known = match &self.phase {
            Phase::Opening(_) => Seq::ZERO,
            Phase::Task(tracked) if tracked.is_committed() => tracked.committed.seq,
            // Ours meanwhile, or over.
            Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => return false,
        };
        if stored.seq > known {
            self.bytes.set(size::task(&stored.task));
            self.phase = Phase::Task(Tracked::stored(stored.task, stored.seq));
            self.memo = stored.memo;
            // What others wrote is in the store only, and what is here does not reach up to it.
            self.ring.clear();
        }
        self.owned_elsewhere = stored.held;
        self.pushes |= stored.pushes;
        true
    }

    /// Gives up what is in memory.
    pub(super) fn lose(&mut self) {
        self.phase = Phase::Lost(match std::mem::replace(&mut self.phase, Phase::Lost(Lost::default())) {
            Phase::Opening(_) | Phase::Refused(_) => Lost::default(),
            Phase::Task(Tracked { task, committed, .. }) => {
                Lost { task: Some(task), answered: committed.seq > Seq::ZERO }
            }
            Phase::Replied { stored, .. } => Lost { task: None, answered: stored },
            Phase::Lost(lost) => lost,
        });
    }

    /// What is to become of the reservation of an execution that is over.
    pub(super) fn reservation_end(&self) -> ReservationEnd {
        match &self.phase {
            Phase::Task(tracked) if tracked.committed.seq > Seq::ZERO => ReservationEnd::Answered,
            Phase::Replied { stored: true, .. } | Phase::Lost(Lost { answered: true, .. }) => {
                ReservationEnd::Answered
            }
            Phase::Lost(_) => ReservationEnd::Failed,
            // The executor has refused the message, and has done nothing.
            Phase::Opening(_) | Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) => {
                ReservationEnd::Released
            }
        }
    }

    /// Asks the running execution to stop; the first reason stands. False if none runs.
    pub(super) fn stop(&mut self, why: Stop) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.stop.get_or_insert(why);
        running.token.cancel();
        true
    }

    /// Why the running execution is being stopped, if it is.
    pub(super) fn stopping(&self) -> Option<Stop> {
        self.running.as_ref().and_then(|running| running.stop)
    }

    /// Where the task stands; unspecified before its first event.
    pub(super) fn state(&self) -> TaskState {
        self.last_task().map_or(TaskState::Unspecified, |task| task.status.state)
    }

    /// True if nothing that is folded is on its way to the store.
    pub(super) fn is_committed(&self) -> bool {
        self.folded().seq == self.committed().seq
    }

    /// True if something that was said is still on its way to the store.
    pub(super) fn awaits_store(&self) -> bool {
        !self.is_committed() || matches!(self.phase, Phase::Replied { stored: false, .. })
    }

    /// True if the task has ended and its end is in the store.
    pub(super) fn has_ended(&self) -> bool {
        self.is_committed() && self.task().is_some_and(|task| task.status.state.is_terminal())
    }

    /// True if what was asked at this entry has been answered, and the answer is in the store: a reply, or
    /// a status after it that is terminal or interrupted. Also if there will be no answer.
    pub(super) fn answers(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.committed())
    }

    /// As [`Self::answers`], also if the answer is still on its way to the store.
    pub(super) fn will_answer(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.folded())
    }

    fn is_answered(&self, turn: Seq, progress: Progress) -> bool {
        match &self.phase {
            Phase::Opening(_) => false,
            Phase::Task(_) => progress.settled.is_some_and(|settled| settled > turn),
            Phase::Replied { stored, .. } => *stored,
            Phase::Refused(_) | Phase::Lost(_) => true,
        }
    }

    /// The step that these entries are, once they are in the store; with the entries as streams show them, if one
    /// follows.
    pub(super) fn advance(&self, batch: &[Commit]) -> Advance {
        let mut committed = self.committed();
        committed.advance(batch);
        let item = |commit: &Commit| StreamItem::new(Some(commit.expected.next()), Arc::clone(&commit.event));
        let items = if self.followers == 0 { Vec::new() } else { batch.iter().map(item).collect() };
        Advance { committed, items }
    }

    /// Takes in entries that are in the store now.
    pub(super) fn take_in(&mut self, Advance { committed, items }: Advance) {
        match &mut self.phase {
            Phase::Task(tracked) => tracked.committed = committed,
            Phase::Lost(lost) => lost.answered = true,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) => {}
        }
        if items.is_empty() {
            self.ring.clear();
        }
        for item in items {
            if self.ring.len() == RING {
                self.ring.pop_front();
            }
            self.ring.push_back(item);
        }
    }

    /// The events after `cursor`; `None` if the ring no longer reaches back so far.
    pub(super) fn after(&self, cursor: Seq) -> Option<impl Iterator<Item = &StreamItem>> {
        let missing = self.committed().seq.0.saturating_sub(cursor.0) as usize;
        let skip = self.ring.len().checked_sub(missing)?;
        Some(self.ring.iter().skip(skip))
    }
}
