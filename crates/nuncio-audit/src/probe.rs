//! The means of a check: one interface, and calls over it.

use std::collections::BTreeMap;

use nuncio_protocol::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ErrorKind,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    SubscribeToTaskRequest, TaskId, TaskPushNotificationConfig,
    op::{Call, Op},
};
use tokio::sync::Mutex;

use crate::{
    answer::{Answer, Refusal, Said, SeenEvent, read_frame},
    interface::Interface,
    observed::Observed,
    wire::{Identity, Opened, Request, Session},
};

/// The id of a task that does not exist.
pub(crate) const UNKNOWN: &str = "00000000-0000-4000-8000-6e756e63696f";

/// The id of a webhook that does not exist.
pub(crate) const UNKNOWN_WEBHOOK: &str = "nuncio-audit-unknown";

/// An interface under audit.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    pub(crate) session: &'a Session,
    pub(crate) interface: &'a Interface,
    pub(crate) card: &'a AgentCard,
    /// Answers to calls for the unknown task, which several checks read.
    unknown: Mutex<BTreeMap<&'static str, Answer>>,
}

impl<'a> Probe<'a> {
    pub(crate) fn new(session: &'a Session, interface: &'a Interface, card: &'a AgentCard) -> Self {
        Self { session, interface, card, unknown: Mutex::default() }
    }

    pub(crate) fn streams(&self) -> bool {
        self.card.capabilities.streaming == Some(true)
    }

    pub(crate) fn pushes(&self) -> bool {
        self.card.capabilities.push_notifications == Some(true)
    }

    /// A call as a request.
    ///
    /// # Errors
    /// The check does not apply: the version does not have the operation.
    pub(crate) fn request(&self, call: Call) -> Result<Request, Observed> {
        self.interface.request(call).map_err(|_| Observed::skip())
    }

    /// Makes a call and decodes the answer, of a stream its first frame.
    ///
    /// # Errors
    /// There is no answer, or the version does not have the operation.
    pub(crate) async fn call(&self, call: Call) -> Result<Answer, Observed> {
        let op = call.op();
        let request = self.request(call)?;
        self.ask(op, request).await
    }

    /// Sends a request and decodes the answer to this operation.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn ask(&self, op: Op, request: Request) -> Result<Answer, Observed> {
        let answer = self.answer(op, request).await;
        answer.seen()?;
        Ok(answer)
    }

    /// Sends a request and decodes the answer to this operation, or the reason why there is none.
    pub(crate) async fn answer(&self, op: Op, request: Request) -> Answer {
        if op.row().streaming {
            self.first(op, request).await
        } else {
            Answer::read(self.interface, op, self.session.send(request).await)
        }
    }

    /// Like [`Self::call`], by another caller.
    ///
    /// # Errors
    /// As of [`Self::call`].
    pub(crate) async fn call_by(&self, identity: Identity, call: Call) -> Result<Answer, Observed> {
        let op = call.op();
        let request = self.request(call)?.by(identity);
        self.ask(op, request).await
    }

    /// The answer to a streaming operation: that of its first frame if it is a stream.
    async fn first(&self, op: Op, request: Request) -> Answer {
        let time = self.session.timeout;
        let mut stream = match self.session.stream(request, time).await {
            Opened::Answer(exchange) => return Answer::read(self.interface, op, *exchange),
            Opened::Stream(stream) => stream,
        };
        stream.advance(tokio::time::Instant::now() + time).await;
        let exchange = stream.exchange();
        let said = match stream.frames.first().map(|frame| read_frame(self.interface, frame)) {
            Some(SeenEvent { event: Err(refusal), .. }) => Said::Error(refusal),
            Some(SeenEvent { raw, .. }) => {
                Said::Success(crate::answer::Success { raw, typed: Err("an event of a stream".to_owned()) })
            }
            None if stream.end.is_some() => Answer::read(self.interface, op, exchange.clone()).said,
            None => Said::Foreign("a stream on which nothing came".to_owned()),
        };
        Answer { exchange, said }
    }

    /// The answer to an operation on the unknown task, from the first call of it.
    ///
    /// # Errors
    /// As of [`Self::call`].
    pub(crate) async fn of_unknown(&self, op: Op) -> Result<Answer, Observed> {
        let mut known = self.unknown.lock().await;
        if let Some(answer) = known.get(op.name()) {
            return answer.seen().cloned();
        }
        let answer = self.call(on_task(op, UNKNOWN)).await?;
        known.insert(op.name(), answer.clone());
        Ok(answer)
    }
}

/// An operation on a task. Operations without one list tasks, or get the extended card.
pub(crate) fn on_task(op: Op, id: &str) -> Call {
    let task = TaskId::from(id);
    match op {
        Op::CancelTask => Call::CancelTask(Box::new(CancelTaskRequest { id: task, ..Default::default() })),
        Op::SubscribeToTask => {
            Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id: task, ..Default::default() }))
        }
        Op::CreateTaskPushNotificationConfig => {
            let config = TaskPushNotificationConfig {
                task_id: Some(task),
                url: "https://example.com/nuncio-audit".to_owned(),
                ..Default::default()
            };
            Call::CreateTaskPushNotificationConfig(Box::new(config))
        }
        Op::ListTaskPushNotificationConfigs => {
            let request = ListTaskPushNotificationConfigsRequest { task_id: task, ..Default::default() };
            Call::ListTaskPushNotificationConfigs(Box::new(request))
        }
        Op::GetTaskPushNotificationConfig => {
            let (id, task_id) = (UNKNOWN_WEBHOOK.into(), task);
            let request = GetTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
            Call::GetTaskPushNotificationConfig(Box::new(request))
        }
        Op::DeleteTaskPushNotificationConfig => {
            let (id, task_id) = (UNKNOWN_WEBHOOK.into(), task);
            let request = DeleteTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
            Call::DeleteTaskPushNotificationConfig(Box::new(request))
        }
        Op::ListTasks => Call::ListTasks(Box::default()),
        Op::GetExtendedAgentCard => Call::GetExtendedAgentCard(Box::default()),
        _ => Call::GetTask(Box::new(GetTaskRequest { id: task, ..Default::default() })),
    }
}

/// The error of an answer that has to be refused with one of these kinds.
///
/// # Errors
/// The observation that it was not refused, or not so.
pub(crate) fn expect_error<'a>(answer: &'a Answer, kinds: &[ErrorKind]) -> Result<&'a Refusal, Observed> {
    let names: Vec<_> =
        kinds.iter().map(|kind| format!("{} ({})", kind.row().code, kind.row().reason)).collect();
    let expected = format!("error {}", names.join(" or "));
    match answer.error() {
        Some(refusal) if kinds.contains(&refusal.kind) => Ok(refusal),
        _ => {
            let seen = answer.shown();
            Err(Observed::broken(format!("expected {expected}, got {seen}"))
                .seen(seen)
                .expecting(expected)
                .on(&answer.exchange))
        }
    }
}

/// Met if the answer is an error of one of these kinds.
///
/// # Errors
/// The observation that it is not.
pub(crate) fn refused_with(answer: &Answer, kinds: &[ErrorKind]) -> Result<Observed, Observed> {
    expect_error(answer, kinds)?;
    Ok(Observed::met().on(&answer.exchange))
}
