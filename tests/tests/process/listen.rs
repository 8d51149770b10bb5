//! `nuncio listen`: notifications as any sender may post them, and what is shown of them.

use std::{
    fs,
    net::TcpListener,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{Json, Router, routing::get};
use nuncio_client::{
    SigningKey,
    notification::{Claims, WebhookSecret, sign},
};
use nuncio_tests::{
    hub::{cli_with_env, start},
    process::Process,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{directory, path, text, wrong_input::check};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver that shows JSON.
struct Listener {
    process: Process,
    announced: Value,
    raw: Raw,
}

impl Listener {
    async fn start(args: &[&str]) -> Self {
        let mut process = start(&[&["listen", "--listen", "127.0.0.1:0", "-o", "json"], args].concat());
        let Some(line) = process.line().await else { panic!("{}", process.stderr()) };
        let announced: Value = serde_json::from_str(&line).unwrap();
        let raw = Raw::new(format!("{}hook/1", text(&announced["url"])));
        Self { process, announced, raw }
    }

    async fn shown(&mut self) -> Value {
        let Some(line) = self.process.line().await else { panic!("{}", self.process.stderr()) };
        serde_json::from_str(&line).unwrap()
    }

    /// Ends it in order; nothing more was shown.
    async fn stop(mut self) {
        self.process.signal("INT").await;
        assert_eq!(self.process.lines().await, [""; 0]);
        let status = self.process.end().await;
        assert_eq!(status.code(), Some(0), "{}", self.process.stderr());
        self.process.says("stopped").await;
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

fn update(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": state}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_are_shown_and_garbage_is_not() {
    let mut listener = Listener::start(&[]).await;
    let token = text(&listener.announced["token"]).to_owned();
    assert!(token.len() >= 32, "{token}");
    let old = json!({"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"}});
    let whole =
        json!({"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}});
    let working = update("TASK_STATE_WORKING");
    let (new_token, old_token) = (("a2a-notification-token", &*token), ("x-a2a-notification-token", &*token));
    let id = ("webhook-id", "d-1");
    let a2a = ("content-type", "application/a2a+json");
    let enveloped = json!({"jsonrpc": "2.0", "id": "d-2", "result": old}).to_string();
    let (working_body, old_body) = (working.to_string(), old.to_string());
    for (what, headers, body, status, shown) in [
        (
            "1.0",
            &[new_token, a2a, id, ("a2a-version", "1.0")][..],
            &working_body,
            204,
            Some(("1.0", &working)),
        ),
        ("the same again", &[new_token, a2a, id, ("a2a-version", "1.0")], &working_body, 200, None),
        ("0.3", &[old_token], &old_body, 204, Some(("0.3", &whole))),
        ("0.3 in an envelope", &[old_token, ("a2a-version", "0.3")], &enveloped, 204, Some(("0.3", &whole))),
        ("no token", &[], &working_body, 401, None),
        ("another token", &[("x-a2a-notification-token", "x")], &working_body, 401, None),
        ("no JSON", &[new_token], &"hello".to_owned(), 400, None),
        ("no content type of ours", &[new_token, ("content-type", "text/plain")], &working_body, 415, None),
    ] {
        let answer = listener.raw.post(headers, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        if let Some((version, event)) = shown {
            let line = listener.shown().await;
            assert_eq!((text(&line["version"]), &line["event"]), (version, event), "{what}");
            assert_eq!(line["verifiedBy"], json!(["token"]), "{what}");
        } else if status != 200 {
            listener.process.says(&format!("answered {status} and not shown: ")).await;
        }
        assert!(!listener.process.stderr().contains(&token), "{what}: the token is not told");
    }
    assert_eq!(listener.raw.get("", &[]).await.status, 405);
    let large = listener.raw.post(&[new_token], vec![b' '; (16 << 20) + 1]).await;
    assert_eq!(large.status, 413);
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_are_verified_by_given_and_by_published_keys() {
    let key = SigningKey::from_ed25519_seed(&[7; 32]).unwrap();
    let file = directory("listen").join("jwk.json");
    fs::write(&file, key.jwk().to_string()).unwrap();
    let jwks = json!({"keys": [key.jwk()]});
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let published = format!("http://{}/jwks.json", socket.local_addr().unwrap());
    let router = Router::new().route("/jwks.json", get(|| async { Json(jwks) }));
    tokio::spawn(axum::serve(socket, router).into_future());

    let secret: WebhookSecret = SECRET.parse().unwrap();
    let body = update("TASK_STATE_COMPLETED").to_string();
    let hook = "https://me.example/hook";
    for option in [["--key", path(&file)], ["--jwks", &published]] {
        let more = ["--secret", SECRET, "--audience", hook, "--task", "t-1"];
        let mut listener = Listener::start(&[&option[..], &more].concat()).await;
        assert!(listener.announced["token"].is_null());
        let (time, id) = (now(), "d-1");
        let hmac = secret.sign(id, time, body.as_bytes());
        let claims = Claims::new("https://hub.example", hook, id, "t-1", body.as_bytes(), time);
        let signature = sign(&key, &claims).unwrap();
        let other = sign(&key, &Claims { audience: "https://other.example/".into(), ..claims }).unwrap();
        let time = time.to_string();
        let headers = |signature| {
            [
                ("webhook-id", id),
                ("webhook-timestamp", &*time),
                ("webhook-attempt", "2"),
                ("webhook-signature", &*hmac),
                ("a2a-notification-signature", signature),
            ]
        };
        assert_eq!(listener.raw.post(&headers(&*other), &*body).await.status, 401);
        listener.process.says("it is meant for").await;
        assert_eq!(listener.raw.post(&headers(&*signature)[..4], &*body).await.status, 401);
        assert_eq!(listener.raw.post(&headers(&*signature), &*body).await.status, 204);
        let shown = listener.shown().await;
        assert_eq!((&shown["id"], &shown["attempt"]), (&json!("d-1"), &json!(2)));
        assert_eq!(shown["verifiedBy"], json!(["secret", format!("key {}", key.kid())]));
        listener.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_can_be_tried() {
    let mut listener = Listener::start(&["--answer", "429", "--retry-after", "7", "--count", "2"]).await;
    let token = text(&listener.announced["token"]).to_owned();
    let body = update("TASK_STATE_WORKING").to_string();
    for attempt in ["1", "2"] {
        let headers =
            [("a2a-notification-token", &*token), ("webhook-id", "d-1"), ("webhook-attempt", attempt)];
        let answer = listener.raw.post(&headers, &*body).await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, "7"), "{attempt}");
        let shown = listener.shown().await;
        assert_eq!((shown["attempt"].to_string(), &shown["answered"]), (attempt.to_owned(), &json!(429)));
    }
    assert_eq!(listener.process.end().await.code(), Some(0), "after two");
}

/// The line that people see, and the line that they paste.
#[tokio::test(flavor = "multi_thread")]
async fn people_see_a_line_each() {
    let mut process = start(&["listen", "--listen", "127.0.0.1:0", "--once"]);
    process.says("Ctrl-C stops").await;
    let said = process.stderr();
    let paste = said.lines().find(|line| line.contains(" send ")).unwrap_or_else(|| panic!("{said}"));
    let words: Vec<_> = paste.split(' ').collect();
    let after = |option: &str| words[words.iter().position(|word| *word == option).unwrap() + 1];
    let (url, token) = (after("--push"), after("--push-token"));
    assert!(said.contains("--allow-private-push"), "{said}");

    // Cleartext HTTP/2, as some senders speak it.
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "half\nway"}]});
    let mut body = update("TASK_STATE_WORKING");
    body["statusUpdate"]["status"]["message"] = message;
    let request = client.post(url).header("content-type", "application/a2a+json");
    let request = request.header("a2a-notification-token", token).header("webhook-attempt", "3");
    let answer = request.body(body.to_string()).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (204, reqwest::Version::HTTP_2));
    let lines = process.lines().await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with("Z  t-1  working: half way  (attempt 3, token verified)"), "{lines:?}");
    assert_eq!(process.end().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_environment_is_asked_for_and_not_told() {
    let secret = [("NUNCIO_PUSH_TOKEN", "s3cret"), ("NUNCIO_PUSH_SECRET", "whsec_sh0rt")];
    let output = cli_with_env(&["listen", "--listen", "127.0.0.1:0"], &secret).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.starts_with("error: --secret: expected whsec_"), "{output:?}");
    assert!(!output.stderr.contains("s3cret") && !output.stderr.contains("sh0rt"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_cannot_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(
        &["listen", "--listen", &address],
        1,
        &["cannot listen on", &address, "the address is in use", "--listen"],
    )
    .await;
    let with = |more: &[&'static str]| [&["listen", "--listen", "127.0.0.1:0"], more].concat();
    check(&["listen", "--listen", "0.0.0.0:0"], 2, &["--listen 0.0.0.0:0", "--token", "127.0.0.1"]).await;
    check(&["listen", "--listen", "0.0.0.0:0", "--token", ""], 2, &["--token"]).await;
    check(&["listen", "--listen", "localhost"], 2, &["--listen", "127.0.0.1"]).await;
    check(&with(&["--secret", "s3cret"]), 2, &["--secret: expected whsec_", "openssl"]).await;
    check(&with(&["--key", "no/such/file"]), 2, &["--key no/such/file: cannot be read"]).await;
    check(&with(&["--key", "Cargo.toml"]), 2, &["--key Cargo.toml"]).await;
    check(&with(&["--jwks", "nowhere"]), 2, &["--jwks"]).await;
    check(&with(&["--jwks", "ftp://hub.example/jwks.json"]), 2, &["--jwks", "http or https"]).await;
    check(&with(&["--audience", "https://me.example"]), 2, &["--audience", "--jwks or --key"]).await;
    check(&with(&["--once", "--count", "2"]), 2, &["--once", "--count"]).await;
    check(&with(&["--count", "0"]), 2, &["--count"]).await;
    for code in ["100", "600", "never"] {
        check(&[&with(&["--answer"])[..], &[code]].concat(), 2, &["--answer"]).await;
    }
    check(&with(&["--retry-after", "5"]), 2, &["--answer"]).await;
}
