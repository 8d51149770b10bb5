//! Calls that are refused before they have any effect.

use nuncio_server::{
    CallerShare, Limits, TaskQuota,
    protocol::{
        A2aService as _, AgentCard, AgentExtension, Caller, DeleteTaskPushNotificationConfigRequest, Error,
        ErrorKind, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest,
        ListTaskPushNotificationConfigsRequest, ListTasksRequest, Part, RESUME_EXTENSION, Role,
        TaskPushNotificationConfig,
    },
    store::MemoryStore,
    testing::{Harness, Say, ScriptedExecutor, Step, card},
};

use crate::{refused, secs, settle};

async fn check_refused(harness: &Harness, say: Say, kind: ErrorKind, field: &str) {
    let error = harness.send(say).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{field}");
    if kind == ErrorKind::InvalidParams {
        assert_eq!(error.violations()[0].field, field);
    }
    assert_eq!(harness.runtime.running(), 0, "REQ-022: refused before anything is done");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_wrong_or_too_large_names_its_field() {
    // REQ-018, REQ-019, REQ-023
    let limits = Limits { parts: 3, id_bytes: 10, ..Limits::default() };
    let harness = Harness::with(ScriptedExecutor::steps([]), |builder| builder.limits(limits));
    let say = |change: fn(&mut nuncio_server::protocol::Message)| {
        Say::from("hi").change(|request| {
            request.message.message_id = "m-1".into();
            change(&mut request.message);
        })
    };
    let invalid = ErrorKind::InvalidParams;
    for (say, field) in [
        (say(|message| message.parts.clear()), "message.parts"),
        (say(|message| message.parts = vec![Part::text("x"); 4]), "message.parts"),
        (say(|message| message.message_id = "".into()), "message.messageId"),
        (say(|message| message.message_id = "m".repeat(11).into()), "message.messageId"),
        (say(|message| message.context_id = Some("c".repeat(11).into())), "message.contextId"),
        (say(|message| message.reference_task_ids = vec!["t".repeat(11).into()]), "message.referenceTaskIds"),
        (say(|message| message.reference_task_ids = vec!["t".into(); 4]), "message.referenceTaskIds"),
        (say(|message| message.role = Role::Unspecified), "message.role"),
    ] {
        check_refused(&harness, say, invalid, field).await;
    }
    assert!(harness.send(say(|message| message.parts = vec![Part::text("x"); 3])).await.is_ok());
}

/// Full: told when to come back.
fn check_full(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.retry_after().is_some(), "REQ-024");
}

#[tokio::test(start_paused = true)]
async fn there_is_a_limit_of_executions_and_room_again_when_one_ends() {
    let limits = Limits { tasks: 2, ..Limits::default() };
    let executor = ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(5))]);
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    harness.begin("1").await.unwrap();
    harness.begin("2").await.unwrap();
    check_full(&harness.begin("3").await.unwrap_err());
    check_full(&harness.stream("3").await.err().unwrap());
    tokio::time::sleep(secs(6)).await;
    assert!(harness.begin("3").await.is_ok());
}

/// As many tasks as a caller gets to begin, of so many that it tries; the others are refused, and told when to come back.
async fn flood(harness: &Harness, tries: usize) -> usize {
    let mut begun = 0;
    for _ in 0..tries {
        match harness.begin("hi").await {
            Ok(_) => begun += 1,
            Err(error) => check_full(&error),
        }
    }
    begun
}

#[tokio::test(start_paused = true)]
async fn one_caller_leaves_executions_for_others() {
    let executor = ScriptedExecutor::steps([Step::Working, Step::Hang]);
    let share = CallerShare::percent(25);
    let harness = Harness::with(executor, |builder| builder.caller_share(share.clone()));
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|who| harness.as_caller(who));
    assert_eq!(flood(&ann, 10_000).await, 7_500);
    assert!(bob.begin("hi").await.is_ok(), "at once");
    assert!(bob.stream("hi").await.is_ok());
    assert_eq!(flood(&bob, 10_000).await, 2_498, "its share, and no more: all are taken");
    check_full(&eve.begin("hi").await.unwrap_err());
    share.set(0);
    check_full(&ann.begin("hi").await.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_so_many_unfinished_tasks_over_all_agents() {
    let quota = TaskQuota::new(3);
    let steps = [Step::Working, Step::Sleep(secs(5))];
    let agent = || Harness::with(ScriptedExecutor::steps(steps), |it| it.task_quota(quota.clone()));
    let (first, second) = (agent().as_caller("ann"), agent().as_caller("ann"));
    assert_eq!(flood(&first, 2).await + flood(&second, 5).await, 3);
    check_full(&first.stream("hi").await.err().unwrap());
    assert!(second.as_caller("bob").begin("hi").await.is_ok(), "others are not concerned");
    tokio::time::sleep(secs(6)).await;
    assert_eq!(flood(&second, 5).await, 3, "they have ended");
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_needs_room_as_well_and_leaves_the_task_as_it_was() {
    let limits = Limits { tasks: 1, ..Limits::default() };
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Working, Step::Sleep(secs(5))], vec![]];
    let harness = Harness::with(ScriptedExecutor::turns(turns), |builder| builder.limits(limits));
    let task = harness.task("1").await.unwrap();
    settle().await;
    harness.begin("2").await.unwrap();
    check_full(&harness.task(Say::to(&task, "blue")).await.unwrap_err());
    assert_eq!(harness.get(&task.id).await.unwrap(), task);
    tokio::time::sleep(secs(6)).await;
    assert!(harness.task(Say::to(&task, "blue")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn there_is_a_limit_of_messages_that_wait_for_a_task() {
    let limits = Limits { queue: 2, ..Limits::default() };
    let executor =
        ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(5)), Step::InputRequired("more?")]);
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    let task = harness.begin("0").await.unwrap();
    let waiting = ["1", "2"].map(|text| {
        let (harness, say) = (harness.clone(), Say::to(&task, text));
        tokio::spawn(async move { harness.task(say).await })
    });
    settle().await;
    check_full(&harness.task(Say::to(&task, "3")).await.unwrap_err());
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_ok(), "those that were let in have their turn");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_a_limit_of_streams_and_room_again_when_one_closes() {
    let limits = Limits { streams: 2, ..Limits::default() };
    let executor = ScriptedExecutor::steps([Step::Working, Step::Hang]);
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    let task = harness.begin("hi").await.unwrap();
    let one = harness.subscribe(&task.id).await.unwrap();
    let two = harness.stream("hi").await.unwrap();
    check_full(&harness.subscribe(&task.id).await.err().unwrap());
    check_full(&harness.stream("hi").await.err().unwrap());
    settle().await;
    assert_eq!(harness.runtime.running(), 2, "a send that is refused for its stream has not begun");
    drop(one);
    let three = harness.subscribe(&task.id).await.unwrap();
    drop((two, three));
    settle().await;
    assert_eq!(harness.runtime.running(), 2, "closing streams stops nothing");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_the_agent_requires_is_required_by_every_operation() {
    // REQ-077, REQ-079
    let mut demanding = card();
    let extension =
        |uri: &str, required| AgentExtension { uri: uri.to_owned(), required, ..AgentExtension::default() };
    demanding.capabilities.extensions = vec![extension("urn:must/v1", true), extension("urn:may", false)];
    demanding.capabilities.extended_agent_card = Some(true);
    let harness =
        Harness::of(demanding, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| builder);
    let declaring =
        harness.calling(|cx| cx.extensions = vec!["urn:other".to_owned(), "urn:must/v1".to_owned()]);
    let task = declaring.task("hi").await.unwrap();
    assert!(declaring.get(&task.id).await.is_ok());
    for extensions in [vec![], vec!["urn:may".to_owned()], vec!["urn:must/v2".to_owned()]] {
        let harness = harness.calling(|cx| cx.extensions = extensions);
        for (operation, error) in every_operation(&harness, &task.id).await {
            assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired, "{operation}");
            assert_eq!(error.metadata()["requiredExtensions"], "urn:must/v1", "{operation}");
        }
    }
}

/// Every operation, which must fail.
async fn every_operation(
    harness: &Harness,
    id: &nuncio_server::protocol::TaskId,
) -> Vec<(&'static str, Error)> {
    let (runtime, cx) = (&harness.runtime, &harness.cx);
    let mut errors = vec![
        ("send", harness.send("hi").await.unwrap_err()),
        ("stream", harness.stream("hi").await.err().unwrap()),
        ("get", harness.get(id).await.unwrap_err()),
        ("list", runtime.list_tasks(cx, ListTasksRequest::default()).await.unwrap_err()),
        ("cancel", harness.cancel(id).await.unwrap_err()),
        ("subscribe", harness.subscribe(id).await.err().unwrap()),
        (
            "card",
            runtime.get_extended_agent_card(cx, GetExtendedAgentCardRequest::default()).await.unwrap_err(),
        ),
    ];
    errors.extend(push_operations(harness).await);
    errors
}

async fn push_operations(harness: &Harness) -> Vec<(&'static str, Error)> {
    let (runtime, cx) = (&harness.runtime, &harness.cx);
    vec![
        (
            "create push",
            runtime
                .create_task_push_notification_config(cx, TaskPushNotificationConfig::default())
                .await
                .unwrap_err(),
        ),
        (
            "get push",
            runtime
                .get_task_push_notification_config(cx, GetTaskPushNotificationConfigRequest::default())
                .await
                .unwrap_err(),
        ),
        (
            "list push",
            runtime
                .list_task_push_notification_configs(cx, ListTaskPushNotificationConfigsRequest::default())
                .await
                .unwrap_err(),
        ),
        (
            "delete push",
            runtime
                .delete_task_push_notification_config(cx, DeleteTaskPushNotificationConfigRequest::default())
                .await
                .unwrap_err(),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_webhooks_says_so() {
    // REQ-153, trap T-21
    let harness = Harness::new(ScriptedExecutor::steps([]));
    for (operation, error) in push_operations(&harness).await {
        assert_eq!(
            (error.kind(), error.kind().row().code),
            (ErrorKind::PushNotificationNotSupported, -32003),
            "{operation}"
        );
    }
    let inline = Say::from("hi").change(|request| {
        let config =
            TaskPushNotificationConfig { url: "https://hook.test/".to_owned(), ..Default::default() };
        request.configuration.get_or_insert_default().task_push_notification_config = Some(config);
    });
    check_refused(&harness, inline, ErrorKind::PushNotificationNotSupported, "").await;
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_media_type_that_the_card_does_not_take_are_refused() {
    // REQ-105, product table
    let modes = |modes: &[&str]| AgentCard {
        default_input_modes: modes.iter().map(|&mode| mode.to_owned()).collect(),
        ..card()
    };
    let (taken, refused) = (None, Some(ErrorKind::ContentTypeNotSupported));
    for (card, media_type, expected) in [
        (modes(&[]), "application/pdf", taken),
        (modes(&["text/plain"]), "text/plain", taken),
        (modes(&["text/plain"]), "TEXT/Plain; charset=utf-8", taken),
        (modes(&["text/plain"]), "application/pdf", refused),
        (modes(&["text/*"]), "text/csv", taken),
        (modes(&["*/*"]), "application/pdf", taken),
        (modes(&["*/*"]), "application/x-unsupported-thing", refused),
    ] {
        let store = MemoryStore::default();
        let harness = Harness::of(card, store, ScriptedExecutor::steps([]), |builder| {
            builder.refuse_media_type("application/x-unsupported*")
        });
        let say = Say::from("hi")
            .change(|request| request.message.parts.push(Part::text("x").with_media_type(media_type)));
        let answer = harness.send(say).await.err().map(|error| error.kind());
        assert_eq!(answer, expected, "{media_type}");
    }
    let harness =
        Harness::of(modes(&["text/plain"]), MemoryStore::default(), ScriptedExecutor::steps([]), |builder| {
            builder
        });
    assert!(harness.send("a part without a type").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_gets_the_extended_card() {
    // REQ-191 to REQ-193
    let promising = || {
        let mut card = card();
        card.capabilities.extended_agent_card = Some(true);
        card
    };
    let extended = || AgentCard { description: "more".to_owned(), ..card() };
    let build =
        |card, build: fn(nuncio_server::RuntimeBuilder, AgentCard) -> nuncio_server::RuntimeBuilder| {
            Harness::of(card, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| {
                build(builder, extended())
            })
        };
    let none = build(card(), |builder, extended| builder.extended_card(extended));
    let promised = build(promising(), |builder, _| builder);
    let closed = build(promising(), |builder, extended| builder.extended_card(extended));
    let open = build(promising(), |builder, extended| builder.extended_card(extended).open_extended_card());
    let hers = build(promising(), |builder, extended| {
        let is_ann = |caller: &Caller| caller.principal().is_some_and(|name| &**name == "ann");
        let card = move |caller: &Caller| Some(extended.clone()).filter(|_| is_ann(caller));
        builder.extended_card_for(card).open_extended_card()
    });
    let not_hers = build(promising(), |builder, _| builder.extended_card_for(|_| None));
    for (name, harness, anonymous, known) in [
        ("no capability", none, Err(ErrorKind::UnsupportedOperation), Err(ErrorKind::UnsupportedOperation)),
        (
            "promised, not there",
            promised,
            Err(ErrorKind::Unauthenticated),
            Err(ErrorKind::ExtendedAgentCardNotConfigured),
        ),
        ("closed", closed, Err(ErrorKind::Unauthenticated), Ok("more".to_owned())),
        ("open", open, Ok("more".to_owned()), Ok("more".to_owned())),
        ("hers", hers, Err(ErrorKind::ExtendedAgentCardNotConfigured), Ok("more".to_owned())),
        (
            "not hers",
            not_hers,
            Err(ErrorKind::Unauthenticated),
            Err(ErrorKind::ExtendedAgentCardNotConfigured),
        ),
    ] {
        for (caller, expected) in [(harness.clone(), anonymous), (harness.as_caller("ann"), known)] {
            let answer = caller
                .runtime
                .get_extended_agent_card(&caller.cx, GetExtendedAgentCardRequest::default())
                .await;
            let resumes = |card: &AgentCard| {
                card.capabilities.extensions.iter().any(|extension| extension.uri == RESUME_EXTENSION)
            };
            assert!(answer.as_ref().ok().is_none_or(resumes), "{name}: it says what the runtime can do");
            let answer = answer.map(|card| card.description).map_err(|error| error.kind());
            assert_eq!(answer, expected, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_required_where_a_task_is_named() {
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let none = "".into();
    assert_eq!(refused(harness.get(&none).await), ErrorKind::InvalidParams);
    assert_eq!(refused(harness.cancel(&none).await), ErrorKind::InvalidParams);
    assert_eq!(refused(harness.subscribe(&none).await), ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn there_is_room_for_so_many_unfinished_tasks() {
    let executor = ScriptedExecutor::steps([Step::InputRequired("which?")]);
    let harness = Harness::of(card(), MemoryStore::bounded(10, 2), executor, |builder| builder);
    let first = harness.task("1").await.unwrap();
    harness.task("2").await.unwrap();
    assert_eq!(refused(harness.task("3").await), ErrorKind::Unavailable);
    harness.cancel(&first.id).await.unwrap();
    harness.task("4").await.unwrap();
}
