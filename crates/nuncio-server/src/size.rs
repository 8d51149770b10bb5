//! The approximate size of a value as JSON, in bytes. Limits and the memory account use it. It is computed
//! without encoding the value, in time linear in the number of parts.

use nuncio_protocol::{
    Artifact, Content, Event, ListTasksResponse, Message, Metadata, Part, SendMessageResponse, Task,
    TaskStatus,
    op::{Call, Reply},
};

/// The maximum size of a task's [memo](crate::Emitter::remember) in bytes.
pub const MAX_MEMO_BYTES: usize = 64 << 10;

/// The names, quotes and braces around a part.
const PART: usize = 16;

/// The same around a message, an artifact, a status or an event, with ids of the usual length.
const FRAME: usize = 128;

/// The size of a task.
pub(crate) fn task(task: &Task) -> usize {
    let history: usize = task.history.iter().map(|said| message(said)).sum();
    let artifacts: usize = task.artifacts.iter().map(|made| artifact(made)).sum();
    FRAME + status(&task.status) + history + artifacts + metadata(&task.metadata)
}

/// The size of an entry of a log.
pub(crate) fn event(event: &Event) -> usize {
    match event {
        Event::Task(created) => task(created),
        Event::Message(said) => message(said),
        Event::StatusUpdate(update) => FRAME + status(&update.status) + metadata(&update.metadata),
        Event::ArtifactUpdate(update) => FRAME + artifact(&update.artifact) + metadata(&update.metadata),
    }
}

/// The size of a message.
pub(crate) fn message(message: &Message) -> usize {
    let references: usize = message.reference_task_ids.iter().map(|id| id.as_str().len()).sum();
    FRAME + parts(&message.parts) + metadata(&message.metadata) + texts(&message.extensions) + references
}

/// The size of a call's message; other calls are small and count as 0.
pub(crate) fn call(call: &Call) -> usize {
    match call {
        Call::SendMessage(send) | Call::SendStreamingMessage(send) => message(&send.message),
        Call::GetTask(_)
        | Call::ListTasks(_)
        | Call::CancelTask(_)
        | Call::SubscribeToTask(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetTaskPushNotificationConfig(_)
        | Call::ListTaskPushNotificationConfigs(_)
        | Call::GetExtendedAgentCard(_)
        | Call::DeleteTaskPushNotificationConfig(_) => 0,
    }
}

/// The size of a response; 0 for a stream, which is counted event by event.
pub(crate) fn reply(reply: &Reply) -> usize {
    match reply {
        Reply::Sent(SendMessageResponse::Task(done)) | Reply::Task(done) => task(done),
        Reply::Sent(SendMessageResponse::Message(said)) => message(said),
        Reply::Tasks(ListTasksResponse { tasks, .. }) => tasks.iter().map(task).sum(),
        // Bounded by the limit of webhooks, and by the card.
        Reply::PushConfig(_) | Reply::PushConfigs(_) | Reply::Card(_) | Reply::Empty | Reply::Stream(_) => 0,
    }
}

fn status(status: &TaskStatus) -> usize {
    FRAME + status.message.as_ref().map_or(0, |said| message(said))
}

fn artifact(artifact: &Artifact) -> usize {
    let words = artifact.name.len() + artifact.description.len() + texts(&artifact.extensions);
    FRAME + words + parts(&artifact.parts) + metadata(&artifact.metadata)
}

fn parts(parts: &[Part]) -> usize {
    parts.iter().map(part).sum()
}

fn part(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        // Base64.
        Content::Raw(bytes) => bytes.len().div_ceil(3) * 4,
        Content::Data(data) => data.as_str().len(),
    };
    let names = [&part.filename, &part.media_type];
    let names: usize = names.into_iter().flatten().map(String::len).sum();
    PART + content + names + metadata(&part.metadata)
}

fn texts(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + 3).sum()
}

fn metadata(metadata: &Metadata) -> usize {
    if metadata.is_empty() { 0 } else { metadata.as_str().len() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_estimate_is_near_the_json_of_what_is_large() {
        let large = |content: Part| {
            let artifact = Arc::new(Artifact::new("a", content.clone()));
            let said = Arc::new(Message::user("m", content));
            Task { id: "t".into(), history: vec![said], artifacts: vec![artifact], ..Task::default() }
        };
        let mut with_metadata = Part::text("");
        with_metadata.metadata.insert("k", "x".repeat(100_000));
        for content in [
            Part::text("x".repeat(100_000)),
            Part::raw(vec![7; 100_000]),
            Part::data(json!({"rows": vec![json!({"name": "value", "other": 17}); 5_000]})),
            Part::data(json!(vec!["abc"; 20_000])),
            Part::data(json!(vec![0; 20_000])),
            with_metadata,
        ] {
            let large = large(content);
            let (told, real) = (task(&large), serde_json::to_vec(&large).unwrap().len());
            assert!(told >= real * 9 / 10 && told <= real * 3 / 2, "told {told} for {real}");
            let event = Event::Task(large.clone());
            assert_eq!(super::event(&event), told);
            let page =
                ListTasksResponse { tasks: vec![large.clone(), large], ..ListTasksResponse::default() };
            assert_eq!(reply(&Reply::Tasks(page)), 2 * told);
        }
    }
}
