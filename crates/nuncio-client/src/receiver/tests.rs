//! The way of a notification through a receiver: proofs, shapes, tasks, duplicates.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Json, Router, routing::get};
use http::{HeaderName, HeaderValue};
use nuncio_protocol::TaskState;
use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::{
    SigningKey, TrustedKeys,
    notification::{Claims, Invalid, WebhookSecret, WrongSignature, sign},
};

const NOW: i64 = 1_800_000_000;
const HOOK: &str = "https://me.example/hook";

fn update() -> Value {
    json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}})
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_ed25519_seed(&[seed; 32]).unwrap()
}

fn trust(key: &SigningKey) -> TrustedKeys {
    TrustedKeys::from_jwks(&key.jwk()).unwrap()
}

fn secret(seed: u8) -> WebhookSecret {
    WebhookSecret::from_bytes(&[seed; 32]).unwrap()
}

/// A request as it is made, before something goes wrong with it.
#[derive(Clone)]
struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    /// With every proof there is.
    fn whole() -> Self {
        let body = update().to_string().into_bytes();
        let claims = Claims::new("https://hub.example", HOOK, "d-1", "t-1", &body, NOW);
        let request = Self { headers: HeaderMap::new(), body };
        let signature = secret(1).sign("d-1", NOW, &request.body);
        request
            .with("content-type", "application/a2a+json")
            .with("a2a-version", "1.0")
            .with("authorization", "Bearer s3cret")
            .with("x-a2a-notification-token", "t0ken")
            .with("a2a-notification-token", "t0ken")
            .with("webhook-id", "d-1")
            .with("webhook-timestamp", &NOW.to_string())
            .with("webhook-attempt", "3")
            .with("webhook-signature", &signature)
            .with("a2a-notification-signature", &sign(&key(1), &claims).unwrap())
    }

    /// With no more than most SDKs send.
    fn plain(body: &Value) -> Self {
        let request = Self { headers: HeaderMap::new(), body: body.to_string().into_bytes() };
        request.with("content-type", "application/json").with("x-a2a-notification-token", "t0ken")
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    fn and(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    async fn at(&self, receiver: &Receiver, now: i64) -> Result<Accepted, Rejected> {
        receiver.accept_at(&self.headers, &self.body, now).await
    }
}

fn by_token() -> ReceiverBuilder {
    Receiver::builder().token("t0ken")
}

/// The outcome of a request at a receiver, as a line of text.
async fn check(
    what: &str,
    builder: ReceiverBuilder,
    request: &Request,
    now: i64,
    expected: Result<&str, u16>,
) {
    let outcome = request.at(&builder.build().unwrap(), now).await;
    let shown = match &outcome {
        Ok(accepted) => {
            let proofs = accepted.notification.proofs.iter().map(|proof| match proof {
                Proof::Key { .. } => "key".to_owned(),
                proof => proof.to_string(),
            });
            Ok(proofs.collect::<Vec<_>>().join(" "))
        }
        Err(rejected) => Err(rejected.status().as_u16()),
    };
    assert_eq!(shown.as_ref().map(String::as_str).map_err(|status| *status), expected, "{what}: {outcome:?}");
    if let Err(rejected) = outcome {
        for secret in ["t0ken", "s3cret"] {
            assert!(!rejected.to_string().contains(secret), "{what}: {rejected}");
        }
    }
}

/// REQ-170
#[tokio::test]
async fn every_proof_that_is_asked_for_must_hold() {
    let r = Request::whole;
    let all = || {
        let hook = Url::parse(HOOK).unwrap();
        by_token().bearer("s3cret").secret(secret(1)).keys(trust(&key(1))).audience(hook)
    };
    let by_secret = || Receiver::builder().secret(secret(1));
    let by_key = || Receiver::builder().keys(trust(&key(1)));
    let by_bearer = || Receiver::builder().bearer("s3cret");
    let anybody = || Receiver::builder().insecure_accept_all();
    let other_body = update().to_string().replace("WORKING", "COMPLETED");
    let other_hook = Url::parse("https://me.example/other").unwrap();
    for (what, builder, request, now, expected) in [
        ("all", all(), r(), NOW, Ok("token authorization secret key")),
        ("nothing is asked for", anybody(), r(), NOW, Ok("")),
        ("an old name of the token", by_token(), r().without("a2a-notification-token"), NOW, Ok("token")),
        ("a new name of the token", by_token(), r().without("x-a2a-notification-token"), NOW, Ok("token")),
        ("one of several tokens", by_token().token("other"), r(), NOW, Ok("token")),
        ("another token", Receiver::builder().token("other"), r(), NOW, Err(401)),
        ("the beginning of the token", Receiver::builder().token("t0ke"), r(), NOW, Err(401)),
        (
            "no token",
            by_token(),
            r().without("a2a-notification-token").without("x-a2a-notification-token"),
            NOW,
            Err(401),
        ),
        (
            "an empty token",
            by_token(),
            Request::plain(&update()).with("x-a2a-notification-token", ""),
            NOW,
            Err(401),
        ),
        (
            "a scheme in small letters",
            by_bearer(),
            r().with("authorization", "bearer  s3cret"),
            NOW,
            Ok("authorization"),
        ),
        ("another scheme", by_bearer(), r().with("authorization", "Basic s3cret"), NOW, Err(401)),
        ("other credentials", by_bearer(), r().with("authorization", "Bearer x"), NOW, Err(401)),
        ("credentials alone", by_bearer(), r().with("authorization", "s3cret"), NOW, Err(401)),
        ("no authorization", by_bearer(), r().without("authorization"), NOW, Err(401)),
        ("a secret", by_secret(), r(), NOW + 300, Ok("secret")),
        (
            "a new secret beside the old",
            Receiver::builder().secret(secret(2)).secret(secret(1)),
            r(),
            NOW,
            Ok("secret"),
        ),
        ("another secret", Receiver::builder().secret(secret(2)), r(), NOW, Err(401)),
        ("a secret, replayed", by_secret(), r(), NOW + 301, Err(401)),
        ("a secret, another id", by_secret(), r().with("webhook-id", "d-2"), NOW, Err(401)),
        ("a secret, no id", by_secret(), r().without("webhook-id"), NOW, Err(401)),
        ("a secret, no time", by_secret(), r().without("webhook-timestamp"), NOW, Err(401)),
        ("a secret, changed body", by_secret(), r().body(other_body.as_bytes()), NOW, Err(401)),
        ("a secret, not signed", by_secret(), r().without("webhook-signature"), NOW, Err(401)),
        ("a key", by_key(), r(), NOW, Ok("key")),
        ("one of several keys", by_key().keys(trust(&key(2))), r(), NOW, Ok("key")),
        ("another key", Receiver::builder().keys(trust(&key(2))), r(), NOW, Err(401)),
        ("a key, replayed", by_key(), r(), NOW + 1000, Err(401)),
        ("a key, another id", by_key(), r().with("webhook-id", "d-2"), NOW, Err(401)),
        ("a key, no id", by_key(), r().without("webhook-id"), NOW, Err(401)),
        ("a key, changed body", by_key(), r().body(other_body.as_bytes()), NOW, Err(401)),
        ("a key, another audience", by_key().audience(other_hook.clone()), r(), NOW, Err(401)),
        (
            "a key, one of several audiences",
            by_key().audience(other_hook).audience(Url::parse(HOOK).unwrap()),
            r(),
            NOW,
            Ok("key"),
        ),
        ("a key, not signed", by_key(), r().without("a2a-notification-signature"), NOW, Err(401)),
        ("two signatures by keys", by_key(), r().and("a2a-notification-signature", "x"), NOW, Err(400)),
        ("all but one", all(), r().without("authorization"), NOW, Err(401)),
    ] {
        check(what, builder, &request, now, expected).await;
    }
}

#[tokio::test]
async fn what_is_no_notification_is_refused() {
    let r = Request::whole;
    for (what, request, expected) in [
        ("another content type", r().with("content-type", "text/plain"), Err(415)),
        ("none", r().without("content-type"), Err(415)),
        ("a charset", r().with("content-type", "Application/JSON; charset=utf-8"), Ok("token")),
        ("another version", r().with("a2a-version", "2.0"), Err(400)),
        ("an attempt that is no number", r().with("webhook-attempt", "third"), Err(400)),
        ("a time that is no number", r().with("webhook-timestamp", "now"), Err(400)),
        ("an id that is endless", r().with("webhook-id", &"x".repeat(257)), Err(400)),
        ("two ids", r().and("webhook-id", "d-2"), Err(400)),
        ("no JSON", r().body(b"hello"), Err(400)),
        ("no UTF-8", r().body(b"{\"a\":\"\xff\"}"), Err(400)),
        ("nothing", r().body(b""), Err(400)),
        ("a list", r().body(b"[]"), Err(400)),
        ("an empty object", r().body(b"{}"), Err(400)),
        ("two members", r().body(br#"{"task":{"id":"t"},"statusUpdate":{"taskId":"t"}}"#), Err(400)),
        (
            "a task without an id",
            r().body(br#"{"task":{"status":{"state":"TASK_STATE_WORKING"}}}"#),
            Err(400),
        ),
        ("an update without a task", r().body(br#"{"statusUpdate":{}}"#), Err(400)),
        (
            "a state of nobody",
            r().body(b"{\"statusUpdate\":{\"taskId\":\"t\",\"status\":{\"state\":\"\\u001b[2J\"}}}"),
            Err(400),
        ),
        ("an error", r().body(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}"#), Err(400)),
        (
            "an envelope in an envelope",
            r().body(br#"{"jsonrpc":"2.0","result":{"jsonrpc":"2.0","result":{}}}"#),
            Err(400),
        ),
        ("as large as it may be", r().body(&[b' '; 1000]), Err(400)),
        ("too large", r().body(&[b' '; 1001]), Err(413)),
    ] {
        check(what, by_token().max_body(1000), &request, NOW, expected).await;
        if let Err(rejected) = request.at(&by_token().build().unwrap(), NOW).await {
            assert!(!rejected.to_string().contains(char::is_control), "{what}: {rejected}");
        }
    }
}

#[tokio::test]
async fn strangers_learn_nothing_about_bodies() {
    let request = Request::whole().without("a2a-notification-token").without("x-a2a-notification-token");
    let rejected = request.body(b"no JSON").at(&by_token().build().unwrap(), NOW).await.unwrap_err();
    assert_eq!(rejected, Rejected::Missing("token"));
}

#[tokio::test]
async fn the_headers_are_told() {
    let accepted = Request::whole().at(&by_token().build().unwrap(), NOW).await.unwrap();
    let Notification { id, attempt, timestamp, version, proofs, .. } = accepted.notification;
    assert_eq!((id.as_deref(), attempt, timestamp), (Some("d-1"), Some(3), Some(NOW)));
    assert_eq!((version, proofs), (Version::V1_0, vec![Proof::Token]));
}

/// A task as v0.3 writes it.
fn old_task() -> Value {
    let text = json!([{"kind": "text", "text": "done"}]);
    json!({
        "kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"},
        "artifacts": [{"artifactId": "a-1", "parts": text}],
    })
}

/// REQ-173, and what other SDKs send.
#[tokio::test]
async fn every_shape_becomes_an_event() {
    let task = || {
        json!({"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"},
               "artifacts": [{"artifactId": "a-1", "parts": [{"text": "done"}]}]})
    };
    let artifact = json!({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "lastChunk": true,
                          "artifact": {"artifactId": "a-1", "parts": [{"text": "done"}]}}});
    let old_update = json!({"kind": "status-update", "taskId": "t-1", "contextId": "c-1", "final": false,
                            "status": {"state": "working"}});
    let old_artifact = json!({"kind": "artifact-update", "taskId": "t-1", "contextId": "c-1", "lastChunk": true,
                              "artifact": {"artifactId": "a-1", "parts": [{"kind": "text", "text": "done"}]}});
    let enveloped = |result: Value| json!({"jsonrpc": "2.0", "id": "d-1", "result": result});
    let (new, old) = (Version::V1_0, Version::V0_3);
    let whole = json!({"task": task()});
    let mut without_kind = old_task();
    without_kind.as_object_mut().unwrap().remove("kind");
    let message = json!({"message": {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}});
    for (what, body, said, version, expected) in [
        ("a task", whole.clone(), Some(new), new, &whole),
        ("a task, unsaid", whole.clone(), None, new, &whole),
        ("an update, unsaid", update(), None, new, &update()),
        ("an artifact", artifact.clone(), Some(new), new, &artifact),
        ("a message", message.clone(), None, new, &message),
        ("a bare task of 1.0", task(), Some(new), new, &whole),
        ("a bare task of 0.3", old_task(), Some(old), old, &whole),
        ("a bare task of 0.3, unsaid", old_task(), None, old, &whole),
        ("a bare task of 0.3 by one that speaks 1.0", old_task(), Some(new), old, &whole),
        ("a bare task without kind", without_kind, None, old, &whole),
        ("a bare task of 1.0, unsaid", task(), None, old, &whole),
        ("a bare update of 0.3", old_update.clone(), None, old, &update()),
        ("a bare artifact of 0.3", old_artifact, Some(old), old, &artifact),
        ("an envelope around a task", enveloped(old_task()), Some(old), old, &whole),
        ("an envelope around an update, unsaid", enveloped(old_update), None, old, &update()),
        ("an envelope of 1.0", enveloped(whole.clone()), None, new, &whole),
    ] {
        let request = Request::plain(&body);
        let request = match said {
            Some(version) => request.with("a2a-version", version.as_str()),
            None => request,
        };
        let notification = request.at(&by_token().build().unwrap(), NOW).await.unwrap().notification;
        assert_eq!(notification.version, version, "{what}");
        assert_eq!(serde_json::to_value(&notification.event).unwrap(), *expected, "{what}");
    }
}

/// A receiver reads the notifications of our own dialects.
#[tokio::test]
async fn what_a_hub_sends_is_what_a_receiver_hands_over() {
    let task: nuncio_protocol::Task =
        serde_json::from_value(json!({"id": "t-1", "contextId": "c-1", "status": {"state": 3}})).unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let event = Event::Task(task);
    for version in Version::ALL {
        let mut body = Vec::new();
        crate::choose::jsonrpc_dialect(*version).encode_event(&event, &mut body);
        let request = Request::whole().with("a2a-version", version.as_str()).body(&body);
        let notification = request.at(&by_token().build().unwrap(), NOW).await.unwrap().notification;
        assert_eq!((notification.version, notification.event), (*version, event.clone()));
    }
}

/// REQ-171
#[tokio::test]
async fn only_expected_tasks_are_accepted() {
    let message = json!({"message": {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}});
    for (what, builder, body, expected) in [
        ("the task", by_token().task("t-1"), update(), Ok("token")),
        ("one of two", by_token().task("t-0").task("t-1"), update(), Ok("token")),
        ("another", by_token().task("t-0"), update(), Err(404)),
        ("known to a function", by_token().expecting(|id| id.as_str() == "t-1"), update(), Ok("token")),
        ("unknown to a function", by_token().expecting(|_| false), update(), Err(404)),
        (
            "named, whatever the function says",
            by_token().task("t-1").expecting(|_| false),
            update(),
            Ok("token"),
        ),
        ("a message of no task", by_token().task("t-1"), message.clone(), Err(404)),
        ("a message of no task to all", by_token(), message, Ok("token")),
    ] {
        check(what, builder, &Request::plain(&body), NOW, expected).await;
    }
}

/// REQ-172
#[tokio::test]
async fn a_delivery_is_handed_over_until_it_has_been_handled() {
    let receiver = by_token().build().unwrap();
    let request = Request::whole();
    let handled = AtomicUsize::new(0);
    let handle = |outcome: Result<(), &'static str>| {
        let handled = &handled;
        move |_: Notification| async move {
            handled.fetch_add(1, Ordering::Relaxed);
            outcome
        }
    };
    for (what, outcome, status, count) in [
        ("the handler fails", Err("full"), 500, 1),
        ("it is tried again", Ok(()), 204, 2),
        ("it comes again", Ok(()), 200, 2),
    ] {
        let answer = receiver.accept_with(&request.headers, &request.body, handle(outcome)).await;
        assert_eq!((answer.as_u16(), handled.load(Ordering::Relaxed)), (status, count), "{what}");
    }
    let anonymous = request.without("webhook-id");
    for count in [3, 4] {
        receiver.accept_with(&anonymous.headers, &anonymous.body, handle(Ok(()))).await;
        assert_eq!(handled.load(Ordering::Relaxed), count, "no id, not told apart");
    }
}

#[tokio::test]
async fn who_is_refused_is_not_remembered() {
    let receiver = by_token().task("t-1").build().unwrap();
    let other = update().to_string().replace("t-1", "t-2");
    let refused = Request::whole().body(other.as_bytes()).at(&receiver, NOW).await.unwrap_err();
    assert_eq!(refused, Rejected::Unexpected("t-2".into()));
    let held = Request::whole().at(&receiver, NOW).await.unwrap();
    let again = Request::whole().at(&receiver, NOW).await.unwrap_err();
    assert_eq!((again.status().as_u16(), again), (409, Rejected::InProgress("d-1".into())));
    held.receipt.done();
    assert_eq!(Request::whole().at(&receiver, NOW).await.unwrap_err(), Rejected::Duplicate("d-1".into()));
}

/// Each configuration has a token of its own, and so may each sender.
#[tokio::test]
async fn one_sender_cannot_use_up_the_ids_of_another() {
    let body = update();
    let showing = |name, value: &str| Request::plain(&body).with(name, value).with("webhook-id", "d-1");
    let token = "x-a2a-notification-token";
    for (builder, first, second) in [
        (by_token().token("other"), showing(token, "other"), showing(token, "t0ken")),
        (
            Receiver::builder().bearer("one").bearer("two"),
            showing("authorization", "Bearer two"),
            showing("authorization", "Bearer one"),
        ),
        (
            Receiver::builder().keys(trust(&key(1))).keys(trust(&key(2))),
            by(&key(2), "d-1"),
            by(&key(1), "d-1"),
        ),
    ] {
        let receiver = builder.build().unwrap();
        for request in [&first, &second] {
            request.at(&receiver, NOW).await.unwrap().receipt.done();
            assert_eq!(request.at(&receiver, NOW).await.unwrap_err(), Rejected::Duplicate("d-1".into()));
        }
    }
}

#[test]
fn a_receiver_without_proofs_has_to_be_meant() {
    let error = Receiver::builder().build().unwrap_err();
    assert!(error.message().contains("insecure_accept_all"), "{error}");
    assert!(Receiver::builder().keys(TrustedKeys::new()).build().is_err());
    assert!(Receiver::builder().insecure_accept_all().build().is_ok());
    let ftp = Url::parse("ftp://hub.example/jwks.json").unwrap();
    assert!(Receiver::builder().jwks_url(ftp).build().is_err());
    let shown = format!("{:?}", by_token().bearer("s3cret").secret(secret(1)).build().unwrap());
    assert!(!shown.contains("t0ken") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn every_reason_has_an_answer() {
    let invalid = Invalid::Expired;
    for (rejected, status) in [
        (Rejected::TooLarge { limit: 1 }, 413),
        (Rejected::MediaType { is_absent: true }, 415),
        (Rejected::Missing("token"), 401),
        (Rejected::Wrong("token"), 401),
        (Rejected::Secret(WrongSignature::OtherTime), 401),
        (Rejected::Signature(invalid), 401),
        (Rejected::NoKeys("down".into()), 503),
        (Rejected::Invalid("x".into()), 400),
        (Rejected::Unexpected("t".into()), 404),
        (Rejected::InProgress("d".into()), 409),
        (Rejected::Duplicate("d".into()), 200),
    ] {
        assert_eq!(rejected.status().as_u16(), status, "{rejected}");
    }
}

/// Keys at an address, counted.
struct Published {
    url: Url,
    keys: Arc<std::sync::Mutex<Option<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl Published {
    async fn start(keys: Option<Value>) -> Self {
        let keys = Arc::new(std::sync::Mutex::new(keys));
        let asked = Arc::new(AtomicUsize::new(0));
        let (shown, count) = (Arc::clone(&keys), Arc::clone(&asked));
        let answer = move || async move {
            count.fetch_add(1, Ordering::Relaxed);
            shown.lock().unwrap().clone().map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
        };
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/jwks.json", socket.local_addr().unwrap())).unwrap();
        tokio::spawn(axum::serve(socket, Router::new().route("/jwks.json", get(answer))).into_future());
        Self { url, keys, asked }
    }

    fn publish(&self, keys: Option<Value>) {
        *self.keys.lock().unwrap() = keys;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn set(keys: &[&SigningKey]) -> Value {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() })
}

/// A notification by this key.
fn by(key: &SigningKey, id: &str) -> Request {
    let body = update().to_string().into_bytes();
    let claims = Claims::new("https://hub.example", HOOK, id, "t-1", &body, NOW);
    Request::whole().with("webhook-id", id).with("a2a-notification-signature", &sign(key, &claims).unwrap())
}

#[tokio::test]
async fn published_keys_are_fetched_once_and_again_for_a_new_key() {
    let published = Published::start(Some(set(&[&key(1)]))).await;
    let receiver = Receiver::builder().jwks_url(published.url.clone()).remember(0).build().unwrap();
    let first = by(&key(1), "d-1");
    let together = futures_util::future::join_all((0..5).map(|_| first.at(&receiver, NOW))).await;
    assert!(together.iter().all(Result::is_ok), "{together:?}");
    assert_eq!(published.asked(), 1, "one fetch for all that wait");

    published.publish(Some(set(&[&key(2)])));
    let new = by(&key(2), "d-2");
    let unknown = Rejected::Signature(Invalid::UnknownKey(key(2).kid().to_owned()));
    assert_eq!(new.at(&receiver, NOW).await.unwrap_err(), unknown, "it is too early to ask again");
    assert_eq!(published.asked(), 1);
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    assert!(new.at(&receiver, NOW).await.is_ok());
    assert_eq!(published.asked(), 2);
    let gone = first.at(&receiver, NOW).await.unwrap_err();
    assert_eq!(gone, Rejected::Signature(Invalid::UnknownKey(key(1).kid().to_owned())));
}

#[tokio::test]
async fn keys_that_cannot_be_had_make_the_sender_try_again() {
    let published = Published::start(None).await;
    let receiver = || Receiver::builder().jwks_url(published.url.clone());
    let rejected = by(&key(1), "d-1").at(&receiver().build().unwrap(), NOW).await.unwrap_err();
    assert_eq!(rejected.status().as_u16(), 503, "{rejected}");
    assert!(rejected.to_string().contains("answered 503"), "{rejected}");
    let with_own = receiver().keys(trust(&key(1))).build().unwrap();
    assert!(by(&key(1), "d-1").at(&with_own, NOW).await.is_ok(), "a key that was given will do");
    let strange = by(&key(2), "d-2").at(&with_own, NOW).await.unwrap_err();
    assert_eq!(strange.status().as_u16(), 503, "its key may be among those that cannot be had: {strange}");
}

#[tokio::test]
async fn keys_outlive_their_server_for_a_while() {
    let published = Published::start(Some(set(&[&key(1)]))).await;
    let receiver = Receiver::builder().jwks_url(published.url.clone()).remember(0).build().unwrap();
    let request = by(&key(1), "d-1");
    assert!(request.at(&receiver, NOW).await.is_ok());
    published.publish(None);
    for (seconds, is_ok) in [(61, true), (3000, true), (3700, false)] {
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        tokio::time::resume();
        assert_eq!(request.at(&receiver, NOW).await.is_ok(), is_ok, "{seconds}");
    }
    assert_eq!(published.asked(), 4, "asked each time, as they were no longer fresh");
}
