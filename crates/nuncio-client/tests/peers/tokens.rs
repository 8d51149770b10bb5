//! Access tokens by OAuth 2.0 client credentials: who gets them, how long they are kept, and what happens
//! when there is none.

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use futures_util::{StreamExt as _, future::join_all};
use nuncio_client::{
    Client, ClientCredentials, Credentials, Egress, FetchedCard, agent_url, discover,
    protocol::{CallContext, ErrorKind, GetTaskRequest},
};
use serde_json::{Value, json};

use crate::peer::{
    Asked, Peer, Then, answer, builder, card, events, frame, json_answer, result, status, task, update,
};

const CARD: &str = "/.well-known/agent-card.json";

/// A token endpoint that issues the tokens `t-0`, `t-1` and so on.
fn issue(asked: &Asked, expires_in: &Value) -> Response {
    let token = format!("t-{}", asked.before);
    json_answer(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": expires_in }))
}

/// An agent with its own token endpoint. `refuse` says of which tokens it wants no more.
async fn agent(
    token: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    refuse: impl Fn(&Asked, &str) -> bool + Send + Sync + 'static,
) -> Peer {
    Peer::start(move |asked| match &*asked.path {
        "/token" => token(asked),
        _ if asked.header("authorization").is_none_or(|token| refuse(asked, token)) => status(401, &[]),
        CARD => json_answer(&card(&asked.base, &[])),
        _ if asked.body["method"] == "SendMessage" => {
            result(asked, &json!({ "task": task("TASK_STATE_COMPLETED") }))
        }
        _ if asked.body["method"] == "SendStreamingMessage" => {
            let start = frame(0, &json!({ "task": task("TASK_STATE_SUBMITTED") }));
            events(start + &frame(0, &update("TASK_STATE_COMPLETED")), Then::End)
        }
        _ => result(asked, &task("TASK_STATE_WORKING")),
    })
    .await
}

fn client(peer: &Peer) -> ClientCredentials {
    ClientCredentials::new(&format!("{}/token", peer.base), "me", "s3cret").unwrap()
}

/// A card as if it had been fetched from the peer, so that nobody has asked for a token yet.
fn known_card(peer: &Peer) -> Arc<FetchedCard> {
    let json = card(&peer.base, &[]);
    let card = serde_json::from_value(json.clone()).unwrap();
    Arc::new(FetchedCard { card, json, url: agent_url(&peer.base).unwrap() })
}

fn connected(peer: &Peer) -> Client {
    builder().client_credentials(client(peer)).with_card(known_card(peer)).unwrap()
}

/// The tokens that came with the requests to a path.
fn tokens(peer: &Peer, path: &str) -> String {
    let tokens: Vec<_> = peer
        .asked(path)
        .iter()
        .map(|asked| asked.header("authorization").unwrap_or("none").replace("Bearer ", ""))
        .collect();
    tokens.join(" ")
}

/// A call without a deadline, because the clock of deadlines cannot be moved.
async fn get(client: &Client) {
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    client.service().get_task(&client.context(), req).await.unwrap();
}

#[tokio::test]
async fn a_token_is_fetched_once_and_kept() {
    let peer = agent(|asked| issue(asked, &json!(3600)), |_, _| false).await;
    let client = client(&peer).scope("a").scope("b").audience("agents");
    let client = builder().client_credentials(client).connect(&peer.base).await.unwrap();
    client.get("t-1").await.unwrap();
    client.send("hello").await.unwrap();
    assert_eq!((tokens(&peer, CARD), tokens(&peer, "/rpc")), ("t-0".to_owned(), "t-0 t-0".to_owned()));
    let [asked] = &*peer.asked("/token") else { panic!("asked more than once") };
    assert_eq!(asked.header("authorization"), Some("Basic bWU6czNjcmV0"));
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(asked.text, "grant_type=client_credentials&scope=a+b&audience=agents");
}

#[tokio::test]
async fn the_secret_may_go_in_the_body() {
    let peer = agent(|asked| issue(asked, &json!(3600)), |_, _| false).await;
    let client = client(&peer).secret_in_body();
    builder().client_credentials(client).connect(&peer.base).await.unwrap();
    let asked = &peer.asked("/token")[0];
    assert_eq!(asked.header("authorization"), None);
    assert_eq!(asked.text, "grant_type=client_credentials&client_id=me&client_secret=s3cret");
}

#[tokio::test]
async fn calls_that_come_together_wait_for_one_token() {
    // Also for one that is good for the moment only.
    for expires_in in [json!(3600), json!(0)] {
        let peer = agent(move |asked| issue(asked, &expires_in), |_, _| false).await;
        let client = connected(&peer);
        for outcome in join_all((0..20).map(|_| client.get("t-1"))).await {
            outcome.unwrap();
        }
        assert_eq!((peer.asked("/token").len(), peer.asked("/rpc").len()), (1, 20));
    }
}

#[tokio::test]
async fn calls_that_come_together_are_told_the_same_failure() {
    let refuse = |_: &Asked| answer(401, &[], r#"{"error":"invalid_client"}"#.into());
    let peer = agent(refuse, |_, _| false).await;
    let client = connected(&peer);
    for outcome in join_all((0..20).map(|_| client.get("t-1"))).await {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        assert!(error.message().ends_with("/token answered 401 Unauthorized: invalid_client"), "{error}");
    }
    assert_eq!((peer.asked("/token").len(), peer.asked("/rpc").len()), (1, 0));
    // Who comes later asks again.
    client.get("t-1").await.unwrap_err();
    assert_eq!(peer.asked("/token").len(), 2);
}

#[tokio::test]
async fn a_call_that_is_given_up_does_not_hold_up_the_next() {
    let peer = agent(|asked| issue(asked, &json!(3600)), |_, _| false).await;
    let client = connected(&peer);
    // Long past: a timer rounds up, and a quick peer answers within a millisecond.
    let past = std::time::Instant::now() - Duration::from_secs(1);
    let cx = CallContext { deadline: Some(past), ..client.context() };
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    let error = client.service().get_task(&cx, req).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    client.get("t-1").await.unwrap();
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end() {
    /// Nothing is under way, so that nothing but the clock moves.
    async fn pass(seconds: u64) {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    }
    let peer = agent(|asked| issue(asked, &json!(100)), |_, _| false).await;
    let client = connected(&peer);
    get(&client).await;
    pass(80).await;
    get(&client).await;
    pass(11).await;
    get(&client).await;
    get(&client).await;
    assert_eq!(tokens(&peer, "/rpc"), "t-0 t-0 t-1 t-1");
}

#[tokio::test]
async fn a_kept_token_that_is_refused_is_renewed_once() {
    // After the first call the agent wants no more of the first token.
    let refuse = |asked: &Asked, token: &str| token == "Bearer t-0" && asked.before > 0;
    let peer = agent(|asked| issue(asked, &json!(3600)), refuse).await;
    let client = connected(&peer);
    client.get("t-1").await.unwrap();
    client.send("hello").await.unwrap();
    assert_eq!(peer.methods(), ["GetTask", "SendMessage", "SendMessage"]);
    assert_eq!(tokens(&peer, "/rpc"), "t-0 t-0 t-1");
    let sends = &peer.asked("/rpc")[1..];
    assert_eq!(sends[0].headers["idempotency-key"], sends[1].headers["idempotency-key"]);

    let peer = agent(|asked| issue(asked, &json!(3600)), refuse).await;
    let client = connected(&peer);
    client.get("t-1").await.unwrap();
    assert_eq!(client.stream("hello").await.unwrap().count().await, 2);
    assert_eq!(tokens(&peer, "/rpc"), "t-0 t-0 t-1");
}

#[tokio::test]
async fn a_token_that_many_calls_find_refused_is_renewed_once() {
    let refuse = |asked: &Asked, token: &str| token == "Bearer t-0" && asked.before > 0;
    let peer = agent(|asked| issue(asked, &json!(3600)), refuse).await;
    let client = connected(&peer);
    client.get("t-1").await.unwrap();
    for outcome in join_all((0..20).map(|_| client.get("t-1"))).await {
        outcome.unwrap();
    }
    assert_eq!(peer.asked("/token").len(), 2);
}

#[tokio::test]
async fn an_agent_that_refuses_every_token_is_not_asked_for_ever() {
    let peer = agent(|asked| issue(asked, &json!(3600)), |_, _| true).await;
    let client = connected(&peer);
    let error = client.get("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert_eq!(tokens(&peer, "/rpc"), "t-0", "a new token that is refused is the last word");
    client.get("t-1").await.unwrap_err();
    assert_eq!(tokens(&peer, "/rpc"), "t-0 t-0 t-1");
}

#[tokio::test]
async fn the_card_is_asked_for_with_a_renewed_token_too() {
    let refuse = |asked: &Asked, token: &str| token == "Bearer t-0" && asked.before > 0;
    let peer = agent(|asked| issue(asked, &json!(3600)), refuse).await;
    let credentials = Credentials::none().client_credentials(client(&peer));
    let (egress, url) = (Egress::operator().unwrap(), agent_url(&peer.base).unwrap());
    discover(&egress, &url, &credentials).await.unwrap();
    discover(&egress, &url, &credentials).await.unwrap();
    assert_eq!(tokens(&peer, CARD), "t-0 t-0 t-1");
}

#[tokio::test]
async fn a_token_endpoint_that_is_busy_is_asked_again() {
    // The agent has not seen the call: even a send may be tried again.
    let busy = |asked: &Asked| match asked.before {
        0 => status(503, &[("retry-after", "0")]),
        1 => status(429, &[("retry-after", "0")]),
        _ => issue(asked, &json!(3600)),
    };
    let peer = agent(busy, |_, _| false).await;
    connected(&peer).send("hello").await.unwrap();
    assert_eq!((tokens(&peer, "/rpc"), peer.asked("/token").len()), ("t-2".to_owned(), 3));
}

#[tokio::test]
async fn without_a_token_the_error_says_why_and_keeps_the_secret() {
    type Script = fn(&Asked) -> Response;
    let cases: [(Script, ErrorKind, &str); 6] = [
        (
            |asked| {
                let said = format!("{} {}", asked.text, asked.header("authorization").unwrap());
                let body = json!({ "error": "invalid_client", "error_description": said }).to_string();
                answer(401, &[], body.into())
            },
            ErrorKind::Unauthenticated,
            "/token answered 401 Unauthorized: invalid_client",
        ),
        (|_| status(404, &[]), ErrorKind::Unauthenticated, "/token answered 404 Not Found"),
        (
            |asked| status(307, &[("location", &format!("{}/elsewhere", asked.base))]),
            ErrorKind::Unauthenticated,
            "/token answered 307 Temporary Redirect; redirects are not followed, use the final address",
        ),
        (|_| status(500, &[]), ErrorKind::Unavailable, "/token answered 500 Internal Server Error"),
        (
            |_| json_answer(&json!({ "access_token": "s3cret", "token_type": "mac" })),
            ErrorKind::Unauthenticated,
            "/token is not a token: expected token_type Bearer",
        ),
        (
            |_| {
                let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(" ".repeat(1000)));
                answer(200, &[], axum::body::Body::from_stream(endless))
            },
            ErrorKind::Unauthenticated,
            "/token is larger than the limit of 65536 bytes",
        ),
    ];
    for (script, kind, expected) in cases {
        let peer = agent(script, |_, _| false).await;
        let builder = builder().client_credentials(client(&peer));
        let told = format!("{builder:?}");
        let client = builder.with_card(known_card(&peer)).unwrap();
        let told = format!("{told} {client:?}");
        let error = client.send("hello").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().starts_with("no access token: "), "{error}");
        assert!(error.message().ends_with(expected), "{error}");
        let told = format!("{told} {error:?} {error}");
        assert!(!told.contains("s3cret") && !told.contains("bWU6czNjcmV0"), "{told}");
        assert_eq!((peer.asked("/rpc").len(), peer.asked("/elsewhere").len()), (0, 0));
    }
    // Nobody there.
    let peer = agent(|_| status(500, &[]), |_, _| false).await;
    let gone = ClientCredentials::new("http://127.0.0.1:1/token", "me", "s3cret").unwrap();
    let error = builder().client_credentials(gone).connect(&peer.base).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.message().starts_with("no access token: cannot connect to http://127.0.0.1:1/token: "),
        "{error}"
    );
}

#[tokio::test]
async fn tokens_do_not_follow_a_card_to_another_origin() {
    // Lesson 10
    let peer = agent(|asked| issue(asked, &json!(3600)), |_, _| false).await;
    let base = peer.base.clone();
    let directory = Peer::start(move |_| json_answer(&card(&base, &[]))).await;
    let connect = || builder().client_credentials(client(&peer));
    let abroad = connect().connect(&directory.base).await.unwrap();
    let error = abroad.get("t-1").await.unwrap_err();
    assert!(error.message().contains("bound to the origin of the card"), "{error}");
    assert_eq!((tokens(&directory, CARD), tokens(&peer, "/rpc")), ("t-0".to_owned(), "none".to_owned()));

    let allowed = connect().allow_origin(&peer.base).connect(&directory.base).await.unwrap();
    allowed.get("t-1").await.unwrap();
    assert_eq!(tokens(&peer, "/rpc"), "none t-1");
}
