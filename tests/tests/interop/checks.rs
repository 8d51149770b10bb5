//! The checks of our client against an agent of the contract in `tests/peers/README.md`.

use std::time::Duration;

use nuncio_client::{Client, Receiver};
use nuncio_protocol::{
    DeleteTaskPushNotificationConfigRequest, ErrorKind, Event, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskPushNotificationConfig, TaskState, Timestamp, Version,
    fold,
};
use nuncio_tests::{next, rest, webhook::Webhook, within};
use serde_json::json;
use tokio::time::timeout;

use crate::quirks::Quirk;

/// The time after which a stream counts as open: a 0.3 server may send nothing, and the Go 0.3 server not even the head
/// of its answer, before something happens.
const SUBSCRIBED_AFTER: Duration = Duration::from_millis(1750);

/// Runs every check, with the known quirks of the server.
pub(crate) async fn all_checks(client: &Client, quirks: &[Quirk]) {
    send_get_and_list(client).await;
    stream(client).await;
    ask_and_answer(client).await;
    direct_message(client).await;
    parts(client, quirks).await;
    file(client, quirks).await;
    cancel(client, quirks).await;
    subscribe(client).await;
    refusals(client, quirks).await;
    webhooks(client, quirks).await;
    notified(client).await;
}

fn text_of(task: &Task) -> String {
    task.artifacts.iter().map(|artifact| artifact.text()).collect()
}

async fn task(client: &Client, req: impl Into<nuncio_client::Outgoing>) -> Task {
    match within("the answer", client.send(req)).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

async fn send_get_and_list(client: &Client) {
    let sent = task(client, Message::user("m-1", Part::text("hello"))).await;
    assert_eq!(sent.status.state, TaskState::Completed);
    assert_eq!(text_of(&sent), "hello");
    assert!(sent.history.iter().any(|m| m.message_id.as_str() == "m-1" && m.role == Role::User), "{sent:?}");
    let got = client.get(sent.id.clone()).await.unwrap();
    assert_eq!((&got.id, &got.context_id, &got.artifacts), (&sent.id, &sent.context_id, &sent.artifacts));

    let in_context = ListTasksRequest { context_id: Some(sent.context_id.clone()), ..<_>::default() };
    match (client.version(), client.list(in_context).await) {
        (Version::V1_0, page) => {
            let page = page.unwrap();
            assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&sent.id]);
            assert_eq!(page.total_size, 1);
        }
        (Version::V0_3, refused) => assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedOperation),
    }
}

async fn stream(client: &Client) {
    let events = rest(client.stream("hello").await.unwrap()).await;
    let Event::Task(first) = &**events[0].event() else { panic!("expected the task first, got {events:?}") };
    let mut folded = first.clone();
    let mut states = vec![folded.status.state];
    for item in &events[1..] {
        fold(&mut folded, item.event(), Timestamp::EPOCH).unwrap();
        states.push(folded.status.state);
    }
    states.dedup();
    assert_eq!(states, [TaskState::Submitted, TaskState::Working, TaskState::Completed]);
    assert_eq!(text_of(&folded), "hello");
    let got = client.get(folded.id.clone()).await.unwrap();
    assert_eq!(folded.artifacts, got.artifacts, "what we put together is what they have");
}

async fn ask_and_answer(client: &Client) {
    let asked = task(client, "ask").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    assert_eq!(asked.status.message.as_ref().unwrap().text(), "What shall I echo?");
    let SendMessageResponse::Task(done) = client.reply(&asked, "answer").await.unwrap() else {
        panic!("once there is a task, it is the answer")
    };
    assert_eq!((&done.id, done.status.state), (&asked.id, TaskState::Completed));
    assert_eq!(text_of(&done), "answer");

    let events = rest(client.stream("ask").await.unwrap()).await;
    let last = events.last().unwrap().event().status().unwrap().state;
    assert_eq!(last, TaskState::InputRequired, "a stream that ends with a question has not broken");
}

async fn direct_message(client: &Client) {
    let reply = client.send("message hello").await.unwrap();
    let SendMessageResponse::Message(reply) = reply else { panic!("expected a message, got {reply:?}") };
    assert_eq!((reply.role, &*reply.text()), (Role::Agent, "message hello"));
    let events = rest(client.stream("message hello").await.unwrap()).await;
    let [only] = &*events else { panic!("expected one event, got {events:?}") };
    assert!(matches!(&**only.event(), Event::Message(reply) if reply.text() == "message hello"));
}

/// REQ-203: what we send is what they keep.
async fn parts(client: &Client, quirks: &[Quirk]) {
    let nothing = if quirks.contains(&Quirk::NoNull) { json!(false) } else { json!(null) };
    let url = Part::url("https://files.example/a.txt").with_media_type("text/plain");
    let parts = vec![
        Part::text("hello"),
        // No whole numbers: the Python 1.x SDK keeps data as protobuf, where 1 becomes 1.0 (trap T-31).
        Part::data(json!({"n": 1.5, "deep": {"list": [0.25, "two", true, nothing]}})),
        named(url, "a.txt", quirks),
        new_file(quirks),
    ];
    let done = task(client, Message::user("m-3", parts.clone())).await;
    let kept = done.history.iter().find(|message| message.message_id.as_str() == "m-3").unwrap();
    assert_eq!(kept.parts, parts);
}

fn named(part: Part, name: &str, quirks: &[Quirk]) -> Part {
    if quirks.contains(&Quirk::NoFileNames) { part } else { part.with_filename(name) }
}

/// A file with each byte once, so that it is not UTF-8.
fn new_file(quirks: &[Quirk]) -> Part {
    let bytes = Part::raw((0..=255).collect::<Vec<u8>>()).with_media_type("application/octet-stream");
    named(bytes, "all.bin", quirks)
}

/// A file whose bytes the agent has counted: an echo alone would hide an encoding that both sides undo.
async fn file(client: &Client, quirks: &[Quirk]) {
    let file = new_file(quirks);
    let done = task(client, Message::user("m-7", vec![Part::text("file"), file.clone()])).await;
    assert_eq!(text_of(&done), "256", "the number of bytes that the agent has read");
    assert_eq!(done.artifacts[0].parts[1..], [file]);
}

async fn hold(client: &Client) -> Task {
    let configuration = SendMessageConfiguration { return_immediately: true, ..<_>::default() };
    let message = Message::user("m-4", Part::text("hold"));
    let req = SendMessageRequest { message, configuration: Some(configuration), ..<_>::default() };
    let held = task(client, req).await;
    assert!(matches!(held.status.state, TaskState::Submitted | TaskState::Working), "{held:?}");
    held
}

async fn cancel(client: &Client, quirks: &[Quirk]) {
    let held = hold(client).await;
    let canceled = client.cancel(held.id.clone()).await.unwrap();
    assert_eq!((&canceled.id, canceled.status.state), (&held.id, TaskState::Canceled));
    assert_eq!(client.get(held.id.clone()).await.unwrap().status.state, TaskState::Canceled);
    let again = client.cancel(held.id).await;
    if quirks.contains(&Quirk::CancelsTwice) {
        assert_eq!(again.unwrap().status.state, TaskState::Canceled);
        return;
    }
    match again.unwrap_err().kind() {
        ErrorKind::TaskNotCancelable => {}
        ErrorKind::UnsupportedOperation if quirks.contains(&Quirk::VagueErrors) => {}
        other => panic!("expected that the task cannot be canceled, got {other:?}"),
    }
}

async fn subscribe(client: &Client) {
    let held = hold(client).await;
    let mut opening = Box::pin(client.subscribe(held.id.clone()));
    let opened = timeout(SUBSCRIBED_AFTER, &mut opening).await;
    let mut seen = Vec::new();
    let events = match (client.version(), opened) {
        (Version::V1_0, opened) => {
            // The snapshot comes first since 1.0.
            let mut events = opened.unwrap().unwrap();
            seen.push(next(&mut events).await);
            assert!(matches!(&**seen[0].event(), Event::Task(task) if task.id == held.id));
            client.cancel(held.id).await.unwrap();
            events
        }
        (Version::V0_3, opened) => {
            client.cancel(held.id).await.unwrap();
            match opened {
                Ok(events) => events.unwrap(),
                Err(_) => within("the stream", opening).await.unwrap(),
            }
        }
    };
    seen.extend(rest(events).await);
    let last = seen.last().and_then(|item| item.event().status()).unwrap();
    assert_eq!(last.state, TaskState::Canceled);
}

async fn refusals(client: &Client, quirks: &[Quirk]) {
    let unknown = "00000000-0000-4000-8000-000000000000";
    assert_eq!(client.get(unknown).await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(client.cancel(unknown).await.unwrap_err().kind(), ErrorKind::TaskNotFound);

    let done = task(client, "hello").await;
    let more = Message {
        task_id: Some(done.id),
        context_id: Some(done.context_id),
        ..Message::user("m-5", Part::text("more"))
    };
    let error = client.send(more).await.unwrap_err();
    // 0.3 leaves open which error; it must be one of the agent, not of the way to it.
    match client.version() {
        Version::V1_0 if quirks.contains(&Quirk::FinishedIsInvalid) => {
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
        }
        Version::V1_0 => assert_eq!(error.kind(), ErrorKind::UnsupportedOperation),
        Version::V0_3 => assert_ne!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
}

const TOKEN: &str = "t0ken";

async fn webhooks(client: &Client, quirks: &[Quirk]) {
    let (service, cx) = (client.service(), client.context());
    let task_id = task(client, Message::user("m-5", Part::text("hello"))).await.id;
    let wanted = TaskPushNotificationConfig {
        id: Some("w-1".into()),
        task_id: Some(task_id.clone()),
        url: "http://receiver.example/hook".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let same = |told: &TaskPushNotificationConfig| {
        assert_eq!((&told.id, &told.task_id, &told.url), (&wanted.id, &wanted.task_id, &wanted.url));
    };
    let made = service.create_task_push_notification_config(&cx, wanted.clone()).await;
    if quirks.contains(&Quirk::NoCreate) {
        made.unwrap_err();
        return;
    }
    same(&made.unwrap());
    let get =
        GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "w-1".into(), tenant: None };
    same(&service.get_task_push_notification_config(&cx, get.clone()).await.unwrap());
    let list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..<_>::default() };
    let listed = service.list_task_push_notification_configs(&cx, list).await;
    if quirks.contains(&Quirk::NoList) {
        listed.unwrap_err();
    } else {
        let [told] = &listed.unwrap().configs[..] else { panic!("expected one webhook") };
        same(told);
    }
    let delete = DeleteTaskPushNotificationConfigRequest { task_id, id: "w-1".into(), tenant: None };
    let deleted = service.delete_task_push_notification_config(&cx, delete).await;
    if quirks.contains(&Quirk::NoDelete) {
        deleted.unwrap_err();
        return;
    }
    deleted.unwrap();
    service.get_task_push_notification_config(&cx, get).await.unwrap_err();
}

/// REQ-169 to REQ-171: our receiver takes what they send.
async fn notified(client: &Client) {
    let mut webhook = Webhook::open(Receiver::builder().token(TOKEN)).await;
    let config = TaskPushNotificationConfig {
        id: Some("w-1".into()),
        url: webhook.url.clone(),
        token: Some(TOKEN.to_owned()),
        ..TaskPushNotificationConfig::default()
    };
    let configuration =
        SendMessageConfiguration { task_push_notification_config: Some(config), ..<_>::default() };
    let message = Message::user("m-6", Part::text("hello"));
    let req = SendMessageRequest { message, configuration: Some(configuration), ..<_>::default() };
    let done = task(client, req).await;
    let mut told = Task { id: done.id.clone(), context_id: done.context_id.clone(), ..Task::default() };
    while told.status.state != TaskState::Completed {
        match webhook.next().await.event {
            Event::Task(task) => told = task,
            event => fold(&mut told, &event, Timestamp::EPOCH).unwrap(),
        }
    }
    assert_eq!((&told.id, text_of(&told)), (&done.id, "hello".to_owned()));
}
