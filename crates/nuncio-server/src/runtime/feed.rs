//! Streams. The feed pulls: a subscriber reads the log after its cursor, yields, and waits for the
//! number to move. Every stream sees the same order; a slow one costs only itself.

use std::{collections::VecDeque, sync::Arc};

use futures_util::stream;
use nuncio_protocol::{
    Error, ErrorKind, Event, EventStream, Result, Seq, StreamItem, TaskId, TaskState, TaskStatus,
};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    live::{LiveRef, Progress},
};
use crate::store::Scope;

/// How many entries are read from the store at once.
const PAGE: usize = 128;

/// When a stream ends by itself (product decision 6, trap T-02).
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// At a terminal state, or at INPUT_REQUIRED after this entry.
    Answered(Seq),
    /// At a terminal state only.
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

/// Where a stream begins.
pub(super) enum Start {
    /// With the whole task as it is now, then what comes after.
    Snapshot,
    /// With the entry after this one.
    After(Seq),
}

/// A stream in the making.
pub(super) struct Feed {
    shared: Arc<Shared>,
    live: LiveRef,
    progress: watch::Receiver<Progress>,
    /// The number of the last entry that was read.
    cursor: Seq,
    buffer: VecDeque<StreamItem>,
    until: Until,
    ended: bool,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    /// Takes the snapshot and registers in one step, so that nothing is lost or doubled in between
    /// (REQ-143).
    pub(super) fn open(shared: &Arc<Shared>, live: LiveRef, start: &Start, until: Until) -> Result<Self> {
        let permit = shared.stream_permit()?;
        let progress = live.watch();
        let mut buffer = VecDeque::new();
        let (cursor, ended) = {
            let state = live.lock();
            if state.broken {
                return Err(ErrorKind::Unavailable.into());
            }
            let cursor = match *start {
                Start::After(seq) => seq,
                Start::Snapshot => {
                    let task = state.task.iter().cloned().map(Event::Task);
                    buffer.extend(task.map(|task| StreamItem::new(Some(state.seq), Arc::new(task))));
                    state.seq
                }
            };
            // The status that ends this stream may be behind the cursor already. Its own number
            // counts, not that of the last entry, which may be an artifact after an old question.
            let status =
                state.task.as_ref().map(|task| &task.status).filter(|_| state.settled <= Some(cursor));
            (cursor, status.is_some_and(|status| until.ends(state.settled, status)))
        };
        let (shared, closing) = (Arc::clone(shared), shared.closing.clone());
        Ok(Self { shared, live, progress, cursor, buffer, until, ended, closing, _permit: permit })
    }

    /// The first event, when it has come; the rest of the stream follows it.
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
        loop {
            if let Some(item) = self.buffer.pop_front() {
                self.cursor = item.seq().unwrap_or(self.cursor).max(self.cursor);
                if let Some(item) = self.show(item) {
                    return Some(Ok(item));
                }
                continue;
            }
            if self.ended {
                return None;
            }
            // Seen before looked at: a change after this wakes us.
            let progress = *self.progress.borrow_and_update();
            if progress.broken {
                self.ended = true;
                return Some(Err(Error::from(ErrorKind::Unavailable)));
            }
            if let Err(error) = self.fill().await {
                self.ended = true;
                return Some(Err(error));
            }
            if !self.buffer.is_empty() || self.ended {
                continue;
            }
            if self.cursor < progress.seq {
                // What was announced is neither in the ring nor in the store: the task was forgotten.
                self.ended = true;
                return Some(Err(Error::task_not_found(&self.live.id)));
            }
            if progress.state.is_terminal() {
                return None;
            }
            tokio::select! {
                changed = self.progress.changed() => if changed.is_err() { return None },
                // The server ends: the client is to come back with its last id.
                () = self.closing.cancelled() => return None,
            }
        }
    }

    /// What is there after the cursor: from the ring, or from the store if this stream lags.
    async fn fill(&mut self) -> Result<()> {
        {
            let state = self.live.lock();
            if let Some(reply) = state.reply.as_ref().filter(|_| self.live.progress().replied) {
                self.ended = true;
                self.buffer.push_back(StreamItem::new(None, Arc::new(Event::Message(Arc::clone(reply)))));
                return Ok(());
            }
            if let Some(items) = state.after(self.cursor) {
                self.buffer.extend(items.cloned());
                return Ok(());
            }
        }
        let entries = self.shared.store.events(&self.live.scope, &self.live.id, self.cursor, PAGE).await?;
        self.buffer.extend(entries.into_iter().map(|(seq, event)| StreamItem::new(Some(seq), event)));
        Ok(())
    }

    /// What a caller said is in the log and in history, but is no event on the wire.
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

fn trim(item: &mut StreamItem, length: Option<i32>) {
    if let Event::Task(task) = &**item.event() {
        let mut task = task.clone();
        task.trim_history(length);
        *item = StreamItem::new(item.seq(), Arc::new(Event::Task(task)));
    }
}

/// The rest of a finished task's log, for a client that was away when it ended.
pub(super) async fn replay(
    shared: &Arc<Shared>,
    scope: &Scope,
    id: &TaskId,
    after: Seq,
) -> Result<EventStream> {
    let permit = shared.stream_permit()?;
    let (shared, scope, id) = (Arc::clone(shared), scope.clone(), id.clone());
    let first = shared.store.events(&scope, &id, after, PAGE).await?;
    let state = (VecDeque::from(first), after, permit);
    Ok(Box::pin(stream::try_unfold(state, move |(mut page, mut cursor, permit)| {
        let (shared, scope, id) = (Arc::clone(&shared), scope.clone(), id.clone());
        async move {
            loop {
                if page.is_empty() {
                    page = shared.store.events(&scope, &id, cursor, PAGE).await?.into();
                }
                let Some((seq, event)) = page.pop_front() else { return Ok(None) };
                cursor = seq;
                if !matches!(*event, Event::Message(_)) {
                    return Ok(Some((StreamItem::new(Some(seq), event), (page, cursor, permit))));
                }
            }
        }
    })))
}
