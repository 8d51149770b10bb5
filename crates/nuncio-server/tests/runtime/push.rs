//! Webhooks: who is told what, in which order, how often, and until when.

use std::sync::{Arc, Mutex};

use nuncio_server::{
    protocol::{
        A2aService as _, AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, ErrorKind,
        GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest, Result, Task, TaskId,
        TaskPushNotificationConfig, TaskState, TraceContext, Version,
    },
    push::{Dialect, Push, PushLimits, PushOptions, Retry},
    store::{
        DeliveryQuery, DeliveryState, MAX_WEBHOOKS, MemoryStore, OperatorQueries as _, Outbox as _, Redrive,
    },
    testing::{
        FailingStore, Harness, Say, ScriptedExecutor, Step,
        courier::{Post, Reaction, ScriptedCourier},
    },
};
use serde_json::Value;

use super::{refused, secs, settle};

const URL: &str = "http://receiver.example/hook";

fn options() -> PushOptions {
    PushOptions::default()
}

/// An agent that plays these steps, and receivers that do this.
fn agent(
    steps: &[Step],
    react: impl Fn(&Post) -> Reaction + Send + Sync + 'static,
) -> (Harness, ScriptedCourier, Push) {
    with(ScriptedExecutor::steps(steps), options(), react)
}

fn with(
    executor: ScriptedExecutor,
    options: PushOptions,
    react: impl Fn(&Post) -> Reaction + Send + Sync + 'static,
) -> (Harness, ScriptedCourier, Push) {
    let courier = ScriptedCourier::new(react);
    let (harness, push) = Harness::pushing(
        executor,
        MemoryStore::default(),
        &courier,
        // Two hours instead of a day: a shared store is asked every second of them.
        |engine| engine.retry(Retry { give_up: secs(2 * 60 * 60), ..Retry::default() }),
        |builder, push| builder.push(push, options),
    );
    (harness, courier, push)
}

fn taken(_: &Post) -> Reaction {
    Reaction::Status(200)
}

const QUICK: &[Step] = &[Step::Working, Step::Artifact("a", "x")];

/// The notifications of a v1.0 receiver, in short form.
fn told(post: &Post) -> String {
    let body = &post.body;
    let state = |status: &Value| {
        status["state"].as_str().unwrap_or("?").trim_start_matches("TASK_STATE_").to_lowercase()
    };
    let text = |artifact: &Value| {
        let parts = artifact["parts"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    match body.as_object().and_then(|body| body.keys().next()).map(String::as_str) {
        Some("task") => format!("task {}", state(&body["task"]["status"])),
        Some("statusUpdate") => format!("status {}", state(&body["statusUpdate"]["status"])),
        Some("artifactUpdate") => {
            let update = &body["artifactUpdate"];
            let flag = |name: &str| if update[name] == true { format!(" {name}") } else { String::new() };
            format!("artifact {}{}{}", text(&update["artifact"]), flag("append"), flag("lastChunk"))
        }
        _ => format!("? {body}"),
    }
}

fn all_told(posts: &[Post]) -> Vec<String> {
    posts.iter().map(told).collect()
}

async fn states(harness: &Harness) -> Vec<(u64, DeliveryState, u32)> {
    let all = DeliveryQuery { limit: 1_000, ..DeliveryQuery::default() };
    let (deliveries, _) = harness.store.deliveries(&all).await.unwrap();
    deliveries.iter().rev().map(|one| (one.seq.0, one.state, one.attempts)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_receiver_is_told_every_status_and_every_artifact_in_order() {
    // REQ-110, REQ-161, REQ-162, REQ-163
    let (harness, courier, _push) = agent(QUICK, taken);
    let task = harness.task(Say::from("hi").push(URL)).await.unwrap();
    let posts = courier.until(4).await;
    let wanted = ["task submitted", "status working", "artifact x lastChunk", "status completed"];
    assert_eq!(all_told(&posts), wanted);
    for (post, seq) in posts.iter().zip(1..) {
        assert_eq!(post.body.as_object().unwrap().len(), 1, "exactly one member");
        assert_eq!(post.header("content-type"), "application/a2a+json");
        assert_eq!(post.header("a2a-version"), "1.0");
        assert!(post.header("webhook-id").ends_with(&format!("-{seq}")), "{:?}", post.headers);
        assert_eq!(post.header("webhook-attempt"), "1");
        assert!(post.header("webhook-timestamp").parse::<u64>().unwrap() > 1_700_000_000);
        // Trap T-46
        assert_eq!(post.headers.get("authorization"), None);
    }
    assert_eq!(posts[3].body["statusUpdate"]["taskId"], task.id.as_str());
    let all: Vec<_> = states(&harness)
        .await
        .into_iter()
        .map(|(seq, state, tries)| (seq, state == DeliveryState::Delivered, tries))
        .collect();
    assert_eq!(all, [(1, true, 1), (2, true, 1), (3, true, 1), (4, true, 1)]);
    assert_eq!(harness.runtime.card().capabilities.push_notifications, Some(true), "the card says so");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_is_shown_who_sends() {
    // REQ-164, trap T-17
    let (harness, courier, _push) = agent(QUICK, taken);
    let trace = TraceContext {
        parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        state: Some("a=b".to_owned()),
    };
    let harness = harness.calling(|cx| cx.trace = Some(trace));
    let config = TaskPushNotificationConfig {
        url: URL.to_owned(),
        token: Some("t0ken".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    };
    harness.task(Say::from("hi").push_by(config)).await.unwrap();
    for post in courier.until(4).await {
        assert_eq!(post.header("authorization"), "Bearer s3cret");
        assert_eq!(post.header("x-a2a-notification-token"), "t0ken");
        assert_eq!(post.header("a2a-notification-token"), "t0ken");
        assert!(post.header("traceparent").starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert_ne!(post.header("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(post.header("tracestate"), "a=b");
        let shown = format!("{:?}", post.headers);
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_payload_is_that_of_the_version_that_registered() {
    // REQ-165, REQ-173, trap T-43: the task as it is at the attempt, whoever made the task.
    let (harness, courier, _push) = agent(&[Step::Working, Step::InputRequired("which?")], taken);
    let old = harness.calling(|cx| cx.version = Version::V0_3);
    let task = old.task(Say::from("hi").push(URL)).await.unwrap();
    let posts = courier.until(3).await;
    for post in &posts {
        assert_eq!(post.header("content-type"), "application/json");
        assert_eq!(post.header("a2a-version"), "0.3");
        assert_eq!((&post.body["kind"], &post.body["id"]), (&"task".into(), &task.id.as_str().into()));
    }
    assert_eq!(posts[2].body["status"]["state"], "input-required");
    let other = TaskPushNotificationConfig {
        task_id: Some(task.id.clone()),
        url: "http://new.example/".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    harness.runtime.create_task_push_notification_config(&harness.cx, other).await.unwrap();
    harness.cancel(&task.id).await.unwrap();
    let posts = courier.until(5).await;
    let (new, old): (Vec<_>, Vec<_>) = posts[3..].iter().partition(|post| post.url.contains("new"));
    assert_eq!(told(new[0]), "status canceled");
    assert_eq!(old[0].body["status"]["state"], "canceled");
}

#[tokio::test(start_paused = true)]
async fn the_named_dialect_is_an_answer_to_a_call_that_nobody_made() {
    let mut options = options();
    options.dialect = Dialect::NeuralPost;
    let (harness, courier, _push) = with(ScriptedExecutor::steps(QUICK), options, taken);
    let old = harness.calling(|cx| cx.version = Version::V0_3);
    old.task(Say::from("hi").push(URL)).await.unwrap();
    let posts = courier.until(4).await;
    let kinds: Vec<_> = posts.iter().map(|post| post.body["result"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["task", "status-update", "artifact-update", "status-update"]);
    for post in &posts {
        assert_eq!(
            (&post.body["jsonrpc"], post.body["id"].as_str()),
            (&"2.0".into(), Some(post.header("webhook-id")))
        );
        assert_eq!(post.header("content-type"), "application/json");
    }
    harness.task(Say::from("hi").push("http://new.example/")).await.unwrap();
    let posts = courier.until(8).await;
    assert_eq!(told(&posts[7]), "status completed", "1.0 stays 1.0");
}

#[tokio::test(start_paused = true)]
async fn an_artifact_comes_whole_when_it_is_complete_or_in_pieces_if_that_is_wanted() {
    let pieces = || {
        ScriptedExecutor::new(|_, out| async move {
            let piece = |text: &str| {
                nuncio_server::protocol::Artifact::new("a", nuncio_server::protocol::Part::text(text))
            };
            out.chunk(piece("x"), false, false).await?;
            out.chunk(piece("y"), true, false).await?;
            out.chunk(piece("z"), true, true).await?;
            Ok(())
        })
    };
    let (harness, courier, _push) = with(pieces(), options(), taken);
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    let told = all_told(&courier.until(3).await);
    assert_eq!(told, ["task submitted", "artifact xyz lastChunk", "status completed"]);

    let mut unmarked = options();
    unmarked.unmarked_artifacts = true;
    let (harness, courier, _push) = with(pieces(), unmarked, taken);
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    let told = all_told(&courier.until(4).await);
    assert_eq!(told, ["task submitted", "artifact x", "artifact xyz lastChunk", "status completed"]);

    let mut options = options();
    options.chunks = true;
    let (harness, courier, _push) = with(pieces(), options, taken);
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    let told = all_told(&courier.until(5).await);
    let wanted = [
        "task submitted",
        "artifact x",
        "artifact y append",
        "artifact z append lastChunk",
        "status completed",
    ];
    assert_eq!(told, wanted);
}

fn get(task: &Task, id: &str) -> GetTaskPushNotificationConfigRequest {
    GetTaskPushNotificationConfigRequest { task_id: task.id.clone(), id: id.into(), ..Default::default() }
}

fn drop_it(task: &Task, id: &str) -> DeleteTaskPushNotificationConfigRequest {
    DeleteTaskPushNotificationConfigRequest { task_id: task.id.clone(), id: id.into(), ..Default::default() }
}

fn config(task: &TaskId, id: Option<&str>, url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        task_id: Some(task.clone()),
        id: id.map(Into::into),
        url: url.to_owned(),
        token: Some("t0ken".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    }
}

async fn create(harness: &Harness, config: TaskPushNotificationConfig) -> Result<TaskPushNotificationConfig> {
    harness.runtime.create_task_push_notification_config(&harness.cx, config).await
}

async fn list(
    harness: &Harness,
    task: &Task,
    size: i32,
    token: Option<String>,
) -> Result<(Vec<String>, String)> {
    let req = ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        page_size: size,
        page_token: token,
        ..Default::default()
    };
    let page = harness.runtime.list_task_push_notification_configs(&harness.cx, req).await?;
    let ids = page.configs.iter().map(|config| config.id.as_ref().unwrap().to_string()).collect();
    Ok((ids, page.next_page_token))
}

#[tokio::test(start_paused = true)]
async fn configurations_are_made_read_listed_replaced_and_deleted() {
    // REQ-154 to REQ-160, traps T-19 and T-20
    let (harness, _, _push) = agent(QUICK, taken);
    let harness = harness.as_caller("ann");
    let task = harness.task("hi").await.unwrap();
    let given = config(&task.id, None, URL);
    let made = create(&harness, given.clone()).await.unwrap();
    let id = made.id.clone().unwrap();
    assert_eq!(made, TaskPushNotificationConfig { id: Some(id.clone()), ..given.clone() }, "as it was given");
    let read = harness.runtime.get_task_push_notification_config(&harness.cx, get(&task, id.as_str())).await;
    let shown = AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: None };
    assert_eq!(read.unwrap(), TaskPushNotificationConfig { authentication: Some(shown), ..made });
    for name in ["b", "a", "c"] {
        create(&harness, config(&task.id, Some(name), URL)).await.unwrap();
    }
    let all = list(&harness, &task, 0, None).await.unwrap();
    assert_eq!((all.0.len(), all.1), (4, String::new()));
    let (first, token) = list(&harness, &task, 3, None).await.unwrap();
    let (rest, end) = list(&harness, &task, 3, Some(token)).await.unwrap();
    assert_eq!((first.len(), rest.len(), end), (3, 1, String::new()));
    let replaced = create(&harness, config(&task.id, Some("a"), "http://other.example/")).await.unwrap();
    let read = harness.runtime.get_task_push_notification_config(&harness.cx, get(&task, "a")).await.unwrap();
    assert_eq!((replaced.url, read.url.as_str()), (read.url.clone(), "http://other.example/"));
    for _ in 0..2 {
        harness.runtime.delete_task_push_notification_config(&harness.cx, drop_it(&task, "a")).await.unwrap();
    }
    let gone = harness.runtime.get_task_push_notification_config(&harness.cx, get(&task, "a")).await;
    let error = gone.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotFound);
    assert_eq!(list(&harness, &task, 0, None).await.unwrap().0.len(), 3);
    assert_eq!(refused(list(&harness, &task, 0, Some("?".to_owned())).await), ErrorKind::InvalidParams);
    // Not yours is not found.
    let bob = harness.as_caller("bob");
    assert_eq!(refused(create(&bob, given.clone()).await), ErrorKind::TaskNotFound);
    assert_eq!(refused(list(&bob, &task, 0, None).await), ErrorKind::TaskNotFound);
    let read = bob.runtime.get_task_push_notification_config(&bob.cx, get(&task, "b")).await;
    assert_eq!(refused(read), ErrorKind::TaskNotFound);
    let dropped = bob.runtime.delete_task_push_notification_config(&bob.cx, drop_it(&task, "b")).await;
    assert_eq!(refused(dropped), ErrorKind::TaskNotFound);
    let unknown = create(&harness, config(&"t-unknown".into(), None, URL)).await;
    assert_eq!(refused(unknown), ErrorKind::TaskNotFound);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_configuration_is_said_at_once() {
    let (harness, courier, _push) = agent(QUICK, taken);
    let task = harness.task("hi").await.unwrap();
    let good = config(&task.id, None, URL);
    let with = |change: &dyn Fn(&mut TaskPushNotificationConfig)| {
        let mut config = good.clone();
        change(&mut config);
        config
    };
    let scheme = |scheme: &str| Some(AuthenticationInfo { scheme: scheme.to_owned(), credentials: None });
    let cases = [
        ("url", with(&|config| config.url = "https://receiver.example/".to_owned())),
        ("url", with(&|config| config.url = "receiver".to_owned())),
        ("url", with(&|config| config.url = String::new())),
        ("url", with(&|config| config.url = format!("http://x/{}", "a".repeat(3_000)))),
        ("id", with(&|config| config.id = Some("i".repeat(300).into()))),
        ("token", with(&|config| config.token = Some("a\nb".to_owned()))),
        ("authentication.scheme", with(&|config| config.authentication = scheme("Bear er"))),
        ("authentication.scheme", with(&|config| config.authentication = scheme(""))),
        ("authentication.scheme", with(&|config| config.authentication = scheme(&"a".repeat(300)))),
    ];
    let tenant = TaskPushNotificationConfig { task_id: None, tenant: Some("t".repeat(300)), ..good.clone() };
    assert_eq!(refused(harness.send(Say::from("hi").push_by(tenant)).await), ErrorKind::InvalidParams);
    for (field, config) in cases {
        let error = create(&harness, config.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{config:?}");
        assert!(error.message().contains(field), "{field}: {}", error.message());
        let inline = TaskPushNotificationConfig { task_id: None, ..config };
        let error = harness.send(Say::from("hi").push_by(inline)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{field}");
    }
    for i in 0..MAX_WEBHOOKS {
        create(&harness, config(&task.id, Some(&format!("c{i}")), URL)).await.unwrap();
    }
    assert_eq!(refused(create(&harness, good.clone()).await), ErrorKind::ResourceExhausted);
    // REQ-153, trap T-21
    let mute = Harness::new(ScriptedExecutor::steps(QUICK));
    assert_eq!(refused(mute.send(Say::from("hi").push(URL)).await), ErrorKind::PushNotificationNotSupported);
    assert_eq!(refused(create(&mute, good).await), ErrorKind::PushNotificationNotSupported);
    assert!(courier.posts().is_empty(), "nothing was owed");
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_confides_is_sealed_and_nobody_elses_business() {
    let seen = Arc::new(Mutex::new(None));
    let (tell, executor) = (Arc::clone(&seen), |tell: Arc<Mutex<Option<bool>>>| {
        ScriptedExecutor::new(move |cx, _| {
            *tell.lock().unwrap() = Some(cx.configuration.task_push_notification_config.is_some());
            std::future::ready(Ok(()))
        })
    });
    let (harness, courier, _push) = with(executor(tell), options(), taken);
    let given = TaskPushNotificationConfig {
        task_id: None,
        ..config(&"".into(), Some("a"), "http://x.example/p4th?q=s3cret")
    };
    let task = harness.task(Say::from("hi").push_by(given)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(false), "the agent is not told");
    let scope = nuncio_server::store::Scope { agent: "scripted".into(), ..Default::default() };
    let kept = harness.store.webhook(&scope, &task.id, &"a".into()).await.unwrap().unwrap();
    for secret in ["s3cret", "t0ken", "p4th"] {
        assert!(!kept.body.contains(secret), "{}", kept.body);
    }
    assert_eq!(
        (&*kept.target, nuncio_server::push::shown_url(&kept)),
        ("x.example:80", "http://x.example".to_owned())
    );
    courier.until(1).await;
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_later_and_later_in_order() {
    // REQ-166
    let (harness, courier, _push) = agent(QUICK, |_| Reaction::Away);
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    let posts = courier.until(7).await;
    assert!(posts.iter().all(|post| told(post) == "task submitted"), "nothing overtakes");
    let pauses: Vec<u64> = posts.windows(2).map(|two| two[1].at - two[0].at).collect();
    for (pause, wanted) in pauses.iter().zip([1, 2, 4, 8, 16, 32]) {
        assert!((wanted * 7 / 10..=wanted * 13 / 10 + 10).contains(pause), "{pauses:?}");
    }
    let ids: std::collections::BTreeSet<_> = posts.iter().map(|post| post.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "the same delivery");
    let attempts: Vec<_> = posts.iter().map(|post| post.header("webhook-attempt").to_owned()).collect();
    assert_eq!(attempts, ["1", "2", "3", "4", "5", "6", "7"]);
    courier.now(taken);
    let posts = courier.until(11).await;
    let wanted = ["task submitted", "status working", "artifact x lastChunk", "status completed"];
    assert_eq!(all_told(&posts[7..]), wanted);
    assert_eq!(posts[8].at, posts[10].at, "the rest at once");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_may_ask_for_time() {
    let (harness, courier, _push) = agent(QUICK, |_| Reaction::Later(429, 120));
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    let posts = courier.until(3).await;
    assert!(
        posts.windows(2).all(|two| two[1].at - two[0].at >= 119),
        "{:?}",
        posts.iter().map(|post| post.at).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn each_class_of_answers_has_its_consequence() {
    let (harness, courier, _push) = agent(QUICK, |post| match told(post).as_str() {
        "task submitted" => Reaction::Status(422),
        "status working" => Reaction::Forbidden,
        "artifact x lastChunk" => Reaction::Status(410),
        _ => Reaction::Status(200),
    });
    let task = harness
        .task(
            Say::from("hi")
                .push_by(TaskPushNotificationConfig { task_id: None, ..config(&"".into(), Some("a"), URL) }),
        )
        .await
        .unwrap();
    let posts = courier.until(3).await;
    assert_eq!(posts.len(), 3, "after 410 nothing more: {:?}", all_told(&posts));
    let dead = [1, 2, 3, 4].map(|seq| (seq, DeliveryState::Dead, u32::from(seq < 4)));
    assert_eq!(states(&harness).await, dead);
    let (page, _) =
        harness.store.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await.unwrap();
    let why: Vec<_> = page
        .iter()
        .rev()
        .filter_map(|one| one.recent.last())
        .map(|last| (last.status, last.error.as_deref().unwrap_or("").to_owned()))
        .collect();
    let wanted = [(Some(422), "says 422"), (None, "a private address"), (Some(410), "says 410")];
    assert_eq!(why, wanted.map(|(status, words)| (status, words.to_owned())));
    let read = harness.runtime.get_task_push_notification_config(&harness.cx, get(&task, "a")).await;
    assert_eq!(refused(read), ErrorKind::TaskNotFound, "it is stopped");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_given_up_and_can_be_redriven() {
    let (harness, courier, push) = agent(QUICK, |_| Reaction::Status(503));
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    tokio::time::sleep(secs(3 * 60 * 60)).await;
    let states_then = states(&harness).await;
    assert!(
        states_then.iter().all(|(_, state, tries)| *state == DeliveryState::Dead && *tries > 0),
        "{states_then:?}"
    );
    let posts = courier.posts().len();
    tokio::time::sleep(secs(3 * 60 * 60)).await;
    assert_eq!(courier.posts().len(), posts, "nothing more");
    courier.now(taken);
    let now = nuncio_server::protocol::Timestamp::from_millis(4_000_000_000_000).unwrap();
    let dead = Redrive::Dead { agent: None, since: nuncio_server::protocol::Timestamp::EPOCH };
    assert_eq!(harness.store.redrive(&dead, now).await.unwrap(), 4);
    // Due in the far future of that clock; one of them by hand, at once.
    push.wake();
    settle().await;
    assert_eq!(courier.posts().len(), posts);
    assert_eq!(
        harness.store.redrive(&dead, nuncio_server::protocol::Timestamp::EPOCH).await.unwrap(),
        0,
        "they are pending"
    );
    let id = nuncio_server::store::DeliveryId::parse(courier.posts()[0].header("webhook-id")).unwrap();
    assert_eq!(
        harness.store.redrive(&Redrive::One(id), nuncio_server::protocol::Timestamp::EPOCH).await.unwrap(),
        1
    );
    push.wake();
    let after = courier.until(posts + 4).await;
    let wanted = ["task submitted", "status working", "artifact x lastChunk", "status completed"];
    assert_eq!(all_told(&after[posts..]), wanted, "in order");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_costs_only_itself() {
    let (harness, courier, _push) =
        agent(QUICK, |post| if post.url.contains("hang") { Reaction::Hang } else { Reaction::Status(200) });
    for i in 0..200 {
        harness.task(Say::from("hi").push(&format!("http://hang.example/{i}"))).await.unwrap();
    }
    let before = tokio::time::Instant::now();
    let task = harness.task(Say::from("hi").push("http://good.example/")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let good = |posts: &[Post]| posts.iter().filter(|post| post.url.contains("good")).count();
    while good(&courier.posts()) < 4 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(before.elapsed() < secs(1), "not after those that hang");
    let hanging = courier.posts().len() - good(&courier.posts());
    assert!(hanging <= PushLimits::default().per_target, "{hanging} at a time to one target");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_for_all_is_left_alone_by_all() {
    let (harness, courier, _push) = agent(QUICK, |_| Reaction::Away);
    for _ in 0..100 {
        harness.task(Say::from("hi").push(URL)).await.unwrap();
    }
    tokio::time::sleep(secs(4)).await;
    let posts = courier.posts().len();
    assert!(posts < 50, "{posts} attempts in the first seconds");
    courier.now(taken);
    courier.until(posts + 400).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_closes_the_way_to_a_receiver_for_others() {
    let (harness, courier, _push) = agent(QUICK, |post| match post.header("a2a-notification-token") {
        "t0ken" => Reaction::Status(200),
        _ => Reaction::Status(401),
    });
    for _ in 0..20 {
        harness.task(Say::from("hi").push(URL)).await.unwrap();
    }
    courier.until(20).await;
    let given = TaskPushNotificationConfig { task_id: None, ..config(&"".into(), None, URL) };
    harness.as_caller("ann").task(Say::from("hi").push_by(given)).await.unwrap();
    settle().await;
    let posts = courier.posts();
    let good = posts.iter().filter(|post| post.header("a2a-notification-token") == "t0ken");
    assert_eq!(good.count(), 4, "told at once");
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_receiver_is_owed_is_given_up_in_time_however_much_it_is() {
    // REQ-161: left alone by all, and yet tried for each before it is given up.
    let (harness, courier, _push) = agent(QUICK, |_| Reaction::Away);
    for _ in 0..50 {
        harness.task(Say::from("hi").push(URL)).await.unwrap();
    }
    tokio::time::sleep(secs(3 * 60 * 60)).await;
    let states = states(&harness).await;
    assert_eq!(states.len(), 200);
    let dead = |(_, state, tries): &&(u64, DeliveryState, u32)| *state == DeliveryState::Dead && *tries > 0;
    assert_eq!(states.iter().filter(dead).count(), 200, "{} posts", courier.posts().len());
}

#[tokio::test(start_paused = true)]
async fn after_a_deletion_nothing_more_is_sent() {
    // REQ-159: also what is on its way is stopped.
    let (harness, courier, push) = agent(&[Step::Working, Step::Hang], |_| Reaction::Hang);
    let task = harness
        .begin(
            Say::from("hi")
                .push_by(TaskPushNotificationConfig { task_id: None, ..config(&"".into(), Some("a"), URL) }),
        )
        .await
        .unwrap();
    courier.until(1).await;
    assert_eq!(push.in_hand(), 1);
    harness.runtime.delete_task_push_notification_config(&harness.cx, drop_it(&task, "a")).await.unwrap();
    settle().await;
    assert_eq!(push.in_hand(), 0, "stopped");
    harness.cancel(&task.id).await.unwrap();
    tokio::time::sleep(secs(60 * 60)).await;
    assert_eq!(courier.posts().len(), 1);
    assert_eq!(states(&harness).await, []);
}

#[tokio::test(start_paused = true)]
async fn after_a_replacement_nothing_more_goes_to_the_old_address() {
    // REQ-155: whoever replaces an address may not trust the old one any more.
    let (harness, courier, _push) = agent(QUICK, |post| match post.url.as_str() {
        URL => Reaction::Hang,
        _ => Reaction::Status(200),
    });
    let given = TaskPushNotificationConfig { task_id: None, ..config(&"".into(), Some("a"), URL) };
    let task = harness.task(Say::from("hi").push_by(given)).await.unwrap();
    courier.until(1).await;
    create(&harness, config(&task.id, Some("a"), "http://new.example/")).await.unwrap();
    settle().await;
    let posts = courier.posts();
    let (old, new): (Vec<_>, Vec<_>) = posts.iter().partition(|post| post.url == URL);
    assert_eq!((old.len(), new.len()), (1, 4));
    assert_eq!(old[0].header("webhook-id"), new[0].header("webhook-id"), "the same again");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_comes_with_a_later_message_is_told_from_there_on() {
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Working, Step::Completed]];
    let (harness, courier, _push) = with(ScriptedExecutor::turns(turns), options(), taken);
    let task = harness.task("hi").await.unwrap();
    harness.task(Say::to(&task, "blue").push(URL)).await.unwrap();
    assert_eq!(all_told(&courier.until(2).await), ["status working", "status completed"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_posted_but_not_written_down_is_posted_again_under_the_same_id() {
    // The process ends between the attempt and the record: at least once, and recognisable.
    let memory = MemoryStore::default();
    let (next, courier) = (memory.another(), ScriptedCourier::new(|_| Reaction::Away));
    let build = |builder: nuncio_server::RuntimeBuilder, push: &Push| builder.push(push, options());
    let (harness, push) = Harness::pushing(
        ScriptedExecutor::steps(QUICK),
        FailingStore::waiting(memory),
        &courier,
        |engine| engine,
        build,
    );
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    courier.until(1).await;
    // From the next post on, nothing is written down any more.
    let store = Arc::clone(&harness.store);
    courier.now(move |_| {
        store.take_down(true);
        Reaction::Status(200)
    });
    let first = courier.until(2).await;
    harness.store.retire();
    drop((harness, push));
    courier.now(taken);
    let (_harness, _push) =
        Harness::pushing(ScriptedExecutor::steps(QUICK), next, &courier, |engine| engine, build);
    let posts = courier.until(first.len() + 4).await;
    let again: Vec<_> =
        posts[first.len()..].iter().map(|post| post.header("webhook-id").to_owned()).collect();
    assert!(again.iter().any(|id| id == first[0].header("webhook-id")), "{again:?}");
    let mut ids: Vec<_> = posts.iter().map(|post| post.header("webhook-id").to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "every event");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_costs_no_delivery() {
    let courier = ScriptedCourier::new(taken);
    let (harness, _push) = Harness::pushing(
        ScriptedExecutor::steps(QUICK),
        FailingStore::waiting(MemoryStore::default()),
        &courier,
        |engine| engine,
        |builder, push| builder.push(push, options()),
    );
    for _ in 0..20 {
        harness.task(Say::from("hi").push(URL)).await.unwrap();
    }
    harness.store.take_down(true);
    tokio::time::sleep(secs(30)).await;
    harness.store.take_down(false);
    courier.until(80).await;
    tokio::time::sleep(secs(10)).await;
    let states = states(&harness).await;
    assert!(states.len() == 80 && states.iter().all(|(_, state, _)| *state == DeliveryState::Delivered));
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_go_of_what_it_cannot_finish() {
    let (harness, courier, push) = agent(QUICK, |_| Reaction::Hang);
    harness.task(Say::from("hi").push(URL)).await.unwrap();
    courier.until(1).await;
    push.drain(secs(2)).await;
    assert_eq!((push.in_hand(), courier.posts().len()), (0, 1));
    let (page, _) =
        harness.store.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await.unwrap();
    assert!(
        page.iter().all(|one| one.state == DeliveryState::Pending && one.due.is_some()),
        "free for the next"
    );
}
