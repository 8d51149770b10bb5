//! The scenarios through a connected agent: a hub with a mailbox, and a connector that gives its messages to an agent on
//! a socket. Callers see what they see of the same agent behind a hub in durable mode, but for what the hub itself says
//! about workers.

use nuncio_client::worker::Worker;
use nuncio_hub::{
    ConnectOptions, Connector,
    config::{Agent, AgentKind, AgentOrigin, Mode},
};
use nuncio_protocol::{
    A2aService, Artifact, Binding, CallContext, CancelTaskRequest, Event, GetTaskRequest, Part,
    RESUME_EXTENSION, SendMessageResponse, Seq, SubscribeToTaskRequest, Task, TaskState, TraceContext,
    Version,
};
use nuncio_server::{bind::BindOptions, testing::ScriptedExecutor};
use nuncio_tests::{
    agent::Scripted,
    between::{AGENT, Between, Relation, upstream},
    eventually,
    peer::Peer,
    transcript::Transcript,
    within,
    world::{By, Server, at_once, say, say_to},
};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

/// A hub, and a connector if its agent has no address.
struct Route {
    hub: Between,
    connector: Option<JoinHandle<()>>,
}

impl Drop for Route {
    fn drop(&mut self) {
        if let Some(connector) = &self.connector {
            connector.abort();
        }
    }
}

impl Route {
    async fn durable(agent: &str, relation: Relation) -> Self {
        Self { hub: Between::before(upstream(agent, relation), false).await, connector: None }
    }

    async fn connected(agent: &str, relation: Relation) -> Self {
        let hub = Between::mailbox().await;
        let (base, _) = hub.url.split_once("/agents").unwrap();
        let kind = AgentKind::Upstream(Box::new(upstream(agent, relation)));
        let connector = Connector::open(ConnectOptions {
            worker: Worker::builder(base, AGENT).build().unwrap(),
            hub: base.parse().unwrap(),
            agent: Agent::new(AGENT.parse().unwrap(), kind, AgentOrigin::Flag),
            concurrency: 4,
        });
        let connector = connector.await.unwrap();
        let connector = tokio::spawn(async move {
            let _ = connector.run(std::future::pending(), |_| {}).await;
        });
        let route = Self { hub, connector: Some(connector) };
        // What callers are told of the agent comes from its card.
        let card = format!("{}/.well-known/agent-card.json", route.hub.url);
        let raw = nuncio_tests::raw::Raw::new(card);
        eventually("the card of the agent", async || {
            let card = raw.get("", &[]).await.json();
            let text = card["description"].as_str().unwrap_or_default().to_owned();
            (!text.is_empty() && !text.contains("No worker has described itself")).then_some(())
        })
        .await;
        route
    }

    async fn service(&self) -> std::sync::Arc<dyn A2aService> {
        self.hub.reached(Binding::JsonRpc, Version::V1_0, By::Direct, None).await
    }
}

/// A conversation: messages to one task, each sent when the task waits for it; and whether the last one is canceled.
struct Scenario {
    name: &'static str,
    messages: &'static [&'static str],
    cancels: bool,
}

const fn scenario(name: &'static str, messages: &'static [&'static str]) -> Scenario {
    Scenario { name, messages, cancels: false }
}

/// Scripts of our own agent.
const SCRIPTS: &[Scenario] = &[
    scenario("an answer", &["working; text a hello; completed done"]),
    scenario("nothing is said", &["completed"]),
    scenario("words of each state", &["working one; working two; completed three"]),
    scenario("several artifacts", &["working; text a x; text b y; text a z; completed"]),
    scenario("pieces", &["working; chunk a x; chunk a y; last a z; completed"]),
    scenario("every member", &["working; rich; completed"]),
    scenario("an echo of the parts", &["working; echo; completed"]),
    scenario("a rejection", &["reject no"]),
    scenario("a failure", &["working; fail broken"]),
    scenario("a failure without a beginning", &["fail broken"]),
    scenario("a question", &["working; ask Which?", "working; text a red; completed"]),
    scenario("two questions", &["ask One?", "ask Two?", "completed"]),
    scenario("an authorisation", &["working; text a half; auth Log in", "text b rest; completed"]),
    Scenario { name: "a cancel", messages: &["working; text a x; hold"], cancels: true },
    Scenario { name: "a cancel of a question", messages: &["working; ask Which?"], cancels: true },
];

/// The contract of the peers, in `tests/peers/README.md`.
const CONTRACT: &[Scenario] = &[
    scenario("an echo", &["hello"]),
    scenario("a question", &["ask", "tea"]),
    Scenario { name: "a cancel", messages: &["hold"], cancels: true },
];

async fn get(service: &dyn A2aService, task: &Task) -> Task {
    let req = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
    within("the task", service.get_task(&CallContext::default(), req)).await.unwrap()
}

async fn until(service: &dyn A2aService, task: &Task, what: &str, wanted: impl Fn(&Task) -> bool) -> Task {
    eventually(what, async || Some(get(service, task).await).filter(|task| wanted(task))).await
}

/// Plays a scenario; notes each rest of the task, and the stream of its first message.
async fn play(service: &dyn A2aService, scenario: &Scenario) -> Transcript {
    let mut seen = Transcript::default();
    let mut task: Option<Task> = None;
    for (number, words) in scenario.messages.iter().enumerate() {
        let id = format!("m-{number}");
        let req = match &task {
            Some(task) => say_to(task, &id, words),
            None => say(&id, words),
        };
        let told = within("the answer", service.send_message(&CallContext::default(), at_once(req))).await;
        let SendMessageResponse::Task(told) = told.unwrap() else { panic!("expected a task") };
        let is_last = number + 1 == scenario.messages.len();
        // A follow-up finds the task at rest: that it moves on is seen by its words.
        let before = task.as_ref().and_then(|task| task.status.message.clone());
        let rests = |task: &Task| {
            let (state, said) = (task.status.state, &task.status.message);
            let has_asked = state.is_interrupted() && said.is_some() && *said != before;
            state.is_terminal() || has_asked && !is_last || has_asked && scenario.cancels
        };
        let rested = if is_last && scenario.cancels && !words.contains("ask") {
            let holds = !words.contains("text a");
            let begun = |task: &Task| {
                // The agent has the message: its first words are there.
                task.status.state == TaskState::Working && (holds || !task.artifacts.is_empty())
            };
            until(service, &told, scenario.name, begun).await
        } else {
            until(service, &told, scenario.name, rests).await
        };
        seen.note(words, &plain(&rested));
        task = Some(rested);
    }
    let task = task.unwrap();
    if scenario.cancels {
        let req = CancelTaskRequest { id: task.id.clone(), ..CancelTaskRequest::default() };
        let canceled = within("the cancel", service.cancel_task(&CallContext::default(), req)).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        seen.note("canceled", &plain(&get(service, &task).await));
        return seen;
    }
    let cx = CallContext {
        last_event_id: Some(Seq::ZERO),
        extensions: vec![RESUME_EXTENSION.to_owned()],
        ..CallContext::default()
    };
    let req = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let log = nuncio_tests::rest(service.subscribe_to_task(&cx, req).await.unwrap()).await;
    let mut artifacts: Vec<(String, String)> = Vec::new();
    for item in &log {
        if let Event::ArtifactUpdate(update) = &**item.event() {
            let Artifact { artifact_id, parts, .. } = &*update.artifact;
            let text: String = parts.iter().filter_map(Part::as_text).collect();
            artifacts.push((format!("{artifact_id} {} {}", update.append, update.last_chunk), text));
        }
    }
    seen.note("artifacts in the stream", &artifacts);
    let ends =
        log.iter().filter(|item| item.event().status().is_some_and(|status| status.state.is_terminal()));
    seen.note("ends", &ends.count());
    seen
}

/// The task without what the hub says about waiting and about the worker.
fn plain(task: &Task) -> Value {
    let mut task = serde_json::to_value(task).unwrap();
    if let Some(metadata) = task.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !name.starts_with("nuncio."));
        if metadata.is_empty() {
            task.as_object_mut().unwrap().remove("metadata");
        }
    }
    let is_wait = |message: &Value| {
        message["parts"][0]["text"].as_str().is_some_and(|text| text.starts_with("waits for a worker of"))
    };
    if let Some(history) = task.get_mut("history").and_then(Value::as_array_mut) {
        history.retain(|message| !is_wait(message));
    }
    task
}

/// Ids of messages that the hub or the agent has made are no part of a comparison.
fn made(object: &mut Map<String, Value>) {
    if object.get("role") == Some(&json!("ROLE_AGENT")) {
        object.remove("messageId");
    }
}

async fn compare(agent: &str, relation: Relation, scenarios: &[Scenario]) {
    let [durable, connected] =
        [Route::durable(agent, relation).await, Route::connected(agent, relation).await];
    let [expected, got] = [durable.service().await, connected.service().await];
    for scenario in scenarios {
        let (expected, got) = (play(&*expected, scenario).await, play(&*got, scenario).await);
        if let Some(difference) = got.difference(&expected, made) {
            panic!("{} over {relation:?}: {difference}", scenario.name);
        }
    }
}

fn relations() -> impl Iterator<Item = Relation> {
    let versions = [Version::V1_0, Version::V0_3].into_iter();
    versions.flat_map(|version| {
        [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc].map(|binding| Relation {
            mode: Mode::Durable,
            binding,
            version,
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connected_agent_is_seen_as_one_behind_a_hub() {
    for relation in relations() {
        let server = Server::start(Scripted::default(), BindOptions::default(), |_| {}).await;
        compare(&format!("http://{}", server.address), relation, SCRIPTS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connected_agent_on_the_python_sdk_is_seen_as_one_behind_a_hub() {
    let peer = Peer::start("py1_server", &[]).await;
    for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
        let relation = Relation { mode: Mode::Durable, binding, version: Version::V1_0 };
        compare(&peer.url, relation, CONTRACT).await;
    }
}

/// Through the lease to the connector, and from there to the agent: one trace, with the state that came with it.
#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_call_reaches_the_agent_behind_a_connector() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let executor = ScriptedExecutor::new(|cx, out| async move {
        let trace = cx.call.trace.clone();
        let told = trace.map(|trace| format!("{} {}", trace.parent, trace.state.unwrap_or_default()));
        out.artifact(Artifact::new("trace", Part::text(told.unwrap_or_default()))).await?;
        out.status(TaskState::Completed, Vec::<Part>::new()).await.map(drop)
    });
    let server = Server::start(executor, BindOptions::default(), |_| {}).await;
    let relation = Relation { mode: Mode::Durable, binding: Binding::JsonRpc, version: Version::V1_0 };
    let route = Route::connected(&format!("http://{}", server.address), relation).await;
    let service = route.service().await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let trace = Some(TraceContext { parent: parent.clone(), state: Some("vendor=1".to_owned()) });
    let cx = CallContext { trace, ..CallContext::default() };
    let told = within("the answer", service.send_message(&cx, say("m-1", "hi"))).await.unwrap();
    let SendMessageResponse::Task(task) = told else { panic!("expected a task") };
    let seen = task.artifacts[0].text().into_owned();
    assert!(seen.contains(TRACE) && seen.contains("vendor=1"), "{seen}");
    assert!(!seen.contains("00f067aa0ba902b7"), "each hub is a span of its own: {seen}");
}
