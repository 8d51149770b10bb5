//! One turn of an agent in a seat: the other side's words go to the agent, and its answer is said in the room.
//!
//! | before | action |
//! |---|---|
//! | a round between two agents without words | seat a says the opening |
//! | the agent has the words of this turn already | its task is followed |
//! | its task of an earlier turn waits for input | the words go to that task |
//! | otherwise | the words begin a task of the agent |
//!
//! | the agent's answer | said as |
//! |---|---|
//! | input required, a direct reply | its message, and the other side speaks |
//! | authorization required | its message, `authorize` |
//! | completed | its message (or artifacts); ends the round, or hands over (`completed`) |
//! | failed, rejected | its message, `fail` or `reject` |
//! | canceled | the round is canceled |
//! | the agent is not there | nothing: the round waits, or fails (`absent`) |
//!
//! A word for who speaks next in the metadata of its message takes precedence. **Invariant:** the message to the agent
//! and the words in the room have an id that follows from room, round and turn: what is repeated after a crash is there
//! once.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService, Artifact, CallContext, CancelTaskRequest, Error, ErrorKind, Event, EventStream,
    GetTaskRequest, Message, MessageId, Metadata, Part, Result, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task, TaskId, TaskState, Version,
};
use serde_json::json;

use crate::{
    agents::{AgentFactory, delegation::Hop},
    rooms::{Delegated, Direction, Next, ROOM_EXTENSION, Room, Round, Side, Words, unanswered},
};

/// Pauses between two looks at a task of an agent that does not stream.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to say an answer while the room cannot be written.
const MAX_ATTEMPTS: usize = 5;
/// Pause between them.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The words of an agent that has said nothing.
const NO_WORDS: &str = "(no words)";
/// The member of metadata that other bridges use for who speaks next.
const NEXT_STATE: &str = "nextState";

/// A turn of the agent in a seat.
pub(super) struct SeatTurn {
    factory: Arc<AgentFactory>,
    room: Arc<Room>,
    round: Round,
    side: Side,
}

/// The answer of an agent.
enum Answer {
    Reply(Arc<Message>),
    Task(Task),
    /// The round has ended meanwhile.
    Stopped,
}

/// The first answer to a message.
enum Sent {
    Answer(Answer),
    Events(TaskId, EventStream),
}

impl SeatTurn {
    pub(super) fn new(factory: &Arc<AgentFactory>, room: &Arc<Room>, round: &Round, side: Side) -> Self {
        Self { factory: Arc::clone(factory), room: Arc::clone(room), round: round.clone(), side }
    }

    /// Runs the turn; true if the room has changed. What fails is said in the room, or tried again later.
    pub(super) async fn run(&self) -> bool {
        self.speak().await.unwrap_or_else(|error| {
            tracing::debug!(room = &**self.room.name(), seat = self.side.name(), %error, "a turn of an agent is tried again");
            false
        })
    }

    /// Cancels the task of the agent, whose round has ended; true if that is done.
    pub(super) async fn withdraw(&self) -> bool {
        let Some(delegated) = self.round.delegated.of(self.side) else { return false };
        let settings = self.room.settings();
        let service = self.factory.seated.find(&settings, self.side == Side::B, &self.factory);
        if let Some((service, cx)) = service.zip(self.context().ok()) {
            let request = CancelTaskRequest { id: delegated.task.clone(), ..CancelTaskRequest::default() };
            match service.cancel_task(&cx, request).await {
                // The agent is away: later.
                Err(error) if error.kind() == ErrorKind::Unavailable => return false,
                _ => {}
            }
        }
        self.room.delegate(self.side, self.round.number, None).await.is_ok()
    }

    async fn speak(&self) -> Result<bool> {
        let Some(seen) = self.room.task(self.side, &self.round).await? else { return Ok(false) };
        let own = seen.history.iter().filter(|message| message.role == Role::User).count();
        let id = self.room.message_id(&self.round, self.side, own);
        let words = unanswered(&seen);
        if words.is_empty() {
            return self.open(&seen, id, own).await;
        }
        let settings = self.room.settings();
        let Some(service) = self.factory.seated.find(&settings, self.side == Side::B, &self.factory) else {
            self.room.note_presence(self.side, self.round.number, false).await?;
            return Ok(false);
        };
        match self.ask(&*service, &id, &words).await {
            Ok(Answer::Stopped) => Ok(true),
            Ok(answer) => self.answer(id, answer).await.map(|()| true),
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => {
                tracing::info!(room = &**self.room.name(), seat = self.side.name(), %error, "the agent in a seat is not there");
                self.room.note_presence(self.side, self.round.number, false).await?;
                Ok(false)
            }
            Err(error) => {
                let text = format!("the agent refused the message: {}", error.message());
                self.say(id, vec![Part::text(text)], Some("fail")).await?;
                Ok(true)
            }
        }
    }

    /// Says the opening of a round between two agents; false if it has one.
    async fn open(&self, seen: &Task, id: MessageId, own: usize) -> Result<bool> {
        let settings = self.room.settings();
        let opening = settings.opening.as_deref().filter(|_| settings.is_between_agents());
        match opening {
            Some(opening) if self.side == Side::A && own == 0 && seen.history.is_empty() => {
                self.say(id, vec![Part::text(opening)], None).await?;
                Ok(true)
            }
            // A person or a caller has the word.
            _ => Ok(false),
        }
    }

    /// The context of a call to the agent.
    ///
    /// # Errors
    /// The call goes in a circle.
    fn context(&self) -> Result<CallContext> {
        let hop = Hop::new(&self.factory.hub, self.room.name());
        let passage = hop.pass(&self.round.hops)?;
        Ok(CallContext {
            caller: self.room.holder(self.side),
            trace: Some(passage.trace(None)),
            hops: passage.hops,
            ..CallContext::new(Version::V1_0)
        })
    }

    /// Gives the words to the agent, and waits for its answer.
    async fn ask(&self, service: &dyn A2aService, id: &MessageId, words: &[Arc<Message>]) -> Result<Answer> {
        let cx = self.context()?;
        let known = self.round.delegated.of(self.side).clone();
        let mut into = None;
        if let Some(Delegated { task, message }) = known {
            match self.look(service, &cx, &task).await {
                Ok(_) if message == *id => return self.follow(service, &cx, &task, None).await,
                Ok(found) if has(&found, id) => return self.follow(service, &cx, &task, None).await,
                Ok(found) if !found.status.state.is_terminal() => into = Some(task),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => return Err(error),
            }
        }
        let message = self.message(id, words, into);
        self.room.wire().note_agent(self.side, Direction::Out, &message);
        match self.send(service, &cx, message).await? {
            Sent::Answer(Answer::Task(task)) => {
                self.remember(&task.id, id).await?;
                self.follow(service, &cx, &task.id, None).await
            }
            Sent::Answer(answer) => Ok(answer),
            Sent::Events(task, events) => {
                self.remember(&task, id).await?;
                self.follow(service, &cx, &task, Some(events)).await
            }
        }
    }

    /// The words as a message to the agent: as one, if there are several.
    fn message(&self, id: &MessageId, words: &[Arc<Message>], task: Option<TaskId>) -> Message {
        let parts: Vec<Part> = words.iter().flat_map(|message| message.parts.iter().cloned()).collect();
        let mut metadata = Metadata::new();
        for message in words {
            metadata.merge(&message.metadata);
        }
        // Words about the conversation in the room are not for the agent.
        metadata.remove(ROOM_EXTENSION);
        metadata.remove(NEXT_STATE);
        let context_id = Some(self.round.context_id.clone());
        Message { task_id: task, context_id, metadata, ..Message::user(id.clone(), parts) }
    }

    async fn send(&self, service: &dyn A2aService, cx: &CallContext, message: Message) -> Result<Sent> {
        let cx = CallContext { idempotency_key: Some(message.message_id.to_string()), ..cx.clone() };
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let mut events = match service.send_streaming_message(&cx, request.clone()).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound) =>
            {
                let configuration = SendMessageConfiguration {
                    return_immediately: true,
                    ..SendMessageConfiguration::default()
                };
                let request = SendMessageRequest { configuration: Some(configuration), ..request };
                return Ok(Sent::Answer(match service.send_message(&cx, request).await? {
                    SendMessageResponse::Task(task) => Answer::Task(task),
                    SendMessageResponse::Message(reply) => Answer::Reply(reply),
                }));
            }
            events => events?,
        };
        let none = || Error::new(ErrorKind::InvalidAgentResponse, "the agent gave no answer");
        match events.next().await.ok_or_else(none)??.into_event() {
            Event::Message(reply) => Ok(Sent::Answer(Answer::Reply(reply))),
            event => Ok(Sent::Events(event.task_id().cloned().ok_or_else(none)?, events)),
        }
    }

    /// Notes the task of the agent, and that the agent is there.
    async fn remember(&self, task: &TaskId, message: &MessageId) -> Result<()> {
        let delegated = Delegated { task: task.clone(), message: message.clone() };
        self.room.delegate(self.side, self.round.number, Some(delegated)).await?;
        if self.round.waits_for(self.side) {
            self.room.note_presence(self.side, self.round.number, true).await?;
        }
        Ok(())
    }

    /// Waits until the task settles, or the round ends.
    async fn follow(
        &self,
        service: &dyn A2aService,
        cx: &CallContext,
        task: &TaskId,
        events: Option<EventStream>,
    ) -> Result<Answer> {
        let mut changes = self.room.changes();
        // The round may have ended before.
        changes.mark_changed();
        let settled = self.settle(service, cx, task, events);
        tokio::pin!(settled);
        loop {
            tokio::select! {
                task = &mut settled => return task.map(Answer::Task),
                _ = changes.changed() => {
                    let state = self.room.state(self.side, self.round.number).await?;
                    if state.is_some_and(|state| !state.is_terminal()) {
                        continue;
                    }
                    let request = CancelTaskRequest { id: task.clone(), ..CancelTaskRequest::default() };
                    if let Err(error) = service.cancel_task(cx, request).await {
                        tracing::debug!(room = &**self.room.name(), %error, "the task of an agent could not be canceled");
                    }
                    self.room.delegate(self.side, self.round.number, None).await?;
                    return Ok(Answer::Stopped);
                }
            }
        }
    }

    async fn settle(
        &self,
        service: &dyn A2aService,
        cx: &CallContext,
        id: &TaskId,
        mut events: Option<EventStream>,
    ) -> Result<Task> {
        loop {
            if let Some(stream) = &mut events {
                // A broken stream is followed by a look.
                while let Some(Ok(_)) = stream.next().await {}
            }
            let task = self.look(service, cx, id).await?;
            if task.status.state.is_terminal() || task.status.state.is_interrupted() {
                return Ok(task);
            }
            let request = SubscribeToTaskRequest { id: id.clone(), ..SubscribeToTaskRequest::default() };
            // A subscription ends with the task, and tells of a question before.
            events = service.subscribe_to_task(cx, request).await.ok().map(until_interrupted);
            if events.is_none() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    async fn look(&self, service: &dyn A2aService, cx: &CallContext, id: &TaskId) -> Result<Task> {
        let request = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        service.get_task(cx, request).await
    }

    /// Says the answer of the agent in the room.
    async fn answer(&self, id: MessageId, answer: Answer) -> Result<()> {
        let task = match answer {
            Answer::Stopped => return Ok(()),
            Answer::Reply(reply) => {
                self.room.wire().note_agent(self.side, Direction::In, &*reply);
                let next = word(&reply.metadata);
                let reply = Arc::unwrap_or_clone(reply);
                return self.say(id, reply.parts, next).await;
            }
            Answer::Task(task) => task,
        };
        self.room.wire().note_agent(self.side, Direction::In, &task);
        for artifact in &task.artifacts {
            self.make(&task.id, artifact).await?;
        }
        let ends = self.room.settings().ends_with_task();
        let by_state = match task.status.state {
            TaskState::Completed if ends => Some("complete"),
            TaskState::Failed => Some("fail"),
            TaskState::Rejected => Some("reject"),
            TaskState::AuthRequired => Some("authorize"),
            TaskState::Canceled => {
                let own = self.round.tasks.of(self.side);
                self.room.cancel_round(self.side, own).await?;
                return self.room.delegate(self.side, self.round.number, None).await;
            }
            _ => None,
        };
        let said = task.status.message.as_ref().filter(|message| !message.parts.is_empty());
        let next = said.and_then(|message| word(&message.metadata)).or(by_state);
        let mut parts = match said {
            Some(message) => message.parts.clone(),
            None => task.artifacts.iter().flat_map(|artifact| artifact.parts.iter().cloned()).collect(),
        };
        if parts.is_empty() {
            parts.push(Part::text(NO_WORDS));
        }
        self.say(id, parts, next).await?;
        if task.status.state.is_terminal() {
            self.room.delegate(self.side, self.round.number, None).await?;
        }
        Ok(())
    }

    /// Puts an artifact of the agent into both tasks, with its maker.
    async fn make(&self, task: &TaskId, artifact: &Artifact) -> Result<()> {
        let mut made = artifact.clone();
        let seat = self.side.name();
        made.artifact_id = format!("{seat}-{task}-{}", artifact.artifact_id).into();
        made.metadata.insert(ROOM_EXTENSION, json!({ "maker": seat }));
        let task = self.round.tasks.of(self.side);
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.room.make(self.side, task, &made).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < MAX_ATTEMPTS => {}
                // The round has ended: the artifact comes too late.
                Err(error) if error.kind() == ErrorKind::UnsupportedOperation => return Ok(()),
                made => return made,
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn say(&self, id: MessageId, parts: Vec<Part>, next: Option<&'static str>) -> Result<()> {
        let words = Words {
            id,
            parts,
            next,
            task: Some(self.round.tasks.of(self.side).clone()),
            hops: self.round.hops.clone(),
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.room.say_as_agent(self.side, words.clone()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < MAX_ATTEMPTS => {}
                // A person has taken the seat over, or the round has ended: the answer comes too late.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::PermissionDenied | ErrorKind::UnsupportedOperation
                    ) =>
                {
                    return Ok(());
                }
                said => return said.map(drop),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// True if the task has this message of ours.
fn has(task: &Task, id: &MessageId) -> bool {
    task.history.iter().any(|message| message.role == Role::User && message.message_id == *id)
}

/// The word of the agent for who speaks next. An agent has nothing more to say after its answer, so it cannot hold.
fn word(metadata: &Metadata) -> Option<&'static str> {
    if !metadata.contains_key(ROOM_EXTENSION) && !metadata.contains_key(NEXT_STATE) {
        return None;
    }
    match Next::of(metadata) {
        Next::Yield | Next::Hold => Some("yield"),
        Next::Authorize => Some("authorize"),
        Next::End(TaskState::Completed) => Some("complete"),
        Next::End(TaskState::Rejected) => Some("reject"),
        Next::End(_) => Some("fail"),
    }
}

/// The events of a subscription up to a status that settles the task.
fn until_interrupted(events: EventStream) -> EventStream {
    let mut is_over = false;
    Box::pin(events.take_while(move |item| {
        let goes_on = !is_over;
        if let Ok(item) = item {
            let state = match &**item.event() {
                Event::Task(task) => Some(task.status.state),
                Event::StatusUpdate(update) => Some(update.status.state),
                Event::ArtifactUpdate(_) | Event::Message(_) => None,
            };
            is_over |= state.is_some_and(|state| state.is_terminal() || state.is_interrupted());
        }
        // The last one is not needed: the task is read again.
        std::future::ready(goes_on && !is_over)
    }))
}
