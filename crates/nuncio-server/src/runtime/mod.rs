//! The server side of [`A2aService`]: admits calls, runs the executor, records what it says, and
//! answers from what is recorded.

mod admit;
mod builder;
mod cursor;
mod execution;
mod feed;
mod live;
mod record;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use nuncio_protocol::{
    A2aService, AgentCard, CallContext, CancelTaskRequest, DEFAULT_PAGE_SIZE,
    DeleteTaskPushNotificationConfigRequest, Error, ErrorKind, EventStream, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Result, SendMessageRequest,
    SendMessageResponse, Seq, SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig, TaskState,
    Validate as _,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::builder::{Limits, RuntimeBuilder};
pub(crate) use self::{admit::new_id, record::Recorder};
use self::{
    admit::{Admitted, InFlight, Slot},
    cursor::{Cursor, CursorKey},
    execution::Begun,
    feed::{Feed, Start, Until},
    live::{LiveRef, Registry, State, Stop},
};
use crate::{
    executor::{ExecContext, Execution, Executor},
    store::{Keyset, Scope, Store, TaskQuery},
};

/// What a caller is told to wait when a limit is reached.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Lets an execution that was just started go first: a quick agent has then said all it has to say
/// before we look, and nobody needs to be woken.
async fn let_it_run() {
    tokio::task::yield_now().await;
}

/// An agent's runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// What all parts of a runtime share.
pub(crate) struct Shared {
    agent: Arc<str>,
    card: Arc<AgentCard>,
    extended_card: Option<Arc<AgentCard>>,
    extended_card_is_open: bool,
    refused_media_types: Vec<String>,
    executor: Arc<dyn Executor>,
    store: Arc<dyn Store>,
    limits: Limits,
    /// The scope of the anonymous caller without a tenant, which is the most frequent one.
    anonymous: Arc<Scope>,
    registry: Arc<Registry>,
    in_flight: Mutex<HashMap<Slot, InFlight>>,
    cursor_key: CursorKey,
    tasks: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// No new work is taken.
    draining: CancellationToken,
    tracker: TaskTracker,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("agent", &self.shared.agent).finish_non_exhaustive()
    }
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<Slot, InFlight>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task_permit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.tasks).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::ResourceExhausted, "too many tasks are running")
                .with_retry_after(RETRY_AFTER)
        })
    }

    fn stream_permit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::ResourceExhausted, "too many streams are open")
                .with_retry_after(RETRY_AFTER)
        })
    }

    fn check_open(&self) -> Result<()> {
        if self.draining.is_cancelled() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down")
                .with_retry_after(RETRY_AFTER));
        }
        Ok(())
    }

    /// Whose tasks this call may see.
    fn scope(&self, cx: &CallContext, tenant: Option<&str>) -> Arc<Scope> {
        let tenant = tenant.or(cx.tenant.as_deref());
        if tenant.is_none() && cx.caller.principal().is_none() {
            return Arc::clone(&self.anonymous);
        }
        Arc::new(Scope {
            agent: Arc::clone(&self.agent),
            tenant: tenant.map(Into::into),
            owner: cx.caller.principal().cloned(),
        })
    }

    /// Before anything else: the extensions that the agent demands (REQ-077).
    fn check_extensions(&self, cx: &CallContext) -> Result<()> {
        let required = self.card.capabilities.extensions.iter().filter(|extension| extension.required);
        let missing: Vec<&str> = required
            .map(|extension| &*extension.uri)
            .filter(|uri| !cx.extensions.iter().any(|has| has == uri))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(",");
        Err(Error::new(ErrorKind::ExtensionSupportRequired, format!("declare in A2A-Extensions: {missing}"))
            .with_metadata("requiredExtensions", missing)
            .with_metadata("declaredExtensions", cx.extensions.join(",")))
    }

    /// REQ-132.
    fn check_streaming(&self) -> Result<()> {
        if self.card.capabilities.streaming == Some(true) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::UnsupportedOperation, "this agent does not stream"))
    }

    /// The task as it stands.
    async fn read(&self, scope: &Arc<Scope>, id: &TaskId) -> Result<Task> {
        if let Some(live) = self.registry.get(scope, id) {
            let state = live.lock();
            if !state.broken {
                return state.task.clone().ok_or_else(|| Error::task_not_found(id));
            }
        }
        let stored = self.store.task(scope, id).await?;
        stored.map(|stored| stored.task).ok_or_else(|| Error::task_not_found(id))
    }

    /// How long a caller may be kept waiting.
    fn patience(&self, cx: &CallContext) -> Instant {
        let ceiling = Instant::now() + self.limits.blocking_ceiling;
        cx.deadline.map_or(ceiling, |deadline| ceiling.min(deadline.into()))
    }

    /// What a send answers when its task has settled, or the time is up.
    async fn answer(
        self: &Arc<Self>,
        live: &LiveRef,
        turn: Seq,
        cx: &CallContext,
        wait: bool,
    ) -> Result<SendMessageResponse> {
        if wait {
            let_it_run().await;
            let settled = |state: &State| state.broken || state.answers(turn);
            // Looked at once without a timer: a quick agent is done by now.
            let in_time =
                settled(&live.lock()) || timeout_at(self.patience(cx), live.until(settled)).await.is_ok();
            if !in_time {
                // The agent has said nothing yet: then the task begins here, so that there is one to
                // come back to.
                Recorder::new(self, live).ensure().await?;
            }
        }
        let state = live.lock();
        if state.broken {
            return Err(ErrorKind::Unavailable.into());
        }
        match (&state.reply, &state.task) {
            (Some(reply), _) => Ok(SendMessageResponse::Message(Arc::clone(reply))),
            (None, Some(task)) => Ok(SendMessageResponse::Task(task.clone())),
            (None, None) => Err(Error::internal("a settled execution without task and reply")),
        }
    }
}

impl Runtime {
    /// Begins a runtime for this agent. What its card says, it does.
    pub fn builder(card: AgentCard, executor: impl Executor) -> RuntimeBuilder {
        RuntimeBuilder::new(card, Arc::new(executor))
    }

    /// The agent's public card.
    #[must_use]
    pub fn card(&self) -> &Arc<AgentCard> {
        &self.shared.card
    }

    /// True until [`Self::drain`] is called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.shared.draining.is_cancelled()
    }

    /// How many executions run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.tracker.len()
    }

    /// Ends in good order: no new work; running tasks get `grace`, and what still runs then is recorded as
    /// failed with the reason. Streams of running tasks show that end; others close at once, so that
    /// clients come back elsewhere.
    pub async fn drain(&self, grace: Duration) {
        self.shared.draining.cancel();
        self.shared.tracker.close();
        if tokio::time::timeout(grace, self.shared.tracker.wait()).await.is_ok() {
            return;
        }
        // More than once: a message that was let in just before may begin to run just after.
        let patience = self.shared.limits.cancel_grace + RETRY_AFTER;
        loop {
            for live in self.shared.registry.all() {
                execution::stop(&live, Stop::Shutdown);
            }
            if tokio::time::timeout(patience, self.shared.tracker.wait()).await.is_ok() {
                return;
            }
        }
    }

    /// How many tasks are in memory beside the store: none, when nothing runs and nobody watches.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn live_tasks(&self) -> usize {
        self.shared.registry.len()
    }
}

#[async_trait]
impl A2aService for Runtime {
    async fn send_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<SendMessageResponse> {
        let shared = &self.shared;
        shared.check_extensions(cx)?;
        let scope = shared.scope(cx, req.tenant.as_deref());
        let configuration = req.configuration.as_ref();
        let history_length = configuration.and_then(|configuration| configuration.history_length);
        let wait = !configuration.is_some_and(|configuration| configuration.return_immediately);
        let mut response = match shared.admit(cx, &scope, req).await? {
            Admitted::Task(live, Begun { turn, .. }) | Admitted::Joined(live, turn) => {
                shared.answer(&live, turn, cx, wait).await?
            }
            Admitted::Queued(live) => shared.answer(&live, Seq::ZERO, cx, false).await?,
            Admitted::Known(id) => match shared.registry.get(&scope, &id) {
                Some(live) => shared.answer(&live, Seq::ZERO, cx, wait).await?,
                None => SendMessageResponse::Task(shared.read(&scope, &id).await?),
            },
            Admitted::Replied(reply) => SendMessageResponse::Message(reply),
        };
        if let SendMessageResponse::Task(task) = &mut response {
            task.trim_history(history_length);
        }
        Ok(response)
    }

    async fn send_streaming_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<EventStream> {
        let shared = &self.shared;
        shared.check_extensions(cx)?;
        shared.check_streaming()?;
        let scope = shared.scope(cx, req.tenant.as_deref());
        let history_length =
            req.configuration.as_ref().and_then(|configuration| configuration.history_length);
        // Before the message is let in: what was begun is not refused afterwards.
        let permit = shared.stream_permit()?;
        match shared.admit(cx, &scope, req).await? {
            Admitted::Queued(live) => {
                Ok(Feed::open(shared, live, permit, Start::Snapshot, Until::Terminal)?.into_stream())
            }
            Admitted::Task(live, Begun { turn, task }) => {
                let_it_run().await;
                // A follow-up begins with the task at its turn (trap T-33), a new task with its first entry.
                let start = task.map_or(Start::After(turn), |task| Start::From(turn, Box::new(task)));
                Feed::open(shared, live, permit, start, Until::Answered(turn))?.first(history_length).await
            }
            Admitted::Joined(live, turn) => {
                let until = Until::Answered(turn);
                let Some(after) = cx.last_event_id else {
                    // As for a send that is no longer in flight: the task as it is, or as it begins.
                    return Feed::open(shared, live, permit, Start::Snapshot, until)?
                        .first(history_length)
                        .await;
                };
                check_last_event_id(after, live.standing().0)?;
                // Who has seen the beginning is not kept waiting for the next event.
                Ok(Feed::open(shared, live, permit, Start::After(after), until)?.into_stream())
            }
            Admitted::Known(id) => {
                // Nothing was begun, so it may be refused after all.
                drop(permit);
                self.resume(cx, &scope, &id, Until::Answered(Seq::ZERO), history_length).await
            }
            Admitted::Replied(reply) => {
                let event = nuncio_protocol::Event::Message(reply);
                let item = nuncio_protocol::StreamItem::new(None, Arc::new(event));
                Ok(Box::pin(futures_util::stream::iter([Ok(item)])))
            }
        }
    }

    async fn get_task(&self, cx: &CallContext, req: GetTaskRequest) -> Result<Task> {
        self.shared.check_extensions(cx)?;
        req.validate()?;
        let scope = self.shared.scope(cx, req.tenant.as_deref());
        let mut task = self.shared.read(&scope, &req.id).await?;
        task.trim_history(req.history_length);
        Ok(task)
    }

    async fn list_tasks(&self, cx: &CallContext, req: ListTasksRequest) -> Result<ListTasksResponse> {
        let shared = &self.shared;
        shared.check_extensions(cx)?;
        req.validate()?;
        let scope = shared.scope(cx, req.tenant.as_deref());
        let cursor = match &req.page_token {
            Some(token) => Some(shared.cursor_key.open(&scope, &req, token)?),
            None => None,
        };
        let page_size = req.page_size.unwrap_or(DEFAULT_PAGE_SIZE);
        let (after, total) = cursor.map(|cursor| (cursor.after, cursor.total)).unzip();
        let query = TaskQuery {
            context_id: req.context_id.clone(),
            // Unspecified filters nothing, also for a caller that did not come over a wire.
            state: req.status.filter(|state| *state != TaskState::Unspecified),
            since: req.status_timestamp_after,
            after,
            limit: usize::try_from(page_size).unwrap_or(1),
            count: total.is_none(),
        };
        let page = shared.store.tasks(&scope, &query).await?;
        let total = total.or(page.total).unwrap_or_default();
        let last = page.tasks.last().filter(|_| page.more);
        let next_page_token = match last.and_then(|task| Some((task.status.timestamp?, task.id.clone()))) {
            Some((timestamp, id)) => {
                shared.cursor_key.seal(&scope, &req, &Cursor { after: Keyset { timestamp, id }, total })?
            }
            None => String::new(),
        };
        let mut tasks = page.tasks;
        for task in &mut tasks {
            task.trim_history(req.history_length);
            if req.include_artifacts != Some(true) {
                task.artifacts.clear();
            }
        }
        let total_size = i32::try_from(total).unwrap_or(i32::MAX);
        Ok(ListTasksResponse { tasks, next_page_token, page_size, total_size })
    }

    async fn cancel_task(&self, cx: &CallContext, req: CancelTaskRequest) -> Result<Task> {
        let shared = &self.shared;
        shared.check_extensions(cx)?;
        req.validate()?;
        let scope = shared.scope(cx, req.tenant.as_deref());
        let live = shared.live(&scope, &req.id).await?;
        let not_cancelable =
            || Error::from(ErrorKind::TaskNotCancelable).with_metadata("taskId", req.id.as_str());
        let before = live.lock().task.clone().filter(|task| !task.status.state.is_terminal());
        let task = before.ok_or_else(not_cancelable)?;
        if !execution::stop(&live, Stop::Cancel) {
            let cx = idle_context(cx, task, req.metadata.clone());
            execution::cancel_idle(shared, cx, shared.limits.cancel_grace).await;
            // A message may have come in meanwhile; then there is an execution to stop.
            if !execution::stop(&live, Stop::Cancel) {
                match Recorder::new(shared, &live).end(TaskState::Canceled, None) {
                    // It has just ended otherwise; what follows sees how.
                    Err(error) if error.kind() != ErrorKind::UnsupportedOperation => return Err(error),
                    _ => {}
                }
            }
        }
        live.until(|state| state.broken || state.state().is_terminal()).await;
        let task = {
            let state = live.lock();
            if state.broken {
                return Err(ErrorKind::Unavailable.into());
            }
            state.task.clone()
        };
        task.filter(|task| task.status.state == TaskState::Canceled).ok_or_else(not_cancelable)
    }

    async fn subscribe_to_task(&self, cx: &CallContext, req: SubscribeToTaskRequest) -> Result<EventStream> {
        self.shared.check_extensions(cx)?;
        self.shared.check_streaming()?;
        req.validate()?;
        let scope = self.shared.scope(cx, req.tenant.as_deref());
        self.resume(cx, &scope, &req.id, Until::Terminal, None).await
    }

    async fn create_task_push_notification_config(
        &self,
        cx: &CallContext,
        _req: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        self.no_push(cx)
    }

    async fn get_task_push_notification_config(
        &self,
        cx: &CallContext,
        _req: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig> {
        self.no_push(cx)
    }

    async fn list_task_push_notification_configs(
        &self,
        cx: &CallContext,
        _req: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse> {
        self.no_push(cx)
    }

    async fn delete_task_push_notification_config(
        &self,
        cx: &CallContext,
        _req: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()> {
        self.no_push(cx)
    }

    async fn get_extended_agent_card(
        &self,
        cx: &CallContext,
        _req: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard> {
        let shared = &self.shared;
        shared.check_extensions(cx)?;
        if shared.card.capabilities.extended_agent_card != Some(true) {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "this agent has no extended card"));
        }
        if !shared.extended_card_is_open && cx.caller.principal().is_none() {
            return Err(ErrorKind::Unauthenticated.into());
        }
        let card = shared.extended_card.as_deref().cloned();
        card.ok_or_else(|| ErrorKind::ExtendedAgentCardNotConfigured.into())
    }
}

impl Runtime {
    /// REQ-153: an agent without webhooks says so, whatever the task.
    fn no_push<T>(&self, cx: &CallContext) -> Result<T> {
        self.shared.check_extensions(cx)?;
        Err(ErrorKind::PushNotificationNotSupported.into())
    }

    /// A stream of a task that exists: after the caller's last event, or from a snapshot on.
    async fn resume(
        &self,
        cx: &CallContext,
        scope: &Arc<Scope>,
        id: &TaskId,
        until: Until,
        history_length: Option<i32>,
    ) -> Result<EventStream> {
        let shared = &self.shared;
        let live = shared.live(scope, id).await?;
        let (last, state) = live.standing();
        if let Some(after) = cx.last_event_id {
            check_last_event_id(after, last)?;
            if state.is_terminal() {
                return feed::replay(shared, scope, id, after).await;
            }
            let permit = shared.stream_permit()?;
            return Ok(Feed::open(shared, live, permit, Start::After(after), until)?.into_stream());
        }
        // The repeat of a send is answered with how it ended (REQ-144 is about subscriptions).
        if state.is_terminal() && matches!(until, Until::Terminal) {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "the task has ended; get it instead"));
        }
        let permit = shared.stream_permit()?;
        Feed::open(shared, live, permit, Start::Snapshot, until)?.first(history_length).await
    }
}

fn check_last_event_id(after: Seq, last: Seq) -> Result<()> {
    if after > last {
        return Err(Error::invalid_field("Last-Event-ID", format!("the task has {last} events")));
    }
    Ok(())
}

/// What an executor is told about a task that is canceled while nothing runs.
fn idle_context(cx: &CallContext, task: Task, metadata: nuncio_protocol::Metadata) -> ExecContext {
    ExecContext::from(Execution {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        message: task.history.last().cloned().unwrap_or_default(),
        task: Some(task),
        references: Vec::new(),
        configuration: nuncio_protocol::SendMessageConfiguration::default(),
        metadata,
        call: cx.clone(),
        cancellation: CancellationToken::new(),
    })
}
