//! The typed path: a call that cannot be relayed, because the agent needs another version or binding or
//! because the hub has to change it. The call is decoded and made once, and its answer is encoded. Ids stay
//! unchanged.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use nuncio_client::{Candidate, Direct};
use nuncio_protocol::{
    CallContext, CallHandler, Caller, Error, ErrorKind, Event, EventStream, Message, Result,
    SendMessageRequest, SendMessageResponse, StreamItem,
    op::{Call, Op, Reply},
};
use nuncio_server::bind::Subject;
use tokio::time::timeout;

use super::{super::link::refusal, Interfaces, Proxy, late, owners::not_found, push::Inline};

impl CallHandler for Proxy {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let interfaces = self.interfaces()?;
        match call {
            Call::SendMessage(req) => self.send(&interfaces, cx, req, Call::SendMessage).await,
            Call::SendStreamingMessage(req) => {
                self.send(&interfaces, cx, req, Call::SendStreamingMessage).await
            }
            Call::GetTask(_) | Call::CancelTask(_) | Call::SubscribeToTask(_) => {
                self.require(&cx.caller, call.task().unwrap_or_default()).await?;
                self.ask(&interfaces, cx, call).await
            }
            Call::ListTasks(req) => self.list(&interfaces, cx, *req).await.map(Reply::Tasks),
            Call::CreateTaskPushNotificationConfig(req) => {
                self.create_webhook(&interfaces, cx, *req).await.map(Reply::PushConfig)
            }
            Call::GetTaskPushNotificationConfig(req) => {
                self.webhook(&interfaces, cx, &req).await.map(Reply::PushConfig)
            }
            Call::ListTaskPushNotificationConfigs(req) => {
                self.webhooks(&interfaces, cx, &req).await.map(Reply::PushConfigs)
            }
            Call::DeleteTaskPushNotificationConfig(req) => {
                self.delete_webhook(&interfaces, cx, &req).await.map(|()| Reply::Empty)
            }
            Call::GetExtendedAgentCard(req) => {
                self.extended_card(&interfaces, cx, Call::GetExtendedAgentCard(req)).await
            }
        }
    }
}

/// The same events, with a timeout for the first one: it is the agent's answer.
fn first_within(patience: Duration, events: EventStream) -> EventStream {
    let first = async move {
        let mut events = events;
        match timeout(patience, events.next()).await {
            Ok(Some(first)) => stream::iter([first]).chain(events).boxed(),
            Ok(None) => stream::empty().boxed(),
            Err(_) => stream::iter([Err(refusal::shown(&late(), false))]).boxed(),
        }
    };
    stream::once(first).flatten().boxed()
}

/// The task that a call is about.
trait CallSubject {
    fn task(&self) -> Option<&str>;
}

impl CallSubject for Call {
    fn task(&self) -> Option<&str> {
        match self {
            Self::GetTask(req) => Some(req.id.as_str()),
            Self::CancelTask(req) => Some(req.id.as_str()),
            Self::SubscribeToTask(req) => Some(req.id.as_str()),
            _ => None,
        }
    }
}

impl Proxy {
    /// Refuses a task that is not the caller's.
    pub(super) async fn require(&self, caller: &Caller, task: &str) -> Result<()> {
        match self.owners() {
            Some(_) if task.is_empty() => Err(not_found(task)),
            Some(owners) => owners.require(caller, task).await,
            None => Ok(()),
        }
    }

    /// Makes a call to the agent, once.
    pub(super) async fn ask(&self, interfaces: &Interfaces, cx: &CallContext, call: Call) -> Result<Reply> {
        let op = call.op();
        let out = self.outgoing(interfaces, cx, op)?;
        let Candidate { version, binding, .. } = *interfaces.typed.candidate();
        let mut is_lossy = cx.has_unknown_fields || !call.fits(version, binding);
        let place = interfaces.link.admit_call(&cx.caller, op).await?;
        // For a stream, this is the time until it begins.
        let service =
            self.telemetry.outbound(&self.name, cx.trace.as_ref(), Arc::<Direct>::clone(&interfaces.typed));
        let patience = interfaces.patience(op);
        let outcome = match timeout(patience, service.call(&out, call)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(late()),
        };
        if let (Ok(reply), Some(binding)) = (&outcome, cx.binding) {
            is_lossy |= !reply.fits(cx.version, binding);
        }
        interfaces.translations.count(cx.version, cx.binding, is_lossy);
        interfaces.link.learn(&outcome);
        let as_caller = interfaces.link.settings.forward_headers.contains(&http::header::AUTHORIZATION);
        let shown = move |error: Error| refusal::passed(&error, as_caller);
        match outcome.map_err(shown)? {
            Reply::Stream(events) => {
                // A permit is held until the stream ends.
                let shown = move |item: Result<StreamItem>| {
                    let _held = &place;
                    item.map_err(shown)
                };
                let events = events.map(shown).boxed();
                // A resumed stream may be silent for long.
                let answers = op == Op::SendStreamingMessage && cx.last_event_id.is_none();
                Ok(Reply::Stream(if answers { first_within(patience, events) } else { events }))
            }
            reply => Ok(reply),
        }
    }

    /// The context of the outgoing call. The caller's identity is not forwarded.
    fn outgoing(&self, interfaces: &Interfaces, cx: &CallContext, op: Op) -> Result<CallContext> {
        let hops = self.hops(cx)?;
        let mut out = CallContext::new(interfaces.typed.candidate().version);
        out.extensions.clone_from(&cx.extensions);
        out.deadline = interfaces.deadline(cx, op);
        out.trace = Some(self.trace(cx, &hops));
        out.last_event_id = cx.last_event_id;
        out.idempotency_key = self.idempotency_key(cx);
        out.headers = cx.forwardable_headers.clone();
        out.hops = hops;
        Ok(out)
    }

    async fn send(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        mut req: Box<SendMessageRequest>,
        make: fn(Box<SendMessageRequest>) -> Call,
    ) -> Result<Reply> {
        if let Some(owners) = self.owners() {
            let Message { task_id, context_id, reference_task_ids, .. } = &req.message;
            let task = task_id.as_ref().map(|id| id.as_str());
            let context = context_id.as_ref().map(|id| id.as_str());
            owners.admit(&cx.caller, task, context, reference_task_ids.iter().map(|id| id.as_str())).await?;
        }
        let given = req.configuration.as_mut().and_then(|wanted| wanted.task_push_notification_config.take());
        let inline = match given {
            Some(given) => {
                let inline = self.begin_webhook(interfaces, cx, given).await?;
                if let Some(wanted) = &mut req.configuration {
                    wanted.task_push_notification_config = Some(inline.theirs.clone());
                }
                Some(inline)
            }
            None => None,
        };
        let outcome = self.ask(interfaces, cx, make(req)).await;
        match outcome {
            // A resumed stream may be silent for long, so its first event is not awaited here.
            Ok(Reply::Stream(events)) if cx.last_event_id.is_some() && inline.is_none() => {
                Ok(Reply::Stream(self.learn_later(cx, events)))
            }
            Ok(Reply::Stream(events)) => self.learn_first(cx, events, inline).await.map(Reply::Stream),
            Ok(Reply::Sent(sent)) => {
                let subject = match &sent {
                    SendMessageResponse::Task(task) => Subject::of(&Event::Task(task.clone())),
                    SendMessageResponse::Message(message) => {
                        Subject::of(&Event::Message(Arc::clone(message)))
                    }
                };
                self.learn(cx, &subject, inline).await?;
                Ok(Reply::Sent(sent))
            }
            outcome => {
                if let Some(inline) = inline {
                    self.forget_webhook(&inline).await;
                }
                outcome
            }
        }
    }

    /// Records the owner of each event's task and context before the event is forwarded.
    fn learn_later(&self, cx: &CallContext, events: EventStream) -> EventStream {
        let Some(owners) = self.owners().cloned() else { return events };
        let caller = cx.caller.clone();
        let learn = move |item: Result<StreamItem>| {
            let (owners, caller) = (Arc::clone(&owners), caller.clone());
            async move {
                let item = item?;
                owners.record(&caller, &Subject::of(item.event())).await?;
                Ok(item)
            }
        };
        events.then(learn).boxed()
    }

    /// Records the owner of the first event's task and context before the event is forwarded.
    async fn learn_first(
        &self,
        cx: &CallContext,
        mut events: EventStream,
        inline: Option<Inline>,
    ) -> Result<EventStream> {
        if self.owners().is_none() && inline.is_none() {
            return Ok(events);
        }
        let first = match events.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => return Err(error),
            None => return Ok(events),
        };
        self.learn(cx, &Subject::of(first.event()), inline).await?;
        let first = stream::iter([Ok::<StreamItem, Error>(first)]);
        Ok(first.chain(events).boxed())
    }

    async fn learn(&self, cx: &CallContext, subject: &Subject, inline: Option<Inline>) -> Result<()> {
        if let Some(owners) = self.owners() {
            owners.record(&cx.caller, subject).await?;
        }
        match (inline, &subject.task) {
            (Some(inline), Some(task)) => self.settle_webhook(cx, inline, task).await,
            (Some(inline), None) => {
                self.forget_webhook(&inline).await;
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// The agent's extended card with the hub's interfaces, for authenticated callers.
    async fn extended_card(&self, interfaces: &Interfaces, cx: &CallContext, call: Call) -> Result<Reply> {
        if !interfaces.link.settings.extended_card
            || interfaces.card().capabilities.extended_agent_card != Some(true)
        {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "this agent has no extended card"));
        }
        if cx.caller.principal().is_none() {
            let why = "the extended card is for authenticated callers";
            return Err(Error::new(ErrorKind::Unauthenticated, why));
        }
        match self.ask(interfaces, cx, call).await? {
            Reply::Card(theirs) => Ok(Reply::Card(Box::new(self.shown_card(&theirs)))),
            reply => Ok(reply),
        }
    }
}
