//! A hub's side of the pull API, scripted: it offers turns, keeps the lines that it gets, and fails as it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{post, put},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::within;

/// The key of the mailbox.
pub const MAILBOX_KEY: &str = "nuncio_mailbox";

/// A failure of one call that writes lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection breaks, and nothing is stored.
    CutBefore,
    /// The connection breaks when all is stored.
    CutAfter,
    /// The connection breaks when the first line is stored.
    CutWithin,
    /// The hub is busy.
    Busy,
    /// The hub has lost the lines that it has not acknowledged, and says so.
    Gap,
    /// The body is too large, unless it has a single line.
    TooLarge,
    /// The lease is lost.
    Lost,
}

/// A lease as the hub knows it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FakeLease {
    /// The name of the worker.
    pub worker: String,
    /// The key of the claim.
    pub claim_key: String,
    /// The offer, as the answer to the claim.
    pub offer: Value,
    /// The lines, in order.
    pub lines: Vec<Value>,
    /// It was handed back.
    pub released: bool,
    /// The caller has canceled the task.
    pub canceled: bool,
    /// It is good no more.
    pub lost: bool,
    /// The number of heartbeats.
    pub heartbeats: usize,
}

impl FakeLease {
    /// A final line is stored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.lines.last().is_some_and(is_final)
    }

    /// The lines in brief: the first member of each, with its value where that is a text.
    #[must_use]
    pub fn brief(&self) -> Vec<String> {
        self.lines.iter().map(brief).collect()
    }
}

fn brief(line: &Value) -> String {
    if let Some(update) = line.get("statusUpdate") {
        let state = update["status"]["state"].as_str().unwrap_or_default();
        let words = update["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        return format!("{} {words}", state.trim_start_matches("TASK_STATE_").to_lowercase())
            .trim()
            .to_owned();
    }
    if let Some(update) = line.get("artifactUpdate") {
        let artifact = &update["artifact"];
        let words = artifact["parts"][0]["text"].as_str().unwrap_or_default();
        return format!("artifact {} {words}", artifact["artifactId"].as_str().unwrap_or_default());
    }
    let mut members = line.as_object().expect("a line is an object").iter();
    let (form, value) = members.find(|(key, _)| *key != "last").expect("a line has a form");
    match value.as_str() {
        Some(text) => format!("{form} {text}"),
        None => form.clone(),
    }
}

fn is_final(line: &Value) -> bool {
    const ENDS: [&str; 5] = ["completed", "failed", "rejected", "inputRequired", "authRequired"];
    const STATES: [&str; 5] = ["COMPLETED", "FAILED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"];
    let state = line["statusUpdate"]["status"]["state"].as_str().unwrap_or_default();
    ENDS.iter().any(|form| line.get(form).is_some())
        || STATES.iter().any(|end| state.trim_start_matches("TASK_STATE_") == *end)
}

#[derive(Default)]
struct Inner {
    offers: VecDeque<Value>,
    leases: Vec<FakeLease>,
    faults: VecDeque<Fault>,
    card: Option<Value>,
    is_down: bool,
    /// The take-over headers of the claims.
    take_overs: Vec<bool>,
}

/// The hub. Ends when it is dropped.
#[derive(Debug)]
pub struct FakeHub {
    /// Its address.
    pub address: SocketAddr,
    shared: Shared,
    serving: JoinHandle<()>,
}

#[derive(Clone, Debug)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    /// Notified at each change.
    changed: watch::Sender<u64>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("leases", &self.leases).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        changed
    }
}

impl FakeHub {
    /// Starts it on a free port.
    ///
    /// # Panics
    /// When there is none.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared { inner: Arc::default(), changed: watch::Sender::new(0) };
        let router = Router::new()
            .route("/mailboxes/{call}", post(claim))
            .route("/mailboxes/coder/leases/{call}", post(lease_call))
            .route("/mailboxes/coder/card", put(put_card))
            .with_state(shared.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { address, shared, serving }
    }

    /// Its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Offers a turn: a message with this text, and further members.
    pub fn offer(&self, text: &str, more: &Value) {
        let mut offer = json!({
            "agent": "coder", "taskId": "t-1", "contextId": "c-1", "repeatId": "r-1",
            "message": { "messageId": "m-1", "role": "ROLE_USER", "taskId": "t-1", "contextId": "c-1",
                         "parts": [{ "text": text }] },
        });
        for (key, value) in more.as_object().expect("an object") {
            offer[key] = value.clone();
        }
        self.shared.change(|inner| inner.offers.push_back(offer));
    }

    /// Fails the next calls that write lines.
    pub fn fail(&self, faults: &[Fault]) {
        self.shared.change(|inner| inner.faults.extend(faults));
    }

    /// Answers no claim but with 503, until it is called again.
    pub fn set_down(&self, is_down: bool) {
        self.shared.change(|inner| inner.is_down = is_down);
    }

    /// Cancels the task of a lease.
    pub fn cancel(&self, lease: usize) {
        self.shared.change(|inner| inner.leases[lease].canceled = true);
    }

    /// Ends a lease.
    pub fn lose(&self, lease: usize) {
        self.shared.change(|inner| inner.leases[lease].lost = true);
    }

    /// The card that the worker has published.
    #[must_use]
    pub fn card(&self) -> Option<Value> {
        self.shared.lock().card.clone()
    }

    /// The leases so far.
    #[must_use]
    pub fn leases(&self) -> Vec<FakeLease> {
        self.shared.lock().leases.clone()
    }

    /// For each claim that was answered, whether it took over.
    #[must_use]
    pub fn take_overs(&self) -> Vec<bool> {
        self.shared.lock().take_overs.clone()
    }

    /// Waits until a lease looks like this.
    ///
    /// # Panics
    /// When it never does.
    pub async fn until(&self, lease: usize, what: &str, wanted: impl Fn(&FakeLease) -> bool) -> FakeLease {
        let mut changed = self.shared.changed.subscribe();
        let look = || self.shared.lock().leases.get(lease).filter(|lease| wanted(lease)).cloned();
        let seen = tokio::time::timeout(crate::TEST_TIMEOUT, async {
            loop {
                changed.mark_unchanged();
                if let Some(seen) = look() {
                    return seen;
                }
                changed.changed().await.unwrap();
            }
        });
        seen.await.unwrap_or_else(|_| panic!("{what} did not come: {:?}", self.leases()))
    }

    /// Waits until the worker has published its card.
    ///
    /// # Panics
    /// When it does not.
    pub async fn until_card(&self) -> Value {
        let mut changed = self.shared.changed.subscribe();
        within("the card", async {
            loop {
                changed.mark_unchanged();
                if let Some(card) = self.card() {
                    return card;
                }
                changed.changed().await.unwrap();
            }
        })
        .await
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn problem(status: u16, reason: &str, more: &Value) -> Response {
    let mut problem =
        json!({ "status": status, "reason": reason, "detail": format!("for the test: {reason}") });
    for (key, value) in more.as_object().expect("an object") {
        problem[key] = value.clone();
    }
    let headers = [("content-type", "application/problem+json"), ("retry-after", "0")];
    (StatusCode::from_u16(status).unwrap(), headers, problem.to_string()).into_response()
}

fn unauthorized(headers: &HeaderMap) -> Option<Response> {
    let wrong = header(headers, "authorization") != format!("Bearer {MAILBOX_KEY}");
    wrong.then(|| problem(401, "unauthorized", &json!({})))
}

/// An answer whose body breaks off.
fn cut() -> Response {
    let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut"))]);
    Body::from_stream(broken).into_response()
}

fn wait(headers: &HeaderMap) -> std::time::Duration {
    let seconds = header(headers, "prefer").strip_prefix("wait=").and_then(|seconds| seconds.parse().ok());
    std::time::Duration::from_secs(seconds.unwrap_or_default())
}

/// Looks again at each change, until the wait is over.
async fn poll<T>(
    shared: &Shared,
    headers: &HeaderMap,
    mut look: impl FnMut(&mut Inner) -> Option<T>,
) -> Option<T> {
    let mut changed = shared.changed.subscribe();
    let looked = tokio::time::timeout(wait(headers), async {
        loop {
            changed.mark_unchanged();
            if let Some(seen) = look(&mut shared.lock()) {
                return seen;
            }
            // The sender is in `shared`.
            let _ = changed.changed().await;
        }
    });
    match looked.await {
        Ok(seen) => Some(seen),
        Err(_) => look(&mut shared.lock()),
    }
}

async fn claim(State(shared): State<Shared>, Path(call): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refused) = unauthorized(&headers) {
        return refused;
    }
    assert_eq!(call, "coder:claim");
    let key = header(&headers, "idempotency-key").to_owned();
    let offered = poll(&shared, &headers, |inner| {
        if inner.is_down {
            return Some(Err(()));
        }
        if let Some(number) = inner.leases.iter().position(|lease| lease.claim_key == key) {
            return Some(Ok(number));
        }
        let offer = inner.offers.pop_front()?;
        let worker = header(&headers, "nuncio-worker").to_owned();
        inner.leases.push(FakeLease { worker, claim_key: key.clone(), offer, ..FakeLease::default() });
        Some(Ok(inner.leases.len() - 1))
    })
    .await;
    if offered == Some(Err(())) {
        return problem(503, "unavailable", &json!({}));
    }
    shared.change(|inner| inner.take_overs.push(header(&headers, "nuncio-take-over") == "true"));
    let Some(Ok(number)) = offered else { return StatusCode::NO_CONTENT.into_response() };
    let lease = shared.lock().leases[number].clone();
    let mut claim = lease.offer;
    claim["lease"] = json!(format!("lease-{number}"));
    claim["generation"] = json!(1);
    claim["attempt"] = json!(1);
    claim["have"] = json!(lease.lines.len());
    claim["ttlSeconds"] = claim.get("ttlSeconds").cloned().unwrap_or(json!(60));
    axum::Json(claim).into_response()
}

fn standing(lease: &FakeLease) -> Value {
    json!({ "have": lease.lines.len(), "cancel": lease.canceled, "waiting": 0, "ttlSeconds": 60, "done": lease.is_done() })
}

async fn lease_call(
    State(shared): State<Shared>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refused) = unauthorized(&headers) {
        return refused;
    }
    let (number, verb) = call.strip_prefix("lease-").and_then(|call| call.split_once(':')).expect("a lease");
    let number: usize = number.parse().unwrap();
    match verb {
        "update" => update(&shared, number, &headers, &body),
        "heartbeat" => {
            shared.change(|inner| inner.leases[number].heartbeats += 1);
            let news = poll(&shared, &headers, |inner| {
                let lease = &inner.leases[number];
                (lease.lost || lease.canceled || lease.is_done()).then(|| lease.clone())
            })
            .await;
            let lease = news.unwrap_or_else(|| shared.lock().leases[number].clone());
            // A lease that is over is as unknown as one that is lost.
            if lease.lost || lease.is_done() {
                return problem(409, "lease-lost", &json!({}));
            }
            axum::Json(standing(&lease)).into_response()
        }
        "release" => {
            let lease = shared.lock().leases[number].clone();
            if !lease.lines.is_empty() && !lease.canceled {
                return problem(409, "begun", &json!({}));
            }
            shared.change(|inner| inner.leases[number].released = true);
            axum::Json(json!({})).into_response()
        }
        other => panic!("no such call: {other}"),
    }
}

fn update(shared: &Shared, number: usize, headers: &HeaderMap, body: &Bytes) -> Response {
    let first: usize = header(headers, "nuncio-first").parse().expect("each update has a number");
    let text = std::str::from_utf8(body).expect("lines are text");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let fault = shared.lock().faults.pop_front();
    shared.change(|inner| {
        let lease = &mut inner.leases[number];
        match fault {
            Some(Fault::CutBefore) => return cut(),
            Some(Fault::Busy) => return problem(503, "unavailable", &json!({})),
            Some(Fault::Gap) => return problem(409, "gap", &json!({ "have": lease.lines.len() })),
            Some(Fault::TooLarge) if lines.len() > 1 => return problem(413, "too-large", &json!({})),
            Some(Fault::Lost) => lease.lost = true,
            Some(Fault::CutAfter | Fault::CutWithin | Fault::TooLarge) | None => {}
        }
        if lease.lost {
            return problem(409, "lease-lost", &json!({}));
        }
        let have = lease.lines.len();
        if first > have + 1 {
            return problem(409, "gap", &json!({ "have": have }));
        }
        for (at, line) in lines.iter().enumerate().filter(|(at, _)| first + at > have) {
            if line.get("invalid").is_some() {
                lease.lines.truncate(have);
                return problem(400, "invalid-line", &json!({ "line": first + at, "have": have }));
            }
            assert!(!lease.is_done(), "nothing comes after the end: {line}");
            lease.lines.push(line.clone());
            if fault == Some(Fault::CutWithin) {
                return cut();
            }
        }
        if fault == Some(Fault::CutAfter) {
            return cut();
        }
        axum::Json(standing(lease)).into_response()
    })
}

async fn put_card(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = unauthorized(&headers) {
        return refused;
    }
    shared.change(|inner| inner.card = Some(serde_json::from_slice(&body).expect("a card is JSON")));
    StatusCode::NO_CONTENT.into_response()
}
