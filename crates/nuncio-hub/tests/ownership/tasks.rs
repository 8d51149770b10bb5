//! Tasks: what belongs to the other principal is as good as nothing.

use std::{slice::from_ref, time::Instant};

use nuncio_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest, TaskId, TaskPushNotificationConfig,
    Version,
    op::{Call, Op},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    Running, TEST_TIMEOUT,
    wire::{WIRES, Wire},
};

const AGENT: &str = "echo";
const WEBHOOK: &str = "hook";

/// A send that begins a task, or goes on with one.
fn send(task: Option<&TaskId>, text: &str) -> SendMessageRequest {
    let mut message = Message::user("m", [Part::text(text)]);
    message.task_id = task.cloned();
    let configuration = SendMessageConfiguration { return_immediately: true, ..Default::default() };
    SendMessageRequest { message, configuration: Some(configuration), ..Default::default() }
}

/// Every operation that is about a task, for this task.
fn calls(id: &TaskId) -> Vec<Call> {
    let (task_id, hook) = (id.clone(), WEBHOOK.into());
    let url = "http://127.0.0.1:64999/hook".to_owned();
    vec![
        Call::SendMessage(Box::new(send(Some(id), "more"))),
        Call::SendStreamingMessage(Box::new(send(Some(id), "more"))),
        Call::GetTask(Box::new(GetTaskRequest { id: id.clone(), ..Default::default() })),
        Call::CancelTask(Box::new(CancelTaskRequest { id: id.clone(), ..Default::default() })),
        Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id: id.clone(), ..Default::default() })),
        Call::CreateTaskPushNotificationConfig(Box::new(TaskPushNotificationConfig {
            task_id: Some(task_id.clone()),
            id: Some("another".into()),
            url,
            ..Default::default()
        })),
        Call::GetTaskPushNotificationConfig(Box::new(GetTaskPushNotificationConfigRequest {
            task_id: task_id.clone(),
            id: hook,
            ..Default::default()
        })),
        Call::ListTaskPushNotificationConfigs(Box::new(ListTaskPushNotificationConfigsRequest {
            task_id: task_id.clone(),
            ..Default::default()
        })),
        Call::DeleteTaskPushNotificationConfig(Box::new(DeleteTaskPushNotificationConfigRequest {
            task_id,
            id: WEBHOOK.into(),
            ..Default::default()
        })),
    ]
}

/// An id that nobody has, and that looks like this one.
fn nobodys(id: &TaskId) -> TaskId {
    let (rest, last) = id.as_str().split_at(id.as_str().len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" }).into()
}

/// Begins a task that holds, with a webhook; from then on nothing becomes of it by itself.
async fn begin(hub: &Running, key: &str) -> TaskId {
    let wire = Wire::Rest(Version::V1_0);
    let sent =
        wire.call(hub, AGENT, Some(key), Call::SendMessage(Box::new(send(None, "hold")))).await.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&sent.body).unwrap();
    let id: TaskId = json["task"]["id"].as_str().unwrap_or_else(|| panic!("{}", sent.text())).into();
    let hook = TaskPushNotificationConfig {
        task_id: Some(id.clone()),
        id: Some(WEBHOOK.into()),
        url: "http://127.0.0.1:64999/hook".to_owned(),
        ..Default::default()
    };
    let call = Call::CreateTaskPushNotificationConfig(Box::new(hook));
    let made = wire.call(hub, AGENT, Some(key), call).await.unwrap();
    assert!(made.is_ok(), "{}", made.text());
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !seen(hub, key, &id).await[0].contains("TASK_STATE_WORKING") {
        assert!(Instant::now() < deadline, "nobody is at work on it");
    }
    id
}

/// All that its owner can see of a task.
async fn seen(hub: &Running, key: &str, id: &TaskId) -> Vec<String> {
    let mut seen = Vec::new();
    for call in calls(id) {
        if matches!(call.op(), Op::GetTask | Op::ListTaskPushNotificationConfigs) {
            let answer = Wire::Rest(Version::V1_0).call(hub, AGENT, Some(key), call).await.unwrap();
            assert!(answer.is_ok(), "{}", answer.text());
            seen.push(answer.text());
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_another_is_the_task_of_nobody() {
    let hub = Running::start(|_| {}).await;
    let (alice, bob) = (hub.key("alice", None).await, hub.key("bob", None).await);
    let task = begin(&hub, &alice).await;
    let nothing = nobodys(&task);
    let before = seen(&hub, &alice, &task).await;
    let mut compared = 0;
    for wire in WIRES {
        for (foreign, unknown) in calls(&task).into_iter().zip(calls(&nothing)) {
            let op = foreign.op();
            let Some(foreign) = wire.call(&hub, AGENT, Some(&bob), foreign).await else { continue };
            let unknown = wire.call(&hub, AGENT, Some(&bob), unknown).await.unwrap();
            let unknown = unknown.renamed(nothing.as_str(), task.as_str());
            assert_eq!(foreign.text(), unknown.text(), "{wire:?} {op:?}");
            assert!(!foreign.is_ok(), "{wire:?} {op:?}: {}", foreign.text());
            compared += 1;
        }
    }
    assert!(compared >= 45, "{compared} of 54: some wires lack an operation or two");
    assert_eq!(seen(&hub, &alice, &task).await, before, "and nothing has become of it");
}

/// Two callers never notice each other, for any calls in any order over any wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_notices_the_other_whatever_they_do() {
    let hub = Running::start(|_| {}).await;
    let keys = [hub.key("alice", None).await, hub.key("bob", None).await];
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut tasks: [Vec<TaskId>; 2] =
            [vec![begin(&hub, &keys[0]).await], vec![begin(&hub, &keys[1]).await]];
        for step in 0..40 {
            let who = random.random_range(0..2_usize);
            let wire = WIRES[random.random_range(0..WIRES.len())];
            let case = format!("seed {seed}, step {step}, {wire:?}");
            match random.random_range(0..4) {
                0 => tasks[who].push(begin(&hub, &keys[who]).await),
                1 => list(&hub, wire, &keys[who], &tasks[who], &tasks[1 - who], &case).await,
                _ => {
                    let theirs = &tasks[1 - who];
                    let task = &theirs[random.random_range(0..theirs.len())];
                    let op = random.random_range(0..calls(task).len());
                    meddle(&hub, wire, &keys, who, task, op, &case).await;
                }
            }
        }
    }
}

/// Asks for one's own tasks, all of them and no others.
async fn list(hub: &Running, wire: Wire, key: &str, own: &[TaskId], theirs: &[TaskId], case: &str) {
    let all = ListTasksRequest { page_size: Some(100), ..Default::default() };
    let Some(answer) = wire.call(hub, AGENT, Some(key), Call::ListTasks(Box::new(all))).await else { return };
    let text = String::from_utf8_lossy(&answer.body);
    for id in own {
        assert!(text.contains(id.as_str()), "{case}: {id} is missing");
    }
    for id in theirs {
        assert!(!text.contains(id.as_str()), "{case}: {id} is somebody else's");
    }
}

/// Does something to a task of the other.
async fn meddle(
    hub: &Running,
    wire: Wire,
    keys: &[String; 2],
    who: usize,
    task: &TaskId,
    op: usize,
    case: &str,
) {
    let before = seen(hub, &keys[1 - who], task).await;
    let nothing = nobodys(task);
    let [foreign, unknown] = [task, &nothing].map(|id| calls(id).swap_remove(op));
    let op = foreign.op();
    let Some(foreign) = wire.call(hub, AGENT, Some(&keys[who]), foreign).await else { return };
    let unknown = wire.call(hub, AGENT, Some(&keys[who]), unknown).await.unwrap();
    let unknown = unknown.renamed(nothing.as_str(), task.as_str());
    assert_eq!(foreign.text(), unknown.text(), "{case} {op:?}");
    assert_eq!(seen(hub, &keys[1 - who], task).await, before, "{case} {op:?}: something has become of it");
}

/// The same principal in two tenants is two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_are_kept_apart_whatever_calls_say() {
    let hub = Running::start(|_| {}).await;
    let mut keys = Vec::new();
    for tenant in ["north", "south"] {
        let new = nuncio_hub::NewApiKey {
            principal: Some("alice".to_owned()),
            tenant: Some(tenant.to_owned()),
            ..nuncio_hub::NewApiKey::named(tenant)
        };
        keys.push(hub.keyring.create(new).await.unwrap().1.reveal().to_owned());
    }
    let [north, south] = [&keys[0], &keys[1]];
    let task = begin(&hub, north).await;
    let nothing = nobodys(&task);
    let before = seen(&hub, north, &task).await;
    let mut compared = 0;
    for wire in WIRES {
        for (foreign, unknown) in calls(&task).into_iter().zip(calls(&nothing)) {
            let op = foreign.op();
            // Of gRPC it names the agent.
            let tenants = if matches!(wire, Wire::Grpc(_)) { &[None][..] } else { &[None, Some("north")] };
            for tenant in tenants {
                let ask = async |mut call: Call| {
                    call.set_tenant(tenant.map(str::to_owned));
                    wire.call(&hub, AGENT, Some(south), call).await
                };
                let Some(foreign) = ask(foreign.clone()).await else { continue };
                let unknown = ask(unknown.clone()).await.unwrap().renamed(nothing.as_str(), task.as_str());
                assert_eq!(foreign.text(), unknown.text(), "{wire:?} {op:?} {tenant:?}");
                assert!(!foreign.is_ok(), "{wire:?} {op:?} {tenant:?}: {}", foreign.text());
                compared += 1;
            }
        }
        list(&hub, wire, north, from_ref(&task), &[], &format!("{wire:?}")).await;
        list(&hub, wire, south, &[], from_ref(&task), &format!("{wire:?}")).await;
        let own = wire.call(&hub, AGENT, Some(north), calls(&task).swap_remove(2)).await.unwrap();
        assert!(own.is_ok(), "{wire:?}: {}", own.text());
    }
    assert!(compared >= 75, "{compared}");
    assert_eq!(seen(&hub, north, &task).await, before, "and nothing has become of it");
}
