//! Several events in one piece.

use std::sync::{Arc, Mutex};

use nuncio_server::{
    protocol::{
        Artifact, ErrorKind, Event, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
        TaskStatusUpdateEvent,
    },
    store::MemoryStore,
    testing::{FailingStore, Harness, ScriptedExecutor, card, lines},
};

fn status(state: TaskState) -> Event {
    let status = TaskStatus { state, message: None, timestamp: None };
    Event::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() })
}

fn piece(id: &str) -> Event {
    let artifact = Arc::new(Artifact::new(id, Part::text("x")));
    Event::ArtifactUpdate(TaskArtifactUpdateEvent { artifact, ..TaskArtifactUpdateEvent::default() })
}

/// The outcome of these events, emitted together: the events of a stream, and the result of the emit.
async fn told(store: FailingStore, events: Vec<Event>) -> (Vec<String>, Option<ErrorKind>) {
    let outcome = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&outcome);
    let executor = ScriptedExecutor::new(move |_, out| {
        let (events, kept) = (events.clone(), Arc::clone(&kept));
        async move {
            *kept.lock().unwrap() = out.emit_all(events).await.err().map(|error| error.kind());
            Ok(())
        }
    });
    let harness = Harness::of(card(), store, executor, |builder| builder);
    let seen = lines(harness.stream("hi").await.unwrap()).await;
    let outcome = *outcome.lock().unwrap();
    (seen, outcome)
}

#[tokio::test(start_paused = true)]
async fn events_told_in_one_piece_are_told_in_order_and_up_to_the_first_that_cannot_be() {
    use TaskState::{Completed, Working};
    let whole = Event::Task(Task::default());
    let words = Event::Message(Arc::new(Message::agent("m", Part::text("x"))));
    let empty = Event::ArtifactUpdate(TaskArtifactUpdateEvent::default());
    let (internal, invalid) = (Some(ErrorKind::Internal), Some(ErrorKind::InvalidAgentResponse));
    for (events, expected, error) in [
        (vec![], &["task submitted", "status completed"][..], None),
        (
            vec![status(Working), piece("a"), status(Completed)],
            &["task submitted", "status working", "artifact a \"x\"", "status completed"],
            None,
        ),
        // After the end nothing can be told.
        (
            vec![status(Completed), piece("a")],
            &["task submitted", "status completed"],
            Some(ErrorKind::UnsupportedOperation),
        ),
        (
            vec![piece("a"), empty.clone(), piece("b")],
            &["task submitted", "artifact a \"x\"", "status completed"],
            invalid,
        ),
        (vec![empty], &["task submitted", "status completed"], invalid),
        // What no agent may say is seen before anything is told.
        (vec![piece("a"), whole], &["task submitted", "status completed"], internal),
        (vec![piece("a"), words], &["task submitted", "status completed"], internal),
    ] {
        for store in [FailingStore::default(), FailingStore::waiting(MemoryStore::default())] {
            let (seen, outcome) = told(store, events.clone()).await;
            let numbered = (1..).zip(expected).map(|(number, line)| format!("{number} {line}"));
            assert_eq!(seen, numbered.collect::<Vec<_>>(), "{events:?}");
            assert_eq!(outcome, error, "{events:?}");
        }
    }
}
