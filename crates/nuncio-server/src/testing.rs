//! Scripted executors and a harness: a whole agent in process, without sockets.
//!
//! ```
//! use nuncio_server::testing::{Harness, ScriptedExecutor, Step, lines};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> nuncio_server::protocol::Result<()> {
//! let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x")]));
//! let seen = lines(harness.stream("hello").await?).await;
//! assert_eq!(seen, ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"]);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "push")]
pub mod courier;
#[cfg(feature = "postgres")]
pub mod postgres;

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService as _, AgentCapabilities, AgentCard, AgentInterface, Artifact, Binding, CallContext, Caller,
    CancelTaskRequest, Error, ErrorKind, Event, EventStream, GetTaskRequest, Message, MessageId, Part,
    Result, SendMessageRequest, SendMessageResponse, StreamItem, SubscribeToTaskRequest, Task, TaskId,
    TaskState, TaskStatus, Version,
};

pub use crate::store::failing::{FailingStore, STORE_SECRET};
use crate::{
    id::new_id,
    runtime::{Emitter, ExecContext, Executor, Runtime, RuntimeBuilder},
    store::MemoryStore,
};

/// A step of a scripted agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Makes the task.
    Submitted,
    /// Sets the state working.
    Working,
    /// Emits a whole artifact: id and text.
    Artifact(&'static str, &'static str),
    /// Appends to an artifact: id and text.
    Append(&'static str, &'static str),
    /// Interrupts the task for input, with this question.
    InputRequired(&'static str),
    /// Interrupts the task for an authorisation, with this explanation.
    AuthRequired(&'static str),
    /// Completes the task.
    Completed,
    /// Gives a direct reply.
    Reply(&'static str),
    /// Sleeps.
    Sleep(Duration),
    /// Never returns.
    Hang,
    /// Fails with this message, and with a source that no caller may see.
    Fail(&'static str),
    /// Panics with this message.
    Panic(&'static str),
}

impl Step {
    async fn play(self, out: &Emitter) -> Result<()> {
        let artifact = |id: &str, text: &str| Artifact::new(id, Part::text(text));
        match self {
            Self::Submitted => out.submitted().await,
            Self::Working => out.working().await.map(drop),
            Self::Artifact(id, text) => out.artifact(artifact(id, text)).await.map(drop),
            Self::Append(id, text) => out.chunk(artifact(id, text), true, false).await.map(drop),
            Self::InputRequired(question) => out.input_required(question).await.map(drop),
            Self::AuthRequired(explanation) => out.auth_required(explanation).await.map(drop),
            Self::Completed => out.completed().await.map(drop),
            Self::Reply(text) => out.message(Part::text(text)).await,
            Self::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Self::Hang => std::future::pending().await,
            Self::Fail(why) => Err(Error::new(ErrorKind::Internal, why).with_source(STORE_SECRET)),
            #[expect(clippy::panic, reason = "the script says so")]
            Self::Panic(why) => panic!("{why}"),
        }
    }
}

type Work = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// An agent with behaviour that a test defines.
pub struct ScriptedExecutor {
    execute: Box<dyn Fn(ExecContext, Emitter) -> Work + Send + Sync>,
    cancel: Box<dyn Fn(ExecContext) -> Work + Send + Sync>,
}

impl ScriptedExecutor {
    /// An agent that runs this function for each message.
    pub fn new<F>(execute: impl Fn(ExecContext, Emitter) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            execute: Box::new(move |cx, out| Box::pin(execute(cx, out))),
            cancel: Box::new(|_| Box::pin(std::future::ready(Ok(())))),
        }
    }

    /// An agent that plays these steps for each message.
    pub fn steps(steps: impl Into<Vec<Step>>) -> Self {
        Self::turns([steps.into()])
    }

    /// An agent that plays the first script for the first message, the next for the next. The last one
    /// repeats.
    pub fn turns(turns: impl Into<Vec<Vec<Step>>>) -> Self {
        let (turns, turn) = (Arc::new(turns.into()), AtomicUsize::new(0));
        Self::new(move |_, out| {
            let (turns, at) = (Arc::clone(&turns), turn.fetch_add(1, Ordering::SeqCst));
            async move {
                for step in turns.get(at).or(turns.last()).into_iter().flatten() {
                    step.play(&out).await?;
                }
                Ok(())
            }
        })
    }

    /// Sets the function to run on a cancel.
    #[must_use]
    pub fn on_cancel<F>(mut self, cancel: impl Fn(ExecContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.cancel = Box::new(move |cx| Box::pin(cancel(cx)));
        self
    }
}

impl fmt::Debug for ScriptedExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedExecutor").finish_non_exhaustive()
    }
}

#[async_trait]
impl Executor for ScriptedExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        (self.execute)(cx, out).await
    }

    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        (self.cancel)(cx).await
    }
}

/// A runtime with a scripted executor and a store that can fail.
#[derive(Clone, Debug)]
pub struct Harness {
    /// The agent.
    pub runtime: Runtime,
    /// The store of the agent.
    pub store: Arc<FailingStore>,
    /// The context of the helpers' calls.
    pub cx: CallContext,
}

impl Harness {
    /// An agent with defaults, and streaming.
    pub fn new(executor: impl Executor) -> Self {
        Self::with(executor, |builder| builder)
    }

    /// An agent with changes to its builder.
    pub fn with(executor: impl Executor, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::of(card(), MemoryStore::default(), executor, build)
    }

    /// An agent with this card and this store.
    pub fn of(
        card: AgentCard,
        store: impl Into<FailingStore>,
        executor: impl Executor,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let store = Arc::new(store.into());
        let runtime = build(Runtime::builder(card, executor).store(Arc::clone(&store) as _)).build();
        Self { runtime, store, cx: CallContext::default() }
    }

    /// The same agent, with this caller.
    #[must_use]
    pub fn as_caller(&self, principal: &str) -> Self {
        self.calling(|cx| cx.caller = Caller::authenticated(principal))
    }

    /// The same agent, with a changed call context.
    #[must_use]
    pub fn calling(&self, change: impl FnOnce(&mut CallContext)) -> Self {
        let mut harness = self.clone();
        change(&mut harness.cx);
        harness
    }

    /// Sends a message and waits for the response.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn send(&self, request: impl Into<Say>) -> Result<SendMessageResponse> {
        self.runtime.send_message(&self.cx, request.into().0).await
    }

    /// Sends a message that is answered with a task.
    ///
    /// # Errors
    /// The agent's error; `InvalidAgentResponse` for a direct reply.
    pub async fn task(&self, request: impl Into<Say>) -> Result<Task> {
        match self.send(request).await? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(reply) => {
                Err(Error::new(ErrorKind::InvalidAgentResponse, format!("a direct reply: {}", reply.text())))
            }
        }
    }

    /// Begins a task without waiting for it.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn begin(&self, request: impl Into<Say>) -> Result<Task> {
        self.task(request.into().immediately()).await
    }

    /// Sends a message and follows its events.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn stream(&self, request: impl Into<Say>) -> Result<EventStream> {
        self.runtime.send_streaming_message(&self.cx, request.into().0).await
    }

    /// Gets the task.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn get(&self, id: &TaskId) -> Result<Task> {
        self.runtime.get_task(&self.cx, GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() }).await
    }

    /// Cancels the task.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn cancel(&self, id: &TaskId) -> Result<Task> {
        self.runtime
            .cancel_task(&self.cx, CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() })
            .await
    }

    /// Subscribes to the task.
    ///
    /// # Errors
    /// The agent's error.
    pub async fn subscribe(&self, id: &TaskId) -> Result<EventStream> {
        let request = SubscribeToTaskRequest { id: id.clone(), ..SubscribeToTaskRequest::default() };
        self.runtime.subscribe_to_task(&self.cx, request).await
    }

    /// Waits until the task is in this state. Meant for paused time.
    ///
    /// # Errors
    /// The agent's error; `DeadlineExceeded` if it takes too long.
    pub async fn until(&self, id: &TaskId, state: TaskState) -> Result<Task> {
        let patience = tokio::time::Instant::now() + Duration::from_secs(3600);
        while tokio::time::Instant::now() < patience {
            let task = self.get(id).await?;
            if task.status.state == state {
                return Ok(task);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(ErrorKind::DeadlineExceeded.into())
    }
}

/// A builder of a send request.
#[derive(Clone, Debug)]
pub struct Say(SendMessageRequest);

impl From<&str> for Say {
    fn from(text: &str) -> Self {
        let message = Message::user(new_id::<MessageId>(), Part::text(text));
        Self(SendMessageRequest { message, ..SendMessageRequest::default() })
    }
}

impl From<SendMessageRequest> for Say {
    fn from(request: SendMessageRequest) -> Self {
        Self(request)
    }
}

impl Say {
    /// A message to this task.
    pub fn to(task: &Task, text: &str) -> Self {
        Self::from(text).change(|request| request.message.task_id = Some(task.id.clone()))
    }

    /// Does not wait for the task to settle.
    #[must_use]
    pub fn immediately(self) -> Self {
        self.change(|request| request.configuration.get_or_insert_default().return_immediately = true)
    }

    /// Limits the history in the response.
    #[must_use]
    pub fn history(self, length: i32) -> Self {
        self.change(|request| request.configuration.get_or_insert_default().history_length = Some(length))
    }

    /// Changes the request.
    #[must_use]
    pub fn change(mut self, change: impl FnOnce(&mut SendMessageRequest)) -> Self {
        change(&mut self.0);
        self
    }

    /// The request.
    #[must_use]
    pub fn into_request(self) -> SendMessageRequest {
        self.0
    }
}

/// The card of a streaming agent, with all bindings in both versions.
#[must_use]
pub fn card() -> AgentCard {
    let interface = |binding: Binding, version: Version| AgentInterface {
        url: "http://agent.test/".to_owned(),
        protocol_binding: binding.as_str().to_owned(),
        protocol_version: version.as_str().to_owned(),
        ..AgentInterface::default()
    };
    let bindings = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];
    AgentCard {
        name: "scripted".to_owned(),
        description: "does what the test says".to_owned(),
        version: "1".to_owned(),
        supported_interfaces: Version::ALL
            .iter()
            .flat_map(|version| bindings.map(|binding| interface(binding, *version)))
            .collect(),
        capabilities: AgentCapabilities { streaming: Some(true), ..AgentCapabilities::default() },
        ..AgentCard::default()
    }
}

/// Reads a whole stream, one line per event (see [`line()`]).
pub async fn lines(stream: EventStream) -> Vec<String> {
    stream.map(|item| line(&item)).collect().await
}

/// Reads the next line of a stream; `end` when it has ended.
pub async fn next_line(stream: &mut EventStream) -> String {
    stream.next().await.map_or_else(|| "end".to_owned(), |item| line(&item))
}

/// An event in brief, such as `2 status working`, `3 artifact a +"x" last`, `- message "hi"` or `error
/// Unavailable`.
#[must_use]
pub fn line(item: &Result<StreamItem>) -> String {
    let item = match item {
        Ok(item) => item,
        Err(error) => return format!("error {:?}", error.kind()),
    };
    let seq = item.seq().map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    match &**item.event() {
        Event::Task(task) => format!("{seq} task {}", status(&task.status)),
        Event::Message(message) => format!("{seq} message \"{}\"", message.text()),
        Event::StatusUpdate(update) => format!("{seq} status {}", status(&update.status)),
        Event::ArtifactUpdate(update) => {
            let (append, last) =
                (if update.append { "+" } else { "" }, if update.last_chunk { " last" } else { "" });
            format!(
                "{seq} artifact {} {append}\"{}\"{last}",
                update.artifact.artifact_id,
                update.artifact.text()
            )
        }
    }
}

fn status(status: &TaskStatus) -> String {
    let state = status.state.as_str().trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-");
    match &status.message {
        Some(message) => format!("{state} \"{}\"", message.text()),
        None => state,
    }
}

/// A task in brief: state, history, artifacts; such as `completed | user: hi; agent: hello | a "x"`.
#[must_use]
pub fn summary(task: &Task) -> String {
    let said: Vec<String> = task
        .history
        .iter()
        .map(|message| {
            format!(
                "{}: {}",
                message.role.as_str().trim_start_matches("ROLE_").to_lowercase(),
                message.text()
            )
        })
        .collect();
    let made: Vec<String> =
        task.artifacts.iter().map(|made| format!("{} \"{}\"", made.artifact_id, made.text())).collect();
    format!("{} | {} | {}", status(&task.status), said.join("; "), made.join("; "))
}
