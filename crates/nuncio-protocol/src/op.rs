//! The table of operations. Dispatch, routes, client paths and labels are generated from it.

use crate::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, EventStream,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig,
};

/// HTTP methods of the HTTP+JSON binding.
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
    /// The method name.
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
    /// Its HTTP method in HTTP+JSON.
    pub verb: Verb,
    /// Its path in HTTP+JSON, below the interface's URL.
    pub path: &'static str,
    /// True if it answers with a stream.
    pub streaming: bool,
}

/// The table: passes its rows to a macro.
macro_rules! with_operations {
    ($make:ident) => {
        $make! {
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
    };
}

pub(crate) use with_operations;

macro_rules! define_operations {
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
            /// The operation.
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
        }
    };
}

with_operations!(define_operations);

impl Op {
    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static OpRow {
        // The table is in the order of the variants; a test checks this.
        &Self::TABLE[self as usize]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Finds an operation by its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.name == name).map(|row| row.op)
    }
}

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpSet(u16);

impl OpSet {
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);

    /// True if the operation is in the set.
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

/// The answer of an operation.
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
    /// Success without content.
    Empty,
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
