//! The messages of an audit over one interface, at most three, and all that was seen of their tasks. Checks
//! are functions of this record.

mod refusals;
mod stream;

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nuncio_protocol::{
    ContextId, GetTaskRequest, ListTasksRequest, Message, Part, SendMessageConfiguration, SendMessageRequest,
    Task, TaskId,
    op::{Call, Op},
};
use uuid::Uuid;

pub(crate) use self::{refusals::to_task, stream::StreamSeen};
use crate::{
    answer::{Answer, Said, Typed},
    observed::Observed,
    probe::{Probe, on_task},
    wire::Failure,
};

/// An answer, and the time until it came.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) answer: Answer,
    pub(crate) elapsed: Duration,
}

/// The record of a conversation over one interface.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The answer to a message with `returnImmediately`.
    pub(crate) immediate: Option<Timed>,
    /// The answer to a message that waits.
    pub(crate) blocking: Option<Timed>,
    /// A stream.
    pub(crate) stream: Option<StreamSeen>,
    /// Later calls about the tasks, and messages that have to be refused, by name.
    pub(crate) calls: BTreeMap<&'static str, Answer>,
    /// Tasks that were begun, and their last known task.
    pub(crate) begun: Vec<TaskId>,
}

/// A message of the audit.
pub(crate) fn message(text: &str) -> Message {
    Message::user(Uuid::now_v7().to_string(), Part::text(text))
}

/// A send of this message.
pub(crate) fn send(message: Message, immediately: bool) -> SendMessageRequest {
    let configuration =
        SendMessageConfiguration { return_immediately: immediately, ..SendMessageConfiguration::default() };
    SendMessageRequest { message, configuration: Some(configuration), ..SendMessageRequest::default() }
}

/// The context of an answer.
pub(crate) fn context_of(answer: &Answer) -> Option<ContextId> {
    match answer.success()?.typed.as_ref().ok()? {
        Typed::Task(task) => Some(task.context_id.clone()).filter(|context| !context.is_empty()),
        Typed::Message(message) => message.context_id.clone(),
        _ => None,
    }
}

impl Conversation {
    /// Talks to the agent: a message that returns at once, one that waits, a stream, and messages that have to
    /// be refused.
    pub(crate) async fn hold(probe: &Probe<'_>, text: &str) -> Self {
        let mut seen = Self::default();
        seen.send_immediately(probe, text).await;
        seen.send_blocking(probe, text).await;
        if probe.streams() {
            let context = seen.context();
            let stream = StreamSeen::watch(probe, text, context, &mut seen.begun).await;
            seen.stream = Some(stream);
        }
        refusals::send(probe, &mut seen).await;
        seen
    }

    /// The context of the conversation, once the agent has given one.
    fn context(&self) -> Option<ContextId> {
        self.immediate.as_ref().and_then(|timed| context_of(&timed.answer))
    }

    pub(crate) fn call(&self, name: &'static str) -> Result<&Answer, Observed> {
        let answer = self.calls.get(name);
        answer.ok_or_else(|| Observed::no_setup("the agent made no task that this needs"))?.seen()
    }

    /// The task that a send waited for.
    pub(crate) fn task(&self) -> Option<&Task> {
        self.blocking.as_ref().and_then(|timed| timed.answer.task())
    }

    async fn send_immediately(&mut self, probe: &Probe<'_>, text: &str) {
        let timed = self.send(probe, send(message(text), true)).await;
        let task = timed.answer.task().map(|task| (task.id.clone(), task.status.state));
        self.immediate = Some(timed);
        let Some((id, state)) = task else { return };
        if !state.is_terminal() {
            self.ask(probe, "cancel", on_task(Op::CancelTask, id.as_str())).await;
            self.ask(probe, "after-cancel", on_task(Op::GetTask, id.as_str())).await;
            self.ask(probe, "cancel-again", on_task(Op::CancelTask, id.as_str())).await;
            self.ask(probe, "after-cancel-again", on_task(Op::GetTask, id.as_str())).await;
        }
    }

    async fn send_blocking(&mut self, probe: &Probe<'_>, text: &str) {
        let context = self.context();
        let mut message = message(text);
        message.context_id = context.clone();
        let timed = self.send(probe, send(message, false)).await;
        let is_slow = matches!(timed.answer.said, Said::Silent(Failure::Slow(_)));
        let task = timed.answer.task().map(|task| (task.id.clone(), task.status.state));
        self.blocking = Some(timed);
        if is_slow && let Some(context) = context {
            self.find_left(probe, context).await;
        }
        let Some((id, state)) = task else { return };
        self.ask(probe, "get", on_task(Op::GetTask, id.as_str())).await;
        for (name, length) in [("history-one", 1), ("history-zero", 0), ("history-negative", -1)] {
            let request =
                GetTaskRequest { id: id.clone(), history_length: Some(length), ..Default::default() };
            self.ask(probe, name, Call::GetTask(Box::new(request))).await;
        }
        if state.is_terminal() {
            self.ask(probe, "cancel-ended", on_task(Op::CancelTask, id.as_str())).await;
            self.ask(probe, "after-ended", on_task(Op::GetTask, id.as_str())).await;
            if probe.streams() {
                self.ask(probe, "subscribe-ended", on_task(Op::SubscribeToTask, id.as_str())).await;
            }
        }
    }

    /// Finds the tasks of a message whose answer did not come, by its context.
    async fn find_left(&mut self, probe: &Probe<'_>, context: ContextId) {
        let request = ListTasksRequest { context_id: Some(context), ..ListTasksRequest::default() };
        if let Ok(answer) = probe.call(Call::ListTasks(Box::new(request))).await
            && let Some(Ok(Typed::Tasks(page))) = answer.success().map(|success| &success.typed)
        {
            self.begun.extend(page.tasks.iter().map(|task| task.id.clone()));
        }
    }

    /// Sends a message, which counts.
    async fn send(&mut self, probe: &Probe<'_>, request: SendMessageRequest) -> Timed {
        probe.session.messages.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = match probe.request(Call::SendMessage(Box::new(request))) {
            Ok(request) => {
                let exchange = probe.session.send_within(request, probe.session.message_timeout).await;
                Answer::read(probe.interface, Op::SendMessage, exchange)
            }
            Err(_) => unreachable_answer(probe),
        };
        self.begun.extend(answer.task().map(|task| task.id.clone()));
        Timed { answer, elapsed: started.elapsed() }
    }

    /// Makes a call and keeps its answer, whatever it is.
    async fn ask(&mut self, probe: &Probe<'_>, name: &'static str, call: Call) {
        let op = call.op();
        let Ok(request) = probe.request(call) else { return };
        let answer = probe.answer(op, request).await;
        self.calls.insert(name, answer);
    }
}

/// The answer to a call that cannot be written in this version, which does not happen for a send.
fn unreachable_answer(probe: &Probe<'_>) -> Answer {
    let failure = Failure::Broken("the message cannot be written in this version".to_owned());
    let exchange = crate::wire::Exchange {
        request: probe.interface.post(Op::SendMessage),
        response: Err(failure.clone()),
    };
    Answer { exchange, said: Said::Silent(failure) }
}
