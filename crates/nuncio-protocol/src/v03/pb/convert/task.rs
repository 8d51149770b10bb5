//! Tasks, their status and artifacts, and the events of a stream.

use super::super::generated as pb;
use crate::{
    TaskStatus, TaskStatusUpdateEvent,
    pb::convert::{Convert, InField as _, Mismatch, convert, convert_oneof, required},
    v03::downgrade::is_final,
};

convert! {
    Task => pb::Task { id, context_id, status, artifacts, history, metadata }
    Artifact => pb::Artifact { artifact_id, name, description, parts, metadata, extensions }
    TaskArtifactUpdateEvent => pb::TaskArtifactUpdateEvent {
        task_id, context_id, artifact, append, last_chunk, metadata; joins: false
    }
}

required! {
    TaskStatus => pb::TaskStatus;
    Artifact => pb::Artifact;
}

convert_oneof! {
    Event => pb::StreamResponse, payload: pb::stream_response::Payload {
        Task = Task "task",
        Message = Msg "message",
        StatusUpdate = StatusUpdate "statusUpdate",
        ArtifactUpdate = ArtifactUpdate "artifactUpdate",
    }
    SendMessageResponse => pb::SendMessageResponse, payload: pb::send_message_response::Payload {
        Task = Task "task",
        Message = Msg "message",
    }
}

impl Convert<pb::TaskStatus> for TaskStatus {
    fn to_pb(&self) -> Result<pb::TaskStatus, Mismatch> {
        Ok(pb::TaskStatus {
            state: self.state.to_pb()?,
            update: self.message.to_pb().at("message")?,
            timestamp: self.timestamp.to_pb().at("timestamp")?,
        })
    }

    fn from_pb(pb: pb::TaskStatus) -> Result<Self, Mismatch> {
        Ok(Self {
            state: Convert::from_pb(pb.state).at("state")?,
            message: Convert::from_pb(pb.update).at("message")?,
            timestamp: Convert::from_pb(pb.timestamp).at("timestamp")?,
        })
    }
}

impl Convert<pb::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn to_pb(&self) -> Result<pb::TaskStatusUpdateEvent, Mismatch> {
        Ok(pb::TaskStatusUpdateEvent {
            task_id: self.task_id.to_pb()?,
            context_id: self.context_id.to_pb()?,
            status: self.status.to_pb().at("status")?,
            r#final: is_final(self.status.state),
            metadata: self.metadata.to_pb().at("metadata")?,
        })
    }

    fn from_pb(pb: pb::TaskStatusUpdateEvent) -> Result<Self, Mismatch> {
        // `final` only repeats the state and the end of the stream.
        Ok(Self {
            task_id: pb.task_id.into(),
            context_id: pb.context_id.into(),
            status: Convert::from_pb(pb.status).at("status")?,
            metadata: Convert::from_pb(pb.metadata).at("metadata")?,
        })
    }
}
