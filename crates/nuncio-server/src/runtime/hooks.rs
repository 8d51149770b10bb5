//! What an author puts around the operations: interceptors, and extensions while they are active.
//!
//! Hooks come after the check of required extensions (REQ-077) and before everything else that an
//! operation does. A runtime without hooks has nothing in their place.

use std::{pin::Pin, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{
    A2aService, AgentCard, AgentExtension, CallContext, CancelTaskRequest, Carrier,
    DeleteTaskPushNotificationConfigRequest, EventStream, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Interceptor, Interceptors,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Next, RESUME_EXTENSION, Result, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
    op::{Call, Reply},
};

use super::{Core, Runtime, service::Operations};
use crate::extension::Extension;

/// The operations with these around them.
pub(super) fn around(core: &Arc<Core>, hooks: Interceptors) -> Arc<dyn A2aService> {
    let operations = Operations { core: Arc::clone(core) };
    if hooks.is_empty() { Arc::new(operations) } else { Arc::new(Hooked { operations, hooks }) }
}

struct Hooked {
    operations: Operations,
    hooks: Interceptors,
}

impl Carrier for Hooked {
    async fn carry(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        self.operations.core.agent.check_extensions(cx)?;
        self.hooks.call(&self.operations, cx, call).await
    }
}

/// An extension as an interceptor: passed by where it is not active.
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

/// The extensions that the runtime itself answers for: what it can do beyond the specification is said on
/// every card, so that clients may use it.
pub(super) struct Declared {
    extensions: Vec<AgentExtension>,
    /// It tells webhooks.
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

    /// Puts them on a card, unless it says them itself. Webhooks it has if they are told.
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

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The runtime hands on to the service it was built with. Written out instead of `async`, so that the
/// future of that service is the answer, and not a second one around it.
macro_rules! hand_on {
    ($($method:ident($req:ty) -> $res:ty;)+) => {
        impl A2aService for Runtime {
            $(fn $method<'a, 'b, 'c>(&'a self, cx: &'b CallContext, req: $req) -> Answer<'c, $res>
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
