//! The trait of both sides: a server runtime, a client transport and a gateway between them implement it.

use async_trait::async_trait;

use crate::{
    AgentCard, CallContext, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, EventStream,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Result, SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig,
    op::{Call, Op, Reply, with_operations},
};

/// The extension with which a server declares that streams resume after `Last-Event-ID`, and that a send
/// may be repeated under its `Idempotency-Key`. Clients rely on either only if it is declared.
pub const RESUME_EXTENSION: &str = "https://nuncio.dev/a2a/resume/v1";

/// The eleven operations of the specification, under its names.
///
/// Rules for implementors: answers and events contain only committed data; a task of another caller is not
/// found; dropping a future or a stream never stops a task.
#[async_trait]
pub trait A2aService: Send + Sync + 'static {
    /// Sends a message to the agent and waits for the result (spec 3.1.1).
    async fn send_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<SendMessageResponse>;

    /// Sends a message to the agent and streams the events (spec 3.1.2).
    async fn send_streaming_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<EventStream>;

    /// The current task (spec 3.1.3).
    async fn get_task(&self, cx: &CallContext, req: GetTaskRequest) -> Result<Task>;

    /// The caller's tasks, newest status first (spec 3.1.4).
    async fn list_tasks(&self, cx: &CallContext, req: ListTasksRequest) -> Result<ListTasksResponse>;

    /// Cancels a task (spec 3.1.5).
    async fn cancel_task(&self, cx: &CallContext, req: CancelTaskRequest) -> Result<Task>;

    /// Follows a task (spec 3.1.6).
    async fn subscribe_to_task(&self, cx: &CallContext, req: SubscribeToTaskRequest) -> Result<EventStream>;

    /// Registers a webhook (spec 3.1.7).
    async fn create_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig>;

    /// A webhook (spec 3.1.8).
    async fn get_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig>;

    /// The webhooks of a task (spec 3.1.9).
    async fn list_task_push_notification_configs(
        &self,
        cx: &CallContext,
        req: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse>;

    /// Removes a webhook; it is no error if the webhook does not exist (spec 3.1.10).
    async fn delete_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()>;

    /// The card for authenticated callers (spec 3.1.11).
    async fn get_extended_agent_card(
        &self,
        cx: &CallContext,
        req: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard>;

    /// Makes any call. A [`CallHandler`] gets the call itself; for any other service the method of its
    /// operation is called.
    async fn call(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        call.dispatch(self, cx).await
    }
}

/// Handles calls of all operations in one method, and is an [`A2aService`] thereby: for code between two
/// services, such as [interceptors](crate::Interceptors) and transports. The inverse of [`Call::dispatch`].
pub trait CallHandler: Send + Sync + 'static {
    /// Handles a call. The reply is that of the call's operation.
    fn handle(&self, cx: &CallContext, call: Call) -> impl Future<Output = Result<Reply>> + Send;
}

macro_rules! implement_service {
    ($($op:ident $verb:ident $path:literal $streaming:literal $method:ident($req:ty) -> $reply:ident($res:ty);)+) => {
        impl Call {
            /// Calls the method of its operation. To forward a call, use [`A2aService::call`].
            ///
            /// # Errors
            /// The error of the operation.
            pub async fn dispatch<S: A2aService + ?Sized>(self, service: &S, cx: &CallContext) -> Result<Reply> {
                match self {
                    $(Self::$op(req) => service.$method(cx, *req).await.map(Answer::into_reply),)+
                }
            }
        }

        impl Reply {
            /// True if the reply is one of this operation.
            fn is_of(&self, op: Op) -> bool {
                match op {
                    $(Op::$op => matches!(self, Self::$reply { .. }),)+
                }
            }
        }

        #[async_trait]
        impl<T: CallHandler> A2aService for T {
            async fn call(&self, cx: &CallContext, call: Call) -> Result<Reply> {
                let op = call.op();
                let reply = self.handle(cx, call).await?;
                if reply.is_of(op) { Ok(reply) } else { Err(mixed_up()) }
            }

            $(async fn $method(&self, cx: &CallContext, req: $req) -> Result<$res> {
                answer(self.handle(cx, Call::$op(Box::new(req))).await?)
            })+
        }
    };
}

with_operations!(implement_service);

/// A result and its variant of [`Reply`]; one per result type, so that the table needs no second match.
trait Answer: Sized {
    fn into_reply(self) -> Reply;

    /// `None` if the reply is of another operation.
    fn from_reply(reply: Reply) -> Option<Self>;
}

fn answer<T: Answer>(reply: Reply) -> Result<T> {
    T::from_reply(reply).ok_or_else(mixed_up)
}

fn mixed_up() -> Error {
    Error::internal("the reply is of another operation than the call")
}

macro_rules! replies {
    ($($ty:ty => |$value:ident| $reply:expr, $pattern:pat => $inner:expr;)+) => {$(
        impl Answer for $ty {
            fn into_reply(self) -> Reply {
                let $value = self;
                $reply
            }

            fn from_reply(reply: Reply) -> Option<Self> {
                match reply {
                    $pattern => Some($inner),
                    _ => None,
                }
            }
        }
    )+};
}

replies! {
    SendMessageResponse => |sent| Reply::Sent(sent), Reply::Sent(sent) => sent;
    EventStream => |stream| Reply::Stream(stream), Reply::Stream(stream) => stream;
    Task => |task| Reply::Task(task), Reply::Task(task) => task;
    ListTasksResponse => |page| Reply::Tasks(page), Reply::Tasks(page) => page;
    TaskPushNotificationConfig => |config| Reply::PushConfig(config), Reply::PushConfig(config) => config;
    ListTaskPushNotificationConfigsResponse => |page| Reply::PushConfigs(page), Reply::PushConfigs(page) => page;
    AgentCard => |card| Reply::Card(Box::new(card)), Reply::Card(card) => *card;
    () => |_nothing| Reply::Empty, Reply::Empty => ();
}
