//! Refusals, with the same message on every wire.

use nuncio_protocol::{
    AgentExtension, Binding, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, Message, Part, Role, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest, TaskId, TaskPushNotificationConfig, TaskState, Version,
};
use nuncio_tests::{
    eventually,
    transcript::Transcript,
    world::{Party, REFUSED_MEDIA_TYPE, Way, World, at_once, refusal, say, say_to, with_history},
};

/// The answer of each operation to an unknown task.
pub(crate) async fn errors(party: &Party, id: &TaskId) -> Vec<(&'static str, Error)> {
    let mut follow_up = say("m-1", "completed");
    follow_up.message.task_id = Some(id.clone());
    vec![
        ("get", party.get(id).await.unwrap_err()),
        ("cancel", party.cancel(id).await.unwrap_err()),
        ("send", party.send(follow_up.clone()).await.unwrap_err()),
        ("stream", refusal(party.stream(follow_up).await).await),
        ("subscribe", refusal(party.subscribe(id, None).await).await),
        ("resume", refusal(party.subscribe(id, Some(nuncio_protocol::Seq(1))).await).await),
    ]
}

/// REQ-086 to REQ-089, REQ-097, REQ-112, REQ-130, REQ-145: code, words and details are the same.
pub(crate) async fn unknown_and_foreign_tasks_are_told_alike(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let hers = world.alice.task(say("m-1", "ask Which?")).await;
    let unknown: TaskId = "00000000-0000-7000-8000-000000000000".into();
    for stranger in [&world.bob, &world.nobody] {
        let (foreign, missing) = (errors(stranger, &hers.id).await, errors(stranger, &unknown).await);
        for ((what, foreign), (_, missing)) in foreign.iter().zip(&missing) {
            assert_eq!(foreign.kind(), ErrorKind::TaskNotFound, "{what}");
            assert_eq!(foreign.message(), missing.message(), "{what}");
            // A hub adds the id of each request.
            let of_her_id = |mut details: Vec<serde_json::Value>| {
                if let Some(metadata) = details[0]["metadata"].as_object_mut() {
                    metadata.remove("requestId");
                }
                serde_json::Value::from(details).to_string().replace(unknown.as_str(), hers.id.as_str())
            };
            assert_eq!(of_her_id(foreign.details()), of_her_id(missing.details()), "{what}");
            seen.error(what, foreign);
        }
    }
    assert_eq!(world.alice.get(&hers.id).await.unwrap(), hers, "nothing has happened to it");
    seen
}

/// REQ-128, REQ-129, REQ-131, trap T-05.
pub(crate) async fn a_task_can_be_canceled_once(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let running = world.alice.task(at_once(say("m-1", "hold"))).await;
    let waiting = world.alice.task(say("m-2", "ask Which?")).await;
    for task in [running, waiting] {
        let canceled = world.alice.cancel(&task.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        assert_eq!(world.alice.get(&task.id).await.unwrap(), canceled);
        seen.note("canceled", &canceled);
        let error = world.alice.cancel(&task.id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
        seen.error("again", &error);
    }
    let done = world.alice.task(say("m-3", "completed")).await;
    let error = world.alice.cancel(&done.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
    seen.error("done", &error);
    seen
}

/// REQ-098, REQ-099, invariant 6: in every terminal state, and without a trace in the history.
pub(crate) async fn a_finished_task_takes_no_message(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let held = world.alice.task(at_once(say("m-1", "hold"))).await;
    let canceled = world.alice.cancel(&held.id).await.unwrap();
    let mut ended = vec![canceled];
    for script in ["completed", "fail", "reject"] {
        ended.push(world.alice.task(say("m-1", script)).await);
    }
    for task in ended {
        let error = world.alice.refused(say_to(&task, "m-2", "completed")).await;
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        seen.error("send", &error);
        let error = refusal(world.alice.stream(say_to(&task, "m-2", "completed")).await).await;
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        assert_eq!(world.alice.get(&task.id).await.unwrap(), task);
        seen.note("task", &task);
    }

    // Product: a follow-up to a task that ends before its turn comes is not kept either.
    let busy = world.alice.task(at_once(say("m-1", "wait go; completed"))).await;
    let late = {
        let (alice, req) = (world.alice.clone(), say_to(&busy, "m-2", "completed"));
        tokio::spawn(async move { alice.refused(req).await })
    };
    // There is no signal that it waits; that it is refused in either order is what counts.
    world.gates.open("go");
    let error = late.await.unwrap();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    let ended = eventually("the end of the task", async || {
        let task = world.alice.get(&busy.id).await.unwrap();
        task.status.state.is_terminal().then_some(task)
    });
    seen.note("busy", &ended.await);
    seen.error("late", &error);
    seen
}

/// REQ-103.
pub(crate) async fn a_context_that_is_not_the_tasks_is_refused(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(say("m-1", "ask Which?")).await;
    let mut req = say_to(&task, "m-2", "completed");
    req.message.context_id = Some("another".into());
    let error = world.alice.refused(req.clone()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert_eq!(error.violations()[0].field, "message.contextId");
    seen.error("refused", &error);
    assert_eq!(world.alice.get(&task.id).await.unwrap(), task);
    req.message.context_id = Some(task.context_id);
    assert_eq!(world.alice.task(req).await.status.state, TaskState::Completed);
    seen
}

/// REQ-105.
pub(crate) async fn a_media_type_that_is_not_taken_is_refused(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    for part in [Part::text("x"), Part::raw("x"), Part::url("https://x.example"), Part::data(1)] {
        let mut req = say("m-1", "completed");
        req.message.parts.push(part.with_media_type(REFUSED_MEDIA_TYPE));
        let error = world.alice.refused(req).await;
        assert_eq!(error.kind(), ErrorKind::ContentTypeNotSupported);
        assert!(error.message().contains("message.parts[1].mediaType"), "{error}");
        seen.error("refused", &error);
    }
    seen
}

/// REQ-077 to REQ-079.
pub(crate) async fn a_required_extension_must_be_declared(way: Way) -> Transcript {
    const REQUIRED: &str = "https://extension.example/v2";
    let world = World::with(way, |card| {
        let uri = REQUIRED.to_owned();
        card.capabilities.extensions.push(AgentExtension {
            uri,
            required: true,
            ..AgentExtension::default()
        });
    });
    let (world, mut seen) = (world.await, Transcript::default());
    let send = async |extensions: &[&str]| {
        let cx = world.alice.cx_with(extensions);
        world.alice.service.send_message(&cx, say("m-1", "completed")).await
    };
    for declared in [&[][..], &["https://extension.example/v1", "urn:other"]] {
        let error = send(declared).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired);
        assert_eq!(error.metadata()["requiredExtensions"], REQUIRED);
        seen.error("missing", &error);
    }
    seen.note("declared", &send(&["urn:other", REQUIRED]).await.unwrap());
    for (what, error) in errors(&world.alice, &"t".into()).await {
        assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired, "{what}");
    }
    seen
}

/// REQ-191 to REQ-193.
pub(crate) async fn the_extended_card_is_for_those_who_authenticate(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let card = async |party: &Party| {
        let req = GetExtendedAgentCardRequest::default();
        party.service.get_extended_agent_card(&party.cx(), req).await
    };
    let mut extended = card(&world.alice).await.unwrap();
    assert_eq!(extended.description, "For those who authenticate.");
    // A card of 0.3 has no place for interfaces of other versions (loss table); the rest is the same.
    extended.supported_interfaces.retain(|interface| interface.version() == Some(Version::V0_3));
    assert_eq!(extended.supported_interfaces.len(), 1);
    seen.note("card", &extended);
    let error = card(&world.nobody).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    seen.error("nobody", &error);

    let without = World::with(way, |card| card.capabilities.extended_agent_card = None).await;
    let error = card(&without.alice).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    seen.error("none", &error);
    seen
}

/// REQ-153: whatever the task, and also within a send.
pub(crate) async fn there_are_no_webhooks(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let task = world.alice.task(say("m-1", "ask Which?")).await;
    let (service, cx) = (&world.alice.service, &world.alice.cx());
    for task_id in [task.id, "unknown".into()] {
        let url = "https://hook.example/".to_owned();
        let config = TaskPushNotificationConfig { task_id: Some(task_id.clone()), url, ..<_>::default() };
        let mut with_config = say("m-2", "completed");
        with_config.configuration = Some(SendMessageConfiguration {
            task_push_notification_config: Some(TaskPushNotificationConfig {
                task_id: None,
                ..config.clone()
            }),
            ..SendMessageConfiguration::default()
        });
        let get =
            GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "c".into(), tenant: None };
        let list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..<_>::default() };
        let delete = DeleteTaskPushNotificationConfigRequest { task_id, id: "c".into(), tenant: None };
        let errors = [
            service.create_task_push_notification_config(cx, config).await.unwrap_err(),
            service.get_task_push_notification_config(cx, get).await.unwrap_err(),
            service.list_task_push_notification_configs(cx, list).await.unwrap_err(),
            service.delete_task_push_notification_config(cx, delete).await.unwrap_err(),
            world.alice.refused(with_config).await,
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::PushNotificationNotSupported);
            seen.error("refused", &error);
        }
    }
    seen
}

/// REQ-132.
pub(crate) async fn there_are_no_streams_unless_declared(way: Way) -> Transcript {
    let world = World::with(way, |card| card.capabilities.streaming = Some(false)).await;
    let mut seen = Transcript::default();
    let task = world.alice.task(say("m-1", "ask Which?")).await;
    let refused = [
        refusal(world.alice.stream(say("m-2", "completed")).await).await,
        refusal(world.alice.subscribe(&task.id, None).await).await,
        refusal(world.alice.subscribe(&"unknown".into(), None).await).await,
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        seen.error("refused", &error);
    }
    seen
}

/// Messages that cannot be sent, and the field that is wrong in each.
pub(crate) fn wrong_messages() -> Vec<(SendMessageRequest, &'static str)> {
    let message = |message: Message| SendMessageRequest { message, ..SendMessageRequest::default() };
    let long = "x".repeat(257);
    let of_long_context =
        Message { context_id: Some(long.as_str().into()), ..Message::user("m", Part::text("")) };
    vec![
        (message(Message::user("", Part::text("completed"))), "message.messageId"),
        (message(Message::user("m", vec![])), "message.parts"),
        (message(Message::user("m", vec![Part::text(""); 101])), "message.parts"),
        (message(Message::user(&*long, Part::text("completed"))), "message.messageId"),
        (message(of_long_context), "message.contextId"),
        (with_history(say("m", "completed"), -1), "configuration.historyLength"),
    ]
}

/// REQ-018, REQ-019, REQ-116: each violation names its field.
pub(crate) async fn wrong_parameters_are_named(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    for (req, field) in wrong_messages() {
        let error = world.alice.refused(req.clone()).await;
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{field}");
        assert_eq!(error.violations()[0].field, field);
        seen.error(field, &error);
        let error = refusal(world.alice.stream(req).await).await;
        seen.error(field, &error);
    }
    let (service, cx) = (&world.alice.service, &world.alice.cx());
    let get = GetTaskRequest { id: "t".into(), history_length: Some(-1), tenant: None };
    seen.error("historyLength", &service.get_task(cx, get).await.unwrap_err());
    seen.error("id", &world.alice.get(&TaskId::default()).await.unwrap_err());
    seen.error("id", &world.alice.cancel(&TaskId::default()).await.unwrap_err());
    let req = SubscribeToTaskRequest::default();
    seen.error("id", &refusal(service.subscribe_to_task(cx, req).await).await);
    seen
}

/// Roles are named as the form of the caller's version names them, so that the words differ between ways.
pub(crate) async fn roles_are_named_in_the_words_of_the_version(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let message = Message { role: Role::Unspecified, ..Message::user("m", Part::text("completed")) };
    let req = SendMessageRequest { message, ..SendMessageRequest::default() };
    let errors = [world.alice.refused(req.clone()).await, refusal(world.alice.stream(req).await).await];
    let is_lower_case = way.version() == Version::V0_3 && way.binding() == Some(Binding::JsonRpc);
    let words = if is_lower_case { "expected user or agent" } else { "expected ROLE_USER or ROLE_AGENT" };
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        let violation = &error.violations()[0];
        assert_eq!(violation.field, "message.role");
        // An agent that a hub relays to has words of its own version.
        if way.hub().is_none() {
            assert_eq!(violation.description, words);
            assert!(error.message().ends_with(words), "{error}");
        }
        seen.note("field", &violation.field);
    }
    seen
}
