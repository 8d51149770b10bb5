//! Agents: one that a key is not for is one that nobody has.

use nuncio_hub::config::{Agent, Cards};
use nuncio_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, Message, Part, SendMessageRequest,
    SubscribeToTaskRequest, TaskPushNotificationConfig, Version, op::Call,
};

use serde_json::Value;

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
    let hub = Running::start(|config| config.identity.cards = Cards::Protected).await;
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
    let json: Value = serde_json::from_slice(&list.body).unwrap();
    let names: Vec<_> = json["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["echo"]);
    let card = get(&hub, "/agents/echo/.well-known/agent-card.json", Some(&key)).await;
    assert_eq!(card.status, 200, "{}", card.text());
    let header = |name| std::str::from_utf8(&card.headers[name]).unwrap();
    assert_eq!(header("cache-control"), "private, max-age=300", "a cache would show it to others");
    assert!(header("vary").contains("x-api-key"), "{}", header("vary"));
}

/// Every list of agents, and where the addresses of those stand in it that are listed.
const LISTS: [(&str, &str, &str); 7] = [
    ("/agents", "/agents", "/url"),
    ("/agents?q=agent", "/agents", "/url"),
    ("/agents?q=echo+slow+far", "/agents", "/url"),
    ("/agents?tag=demo", "/agents", "/url"),
    ("/agents?streaming=true&pageSize=1000", "/agents", "/url"),
    ("/.well-known/ai-catalog.json", "/entries", "/identifier"),
    ("/.well-known/api-catalog", "/linkset/0/item", "/href"),
];

/// The agents that each caller sees; `secret` is listed for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_list_shows_what_is_yours_and_is_listed() {
    let far = Running::start(|_| {}).await;
    let hub = Running::before(&far, |config, agent| {
        agent.tags = vec!["demo".to_owned()];
        let secret = Agent { name: "secret".parse().unwrap(), visible: false, ..agent.clone() };
        config.agents.push(secret);
    })
    .await;
    let cases: [(Option<&[&str]>, &[&str]); 5] = [
        (None, &["conformance", "echo", "far", "slow"]),
        (Some(&["echo", "secret"]), &["echo"]),
        (Some(&["far", "slow"]), &["far", "slow"]),
        (Some(&["secret"]), &[]),
        (Some(&["none"]), &[]),
    ];
    for (number, (allowed, seen)) in cases.into_iter().enumerate() {
        let key = hub.key(&format!("team-{number}"), allowed).await;
        for (path, list, address) in LISTS {
            let answer = get(&hub, path, Some(&key)).await;
            let case = format!("{path} for {allowed:?}: {}", answer.text());
            assert_eq!(answer.status, 200, "{case}");
            let json: Value = serde_json::from_slice(&answer.body).unwrap();
            let listed = json.pointer(list).unwrap().as_array().unwrap().iter();
            let url = |agent: &Value| agent.pointer(address).unwrap().as_str().unwrap().to_owned();
            let mut names: Vec<_> =
                listed.map(|agent| url(agent).rsplit('/').next().unwrap().to_owned()).collect();
            names.sort();
            let is_whole = !path.contains("q=");
            assert!(names.iter().all(|name| seen.contains(&&**name)), "{case}");
            assert!(!is_whole || names == seen, "{case}");
            // Nor anywhere else in it, but for the words of those that are there.
            for hidden in ["far", "slow", "secret", "conformance", "echo"] {
                let is_named = case.contains(&format!("/agents/{hidden}"));
                assert_eq!(is_named, names.iter().any(|name| name == hidden), "{hidden} in {case}");
            }
            assert_eq!(answer.headers["cache-control"], b"no-store", "{case}");
            assert_eq!(get(&hub, path, None).await.status, 401, "{path}");
        }
        // Who knows its name, and may, can call it.
        let card = get(&hub, "/agents/secret/.well-known/agent-card.json", Some(&key)).await;
        let may = allowed.is_none_or(|allowed| allowed.contains(&"secret"));
        assert_eq!(card.status, if may { 200 } else { 404 }, "{allowed:?}");
        let wire = Wire::JsonRpc(Version::V1_0);
        let sent = wire.call(&hub, "secret", Some(&key), calls().swap_remove(0)).await.unwrap();
        assert_eq!(sent.is_ok(), may, "{allowed:?}: {}", sent.text());
    }
}
