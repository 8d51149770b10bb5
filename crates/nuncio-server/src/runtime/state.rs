//! The state of a live task: its phase, the data to commit with its next entry, its execution and its queue.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{Error, Event, Message, Result, Seq, StreamItem, Task, TaskState, fold};
use tokio_util::sync::CancellationToken;

use super::{
    attendance::Attending,
    handover::{Entries, TurnEntry},
    text_stream::PendingText,
    turn::Turn,
};
use crate::{
    memory::{MemoryAccount, TaskSize},
    size,
    store::{Attached, Commit, Moved, StoredEvent, StoredTask},
};

/// The number of recent events in memory for subscribers. A subscriber that lags further behind reads the
/// store.
const RING_CAPACITY: usize = 256;

/// The state of a live task, behind its lock.
pub(super) struct LiveState {
    pub(super) phase: Phase,
    /// The approximate size of the task's log in bytes. Replaced artifacts count too, because the log keeps
    /// them. For a task that was read from the store this is the size of its content.
    pub(super) bytes: TaskSize,
    /// Another server owns the task.
    pub(super) owned_elsewhere: bool,
    /// The task is in progress, no server owns it, and any may write to it.
    pub(super) parked: bool,
    /// The number of its writes in the journal's queue of large ones.
    pub(super) large_writes: usize,
    /// The number of its writes in the journal.
    pub(super) queued_writes: usize,
    /// True if the store may have a write of which nobody here knows.
    pub(super) in_doubt: bool,
    /// Committed together with the next entry.
    pub(super) attached: Attached,
    /// Text of the agent that is told with the next entry, or when it is due.
    pub(super) pending_text: PendingText,
    /// The memo that the agent keeps with the task.
    pub(super) memo: Option<Bytes>,
    /// True if another owner may have stored a newer memo.
    pub(super) memo_is_old: bool,
    /// True if the task is known to have webhooks.
    pub(super) pushes: bool,
    /// The number of open streams.
    pub(super) followers: usize,
    /// The callers that wait, where tasks end without them.
    pub(super) attending: Attending,
    /// Recent events, in order and without a gap up to the last committed one; empty while there is no
    /// stream.
    ring: VecDeque<StreamItem>,
    /// The running execution, if there is one.
    pub(super) running: Option<Running>,
    /// Turns that wait for the running one to end.
    pub(super) queue: VecDeque<Turn>,
    /// The receiver of the entries, for a task that another server keeps.
    pub(super) entries: Option<Entries>,
}

/// The phase of a live task.
pub(super) enum Phase {
    /// There is no task yet. The first event makes one, with this message as its history, if there is one.
    Opening(Option<Arc<Message>>),
    /// A task.
    Task(Tracked),
    /// A direct reply was given instead of a task.
    Replied {
        reply: Arc<Message>,
        /// True if the reply may be shown: it is committed, or does not have to be.
        stored: bool,
    },
    /// The caller gets this error instead of a task.
    Refused(Arc<Error>),
    /// The store refused an entry, or another server owns the task. Memory and store differ, and nothing more
    /// is written.
    Lost(Lost),
}

/// A task and its progress.
pub(super) struct Tracked {
    /// The task with all folded events.
    pub(super) task: Task,
    /// The last folded entry.
    pub(super) folded: Progress,
    /// The last committed entry.
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

/// The rest of a task that was lost.
#[derive(Default)]
pub(super) struct Lost {
    /// The task as it was folded last, for an execution that still reads it.
    task: Option<Task>,
    /// True if the store has the task, or the reply.
    answered: bool,
    /// The last entry that was committed.
    committed: Seq,
}

/// A position in a task's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// The number of the last entry.
    pub(super) seq: Seq,
    /// The number of the entry with the current status, if that is settled (terminal or interrupted).
    pub(super) settled: Option<Seq>,
}

impl Progress {
    /// Moves past these entries.
    pub(super) fn advance(&mut self, batch: &[Commit]) {
        for commit in batch {
            self.seq = commit.expected;
            self.step(&commit.event);
        }
    }

    /// Moves past one entry.
    fn step(&mut self, event: &Event) {
        self.seq = self.seq.next();
        if let Some(status) = event.status() {
            self.settled = status.state.is_settled().then_some(self.seq);
        }
    }
}

/// The change to a task's state that follows from a commit.
pub(super) struct Advance {
    committed: Progress,
    items: Vec<StreamItem>,
    entries: Vec<TurnEntry>,
}

/// The end of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReservationEnd {
    /// It ended already, with the task or the reply.
    Answered,
    /// The task is to be made, as failed.
    Failed,
    /// It is to be released.
    Released,
}

/// A running execution.
pub(super) struct Running {
    /// Cancels the execution.
    pub(super) token: CancellationToken,
    /// The reason of the stop, once there is one. From then on emits fail.
    pub(super) stop: Option<Stop>,
}

/// The reason to stop an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The caller canceled the task.
    Cancel,
    /// The server is shutting down.
    Shutdown,
    /// The executor was silent for too long.
    Silence,
    /// The task has reached its limit of bytes. Only its end is still recorded.
    TooLarge,
    /// The server has no memory for more of the task. Only its end is still recorded.
    OutOfMemory,
}

impl Stop {
    /// True if the work is not wanted any more, on any server. (After a shutdown it may continue elsewhere.)
    pub(super) fn is_for_good(self) -> bool {
        match self {
            Self::Cancel | Self::TooLarge | Self::OutOfMemory => true,
            Self::Shutdown | Self::Silence => false,
        }
    }
}

impl LiveState {
    pub(super) fn new(phase: Phase, memory: &MemoryAccount) -> Self {
        let bytes = match &phase {
            Phase::Task(tracked) => size::task(&tracked.task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => 0,
        };
        Self {
            phase,
            bytes: memory.task_size(bytes),
            owned_elsewhere: false,
            parked: false,
            large_writes: 0,
            queued_writes: 0,
            in_doubt: false,
            attached: Attached::default(),
            pending_text: PendingText::default(),
            memo: None,
            memo_is_old: false,
            pushes: false,
            followers: 0,
            attending: Attending::default(),
            ring: VecDeque::new(),
            running: None,
            queue: VecDeque::new(),
            entries: None,
        }
    }

    /// The state of a task that was read from the store.
    pub(super) fn stored(stored: StoredTask, memory: &MemoryAccount) -> Self {
        let StoredTask { task, seq, held, in_hand, pushes, memo } = stored;
        let parked = !in_hand && !task.status.state.is_settled();
        let phase = Phase::Task(Tracked::stored(task, seq));
        Self { owned_elsewhere: held, parked, pushes, memo, ..Self::new(phase, memory) }
    }

    /// About how many bytes the first entry adds to what is said with it: the message that opens the task.
    pub(super) fn opening_bytes(&self) -> usize {
        match &self.phase {
            Phase::Opening(message) => message.as_deref().map_or(0, size::message),
            Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => 0,
        }
    }

    /// True if memory and store differ.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost(_))
    }

    /// True if a task that was lost here is in the store up to this entry.
    pub(super) fn is_stored_up_to(&self, seq: Seq) -> bool {
        matches!(&self.phase, Phase::Lost(lost) if lost.committed > Seq::ZERO && lost.committed >= seq)
    }

    /// Refuses a call on a lost task; the caller tries again and reads the store.
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

    /// The task as its execution sees it: also after it was lost.
    pub(super) fn last_task(&self) -> Option<&Task> {
        match &self.phase {
            Phase::Task(Tracked { task, .. }) | Phase::Lost(Lost { task: Some(task), .. }) => Some(task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => None,
        }
    }

    /// The last folded entry.
    pub(super) fn folded(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.folded,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// The last committed entry.
    pub(super) fn committed(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.committed,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// Replaces the state by the stored task, if another owner writes to the task or wrote to it. False, with
    /// no change, if this server has written meanwhile or the task is over.
    pub(super) fn follow(&mut self, stored: StoredTask) -> bool {
        let known = match &self.phase {
            Phase::Opening(_) => Seq::ZERO,
            Phase::Task(tracked) if tracked.is_committed() => tracked.committed.seq,
            Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => return false,
        };
        if stored.seq > known {
            self.bytes.set(size::task(&stored.task));
            self.phase = Phase::Task(Tracked::stored(stored.task, stored.seq));
            (self.memo, self.memo_is_old) = (stored.memo, false);
            // The entries of the other owner are only in the store, so the ring would have a gap.
            self.ring.clear();
        }
        self.owned_elsewhere = stored.held;
        self.parked = !stored.in_hand && !self.state().is_settled();
        self.pushes |= stored.pushes;
        true
    }

    /// Folds entries of another owner. False, with no change, if they do not follow the last known entry, or
    /// this server has written meanwhile.
    pub(super) fn follow_entries(&mut self, entries: &[StoredEvent], moved: &Moved) -> bool {
        let Phase::Task(tracked) = &mut self.phase else { return false };
        if self.running.is_some() || !tracked.is_committed() {
            return false;
        }
        let before = self.bytes.get();
        let (mut progress, mut bytes) = (tracked.committed, before);
        for entry in entries {
            // An entry of the store was folded by its owner, so it folds here too.
            if entry.seq != progress.seq.next() || fold(&mut tracked.task, &entry.event, entry.at).is_err() {
                break;
            }
            bytes += size::event(&entry.event);
            progress.step(&entry.event);
        }
        let count = progress.seq.0.saturating_sub(tracked.committed.seq.0) as usize;
        if count == 0 {
            return false;
        }
        (tracked.folded, tracked.committed) = (progress, progress);
        self.bytes.set(bytes);
        let item = |entry: &StoredEvent| StreamItem::new(Some(entry.seq), Arc::clone(&entry.event));
        let items =
            if self.followers == 0 { Vec::new() } else { entries.iter().take(count).map(item).collect() };
        self.take_in(Advance { committed: progress, items, entries: Vec::new() });
        self.memo_is_old = true;
        if progress.seq >= moved.seq {
            self.owned_elsewhere = moved.held;
            self.parked = !moved.in_hand && !self.state().is_settled();
        }
        true
    }

    /// Marks the task as lost.
    pub(super) fn lose(&mut self) {
        self.pending_text.clear();
        self.phase = Phase::Lost(match std::mem::replace(&mut self.phase, Phase::Lost(Lost::default())) {
            Phase::Opening(_) | Phase::Refused(_) => Lost::default(),
            Phase::Task(Tracked { task, committed, .. }) => {
                Lost { task: Some(task), answered: committed.seq > Seq::ZERO, committed: committed.seq }
            }
            Phase::Replied { stored, .. } => Lost { answered: stored, ..Lost::default() },
            Phase::Lost(lost) => lost,
        });
    }

    /// Decides the end of the reservation of an execution that is over.
    pub(super) fn reservation_end(&self) -> ReservationEnd {
        match &self.phase {
            Phase::Task(tracked) if tracked.committed.seq > Seq::ZERO => ReservationEnd::Answered,
            Phase::Replied { stored: true, .. } | Phase::Lost(Lost { answered: true, .. }) => {
                ReservationEnd::Answered
            }
            Phase::Lost(_) => ReservationEnd::Failed,
            // The executor refused the message and has done nothing.
            Phase::Opening(_) | Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) => {
                ReservationEnd::Released
            }
        }
    }

    /// Asks the running execution to stop; the first reason is kept. False if none runs.
    pub(super) fn stop(&mut self, why: Stop) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.stop.get_or_insert(why);
        running.token.cancel();
        true
    }

    /// The reason why the running execution is being stopped, if it is.
    pub(super) fn stopping(&self) -> Option<Stop> {
        self.running.as_ref().and_then(|running| running.stop)
    }

    /// The state of the task; unspecified before its first event.
    pub(super) fn state(&self) -> TaskState {
        self.last_task().map_or(TaskState::Unspecified, |task| task.status.state)
    }

    /// True if all folded entries are committed.
    pub(super) fn is_committed(&self) -> bool {
        self.folded().seq == self.committed().seq
    }

    /// True if an event or a reply is not committed yet.
    pub(super) fn awaits_store(&self) -> bool {
        !self.is_committed() || matches!(self.phase, Phase::Replied { stored: false, .. })
    }

    /// True if the task has ended and its end is committed.
    pub(super) fn has_ended(&self) -> bool {
        self.is_committed() && self.task().is_some_and(|task| task.status.state.is_terminal())
    }

    /// True if the turn that began at this entry has its answer, and the answer is committed: a reply, or a
    /// settled status after that entry. Also true if there will be no answer.
    pub(super) fn answers(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.committed())
    }

    /// As [`Self::answers`], also if the answer is not committed yet.
    pub(super) fn will_answer(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.folded())
    }

    /// True if the execution of this turn leaves the task at rest: answered, or parked.
    pub(super) fn will_rest(&self, turn: Seq) -> bool {
        self.parked || self.will_answer(turn)
    }

    fn is_answered(&self, turn: Seq, progress: Progress) -> bool {
        match &self.phase {
            Phase::Opening(_) => false,
            Phase::Task(_) => progress.settled.is_some_and(|settled| settled > turn),
            Phase::Replied { stored, .. } => *stored,
            Phase::Refused(_) | Phase::Lost(_) => true,
        }
    }

    /// The change that follows once these entries are committed. It has the stream items too, if a stream is
    /// open.
    pub(super) fn advance(&self, batch: &[Commit]) -> Advance {
        let mut committed = self.committed();
        committed.advance(batch);
        let item = |commit: &Commit| StreamItem::new(Some(commit.expected.next()), Arc::clone(&commit.event));
        let items = if self.followers == 0 { Vec::new() } else { batch.iter().map(item).collect() };
        let entries = self.entries.iter().flat_map(|_| batch.iter().map(TurnEntry::new)).collect();
        Advance { committed, items, entries }
    }

    /// Applies a change whose entries are committed.
    pub(super) fn take_in(&mut self, Advance { committed, items, entries }: Advance) {
        match &mut self.phase {
            Phase::Task(tracked) => tracked.committed = committed,
            Phase::Lost(lost) => {
                (lost.answered, lost.committed) = (true, lost.committed.max(committed.seq));
            }
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) => {}
        }
        for entry in entries {
            // Sending fails if nobody reads the turn any more.
            let _ = self.entries.as_ref().map(|entries| entries.send(entry));
        }
        if items.is_empty() {
            self.ring.clear();
        }
        for item in items {
            if self.ring.len() == RING_CAPACITY {
                self.ring.pop_front();
            }
            self.ring.push_back(item);
        }
    }

    /// The events after `cursor`; `None` if the ring does not reach back that far.
    pub(super) fn after(&self, cursor: Seq) -> Option<impl Iterator<Item = &StreamItem>> {
        let missing = self.committed().seq.0.saturating_sub(cursor.0) as usize;
        let skip = self.ring.len().checked_sub(missing)?;
        Some(self.ring.iter().skip(skip))
    }
}
