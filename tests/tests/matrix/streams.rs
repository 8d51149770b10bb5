//! The events of a stream, its begin and its end.

use nuncio_protocol::{
    Artifact, CallContext, ErrorKind, Event, EventStream, Seq, StreamItem, Task, TaskState, Timestamp, fold,
};
use nuncio_tests::{
    next, rest,
    transcript::Transcript,
    world::{Way, World, at_once, refusal, say, say_to, with_history},
};

/// The events in short form: `task submitted`, `working`, `artifact a +`, `completed`.
fn outline(events: &[StreamItem]) -> Vec<String> {
    events.iter().map(|item| line(item.event())).collect()
}

fn line(event: &Event) -> String {
    match event {
        Event::Task(task) => format!("task {}", short(task.status.state)),
        Event::Message(message) => format!("message {}", message.text()),
        Event::StatusUpdate(update) => short(update.status.state),
        Event::ArtifactUpdate(update) => {
            let Artifact { artifact_id, .. } = &*update.artifact;
            let (append, last) =
                (if update.append { " +" } else { "" }, if update.last_chunk { " ." } else { "" });
            format!("artifact {artifact_id}{append}{last}")
        }
    }
}

fn short(state: TaskState) -> String {
    state.to_string().trim_start_matches("TASK_STATE_").to_lowercase()
}

fn seqs(events: &[StreamItem]) -> Vec<u64> {
    events.iter().map(|item| item.seq().unwrap().0).collect()
}

fn task_of(item: &StreamItem) -> Task {
    let Event::Task(task) = &**item.event() else { panic!("expected a task, got {item:?}") };
    task.clone()
}

/// REQ-135 to REQ-139, REQ-150, REQ-151: the task first, then what happens, in order, then the end.
pub(crate) async fn a_stream_shows_the_whole_lifecycle(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let script =
        "submitted; working on it; chunk a one; chunk a two; last a three; text b whole; completed done";
    let events = rest(world.alice.stream(say("m-1", script)).await.unwrap()).await;
    assert_eq!(
        outline(&events),
        [
            "task submitted",
            "working",
            "artifact a",
            "artifact a +",
            "artifact a + .",
            "artifact b .",
            "completed"
        ]
    );
    assert_eq!(seqs(&events), [1, 2, 3, 4, 5, 6, 7]);
    let mut task = task_of(&events[0]);
    for item in &events {
        assert_eq!(
            item.event().task_id(),
            Some(&task.id),
            "every event names the task (rule 15 of section 8)"
        );
        assert_eq!(item.event().context_id(), Some(&task.context_id), "and the conversation");
    }
    for item in &events[1..] {
        fold(&mut task, item.event(), Timestamp::EPOCH).unwrap();
    }
    assert_eq!(task, world.alice.get(&task.id).await.unwrap(), "a client that folds has the server's task");
    seen.events("event", &events);
    seen
}

/// REQ-134.
pub(crate) async fn a_direct_reply_is_the_only_event(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let events = rest(world.alice.stream(say("m-1", "message hi")).await.unwrap()).await;
    assert_eq!(outline(&events), ["message hi"]);
    assert_eq!(events[0].seq(), None, "there is no task, hence nothing to resume");
    seen.events("event", &events);
    seen
}

/// Trap T-02.
pub(crate) async fn a_question_ends_the_stream_of_a_send_and_no_subscription(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let events = rest(world.alice.stream(say("m-1", "working; ask Which?")).await.unwrap()).await;
    assert_eq!(outline(&events), ["task submitted", "working", "input_required"]);
    seen.events("asked", &events);
    let task = task_of(&events[0]);

    let mut subscription = world.alice.subscribe(&task.id, None).await.unwrap();
    let snapshot = next(&mut subscription).await;
    assert_eq!(line(snapshot.event()), "task input_required");
    let answered = world.alice.task(say_to(&task, "m-2", "working; ask Really?")).await;
    world.alice.task(say_to(&answered, "m-3", "completed")).await;
    let events = rest(subscription).await;
    assert_eq!(outline(&events), ["working", "input_required", "completed"]);
    // What a caller says is in the log but is no event: a gap in the ids, never in the log.
    assert_eq!(seqs(&events), [5, 6, 8]);
    seen.events("snapshot", &[snapshot]);
    seen.events("subscribed", &events);
    seen
}

/// REQ-146.
pub(crate) async fn a_stream_stays_open_while_an_authorisation_is_awaited(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut stream =
        world.alice.stream(say("m-1", "auth Let me in; wait go; working; completed")).await.unwrap();
    let mut events = vec![next(&mut stream).await, next(&mut stream).await];
    assert_eq!(outline(&events), ["task submitted", "auth_required"]);
    world.gates.open("go");
    events.extend(rest(stream).await);
    assert_eq!(outline(&events[2..]), ["working", "completed"]);
    seen.events("event", &events);
    seen
}

/// Trap T-33.
pub(crate) async fn a_follow_up_stream_begins_with_the_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(say("m-1", "text a one; ask Which?")).await;
    let follow_up = say_to(&task, "m-2", "wait go; working; text b two; completed");
    let mut stream = world.alice.stream(follow_up).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(line(first.event()), "task input_required");
    let snapshot = task_of(&first);
    assert_eq!(snapshot.artifacts.len(), 1);
    assert_eq!(snapshot.history.last().unwrap().message_id.as_str(), "m-2", "what was just said is in it");
    world.gates.open("go");
    let events = rest(stream).await;
    assert_eq!(outline(&events), ["working", "artifact b .", "completed"]);
    seen.events("snapshot", &[first]);
    seen.events("event", &events);
    seen
}

/// REQ-142 to REQ-144. Who has just seen the end was once taken for early, and got a stream instead of
/// the refusal, because the end was shown a moment before it was announced.
pub(crate) async fn a_subscription_begins_with_a_snapshot(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut stream =
        world.alice.stream(say("m-1", "working; text a one; wait go; text b two; completed")).await.unwrap();
    let id = task_of(&next(&mut stream).await).id;
    assert_eq!(line(next(&mut stream).await.event()), "working");
    assert_eq!(line(next(&mut stream).await.event()), "artifact a .");
    let mut subscription = world.alice.subscribe(&id, None).await.unwrap();
    let snapshot = next(&mut subscription).await;
    assert_eq!((line(snapshot.event()), snapshot.seq()), ("task working".to_owned(), Some(Seq(3))));
    let task = task_of(&snapshot);
    assert_eq!(task.artifacts.len(), 1, "what has happened is in it");
    world.gates.open("go");
    let events = rest(subscription).await;
    assert_eq!(outline(&events), ["artifact b .", "completed"], "what happens follows, once");
    assert_eq!(outline(&rest(stream).await), ["artifact b .", "completed"]);
    seen.events("snapshot", &[snapshot]);
    seen.events("event", &events);

    let error = refusal(world.alice.subscribe(&task.id, None).await).await;
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    seen.error("ended", &error);
    seen
}

/// REQ-140, REQ-141.
pub(crate) async fn all_subscribers_see_the_same_and_one_may_leave(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let script = "wait one; working; chunk a 1; wait two; last a 2; completed";
    let task = world.alice.task(at_once(say("m-1", script))).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = world.alice.subscribe(&task.id, None).await.unwrap();
        assert_eq!(line(next(&mut stream).await.event()), "task submitted");
        streams.push(stream);
    }
    world.gates.open("one");
    let mut leaver = streams.pop().unwrap();
    assert_eq!(line(next(&mut leaver).await.event()), "working");
    drop(leaver);
    world.gates.open("two");
    let (first, second) = (rest(streams.pop().unwrap()).await, rest(streams.pop().unwrap()).await);
    assert_eq!(outline(&first), ["working", "artifact a", "artifact a + .", "completed"]);
    assert_eq!(outline(&first), outline(&second));
    assert_eq!(seqs(&first), seqs(&second));
    seen.events("event", &first);
    seen
}

/// protocol-notes.md, v1.0: the events after the given one, no snapshot, and the end when there is one.
pub(crate) async fn a_stream_resumes_after_the_last_event(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut stream =
        world.alice.stream(say("m-1", "working; text a one; wait go; text b two; completed")).await.unwrap();
    let task = task_of(&next(&mut stream).await);
    assert_eq!(next(&mut stream).await.seq(), Some(Seq(2)));
    drop(stream);

    let mut resumed = world.alice.subscribe(&task.id, Some(Seq(2))).await.unwrap();
    let first = next(&mut resumed).await;
    assert_eq!((line(first.event()), first.seq()), ("artifact a .".to_owned(), Some(Seq(3))));
    world.gates.open("go");
    let events = rest(resumed).await;
    assert_eq!(outline(&events), ["artifact b .", "completed"]);
    seen.events("resumed", &events);

    for (after, left) in [(0, 5), (3, 2), (5, 0)] {
        let events = rest(world.alice.subscribe(&task.id, Some(Seq(after))).await.unwrap()).await;
        assert_eq!(events.len(), left, "the rest of a finished task, after {after}");
        seen.events("after the end", &events);
    }
    let error = refusal(world.alice.subscribe(&task.id, Some(Seq(6))).await).await;
    assert_eq!(error.violations()[0].field, "Last-Event-ID");
    seen.error("beyond the end", &error);
    seen
}

/// protocol-notes.md, v1.0: the same key finds the same task, the last id the rest of its events. Right
/// after the end a repeat once got the whole log instead of the task as it is.
pub(crate) async fn a_repeated_streaming_send_resumes(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let cx = CallContext { idempotency_key: Some("key".to_owned()), ..world.alice.cx() };
    let send = async |cx: &CallContext| -> EventStream {
        let req = say("m-1", "working; wait go; text a one; completed");
        world.alice.service.send_streaming_message(cx, req).await.unwrap()
    };
    let mut stream = send(&cx).await;
    let task = task_of(&next(&mut stream).await);
    assert_eq!(next(&mut stream).await.seq(), Some(Seq(2)));
    drop(stream);
    let resumed = send(&CallContext { last_event_id: Some(Seq(2)), ..cx.clone() }).await;
    world.gates.open("go");
    let events = rest(resumed).await;
    assert_eq!(outline(&events), ["artifact a .", "completed"]);
    assert!(events.iter().all(|item| item.event().task_id() == Some(&task.id)));
    seen.events("resumed", &events);

    let again = rest(send(&cx).await).await;
    assert_eq!(outline(&again), ["task completed"], "without a last id: the task as it is");
    seen.events("again", &again);
    seen
}

/// REQ-151: a text is told in pieces, which a client appends, also one that comes back in the middle of it; the task has
/// one part. What a remote agent sends is kept in the parts in which it was sent.
pub(crate) async fn a_text_that_grows_is_one_text(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let script = "working; grow a Hel; grow a lo,; wait go; grow a wor; grow a ld; grown a; completed";
    let mut stream = world.alice.stream(say("m-1", script)).await.unwrap();
    let id = task_of(&next(&mut stream).await).id;
    let mut text = String::new();
    while text != "Hello," {
        text.push_str(&told(&next(&mut stream).await));
    }
    let after = Seq(4);
    let middle = world.alice.get(&id).await.unwrap();
    world.gates.open("go");
    let (events, resumed) =
        (rest(stream).await, rest(world.alice.subscribe(&id, Some(after)).await.unwrap()).await);
    assert_eq!(
        outline(&events),
        ["artifact a +", "artifact a +", "artifact a + .", "completed"],
        "a piece for each"
    );
    let bytes = |events: &[StreamItem]| events.iter().map(told).collect::<Vec<_>>();
    assert_eq!(bytes(&events), ["wor", "ld", "", ""]);
    assert_eq!((bytes(&resumed), seqs(&resumed)), (bytes(&events), seqs(&events)), "the same pieces");
    let done = world.alice.get(&id).await.unwrap();
    for (task, whole) in [(middle, "Hello,"), (done, "Hello,world")] {
        let made = &task.artifacts[0];
        assert_eq!(made.text(), whole);
        assert!(way.is_durable() || made.parts.len() == 1, "{made:?}");
        seen.note("text", &made.text());
    }
    seen.events("event", &events);
    seen
}

/// The text that an event adds.
fn told(item: &StreamItem) -> String {
    match &**item.event() {
        Event::ArtifactUpdate(update) => update.artifact.text().into_owned(),
        Event::Task(_) | Event::Message(_) | Event::StatusUpdate(_) => String::new(),
    }
}

/// Invariant 7.
pub(crate) async fn a_caller_that_leaves_stops_nothing(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut stream =
        world.alice.stream(say("m-1", "working; wait go; text a done; completed")).await.unwrap();
    let task = task_of(&next(&mut stream).await);
    drop(stream);
    let rest_of_it = world.alice.subscribe(&task.id, None).await.unwrap();
    world.gates.open("go");
    assert_eq!(rest(rest_of_it).await.last().map(|item| line(item.event())).as_deref(), Some("completed"));
    seen.note("task", &world.alice.get(&task.id).await.unwrap());
    seen
}

/// REQ-128, REQ-138.
pub(crate) async fn streams_show_the_cancel(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut stream = world.alice.stream(say("m-1", "working; hold")).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(line(next(&mut stream).await.event()), "working");
    let mut subscription = world.alice.subscribe(&task_of(&first).id, None).await.unwrap();
    assert_eq!(line(next(&mut subscription).await.event()), "task working");
    let canceled = world.alice.cancel(&task_of(&first).id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    for stream in [stream, subscription] {
        let events = rest(stream).await;
        assert_eq!(outline(&events), ["canceled"]);
        seen.events("event", &events);
    }
    seen.note("canceled", &canceled);
    seen
}

/// protocol-notes.md, v1.0: `historyLength` of a stream.
pub(crate) async fn history_length_is_for_the_first_event(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let events = rest(world.alice.stream(with_history(say("m-1", "ask Which?"), 0)).await.unwrap()).await;
    let task = task_of(&events[0]);
    assert!(task.history.is_empty());
    seen.events("none", &events);
    let follow_up = with_history(say_to(&task, "m-2", "wait go; completed"), 1);
    let mut stream = world.alice.stream(follow_up).await.unwrap();
    let snapshot = next(&mut stream).await;
    let history: Vec<_> =
        task_of(&snapshot).history.iter().map(|message| message.message_id.clone()).collect();
    assert_eq!(history, ["m-2".into()]);
    world.gates.open("go");
    seen.events("one", &[snapshot]);
    seen.events("rest", &rest(stream).await);
    seen
}
