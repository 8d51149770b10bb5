//! The events of the hub for operators: changes of tasks, deliveries and agents, and rows of the trail. They name
//! what has changed, and have no content.
//!
//! The log is a ring in memory. Writers never wait: a reader that falls behind the ring is told so, and reads the
//! lists again. Several events of one task between two reads are one.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use nuncio_protocol::{Seq, TaskId, TaskState, Timestamp};
use nuncio_server::{CommitObserver, Committed, store::Settled};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// The number of events that are kept.
const CAPACITY: usize = 8_192;
/// The maximum number of events of one read, so that writers do not wait for it.
const MAX_READ: usize = 1_024;

/// The subject of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum EventKind {
    Task,
    Delivery,
    Agent,
    Key,
    Config,
    Trail,
    /// A trial of the playground.
    Trial,
}

/// A change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HubEvent {
    pub(crate) at: Timestamp,
    pub(crate) kind: EventKind,
    pub(crate) agent: Option<Arc<str>>,
    /// The id of the task, the delivery or the key.
    pub(crate) subject: Option<Arc<str>>,
    /// The new state of a task.
    pub(crate) state: Option<TaskState>,
    /// The number of the last event of a task.
    pub(crate) seq: Option<Seq>,
    /// The change in a word, such as `down`, `delivered` or `key-created`.
    pub(crate) word: Option<Arc<str>>,
}

impl HubEvent {
    /// An event that happens now.
    pub(crate) fn of(kind: EventKind) -> Self {
        Self { at: clock::now(), kind, agent: None, subject: None, state: None, seq: None, word: None }
    }
}

/// A position in the log, which only this log understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    /// The log: each hub begins a new one when it starts.
    log: u64,
    /// The number of the last event before the position.
    number: u64,
}

impl Cursor {
    /// Reads a cursor that was written by its `Display`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (log, number) = text.split_once('-')?;
        Some(Self { log: u64::from_str_radix(log, 16).ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.log, self.number)
    }
}

/// The events after a cursor.
#[derive(Debug, PartialEq)]
pub(crate) enum Read {
    /// These events, each with the cursor after it.
    Events(Vec<(Cursor, HubEvent)>),
    /// The log does not reach back that far, or the cursor is of another one: read the lists again, and go on after
    /// this cursor.
    Reset(Cursor),
}

/// The log of a hub.
pub(crate) struct EventLog {
    id: u64,
    ring: Mutex<Ring>,
    arrived: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<HubEvent>,
    /// The number of the last event; the first one has 1.
    last: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self {
            id: rand::random(),
            ring: Mutex::default(),
            arrived: Notify::new(),
            closed: CancellationToken::new(),
        }
    }
}

impl EventLog {
    /// Adds an event.
    pub(crate) fn add(&self, event: HubEvent) {
        {
            let mut ring = self.ring.lock();
            if ring.events.len() == CAPACITY {
                ring.events.pop_front();
            }
            ring.events.push_back(event);
            ring.last += 1;
        }
        self.arrived.notify_waiters();
    }

    /// The position after the last event.
    pub(crate) fn end(&self) -> Cursor {
        Cursor { log: self.id, number: self.ring.lock().last }
    }

    /// Ends all readers: the hub stops.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Waits for events after a cursor; `None` when the log is closed.
    pub(crate) async fn next(&self, after: Cursor) -> Option<Read> {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // From here on, no event is missed.
            arrived.as_mut().enable();
            match self.read(after) {
                Read::Events(events) if events.is_empty() => {}
                read => return Some(read),
            }
            self.closed.run_until_cancelled(arrived).await?;
        }
    }

    /// The events after a cursor; of a subject that changed more than once, the last one.
    fn read(&self, after: Cursor) -> Read {
        let ring = self.ring.lock();
        let first = ring.last - ring.events.len() as u64;
        if after.log != self.id || !(first..=ring.last).contains(&after.number) {
            return Read::Reset(Cursor { log: self.id, number: ring.last });
        }
        let skip = (after.number - first) as usize;
        let mut events: Vec<(Cursor, HubEvent)> = Vec::new();
        let mut tasks: HashMap<Arc<str>, usize> = HashMap::new();
        for (event, number) in ring.events.iter().skip(skip).take(MAX_READ).zip(after.number + 1..) {
            let (cursor, mut event) = (Cursor { log: self.id, number }, event.clone());
            let before = match (event.kind, &event.subject) {
                (EventKind::Task, Some(task)) => tasks.insert(Arc::clone(task), events.len()),
                _ => None,
            };
            if let Some((_, before)) = before.and_then(|at| events.get_mut(at)) {
                // The earlier one may have set the state that the later one leaves as it is.
                event.state = event.state.or(before.state);
                before.subject = None;
            }
            events.push((cursor, event));
        }
        events.retain(|(_, event)| event.kind != EventKind::Task || event.subject.is_some());
        Read::Events(events)
    }

    /// Adds the outcomes of deliveries.
    pub(crate) fn settled(&self, settled: &[Settled]) {
        for settled in settled {
            for outcome in &settled.outcomes {
                let id = format!("{}-{}", settled.webhook, outcome.seq);
                let word = match outcome.state {
                    nuncio_server::store::DeliveryState::Pending => "pending",
                    nuncio_server::store::DeliveryState::Delivered => "delivered",
                    nuncio_server::store::DeliveryState::Dead => "dead",
                };
                let (subject, word) = (Some(id.into()), Some(word.into()));
                self.add(HubEvent { subject, word, ..HubEvent::of(EventKind::Delivery) });
            }
        }
    }

    /// Adds a change of an agent's health.
    pub(crate) fn agent_is(&self, agent: &Arc<str>, condition: &'static str) {
        let (agent, word) = (Some(Arc::clone(agent)), Some(condition.into()));
        self.add(HubEvent { agent, word, ..HubEvent::of(EventKind::Agent) });
    }
}

impl CommitObserver for EventLog {
    fn committed(&self, Committed { scope, task_id, seq, state, at }: Committed) {
        self.add(HubEvent {
            at,
            kind: EventKind::Task,
            agent: Some(Arc::clone(&scope.agent)),
            subject: Some(subject(&task_id)),
            state,
            seq: Some(seq),
            word: None,
        });
    }
}

fn subject(id: &TaskId) -> Arc<str> {
    id.as_str().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, seq: u64, state: Option<TaskState>) -> HubEvent {
        HubEvent {
            subject: Some(id.into()),
            seq: Some(Seq(seq)),
            state,
            at: Timestamp::EPOCH,
            ..HubEvent::of(EventKind::Task)
        }
    }

    #[tokio::test]
    async fn a_reader_goes_on_where_it_stopped_and_sees_the_last_of_each_task() {
        let log = EventLog::default();
        let begin = log.end();
        log.add(task("a", 1, Some(TaskState::Working)));
        log.add(task("b", 1, None));
        log.add(task("a", 2, None));
        let Some(Read::Events(events)) = log.next(begin).await else { panic!("there are some") };
        let seen: Vec<_> = events.iter().map(|(_, event)| event.clone()).collect();
        assert_eq!(seen, [task("b", 1, None), task("a", 2, Some(TaskState::Working))]);
        let after = events[1].0;
        assert_eq!(Cursor::parse(&after.to_string()), Some(after));
        let (next, ()) = tokio::join!(log.next(after), async { log.add(task("c", 1, None)) });
        assert!(matches!(next, Some(Read::Events(events)) if events.len() == 1));
    }

    #[tokio::test]
    async fn a_reader_that_fell_behind_or_comes_from_another_hub_is_told_to_begin_anew() {
        let log = EventLog::default();
        let begin = log.end();
        (0..CAPACITY).for_each(|i| log.add(task(&i.to_string(), 1, None)));
        assert!(matches!(log.next(begin).await, Some(Read::Events(events)) if events.len() == MAX_READ));
        log.add(task("more", 1, None));
        assert_eq!(log.next(begin).await, Some(Read::Reset(log.end())));
        let other = Cursor { log: log.id.wrapping_add(1), ..log.end() };
        let ahead = Cursor { number: log.end().number + 1, ..log.end() };
        for foreign in [other, ahead] {
            assert_eq!(log.next(foreign).await, Some(Read::Reset(log.end())));
        }
        log.close();
        assert_eq!(log.next(log.end()).await, None);
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        for text in ["", "-", "0", "zz-1", "1-z", "1-2-3", "-1", "1--1"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
