//! Callers of an agent whose mode changes under them, with a token whose issuer comes and goes: every answer is
//! A2A, and says what is so. Without its issuer a token is refused.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use nuncio_tests::raw::{Answer, Raw};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The agent, for the hub's file: the hub keeps its tasks, or it does so itself.
pub(crate) fn setting(number: usize, url: &str) -> String {
    let mode = if number % 4 < 2 { "durable" } else { "proxy" };
    format!("[agents.moody]\nurl = \"{url}\"\nmode = \"{mode}\"\n")
}

/// Some who call it all the time.
pub(crate) struct Callers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    set: JoinSet<()>,
}

impl Callers {
    /// Lets them loose: nobody in particular, and somebody with a token.
    pub(crate) fn start(base: &str, bearer: &str) -> Self {
        let (stop, answered): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let mut set = JoinSet::new();
        for shown in [None, Some(bearer.to_owned())] {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let raw = Raw::new(format!("{base}/agents/moody"));
            set.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    answered.fetch_add(usize::from(say(&raw, shown.as_deref()).await), Ordering::Relaxed);
                }
            });
        }
        Self { stop, answered, set }
    }

    /// Fails as soon as one of them has; how often they were answered otherwise.
    pub(crate) fn check(&mut self) -> usize {
        while let Some(ended) = self.set.try_join_next() {
            ended.expect("every answer is right");
        }
        self.answered.load(Ordering::Relaxed)
    }

    pub(crate) async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.set.join_next().await {
            ended.expect("every answer is right");
        }
    }
}

/// Says something and asks for its task; true if there was one.
async fn say(raw: &Raw, shown: Option<&str>) -> bool {
    let message = json!({"messageId": "moody", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let sent = call(raw, shown, "SendMessage", json!({ "message": message })).await;
    if shown.is_some() && is_unknown(&sent) {
        return false;
    }
    let Some(task) = task(&sent, &sent.json()["result"]["task"], "UNAVAILABLE") else { return false };
    let got = call(raw, shown, "GetTask", json!({"id": task})).await;
    if shown.is_some() && is_unknown(&got) {
        return true;
    }
    // Whoever kept it, or whoever asked, may be another by now.
    if let Some(found) = self::task(&got, &got.json()["result"], "TASK_NOT_FOUND") {
        assert_eq!(found, task, "{got:?}");
    }
    true
}

/// True if the token is of nobody, because its issuer has gone; whoever shows it again and again waits.
fn is_unknown(answer: &Answer) -> bool {
    let reason = &answer.json()["error"]["data"][0]["reason"];
    match answer.status {
        401 => *reason == "UNAUTHENTICATED",
        429 => *reason == "RESOURCE_EXHAUSTED" && !answer.header("retry-after").is_empty(),
        _ => false,
    }
}

/// The id of the task, which is done; `None` if this is the refusal that may be.
fn task(answer: &Answer, task: &Value, refusal: &str) -> Option<String> {
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0", "{answer:?}");
    if !body["error"].is_null() {
        let reason = body["error"]["data"][0]["reason"].as_str().unwrap_or_default();
        // One that was cut off by the change is told to come back.
        let comes_back = reason == "UNAVAILABLE" && !answer.header("retry-after").is_empty();
        assert!(reason == refusal && refusal != "UNAVAILABLE" || comes_back, "{answer:?}");
        return None;
    }
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{answer:?}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "hello", "{answer:?}");
    task["id"].as_str().map(str::to_owned)
}

/// The answer to a call of version 1.0.
pub(crate) async fn call(raw: &Raw, shown: Option<&str>, method: &str, params: Value) -> Answer {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = vec![("a2a-version", "1.0")];
    headers.extend(shown.map(|shown| ("authorization", shown)));
    raw.post(&headers, body).await
}
