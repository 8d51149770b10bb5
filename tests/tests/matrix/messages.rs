//! Messages and their answers.

use nuncio_hub::config::Mode;
use nuncio_protocol::{
    Binding, CallContext, ErrorKind, GetTaskRequest, Metadata, Part, RESUME_EXTENSION, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskId, TaskState, Version,
};
use nuncio_tests::{
    between::Relation,
    next, rest,
    transcript::Transcript,
    world::{By, Party, Way, World, artifact, at_once, say, say_to, with_history},
};
use serde_json::{Value, json};

/// REQ-093 to REQ-095, REQ-100, REQ-101, REQ-107, REQ-111.
pub(crate) async fn a_blocking_send_answers_with_the_finished_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(say("m-1", "working on it; text greeting hello; completed done")).await;

    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact(&task, "greeting").text(), "hello");
    assert!(!task.id.is_empty() && !task.context_id.is_empty());
    let first = &task.history[0];
    assert_eq!((first.message_id.as_str(), first.role), ("m-1", Role::User));
    assert_eq!(first.task_id.as_ref(), Some(&task.id));
    assert_eq!(first.context_id.as_ref(), Some(&task.context_id));

    assert_eq!(world.alice.get(&task.id).await.unwrap(), task, "what is got is what was answered");
    let other = world.alice.task(say("m-1", "completed")).await;
    assert_ne!(other.id, task.id, "each message begins a task of its own, even one with a known id");
    seen.note("task", &task);
    seen.note("other", &other);
    seen
}

/// REQ-096: the task as it was made, before the agent has said anything.
pub(crate) async fn return_immediately_answers_with_the_new_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(at_once(say("m-1", "wait go; text a hi; completed"))).await;
    assert_eq!(task.status.state, TaskState::Submitted);
    assert_eq!(task.history.len(), 1);
    seen.note("submitted", &task);

    let mut events = world.alice.subscribe(&task.id, None).await.unwrap();
    seen.events("snapshot", &[next(&mut events).await]);
    world.gates.open("go");
    seen.events("rest", &rest(events).await);
    let task = world.alice.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    seen.note("completed", &task);
    seen
}

pub(crate) async fn an_agent_that_says_nothing_completes_its_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(say("m-1", "")).await;
    assert_eq!(task.status.state, TaskState::Completed);
    seen.note("task", &task);
    seen
}

/// REQ-093; the reply belongs to a conversation and to no task.
pub(crate) async fn a_direct_reply_makes_no_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let SendMessageResponse::Message(reply) = world.alice.send(say("m-1", "message hi")).await.unwrap()
    else {
        panic!("expected a message");
    };
    assert_eq!((reply.role, &*reply.text()), (Role::Agent, "hi"));
    assert!(reply.context_id.is_some() && reply.task_id.is_none());
    seen.note("reply", &*reply);

    // A caller that would not wait has a task already: then the reply is its last word (trap T-50).
    let task = world.alice.task(at_once(say("m-2", "wait go; message hi"))).await;
    let events = world.alice.subscribe(&task.id, None).await.unwrap();
    world.gates.open("go");
    seen.events("as a task", &rest(events).await);
    seen
}

/// REQ-102: the context follows from the task.
pub(crate) async fn a_question_is_answered_by_the_task_id_alone(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let asked = world.alice.task(say("m-1", "working; ask Which one?")).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    assert_eq!(asked.status.message.as_ref().unwrap().text(), "Which one?");
    seen.note("asked", &asked);

    let again = world.alice.task(say_to(&asked, "m-2", "ask Really?")).await;
    assert_eq!(again.status.state, TaskState::InputRequired);
    seen.note("asked again", &again);

    let done = world.alice.task(say_to(&asked, "m-3", "show; text a that one; completed")).await;
    assert_eq!((&done.id, &done.context_id), (&asked.id, &asked.context_id));
    assert_eq!(done.status.state, TaskState::Completed);
    let said: Vec<_> = done.history.iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(
        said,
        [
            "working; ask Which one?",
            "Which one?",
            "ask Really?",
            "Really?",
            "show; text a that one; completed"
        ]
    );
    seen.note("done", &done);
    seen
}

/// REQ-195, REQ-196.
pub(crate) async fn an_authorisation_is_asked_for_and_given(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let waiting = world.alice.task(say("m-1", "auth Let me in")).await;
    assert_eq!(waiting.status.state, TaskState::AuthRequired);
    assert_eq!(waiting.status.message.as_ref().unwrap().text(), "Let me in");
    seen.note("waiting", &waiting);
    let done = world.alice.task(say_to(&waiting, "m-2", "completed")).await;
    assert_eq!(done.status.state, TaskState::Completed);
    seen.note("done", &done);
    seen
}

/// The message of an agent's error reaches the caller; the message of a panic does not (invariant 10).
pub(crate) async fn rejection_failure_and_panic_end_the_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    for (script, state, words) in [
        ("reject not my line", TaskState::Rejected, "not my line"),
        ("working; fail out of paper", TaskState::Failed, "out of paper"),
        ("working; panic", TaskState::Failed, "the agent failed unexpectedly"),
    ] {
        let task = world.alice.task(say("m-1", script)).await;
        assert_eq!(task.status.state, state, "{script}");
        assert_eq!(task.status.message.as_ref().unwrap().text(), words);
        seen.note(script, &task);
    }
    seen
}

/// REQ-150.
pub(crate) async fn pieces_become_one_artifact(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let script =
        "chunk a one; chunk b first; chunk a two; last a three; last b second; text c whole; text c anew";
    let task = world.alice.task(say("m-1", script)).await;
    let texts = |id: &str| artifact(&task, id).parts.iter().map(|part| part.as_text().unwrap().to_owned());
    assert_eq!(texts("a").collect::<Vec<_>>(), ["one", "two", "three"]);
    assert_eq!(texts("b").collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(texts("c").collect::<Vec<_>>(), ["anew"], "a whole artifact takes the place of the old one");
    seen.note("task", &task);
    seen
}

/// REQ-020, REQ-203, REQ-204, traps T-12, T-30, T-31: text, files and any JSON, there and back.
pub(crate) async fn every_kind_of_part_survives(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let parts = every_kind_of_part();
    let mut req = say("m-1", "echo");
    req.message.parts.extend(parts.iter().cloned());
    let task = world.alice.task(req).await;
    assert_eq!(artifact(&task, "echo").parts[1..], parts, "as an artifact");
    assert_eq!(task.history[0].parts[1..], parts, "in the history");
    seen.note("task", &task);
    seen
}

fn every_kind_of_part() -> Vec<Part> {
    let with_metadata = |mut part: Part, metadata: Value| {
        part.metadata = metadata.as_object().unwrap().clone().into();
        part
    };
    let bytes: Vec<u8> = (0..=255).collect();
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!(0.1),
        json!(1e300),
        json!(""),
        json!("text"),
        json!([]),
        json!([null, [1, ["two"]]]),
        json!({}),
        json!({"value": 1}),
        json!({"value": null, "": {"deep": [true, {"text": "not a part"}]}}),
        json!({"kind": "text", "text": "a part of 0.3, as data"}),
    ];
    let mut parts = vec![
        Part::text(""),
        Part::text("żółw 🐢 \u{0}\u{7f}\u{2028} \"quoted\" \\ \r\n"),
        Part::text("named").with_filename("a.md").with_media_type("text/markdown"),
        with_metadata(Part::text("noted"), json!({"a": {"b": [1, null]}, "kind": "text"})),
        Part::raw(bytes).with_filename("all.bin").with_media_type("application/octet-stream"),
        Part::raw("no name"),
        Part::raw(""),
        Part::url("https://files.example/a?b=c#d"),
        with_metadata(
            Part::url("data:,x").with_filename("x").with_media_type("text/plain"),
            json!({"url": "https://elsewhere.example"}),
        ),
        Part::data(json!({"named": true})).with_filename("d.json").with_media_type("application/json"),
        // The marks that 0.3 uses for itself, used by a caller (protocol-notes.md, loss table).
        with_metadata(Part::data(json!({"value": 1})), json!({"data_part_compat": true})),
        with_metadata(Part::data(json!("x")), json!({"data_part_compat": false})),
    ];
    parts.extend(values.map(Part::data));
    parts
}

/// JSON has them; protobuf has doubles only, and rather refuses than rounds.
pub(crate) async fn large_integers_survive(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let req = large_integers();
    let task = world.alice.task(req.clone()).await;
    assert_eq!(artifact(&task, "echo").parts, req.message.parts);
    seen.note("task", &task);
    seen
}

pub(crate) fn large_integers() -> SendMessageRequest {
    let mut req = say("m-1", "echo");
    req.message.parts.extend([json!(i64::MIN), json!(u64::MAX)].map(Part::data));
    req
}

pub(crate) async fn large_integers_are_refused_by_protobuf() {
    for version in Version::ALL {
        let world = World::open(Way::wire(Binding::Grpc, *version, By::Client)).await;
        let error = world.alice.refused(large_integers()).await;
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert!(error.message().contains("-9223372036854775808"), "{error}");
    }
}

/// Of the message, the request, the part and the artifact; and what else the agent is given.
pub(crate) async fn metadata_survives_everywhere(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let metadata = |value: Value| Metadata::from(value.as_object().unwrap().clone());
    let mut req = say("m-1", "echo; rich; show");
    req.metadata = metadata(json!({"https://extension.example/1": {"of": "the request"}, "n": 1.25}));
    req.message.metadata = metadata(json!({"of": "the message", "list": [null, {}], "final": true}));
    req.message.extensions = vec!["https://extension.example/1".to_owned()];
    req.message.parts[0].metadata = metadata(json!({"of": "the part"}));
    req.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
        history_length: Some(7),
        ..SendMessageConfiguration::default()
    });
    let (sent, req) = (req.clone(), req);
    let cx = world.alice.cx_with(&["urn:x:1", "urn:x:2"]);
    let SendMessageResponse::Task(task) = world.alice.service.send_message(&cx, req).await.unwrap() else {
        panic!("expected a task");
    };
    assert_eq!(task.history[0].metadata, sent.message.metadata);
    assert_eq!(task.history[0].extensions, sent.message.extensions);
    assert_eq!(artifact(&task, "echo").metadata, sent.message.metadata);
    assert_eq!(artifact(&task, "echo").parts, sent.message.parts);
    assert_eq!(artifact(&task, "rich").description, "description");
    let given: Value = artifact(&task, "shown").parts[0].as_data().unwrap().get().unwrap();
    assert_eq!(given["metadata"], json!(sent.metadata));
    if !way.is_durable() {
        assert_eq!(given["extensions"], json!([RESUME_EXTENSION, "urn:x:1", "urn:x:2"]));
        assert_eq!(given["configuration"], json!(sent.configuration));
    }
    assert_eq!(given["caller"], way.seen_as("alice"));
    seen.note("task", &task);
    seen
}

/// protocol-notes.md, v1.0: a reference is a hint, and stays within the caller's scope.
pub(crate) async fn references_are_those_of_the_caller(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let own = world.alice.task(say("m-1", "text a mine; completed")).await;
    let foreign = world.bob.task(say("m-2", "text a his; completed")).await;
    let mut req = say("m-3", "show");
    req.message.reference_task_ids = vec![own.id.clone(), foreign.id.clone(), "none".into()];
    let task = world.alice.task(req).await;
    assert_eq!(task.history[0].reference_task_ids, [own.id.clone(), foreign.id, "none".into()]);
    let given: Value = artifact(&task, "shown").parts[0].as_data().unwrap().get().unwrap();
    let given = given["references"].as_array().unwrap();
    assert_eq!(given.iter().map(|task| &task["artifacts"]).collect::<Vec<_>>(), [&json!(own.artifacts)]);
    seen.note("own", &own);
    seen.note("task", &task);
    seen
}

/// REQ-108, REQ-113 to REQ-115.
pub(crate) async fn history_is_as_long_as_asked_for(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let all =
        |task: &Task| task.history.iter().map(|message| message.text().into_owned()).collect::<Vec<_>>();
    let task = world.alice.task(with_history(say("m-1", "ask one"), 0)).await;
    assert!(task.history.is_empty(), "0 is none");
    let task = world.alice.task(with_history(say_to(&task, "m-2", "ask two"), 1)).await;
    assert_eq!(all(&task), ["ask two"], "the most recent");
    let task = world.alice.task(with_history(say_to(&task, "m-3", "completed"), 100)).await;
    assert_eq!(all(&task), ["ask one", "one", "ask two", "two", "completed"]);
    seen.note("sent", &task);
    for length in [None, Some(0), Some(1), Some(3), Some(5), Some(i32::MAX)] {
        let got = get_with_history(&world.alice, &task.id, length).await;
        let expected = length.map_or(5, |length| usize::try_from(length).unwrap().min(5));
        assert_eq!(all(&got), all(&task)[5 - expected..], "{length:?}");
        seen.note("got", &got);
    }
    seen
}

async fn get_with_history(party: &Party, id: &TaskId, length: Option<i32>) -> Task {
    let req = GetTaskRequest { id: id.clone(), history_length: length, ..GetTaskRequest::default() };
    party.service.get_task(&party.cx(), req).await.unwrap()
}

/// A context of the caller's own making is taken as it is (REQ-104), and spans tasks.
pub(crate) async fn a_conversation_spans_tasks(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let in_context = |id: &str| {
        let mut req = say(id, "completed");
        req.message.context_id = Some("our talk".into());
        req
    };
    let first = world.alice.task(in_context("m-1")).await;
    let second = world.alice.task(in_context("m-2")).await;
    assert_eq!(first.context_id.as_str(), "our talk");
    assert_eq!(second.context_id, first.context_id);
    assert_ne!(first.id, second.id);
    seen.note("first", &first);
    seen.note("second", &second);
    seen
}

/// Agents remember by their context: the caller's tasks before this one, oldest first.
pub(crate) async fn an_agent_reads_the_conversation_of_its_caller(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let recall = async |party: &Party, id: &str, context: &str, script: &str| -> Value {
        let mut req = say(id, script);
        req.message.context_id = Some(context.into());
        let task = party.task(req).await;
        artifact(&task, "recalled").parts[0].as_data().unwrap().get().unwrap()
    };
    let first = "grow a on; grown a e; recall";
    assert_eq!(recall(&world.alice, "m-1", "talk", first).await, json!([]));
    let second = recall(&world.alice, "m-2", "talk", "text a two; recall").await;
    assert_eq!(second, json!([[[first], ["one", ""]]]), "a text that grew, too");
    let third = recall(&world.alice, "m-3", "talk", "recall").await;
    assert_eq!(third, json!([[[first], ["one", ""]], [["text a two; recall"], ["two", ""]]]));
    seen.note("third", &third);
    assert_eq!(recall(&world.alice, "m-4", "other", "recall").await, json!([]), "another conversation");
    // In proxy mode a conversation belongs to the caller who began it.
    if !matches!(way.hub(), Some(Relation { mode: Mode::Proxy, .. })) {
        assert_eq!(recall(&world.bob, "m-5", "talk", "recall").await, json!([]), "another caller");
    }
    seen
}

/// protocol-notes.md, v1.0: by its `Idempotency-Key`, within the caller's own sends.
pub(crate) async fn a_repeated_send_finds_its_task(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let send = async |party: &Party, req: SendMessageRequest| {
        let cx = CallContext { idempotency_key: Some("key".to_owned()), ..party.cx() };
        party.service.send_message(&cx, req).await
    };
    let first = send(&world.alice, say("m-1", "text a hi; completed")).await.unwrap();
    let again = send(&world.alice, say("m-1", "text a hi; completed")).await.unwrap();
    assert_eq!(first, again);
    let other = send(&world.bob, say("m-1", "text a hi; completed")).await.unwrap();
    assert_ne!(first, other, "another caller's key is another key");
    let error = send(&world.alice, say("m-1", "completed")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "another request under the same key");
    seen.note("first", &first);
    seen.note("other", &other);
    seen.error("refused", &error);
    seen
}
