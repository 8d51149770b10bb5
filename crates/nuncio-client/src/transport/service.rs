//! From the eleven methods of [`A2aService`](nuncio_protocol::A2aService) to the two that a wire has:
//! calls with one answer, and calls with a stream.

use nuncio_protocol::Error;

/// A dialect that reads the reply of another operation is broken.
pub(crate) fn mismatch() -> Error {
    Error::internal("the dialect read a reply of another operation")
}

/// Implements `A2aService` for a type with `unary(&self, &CallContext, Call) -> Result<Reply>` and
/// `streaming(&self, &CallContext, Call) -> Result<EventStream>`.
macro_rules! a2a_service {
    ($service:ty) => {
        a2a_service! {
            $service;
            unary {
                send_message SendMessage(SendMessageRequest) -> nuncio_protocol::SendMessageResponse, Reply::Sent(sent) => sent;
                get_task GetTask(GetTaskRequest) -> nuncio_protocol::Task, Reply::Task(task) => task;
                list_tasks ListTasks(ListTasksRequest) -> nuncio_protocol::ListTasksResponse, Reply::Tasks(page) => page;
                cancel_task CancelTask(CancelTaskRequest) -> nuncio_protocol::Task, Reply::Task(task) => task;
                create_task_push_notification_config CreateTaskPushNotificationConfig(TaskPushNotificationConfig)
                    -> nuncio_protocol::TaskPushNotificationConfig, Reply::PushConfig(config) => config;
                get_task_push_notification_config GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest)
                    -> nuncio_protocol::TaskPushNotificationConfig, Reply::PushConfig(config) => config;
                list_task_push_notification_configs
                    ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest)
                    -> nuncio_protocol::ListTaskPushNotificationConfigsResponse, Reply::PushConfigs(page) => page;
                delete_task_push_notification_config
                    DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest) -> (), Reply::Empty => ();
                get_extended_agent_card GetExtendedAgentCard(GetExtendedAgentCardRequest)
                    -> nuncio_protocol::AgentCard, Reply::Card(card) => *card;
            }
            streaming {
                send_streaming_message SendStreamingMessage(SendMessageRequest);
                subscribe_to_task SubscribeToTask(SubscribeToTaskRequest);
            }
        }
    };
    (
        $service:ty;
        unary { $($unary:ident $unary_op:ident($unary_req:ident) -> $res:ty, $reply:pat => $value:expr;)+ }
        streaming { $($streaming:ident $streaming_op:ident($streaming_req:ident);)+ }
    ) => {
        #[async_trait::async_trait]
        impl nuncio_protocol::A2aService for $service {
            $(async fn $unary(
                &self,
                cx: &nuncio_protocol::CallContext,
                req: nuncio_protocol::$unary_req,
            ) -> nuncio_protocol::Result<$res> {
                use nuncio_protocol::op::{Call, Reply};
                match self.unary(cx, Call::$unary_op(Box::new(req))).await? {
                    $reply => Ok($value),
                    _ => Err($crate::transport::service::mismatch()),
                }
            })+

            $(async fn $streaming(
                &self,
                cx: &nuncio_protocol::CallContext,
                req: nuncio_protocol::$streaming_req,
            ) -> nuncio_protocol::Result<nuncio_protocol::EventStream> {
                self.streaming(cx, nuncio_protocol::op::Call::$streaming_op(Box::new(req))).await
            })+
        }
    };
}

pub(crate) use a2a_service;
