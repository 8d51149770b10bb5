//! Batches become few writes with the same content; large content is removed and restored.

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, Content, Event, Message, Metadata, Part, Seq, Task, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use serde_json::json;

use super::{
    Blobs, Body, Draft, Drops, MAX_SEGMENT_ENTRIES, Segment, Snapshot, TaskWrite, coalesce, decode_artifacts,
    decode_segment, decode_task, digests, is_snapshot_due, millis_from, replay, state_code,
};
use crate::store::{
    Commit, Projection, StoredTurn,
    conformance::{at, creation, key, opening, scope},
};

fn chunk(id: &str, expected: u64, part: Part) -> Commit {
    let event = Event::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: id.into(),
        context_id: "c-1".into(),
        artifact: Arc::new(Artifact::new("a", part)),
        append: true,
        ..TaskArtifactUpdateEvent::default()
    });
    Commit { expected: Seq(expected), event: Arc::new(event), at: at(7), ..opening(&scope("ann"), id, None) }
}

fn status(id: &str, expected: u64, state: TaskState) -> Commit {
    let event = Event::StatusUpdate(TaskStatusUpdateEvent {
        task_id: id.into(),
        context_id: "c-1".into(),
        status: TaskStatus { state, message: None, timestamp: Some(at(9)) },
        ..TaskStatusUpdateEvent::default()
    });
    let snapshot = state.is_settled().then(|| {
        let mut task = creation(id, "c-1", 1);
        task.status.state = state;
        task
    });
    Commit { event: Arc::new(event), snapshot, ..chunk(id, expected, Part::text("")) }
}

fn turn(id: &str, begun: bool) -> StoredTurn {
    StoredTurn { id: id.into(), begun, body: bytes::Bytes::from_static(b"x") }
}

/// The task, the entries before the first and at the end of each write, and their positions in the batch.
fn outline(writes: &[TaskWrite]) -> Vec<(String, u64, u64, Vec<usize>)> {
    let line = |write: &TaskWrite| {
        (write.id.to_string(), write.expected.0, write.last.0, write.places().collect::<Vec<_>>())
    };
    writes.iter().map(line).collect()
}

fn blobs(write: &TaskWrite) -> Blobs {
    write.blobs.iter().map(|blob| (blob.digest, blob.bytes.clone())).collect()
}

#[test]
fn entries_that_follow_each_other_are_one_write() {
    let text = || Part::text("x");
    let ann = scope("ann");
    let keyed = chunk("t-2", 7, text()).attach(|with| with.idempotency = Some(key("k", 1)));
    let taking = Commit { take: true, ..chunk("t-4", 5, text()) };
    let foreign = Commit { scope: scope("bob"), ..chunk("t-5", 2, text()) };
    let batch = vec![
        opening(&ann, "t-1", None),
        chunk("t-2", 6, text()),
        status("t-1", 1, TaskState::Working),
        keyed,
        chunk("t-2", 8, text()),
        chunk("t-1", 2, text()),
        chunk("t-3", 4, text()),
        chunk("t-3", 4, text()),
        chunk("t-4", 4, text()),
        taking,
        chunk("t-5", 1, text()),
        foreign,
    ];
    let expected = [
        ("t-1", 0, 3, vec![0, 2, 5]),
        ("t-2", 6, 7, vec![1]),
        ("t-2", 7, 9, vec![3, 4]),
        ("t-3", 4, 5, vec![6]),
        ("t-3", 4, 5, vec![7]),
        ("t-4", 4, 5, vec![8]),
        ("t-4", 5, 6, vec![9]),
        ("t-5", 1, 2, vec![10]),
        ("t-5", 2, 3, vec![11]),
    ];
    let expected = expected.map(|(id, from, to, places)| (id.to_owned(), from, to, places));
    assert_eq!(outline(&coalesce(batch, 100)), expected);
}

#[test]
fn a_write_tells_what_its_entries_told_and_so_do_its_pieces() {
    let batch = vec![
        opening(&scope("ann"), "t-1", None),
        chunk("t-1", 1, Part::text("one")),
        status("t-1", 2, TaskState::Working),
        chunk("t-1", 3, Part::text("two")),
        status("t-1", 4, TaskState::Completed),
    ];
    let told: Vec<Arc<Event>> = batch.iter().map(|commit| Arc::clone(&commit.event)).collect();
    let write = coalesce(batch, 100).remove(0);
    assert_eq!(write.status, Some((TaskState::Completed, at(9))));
    assert_eq!((write.context_id.as_str(), write.busy), ("c-1", Some(false)));
    assert_eq!(write.snapshot.as_ref().map(|snapshot| snapshot.seq), Some(Seq(5)));
    let [segment] = &write.segments[..] else { panic!("one segment") };
    let read = decode_segment(&segment.body.json, &segment.body.refs, &Blobs::new()).unwrap();
    assert_eq!(read.iter().map(|entry| (entry.seq.0, entry.at)).next_back(), Some((5, at(7))));
    assert_eq!(read.iter().map(|entry| Arc::clone(&entry.event)).collect::<Vec<_>>(), told);

    assert!(write.is_several());
    let pieces: Vec<TaskWrite> = write.split().collect();
    let expected: Vec<_> = (0..5).map(|n| ("t-1".to_owned(), n, n + 1, vec![n as usize])).collect();
    assert_eq!(outline(&pieces), expected);
    let again = pieces.iter().flat_map(|piece| {
        let body = &piece.segments[0].body;
        decode_segment(&body.json, &body.refs, &Blobs::new()).unwrap()
    });
    assert_eq!(again.map(|entry| entry.event).collect::<Vec<_>>(), told);
}

#[test]
fn long_writes_are_cut_into_segments() {
    let many = |count: u64, size: usize| {
        let batch = (1..=count).map(|n| chunk("t-1", n, Part::text("x".repeat(size)))).collect();
        coalesce(batch, 1 << 20).remove(0).segments
    };
    for (count, size, segments) in [(1, 1, 1), (128, 1, 1), (129, 1, 2), (10_000, 1, 79), (20, 60_000, 4)] {
        let cut = many(count, size);
        assert_eq!(cut.len(), segments, "{count} entries of {size} bytes");
        let mut next = 2;
        for segment in cut {
            let entries = decode_segment(&segment.body.json, &[], &Blobs::new()).unwrap();
            let numbers: Vec<u64> = entries.iter().map(|entry| entry.seq.0).collect();
            assert_eq!(numbers, (next..next + numbers.len() as u64).collect::<Vec<_>>());
            assert_eq!((segment.first.0, segment.last.0), (next, next + numbers.len() as u64 - 1));
            assert!(numbers.len() <= MAX_SEGMENT_ENTRIES);
            next = segment.last.0 + 1;
        }
        assert_eq!(next, count + 2);
    }
}

#[test]
fn large_content_is_stored_once_and_comes_back() {
    let big = "ü".repeat(60);
    let parts = [
        Part::text(big.clone()).with_filename("a.txt"),
        Part::raw(vec![7; 101]),
        Part::data(json!({"list": [big, 1, true, null]})),
        Part::url(format!("https://example.com/{big}")),
        Part::text("small"),
        Part::text("y".repeat(100)),
    ];
    let mut created = creation("t-1", "c-1", 1);
    created.history.push(Arc::new(Message::user("m-2", parts.to_vec())));
    created.status.message = Some(Arc::new(Message::agent("m-3", parts[2].clone())));
    created.artifacts = vec![Arc::new(Artifact::new("b", parts.to_vec()))];
    let first = Commit {
        event: Arc::new(Event::Task(created.clone())),
        snapshot: Some(created.clone()),
        ..opening(&scope("ann"), "t-1", None)
    };
    let batch = vec![first, chunk("t-1", 1, Part::text("small")), chunk("t-1", 2, parts[1].clone())];
    let told: Vec<Arc<Event>> = batch.iter().map(|commit| Arc::clone(&commit.event)).collect();
    let write = coalesce(batch, 100).remove(0);
    let body = &write.segments[0].body;
    assert_eq!(write.blobs.len(), 3, "each content once");
    assert!(!String::from_utf8_lossy(&body.json).contains(&format!("\"text\":\"{big}")), "left out");
    assert_eq!(digests(&body.refs).count(), 8);
    let read = decode_segment(&body.json, &body.refs, &blobs(&write)).unwrap();
    assert_eq!(read.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), told);
    assert!(
        !decode_segment(&body.json, &body.refs, &Blobs::new()).unwrap_err().is_down(),
        "content is missing"
    );

    let (mut taken, known) = (Vec::new(), blobs(&write));
    let snapshot = Snapshot::encode(Seq(1), &created, 100, &mut taken);
    assert_eq!(taken.len(), 3);
    let artifacts = snapshot.artifacts.unwrap();
    assert_eq!((digests(&snapshot.task.refs).count(), digests(&artifacts.refs).count()), (4, 3));
    let mut task = decode_task(&snapshot.task.json, &snapshot.task.refs, &known).unwrap();
    assert!(task.artifacts.is_empty());
    task.artifacts = decode_artifacts(&artifacts.json, &artifacts.refs, &known).unwrap();
    assert_eq!(task, created);
    assert!(matches!(&task.history[1].parts[0].content, Content::Text(text) if *text == big));
}

#[test]
fn large_metadata_is_stored_once_and_comes_back() {
    let large = |name: &str| Metadata::from_iter([(name, "x".repeat(100))]);
    let said = |id: &str, of: [&str; 2]| {
        let part = Part { metadata: large(of[1]), ..Part::text("y".repeat(101)) };
        let parts = vec![Part::text("small"), part];
        Arc::new(Message { metadata: large(of[0]), ..Message::user(id, parts) })
    };
    let mut task = creation("t-1", "c-1", 1);
    task.history = vec![said("m-1", ["a", "b"]), said("m-2", ["c", "a"]), said("m-3", ["d", "e"])];
    task.status.message = Some(said("m-4", ["f", "g"]));
    let made = Artifact { metadata: large("h"), ..Artifact::new("b", Part::text("small")) };
    task.artifacts = vec![Arc::new(made)];
    task.metadata = large("i");
    let update = TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: Arc::clone(&task.artifacts[0]),
        metadata: large("j"),
        ..TaskArtifactUpdateEvent::default()
    };
    let status = TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: task.status.clone(),
        metadata: large("k"),
    };
    for event in [
        Event::Task(task.clone()),
        Event::Message(said("m-5", ["a", "b"])),
        Event::ArtifactUpdate(update),
        Event::StatusUpdate(status),
    ] {
        let (mut segment, mut taken) = (Segment::begin(Seq(1)), Vec::new());
        segment.push(Seq(1), at(1), &event, 100, &mut taken);
        segment.end();
        let Body { json, refs } = &segment.body;
        assert!(json.len() < 1_500, "left out: {}", String::from_utf8_lossy(json));
        let known: Blobs = taken.iter().map(|blob| (blob.digest, blob.bytes.clone())).collect();
        assert_eq!(known.len(), taken.len(), "each once");
        assert_eq!(*decode_segment(json, refs, &known).unwrap()[0].event, event);
    }

    // Of what is shown less, the rest still finds its place.
    let mut taken = Vec::new();
    let snapshot = Snapshot::encode(Seq(1), &task, 100, &mut taken);
    let known: Blobs = taken.iter().map(|blob| (blob.digest, blob.bytes.clone())).collect();
    for history in [None, Some(0), Some(1), Some(2), Some(9)] {
        let shown = Projection { artifacts: true, history };
        let mut draft = Draft::new(shown);
        draft.snapshot(&snapshot.task.json, &snapshot.task.refs).unwrap();
        let artifacts = snapshot.artifacts.as_ref().unwrap();
        draft.artifacts(&artifacts.json, &artifacts.refs).unwrap();
        draft.end();
        let mut wanted = task.clone();
        shown.apply(&mut wanted);
        assert_eq!(draft.finish(&known).unwrap(), wanted, "{history:?}");
    }
}

/// The place of a ref, as databases have it: the entry, then the number of the part, or of the metadata with a bit.
#[test]
fn the_refs_in_databases_never_change() {
    let mut created = creation("t-1", "c-1", 1);
    let large = Metadata::from_iter([("k", "x".repeat(100))]);
    let part = Part { metadata: large.clone(), ..Part::text("y".repeat(101)) };
    created.history = vec![Arc::new(Message::user("m", [Part::text("small"), part]))];
    created.metadata = large;
    let (mut segment, mut taken) = (Segment::begin(Seq(1)), Vec::new());
    segment.push(Seq(1), at(1), &Event::Message(Arc::default()), 100, &mut taken);
    segment.push(Seq(2), at(1), &Event::Task(created), 100, &mut taken);
    let places = segment.body.refs.chunks(super::content::REF_LENGTH).map(|place| place[..8].to_vec());
    let expected = [[0, 0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 0x80, 0, 0, 2], [0, 0, 0, 1, 0x80, 0, 0, 3]];
    assert_eq!(places.collect::<Vec<_>>(), expected);
}

#[test]
fn damage_is_an_error_and_no_panic() {
    let refs = [0; super::content::REF_LENGTH];
    for (json, refs) in [("", &[][..]), ("[", &[]), ("[{}]", &[]), ("[]", &refs), ("{}", &refs[..7])] {
        let read = decode_segment(json.as_bytes(), refs, &Blobs::new());
        assert!(read.is_err_and(|error| !error.is_down()), "{json}");
    }
    assert!(decode_task(b"{", &[], &Blobs::new()).is_err());
    assert!(super::moment(i64::MAX).is_err());
}

#[test]
fn a_write_keeps_the_turns_that_its_entries_leave() {
    let with = |commit: Commit, id: &str, begun| commit.attach(|with| with.turn = Some(turn(id, begun)));
    let text = || Part::text("x");
    let cases = [
        (vec![with(chunk("t", 1, text()), "a", false)], Drops::Nothing, vec!["a"]),
        (
            vec![
                with(chunk("t", 1, text()), "a", true),
                with(chunk("t", 2, text()), "b", false),
                status("t", 3, TaskState::InputRequired),
                with(chunk("t", 4, text()), "c", true),
            ],
            Drops::Begun,
            vec!["b", "c"],
        ),
        (
            vec![
                with(chunk("t", 1, text()), "a", false),
                status("t", 2, TaskState::InputRequired),
                status("t", 3, TaskState::Completed),
            ],
            Drops::All,
            vec![],
        ),
    ];
    for (batch, drops, turns) in cases {
        let write = coalesce(batch, 100).remove(0);
        let left: Vec<&str> = write.turns.iter().map(|turn| &*turn.id).collect();
        assert_eq!((write.drops, left), (drops, turns));
    }
}

#[test]
fn snapshots_of_a_conversation_become_rarer() {
    let cases = [
        (TaskState::Completed, 9, 9, true),
        (TaskState::InputRequired, 3, 0, true),
        (TaskState::InputRequired, 5, 3, false),
        (TaskState::AuthRequired, 6, 3, true),
        (TaskState::Working, 100, 0, false),
    ];
    for (state, seq, kept, due) in cases {
        assert_eq!(is_snapshot_due(state, Seq(seq), Seq(kept)), due, "{state} at {seq} after {kept}");
    }
    let batch = || vec![status("t", 4, TaskState::InputRequired), chunk("t", 5, Part::text("x"))];
    for (kept, due) in [(0, Some(5)), (2, Some(5)), (3, None)] {
        let mut write = coalesce(batch(), 100).remove(0);
        // The number of the entry that came with the snapshot, not of the last one.
        assert_eq!(write.due_snapshot(Seq(kept)).map(|snapshot| snapshot.seq.0), due, "after {kept}");
    }
}

#[test]
fn the_numbers_in_databases_never_change() {
    let pinned = [
        (0, TaskState::Unspecified),
        (1, TaskState::Submitted),
        (2, TaskState::Working),
        (3, TaskState::Completed),
        (4, TaskState::Failed),
        (5, TaskState::Canceled),
        (6, TaskState::InputRequired),
        (7, TaskState::Rejected),
        (8, TaskState::AuthRequired),
    ];
    assert_eq!(pinned.len(), TaskState::ALL.len());
    for (code, state) in pinned {
        assert_eq!(state_code(state), code, "{state}");
    }
}

#[test]
fn a_lower_bound_rounds_up() {
    let between = nuncio_protocol::Timestamp::from_parts(1, 500_001).unwrap();
    assert_eq!((millis_from(at(1000)), between.as_millis(), millis_from(between)), (1000, 1000, 1001));
}

#[test]
fn a_replay_skips_what_the_snapshot_knows() {
    let batch = vec![
        opening(&scope("ann"), "t-1", None),
        chunk("t-1", 1, Part::text("one")),
        chunk("t-1", 2, Part::text("two")),
    ];
    let write = coalesce(batch, 100).remove(0);
    let entries = || decode_segment(&write.segments[0].body.json, &[], &Blobs::new()).unwrap();
    let mut whole = Task::default();
    replay(&mut whole, Seq::ZERO, entries());
    assert_eq!(whole.artifacts[0].text(), "onetwo");
    let mut later = whole.clone();
    later.artifacts = vec![Arc::new(Artifact::new("a", Part::text("one")))];
    replay(&mut later, Seq(2), entries());
    assert_eq!(later, whole);
}

/// Entries of stores that were written before texts joined: each piece is a part of its own, as it was told then.
#[test]
fn entries_of_the_form_before_texts_joined_are_read_as_they_were_written() {
    let old = r#"[{"seq":1,"at":1,"event":{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_SUBMITTED"}}}},
        {"seq":2,"at":2,"event":{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}},
        {"seq":3,"at":3,"event":{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"y"}]},"append":true}}}]"#;
    // A text of now goes on with what was there.
    let new = r#"[{"seq":4,"at":4,"event":{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"z"}]},"append":true}},"joins":true}]"#;
    let segments = [(old, 3), (new, 4)];
    let expected = [Part::text("x"), Part::text("yz")];
    let mut told = Task::default();
    let mut draft = Draft::new(Projection::WHOLE);
    for (json, last) in segments {
        let entries = decode_segment(json.as_bytes(), &[], &Blobs::new()).unwrap();
        assert_eq!(entries.last().unwrap().seq, Seq(last));
        replay(&mut told, Seq::ZERO, entries);
        draft.segment(json.as_bytes(), &[], Seq::ZERO).unwrap();
    }
    draft.end();
    assert_eq!(told.artifacts[0].parts, expected);
    assert_eq!(draft.finish(&Blobs::new()).unwrap(), told);
}

/// The flag `joins` is not on the wire, so the log keeps it beside the event.
#[test]
fn an_entry_keeps_whether_its_text_joins() {
    let joining = |expected, joins| {
        let mut commit = chunk("t-1", expected, Part::text("x"));
        if let Event::ArtifactUpdate(update) = Arc::make_mut(&mut commit.event) {
            update.joins = joins;
        }
        commit
    };
    let batch =
        vec![opening(&scope("ann"), "t-1", None), joining(1, false), joining(2, true), joining(3, false)];
    let told: Vec<Arc<Event>> = batch.iter().map(|commit| Arc::clone(&commit.event)).collect();
    let write = coalesce(batch, 100).remove(0);
    let body = &write.segments[0].body;
    assert_eq!(String::from_utf8_lossy(&body.json).matches(r#"}},"joins":true}"#).count(), 1);
    let read = decode_segment(&body.json, &body.refs, &Blobs::new()).unwrap();
    assert_eq!(read.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), told);
}
