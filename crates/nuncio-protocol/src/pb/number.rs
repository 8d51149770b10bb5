//! The sequence number of an event in gRPC, which has no frame for it: in the event's metadata, under the
//! URI of the extension. Other bindings have an id beside the event (SSE).

use bytes::Bytes;

use super::{Codec, encode_item};
use crate::{
    Event, Metadata, RESUME_EXTENSION, Result, Seq, StreamItem, Task, TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
};

/// Server: encodes the event of a stream with its sequence number, for callers that declared
/// [`RESUME_EXTENSION`]. The event itself is encoded once for all subscribers that share it.
///
/// # Errors
/// `InvalidAgentResponse` with the field if protobuf cannot express a value.
pub fn encode_numbered_item(codec: &Codec, item: &StreamItem) -> Result<Bytes> {
    let event = encode_item(codec, item)?;
    let Some(number) = item.seq().and_then(|seq| number(item.event(), seq)) else { return Ok(event) };
    // Protobuf merges concatenated messages: the event, followed by an event with only the number, is the
    // event with the number.
    let mut bytes = Vec::with_capacity(event.len() + 128);
    bytes.extend_from_slice(&event);
    (codec.encode_event)(&number, &mut bytes)?;
    Ok(bytes.into())
}

/// An event of the same kind with only the number; direct replies have none.
fn number(event: &Event, seq: Seq) -> Option<Event> {
    let metadata = Metadata::from_iter([(RESUME_EXTENSION, seq.0.to_string())]);
    match event {
        Event::Task(_) => Some(Event::Task(Task { metadata, ..Task::default() })),
        Event::StatusUpdate(_) => {
            Some(Event::StatusUpdate(TaskStatusUpdateEvent { metadata, ..TaskStatusUpdateEvent::default() }))
        }
        Event::ArtifactUpdate(_) => Some(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            metadata,
            ..TaskArtifactUpdateEvent::default()
        })),
        Event::Message(_) => None,
    }
}

/// Client: removes the number from a received event.
#[must_use]
pub fn take_number(event: &mut Event) -> Option<Seq> {
    let metadata = match event {
        Event::Task(task) => &mut task.metadata,
        Event::StatusUpdate(update) => &mut update.metadata,
        Event::ArtifactUpdate(update) => &mut update.metadata,
        Event::Message(_) => return None,
    };
    let seq = metadata.get(RESUME_EXTENSION)?.get::<String>().ok()?.parse().ok()?;
    metadata.remove(RESUME_EXTENSION);
    Some(Seq(seq))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{Artifact, Message, Part, TaskState, TaskStatus, Timestamp, pb, v03};

    fn status() -> TaskStatus {
        TaskStatus { state: TaskState::Working, message: None, timestamp: Some(Timestamp::EPOCH) }
    }

    fn events() -> Vec<Event> {
        let metadata = Metadata::from_iter([("k", json!({ "a": [1, "x"] }))]);
        let artifact = Artifact::new("a", Part::text("hi"));
        vec![
            Event::Task(Task {
                id: "t".into(),
                context_id: "c".into(),
                status: status(),
                artifacts: vec![Arc::new(artifact.clone())],
                ..Task::default()
            }),
            Event::StatusUpdate(TaskStatusUpdateEvent {
                task_id: "t".into(),
                context_id: "c".into(),
                status: status(),
                metadata,
            }),
            Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: "t".into(),
                context_id: "c".into(),
                artifact: Arc::new(artifact),
                append: true,
                last_chunk: true,
                joins: false,
                metadata: Metadata::new(),
            }),
        ]
    }

    #[test]
    fn the_number_travels_and_leaves_nothing_behind() {
        for codec in [pb::CODEC, v03::pb::CODEC] {
            for event in events() {
                let item = StreamItem::new(Some(Seq(u64::MAX)), Arc::new(event.clone()));
                let mut came = (codec.decode_event)(encode_numbered_item(&codec, &item).unwrap()).unwrap();
                assert_eq!(take_number(&mut came), Some(Seq(u64::MAX)), "{:?} {event:?}", codec.version);
                assert_eq!(came, event, "{:?}", codec.version);
                assert_eq!(take_number(&mut came), None);
            }
        }
    }

    #[test]
    fn what_has_no_number_stays_as_it_is() {
        let reply = Event::Message(Arc::new(Message::user("m", Part::text("hi"))));
        for (seq, event) in [(Some(Seq(1)), reply), (None, events().remove(1))] {
            let item = StreamItem::new(seq, Arc::new(event));
            let plain = encode_item(&pb::CODEC, &item).unwrap();
            assert_eq!(encode_numbered_item(&pb::CODEC, &item).unwrap(), plain);
        }
    }

    #[test]
    fn data_of_others_under_our_name_is_left_alone() {
        let mut event = events().remove(1);
        let Event::StatusUpdate(update) = &mut event else { panic!("a status update") };
        update.metadata.insert(RESUME_EXTENSION, json!({ "their": "own" }));
        let before = event.clone();
        assert_eq!(take_number(&mut event), None);
        assert_eq!(event, before);
    }
}
