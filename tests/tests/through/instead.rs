//! Checks for cases that differ through a hub from the bare runtime: each row of `nature` names one of these, and it
//! holds on every route of the row.

use std::collections::HashSet;

use nuncio_protocol::{
    AgentExtension, Binding, Error, ErrorKind, Event, GetExtendedAgentCardRequest, GetTaskRequest,
    ListTasksRequest, ListTasksResponse, Result, SendMessageResponse, TaskId, TaskState, Version,
};
use nuncio_tests::{
    next, rest,
    world::{Party, Way, World, artifact, refusal, say},
};
use serde_json::{Value, json};

async fn list(party: &Party, req: ListTasksRequest) -> Result<ListTasksResponse> {
    party.service.list_tasks(&party.cx(), req).await
}

/// The fields that an error names.
fn fields(error: &Error) -> Vec<String> {
    error.violations().iter().map(|violation| violation.field.clone()).collect()
}

/// A refusal as it is for a task that nobody has; all that it says is the id that was asked for.
fn assert_unknown(error: &Error, id: &TaskId) {
    assert_eq!(error.kind(), ErrorKind::TaskNotFound, "{error:?}");
    assert_eq!(error.message(), "task not found");
    assert_eq!(error.metadata()["taskId"], id.as_str(), "{error:?}");
}

pub(super) async fn protobuf_refuses_what_it_would_round(way: Way) {
    let world = World::open(way).await;
    let error = world.alice.refused(crate::messages::large_integers()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(error.message().contains("-9223372036854775808"), "{error}");
    // It is whole numbers of this size that it cannot carry, and nothing else.
    assert_eq!(world.alice.task(say("m-2", "echo")).await.status.state, TaskState::Completed);
}

/// REQ-206: whatever is asked for.
pub(super) async fn a_list_is_refused(way: Way) {
    let world = World::open(way).await;
    world.alice.task(say("m-1", "completed")).await;
    let wrong = ListTasksRequest { page_size: Some(-1), ..<_>::default() };
    for req in [ListTasksRequest::default(), wrong] {
        let error = list(&world.alice, req).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error:?}");
        assert_eq!(error.message(), "ListTasks does not exist in version 0.3 of the protocol");
    }
}

/// REQ-119, REQ-120, REQ-127.
pub(super) async fn pages_are_whole_and_the_total_is_of_now(way: Way) {
    let world = World::open(way).await;
    let mut expected = HashSet::new();
    for _ in 0..7 {
        expected.insert(world.alice.task(say("m-1", "completed")).await.id);
    }
    let (mut got, mut pages, mut token) = (Vec::new(), Vec::new(), None);
    loop {
        let req = ListTasksRequest { page_size: Some(3), page_token: token.take(), ..<_>::default() };
        let page = list(&world.alice, req).await.unwrap();
        pages.push((page.tasks.len(), page.page_size, page.total_size));
        got.extend(page.tasks.into_iter().map(|task| task.id));
        world.alice.task(say("m-2", "completed")).await;
        if page.next_page_token.is_empty() {
            break;
        }
        token = Some(page.next_page_token);
    }
    assert_eq!(pages, [(3, 3, 7), (3, 3, 8), (1, 3, 9)]);
    assert_eq!(got.len(), 7, "no doubles: {got:?}");
    assert_eq!(got.into_iter().collect::<HashSet<_>>(), expected);
}

/// REQ-090, REQ-122, REQ-127.
pub(super) async fn a_conversation_is_of_one_caller_and_so_is_a_list(way: Way) {
    let world = World::open(way).await;
    let mut hers = Vec::new();
    for _ in 0..2 {
        let mut req = say("m-1", "completed");
        req.message.context_id = Some("shared".into());
        hers.push(world.alice.task(req).await.id);
    }
    let mut req = say("m-1", "completed");
    req.message.context_id = Some("shared".into());
    assert_eq!(fields(&world.bob.refused(req).await), ["message.contextId"]);
    let his = world.bob.task(say("m-1", "completed")).await.id;

    let first = ListTasksRequest { page_size: Some(1), ..<_>::default() };
    let token = list(&world.alice, first.clone()).await.unwrap().next_page_token;
    let with_token = ListTasksRequest { page_token: Some(token), ..first };
    let shared = ListTasksRequest { context_id: Some("shared".into()), ..<_>::default() };
    for (party, req, expected) in [
        (&world.alice, ListTasksRequest::default(), &[&hers[1], &hers[0]][..]),
        (&world.bob, ListTasksRequest::default(), &[&his]),
        (&world.bob, shared.clone(), &[]),
        (&world.nobody, ListTasksRequest::default(), &[]),
        // The token is the agent's, and who has it sees no more by it.
        (&world.nobody, with_token.clone(), &[]),
    ] {
        let page = list(party, req.clone()).await.unwrap();
        assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), expected, "{req:?}");
        assert_eq!(page.total_size, i32::try_from(expected.len()).unwrap(), "{req:?}");
    }
    let bent = ListTasksRequest { context_id: shared.context_id, ..with_token };
    assert_eq!(fields(&list(&world.alice, bent).await.unwrap_err()), ["pageToken"]);
}

/// protocol-notes.md, v1.0: `referenceTaskIds`.
pub(super) async fn references_go_on_or_are_not_found(way: Way) {
    let world = World::open(way).await;
    let own = world.alice.task(say("m-1", "text a mine; completed")).await;
    let foreign = world.bob.task(say("m-2", "text a his; completed")).await;
    let with = |ids: &[&TaskId]| {
        let mut req = say("m-3", "show");
        req.message.reference_task_ids = ids.iter().map(|id| (*id).clone()).collect();
        req
    };
    let task = world.alice.task(with(&[&own.id])).await;
    assert_eq!(task.history[0].reference_task_ids, std::slice::from_ref(&own.id));
    let given: Value = artifact(&task, "shown").parts[0].as_data().unwrap().get().unwrap();
    let given = given["references"].as_array().unwrap();
    assert_eq!(given.iter().map(|task| &task["artifacts"]).collect::<Vec<_>>(), [&json!(own.artifacts)]);
    let unknown: TaskId = "00000000-0000-7000-8000-000000000000".into();
    for id in [&foreign.id, &unknown] {
        assert_unknown(&world.alice.refused(with(&[&own.id, id])).await, id);
    }
}

pub(super) async fn the_hub_streams(way: Way) {
    let world = World::with(way, |card| card.capabilities.streaming = Some(false)).await;
    let events = rest(world.alice.stream(say("m-1", "text a b; completed")).await.unwrap()).await;
    let artifacts = events.iter().filter(|item| matches!(**item.event(), Event::ArtifactUpdate(_))).count();
    assert_eq!(artifacts, 1, "{events:?}");
    let id = events[0].event().task_id().unwrap();
    let task = world.alice.get(id).await.unwrap();
    assert_eq!(
        (task.status.state, artifact(&task, "a").parts[0].as_text()),
        (TaskState::Completed, Some("b"))
    );
    let asked = world.alice.task(say("m-2", "ask Which?")).await;
    let mut stream = world.alice.subscribe(&asked.id, None).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(first.event().task_id(), Some(&asked.id));
    assert_unknown(&refusal(world.alice.subscribe(&"unknown".into(), None).await).await, &"unknown".into());
}

/// REQ-132.
pub(super) async fn there_are_no_streams_of_what_is_known(way: Way) {
    let world = World::with(way, |card| card.capabilities.streaming = Some(false)).await;
    let task = world.alice.task(say("m-1", "ask Which?")).await;
    for error in [
        refusal(world.alice.stream(say("m-2", "completed")).await).await,
        refusal(world.alice.subscribe(&task.id, None).await).await,
    ] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error:?}");
    }
    assert_unknown(&refusal(world.alice.subscribe(&"unknown".into(), None).await).await, &"unknown".into());
}

/// REQ-077 to REQ-079.
pub(super) async fn a_required_extension_comes_after_whose_the_task_is(way: Way) {
    const REQUIRED: &str = "https://extension.example/v2";
    let world = World::with(way, |card| {
        let uri = REQUIRED.to_owned();
        let extension = AgentExtension { uri, required: true, ..AgentExtension::default() };
        card.capabilities.extensions.push(extension);
    })
    .await;
    let send = async |extensions: &[&str]| {
        let cx = world.alice.cx_with(extensions);
        world.alice.service.send_message(&cx, say("m-1", "ask Which?")).await
    };
    for declared in [&[][..], &["https://extension.example/v1", "urn:other"]] {
        let error = send(declared).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired, "{error:?}");
        assert_eq!(error.metadata()["requiredExtensions"], REQUIRED);
    }
    let SendMessageResponse::Task(task) = send(&["urn:other", REQUIRED]).await.unwrap() else {
        panic!("expected a task");
    };
    for (what, error) in crate::refusals::errors(&world.alice, &task.id).await {
        assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired, "{what}: {error:?}");
    }
    for (what, error) in crate::refusals::errors(&world.alice, &"t".into()).await {
        assert_eq!(error.kind(), ErrorKind::TaskNotFound, "{what}: {error:?}");
    }
}

/// REQ-018, REQ-019, REQ-116.
pub(super) async fn wrong_parameters_come_after_whose_the_task_is(way: Way) {
    let world = World::open(way).await;
    for (req, field) in crate::refusals::wrong_messages() {
        for error in [world.alice.refused(req.clone()).await, refusal(world.alice.stream(req).await).await] {
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{field}: {error:?}");
            assert_eq!(fields(&error)[0], field);
        }
    }
    let task = world.alice.task(say("m-1", "completed")).await;
    let get = async |id: &TaskId| {
        let req = GetTaskRequest { id: id.clone(), history_length: Some(-1), tenant: None };
        world.alice.service.get_task(&world.alice.cx(), req).await.unwrap_err()
    };
    assert_eq!(fields(&get(&task.id).await), ["historyLength"]);
    assert_unknown(&get(&"t".into()).await, &"t".into());
    let none = TaskId::default();
    for error in [
        world.alice.get(&none).await.unwrap_err(),
        world.alice.cancel(&none).await.unwrap_err(),
        refusal(world.alice.subscribe(&none, None).await).await,
    ] {
        // Where an id is part of a path or of a name, one without letters cannot even be asked for.
        match (way.binding(), way.version()) {
            (Some(Binding::JsonRpc), _) | (Some(Binding::Grpc), Version::V1_0) => {
                assert_unknown(&error, &none)
            }
            _ => assert_eq!(fields(&error), ["id"], "{error:?}"),
        }
    }
}

/// REQ-191 to REQ-193.
pub(super) async fn the_extended_card_has_the_addresses_of_the_hub(way: Way) {
    let card = async |party: &Party| {
        let req = GetExtendedAgentCardRequest::default();
        party.service.get_extended_agent_card(&party.cx(), req).await
    };
    let world = World::open(way).await;
    let extended = card(&world.alice).await.unwrap();
    assert_eq!(extended.description, "For those who authenticate.");
    assert!(!extended.supported_interfaces.is_empty());
    for interface in &extended.supported_interfaces {
        assert!(!interface.url.contains("agent.example"), "{interface:?}");
    }
    assert_eq!(card(&world.nobody).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    let without = World::with(way, |card| card.capabilities.extended_agent_card = None).await;
    assert_eq!(card(&without.alice).await.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
}
