//! The eleven operations. Each runs in the same order: required extensions, capability, parameters, scope,
//! work.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{
    A2aService, AgentCard, CallContext, CancelTaskRequest, DEFAULT_PAGE_SIZE,
    DeleteTaskPushNotificationConfigRequest, Error, ErrorKind, Event, EventStream,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Result, SendMessageRequest, SendMessageResponse, Seq, StreamItem,
    SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig, TaskState, Validate as _,
    op::{Call, Reply},
};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{
    COMMIT_TIMEOUT, Core,
    admit::Admitted,
    agent::Current,
    attendance::Attendance,
    conversation::Conversation,
    cursor::Cursor,
    execution,
    feed::{self, Feed, Start, Until},
    live::LiveTaskRef,
    record::Recorder,
    state::Stop,
    turn::Begun,
};
use crate::store::{Keyset, Projection, Scope, TaskQuery};

/// The maximum number of attempts to cancel a task that another server writes to at the same time.
const CANCEL_ATTEMPTS: usize = 8;

/// The number of tasks that are counted for the total of a filtered list.
const MAX_COUNTED: usize = 10_000;

/// The operations, without the author's interceptors and extensions.
pub(super) struct Operations {
    pub(super) core: Arc<Core>,
}

/// The outcome of a send.
enum Answered {
    With(SendMessageResponse),
    /// The live task was lost: the store has other entries than memory. The number is that of the turn.
    Lost(LiveTaskRef, Seq, Error),
    Refused(Error),
}

impl Answered {
    fn into_result(self) -> Result<SendMessageResponse> {
        match self {
            Self::With(response) => Ok(response),
            Self::Lost(_, _, error) | Self::Refused(error) => Err(error),
        }
    }
}

#[async_trait]
impl A2aService for Operations {
    async fn send_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<SendMessageResponse> {
        self.send(cx, Box::new(req)).await
    }

    async fn send_streaming_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<EventStream> {
        self.stream(cx, Box::new(req)).await
    }

    async fn get_task(&self, cx: &CallContext, req: GetTaskRequest) -> Result<Task> {
        self.core.agent.check_extensions(cx)?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        let shown = Projection { artifacts: true, history: length(req.history_length) };
        self.core.read(&scope, &req.id, shown).await
    }

    async fn list_tasks(&self, cx: &CallContext, req: ListTasksRequest) -> Result<ListTasksResponse> {
        let core = &self.core;
        core.agent.check_extensions(cx)?;
        req.validate()?;
        let scope = core.agent.scope(cx, req.tenant.as_deref());
        let cursor = match &req.page_token {
            Some(token) => Some(core.cursors.key().await?.open(&scope, &req, token)?),
            None => None,
        };
        let page_size = req.page_size.unwrap_or(DEFAULT_PAGE_SIZE);
        let (after, total) = cursor.map(|cursor| (cursor.after, (cursor.total, cursor.is_estimate))).unzip();
        let query = TaskQuery {
            context_id: req.context_id.clone(),
            // Unspecified is no filter, also for an in-process caller whose request was not decoded by a
            // binding.
            state: req.status.filter(|state| *state != TaskState::Unspecified),
            since: req.status_timestamp_after,
            after,
            except: None,
            limit: usize::try_from(page_size).unwrap_or(1),
            max_bytes: Some(core.limits.max_page_bytes),
            strict_bytes: false,
            count: total.is_none(),
            max_counted: Some(MAX_COUNTED),
            without_artifacts: req.include_artifacts != Some(true),
            history: length(req.history_length),
        };
        let page = core.store.tasks(&scope, &query).await?;
        let (total, total_is_estimate) = total.unwrap_or((page.total.unwrap_or_default(), page.is_estimate));
        let last = page.tasks.last().filter(|_| page.more);
        let next_page_token = match last.and_then(|task| Some((task.status.timestamp?, task.id.clone()))) {
            Some((timestamp, id)) => {
                let after = Keyset { timestamp, id };
                let cursor = Cursor { after, total, is_estimate: total_is_estimate };
                core.cursors.key().await?.seal(&scope, &req, &cursor)?
            }
            None => String::new(),
        };
        let total_size = i32::try_from(total).unwrap_or(i32::MAX);
        Ok(ListTasksResponse { tasks: page.tasks, next_page_token, page_size, total_size, total_is_estimate })
    }

    async fn cancel_task(&self, cx: &CallContext, req: CancelTaskRequest) -> Result<Task> {
        let core = &self.core;
        core.agent.check_extensions(cx)?;
        req.validate()?;
        let scope = core.agent.scope(cx, req.tenant.as_deref());
        let mut live = core.live(&scope, &req.id).await?;
        let not_cancelable =
            || Error::from(ErrorKind::TaskNotCancelable).with_metadata("taskId", req.id.as_str());
        if core.keeps_turns() && live.lock().running.is_none() {
            // The task may be an orphan of a stopped server. Adopt it first, so that its own execution is
            // stopped: only that one knows which work to cancel.
            core.recover_now().await;
        }
        core.refresh_memo(&live).await;
        let (before, memo) = {
            let state = live.lock();
            state.check_kept()?;
            (state.task().filter(|task| !task.status.state.is_terminal()).cloned(), state.memo.clone())
        };
        let task = before.ok_or_else(not_cancelable)?;
        if !execution::stop(&live, Stop::Cancel) {
            let Current { card, executor, .. } = &*core.agent.current.load_full();
            let conversation = Conversation::new(&core.store, &scope);
            let cx = execution::idle_context(card, cx, conversation, task, memo, req.metadata.clone());
            execution::cancel_idle(&**executor, cx, core.limits.cancel_grace).await;
            // A message may have arrived meanwhile; then its execution is to be stopped.
            if !execution::stop(&live, Stop::Cancel) {
                live = self.end_at_rest(&scope, live).await?;
            }
        }
        let ended = live.until_settled(|state| state.is_lost() || state.has_ended());
        if timeout(core.limits.cancel_grace + COMMIT_TIMEOUT, ended).await.is_err() {
            return Err(super::unavailable());
        }
        let task = {
            let state = live.lock();
            state.check_kept()?;
            state.task().cloned()
        };
        task.filter(|task| task.status.state == TaskState::Canceled).ok_or_else(not_cancelable)
    }

    async fn subscribe_to_task(&self, cx: &CallContext, req: SubscribeToTaskRequest) -> Result<EventStream> {
        self.core.agent.check_extensions(cx)?;
        self.core.agent.check_streaming()?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        self.resume(cx, &scope, &req.id, Until::Terminal, None).await
    }

    async fn create_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        self.check_push(cx)?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        self.core.create_webhook(cx, &scope, req).await
    }

    async fn get_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig> {
        self.check_push(cx)?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        self.core.get_webhook(&scope, &req).await
    }

    async fn list_task_push_notification_configs(
        &self,
        cx: &CallContext,
        req: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse> {
        self.check_push(cx)?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        self.core.list_webhooks(&scope, &req).await
    }

    async fn delete_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()> {
        self.check_push(cx)?;
        req.validate()?;
        let scope = self.core.agent.scope(cx, req.tenant.as_deref());
        self.core.delete_webhook(&scope, &req).await
    }

    async fn get_extended_agent_card(
        &self,
        cx: &CallContext,
        _req: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard> {
        let core = &self.core;
        core.agent.check_extensions(cx)?;
        core.agent.extended_card(cx).await
    }

    /// Keeps the boxed message of a send, which is large, instead of moving it out of its box.
    async fn call(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        match call {
            Call::SendMessage(req) => self.send(cx, req).await.map(Reply::Sent),
            Call::SendStreamingMessage(req) => self.stream(cx, req).await.map(Reply::Stream),
            other => Box::pin(other.dispatch(self, cx)).await,
        }
    }
}

impl Operations {
    async fn send(&self, cx: &CallContext, req: Box<SendMessageRequest>) -> Result<SendMessageResponse> {
        let core = &self.core;
        core.agent.check_extensions(cx)?;
        let scope = core.agent.scope(cx, req.tenant.as_deref());
        let configuration = req.configuration.as_ref();
        let history_length = configuration.and_then(|configuration| configuration.history_length);
        let wait = !configuration.is_some_and(|configuration| configuration.return_immediately);
        let admitted = core.admit(cx, &scope, req, !wait).await?;
        let mut response = match self.answered(cx, &scope, admitted, wait).await {
            Answered::Lost(live, turn, error) => {
                // Another server may have received the same message first, or has taken the task over or
                // canceled it.
                let known = Box::pin(core.taken_elsewhere(cx, live.key.as_ref(), &live)).await?;
                let known = match known {
                    Some(known) => known,
                    // The task has this message, so its outcome is the answer.
                    None if live.lock().is_stored_up_to(turn) => {
                        let live = core.continued_elsewhere(&live).await.map_err(|_| error)?;
                        Admitted::Joined(live, turn)
                    }
                    None => return Err(error),
                };
                drop(live);
                Box::pin(self.answered(cx, &scope, known, wait)).await.into_result()?
            }
            answered => answered.into_result()?,
        };
        if let SendMessageResponse::Task(task) = &mut response {
            task.trim_history(history_length);
        }
        Ok(response)
    }

    async fn answered(
        &self,
        cx: &CallContext,
        scope: &Arc<Scope>,
        admitted: Admitted,
        wait: bool,
    ) -> Answered {
        let core = &self.core;
        let (live, turn, wait) = match admitted {
            Admitted::Task(live, Begun { turn, .. }) | Admitted::Joined(live, turn) => (live, turn, wait),
            Admitted::Queued(live) => (live, Seq::ZERO, false),
            Admitted::Known(id) => {
                let live = match core.live(scope, &id).await {
                    Ok(live) => live,
                    Err(error) => return Answered::Refused(error),
                };
                // A task that nobody works on does not change, so do not wait.
                let worked_on = {
                    let state = live.lock();
                    state.running.is_some() || state.owned_elsewhere || state.parked
                };
                (live, Seq::ZERO, wait && worked_on)
            }
            Admitted::Replied(reply) => return Answered::With(SendMessageResponse::Message(reply)),
        };
        let attendance = wait.then(|| Attendance::of_sender(core, &live)).flatten();
        let answer = core.answer(&live, turn, cx, wait).await;
        if let Some(attendance) = attendance {
            attendance.end();
        }
        match answer {
            Ok(response) => Answered::With(response),
            Err(error) if live.lock().is_lost() => Answered::Lost(live, turn, error),
            Err(error) => Answered::Refused(error),
        }
    }

    async fn stream(&self, cx: &CallContext, req: Box<SendMessageRequest>) -> Result<EventStream> {
        let core = &self.core;
        core.agent.check_extensions(cx)?;
        core.agent.check_streaming()?;
        let scope = core.agent.scope(cx, req.tenant.as_deref());
        let history_length =
            req.configuration.as_ref().and_then(|configuration| configuration.history_length);
        // The permit comes first: a message that was admitted must not be refused afterwards.
        let permit = core.capacity.stream_permit()?;
        // `returnImmediately` has no meaning for a stream (spec 3.2.2).
        let admitted = core.admit(cx, &scope, req, false).await?;
        let begun = match &admitted {
            Admitted::Task(live, _) if live.key.is_some() && core.store.is_shared() => Some(live.clone()),
            _ => None,
        };
        match (self.streamed(cx, &scope, admitted, permit, history_length).await, begun) {
            // Another server may have received the same message first: its task is the answer.
            (Err(error), Some(live)) if live.lock().is_lost() => {
                let known = Box::pin(core.taken_elsewhere(cx, live.key.as_ref(), &live)).await?;
                drop(live);
                let known = known.ok_or(error)?;
                let permit = core.capacity.stream_permit()?;
                Box::pin(self.streamed(cx, &scope, known, permit, history_length)).await
            }
            (stream, _) => stream,
        }
    }

    /// Opens the stream of an admitted message.
    async fn streamed(
        &self,
        cx: &CallContext,
        scope: &Arc<Scope>,
        admitted: Admitted,
        permit: OwnedSemaphorePermit,
        history_length: Option<i32>,
    ) -> Result<EventStream> {
        let core = &self.core;
        match admitted {
            Admitted::Queued(live) => {
                let feed = Feed::open(core, live, permit, Start::Snapshot, Until::Terminal).await?;
                Ok(feed.attended(Attendance::of_subscriber).into_stream())
            }
            Admitted::Task(live, Begun { turn, task }) => {
                // The stream of a follow-up begins with the task at its turn (trap T-33), that of a new task
                // with its first entry.
                let start = task.map_or(Start::After(turn), |task| Start::From(turn, Box::new(task)));
                Feed::open(core, live, permit, start, Until::Answered(turn))
                    .await?
                    .attended(Attendance::of_sender)
                    .first(history_length)
                    .await
            }
            Admitted::Joined(live, turn) => {
                let until = Until::Answered(turn);
                let Some(after) = cx.last_event_id else {
                    // Like a send that is no longer in flight: the stream begins with the current task.
                    return Feed::open(core, live, permit, Start::Snapshot, until)
                        .await?
                        .attended(Attendance::of_sender)
                        .first(history_length)
                        .await;
                };
                check_last_event_id(after, live.standing()?.0)?;
                // A client that resumes has seen the beginning, so the response does not wait for the next
                // event.
                let feed = Feed::open(core, live, permit, Start::After(after), until).await?;
                Ok(feed.attended(Attendance::of_sender).into_stream())
            }
            Admitted::Known(id) => {
                // Nothing was started, so the call may still be refused.
                drop(permit);
                Box::pin(self.resume(cx, scope, &id, Until::Answered(Seq::ZERO), history_length)).await
            }
            Admitted::Replied(reply) => {
                let event = Event::Message(reply);
                let item = StreamItem::new(None, Arc::new(event));
                Ok(Box::pin(futures_util::stream::iter([Ok(item)])))
            }
        }
    }

    fn check_push(&self, cx: &CallContext) -> Result<()> {
        self.core.agent.check_extensions(cx)?;
        self.core.push().map(drop)
    }

    /// Records the cancel of a task that is not running here. If another server writes to the task at the
    /// same time, the live task is lost and the cancel is tried again with a fresh copy.
    async fn end_at_rest(&self, scope: &Arc<Scope>, mut live: LiveTaskRef) -> Result<LiveTaskRef> {
        for _ in 0..CANCEL_ATTEMPTS {
            match Recorder::new(&self.core, &live).end(TaskState::Canceled, None).await {
                // The task ended in another way just now; the state below shows it.
                Err(error) if error.kind() != ErrorKind::UnsupportedOperation => return Err(error),
                _ => {}
            }
            let recorded = live.until_settled(|state| state.is_lost() || state.has_ended());
            if timeout(COMMIT_TIMEOUT, recorded).await.is_err() || !live.lock().is_lost() {
                break;
            }
            live = self.core.live(scope, &live.id).await?;
            if execution::stop(&live, Stop::Cancel) {
                break;
            }
        }
        Ok(live)
    }

    /// Opens a stream of an existing task: after the caller's last event, or beginning with a snapshot.
    async fn resume(
        &self,
        cx: &CallContext,
        scope: &Arc<Scope>,
        id: &TaskId,
        until: Until,
        history_length: Option<i32>,
    ) -> Result<EventStream> {
        let core = &self.core;
        let live = core.live(scope, id).await?;
        let (last, ended) = live.standing()?;
        if let Some(after) = cx.last_event_id {
            check_last_event_id(after, last)?;
            if ended {
                return feed::replay(core, scope, id, after).await;
            }
            let permit = core.capacity.stream_permit()?;
            let feed = Feed::open(core, live, permit, Start::After(after), until).await?;
            return Ok(feed.attended(Attendance::of_subscriber).into_stream());
        }
        // A repeated send gets the ended task as its answer; the refusal of REQ-144 is for subscriptions.
        if ended && matches!(until, Until::Terminal) {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "the task has ended; get it instead"));
        }
        let permit = core.capacity.stream_permit()?;
        let feed = Feed::open(core, live, permit, Start::Snapshot, until).await?;
        feed.attended(Attendance::of_subscriber).first(history_length).await
    }
}

/// The number of history messages to return; `None`: all (spec 3.2.4).
fn length(history_length: Option<i32>) -> Option<usize> {
    history_length.and_then(|length| usize::try_from(length).ok())
}

fn check_last_event_id(after: Seq, last: Seq) -> Result<()> {
    if after > last {
        return Err(Error::invalid_field("Last-Event-ID", format!("the task has {last} events")));
    }
    Ok(())
}
