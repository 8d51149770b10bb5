//! The author's hooks around the operations: interceptors, and extensions while they are active.
//!
//! Hooks run after the check of required extensions (REQ-077) and before all other work of an operation. A
//! runtime without hooks calls its operations directly.

use std::{pin::Pin, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{
    A2aService, AgentCard, AgentExtension, CallContext, CallHandler, CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest, EventStream, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Interceptor, Interceptors,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Next, RESUME_EXTENSION, Result, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
    op::{Call, Reply},
};

use super::{Core, Runtime, service::Operations};
use crate::extension::Extension;

/// Wraps the operations in these hooks.
pub(super) fn around(core: &Arc<Core>, hooks: Interceptors) -> Arc<dyn A2aService> {
    let operations = Operations { core: Arc::clone(core) };
    if hooks.is_empty() { Arc::new(operations) } else { Arc::new(Hooked { operations, hooks }) }
}

struct Hooked {
    operations: Operations,
    hooks: Interceptors,
}

impl CallHandler for Hooked {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        self.operations.core.agent.check_extensions(cx)?;
        self.hooks.call(&self.operations, cx, call).await
    }
}

/// An extension as an interceptor; calls that do not declare the extension bypass it.
pub(super) struct WhenActive<E> {
    pub(super) uri: String,
    pub(super) extension: E,
}

#[async_trait]
impl<E: Extension> Interceptor for WhenActive<E> {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        if cx.declares(&self.uri) {
            self.extension.intercept(cx, call, next).await
        } else {
            next.run(cx, call).await
        }
    }
}

/// The extensions of the runtime itself: its features beyond the specification. They are declared on every
/// card, so that clients can use them.
pub(super) struct Declared {
    extensions: Vec<AgentExtension>,
    /// True if the runtime supports push notifications.
    pushes: bool,
}

impl Default for Declared {
    fn default() -> Self {
        let description = "streams resume after Last-Event-ID; sends repeat safely under Idempotency-Key";
        let resume = AgentExtension {
            uri: RESUME_EXTENSION.to_owned(),
            description: description.to_owned(),
            ..AgentExtension::default()
        };
        Self { extensions: vec![resume], pushes: false }
    }
}

impl Declared {
    pub(super) fn push(&mut self, declaration: AgentExtension) {
        self.extensions.push(declaration);
    }

    pub(super) fn pushes(&mut self, pushes: bool) {
        self.pushes = pushes;
    }

    /// Adds the extensions to a card that does not declare them itself, and sets its capability of push
    /// notifications.
    pub(super) fn on(&self, card: &mut AgentCard) {
        if self.pushes || card.capabilities.push_notifications.is_some() {
            card.capabilities.push_notifications = Some(self.pushes);
        }
        for declaration in &self.extensions {
            if card.extension(&declaration.uri).is_none() {
                card.capabilities.extensions.push(declaration.clone());
            }
        }
    }
}

type BoxedAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Forwards the operations to the service that the runtime was built with. Written out instead of `async`, so
/// that the future of that service is returned directly, without a second one around it.
macro_rules! hand_on {
    ($($method:ident($req:ty) -> $res:ty;)+) => {
        impl A2aService for Runtime {
            $(fn $method<'a, 'b, 'c>(&'a self, cx: &'b CallContext, req: $req) -> BoxedAnswer<'c, $res>
            where
                'a: 'c,
                'b: 'c,
                Self: 'c,
            {
                self.service.$method(cx, req)
            })+
        }
    };
}

hand_on! {
    send_message(SendMessageRequest) -> SendMessageResponse;
    send_streaming_message(SendMessageRequest) -> EventStream;
    get_task(GetTaskRequest) -> Task;
    list_tasks(ListTasksRequest) -> ListTasksResponse;
    cancel_task(CancelTaskRequest) -> Task;
    subscribe_to_task(SubscribeToTaskRequest) -> EventStream;
    create_task_push_notification_config(TaskPushNotificationConfig) -> TaskPushNotificationConfig;
    get_task_push_notification_config(GetTaskPushNotificationConfigRequest) -> TaskPushNotificationConfig;
    list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest)
        -> ListTaskPushNotificationConfigsResponse;
    delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest) -> ();
    get_extended_agent_card(GetExtendedAgentCardRequest) -> AgentCard;
    call(Call) -> Reply;
}
