//! Over a store in which an agent has left what a receiver did not want.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, Bytes},
};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use nuncio_client::Egress;
use nuncio_protocol::{
    A2aService as _, AgentCard, AuthenticationInfo, CallContext, Message, Part, SendMessageConfiguration,
    SendMessageRequest, TaskPushNotificationConfig, Version,
};
use nuncio_server::{
    Emitter, ExecContext, Executor, MemoryAccount, Runtime,
    bind::BindOptions,
    push::{Courier, Failure, Push, PushOptions, ReceiverResponse as Answered, RootKey},
    store::{MemoryStore, Store},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use url::Url;

use super::{
    super::{
        AdminTokens, Audits, HubFacts, Sessions,
        api::{Role, StoreKind},
        caller::AdminCaller,
        table::{self, EndpointTable},
    },
    *,
};
use crate::{
    agent_urls::AgentUrls,
    agents::{Consents, ContextKey},
    config,
    gauges::Gauges,
    hubs::Hubs,
    identity::Authenticator,
    playground::Playground,
    push_receiver::PushReceiver,
    registry,
    routes::RouteTable,
    samples::Samples,
    telemetry::Metrics,
    trail::{Trail, TrailWriter},
};

/// A receiver that understands nothing.
struct Refuses;

#[async_trait]
impl Courier for Refuses {
    fn check(&self, _url: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, _: &Url, _: HeaderMap, _: Bytes, _: Duration) -> Result<Answered, Failure> {
        Ok(Answered { status: StatusCode::BAD_REQUEST, retry_after: None, excerpt: "what?".to_owned() })
    }
}

struct Done;

#[async_trait]
impl Executor for Done {
    async fn execute(&self, _: ExecContext, out: Emitter) -> nuncio_protocol::Result<()> {
        out.working().await?;
        out.completed().await?;
        Ok(())
    }
}

/// The API over a store with dead letters of one task, how often somebody was woken, and what writes the trail.
async fn api() -> (Router, Arc<AtomicUsize>, TrailWriter) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(100));
    let push = Push::builder(Arc::clone(&store), Refuses, RootKey::random()).build().unwrap();
    let card = AgentCard::new("done", "");
    let runtime = Runtime::builder(card, Done)
        .agent("done")
        .store(Arc::clone(&store))
        .push(&push, PushOptions::default())
        .build();
    let webhook = TaskPushNotificationConfig {
        id: Some("w-1".into()),
        url: "https://receiver.example/hook?key=s3cret".to_owned(),
        token: Some("s3cret".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    };
    let request = SendMessageRequest {
        message: Message::user("m-1", Part::text("hello")),
        configuration: Some(SendMessageConfiguration {
            task_push_notification_config: Some(webhook),
            ..SendMessageConfiguration::default()
        }),
        ..SendMessageRequest::default()
    };
    runtime.send_message(&CallContext::new(Version::V1_0), request).await.unwrap();
    push.drain(Duration::from_secs(60)).await;
    let woken = Arc::new(AtomicUsize::new(0));
    let wakes = Arc::clone(&woken);
    let wake = Arc::new(move || {
        wakes.fetch_add(1, Ordering::Relaxed);
    });
    let (registry, fleet) = registry::tests::registry(&store, &RootKey::random()).await;
    let (trail, writer) = Trail::new(&store);
    let consents = Arc::new(Consents::new(&store, &trail));
    let identity = Authenticator::open(&config::Identity::default(), &store, trail, true).await.unwrap();
    let (is_volatile, reloader) = (true, Arc::default());
    let metrics = Arc::<Metrics>::default();
    let memory = MemoryAccount::default();
    let mailboxes = registry::tests::factory(&store).await.mailboxes;
    let gauges = Gauges::new(
        Arc::clone(&metrics),
        Arc::clone(&store),
        Arc::clone(&fleet),
        Arc::clone(&consents),
        memory.clone(),
    );
    let facts = HubFacts {
        samples: Arc::new(Samples::new(metrics, Arc::new(gauges))),
        memory,
        store: StoreKind::Memory,
        certificates: None,
        signs_cards: false,
        is_on_network: false,
    };
    let registry = Arc::new(registry);
    let rooms = crate::rooms::Rooms::new(&store, &Arc::default());
    let audits = Audits::new(&store, None);
    let tokens = AdminTokens::open(&store).await.unwrap();
    let (events, push) = (Arc::default(), Some(push));
    let base: Url = "http://127.0.0.1:2602".parse().unwrap();
    let urls = AgentUrls::new(&base, None);
    let (routes, _) = RouteTable::new(&fleet, &store, &urls, &BindOptions::default()).await.unwrap();
    let playground = Playground::new(
        Arc::new(routes),
        Arc::clone(&fleet),
        Egress::builder().build().unwrap(),
        PushReceiver::new(base.as_str()),
        Arc::default(),
        base.clone(),
    );
    let hubs = Hubs::new(&store, base.as_str(), "127.0.0.1:2602".to_owned());
    let state = AdminState {
        fleet,
        store,
        is_volatile,
        wake,
        registry,
        rooms,
        identity,
        mailboxes,
        consents,
        audits,
        playground,
        hubs,
        contexts: ContextKey::new(&[7; 32]),
        reloader,
        sessions: Sessions::default(),
        facts,
        events,
        tokens,
        push,
    };
    let api = Router::new().fallback(table::serve).with_state(Arc::new(EndpointTable::new(Arc::new(state))));
    (api, woken, writer)
}

/// The answer, which contains no secret.
async fn ask(api: &Router, method: &str, path: &str, body: &str) -> (u16, Value) {
    let caller = AdminCaller { role: Role::Operator, name: None, revoked: Default::default() };
    let request = Request::builder()
        .extension(caller)
        .method(method)
        .uri(format!("/v1{path}"))
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = api.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(!text.contains("s3cret"), "{method} {path}: {text}");
    (status, serde_json::from_str(&text).unwrap())
}

async fn list(api: &Router, query: &str) -> Vec<Value> {
    let (status, page) = ask(api, "GET", &format!("/deliveries?{query}"), "").await;
    assert_eq!(status, 200, "{page}");
    page["deliveries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn deliveries_are_told_without_secrets_and_by_pages() {
    let (api, ..) = api().await;
    let all = list(&api, "").await;
    assert!(all.len() > 1, "{all:?}");
    for delivery in &all {
        let id = delivery["id"].as_str().unwrap();
        assert_eq!(ask(&api, "GET", &format!("/deliveries/{id}"), "").await, (200, delivery.clone()));
        assert_eq!((&delivery["agent"], &delivery["webhook"]), (&json!("done"), &json!("w-1")));
        assert_eq!((&delivery["state"], &delivery["attemptCount"]), (&json!("dead"), &json!(1)));
        assert_eq!(delivery["url"], "https://receiver.example", "a path may be a secret, too");
        assert_eq!(id.rsplit_once('-').unwrap().1, delivery["eventId"].to_string());
        let [attempt] = &delivery["attempts"].as_array().unwrap()[..] else { panic!("{delivery}") };
        assert_eq!(attempt["code"], 400);
        assert!(attempt["time"].is_string() && attempt["durationMs"].is_u64(), "{attempt}");
        assert_eq!(delivery.get("nextAttempt"), None, "it was given up");
    }
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let (_, page) = ask(&api, "GET", &format!("/deliveries?limit=1{after}"), "").await;
        pages.extend(page["deliveries"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(pages, all);
    let task = all[0]["taskId"].as_str().unwrap();
    for (query, expected) in [
        (format!("agent=done&task={task}&state=dead&since=2020-01-01T00:00:00Z"), all.len()),
        ("agent=other".to_owned(), 0),
        ("task=other".to_owned(), 0),
        ("state=pending".to_owned(), 0),
        ("since=2999-01-01T00:00:00Z".to_owned(), 0),
    ] {
        assert_eq!(list(&api, &query).await.len(), expected, "{query}");
    }
}

#[tokio::test]
async fn what_was_given_up_is_tried_again_and_somebody_is_woken_for_it() {
    let (api, woken, _) = api().await;
    let all = list(&api, "state=dead").await;
    let id = all[0]["id"].as_str().unwrap();
    let (status, delivery) = ask(&api, "POST", &format!("/deliveries/{id}:replay"), "").await;
    assert_eq!((status, &delivery["id"], &delivery["state"]), (200, &all[0]["id"], &json!("pending")));
    assert!(delivery["nextAttempt"].is_string(), "{delivery}");
    assert_eq!(woken.load(Ordering::Relaxed), 1);

    for (since, agent, redriven) in [
        ("2999-01-01T00:00:00Z", "done", 0),
        ("2020-01-01T00:00:00Z", "other", 0),
        ("2020-01-01T00:00:00Z", "done", all.len() - 1),
    ] {
        let body = json!({ "since": since, "agent": agent }).to_string();
        let answer = ask(&api, "POST", "/deliveries:redrive", &body).await;
        assert_eq!(answer, (200, json!({ "redriven": redriven })), "{body}");
    }
    assert_eq!(woken.load(Ordering::Relaxed), 2, "not for nothing");
    assert_eq!(list(&api, "state=pending").await.len(), all.len());
}

/// Only of what was done, and with what it was done to.
#[tokio::test]
async fn who_has_something_delivered_again_leaves_a_row_in_the_trail() {
    let (api, _, writer) = api().await;
    let dead = list(&api, "state=dead&limit=1").await;
    let id = dead[0]["id"].as_str().unwrap();
    let since = |agent: &str| json!({ "since": "2020-01-01T00:00:00Z", "agent": agent }).to_string();
    for (path, body, expected) in [
        (format!("/deliveries/{id}:replay"), String::new(), 200),
        ("/deliveries/none-1:replay".to_owned(), String::new(), 404),
        ("/deliveries:redrive".to_owned(), "{}".to_owned(), 400),
        ("/deliveries:redrive".to_owned(), since("done"), 200),
    ] {
        assert_eq!(ask(&api, "POST", &path, &body).await.0, expected, "{path} {body}");
    }
    writer.close().await;
    let (_, trail) = ask(&api, "GET", "/audit", "").await;
    let rows: Vec<_> =
        trail["rows"].as_array().unwrap().iter().map(|row| (&row["what"], &row["detail"])).collect();
    let what = &json!("delivery-replayed");
    let details = [json!("since 2020-01-01T00:00:00.000Z of done"), json!(id)];
    assert_eq!(rows, [(what, &details[0]), (what, &details[1])], "the newest first: {trail}");
}

#[tokio::test]
async fn what_is_asked_wrong_is_answered_with_what_is_right() {
    let (api, woken, _) = api().await;
    let id = list(&api, "limit=1").await[0]["id"].as_str().unwrap().to_owned();
    for (method, path, body, status, expected) in [
        ("GET", "/deliveries?state=gone".to_owned(), "", 400, "`pending`, `delivered`, `dead`"),
        ("GET", "/deliveries?since=yesterday".to_owned(), "", 400, "since: "),
        ("GET", "/deliveries?after=x".to_owned(), "", 400, "after: expected the id of a delivery"),
        ("GET", "/deliveries/none".to_owned(), "", 404, "there is no delivery none"),
        ("GET", "/deliveries/none-1".to_owned(), "", 404, "there is no delivery none-1"),
        ("POST", "/deliveries/none-1:replay".to_owned(), "", 404, "there is no delivery none-1"),
        ("POST", format!("/deliveries/{id}"), "", 405, "POST /deliveries/{id}:replay"),
        ("POST", "/deliveries:redrive".to_owned(), "", 400, "the body is invalid"),
        ("POST", "/deliveries:redrive".to_owned(), "{}", 400, "missing field `since`"),
        ("POST", "/deliveries:redrive".to_owned(), r#"{"since":"2h"}"#, 400, "2026-11-15T12:00:00"),
        (
            "POST",
            "/deliveries:redrive".to_owned(),
            r#"{"since":"2020-01-01T00:00:00Z","agnet":"x"}"#,
            400,
            "unknown field `agnet`",
        ),
    ] {
        let (code, answer) = ask(&api, method, &path, body).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(code == status && message.contains(expected), "{method} {path} {body}: {answer}");
    }
    assert_eq!(woken.load(Ordering::Relaxed), 0);
}
