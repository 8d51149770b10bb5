//! Tasks, their status and artifacts, and the events of a stream.

use super::{convert, convert_oneof, required};
use crate::pb::generated as pb;

convert! {
    Task => pb::Task { id, context_id, status, artifacts, history, metadata }
    TaskStatus => pb::TaskStatus { state, message, timestamp }
    Artifact => pb::Artifact { artifact_id, name, description, parts, metadata, extensions }
    TaskStatusUpdateEvent => pb::TaskStatusUpdateEvent { task_id, context_id, status, metadata }
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
        Message = Message "message",
        StatusUpdate = StatusUpdate "statusUpdate",
        ArtifactUpdate = ArtifactUpdate "artifactUpdate",
    }
    SendMessageResponse => pb::SendMessageResponse, payload: pb::send_message_response::Payload {
        Task = Task "task",
        Message = Message "message",
    }
}
