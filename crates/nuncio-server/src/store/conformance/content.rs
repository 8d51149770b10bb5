//! Checks of content: parts of every kind and size come back unchanged from every read.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{
    Artifact, Event, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use serde_json::{Value, json};

use super::{Writer, at, creation, events, opening, scope, stored, works};
use crate::store::{Commit, Projection, Store, TaskQuery};

const KIB: usize = 1024;

/// Text without repetition, with characters of one to four bytes.
fn text(bytes: usize, salt: u64) -> String {
    let mut text = String::with_capacity(bytes + 4);
    let mut random = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while text.len() < bytes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let alphabet = ['a', 'Z', '7', ' ', '"', '\\', '\n', 'é', '漢', '🦀', '\0', '\u{1}', '\u{7f}'];
        text.push(alphabet[(random >> 33) as usize % alphabet.len()]);
    }
    while text.len() > bytes {
        text.pop();
    }
    text.push_str(&"x".repeat(bytes - text.len()));
    text
}

fn raw(bytes: usize, salt: u64) -> Bytes {
    text(bytes, salt).into_bytes().iter().map(|byte| byte.wrapping_mul(31)).collect()
}

fn data(bytes: usize, salt: u64) -> Value {
    json!({ "text": text(bytes, salt), "numbers": [0, -1, 1.5, u64::MAX], "none": null, "deep": [[{}]] })
}

/// One part of each kind, of about this size, with all optional fields.
fn parts(bytes: usize, salt: u64) -> Vec<Part> {
    let mut described = Part::raw(raw(bytes, salt)).with_filename("a \"file\"").with_media_type("image/png");
    described.metadata.insert("key", json!({ "value": [1] }));
    vec![
        Part::text(text(bytes, salt)).with_media_type("text/markdown"),
        described,
        Part::data(data(bytes, salt)),
        Part::url(format!("https://example.org/{}", "u".repeat(bytes.min(2_000)))),
    ]
}

/// Writes a task with such parts in every place that has parts.
async fn write(store: &Arc<dyn Store>, id: &str, bytes: usize) -> Writer {
    let ann = scope("ann");
    let mut task = creation(id, &format!("context of {id}"), 1);
    task.history = vec![Arc::new(Message::user("m-1", parts(bytes, 1)))];
    let entry = Commit { event: Arc::new(Event::Task(task.clone())), ..opening(&ann, id, None) };
    let mut writer = Writer::open(store, &ann, task, nuncio_protocol::Seq::ZERO);
    assert_eq!(writer.offer(entry).await, Ok(()));
    for (salt, append) in [(2, false), (3, true), (2, true)] {
        writer.append(artifact(&writer, parts(bytes, salt), append)).await;
    }
    writer.append(status(&writer, TaskState::InputRequired, 2, parts(bytes, 4))).await;
    let said = Message { task_id: Some(id.into()), ..Message::user("m-2", parts(bytes, 1)) };
    writer.append(Event::Message(Arc::new(said))).await;
    writer.append(status(&writer, TaskState::Working, 3, parts(bytes, 5))).await;
    writer
}

fn artifact(writer: &Writer, parts: Vec<Part>, append: bool) -> Event {
    Event::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: writer.task.id.clone(),
        artifact: Arc::new(Artifact::new("a", parts).with_name("made")),
        append,
        ..TaskArtifactUpdateEvent::default()
    })
}

fn status(writer: &Writer, state: TaskState, when: i64, parts: Vec<Part>) -> Event {
    let message = Some(Arc::new(Message::agent(format!("s-{when}"), parts)));
    Event::StatusUpdate(TaskStatusUpdateEvent {
        task_id: writer.task.id.clone(),
        status: TaskStatus { state, message, timestamp: Some(at(when)) },
        ..TaskStatusUpdateEvent::default()
    })
}

/// Checks that the task, its log and the list return the written data.
async fn comes_back(store: &dyn Store, writer: &Writer) {
    let id = &writer.task.id;
    // Not `assert_eq`: megabytes in a message help nobody.
    let read = stored(store, &writer.scope, id).await;
    assert!(read == Some((writer.task.clone(), writer.seq)), "the task {id}");
    let mut told = Task::default();
    for (seq, event) in events(store, &writer.scope, id, 0, 100).await {
        match &*event {
            Event::Task(created) => told = created.clone(),
            event => assert!(nuncio_protocol::fold(&mut told, event, at(0)).is_ok(), "{seq} of {id}"),
        }
    }
    assert!(told == writer.task, "the log of {id}");
    for (artifacts, history) in [(true, None), (false, None), (true, Some(0)), (false, Some(1))] {
        let shown = Projection { artifacts, history };
        let mut wanted = writer.task.clone();
        shown.apply(&mut wanted);
        // Each part of a task is left out by one of these lists, and shown by the other.
        if artifacts == history.is_none() {
            assert!(listed(store, writer, shown).await.as_ref() == Some(&wanted), "the list, {id} {shown:?}");
        }
        let told = works(store.shown(&writer.scope, id, shown).await);
        assert!(told == Some(wanted), "{id} {shown:?}");
    }
}

/// The task in the list of its context; a list of all tasks would read the content of every other task again.
async fn listed(store: &dyn Store, writer: &Writer, shown: Projection) -> Option<Task> {
    let (without_artifacts, history) = (!shown.artifacts, shown.history);
    let context_id = Some(writer.task.context_id.clone());
    let query = TaskQuery { context_id, limit: 100, without_artifacts, history, ..TaskQuery::default() };
    let page = works(store.tasks(&writer.scope, &query).await);
    page.tasks.into_iter().find(|task| task.id == writer.task.id)
}

/// A text that was told in pieces is one part, wherever it is read, also when it is large.
pub async fn a_text_in_pieces_comes_back_as_one_part(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (id, pieces, bytes) in [("t-few", 3, 10), ("t-many", 90, 3), ("t-large", 3, 100 * KIB)] {
        let mut writer = Writer::create(&store, &ann, id, id, 1).await;
        let piece = |writer: &Writer, text: String, append| {
            Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: writer.task.id.clone(),
                artifact: Arc::new(Artifact::new("a", Part::text(text))),
                append,
                joins: true,
                ..TaskArtifactUpdateEvent::default()
            })
        };
        for number in 0..pieces {
            writer.append(piece(&writer, text(bytes, number), number > 0)).await;
        }
        // The last piece may be empty.
        writer.append(piece(&writer, String::new(), true)).await;
        assert_eq!(writer.task.artifacts[0].parts.len(), 1);
        comes_back(&*store, &writer).await;
        // Read as a snapshot, too.
        writer.status(TaskState::InputRequired, 2).await;
        writer.append(piece(&writer, "!".to_owned(), true)).await;
        comes_back(&*store, &writer).await;
        writer.status(TaskState::Completed, 3).await;
        comes_back(&*store, &writer).await;
        assert_eq!(writer.task.artifacts[0].parts.len(), 1);
    }
}

/// A store may keep large content beside the log; reads show no difference.
pub async fn content_of_every_kind_and_size_comes_back_equal(store: Arc<dyn Store>) {
    // Around 64 KiB, where a store may begin to keep content elsewhere, by its own or by its JSON size.
    let edge = 64 * KIB;
    let mut written = Vec::new();
    for bytes in [0, 1, 3 * edge / 4 - 1, 3 * edge / 4, edge - 64, edge - 1, edge, edge + 1, 2 * edge] {
        let mut writer = write(&store, &format!("t-{bytes}"), bytes).await;
        comes_back(&*store, &writer).await;
        writer.append(status(&writer, TaskState::Completed, 4, parts(bytes, 6))).await;
        comes_back(&*store, &writer).await;
        written.push(writer.task);
    }
    let query = TaskQuery { limit: 100, ..TaskQuery::default() };
    let mut page = works(store.tasks(&scope("ann"), &query).await).tasks;
    page.sort_by(|a, b| a.id.cmp(&b.id));
    written.sort_by(|a, b| a.id.cmp(&b.id));
    assert!(page == written, "all on one page");
}

/// Five MiB in one part: in the task, its log and its last snapshot.
pub async fn a_very_large_part_comes_back_equal(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let large = [
        Part::text(text(5 * KIB * KIB, 1)),
        Part::raw(raw(5 * KIB * KIB, 2)),
        Part::data(data(5 * KIB * KIB, 3)),
    ];
    for part in large {
        writer.append(artifact(&writer, vec![part, Part::text("and a small one")], true)).await;
    }
    comes_back(&*store, &writer).await;
    writer.status(TaskState::Completed, 2).await;
    comes_back(&*store, &writer).await;
}

/// Many parts in one entry, each just below or above the threshold of large content.
pub async fn many_parts_at_the_edge_come_back_equal(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let around = |i: usize| Part::text(text(64 * KIB - 16 + i, i as u64 % 8));
    writer.append(artifact(&writer, (0..32).map(around).collect(), false)).await;
    // Another artifact with some of the same content, and then the first in another order.
    writer.append(artifact(&writer, (0..32).rev().map(around).collect(), true)).await;
    comes_back(&*store, &writer).await;
    writer.append(artifact(&writer, (5..9).map(around).collect(), false)).await;
    comes_back(&*store, &writer).await;
    writer.status(TaskState::Failed, 2).await;
    comes_back(&*store, &writer).await;
}

/// Deleting a task does not affect another one with the same content.
pub async fn the_same_content_in_two_tasks_is_each_ones_own(store: Arc<dyn Store>) {
    let mut one = write(&store, "t-1", 100 * KIB).await;
    let mut two = write(&store, "t-2", 100 * KIB).await;
    one.status(TaskState::Completed, 5).await;
    two.status(TaskState::Failed, 5).await;
    let prune = crate::store::Prune {
        agent: "agent".into(),
        what: crate::store::Pruned::Tasks(TaskState::Completed),
        before: at(9),
    };
    assert_eq!(works(store.prune(&prune, 9).await), 1);
    assert!(stored(&*store, &one.scope, &one.task.id).await.is_none());
    comes_back(&*store, &two).await;
}

/// Direct replies are content too.
pub async fn a_large_reply_comes_back_equal(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let reply = Arc::new(Message::agent("r", parts(200 * KIB, 1)));
    works(store.put_reply(&ann, super::key("k", 1), Arc::clone(&reply), at(1)).await);
    let answer = works(store.idempotent_outcome(&ann, "k").await).map(|answer| answer.outcome);
    assert!(matches!(answer, Some(crate::store::Outcome::Reply(kept)) if kept == reply));
}
