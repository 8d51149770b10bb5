//! Agents: one that a key is not for is one that nobody has.

use nuncio_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, Message, Part, SendMessageRequest,
    SubscribeToTaskRequest, TaskPushNotificationConfig, Version, op::Call,
};

use crate::{
    Running,
    wire::{WIRES, Wire, get},
};

/// There, and not for the key; and not there. The names are of the same length.
const HIDDEN: &str = "slow";
const NOBODY: &str = "none";

fn calls() -> Vec<Call> {
    let send = || {
        Box::new(SendMessageRequest { message: Message::user("m", [Part::text("1")]), ..Default::default() })
    };
    vec![
        Call::SendMessage(send()),
        Call::SendStreamingMessage(send()),
        Call::GetTask(Box::new(GetTaskRequest { id: "t".into(), ..Default::default() })),
        Call::ListTasks(Box::default()),
        Call::CancelTask(Box::new(CancelTaskRequest { id: "t".into(), ..Default::default() })),
        Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id: "t".into(), ..Default::default() })),
        Call::CreateTaskPushNotificationConfig(Box::new(TaskPushNotificationConfig {
            task_id: Some("t".into()),
            url: "http://127.0.0.1:64999".to_owned(),
            ..Default::default()
        })),
        Call::GetTaskPushNotificationConfig(Box::new(GetTaskPushNotificationConfigRequest {
            task_id: "t".into(),
            id: "c".into(),
            ..Default::default()
        })),
        Call::ListTaskPushNotificationConfigs(Box::new(ListTaskPushNotificationConfigsRequest {
            task_id: "t".into(),
            ..Default::default()
        })),
        Call::GetExtendedAgentCard(Box::default()),
        Call::DeleteTaskPushNotificationConfig(Box::new(DeleteTaskPushNotificationConfigRequest {
            task_id: "t".into(),
            id: "c".into(),
            ..Default::default()
        })),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_not_for_you_is_an_agent_of_nobody() {
    let hub = Running::start(|_| {}).await;
    let key = hub.key("team-a", Some(&["echo"])).await;
    let mut compared = 0;
    for wire in WIRES {
        // Without a name it is the default agent that is called, which is for this key.
        if wire == Wire::Grpc(Version::V0_3) {
            continue;
        }
        for (hidden, nobody) in calls().into_iter().zip(calls()) {
            let op = hidden.op();
            // With a key and without one.
            for key in [Some(&*key), None] {
                let Some(hidden) = wire.call(&hub, HIDDEN, key, hidden.clone()).await else { continue };
                let nobody =
                    wire.call(&hub, NOBODY, key, nobody.clone()).await.unwrap().renamed(NOBODY, HIDDEN);
                assert_eq!(hidden.text(), nobody.text(), "{wire:?} {op:?}");
                assert!(!hidden.is_ok(), "{wire:?} {op:?}: {}", hidden.text());
                compared += 1;
            }
        }
    }
    assert!(compared >= 90, "{compared}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cards_and_the_list_show_what_is_yours() {
    let hub = Running::start(|_| {}).await;
    let key = hub.key("team-a", Some(&["echo"])).await;
    for below in [
        "",
        "/",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/extendedAgentCard",
        "/upstream-card",
        "/x",
    ] {
        for key in [Some(&*key), None] {
            let path = |name: &str| format!("/agents/{name}{below}");
            let hidden = get(&hub, &path(HIDDEN), key).await;
            let nobody = get(&hub, &path(NOBODY), key).await.renamed(NOBODY, HIDDEN);
            assert_eq!(hidden.text(), nobody.text(), "{below:?}");
            assert_eq!(hidden.status, if key.is_some() { 404 } else { 401 }, "{below:?}");
        }
    }
    let list = get(&hub, "/agents", Some(&key)).await;
    let json: serde_json::Value = serde_json::from_slice(&list.body).unwrap();
    let names: Vec<_> = json["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["echo"]);
    let card = get(&hub, "/agents/echo/.well-known/agent-card.json", Some(&key)).await;
    assert_eq!(card.status, 200, "{}", card.text());
    let header = |name| std::str::from_utf8(&card.headers[name]).unwrap();
    assert_eq!(header("cache-control"), "private, max-age=300", "a cache would show it to others");
    assert!(header("vary").contains("x-api-key"), "{}", header("vary"));
}
