//! Code around the operations: interceptors, and extensions of the protocol.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::body::Body;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use nuncio_server::{
    Extension, Runtime,
    bind::{Agent, BindOptions},
    protocol::{
        A2aService as _, AgentCard, AgentExtension, CallContext, Error, ErrorKind, Event, EventStream,
        GetExtendedAgentCardRequest, Interceptor, ListTasksRequest, Metadata, Next, RESUME_EXTENSION, Result,
        op::{Call, Op, Reply},
    },
    store::MemoryStore,
    testing::{Harness, ScriptedExecutor, Step, card, summary},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{refused, settle};

const STAMPS: &str = "urn:stamps/v1";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Puts its colour into the metadata of sends and of everything that is answered.
#[derive(Clone, Default)]
struct Stamps {
    required: bool,
    log: Log,
}

impl Extension for Stamps {
    fn declaration(&self) -> AgentExtension {
        AgentExtension {
            uri: STAMPS.to_owned(),
            description: "stamps".to_owned(),
            required: self.required,
            params: Metadata::from_iter([("colour", "red")]),
        }
    }
}

#[async_trait]
impl Interceptor for Stamps {
    async fn intercept(&self, cx: &mut CallContext, mut call: Call, next: Next<'_>) -> Result<Reply> {
        self.log.note(format!("stamps {}", call.op().name()));
        if let Call::SendMessage(req) | Call::SendStreamingMessage(req) = &mut call {
            req.metadata.insert(STAMPS, "asked");
        }
        let reply = next.run(cx, call).await?;
        Ok(reply.map_metadata(|metadata| metadata.insert(STAMPS, "red")))
    }
}

/// Notes every call, and refuses those of somebody.
struct Door {
    name: &'static str,
    closed_for: Option<&'static str>,
    log: Log,
}

impl Door {
    fn open(name: &'static str, log: &Log) -> Self {
        Self { name, closed_for: None, log: log.clone() }
    }
}

#[async_trait]
impl Interceptor for Door {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        self.log.note(format!("{} {}", self.name, call.op().name()));
        let caller = cx.caller.principal().map(|name| &**name);
        if self.closed_for.is_some() && caller == self.closed_for {
            return Err(Error::new(ErrorKind::PermissionDenied, "the door is closed"));
        }
        next.run(cx, call).await
    }
}

fn working() -> ScriptedExecutor {
    ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x"), Step::InputRequired("more?")])
}

fn declaring(harness: &Harness, uri: &str) -> Harness {
    harness.calling(|cx| cx.extensions = vec!["urn:other".to_owned(), uri.to_owned()])
}

fn is_stamped(metadata: &Metadata) -> bool {
    metadata.get(STAMPS).is_some_and(|stamp| stamp == json!("red"))
}

/// Whether each event of a stream is stamped.
async fn stamps(events: EventStream, most: usize) -> Vec<bool> {
    let stamped = |item: Result<_>| {
        let item: nuncio_server::protocol::StreamItem = item.unwrap();
        is_stamped(Event::clone(item.event()).metadata_mut())
    };
    events.take(most).map(stamped).collect().await
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_active_where_it_is_declared_and_nowhere_else() {
    // REQ-078, REQ-079; spec 4.6
    for (uri, active) in [("urn:stamps/v2", false), ("", false), (STAMPS, true)] {
        let log = Log::default();
        let stamping = Stamps { log: log.clone(), ..Stamps::default() };
        let plain = Harness::with(working(), |builder| builder.extension(stamping));
        let harness = declaring(&plain, uri);
        let task = harness.task("hi").await.unwrap();
        assert_eq!(is_stamped(&task.metadata), active, "{uri}");
        assert_eq!(is_stamped(&harness.get(&task.id).await.unwrap().metadata), active, "{uri}");
        let page = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
        assert!(page.tasks.iter().all(|task| is_stamped(&task.metadata) == active), "{uri}");
        let streamed = stamps(harness.stream("hi").await.unwrap(), 9).await;
        assert_eq!(streamed, [active; 4], "{uri}");
        let snapshot = stamps(harness.subscribe(&task.id).await.unwrap(), 1).await;
        assert_eq!(snapshot, [active], "{uri}");
        let calls = ["SendMessage", "GetTask", "ListTasks", "SendStreamingMessage", "SubscribeToTask"];
        let noted: Vec<_> = calls.iter().filter(|_| active).map(|call| format!("stamps {call}")).collect();
        assert_eq!(log.take(), noted, "{uri}");
        let recorded = plain.get(&task.id).await.unwrap();
        assert!(recorded.metadata.is_empty(), "an answer is changed for its caller only");
    }
}

#[tokio::test(start_paused = true)]
async fn the_executor_knows_what_is_active_and_sees_what_was_put_in() {
    for (declared, expected) in
        [(STAMPS, r#"red "asked""#), ("urn:known", "no null"), ("urn:unknown", "no null")]
    {
        let executor = ScriptedExecutor::new(|cx, out| async move {
            let active = cx.extension(STAMPS).and_then(|extension| extension.params.get("colour"));
            let colour = active.map_or_else(|| "no".to_owned(), |colour| colour.get().unwrap());
            assert!(cx.extension("urn:unknown").is_none(), "the caller alone does not make it active");
            assert_eq!(cx.extension("urn:known").is_some(), cx.call.declares("urn:known"));
            let said = cx.metadata.get(STAMPS).unwrap_or_default();
            out.input_required(format!("{colour} {said}").as_str()).await.map(drop)
        });
        let log = Log::default();
        let told = log.clone();
        let executor = executor.on_cancel(move |cx| {
            told.note(format!("canceled, active: {}", cx.extension(STAMPS).is_some()));
            std::future::ready(Ok(()))
        });
        let mut knowing = card();
        let known = AgentExtension { uri: "urn:known".to_owned(), ..AgentExtension::default() };
        knowing.capabilities.extensions.push(known);
        let harness = Harness::of(knowing, MemoryStore::default(), executor, |builder| {
            builder.extension(Stamps::default())
        });
        let harness = declaring(&harness, declared);
        let task = harness.task("hi").await.unwrap();
        assert_eq!(summary(&task), format!("input-required \"{expected}\" | user: hi | "), "{declared}");
        harness.cancel(&task.id).await.unwrap();
        assert_eq!(log.take(), [format!("canceled, active: {}", declared == STAMPS)]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_the_order_of_their_registration_around_every_operation() {
    let log = Log::default();
    let harness = Harness::with(working(), |builder| {
        builder
            .interceptor(Door::open("outer", &log))
            .extension(Stamps { log: log.clone(), ..Stamps::default() })
            .interceptor(Door { name: "inner", closed_for: Some("ann"), log: log.clone() })
    });
    let harness = declaring(&harness, STAMPS).as_caller("ann");
    let every = [
        Call::SendMessage(Box::default()),
        Call::SendStreamingMessage(Box::default()),
        Call::GetTask(Box::default()),
        Call::ListTasks(Box::default()),
        Call::CancelTask(Box::default()),
        Call::SubscribeToTask(Box::default()),
        Call::CreateTaskPushNotificationConfig(Box::default()),
        Call::GetTaskPushNotificationConfig(Box::default()),
        Call::ListTaskPushNotificationConfigs(Box::default()),
        Call::GetExtendedAgentCard(Box::default()),
        Call::DeleteTaskPushNotificationConfig(Box::default()),
    ];
    assert_eq!(every.len(), Op::TABLE.len());
    for call in every {
        let name = call.op().name();
        let passed = ["outer", "stamps", "inner"].map(|hook| format!("{hook} {name}"));
        let answer = call.clone().dispatch(&harness.runtime, &harness.cx).await;
        assert_eq!(refused(answer), ErrorKind::PermissionDenied, "{name}");
        assert_eq!(log.take(), passed, "by its method");
        let answer = harness.runtime.call(&harness.cx, call).await;
        assert_eq!(refused(answer), ErrorKind::PermissionDenied, "{name}");
        assert_eq!(log.take(), passed, "whole");
    }
    settle().await;
    assert_eq!(harness.runtime.live_tasks(), 0, "what is refused has not begun");
    assert!(harness.as_caller("bob").task("hi").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_required_extension_is_missed_before_any_hook_runs() {
    // REQ-077
    let log = Log::default();
    let harness = Harness::with(working(), |builder| {
        let stamping = Stamps { required: true, log: log.clone() };
        builder.interceptor(Door::open("door", &log)).extension(stamping)
    });
    for uri in ["urn:stamps/v2", "urn:other"] {
        let error = declaring(&harness, uri).task("hi").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExtensionSupportRequired);
        assert_eq!(error.metadata()["requiredExtensions"], STAMPS);
    }
    assert!(log.take().is_empty());
    declaring(&harness, STAMPS).task("hi").await.unwrap();
    assert_eq!(log.take(), ["door SendMessage", "stamps SendMessage"]);
}

#[tokio::test(start_paused = true)]
async fn every_card_declares_the_extensions_and_what_a_card_says_itself_stays() {
    let own = AgentExtension { uri: STAMPS.to_owned(), description: "mine".to_owned(), ..Default::default() };
    let card_with = |own: &[AgentExtension]| {
        let mut card = AgentCard { description: "d".to_owned(), ..card() };
        card.capabilities.extended_agent_card = Some(true);
        card.capabilities.extensions = own.to_vec();
        card
    };
    for (said, expected) in [(vec![], "stamps"), (vec![own], "mine")] {
        let harness = Harness::of(card_with(&said), MemoryStore::default(), working(), |builder| {
            builder.extension(Stamps::default()).extended_card(card_with(&said)).open_extended_card()
        });
        let request = GetExtendedAgentCardRequest::default();
        let extended = harness.runtime.get_extended_agent_card(&harness.cx, request).await.unwrap();
        for card in [&extended, &*harness.runtime.card()] {
            assert_eq!(card.extension(STAMPS).unwrap().description, expected);
            assert!(card.extension(RESUME_EXTENSION).is_some());
            assert_eq!(card.capabilities.extensions.len(), 2);
        }
    }
}

/// Posts a call to the runtime on the wire: the header that echoes, and the result.
async fn post(runtime: &Runtime, version: &str, body: &Value) -> (Option<String>, Value) {
    let agent = Agent::new(Arc::new(runtime.clone()), &runtime.card(), BindOptions::default()).unwrap();
    let request = http::Request::post("/")
        .header("content-type", "application/json")
        .header("a2a-version", version)
        .header("a2a-extensions", STAMPS)
        .body(Body::from(body.to_string()));
    let response = agent.router("").oneshot(request.unwrap()).await.unwrap();
    let echoed = ["a2a-extensions", "x-a2a-extensions"].map(|name| response.headers().get(name).cloned());
    let echoed = echoed.into_iter().flatten().next().map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (echoed, serde_json::from_slice::<Value>(&body).unwrap()["result"].take())
}

#[tokio::test(start_paused = true)]
async fn on_the_wire_an_extension_is_echoed_and_its_data_shown_in_both_versions() {
    // REQ-080, REQ-081
    let harness = Harness::with(working(), |builder| builder.extension(Stamps::default()));
    let new = json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let old = json!({ "message": {
        "kind": "message", "messageId": "m-1", "role": "user", "parts": [{ "kind": "text", "text": "hi" }],
    } });
    for (version, method, params, task) in
        [("1.0", "SendMessage", new, "/task"), ("0.3", "message/send", old, "")]
    {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (echoed, result) = post(&harness.runtime, version, &body).await;
        assert_eq!(echoed.as_deref(), Some(STAMPS), "{version}");
        let metadata = result.pointer(&format!("{task}/metadata")).unwrap();
        assert_eq!(metadata[STAMPS], "red", "{version}");
    }
}
