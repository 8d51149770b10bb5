//! What is not yours does not exist: two holders of keys, all operations, all bindings and versions. The answer
//! about what belongs to somebody else is, but for its name, the answer about what nobody has (REQ-087).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod agents;
mod refusals;
mod tasks;
mod wire;

use std::{sync::Arc, time::Duration};

use nuncio_hub::{
    Hub, Keyring, NewKey,
    config::{Config, Push},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// How long something may take that takes no time: only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub that runs beside the test.
struct Running {
    url: String,
    keyring: Arc<Keyring>,
    http: reqwest::Client,
    http2: reqwest::Client,
    _stop: oneshot::Sender<()>,
    _ended: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// The demo agents on a free port, of which `echo` answers at the root, too.
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            demo: true,
            drain_grace: Duration::ZERO,
            default_agent: Some("echo".to_owned()),
            push: Some(Push { allow_private: true, ..Push::default() }),
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        change(&mut config);
        let hub = Hub::bind(config).await.unwrap();
        let (url, keyring) = (hub.local_url(), hub.keyring());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(hub.run(async move { drop(stopped.await) }));
        let client = || reqwest::Client::builder().no_proxy();
        let (http, http2) = (client().build().unwrap(), client().http2_prior_knowledge().build().unwrap());
        Self { url, keyring, http, http2, _stop: stop, _ended: ended }
    }

    /// A key of this name, for these agents.
    async fn key(&self, name: &str, agents: Option<&[&str]>) -> String {
        let agents = agents.map(|agents| agents.iter().map(|&agent| agent.to_owned()).collect());
        let (_, text) = self.keyring.create(NewKey { agents, ..NewKey::named(name) }).await.unwrap();
        text.reveal().to_owned()
    }
}
