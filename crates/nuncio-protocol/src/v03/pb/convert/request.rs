//! Requests of the operations (REQ-067, REQ-200). v0.3 has no tenant, and metadata only in a send.

use super::{super::generated as pb, config_of, task_of};
use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, Metadata,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    pb::convert::{Convert, InField as _, Mismatch},
    v03::name,
};

impl Convert<pb::SendMessageRequest> for SendMessageRequest {
    fn to_pb(&self) -> Result<pb::SendMessageRequest, Mismatch> {
        // Without a configuration a v0.3 server need not wait, while v1.0 means that it does.
        let configuration = match &self.configuration {
            Some(configuration) => configuration.to_pb()?,
            None => SendMessageConfiguration::default().to_pb()?,
        };
        Ok(pb::SendMessageRequest {
            request: self.message.to_pb().at("message")?,
            configuration: Some(configuration),
            metadata: self.metadata.to_pb().at("metadata")?,
        })
    }

    fn from_pb(pb: pb::SendMessageRequest) -> Result<Self, Mismatch> {
        Ok(Self {
            tenant: None,
            message: Convert::from_pb(pb.request).at("message")?,
            configuration: Convert::from_pb(pb.configuration).at("configuration")?,
            metadata: Convert::from_pb(pb.metadata).at("metadata")?,
        })
    }
}

impl Convert<pb::SendMessageConfiguration> for SendMessageConfiguration {
    fn to_pb(&self) -> Result<pb::SendMessageConfiguration, Mismatch> {
        Ok(pb::SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes.clone(),
            push_notification: self.task_push_notification_config.to_pb()?,
            history_length: down_length(self.history_length),
            blocking: !self.return_immediately,
        })
    }

    fn from_pb(pb: pb::SendMessageConfiguration) -> Result<Self, Mismatch> {
        Ok(Self {
            accepted_output_modes: pb.accepted_output_modes,
            task_push_notification_config: Convert::from_pb(pb.push_notification)?,
            history_length: up_length(pb.history_length),
            return_immediately: !pb.blocking,
        })
    }
}

/// The field has no presence: 0 means the whole history. A caller that wants none has to remove it from the
/// answer.
fn down_length(length: Option<i32>) -> i32 {
    length.unwrap_or_default()
}

fn up_length(length: i32) -> Option<i32> {
    Some(length).filter(|length| *length != 0)
}

impl Convert<pb::GetTaskRequest> for GetTaskRequest {
    fn to_pb(&self) -> Result<pb::GetTaskRequest, Mismatch> {
        Ok(pb::GetTaskRequest {
            name: name::of_task(self.id.as_str()),
            history_length: down_length(self.history_length),
        })
    }

    fn from_pb(pb: pb::GetTaskRequest) -> Result<Self, Mismatch> {
        let id = task_of(&pb.name).at("name")?;
        Ok(Self { tenant: None, id, history_length: up_length(pb.history_length) })
    }
}

impl Convert<pb::CancelTaskRequest> for CancelTaskRequest {
    fn to_pb(&self) -> Result<pb::CancelTaskRequest, Mismatch> {
        Ok(pb::CancelTaskRequest { name: name::of_task(self.id.as_str()) })
    }

    fn from_pb(pb: pb::CancelTaskRequest) -> Result<Self, Mismatch> {
        let id = task_of(&pb.name).at("name")?;
        Ok(Self { tenant: None, id, metadata: Metadata::new() })
    }
}

impl Convert<pb::TaskSubscriptionRequest> for SubscribeToTaskRequest {
    fn to_pb(&self) -> Result<pb::TaskSubscriptionRequest, Mismatch> {
        Ok(pb::TaskSubscriptionRequest { name: name::of_task(self.id.as_str()) })
    }

    fn from_pb(pb: pb::TaskSubscriptionRequest) -> Result<Self, Mismatch> {
        let id = task_of(&pb.name).at("name")?;
        Ok(Self { tenant: None, id })
    }
}

impl Convert<pb::GetTaskPushNotificationConfigRequest> for GetTaskPushNotificationConfigRequest {
    fn to_pb(&self) -> Result<pb::GetTaskPushNotificationConfigRequest, Mismatch> {
        let name = name::of_config(self.task_id.as_str(), self.id.as_str());
        Ok(pb::GetTaskPushNotificationConfigRequest { name })
    }

    fn from_pb(pb: pb::GetTaskPushNotificationConfigRequest) -> Result<Self, Mismatch> {
        let (task_id, id) = config_of(&pb.name).at("name")?;
        Ok(Self { tenant: None, task_id, id })
    }
}

impl Convert<pb::DeleteTaskPushNotificationConfigRequest> for DeleteTaskPushNotificationConfigRequest {
    fn to_pb(&self) -> Result<pb::DeleteTaskPushNotificationConfigRequest, Mismatch> {
        let name = name::of_config(self.task_id.as_str(), self.id.as_str());
        Ok(pb::DeleteTaskPushNotificationConfigRequest { name })
    }

    fn from_pb(pb: pb::DeleteTaskPushNotificationConfigRequest) -> Result<Self, Mismatch> {
        let (task_id, id) = config_of(&pb.name).at("name")?;
        Ok(Self { tenant: None, task_id, id })
    }
}

impl Convert<pb::ListTaskPushNotificationConfigRequest> for ListTaskPushNotificationConfigsRequest {
    fn to_pb(&self) -> Result<pb::ListTaskPushNotificationConfigRequest, Mismatch> {
        Ok(pb::ListTaskPushNotificationConfigRequest {
            parent: name::of_task(self.task_id.as_str()),
            page_size: self.page_size,
            page_token: Convert::<String>::to_pb(&self.page_token)?,
        })
    }

    fn from_pb(pb: pb::ListTaskPushNotificationConfigRequest) -> Result<Self, Mismatch> {
        Ok(Self {
            tenant: None,
            task_id: task_of(&pb.parent).at("parent")?,
            page_size: pb.page_size,
            page_token: Convert::from_pb(pb.page_token)?,
        })
    }
}

impl Convert<pb::GetAgentCardRequest> for GetExtendedAgentCardRequest {
    fn to_pb(&self) -> Result<pb::GetAgentCardRequest, Mismatch> {
        Ok(pb::GetAgentCardRequest {})
    }

    fn from_pb(_: pb::GetAgentCardRequest) -> Result<Self, Mismatch> {
        Ok(Self { tenant: None })
    }
}
