//! The client API: find an agent, select an interface, make calls.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_protocol::{
    A2aService, AgentCard, CallContext, CancelTaskRequest, EventStream, GetTaskRequest, ListTasksRequest,
    ListTasksResponse, Message, Part, Result, SendMessageRequest, SendMessageResponse, Seq,
    SubscribeToTaskRequest, Task, TaskId, Version,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    card::{discover::FetchedCard, verify::Verified},
    choose::Candidate,
    failure::Failure,
    transport::within,
};

/// A client of one agent. Cheap to clone.
///
/// ```no_run
/// use nuncio_client::{Client, protocol::SendMessageResponse};
///
/// # async fn run() -> nuncio_client::protocol::Result<()> {
/// let client = Client::connect("http://localhost:2602/agents/echo").await?;
/// match client.send("hello").await? {
///     SendMessageResponse::Task(task) => println!("{}: {}", task.id, task.status.state),
///     SendMessageResponse::Message(message) => println!("{}", message.text()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) card: Arc<FetchedCard>,
    pub(crate) verified: Option<Verified>,
    pub(crate) candidates: Vec<Candidate>,
    /// The transports to the agent, wrapped in the interceptors.
    pub(crate) service: Arc<dyn A2aService>,
    /// Timeout of calls that are answered at once.
    pub(crate) timeout: Duration,
    /// Timeout of calls that wait for the agent's work.
    pub(crate) send_timeout: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("card", &self.card)
            .field("verified", &self.verified)
            .field("candidates", &self.candidates)
            .field("timeout", &self.timeout)
            .field("send_timeout", &self.send_timeout)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn from_shared(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The agent's card, in v1.0 terms. With a verified signature, only its covered members.
    #[must_use]
    pub fn card(&self) -> &AgentCard {
        &self.shared.card.card
    }

    /// The agent's card as received.
    #[must_use]
    pub fn card_json(&self) -> &Value {
        &self.shared.card.json
    }

    /// The verified signature of the card, if [`Trust`](crate::Trust) asked for verification.
    #[must_use]
    pub fn verified(&self) -> Option<&Verified> {
        self.shared.verified.as_ref()
    }

    /// The usable interfaces, the preferred one first.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.shared.candidates
    }

    /// The version of the preferred interface.
    #[must_use]
    pub fn version(&self) -> Version {
        // A client has at least one candidate.
        self.shared.candidates.first().map_or(Version::V1_0, |candidate| candidate.version)
    }

    /// The agent as a service: for calls with their own context, and for operations without a method here.
    /// The caller sets the deadlines.
    #[must_use]
    pub fn service(&self) -> Arc<dyn A2aService> {
        Arc::clone(&self.shared.service)
    }

    /// A context for [`Self::service`].
    #[must_use]
    pub fn context(&self) -> CallContext {
        CallContext::new(self.version())
    }

    /// Sends a text, a message or a whole request to the agent, and waits for the result.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn send(&self, message: impl Into<Outgoing>) -> Result<SendMessageResponse> {
        let cx = self.until(self.shared.send_timeout);
        self.shared.service.send_message(&cx, message.into().0).await
    }

    /// Sends a message to an existing task: the answer to its question, or further input.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn reply(&self, task: &Task, message: impl Into<Outgoing>) -> Result<SendMessageResponse> {
        let mut req = message.into().0;
        req.message.task_id = Some(task.id.clone());
        req.message.context_id = Some(task.context_id.clone()).filter(|context| !context.is_empty());
        self.send(req).await
    }

    /// Sends a message and streams the events of its task. The stream resumes by itself when the connection
    /// breaks. Agents without our extension then send a snapshot of the task as one of the events.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn stream(&self, message: impl Into<Outgoing>) -> Result<EventStream> {
        let (cx, req) = (self.context(), message.into().0);
        self.open(self.shared.send_timeout, self.shared.service.send_streaming_message(&cx, req)).await
    }

    /// The current task.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn get(&self, id: impl Into<TaskId>) -> Result<Task> {
        self.get_with(GetTaskRequest { id: id.into(), ..GetTaskRequest::default() }).await
    }

    /// The current task, with the requested part of its history.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn get_with(&self, req: GetTaskRequest) -> Result<Task> {
        self.shared.service.get_task(&self.until(self.shared.timeout), req).await
    }

    /// A page of the caller's tasks. Agents of v0.3 do not support it: `UnsupportedOperation`.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn list(&self, req: ListTasksRequest) -> Result<ListTasksResponse> {
        self.shared.service.list_tasks(&self.until(self.shared.timeout), req).await
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn cancel(&self, id: impl Into<TaskId>) -> Result<Task> {
        let req = CancelTaskRequest { id: id.into(), ..CancelTaskRequest::default() };
        self.shared.service.cancel_task(&self.until(self.shared.timeout), req).await
    }

    /// Follows a task in progress. Resumes by itself, like [`Self::stream`].
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn subscribe(&self, id: impl Into<TaskId>) -> Result<EventStream> {
        self.subscribe_with(self.context(), id.into()).await
    }

    /// Follows a task from the event after this one, if the agent supports it: see
    /// [`RESUME_EXTENSION`](crate::RESUME_EXTENSION).
    ///
    /// # Errors
    /// The agent's error, or the failure to reach it.
    pub async fn subscribe_after(&self, id: impl Into<TaskId>, seq: Seq) -> Result<EventStream> {
        let cx = CallContext { last_event_id: Some(seq), ..self.context() };
        self.subscribe_with(cx, id.into()).await
    }

    async fn subscribe_with(&self, cx: CallContext, id: TaskId) -> Result<EventStream> {
        let req = SubscribeToTaskRequest { id, tenant: None };
        self.open(self.shared.timeout, self.shared.service.subscribe_to_task(&cx, req)).await
    }

    /// Opens a stream. The timeout is for its beginning; the agent decides how long it lasts.
    async fn open(
        &self,
        timeout: Duration,
        opening: impl Future<Output = Result<EventStream>> + Send,
    ) -> Result<EventStream> {
        let opening = async { opening.await.map_err(Failure::answered) };
        Ok(within(Some(Instant::now() + timeout), opening).await?)
    }

    fn until(&self, timeout: Duration) -> CallContext {
        CallContext { deadline: Some(Instant::now() + timeout), ..self.context() }
    }
}

/// A message to an agent: a text, a message, or a whole request.
#[derive(Clone, Debug)]
pub struct Outgoing(SendMessageRequest);

impl From<SendMessageRequest> for Outgoing {
    fn from(req: SendMessageRequest) -> Self {
        Self(req)
    }
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        Self(SendMessageRequest { message, ..SendMessageRequest::default() })
    }
}

impl From<Part> for Outgoing {
    fn from(part: Part) -> Self {
        Message::user(Uuid::now_v7().to_string(), part).into()
    }
}

impl From<&str> for Outgoing {
    fn from(text: &str) -> Self {
        Part::text(text).into()
    }
}

impl From<String> for Outgoing {
    fn from(text: String) -> Self {
        Part::text(text).into()
    }
}
