//! Webhooks through a hub, from every wire to every wire: in both modes it is the hub that callers register them with
//! and hear of, over real sockets.

use nuncio_client::{Client, Receiver};
use nuncio_hub::config::Mode;
use nuncio_protocol::{
    Binding, DeleteTaskPushNotificationConfigRequest, ErrorKind, Event, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, Message, Part, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, Task, TaskId, TaskPushNotificationConfig, TaskState, Timestamp, Version, fold,
};
use nuncio_tests::{
    between::{Between, Relation, upstream},
    webhook::Webhook,
    within,
};

const TOKEN: &str = "t0ken";

fn wires() -> impl Iterator<Item = (Binding, Version)> {
    Binding::ALL.iter().flat_map(|binding| Version::ALL.iter().map(|version| (*binding, *version)))
}

/// Does this with a hub before an agent, for each wire to that.
async fn with_each(mode: Mode, does: impl AsyncFn(&Between)) {
    let echo = Between::echo().await;
    for (binding, version) in wires() {
        let hub = Between::before(upstream(&echo.url, Relation { mode, binding, version }), true).await;
        does(&hub).await;
    }
}

/// A task that is done, begun along with this webhook.
async fn sent(client: &Client, webhook: Option<TaskPushNotificationConfig>) -> Task {
    let configuration = SendMessageConfiguration { task_push_notification_config: webhook, ..<_>::default() };
    let message = Message::user("m-1", Part::text("hello"));
    let req = SendMessageRequest { message, configuration: Some(configuration), ..<_>::default() };
    match within("the answer", client.send(req)).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

fn webhook(url: &str) -> TaskPushNotificationConfig {
    let (id, token) = (Some("w-1".into()), Some(TOKEN.to_owned()));
    TaskPushNotificationConfig { id, url: url.to_owned(), token, ..TaskPushNotificationConfig::default() }
}

/// REQ-110, REQ-161, REQ-173, trap T-43: in the version of whoever made it, whatever the agent speaks.
async fn is_told(mode: Mode) {
    with_each(mode, async |hub| {
        for (number, (binding, version)) in wires().enumerate() {
            let caller = format!("caller-{number}");
            let client = hub.client(binding, version, Some(&caller)).await;
            let mut receiver = Webhook::open(Receiver::builder().token(TOKEN)).await;
            let done = sent(&client, Some(webhook(&receiver.url))).await;
            let mut told = Task { id: done.id.clone(), context_id: done.context_id, ..Task::default() };
            while told.status.state != TaskState::Completed {
                let notification = receiver.next().await;
                assert_eq!(notification.version, version, "{binding:?}");
                match notification.event {
                    Event::Task(task) => told = task,
                    event => fold(&mut told, &event, Timestamp::EPOCH).unwrap(),
                }
            }
            assert_eq!((&told.id, &told.artifacts), (&done.id, &done.artifacts), "{binding:?} {version:?}");
        }
    })
    .await;
}

/// REQ-154 to REQ-159: what callers gave is what they are told, whatever the agent was given; and nobody else is.
async fn is_made_told_and_deleted(mode: Mode) {
    with_each(mode, async |hub| {
        for (number, (binding, version)) in wires().enumerate() {
            let client = hub.client(binding, version, Some(&format!("caller-{number}"))).await;
            let other = hub.client(binding, version, Some(&format!("other-{number}"))).await;
            let (service, cx) = (client.service(), client.context());
            let task_id = sent(&client, None).await.id;
            let wanted = TaskPushNotificationConfig {
                task_id: Some(task_id.clone()),
                ..webhook("http://receiver.example/hook")
            };
            let made = service.create_task_push_notification_config(&cx, wanted.clone()).await.unwrap();
            assert_eq!(made, wanted, "{binding:?} {version:?}");
            let get = of(&task_id);
            assert_eq!(service.get_task_push_notification_config(&cx, get.clone()).await.unwrap(), wanted);
            let list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..<_>::default() };
            let listed = service.list_task_push_notification_configs(&cx, list).await.unwrap();
            assert_eq!(listed.configs, [wanted]);
            let foreign = other.service().get_task_push_notification_config(&cx, get.clone()).await;
            assert_eq!(foreign.unwrap_err().kind(), ErrorKind::TaskNotFound);
            let delete = DeleteTaskPushNotificationConfigRequest { task_id, id: "w-1".into(), tenant: None };
            service.delete_task_push_notification_config(&cx, delete).await.unwrap();
            let gone = service.get_task_push_notification_config(&cx, get).await.unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::TaskNotFound);
        }
    })
    .await;
}

fn of(task_id: &TaskId) -> GetTaskPushNotificationConfigRequest {
    GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "w-1".into(), tenant: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_a_durable_task_is_told_what_happens() {
    is_told(Mode::Durable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_a_proxied_task_is_told_what_happens() {
    is_told(Mode::Proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_a_durable_task_is_made_told_and_deleted() {
    is_made_told_and_deleted(Mode::Durable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_a_proxied_task_is_made_told_and_deleted() {
    is_made_told_and_deleted(Mode::Proxy).await;
}
