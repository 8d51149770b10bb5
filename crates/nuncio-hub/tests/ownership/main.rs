//! Tasks of other callers do not exist: two holders of keys, all operations, all bindings and versions. The answer for
//! another caller's task is, except for its id, the answer for an unknown one (REQ-087).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod agents;
mod attempts;
mod cards;
mod consent;
mod conversations;
mod denials;
mod foreign;
mod limits;
mod refusals;
mod tasks;
mod tenants;
mod wire;

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use nuncio_hub::{
    Hub, Keyring, NewApiKey,
    config::{Admin, Agent, AgentKind, AgentOrigin, Config, Mode, Push, Upstream},
};
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle};

/// The timeout for operations that are immediate; only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A file of its own, below the folder for what tests write.
fn file(name: &str) -> PathBuf {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("ownership-{}-{number}-{name}", std::process::id()))
}

/// A hub that runs beside the test.
struct Running {
    url: String,
    admin: String,
    token: String,
    keyring: Arc<Keyring>,
    http: reqwest::Client,
    http2: reqwest::Client,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// The demo agents on a free port, of which `echo` answers at the root, too.
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            demo: true,
            drain_grace: Duration::ZERO,
            default_agent: Some("echo".to_owned()),
            push: Push { allow_private: true, ..Push::default() },
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        change(&mut config);
        let token = file("token");
        config.admin = Admin { listen: Some(([127, 0, 0, 1], 0).into()), token_file: Some(token.clone()) };
        let hub = Hub::bind(config).await.unwrap();
        let (url, keyring) = (hub.local_url(), hub.keyring());
        let admin = format!("http://{}", hub.administered().unwrap().address);
        let token = fs::read_to_string(token).unwrap().trim_end().to_owned();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(hub.run(async move { drop(stopped.await) }));
        let client = || reqwest::Client::builder().no_proxy();
        let (http, http2) = (client().build().unwrap(), client().http2_prior_knowledge().build().unwrap());
        Self { url, admin, token, keyring, http, http2, stop, ended }
    }

    /// With `far` besides: the echo agent of another hub, which keeps its own tasks.
    async fn before(far: &Self, change: impl FnOnce(&mut Config, &mut Agent)) -> Self {
        let url = format!("{}/agents/echo", far.url).parse().unwrap();
        let kind = AgentKind::Upstream(Box::new(Upstream { mode: Mode::Proxy, ..Upstream::new(url) }));
        let mut agent = Agent::new("far".parse().unwrap(), kind, AgentOrigin::File);
        Self::start(|config| {
            change(config, &mut agent);
            config.agents.push(agent);
        })
        .await
    }

    /// Ends it, so that another one may have its data.
    async fn stop(self) {
        drop((self.stop, self.http, self.http2, self.keyring));
        tokio::time::timeout(TEST_TIMEOUT, self.ended).await.unwrap().unwrap().unwrap();
    }

    /// The answer of the admin API.
    async fn told(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.admin)).bearer_auth(&self.token);
        tokio::time::timeout(TEST_TIMEOUT, async { request.send().await.unwrap().text().await.unwrap() })
            .await
            .unwrap()
    }

    /// The refused calls, oldest first, once there are this many.
    async fn trail(&self, count: usize) -> Vec<Value> {
        let read = async {
            loop {
                let page: Value = serde_json::from_str(&self.told("/api/v1/audit?limit=1000").await).unwrap();
                let mut rows = page["rows"].as_array().unwrap().clone();
                if rows.len() >= count {
                    rows.reverse();
                    return rows;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, read)
            .await
            .unwrap_or_else(|_| panic!("there are never {count} rows"))
    }

    /// The number of refused calls by reason.
    async fn denials(&self, reason: &str) -> u64 {
        let metrics = self.told("/metrics").await;
        let name = format!("nuncio_denials_total{{reason=\"{reason}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// A key of this name, for these agents.
    async fn key(&self, name: &str, agents: Option<&[&str]>) -> String {
        let agents = agents.map(|agents| agents.iter().map(|&agent| agent.to_owned()).collect());
        let (_, text) = self.keyring.create(NewApiKey { agents, ..NewApiKey::named(name) }).await.unwrap();
        text.reveal().to_owned()
    }
}
