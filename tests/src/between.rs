//! A hub in this process, between callers and an agent: they come with keys, and it goes on in its own name.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use nuncio_client::{Client, Credentials};
use nuncio_hub::{
    Hub, Keyring, NewApiKey,
    config::{
        Agent, AgentKind, AgentOrigin, Anonymous, Config, Identity, Mailbox, Mode, Push, Secret, Upstream,
    },
};
use nuncio_protocol::{A2aService, Binding, Version};
use tokio::{sync::oneshot, task::JoinHandle};
use url::Url;

use crate::world::{By, CALLER, connect, direct};

/// As whom the agent knows it.
pub const HUB: &str = "hub";

/// The name of the agent at this hub.
pub const AGENT: &str = "scripted";

/// An agent that comes with every hub.
const ECHO: &str = "echo";

/// The binding and version that it uses towards its agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relation {
    /// The owner of the tasks: hub or agent.
    pub mode: Mode,
    /// The binding that it speaks to the agent.
    pub binding: Binding,
    /// The version that it speaks to the agent.
    pub version: Version,
}

/// A hub with one agent. Ends when it is dropped.
#[derive(Debug)]
pub struct Between {
    /// The address of the agent.
    pub url: String,
    keyring: Arc<Keyring>,
    _stop: oneshot::Sender<()>,
    _running: JoinHandle<()>,
}

impl Between {
    /// Starts it before the agent at this address. Callers have keys or no name.
    pub async fn start(agent: SocketAddr, relation: Relation, pushes: bool) -> Self {
        let mut upstream = upstream(&format!("http://{agent}"), relation);
        upstream.auth.headers = vec![(CALLER.parse().unwrap(), Secret::new(HUB))];
        upstream.extended_card = true;
        Self::before(upstream, pushes).await
    }

    /// Starts it before this agent, with webhooks or without.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn before(upstream: Upstream, pushes: bool) -> Self {
        let agent =
            Agent::new(AGENT.parse().unwrap(), AgentKind::Upstream(Box::new(upstream)), AgentOrigin::File);
        let config = Config {
            agents: vec![agent],
            // 0.3 over gRPC has no place for the name of an agent.
            default_agent: Some(AGENT.to_owned()),
            identity: Identity { anonymous: Anonymous::Always, ..Identity::default() },
            push: Push { enabled: pushes, allow_private: true, ..Push::default() },
            drain_grace: Duration::ZERO,
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        Self::run(config, AGENT).await
    }

    /// Starts it with a mailbox under the name of the agent, whose worker needs no key.
    pub async fn mailbox() -> Self {
        let kind = AgentKind::Mailbox(Box::<Mailbox>::default());
        let config = Config {
            agents: vec![Agent::new(AGENT.parse().unwrap(), kind, AgentOrigin::File)],
            identity: Identity { anonymous: Anonymous::Always, ..Identity::default() },
            drain_grace: Duration::ZERO,
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        Self::run(config, AGENT).await
    }

    /// A hub with the echo that comes with it, which has all that an agent can have.
    pub async fn echo() -> Self {
        let config = Config {
            demo: true,
            default_agent: Some(ECHO.to_owned()),
            push: Push { allow_private: true, ..Push::default() },
            drain_grace: Duration::ZERO,
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        Self::run(config, ECHO).await
    }

    async fn run(config: Config, agent: &str) -> Self {
        let hub = Hub::bind(config).await.expect("the hub starts");
        let (url, keyring) = (format!("{}/agents/{agent}", hub.local_url()), hub.keyring());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            Box::pin(hub.run(async move { drop(stopped.await) })).await.expect("the hub runs");
        });
        Self { url, keyring, _stop: stop, _running: running }
    }

    /// The agent as a caller of this name reaches it.
    ///
    /// # Panics
    /// When it is not reached at all.
    pub async fn reached(
        &self,
        binding: Binding,
        version: Version,
        by: By,
        caller: Option<&str>,
    ) -> Arc<dyn A2aService> {
        let (client, credentials) = self.connected(binding, version, caller).await;
        match by {
            By::Client => client.service(),
            By::Direct => direct(&self.url, &client.candidates()[0], &credentials),
        }
    }

    /// The agent as the client of a caller of this name reaches it.
    ///
    /// # Panics
    /// When it is not reached at all.
    pub async fn client(&self, binding: Binding, version: Version, caller: Option<&str>) -> Client {
        self.connected(binding, version, caller).await.0
    }

    async fn connected(
        &self,
        binding: Binding,
        version: Version,
        caller: Option<&str>,
    ) -> (Client, Credentials) {
        let credentials = match caller {
            Some(name) => {
                let (_, key) = self.keyring.create(NewApiKey::named(name)).await.expect("a new name");
                Credentials::none().bearer(key.reveal()).unwrap()
            }
            None => Credentials::none(),
        };
        (connect(&self.url, binding, version, credentials.clone()).await, credentials)
    }
}

/// An agent at this address, that is spoken to in this way.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn upstream(url: &str, relation: Relation) -> Upstream {
    let Relation { mode, binding, version } = relation;
    let url = Url::parse(url).expect("an address");
    Upstream { mode, binding: Some(binding), version: Some(version), ..Upstream::new(url) }
}
