//! Webhooks: made, told, replaced and deleted, and what comes to them.

use http::header::AUTHORIZATION;
use nuncio_client::Receiver;
use nuncio_protocol::{
    AuthenticationInfo, Binding, CallContext, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    Event, GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, Part, Result, SendMessageRequest, SendMessageResponse, Task,
    TaskId, TaskPushNotificationConfig, TaskState, Timestamp, Version, fold,
};
use nuncio_server::{store::MAX_WEBHOOKS, testing::courier::Post};
use nuncio_tests::{
    rest,
    transcript::Transcript,
    within,
    world::{By, Party, Way, World, refusal, say, say_to},
};
use serde_json::json;

const TOKEN: &str = "t0ken";

/// A webhook of this name, with all that it can have.
fn webhook(id: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: Some(id.into()),
        url: format!("http://{id}.example/hook"),
        token: Some(TOKEN.to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    }
}

/// The webhook of a task.
fn of(task: &TaskId, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig { task_id: Some(task.clone()), ..config }
}

/// The webhook as it is told afterwards.
fn told(mut config: TaskPushNotificationConfig) -> TaskPushNotificationConfig {
    config.authentication.as_mut().unwrap().credentials = None;
    config
}

/// A message along with a webhook.
fn with(mut req: SendMessageRequest, config: TaskPushNotificationConfig) -> SendMessageRequest {
    req.configuration.get_or_insert_default().task_push_notification_config = Some(config);
    req
}

async fn create(party: &Party, config: TaskPushNotificationConfig) -> Result<TaskPushNotificationConfig> {
    within("the webhook", party.service.create_task_push_notification_config(&party.cx(), config)).await
}

async fn get(party: &Party, task: &TaskId, id: &str) -> Result<TaskPushNotificationConfig> {
    let req = GetTaskPushNotificationConfigRequest { task_id: task.clone(), id: id.into(), tenant: None };
    within("the webhook", party.service.get_task_push_notification_config(&party.cx(), req)).await
}

async fn page(
    party: &Party,
    req: ListTaskPushNotificationConfigsRequest,
) -> Result<ListTaskPushNotificationConfigsResponse> {
    within("the webhooks", party.service.list_task_push_notification_configs(&party.cx(), req)).await
}

async fn list(party: &Party, task: &TaskId) -> Result<Vec<TaskPushNotificationConfig>> {
    let req = ListTaskPushNotificationConfigsRequest { task_id: task.clone(), ..<_>::default() };
    let page = page(party, req).await?;
    assert_eq!(page.next_page_token, "", "all are on one page");
    Ok(page.configs)
}

async fn delete(party: &Party, task: &TaskId, id: &str) -> Result<()> {
    let req = DeleteTaskPushNotificationConfigRequest { task_id: task.clone(), id: id.into(), tenant: None };
    within("the end of the webhook", party.service.delete_task_push_notification_config(&party.cx(), req))
        .await
}

/// REQ-154, REQ-156, REQ-158; product: credentials are told to the one who gave them, once.
pub(crate) async fn a_webhook_is_made_told_and_replaced(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let (alice, task) = (&world.alice, world.alice.task(say("m-1", "ask Which?")).await.id);
    let wanted = of(&task, webhook("w-1"));
    let made = create(alice, wanted.clone()).await.unwrap();
    assert_eq!(made, wanted, "what was given");
    let (got, listed) = (get(alice, &task, "w-1").await.unwrap(), list(alice, &task).await.unwrap());
    assert_eq!(got, told(wanted));
    assert_eq!(listed, std::slice::from_ref(&got));
    seen.note("made", &json!([made, got, listed]));

    let url = "http://other.example/?a=b#c".to_owned();
    let other = of(&task, TaskPushNotificationConfig { id: Some("w-1".into()), url, ..<_>::default() });
    assert_eq!(create(alice, other.clone()).await.unwrap(), other);
    assert_eq!(get(alice, &task, "w-1").await.unwrap(), other, "nothing of the old one is left");
    assert_eq!(list(alice, &task).await.unwrap(), [other]);

    // An id is any text (but `..`, to which no address leads), and part of an address in REST and of a name in
    // the proto of 0.3.
    for strange in ["a/b", "ä ö?#%2F", "tasks/t/pushNotificationConfigs/c", ":cancel"] {
        let url = "http://other.example/".to_owned();
        let config = TaskPushNotificationConfig { id: Some(strange.into()), url, ..<_>::default() };
        let made = create(alice, of(&task, config)).await.unwrap();
        assert_eq!(made.id.as_ref().unwrap().as_str(), strange);
        assert_eq!(get(alice, &task, strange).await.unwrap(), made);
        delete(alice, &task, strange).await.unwrap();
        get(alice, &task, strange).await.unwrap_err();
    }

    // A task that is over takes one, too, and tells it.
    let done = alice.task(say("m-2", "completed")).await.id;
    let late = of(&done, webhook("w-2"));
    assert_eq!(create(alice, late.clone()).await.unwrap(), late);
    assert_eq!(list(alice, &done).await.unwrap(), [told(late)]);
    assert_eq!(list(alice, &task).await.unwrap().len(), 1, "each task has its own");
    seen
}

/// REQ-154, trap T-19. What the id is differs: see [`without_an_id_0_3_calls_it_by_its_task`].
pub(crate) async fn a_webhook_without_an_id_gets_one(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let alice = &world.alice;
    let nameless = TaskPushNotificationConfig { id: None, ..webhook("w-1") };
    let task = alice.task(with(say("m-1", "ask Which?"), nameless.clone())).await.id;
    let [inline] = &list(alice, &task).await.unwrap()[..] else { panic!("expected one webhook") };
    let inline = inline.clone();
    assert!(inline.id.as_ref().is_some_and(|id| !id.as_str().is_empty()), "{inline:?}");
    assert_eq!(get(alice, &task, inline.id.as_ref().unwrap().as_str()).await.unwrap(), inline);
    seen.note("inline", &TaskPushNotificationConfig { id: None, ..inline });
    let other = alice.task(say("m-2", "ask Which?")).await.id;
    let made = create(alice, of(&other, nameless)).await.unwrap();
    assert!(made.id.as_ref().is_some_and(|id| !id.as_str().is_empty()), "{made:?}");
    assert_eq!(list(alice, &other).await.unwrap(), [told(made.clone())]);
    seen.note("made", &TaskPushNotificationConfig { id: None, ..made });
    seen
}

/// REQ-158; product: so many, and no more.
pub(crate) async fn a_task_has_several_webhooks(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let (alice, task) = (&world.alice, world.alice.task(say("m-1", "ask Which?")).await);
    assert_eq!(list(alice, &task.id).await.unwrap(), []);
    for number in (0..MAX_WEBHOOKS).rev() {
        create(alice, of(&task.id, webhook(&format!("w-{number}")))).await.unwrap();
    }
    let listed = list(alice, &task.id).await.unwrap();
    assert_eq!(listed.len(), MAX_WEBHOOKS);
    seen.note("webhooks", &listed);
    let too_many = [
        create(alice, of(&task.id, webhook("another"))).await.unwrap_err(),
        alice.refused(with(say_to(&task, "m-2", "completed"), webhook("another"))).await,
    ];
    for error in too_many {
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        seen.error("too many", &error);
    }
    create(alice, of(&task.id, webhook("w-0"))).await.unwrap();
    delete(alice, &task.id, "w-0").await.unwrap();
    create(alice, of(&task.id, webhook("another"))).await.unwrap();
    seen
}

/// Product: a send that comes again finds its task, and has made one webhook.
pub(crate) async fn a_repeated_send_makes_one_webhook(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let nameless = TaskPushNotificationConfig { id: None, ..webhook("w-1") };
    let req = with(say("m-1", "ask Which?"), nameless);
    let send = async |req: SendMessageRequest| {
        let cx = CallContext { idempotency_key: Some("key".to_owned()), ..world.alice.cx() };
        within("the answer", world.alice.service.send_message(&cx, req)).await
    };
    let first = send(req.clone()).await.unwrap();
    assert_eq!(send(req).await.unwrap(), first);
    let SendMessageResponse::Task(task) = first else { panic!("expected a task, got {first:?}") };
    assert_eq!(list(&world.alice, &task.id).await.unwrap().len(), 1);
    world.posts(2).await;
    let other = send(with(say("m-1", "ask Which?"), webhook("w-2"))).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::InvalidParams, "another webhook is another request");
    seen.error("other", &other);
    seen
}

/// REQ-158: a page for each, without gaps and doubles. 0.3 has no pages.
pub(crate) async fn webhooks_come_in_pages(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let (alice, task_id) = (&world.alice, world.alice.task(say("m-1", "ask Which?")).await.id);
    for id in ["w-5", "w-4", "w-3", "w-2", "w-1"] {
        create(alice, of(&task_id, webhook(id))).await.unwrap();
    }
    let mut req = ListTaskPushNotificationConfigsRequest { task_id, page_size: 2, ..<_>::default() };
    let (mut sizes, mut ids) = (Vec::new(), Vec::new());
    loop {
        let page = page(alice, req.clone()).await.unwrap();
        sizes.push(page.configs.len());
        ids.extend(page.configs.into_iter().filter_map(|config| config.id));
        if page.next_page_token.is_empty() {
            break;
        }
        req.page_token = Some(page.next_page_token);
    }
    assert_eq!(sizes, [2, 2, 1]);
    seen.note("ids", &ids);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    for (wrong, field) in [
        (ListTaskPushNotificationConfigsRequest { page_size: -1, ..req.clone() }, "pageSize"),
        (ListTaskPushNotificationConfigsRequest { page_token: Some("?".to_owned()), ..req }, "pageToken"),
    ] {
        let error = page(alice, wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert_eq!(error.violations()[0].field, field);
        seen.error(field, &error);
    }
    seen
}

/// REQ-157, REQ-159, REQ-160, trap T-19.
pub(crate) async fn a_webhook_is_deleted_and_hears_no_more(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let (alice, task) = (&world.alice, world.alice.task(say("m-1", "ask Which?")).await);
    for id in ["gone", "stays"] {
        create(alice, of(&task.id, webhook(id))).await.unwrap();
    }
    for _ in 0..2 {
        delete(alice, &task.id, "gone").await.unwrap();
        let error = get(alice, &task.id, "gone").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TaskNotFound);
        assert_eq!(
            (error.metadata()["taskId"].as_str(), &*error.metadata()["configId"]),
            (task.id.as_str(), "gone")
        );
        seen.error("gone", &error);
    }
    delete(alice, &task.id, "never was").await.unwrap();
    seen.note("left", &list(alice, &task.id).await.unwrap());
    // What it would hear comes to the other.
    alice.task(say_to(&task, "m-2", "completed")).await;
    for post in world.posts(1).await {
        assert_eq!(post.url, "http://stays.example/hook");
    }
    seen
}

/// The answer of each operation on a webhook.
async fn errors(party: &Party, task: &TaskId) -> Vec<(&'static str, Error)> {
    let mut follow_up = with(say("m-2", "completed"), webhook("w-2"));
    follow_up.message.task_id = Some(task.clone());
    // Not even a wrong one is told from a right one.
    let wrong = TaskPushNotificationConfig { url: "https://refused.example/".to_owned(), ..webhook("w-2") };
    vec![
        ("create", create(party, of(task, webhook("w-2"))).await.unwrap_err()),
        ("create wrong", create(party, of(task, wrong)).await.unwrap_err()),
        ("get", get(party, task, "w-1").await.unwrap_err()),
        ("get unknown", get(party, task, "w-9").await.unwrap_err()),
        ("list", list(party, task).await.unwrap_err()),
        ("delete", delete(party, task, "w-1").await.unwrap_err()),
        ("send", party.send(follow_up.clone()).await.unwrap_err()),
        ("stream", refusal(party.stream(follow_up).await).await),
    ]
}

/// REQ-155, REQ-157, REQ-086 to REQ-089: code, words and details are the same.
pub(crate) async fn webhooks_of_unknown_and_foreign_tasks_are_told_alike(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let hers = world.alice.task(with(say("m-1", "ask Which?"), webhook("w-1"))).await.id;
    let unknown: TaskId = "00000000-0000-7000-8000-000000000000".into();
    for stranger in [&world.bob, &world.nobody] {
        let (foreign, missing) = (errors(stranger, &hers).await, errors(stranger, &unknown).await);
        for ((what, foreign), (_, missing)) in foreign.iter().zip(&missing) {
            assert_eq!(foreign.kind(), ErrorKind::TaskNotFound, "{what}");
            assert_eq!(foreign.message(), missing.message(), "{what}");
            let of_her_id = |details: Vec<serde_json::Value>| {
                serde_json::Value::from(details).to_string().replace(unknown.as_str(), hers.as_str())
            };
            assert_eq!(of_her_id(foreign.details()), of_her_id(missing.details()), "{what}");
            seen.error(what, foreign);
        }
    }
    assert_eq!(list(&world.alice, &hers).await.unwrap(), [told(of(&hers, webhook("w-1")))], "as it was");
    seen
}

/// REQ-168 as far as an address tells; each violation names its field, on its own and along with a message,
/// after which there is no task.
pub(crate) async fn wrong_webhooks_are_refused(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let (alice, task) = (&world.alice, world.alice.task(say("m-1", "ask Which?")).await.id);
    let at = |url: &str| TaskPushNotificationConfig { url: url.to_owned(), ..webhook("w-1") };
    let by = |scheme: &str, credentials: &str| {
        let authentication =
            AuthenticationInfo { scheme: scheme.to_owned(), credentials: Some(credentials.to_owned()) };
        TaskPushNotificationConfig { authentication: Some(authentication), ..webhook("w-1") }
    };
    let long = "x".repeat(9_000);
    for (config, field) in [
        (at(""), "url"),
        (at("no address"), "url"),
        (at("/hook"), "url"),
        (at("https://refused.example/"), "url"),
        (at(&format!("http://{long}.example/")), "url"),
        (TaskPushNotificationConfig { id: Some(long[..257].into()), ..webhook("w-1") }, "id"),
        (TaskPushNotificationConfig { token: Some("a\nb".to_owned()), ..webhook("w-1") }, "token"),
        (TaskPushNotificationConfig { token: Some(long.clone()), ..webhook("w-1") }, "token"),
        (by("Bearer s3cret", "s3cret"), "authentication.scheme"),
        (by("Bearer", "a\r\nb: c"), "authentication.credentials"),
    ] {
        let error = create(alice, of(&task, config.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{field}");
        assert_eq!(error.violations()[0].field, field);
        assert!(!error.to_string().contains("s3cret"), "{error}");
        seen.error(field, &error);
        let inline = format!("configuration.taskPushNotificationConfig.{field}");
        let req = with(say("m-2", "completed"), config);
        for error in [alice.refused(req.clone()).await, refusal(alice.stream(req).await).await] {
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{inline}");
            assert_eq!(error.violations()[0].field, inline);
            seen.error(&inline, &error);
        }
    }
    assert_eq!(list(alice, &task).await.unwrap(), []);
    seen
}

/// The task that a receiver derives from all notifications of a webhook.
async fn read(way: Way, posts: &[Post]) -> Task {
    let receiver = Receiver::builder().token(TOKEN).build().unwrap();
    let mut task = None;
    for (post, number) in posts.iter().zip(1..) {
        assert_eq!(post.header("x-a2a-notification-token"), TOKEN);
        assert_eq!(post.header("a2a-notification-token"), TOKEN);
        assert_eq!(post.header(AUTHORIZATION.as_str()), "Bearer s3cret");
        let body = post.body.to_string();
        let accepted = receiver.accept(&post.headers, body.as_bytes()).await.unwrap();
        accepted.receipt.done();
        let notification = accepted.notification;
        // Trap T-43
        assert_eq!(notification.version, way.version());
        assert_eq!(notification.attempt, Some(1));
        let id = notification.id.unwrap();
        assert!(id.ends_with(&format!("-{number}")), "{id} is not the entry {number}");
        task = Some(match (way.version(), notification.event, task) {
            (_, Event::Task(task), _) => task,
            (Version::V1_0, event, Some(mut task)) => {
                fold(&mut task, &event, Timestamp::EPOCH).unwrap();
                task
            }
            (version, event, _) => panic!("unexpected in {version:?}: {event:?}"),
        });
    }
    task.unwrap()
}

/// REQ-110, REQ-161 to REQ-165, REQ-173: all that happens comes to the webhook, in order, and to it alone:
/// the agent is not shown where.
pub(crate) async fn a_webhook_of_a_message_is_told_what_happens(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let req = with(say("m-1", "working on it; show; completed"), webhook("w-1"));
    let sent = world.alice.task(req.clone()).await;
    let posts = world.posts(4).await;
    assert_eq!(read(way, &posts).await, sent);
    seen.note("sent", &sent);

    let events = rest(world.alice.stream(req).await.unwrap()).await;
    let streamed = world.alice.get(events[0].event().task_id().unwrap()).await.unwrap();
    assert_ne!(streamed.id, sent.id);
    let posts = world.posts(8).await.split_off(4);
    assert_eq!(read(way, &posts).await, streamed);
    seen.events("streamed", &events);
    for task in [&sent, &streamed] {
        let shown = serde_json::to_string(&task.artifacts).unwrap();
        assert!(!shown.contains("w-1.example") && !shown.contains("s3cret"), "{shown}");
    }
    seen
}

/// REQ-110: a message to a task brings a webhook that is told what comes from then on.
pub(crate) async fn a_webhook_of_a_follow_up_is_told_the_rest(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let asked = world.alice.task(say("m-1", "ask Which?")).await;
    let done = world.alice.task(with(say_to(&asked, "m-2", "completed"), webhook("w-1"))).await;
    assert_eq!(done.status.state, TaskState::Completed);
    let posts = world.posts(1).await;
    assert_eq!(posts[0].url, "http://w-1.example/hook");
    assert!(posts[0].body.to_string().contains(done.id.as_str()));
    seen.note("webhooks", &list(&world.alice, &done.id).await.unwrap());
    seen
}

/// A text that grew in pieces comes to a webhook as one part, when it is complete.
pub(crate) async fn a_webhook_is_told_a_text_in_one_part(way: Way) -> Transcript {
    let (world, mut seen) = (World::pushing(way).await, Transcript::default());
    let script = "working; grow a Hel; grow a lo,; grow a world; grown a; completed";
    let sent = world.alice.task(with(say("m-1", script), webhook("w-1"))).await;
    assert_eq!(sent.artifacts[0].parts, [Part::text("Hello,world")]);
    // The task, the status, the text and the end.
    let posts = world.posts(4).await;
    let artifact = match way.version() {
        Version::V1_0 => &posts[2].body["artifactUpdate"]["artifact"],
        Version::V0_3 => &posts[3].body["artifacts"][0],
    };
    assert_eq!(
        (artifact["parts"].as_array().unwrap().len(), &artifact["parts"][0]["text"]),
        (1, &json!("Hello,world"))
    );
    seen.note("sent", &sent);
    seen
}

/// Nature of 0.3: without an id it is called by its task, so that it is found without an id, as in the
/// Python SDK.
pub(crate) async fn without_an_id_0_3_calls_it_by_its_task() {
    for binding in Binding::ALL {
        let way = Way::wire(*binding, Version::V0_3, By::Client);
        let world = World::pushing(way).await;
        let nameless = TaskPushNotificationConfig { id: None, ..webhook("w-1") };
        let inline = world.alice.task(with(say("m-1", "ask Which?"), nameless.clone())).await.id;
        let made = world.alice.task(say("m-2", "ask Which?")).await.id;
        create(&world.alice, of(&made, nameless)).await.unwrap();
        for task in [inline, made] {
            let got = get(&world.alice, &task, task.as_str()).await.unwrap();
            assert_eq!(got.id.unwrap().as_str(), task.as_str(), "{binding:?}");
        }
    }
}

/// REQ-173, trap T-43: whoever made the task, and however it is continued.
pub(crate) async fn each_webhook_is_told_in_the_version_that_made_it() {
    let world = World::pushing(Way::wire(Binding::JsonRpc, Version::V1_0, By::Client)).await;
    let task = world.alice.task(say("m-1", "ask Which?")).await;
    let ways =
        || Binding::ALL.iter().flat_map(|binding| [Version::V1_0, Version::V0_3].map(|v| (*binding, v)));
    for (binding, version) in ways() {
        let alice = world.alice_by(binding, version).await;
        let id = format!("{binding:?}-{}", version.as_str());
        create(&alice, of(&task.id, webhook(&id))).await.unwrap();
    }
    // Everybody sees all of them.
    for (binding, version) in ways() {
        let alice = world.alice_by(binding, version).await;
        assert_eq!(list(&alice, &task.id).await.unwrap().len(), 6, "{binding:?} {version:?}");
    }
    world.alice.task(say_to(&task, "m-2", "completed")).await;
    for post in world.posts(6).await {
        let (kind, body) = (post.header("content-type"), &post.body);
        let state = if post.url.contains("-0.3.") {
            assert_eq!((kind, post.header("a2a-version")), ("application/json", "0.3"));
            assert_eq!(body["kind"], "task");
            &body["status"]["state"]
        } else {
            assert_eq!((kind, post.header("a2a-version")), ("application/a2a+json", "1.0"));
            &body["statusUpdate"]["status"]["state"]
        };
        assert!(["completed", "TASK_STATE_COMPLETED"].contains(&state.as_str().unwrap()), "{body}");
    }
}
