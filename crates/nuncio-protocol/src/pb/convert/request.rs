//! Requests and responses of the operations.

use super::{Convert, Mismatch, convert};
use crate::{TaskState, pb::generated as pb};

convert! {
    SendMessageRequest => pb::SendMessageRequest { tenant, message, configuration, metadata }
    SendMessageConfiguration => pb::SendMessageConfiguration {
        accepted_output_modes, task_push_notification_config, history_length, return_immediately,
    }
    GetTaskRequest => pb::GetTaskRequest { tenant, id, history_length }
    ListTasksRequest => pb::ListTasksRequest {
        tenant, context_id, status, page_size, page_token, history_length, status_timestamp_after, include_artifacts,
    }
    ListTasksResponse => pb::ListTasksResponse {
        tasks, next_page_token, page_size, total_size; total_is_estimate: false
    }
    CancelTaskRequest => pb::CancelTaskRequest { tenant, id, metadata }
    SubscribeToTaskRequest => pb::SubscribeToTaskRequest { tenant, id }
    GetTaskPushNotificationConfigRequest => pb::GetTaskPushNotificationConfigRequest { tenant, task_id, id }
    ListTaskPushNotificationConfigsRequest => pb::ListTaskPushNotificationConfigsRequest {
        tenant, task_id, page_size, page_token,
    }
    ListTaskPushNotificationConfigsResponse => pb::ListTaskPushNotificationConfigsResponse {
        configs, next_page_token,
    }
    DeleteTaskPushNotificationConfigRequest => pb::DeleteTaskPushNotificationConfigRequest { tenant, task_id, id }
    GetExtendedAgentCardRequest => pb::GetExtendedAgentCardRequest { tenant }
}

/// A filter by state: unspecified means no filter.
impl Convert<i32> for Option<TaskState> {
    fn to_pb(&self) -> Result<i32, Mismatch> {
        self.unwrap_or_default().to_pb()
    }

    fn from_pb(pb: i32) -> Result<Self, Mismatch> {
        TaskState::from_pb(pb).map(|state| Some(state).filter(|state| *state != TaskState::Unspecified))
    }
}
