//! The operations as a table. Dispatch, routes, client paths and labels are made from it.

use async_trait::async_trait;

use crate::{
    A2aService, AgentCard, CallContext, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error,
    EventStream, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Result, SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig,
};

/// HTTP verbs of the HTTP+JSON binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
}

impl Verb {
    /// As it stands in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OpRow {
    /// The operation.
    pub op: Op,
    /// Its name: the rpc of gRPC and the method of JSON-RPC.
    pub name: &'static str,
    /// Its verb in HTTP+JSON.
    pub verb: Verb,
    /// Its path in HTTP+JSON below the interface's address.
    pub path: &'static str,
    /// True if it answers with a stream.
    pub streaming: bool,
}

macro_rules! op_table {
    ($($op:ident $verb:ident $path:literal $streaming:literal $method:ident($req:ty) -> $reply:ident($res:ty);)+) => {
        /// An operation of the protocol.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
            $(#[doc = concat!("`", stringify!($op), "`.")] $op,)+
        }

        impl Op {
            /// The table: one row per operation, in the order of the specification's service.
            pub const TABLE: &[OpRow] = &[$(OpRow {
                op: Self::$op, name: stringify!($op), verb: Verb::$verb, path: $path, streaming: $streaming,
            },)+];
        }

        /// An operation with its parameters.
        #[derive(Clone, Debug)]
        pub enum Call {
            $(#[doc = concat!("`", stringify!($op), "`.")] $op(Box<$req>),)+
        }

        impl Call {
            /// Which operation it is.
            #[must_use]
            pub fn op(&self) -> Op {
                match self {
                    $(Self::$op(_) => Op::$op,)+
                }
            }

            /// The tenant in the parameters.
            #[must_use]
            pub fn tenant(&self) -> Option<&str> {
                match self {
                    $(Self::$op(req) => req.tenant.as_deref(),)+
                }
            }

            /// Puts a tenant into the parameters.
            pub fn set_tenant(&mut self, tenant: Option<String>) {
                match self {
                    $(Self::$op(req) => req.tenant = tenant,)+
                }
            }

            /// Calls the operation that it names. To hand a call on, use [`A2aService::call`].
            ///
            /// # Errors
            /// What the operation answers.
            pub async fn dispatch<S: A2aService + ?Sized>(self, service: &S, cx: &CallContext) -> Result<Reply> {
                match self {
                    $(Self::$op(req) => service.$method(cx, *req).await.map(Answer::into_reply),)+
                }
            }
        }

        impl Reply {
            /// True if this operation answers so.
            fn is_of(&self, op: Op) -> bool {
                match op {
                    $(Op::$op => matches!(self, Self::$reply { .. }),)+
                }
            }
        }

        #[async_trait]
        impl<T: Carrier> A2aService for T {
            async fn call(&self, cx: &CallContext, call: Call) -> Result<Reply> {
                let op = call.op();
                let reply = self.carry(cx, call).await?;
                if reply.is_of(op) { Ok(reply) } else { Err(mixed_up()) }
            }

            $(async fn $method(&self, cx: &CallContext, req: $req) -> Result<$res> {
                answer(self.carry(cx, Call::$op(Box::new(req))).await?)
            })+
        }
    };
}

op_table! {
    SendMessage Post "/message:send" false send_message(SendMessageRequest) -> Sent(SendMessageResponse);
    SendStreamingMessage Post "/message:stream" true send_streaming_message(SendMessageRequest) -> Stream(EventStream);
    GetTask Get "/tasks/{id}" false get_task(GetTaskRequest) -> Task(Task);
    ListTasks Get "/tasks" false list_tasks(ListTasksRequest) -> Tasks(ListTasksResponse);
    CancelTask Post "/tasks/{id}:cancel" false cancel_task(CancelTaskRequest) -> Task(Task);
    SubscribeToTask Get "/tasks/{id}:subscribe" true subscribe_to_task(SubscribeToTaskRequest) -> Stream(EventStream);
    CreateTaskPushNotificationConfig Post "/tasks/{taskId}/pushNotificationConfigs" false
        create_task_push_notification_config(TaskPushNotificationConfig) -> PushConfig(TaskPushNotificationConfig);
    GetTaskPushNotificationConfig Get "/tasks/{taskId}/pushNotificationConfigs/{id}" false
        get_task_push_notification_config(GetTaskPushNotificationConfigRequest) -> PushConfig(TaskPushNotificationConfig);
    ListTaskPushNotificationConfigs Get "/tasks/{taskId}/pushNotificationConfigs" false
        list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest) -> PushConfigs(ListTaskPushNotificationConfigsResponse);
    GetExtendedAgentCard Get "/extendedAgentCard" false get_extended_agent_card(GetExtendedAgentCardRequest) -> Card(AgentCard);
    DeleteTaskPushNotificationConfig Delete "/tasks/{taskId}/pushNotificationConfigs/{id}" false
        delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest) -> Empty(());
}

impl Op {
    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static OpRow {
        // The table is in the order of the variants; a test holds this.
        &Self::TABLE[self as usize]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// By name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.name == name).map(|row| row.op)
    }
}

/// Some of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpSet(u16);

impl OpSet {
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);

    /// True if it is one of these.
    #[must_use]
    pub fn contains(self, op: Op) -> bool {
        self.0 & (1 << op as u16) != 0
    }
}

impl FromIterator<Op> for OpSet {
    fn from_iter<I: IntoIterator<Item = Op>>(ops: I) -> Self {
        Self(ops.into_iter().fold(0, |set, op| set | (1 << op as u16)))
    }
}

impl std::fmt::Debug for OpSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Op::TABLE.iter().map(|row| row.op).filter(|&op| self.contains(op))).finish()
    }
}

/// What an operation answers.
#[expect(missing_debug_implementations, reason = "a stream cannot be printed")]
pub enum Reply {
    /// A task or a direct reply.
    Sent(SendMessageResponse),
    /// A stream of events.
    Stream(EventStream),
    /// A task.
    Task(Task),
    /// A page of tasks.
    Tasks(ListTasksResponse),
    /// A webhook.
    PushConfig(TaskPushNotificationConfig),
    /// A page of webhooks.
    PushConfigs(ListTaskPushNotificationConfigsResponse),
    /// A card.
    Card(Box<AgentCard>),
    /// Nothing but success.
    Empty,
}

/// Takes calls whole, whatever their operation, and is an [`A2aService`] by that: for what stands
/// between two of them, such as [interceptors](crate::Interceptors) and transports. The mirror image of
/// [`Call::dispatch`].
pub trait Carrier: Send + Sync + 'static {
    /// Carries a call out. The reply is of the call's own operation.
    fn carry(&self, cx: &CallContext, call: Call) -> impl Future<Output = Result<Reply>> + Send;
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_own_operation() {
        assert_eq!(Op::TABLE.len(), 11);
        for row in Op::TABLE {
            assert_eq!(row.op.name(), row.name);
            assert_eq!(Op::from_name(row.name), Some(row.op));
        }
    }
}
