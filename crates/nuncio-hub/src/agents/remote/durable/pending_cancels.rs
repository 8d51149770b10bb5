//! Cancels that the agent has not received yet. Our task is canceled at once, because its caller wants no
//! more of it; the agent is asked as soon as it can be reached, even after a restart of the hub.
//!
//! ```text
//! cancel ──► sent ──► done
//!               └ not reached ──► stored ──► sent again, with back-off ──► done, or given up
//! ```
//! A cancel that arrives before the agent has named its task waits for the id, longer than the caller does.
//! A remote task without a known id cannot be canceled. That happens if the hub is killed while it waits,
//! or if a message is resumed that may have been sent to an agent that does not recognise repeats.

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

/// Time for the agent to cancel while the caller waits; the runtime waits a second longer.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);

const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The interval of reads for cancels that other hubs have stored.
const POLL_INTERVAL: Duration = Duration::from_secs(300);

/// Records per read.
const PAGE: usize = 100;

/// The pending cancels of one agent.
pub(super) struct PendingCancels {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    more: Notify,
}

impl PendingCancels {
    pub(super) fn new(store: &Arc<dyn Store>, agent: &Arc<str>) -> Self {
        Self { store: Arc::clone(store), agent: Arc::clone(agent), more: Notify::new() }
    }

    /// Stores that this remote task is to be canceled.
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
            // A record that exists already serves as well.
            Ok(_) => self.more.notify_one(),
            Err(error) => {
                let agent = &*self.agent;
                tracing::warn!(agent, %theirs, %error, "a pending cancel cannot be stored; the remote task continues");
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

/// True if a cancel that failed with this error should be repeated.
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
    /// Asks the agent to cancel one of its tasks. The call is not made on behalf of a caller.
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

    /// Asks the agent to cancel a task that has no running execution; stores the cancel if the agent cannot
    /// be reached.
    pub(super) async fn cancel_or_note(&self, theirs: &TaskId) {
        if let Err(error) = self.cancel(theirs.clone(), CANCEL_TIMEOUT).await {
            tracing::info!(agent = &*self.name, %theirs, %error, "the agent did not cancel");
            if is_unheard(&error) {
                self.pending_cancels.note(theirs).await;
            }
        }
    }

    /// Sends stored cancels until the agent has received them.
    pub(in crate::agents::remote) async fn deliver_cancels(self: Arc<Self>) {
        let mut pause = None::<Duration>;
        loop {
            let is_left = self.deliver_all().await.unwrap_or_else(|error| {
                tracing::warn!(agent = &*self.name, %error, "pending cancels cannot be read");
                true
            });
            if !is_left {
                pause = None;
                let _ = timeout(POLL_INTERVAL, self.pending_cancels.more.notified()).await;
            }
            // A pause first: the cause of the failure is probably not over yet.
            let now = pause.unwrap_or_else(|| self.link.load().settings.poll_every);
            sleep(now).await;
            pause = Some(Backoff::doubling(now, MAX_PAUSE).after(now));
        }
    }

    /// Sends all stored cancels once; true if some are left.
    async fn deliver_all(&self) -> Result<bool, StoreError> {
        let (noted, mut after, mut is_left) = (&self.pending_cancels, None, false);
        loop {
            let page = noted.page(after).await?;
            for record in &page {
                let theirs: TaskId = record.key[noted.prefix().len()..].into();
                match self.cancel(theirs.clone(), self.link.load().settings.timeout).await {
                    Err(error) if is_unheard(&error) && !self.is_given_up(record.at) => {
                        if was_not_sent(&error) || error.kind() == ErrorKind::Unavailable {
                            // The other cancels would fail as well.
                            return Ok(true);
                        }
                        is_left = true;
                        continue;
                    }
                    Ok(task) => {
                        let state = task.status.state;
                        tracing::info!(agent = &*self.name, %theirs, %state, "the agent was asked to cancel");
                    }
                    Err(error) => {
                        tracing::info!(agent = &*self.name, %theirs, %error, "the agent did not cancel");
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
