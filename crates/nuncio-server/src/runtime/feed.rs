//! Streams of task events. A stream pulls: it reads the log after its cursor, yields the events, and waits
//! for new ones. All streams see the same order, and a slow stream delays nothing but itself.

use std::{collections::VecDeque, ops::Deref, sync::Arc};

use futures_util::stream;
use nuncio_protocol::{
    Error, Event, EventStream, Message, Result, Seq, StreamItem, Task, TaskId, TaskState, TaskStatus,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::{
    Core,
    attendance::Attendance,
    handed_in::is_message,
    live::{LiveTask, LiveTaskRef},
    state::{LiveState, Phase},
};
use crate::{
    size,
    store::{Scope, StoredEvent},
};

/// The maximum number of entries to read from the store at once.
const PAGE: usize = 128;

/// The approximate maximum number of bytes that a stream buffers, even if its client does not read.
const PAGE_BYTES: usize = 1 << 20;

/// The number of entries to read next; it shrinks when entries are large.
struct PageSize(usize);

impl PageSize {
    /// Keeps as many entries as fit, and at least the first. The rest is read again later.
    fn fit(&mut self, mut entries: Vec<StoredEvent>) -> Vec<StoredEvent> {
        let mut bytes = 0;
        let fits = entries.iter().take_while(|entry| {
            bytes += size::event(&entry.event);
            bytes <= PAGE_BYTES
        });
        let fits = fits.count().max(1);
        self.0 = if fits < entries.len() { fits } else { self.0.saturating_mul(2).min(PAGE) };
        entries.truncate(fits);
        entries
    }
}

/// The condition that ends a stream (trap T-02).
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// A terminal state, or INPUT_REQUIRED after this entry.
    Answered(Seq),
    /// A terminal state.
    Terminal,
}

impl Until {
    fn ends(self, seq: Option<Seq>, status: &TaskStatus) -> bool {
        match self {
            Self::Terminal => status.state.is_terminal(),
            Self::Answered(turn) => {
                status.state.is_terminal()
                    || (status.state == TaskState::InputRequired && seq.is_some_and(|seq| seq > turn))
            }
        }
    }
}

/// The beginning of a stream.
pub(super) enum Start {
    /// The current task, then later events.
    Snapshot,
    /// The task as it was at this entry, then later events.
    From(Seq, Box<Task>),
    /// The entry after this one.
    After(Seq),
}

/// The source of a stream.
pub(super) struct Feed {
    core: Arc<Core>,
    live: Follower,
    /// The number of the last entry that was read.
    cursor: Seq,
    buffer: VecDeque<StreamItem>,
    page: PageSize,
    until: Until,
    ended: bool,
    draining: CancellationToken,
    /// Its caller, where tasks end without one.
    attendance: Option<Attendance>,
    /// `None` if no caller reads the stream.
    _permit: Option<OwnedSemaphorePermit>,
}

/// The event that a reader of the log has waited for.
pub(super) enum Awaited {
    /// The message is the entry of this number.
    Message(LiveTaskRef, Seq),
    /// The task has ended without it.
    End,
    /// The server is shutting down.
    Drain,
}

impl Feed {
    /// Takes the snapshot and registers in one step, so that no event is lost or repeated in between
    /// (REQ-143).
    pub(super) async fn open(
        core: &Arc<Core>,
        live: LiveTaskRef,
        permit: impl Into<Option<OwnedSemaphorePermit>>,
        start: Start,
        until: Until,
    ) -> Result<Self> {
        let (live, permit) = (Follower::new(live), permit.into());
        let mut buffer = VecDeque::new();
        let (cursor, ended) = {
            let state = live.lock();
            state.check_kept()?;
            let (cursor, task) = match start {
                Start::After(seq) => (seq, None),
                Start::From(seq, task) => (seq, Some(*task)),
                Start::Snapshot => (state.folded().seq, state.task().cloned()),
            };
            buffer.extend(task.map(|task| StreamItem::new(Some(cursor), Arc::new(Event::Task(task)))));
            // The status that ends this stream may be at or before the cursor. Its own number is compared,
            // not that of the last entry, which may be an artifact after an earlier question.
            let settled = state.folded().settled;
            let status = state.task().map(|task| &task.status).filter(|_| settled <= Some(cursor));
            (cursor, status.is_some_and(|status| until.ends(settled, status)))
        };
        core.until_committed(&live, cursor).await?;
        let (core, draining) = (Arc::clone(core), core.lifecycle.draining.clone());
        let page = PageSize(PAGE);
        Ok(Self {
            core,
            live,
            cursor,
            buffer,
            page,
            until,
            ended,
            draining,
            attendance: None,
            _permit: permit,
        })
    }

    /// Ends the task when this stream is dropped before its end, where the agent wants that.
    pub(super) fn attended(mut self, by: fn(&Core, &LiveTaskRef) -> Option<Attendance>) -> Self {
        self.attendance = by(&self.core, &self.live.0);
        self
    }

    /// Waits for the first event, then returns the stream that begins with it.
    pub(super) async fn first(mut self, history_length: Option<i32>) -> Result<EventStream> {
        match self.next().await {
            None => Ok(Box::pin(stream::empty())),
            Some(Err(error)) => Err(error),
            Some(Ok(mut item)) => {
                if history_length.is_some() {
                    trim(&mut item, history_length);
                }
                self.buffer.push_front(item);
                Ok(self.into_stream())
            }
        }
    }

    pub(super) fn into_stream(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut feed| async move { feed.next().await.map(|item| (item, feed)) }))
    }

    async fn next(&mut self) -> Option<Result<StreamItem>> {
        let item = self.pull().await;
        if (self.ended || item.is_none())
            && let Some(attendance) = self.attendance.take()
        {
            attendance.end();
        }
        item
    }

    /// Reads on until this message of a caller is an entry of the log.
    pub(super) async fn until_message(mut self, message: &Message) -> Result<Awaited> {
        while let Some(item) = self.entry().await {
            let item = item?;
            if let Some(seq) = item.seq().filter(|_| is_message(item.event(), message)) {
                return Ok(Awaited::Message(self.live.0.clone(), seq));
            }
        }
        Ok(if self.live.lock().has_ended() { Awaited::End } else { Awaited::Drain })
    }

    async fn pull(&mut self) -> Option<Result<StreamItem>> {
        loop {
            match self.entry().await? {
                Ok(item) => {
                    if let Some(item) = self.show(item) {
                        return Some(Ok(item));
                    }
                }
                error => return Some(error),
            }
        }
    }

    /// The next entry, shown or not.
    async fn entry(&mut self) -> Option<Result<StreamItem>> {
        loop {
            if let Some(item) = self.buffer.pop_front() {
                self.cursor = item.seq().unwrap_or(self.cursor).max(self.cursor);
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            let look = {
                let changed = self.live.changed();
                let look = look(&self.live.lock(), self.cursor);
                if matches!(look, Look::UpToDate) {
                    if !self.draining.is_cancelled() {
                        tokio::select! {
                            () = changed => {}
                            () = self.draining.cancelled() => {}
                        }
                    } else if self.live.lock().running.is_some() {
                        // Draining, but the task still has its grace period, and this stream shows its end.
                        changed.await;
                    } else {
                        // No more events will come here. The client reconnects elsewhere with its last id.
                        return None;
                    }
                    continue;
                }
                look
            };
            match look {
                Look::Events(events) => self.buffer = events,
                Look::Behind => match self.catch_up().await {
                    Ok(()) => {}
                    Err(error) => return self.fail(error),
                },
                Look::Reply(reply) => {
                    self.ended = true;
                    return Some(Ok(reply));
                }
                Look::Refused(error) => return self.fail(error),
                // The task is left to the next server. The client reconnects there with its last id.
                Look::Lost if self.draining.is_cancelled() && self.cursor > Seq::ZERO => return None,
                Look::Lost => match self.core.continued_elsewhere(&self.live).await {
                    Ok(live) => self.live = Follower::new(live),
                    Err(error) => return self.fail(error),
                },
                Look::UpToDate | Look::Over => return None,
            }
        }
    }

    fn fail(&mut self, error: Error) -> Option<Result<StreamItem>> {
        self.ended = true;
        Some(Err(error))
    }

    /// Reads the events from the store that are no longer in the ring.
    async fn catch_up(&mut self) -> Result<()> {
        let LiveTask { scope, id, .. } = &*self.live;
        let entries = self.core.store.events(scope, id, self.cursor, self.page.0).await?;
        if entries.is_empty() {
            // The entries were committed and are not in the store any more: the task was deleted.
            return Err(Error::task_not_found(&self.live.id));
        }
        let entries = self.page.fit(entries);
        self.buffer =
            entries.into_iter().map(|entry| StreamItem::new(Some(entry.seq), entry.event)).collect();
        Ok(())
    }

    /// Hides a caller's message, which is in the log and in the history but is no event on the wire; and ends
    /// the stream at its last status.
    fn show(&mut self, item: StreamItem) -> Option<StreamItem> {
        let reply = item.seq().is_none();
        match &**item.event() {
            Event::Message(_) => reply.then_some(item),
            Event::StatusUpdate(update) => {
                if self.until.ends(item.seq(), &update.status) {
                    self.ended = true;
                    self.buffer.clear();
                }
                Some(item)
            }
            Event::Task(_) | Event::ArtifactUpdate(_) => Some(item),
        }
    }
}

/// The next step of a stream, as the state of its live task shows it.
enum Look {
    /// Yield these events.
    Events(VecDeque<StreamItem>),
    /// Read the store: the ring does not reach back that far.
    Behind,
    /// Yield the direct reply, and end.
    Reply(StreamItem),
    /// Yield the error that refused the message, and end.
    Refused(Error),
    /// Wait.
    UpToDate,
    /// End.
    Over,
    /// Continue with the task of the store, from which memory differs.
    Lost,
}

fn look(state: &LiveState, cursor: Seq) -> Look {
    match &state.phase {
        Phase::Lost(_) => Look::Lost,
        Phase::Refused(error) => Look::Refused(super::once_more(error)),
        Phase::Replied { reply, stored: true } => {
            Look::Reply(StreamItem::new(None, Arc::new(Event::Message(Arc::clone(reply)))))
        }
        Phase::Opening(_) | Phase::Replied { stored: false, .. } => Look::UpToDate,
        Phase::Task(tracked) if cursor >= tracked.committed.seq => {
            if state.has_ended() {
                Look::Over
            } else {
                Look::UpToDate
            }
        }
        Phase::Task(_) => match state.after(cursor) {
            Some(items) => Look::Events(items.cloned().collect()),
            None => Look::Behind,
        },
    }
}

/// A handle of a stream; while there is one, events are kept in the ring.
struct Follower(LiveTaskRef);

impl Follower {
    fn new(live: LiveTaskRef) -> Self {
        live.lock().followers += 1;
        Self(live)
    }
}

impl Deref for Follower {
    type Target = LiveTask;

    fn deref(&self) -> &LiveTask {
        &self.0
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.lock().followers -= 1;
    }
}

fn trim(item: &mut StreamItem, length: Option<i32>) {
    if let Event::Task(task) = &**item.event() {
        let mut task = task.clone();
        task.trim_history(length);
        *item = StreamItem::new(item.seq(), Arc::new(Event::Task(task)));
    }
}

/// Streams the rest of an ended task's log, for a client that was disconnected when the task ended.
pub(super) async fn replay(core: &Arc<Core>, scope: &Scope, id: &TaskId, after: Seq) -> Result<EventStream> {
    let permit = core.capacity.stream_permit()?;
    let (core, scope, id) = (Arc::clone(core), scope.clone(), id.clone());
    let mut size = PageSize(PAGE);
    let first = size.fit(core.store.events(&scope, &id, after, PAGE).await?);
    let state = (VecDeque::from(first), size, after, permit);
    Ok(Box::pin(stream::try_unfold(state, move |(mut page, mut size, mut cursor, permit)| {
        let (core, scope, id) = (Arc::clone(&core), scope.clone(), id.clone());
        async move {
            loop {
                if page.is_empty() {
                    page = size.fit(core.store.events(&scope, &id, cursor, size.0).await?).into();
                }
                let Some(StoredEvent { seq, event, .. }) = page.pop_front() else { return Ok(None) };
                cursor = seq;
                if !matches!(*event, Event::Message(_)) {
                    return Ok(Some((StreamItem::new(Some(seq), event), (page, size, cursor, permit))));
                }
            }
        }
    })))
}
