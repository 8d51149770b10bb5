//! A service that notes what reaches it, and answers or refuses as it is told: what is between the wire
//! and the service, and nothing else.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use nuncio_server::{
    bind::{Agent, BindOptions},
    protocol::{
        A2aService, AgentCard, CallContext, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
        Error, Event, EventStream, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest,
        GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
        ListTasksRequest, ListTasksResponse, Message, Part, Result, SendMessageRequest, SendMessageResponse,
        Seq, StreamItem, SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig, Timestamp,
    },
    testing::card,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Port;

/// The refusal of a call.
type Refuse = Box<dyn Fn() -> Error + Send + Sync>;

#[derive(Default)]
pub(crate) struct Probe {
    seen: Mutex<Vec<(CallContext, Value)>>,
    refuse: Mutex<Option<Refuse>>,
}

impl Probe {
    /// A probe on the wire.
    pub(crate) fn on_the_wire() -> (Arc<Self>, Port) {
        let probe = Arc::new(Self::default());
        (Arc::clone(&probe), Port::of(&probe.agent(), ""))
    }

    /// The probe as an agent with everything at its default.
    pub(crate) fn agent(self: &Arc<Self>) -> Agent {
        self.agent_with(BindOptions::default())
    }

    pub(crate) fn agent_with(self: &Arc<Self>, options: BindOptions) -> Agent {
        Agent::new(Arc::clone(self) as _, &card(), options).unwrap()
    }

    /// From now on every call is refused so.
    pub(crate) fn refuse(&self, refuse: impl Fn() -> Error + Send + Sync + 'static) {
        *self.refuse.lock().unwrap() = Some(Box::new(refuse));
    }

    /// The only call since the last look, such as `{"GetTask": {"id": "t"}}`; `null` if there was none.
    pub(crate) fn seen(&self) -> Value {
        self.seen_with_context().map(|(_, call)| call).unwrap_or_default()
    }

    pub(crate) fn seen_with_context(&self) -> Option<(CallContext, Value)> {
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        assert!(seen.len() <= 1, "one call at a time: {seen:?}");
        seen.pop()
    }

    fn note(&self, op: &str, cx: &CallContext, req: &impl Serialize) -> Result<()> {
        self.seen.lock().unwrap().push((cx.clone(), json!({ op: req })));
        match &*self.refuse.lock().unwrap() {
            Some(refuse) => Err(refuse()),
            None => Ok(()),
        }
    }
}

fn task(id: &TaskId) -> Task {
    let mut task = Task { id: id.clone(), context_id: "c-1".into(), ..Task::default() };
    task.status.timestamp = Some(Timestamp::parse("2026-01-02T03:04:05.678Z").unwrap());
    task
}

fn config(task: &TaskId, id: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: Some(id.into()),
        task_id: Some(task.clone()),
        url: "https://hook.test/".to_owned(),
        ..TaskPushNotificationConfig::default()
    }
}

fn stream() -> EventStream {
    let reply = Event::Message(Message::agent("m-2", Part::text("hello")).into());
    let item = StreamItem::new(Some(Seq(7)), Arc::new(reply));
    Box::pin(futures_util::stream::iter([Ok(item)]))
}

#[async_trait]
impl A2aService for Probe {
    async fn send_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<SendMessageResponse> {
        self.note("SendMessage", cx, &req)?;
        Ok(SendMessageResponse::Task(task(&"t-new".into())))
    }

    async fn send_streaming_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<EventStream> {
        self.note("SendStreamingMessage", cx, &req)?;
        Ok(stream())
    }

    async fn get_task(&self, cx: &CallContext, req: GetTaskRequest) -> Result<Task> {
        self.note("GetTask", cx, &req)?;
        Ok(task(&req.id))
    }

    async fn list_tasks(&self, cx: &CallContext, req: ListTasksRequest) -> Result<ListTasksResponse> {
        self.note("ListTasks", cx, &req)?;
        Ok(ListTasksResponse {
            tasks: vec![task(&"t-1".into())],
            total_size: 1,
            total_is_estimate: req.context_id.is_some_and(|context| context.as_str() == "large"),
            ..ListTasksResponse::default()
        })
    }

    async fn cancel_task(&self, cx: &CallContext, req: CancelTaskRequest) -> Result<Task> {
        self.note("CancelTask", cx, &req)?;
        Ok(task(&req.id))
    }

    async fn subscribe_to_task(&self, cx: &CallContext, req: SubscribeToTaskRequest) -> Result<EventStream> {
        self.note("SubscribeToTask", cx, &req)?;
        Ok(stream())
    }

    async fn create_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        self.note("CreateTaskPushNotificationConfig", cx, &req)?;
        Ok(req)
    }

    async fn get_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig> {
        self.note("GetTaskPushNotificationConfig", cx, &req)?;
        Ok(config(&req.task_id, req.id.as_str()))
    }

    async fn list_task_push_notification_configs(
        &self,
        cx: &CallContext,
        req: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse> {
        self.note("ListTaskPushNotificationConfigs", cx, &req)?;
        let configs = vec![config(&req.task_id, "p-1")];
        Ok(ListTaskPushNotificationConfigsResponse { configs, ..Default::default() })
    }

    async fn delete_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()> {
        self.note("DeleteTaskPushNotificationConfig", cx, &req)
    }

    async fn get_extended_agent_card(
        &self,
        cx: &CallContext,
        req: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard> {
        self.note("GetExtendedAgentCard", cx, &req)?;
        Ok(AgentCard { description: "for you".to_owned(), ..card() })
    }
}
