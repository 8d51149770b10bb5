//! Interceptors around a service that notes what reaches it.

use std::sync::Mutex;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::json;

use super::*;
use crate::{
    AgentCard, Error, ErrorKind, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Message, Seq,
    Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatusUpdateEvent, op::Op,
};

/// The calls so far, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Answers every operation with as little as possible.
#[derive(Clone, Default)]
struct Service {
    log: Log,
    /// The address of the last call's context.
    context: Arc<Mutex<usize>>,
}

impl CallHandler for Service {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        *self.context.lock().unwrap() = std::ptr::from_ref(cx).addr();
        let headers: Vec<String> =
            cx.headers.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let tenant = call.tenant().map(|tenant| format!(" for {tenant}")).unwrap_or_default();
        self.log.note(format!("{}{tenant}{}", call.op().name(), headers.concat()));
        Ok(reply(call.op()))
    }
}

fn reply(op: Op) -> Reply {
    match op {
        Op::SendMessage => Reply::Sent(SendMessageResponse::Message(Arc::default())),
        Op::SendStreamingMessage | Op::SubscribeToTask => {
            let items: Vec<_> = events().map(|(seq, event)| Ok(StreamItem::new(seq, Arc::new(event)))).into();
            Reply::Stream(Box::pin(stream::iter(items)))
        }
        Op::GetTask | Op::CancelTask => Reply::Task(Task::default()),
        Op::ListTasks => {
            Reply::Tasks(ListTasksResponse { tasks: vec![Task::default(); 2], ..Default::default() })
        }
        Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
            Reply::PushConfig(TaskPushNotificationConfig::default())
        }
        Op::ListTaskPushNotificationConfigs => {
            Reply::PushConfigs(ListTaskPushNotificationConfigsResponse::default())
        }
        Op::DeleteTaskPushNotificationConfig => Reply::Empty,
        Op::GetExtendedAgentCard => Reply::Card(Box::default()),
    }
}

fn events() -> [(Option<Seq>, Event); 4] {
    [
        (Some(Seq(1)), Event::Task(Task::default())),
        (Some(Seq(2)), Event::StatusUpdate(TaskStatusUpdateEvent::default())),
        (Some(Seq(3)), Event::ArtifactUpdate(TaskArtifactUpdateEvent::default())),
        (None, Event::Message(Arc::default())),
    ]
}

fn call(op: Op) -> Call {
    match op {
        Op::SendMessage => Call::SendMessage(Box::default()),
        Op::SendStreamingMessage => Call::SendStreamingMessage(Box::default()),
        Op::GetTask => Call::GetTask(Box::default()),
        Op::ListTasks => Call::ListTasks(Box::default()),
        Op::CancelTask => Call::CancelTask(Box::default()),
        Op::SubscribeToTask => Call::SubscribeToTask(Box::default()),
        Op::CreateTaskPushNotificationConfig => Call::CreateTaskPushNotificationConfig(Box::default()),
        Op::GetTaskPushNotificationConfig => Call::GetTaskPushNotificationConfig(Box::default()),
        Op::ListTaskPushNotificationConfigs => Call::ListTaskPushNotificationConfigs(Box::default()),
        Op::GetExtendedAgentCard => Call::GetExtendedAgentCard(Box::default()),
        Op::DeleteTaskPushNotificationConfig => Call::DeleteTaskPushNotificationConfig(Box::default()),
    }
}

/// Calls an operation by its method; nothing here ever waits.
fn ask(service: &Arc<dyn A2aService>, op: Op) -> Result<Reply> {
    call(op).dispatch(&**service, &CallContext::default()).now_or_never().unwrap()
}

/// Answers every operation as if it were this one.
struct Confused(Op);

impl CallHandler for Confused {
    async fn handle(&self, _: &CallContext, _: Call) -> Result<Reply> {
        Ok(reply(self.0))
    }
}

#[test]
fn a_reply_of_another_operation_goes_no_further() {
    let (ops, cx) = (Op::TABLE.iter().map(|row| row.op), CallContext::default());
    for (asked, answered) in ops.clone().flat_map(|asked| ops.clone().map(move |answered| (asked, answered)))
    {
        let fits = std::mem::discriminant(&reply(asked)) == std::mem::discriminant(&reply(answered));
        let service = Confused(answered);
        let by_method = call(asked).dispatch(&service, &cx).now_or_never().unwrap();
        let whole = service.call(&cx, call(asked)).now_or_never().unwrap();
        for outcome in [by_method, whole] {
            let kind = outcome.err().map(|error| error.kind());
            assert_eq!(kind, (!fits).then_some(ErrorKind::Internal), "{asked:?} answered as {answered:?}");
        }
    }
}

/// Notes when it is passed, both ways.
struct Noting(&'static str, Log);

#[async_trait]
impl Interceptor for Noting {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        self.1.note(format!("{} before", self.0));
        let reply = next.run(cx, call).await;
        self.1.note(format!("{} after", self.0));
        reply
    }
}

/// Does not go on.
struct Refusing;

#[async_trait]
impl Interceptor for Refusing {
    async fn intercept(&self, _: &mut CallContext, _: Call, _: Next<'_>) -> Result<Reply> {
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// Changes what goes in.
struct Changing;

#[async_trait]
impl Interceptor for Changing {
    async fn intercept(&self, cx: &mut CallContext, mut call: Call, next: Next<'_>) -> Result<Reply> {
        cx.headers.set("x-team", "a");
        call.set_tenant(Some("acme".to_owned()));
        next.run(cx, call).await
    }
}

fn stamp(metadata: &mut Metadata) {
    metadata.insert("stamped", json!(true));
}

/// Changes what comes out.
struct Stamping;

#[async_trait]
impl Interceptor for Stamping {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        let reply = next.run(cx, call).await?;
        Ok(reply.map_metadata(stamp))
    }
}

/// Answers whatever it is asked with the reply of one operation.
struct Answering(Op);

#[async_trait]
impl Interceptor for Answering {
    async fn intercept(&self, _: &mut CallContext, _: Call, _: Next<'_>) -> Result<Reply> {
        Ok(reply(self.0))
    }
}

/// Goes on twice.
struct Repeating;

#[async_trait]
impl Interceptor for Repeating {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        next.clone().run(cx, call.clone()).await?;
        next.run(cx, call).await
    }
}

#[test]
fn the_first_is_the_outermost() {
    let service = Service::default();
    let mut interceptors = Interceptors::default();
    interceptors.push(Noting("a", service.log.clone()));
    interceptors.push(Noting("b", service.log.clone()));
    assert_eq!(format!("{interceptors:?}"), "Interceptors(2)");
    let log = service.log.clone();
    let service = interceptors.around(service);
    for row in Op::TABLE {
        ask(&service, row.op).unwrap();
        assert_eq!(log.take(), ["a before", "b before", row.name, "b after", "a after"]);
    }
}

#[test]
fn a_refusal_reaches_nobody_further_in() {
    let service = Service::default();
    let (log, mut interceptors) = (service.log.clone(), Interceptors::default());
    interceptors.push(Noting("a", log.clone()));
    interceptors.push(Refusing);
    interceptors.push(Noting("b", log.clone()));
    let service = interceptors.around(service);
    for row in Op::TABLE {
        let refused = ask(&service, row.op).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::PermissionDenied), "{}", row.name);
        assert_eq!(log.take(), ["a before", "a after"], "{}", row.name);
    }
}

#[test]
fn context_and_call_can_be_changed_and_a_call_can_be_repeated() {
    let service = Service::default();
    let (log, mut interceptors) = (service.log.clone(), Interceptors::default());
    interceptors.push(Changing);
    interceptors.push(Repeating);
    let service = interceptors.around(service);
    let cx = CallContext::default();
    call(Op::GetTask).dispatch(&*service, &cx).now_or_never().unwrap().unwrap();
    assert_eq!(log.take(), ["GetTask for acme x-team=a"; 2]);
    assert!(cx.headers.is_empty(), "the caller's own context stays as it is");
}

/// The metadata of everything in a reply that has some.
fn stamps(reply: Reply) -> Vec<bool> {
    let stamped = |metadata: &Metadata| metadata.contains_key("stamped");
    match reply {
        Reply::Sent(SendMessageResponse::Task(task)) | Reply::Task(task) => vec![stamped(&task.metadata)],
        Reply::Sent(SendMessageResponse::Message(message)) => vec![stamped(&message.metadata)],
        Reply::Stream(events) => {
            let items: Vec<_> = events.collect().now_or_never().unwrap();
            let events = items.into_iter().map(|item| Event::clone(item.unwrap().event()));
            events.map(|mut event| stamped(event.metadata_mut())).collect()
        }
        Reply::Tasks(page) => page.tasks.iter().map(|task| stamped(&task.metadata)).collect(),
        Reply::PushConfig(_) | Reply::PushConfigs(_) | Reply::Card(_) | Reply::Empty => Vec::new(),
    }
}

#[test]
fn the_metadata_of_every_answer_can_be_changed() {
    let mut interceptors = Interceptors::default();
    interceptors.push(Stamping);
    let (plain, stamping) = (Interceptors::default().around(Service::default()), interceptors);
    let stamping = stamping.around(Service::default());
    for row in Op::TABLE {
        let expected = match row.op {
            Op::SendMessage | Op::GetTask | Op::CancelTask => 1,
            Op::SendStreamingMessage | Op::SubscribeToTask => 4,
            Op::ListTasks => 2,
            _ => 0,
        };
        assert_eq!(stamps(ask(&plain, row.op).unwrap()), vec![false; expected], "{}", row.name);
        assert_eq!(stamps(ask(&stamping, row.op).unwrap()), vec![true; expected], "{}", row.name);
    }
    let begun = Reply::Sent(SendMessageResponse::Task(Task::default()));
    assert_eq!(stamps(begun.map_metadata(stamp)), [true]);
}

#[test]
fn a_changed_stream_keeps_order_numbers_and_errors_and_leaves_other_streams_alone() {
    let shared: Vec<_> = events().map(|(seq, event)| StreamItem::new(seq, Arc::new(event))).into();
    let items = shared.iter().cloned().map(Ok).chain([Err(Error::from(ErrorKind::Unavailable))]);
    let items: Vec<_> = items.collect();
    let mut count = 0;
    let reply = Reply::Stream(Box::pin(stream::iter(items))).map_metadata(move |metadata| {
        count += 1;
        metadata.insert("n", json!(count));
    });
    let Reply::Stream(stream) = reply else { panic!("no stream") };
    assert_eq!(stream.size_hint(), (5, Some(5)));
    let seen: Vec<_> = stream.collect().now_or_never().unwrap();
    let seen: Vec<String> = seen
        .into_iter()
        .map(|item| match item {
            Ok(item) => {
                format!("{:?} {}", item.seq(), Event::clone(item.event()).metadata_mut().get("n").unwrap())
            }
            Err(error) => format!("{:?}", error.kind()),
        })
        .collect();
    assert_eq!(seen, ["Some(Seq(1)) 1", "Some(Seq(2)) 2", "Some(Seq(3)) 3", "None 4", "Unavailable"]);
    for item in shared {
        assert!(Event::clone(item.event()).metadata_mut().is_empty(), "{item:?}");
    }
}

#[test]
fn a_message_that_others_have_is_not_changed_under_their_hands() {
    let message: Arc<Message> = Arc::default();
    let reply = Reply::Sent(SendMessageResponse::Message(Arc::clone(&message)));
    assert_eq!(stamps(reply.map_metadata(stamp)), [true]);
    assert!(message.metadata.is_empty());
}

#[test]
fn the_reply_of_another_operation_is_our_own_fault() {
    for (answers, asked) in [(Op::GetTask, Op::SendMessage), (Op::GetTask, Op::SubscribeToTask)] {
        let mut interceptors = Interceptors::default();
        interceptors.push(Answering(answers));
        let error = ask(&interceptors.around(Service::default()), asked).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
    // Operations with the same result may answer for each other.
    let mut interceptors = Interceptors::default();
    interceptors.push(Answering(Op::GetTask));
    ask(&interceptors.around(Service::default()), Op::CancelTask).unwrap();
}

#[test]
fn without_interceptors_nothing_stands_between() {
    // The context is not even copied.
    let cx = CallContext::default();
    let mut one = Interceptors::default();
    one.push(Noting("a", Log::default()));
    for (interceptors, same) in [(Interceptors::default(), true), (one, false)] {
        let service = Service::default();
        let context = Arc::clone(&service.context);
        let service = interceptors.around(service);
        call(Op::ListTasks).dispatch(&*service, &cx).now_or_never().unwrap().unwrap();
        assert_eq!(*context.lock().unwrap() == std::ptr::from_ref(&cx).addr(), same);
    }
    let card: AgentCard = Interceptors::default()
        .around(Service::default())
        .get_extended_agent_card(&cx, Default::default())
        .now_or_never()
        .unwrap()
        .unwrap();
    assert_eq!(card, AgentCard::default());
}
