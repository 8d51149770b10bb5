//! Other agents of the hub as tools: one message, and the answer as text.

use std::sync::{Arc, Weak};

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, Content, ContextId, Error, ErrorKind, Event, GetTaskRequest,
    Message, Part, Result, SendMessageRequest, Task, TaskId, TaskState, Version,
};
use nuncio_server::ExecContext;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::{Listed, Outcome};
use crate::{
    agents::{AgentFactory, ContextKey, delegation::Hop},
    fleet::{Fleet, ServedAgent},
};

/// Agents of the hub that a model may call.
pub(super) struct Peers {
    /// Of the agent with the model.
    agent: Arc<str>,
    names: Vec<String>,
    /// Weak: the fleet has the agent that has this.
    fleet: Weak<Fleet>,
    hop: Hop,
    contexts: ContextKey,
}

/// A task of another agent. It is canceled when nobody waits for it any more.
struct Delegated {
    service: Arc<dyn A2aService>,
    cx: CallContext,
    /// `None` before the task is known, and when it needs no cancel.
    task: Option<TaskId>,
}

impl Peers {
    pub(super) fn new(agent: &Arc<str>, names: &[String], factory: &AgentFactory) -> Self {
        Self {
            agent: Arc::clone(agent),
            names: names.to_vec(),
            fleet: Arc::downgrade(&factory.fleet),
            hop: Hop::new(&factory.hub, agent),
            contexts: factory.contexts.clone(),
        }
    }

    /// The agents that are served now.
    pub(super) fn list(&self) -> Vec<Listed> {
        let listed = |name: &String| {
            let agent = self.find(name)?;
            let card = &agent.shown().card;
            let skills = card.skills.iter().map(|skill| format!("{}: {}", skill.name, skill.description));
            let description = std::iter::once(card.description.clone()).chain(skills);
            Some(Listed {
                name: name.clone(),
                description: description.collect::<Vec<_>>().join("\n"),
                schema: json!({
                    "type": "object",
                    "properties": {
                        "message": { "type": "string", "description": "The message to the agent." },
                        "task": { "type": "string", "description": "To answer a question of the agent: the id of its task." },
                    },
                    "required": ["message"],
                }),
                // Such an agent recognizes a repeat by its key.
                is_repeatable: agent.runtime().is_some(),
            })
        };
        self.names.iter().filter_map(listed).collect()
    }

    fn find(&self, name: &str) -> Option<Arc<ServedAgent>> {
        self.fleet.upgrade()?.get(name)
    }

    /// Sends the message and waits until the agent has answered, asks something, or failed.
    pub(super) async fn call(
        &self,
        name: &str,
        cx: &ExecContext,
        arguments: &Map<String, Value>,
        key: String,
    ) -> Outcome {
        let Some(text) = arguments.get("message").and_then(Value::as_str) else {
            return Outcome::error("wrong arguments: message is missing; expected a text");
        };
        let Some(agent) = self.find(name) else {
            return Outcome::error(format!("there is no agent {name} any more"));
        };
        let task = arguments.get("task").and_then(Value::as_str).filter(|task| !task.is_empty());
        match self.send(agent.service(), cx, text, task, key).await {
            Ok(outcome) => outcome,
            Err(error) => {
                Outcome::error(format!("the agent {name} refused the message: {}", error.message()))
            }
        }
    }

    async fn send(
        &self,
        service: Arc<dyn A2aService>,
        cx: &ExecContext,
        text: &str,
        task: Option<&str>,
        key: String,
    ) -> Result<Outcome> {
        let passage = self.hop.pass(&cx.call.hops)?;
        let call = CallContext {
            caller: cx.call.caller.clone(),
            trace: Some(passage.trace(cx.call.trace.as_ref())),
            hops: passage.hops,
            ..CallContext::new(Version::V1_0)
        };
        let mut message = Message::user(key.clone(), Part::text(text));
        message.task_id = task.map(TaskId::from);
        // The same conversation for the same conversation with us, and not the caller's own with that agent.
        let own = ContextId::new(format!("{}/{}", self.agent, cx.context_id));
        message.context_id = task.is_none().then(|| self.contexts.derive(&cx.call.caller, &own));
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let sending = CallContext { idempotency_key: Some(key), ..call.clone() };
        let mut delegated = Delegated { service, cx: call, task: None };
        let mut events = delegated.service.send_streaming_message(&sending, request).await?;
        while let Some(item) = events.next().await {
            match item?.into_event() {
                Event::Message(reply) => {
                    return Ok(Outcome { text: texts(&reply.parts), is_error: false });
                }
                event => {
                    if delegated.task.is_none() {
                        delegated.task = event.task_id().cloned();
                    }
                }
            }
        }
        let id = delegated.task.take();
        let id = id.ok_or_else(|| Error::new(ErrorKind::InvalidAgentResponse, "the agent gave no answer"))?;
        let request = GetTaskRequest { id, ..GetTaskRequest::default() };
        Ok(outcome(&delegated.service.get_task(&delegated.cx, request).await?))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.task.take(), Handle::try_current()) else { return };
        let (service, cx) = (Arc::clone(&self.service), self.cx.clone());
        runtime.spawn(async move {
            let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
            if let Err(error) = service.cancel_task(&cx, request).await {
                tracing::debug!(%error, "the task of a tool could not be canceled");
            }
        });
    }
}

/// The answer of a task for the model.
fn outcome(task: &Task) -> Outcome {
    let said = task.status.message.as_ref().map(|message| texts(&message.parts)).unwrap_or_default();
    let made: Vec<_> = task.artifacts.iter().map(|artifact| texts(&artifact.parts)).collect();
    let made = made.join("\n");
    let with = |note: &str, text: &str| format!("[{note}]\n{text}").trim_end().to_owned();
    match task.status.state {
        TaskState::Completed if made.is_empty() => Outcome { text: said, is_error: false },
        TaskState::Completed => Outcome { text: made, is_error: false },
        TaskState::InputRequired => {
            let note = format!("the agent asks; answer by another call with task = {}", task.id);
            Outcome { text: with(&note, &said), is_error: false }
        }
        TaskState::AuthRequired => {
            Outcome::error(with("the agent needs an authorisation of the user", &said))
        }
        TaskState::Failed => Outcome::error(with("the agent failed", &said)),
        TaskState::Rejected => Outcome::error(with("the agent rejected the message", &said)),
        TaskState::Canceled => Outcome::error("the task of the agent was canceled"),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            Outcome::error("the agent has not finished; its task goes on without an answer here")
        }
    }
}

fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.as_str().to_owned(),
        Content::Url(url) => url.clone(),
        Content::Raw(_) => "[a file, left out]".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}
