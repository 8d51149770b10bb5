//! PostgreSQL goes away in mid-load: cut off, gone silent, stopped. The hub waits, sheds load, and recovers by
//! itself.

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_protocol::{Binding, CallContext, ErrorKind};
use nuncio_server::testing::postgres::{self, Server};
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    eventually,
    forward::{Forwarder, Line},
    hub::{Hub, free_address},
};
use serde_json::json;
use url::Url;

use crate::{
    address, check_store,
    ledger::Ledger,
    load::{Load, Reached, cx, say},
    stop,
    verify::verify,
};

const CALLERS: u64 = 16;

/// The address of the server in this URL.
pub(crate) fn port_of(url: &str) -> SocketAddr {
    let url = Url::parse(url).unwrap();
    SocketAddr::from(([127, 0, 0, 1], url.port().unwrap()))
}

/// The same database by another way.
pub(crate) fn by(url: &str, way: SocketAddr) -> String {
    let mut url = Url::parse(url).unwrap();
    url.set_port(Some(way.port())).unwrap();
    url.into()
}

/// A hub under load.
struct Tried {
    hub: Hub,
    reached: Arc<Reached>,
    ledger: Arc<Ledger>,
    load: Load,
}

impl Tried {
    async fn start(data: &str) -> Self {
        let seed = Chance::seed();
        eprintln!("{data}: NUNCIO_SEED={seed}");
        let hub = Hub::start(&["--data", data]).await;
        let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(address(&hub))), Arc::default());
        let load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
        Self { hub, reached, ledger, load }
    }

    /// Waits until so many tasks more were told of.
    async fn works(&mut self, tasks: usize) {
        let wanted = self.ledger.len() + tasks;
        eventually("more tasks", async || (self.ledger.len() >= wanted).then_some(())).await;
        self.load.check();
    }

    /// The hub refuses new work over every binding, says when to come back, and is not ready; callers are
    /// told so.
    async fn sheds_load(&self) {
        for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
            let service = self.reached.by("echo", binding);
            let refused = eventually("a refusal that says when to come back", async || {
                let brief = CallContext { deadline: Some(Instant::now() + Duration::from_secs(3)), ..cx() };
                let answer = service.send_message(&brief, say("hello", false)).await;
                answer.err().filter(|error| error.retry_after().is_some())
            });
            assert_eq!(refused.await.kind(), ErrorKind::Unavailable, "{binding:?}");
        }
        // As anybody sees it who is no client of ours. Whoever is let in just before waits, so each look is short.
        let http = reqwest::Client::builder().timeout(Duration::from_secs(3)).build().unwrap();
        let message =
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message});
        for (path, body) in [("/agents/echo", call), ("/agents/echo/message:send", message)] {
            let refused = eventually("a refusal with a header", async || {
                let post = http.post(format!("{}{path}", self.hub.base)).header("A2A-Version", "1.0");
                let post = post.header("Content-Type", "application/json").body(body.to_string());
                post.send().await.ok().filter(|answer| answer.status() != 200)
            })
            .await;
            assert_eq!(refused.status(), 503, "{path}");
            assert!(refused.headers().contains_key("retry-after"), "{path}: {refused:?}");
        }
        self.is_ready(503).await;
        let shed = self.ledger.shed();
        eventually("callers that are told to come back", async || {
            (self.ledger.shed() > shed + 5).then_some(())
        })
        .await;
    }

    async fn is_ready(&self, status: u16) {
        let ready = format!("{}/readyz", self.hub.base);
        let looks = async || (reqwest::get(&ready).await.unwrap().status() == status).then_some(());
        eventually("readiness", looks).await;
    }

    /// Ends the load, and finds all that was told.
    async fn end(self, data: &str) {
        self.is_ready(200).await;
        self.load.end().await;
        let ends = verify(&self.reached, &self.ledger).await;
        stop(self.hub).await;
        check_store(data).await;
        eprintln!("{} tasks told of, shed {} times; {ends:?}", self.ledger.len(), self.ledger.shed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_cut_off_is_waited_for() {
    let data = postgres::database().await;
    let forwarder = Forwarder::start(port_of(&data)).await;
    let mut tried = Tried::start(&by(&data, forwarder.address)).await;
    for _ in 0..2 {
        tried.works(40).await;
        forwarder.set(Line::Cut);
        tried.sheds_load().await;
        forwarder.set(Line::Open);
    }
    // Cut for no longer than a moment, in the middle of whatever goes on: answers are lost, not entries.
    let mut chance = Chance::new(Chance::seed());
    for _ in 0..10 {
        tokio::time::sleep(chance.millis(50..=300)).await;
        forwarder.set(Line::Cut);
        tokio::time::sleep(chance.millis(0..=20)).await;
        forwarder.set(Line::Open);
    }
    tried.works(40).await;
    tried.end(&data).await;
}

/// No packet comes back, no error either: only a watch tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_has_gone_silent_is_waited_for() {
    let data = postgres::database().await;
    let forwarder = Forwarder::start(port_of(&data)).await;
    let mut tried = Tried::start(&by(&data, forwarder.address)).await;
    tried.works(40).await;
    forwarder.set(Line::Frozen);
    tried.sheds_load().await;
    forwarder.set(Line::Open);
    tried.works(40).await;
    tried.end(&data).await;
}

/// The server of a folder, at this port. Blocks while it starts.
async fn serve(folder: &Path, port: SocketAddr) -> Server {
    let (folder, port) = (folder.to_str().unwrap().to_owned(), port.port().to_string());
    tokio::task::spawn_blocking(move || Server::start(&["--data", &folder, "--port", &port])).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_stopped_and_started_again_is_waited_for() {
    let folder = Folder::new();
    let (files, port) = (folder.path().join("postgres"), free_address());
    let server = serve(&files, port).await;
    let data = server.database().await;
    let mut tried = Tried::start(&data).await;
    tried.works(40).await;
    // At once, as in a power cut.
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    tried.sheds_load().await;
    let server = serve(&files, port).await;
    tried.works(40).await;
    tried.end(&data).await;
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}

/// A hub that was away for longer than an owner counts as alive is still the owner of what nobody has taken.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_goes_on_after_an_outage_that_outlasts_the_lease() {
    let data = postgres::database().await;
    let forwarder = Forwarder::start(port_of(&data)).await;
    let tried = Tried::start(&by(&data, forwarder.address)).await;
    forwarder.set(Line::Cut);
    tokio::time::sleep(Duration::from_secs(8)).await;
    forwarder.set(Line::Open);
    tried.end(&data).await;
}
