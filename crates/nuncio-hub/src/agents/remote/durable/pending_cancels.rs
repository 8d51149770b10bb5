//! Cancels that the agent has yet to hear of: ours are canceled at once, because their callers want nothing more of
//! them, and the agent is told as soon as it can be, if need be by the next hub.
//!
//! ```text
//! cancel ──► told ──► done
//!               └ cannot be reached ──► noted ──► told again, after longer and longer pauses ──► done, or given up
//! ```
//! A cancel that comes while the agent has not yet named its task waits for the name, and for longer than its caller
//! does. What nobody can name cannot be withdrawn: if the hub is killed while it waits, and if the message is taken up
//! again, was perhaps sent, and the agent does not know repeats.

use std::{sync::Arc, time::Duration};

use nuncio_client::was_not_sent;
use nuncio_protocol::{
    CallContext, CancelTaskRequest, Error, ErrorKind, Task, TaskId, Timestamp, retry::Backoff,
};
use nuncio_server::store::{Expect, PutRecord, Record, RecordQuery, Store, StoreError};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::Durable;
use crate::clock;

/// The kind of the records.
pub(in crate::agents) const KIND: &str = "to-cancel";

/// How long the agent may take to cancel while the caller waits; the runtime gives us a second more.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);

const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How often it is looked for what others have noted.
const LOOK_INTERVAL: Duration = Duration::from_secs(300);

/// So many are read at a time.
const PAGE: usize = 100;

/// The cancels that one agent has yet to hear of.
pub(super) struct PendingCancels {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    more: Notify,
}

impl PendingCancels {
    pub(super) fn new(store: &Arc<dyn Store>, agent: &Arc<str>) -> Self {
        Self { store: Arc::clone(store), agent: Arc::clone(agent), more: Notify::new() }
    }

    /// Notes that this task of the agent's is to be canceled.
    pub(super) async fn note(&self, theirs: &TaskId) {
        if theirs.is_empty() {
            return;
        }
        let put = PutRecord {
            kind: KIND.into(),
            key: format!("{}{theirs}", self.prefix()).into(),
            value: bytes::Bytes::new(),
            at: clock::now(),
            expect: Expect::Absent,
        };
        match self.store.put_records(vec![put]).await {
            // Noted before is as good.
            Ok(_) => self.more.notify_one(),
            Err(error) => {
                let agent = &*self.agent;
                tracing::warn!(agent, %theirs, %error, "a task of the agent's goes on that was canceled here");
            }
        }
    }

    fn prefix(&self) -> String {
        format!("{}\0", self.agent)
    }

    async fn page(&self, after: Option<String>) -> Result<Vec<Record>, StoreError> {
        let query = RecordQuery {
            kind: KIND.into(),
            prefix: self.prefix(),
            after,
            limit: PAGE,
            ..RecordQuery::default()
        };
        self.store.records(&query).await
    }

    async fn forget(&self, record: &Record) -> Result<(), StoreError> {
        self.store.delete_record(KIND, &record.key, Expect::Anything).await.map(drop)
    }
}

/// True if the agent may hear of it another time.
pub(super) fn is_unheard(error: &Error) -> bool {
    let passes = [
        ErrorKind::Unavailable,
        ErrorKind::DeadlineExceeded,
        ErrorKind::ResourceExhausted,
        ErrorKind::InvalidAgentResponse,
    ];
    was_not_sent(error) || passes.contains(&error.kind())
}

impl Durable {
    /// Asks the agent to cancel a task of its own, for nobody in particular.
    async fn cancel(&self, theirs: TaskId, patience: Duration) -> nuncio_protocol::Result<Task> {
        let link = self.link.load_full();
        let Some(connected) = link.connected() else { return Err(ErrorKind::Unavailable.into()) };
        let client = connected.client();
        let deadline = Some((Instant::now() + patience).into_std());
        let req = CancelTaskRequest { id: theirs, ..CancelTaskRequest::default() };
        let cx = CallContext { deadline, ..client.context() };
        let late = |_| Error::from(ErrorKind::DeadlineExceeded);
        let outcome = timeout(patience, client.service().cancel_task(&cx, req)).await.map_err(late).flatten();
        link.record_outcome(outcome.as_ref().err());
        outcome
    }

    /// Asks the agent to cancel a task that nobody here works on, now or later.
    pub(super) async fn cancel_or_note(&self, theirs: &TaskId) {
        if let Err(error) = self.cancel(theirs.clone(), CANCEL_TIMEOUT).await {
            tracing::info!(agent = &*self.name, %theirs, %error, "the agent did not cancel");
            if is_unheard(&error) {
                self.pending_cancels.note(theirs).await;
            }
        }
    }

    /// Tells the agent what it has not heard of, until it has.
    pub(in crate::agents::remote) async fn deliver_cancels(self: Arc<Self>) {
        let mut pause = None::<Duration>;
        loop {
            let is_left = self.deliver_all().await.unwrap_or_else(|error| {
                tracing::warn!(agent = &*self.name, %error, "what is to be canceled cannot be read");
                true
            });
            if !is_left {
                pause = None;
                let _ = timeout(LOOK_INTERVAL, self.pending_cancels.more.notified()).await;
            }
            // Not at once: whatever it is, it is not over yet.
            let now = pause.unwrap_or_else(|| self.link.load().settings.poll_every);
            sleep(now).await;
            pause = Some(Backoff::doubling(now, MAX_PAUSE).after(now));
        }
    }

    /// True if something is left to be told.
    async fn deliver_all(&self) -> Result<bool, StoreError> {
        let (noted, mut after, mut is_left) = (&self.pending_cancels, None, false);
        loop {
            let page = noted.page(after).await?;
            for record in &page {
                let theirs: TaskId = record.key[noted.prefix().len()..].into();
                match self.cancel(theirs.clone(), self.link.load().settings.timeout).await {
                    Err(error) if is_unheard(&error) && !self.is_given_up(record.at) => {
                        if was_not_sent(&error) || error.kind() == ErrorKind::Unavailable {
                            // The others would not be heard either.
                            return Ok(true);
                        }
                        is_left = true;
                        continue;
                    }
                    outcome => {
                        let outcome = outcome.map(|task| task.status.state);
                        tracing::info!(agent = &*self.name, %theirs, ?outcome, "the agent was asked to cancel");
                    }
                }
                noted.forget(record).await?;
            }
            after = match page.last() {
                Some(last) if page.len() == PAGE => Some(last.key.clone()),
                _ => return Ok(is_left),
            };
        }
    }

    fn is_given_up(&self, noted: Timestamp) -> bool {
        let age = clock::now().as_millis().saturating_sub(noted.as_millis());
        u128::try_from(age).is_ok_and(|age| age >= self.link.load().settings.give_up.as_millis())
    }
}
