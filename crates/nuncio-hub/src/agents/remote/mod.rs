//! Remote agents: agents that speak A2A themselves and are called over the network.
//!
//! ```text
//!             ┌─ durable: our tasks, each delegated to a remote task
//! call ──► mode                                                     ──► link ──► the agent
//!             └─ proxy: the agent's tasks, calls forwarded as they came
//! ```
//! Reading order: this file (prepares and watches an agent), `link` (connections, card, health), `durable`,
//! `proxy`; `routes` (extra routes), `preflight` (checks of a configuration).

mod durable;
mod link;
mod preflight;
mod proxy;
mod routes;

use std::{
    any::Any,
    sync::{Arc, Weak},
    time::Duration,
};

use anyhow::Result;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_client::FetchedCard;
use nuncio_protocol::{AgentCard, Binding, Version, retry::Backoff};
use nuncio_server::{Runtime, store::Store};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::link::card::present;
use self::proxy::Proxy;
use self::{
    durable::{Durable, RemoteExecutor},
    link::{Link, card},
};
use super::{
    AgentFactory, Kind, KindRoute, Label, Prepared, expiry,
    kind::{RuntimeSpec, TargetProblem},
    probe::{Condition, Health, Probe},
};
use crate::{
    agent_urls::AgentUrls,
    config::{self, Mode, Upstream},
    dispatch::Dispatch,
    fleet::{Backend, ServedAgent, UpstreamAccess, UpstreamStatus},
    telemetry::HubTelemetry,
};

/// Time for which the start of an agent waits for its card.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Back-off between attempts to fetch a card while the agent is down.
const CARD_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// The interval between removals of expired records.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Parts that both modes use.
#[derive(Clone)]
pub(crate) struct RemoteParts {
    pub(crate) name: Arc<str>,
    /// The id of this hub, for the hops of calls.
    pub(crate) hub: Arc<str>,
    pub(crate) urls: AgentUrls,
    pub(crate) label: Arc<ArcSwap<Label>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) telemetry: HubTelemetry,
    /// The link of the current settings.
    pub(crate) link: Arc<ArcSwap<Link>>,
}

/// The mode of a remote agent: the owner of its tasks.
enum Tasks {
    /// The hub owns the tasks.
    Durable(Arc<Durable>),
    /// The agent owns the tasks.
    Proxy(Arc<Proxy>),
}

/// A remote agent.
struct Remote {
    name: Arc<str>,
    urls: AgentUrls,
    label: Arc<ArcSwap<Label>>,
    store: Arc<dyn Store>,
    probe: Arc<Probe>,
    link: Arc<ArcSwap<Link>>,
    tasks: Tasks,
}

#[async_trait]
impl Kind for Upstream {
    fn name() -> &'static str {
        "remote"
    }

    fn routes() -> Vec<KindRoute> {
        routes::routes()
    }

    /// Prepares the agent in its configured mode. An agent that cannot be reached is served as well: with
    /// its last good card, or with a provisional one that says so.
    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        let remote = Arc::new(Remote::new(self, desired, factory).await?);
        let prepared = match &remote.tasks {
            Tasks::Proxy(proxy) => {
                let relayed = Arc::clone(proxy);
                Prepared::service(Backend::Service {
                    service: Arc::<Proxy>::clone(proxy),
                    card: Arc::new(remote.card()),
                    relay: Some(Box::new(|layers| Arc::new(Dispatch::new(layers, relayed)))),
                })
            }
            Tasks::Durable(durable) => {
                let executor = RemoteExecutor(Arc::clone(durable));
                let builder = Runtime::builder(remote.card(), executor).idempotent(true);
                Prepared::durable(RuntimeSpec { unmarked_artifacts: true, ..RuntimeSpec::new(builder) })
            }
        };
        let stop = CancellationToken::new();
        let status = RemoteStatus { remote: Arc::clone(&remote), _stop: stop.clone().drop_guard() };
        Ok(Prepared {
            keep_headers: self.forward_headers.clone(),
            upstream: Some(Arc::new(status)),
            on_activate: Some(Box::new(move |agent| remote.start(agent, &stop))),
            ..prepared
        })
    }

    fn runtime_key(&self) -> String {
        format!("upstream {:?}", self.mode)
    }

    fn check_files(&self) -> Vec<TargetProblem> {
        preflight::check_files(self)
    }

    async fn check_reachable(&self, name: &str) -> Result<()> {
        preflight::check_reachable(name, self).await
    }
}

/// The status of a remote agent. Its background work stops when this is dropped.
struct RemoteStatus {
    remote: Arc<Remote>,
    _stop: DropGuard,
}

/// The proxy of an agent, if it is a remote agent in proxy mode.
fn proxy_of(agent: &ServedAgent) -> Option<&Arc<Proxy>> {
    let status: &dyn Any = &**agent.upstream()?;
    match &status.downcast_ref::<RemoteStatus>()?.remote.tasks {
        Tasks::Proxy(proxy) => Some(proxy),
        Tasks::Durable(_) => None,
    }
}

#[async_trait]
impl UpstreamStatus for RemoteStatus {
    fn health(&self) -> Arc<Health> {
        self.remote.probe.health()
    }

    /// The URL without user, password and query, which may be secret.
    fn url(&self) -> String {
        let mut url = self.remote.link.load().settings.url.clone();
        // Both succeed for a URL with a host, and settings only allow such URLs.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    fn card(&self) -> Option<Value> {
        self.remote.link.load().connected().map(|connected| connected.card.json.clone())
    }

    fn card_for_callers(&self) -> Option<Value> {
        self.card().filter(|_| self.remote.link.load().settings.show_upstream)
    }

    fn speaks(&self) -> Option<(Version, Binding)> {
        let connected = self.remote.link.load().connected()?;
        connected.client.candidates().first().map(|candidate| (candidate.version, candidate.binding))
    }

    fn may_repeat(&self) -> bool {
        let link = self.remote.link.load();
        link.settings.idempotent || link.connected().is_some_and(|connected| connected.knows_repeats())
    }

    fn access(&self) -> Option<UpstreamAccess> {
        Some(self.remote.link.load().access())
    }

    async fn refresh(&self, before: &ServedAgent) -> Result<(), String> {
        if self.remote.refresh().await {
            self.remote.show(before);
        }
        match &self.remote.probe.health().condition {
            Condition::Up => Ok(()),
            other => Err(other.reason().unwrap_or("it has not been contacted yet").to_owned()),
        }
    }
}

impl Remote {
    /// Opens the link and fetches the card within [`START_TIMEOUT`].
    async fn new(settings: &Upstream, desired: &config::Agent, factory: &AgentFactory) -> Result<Self> {
        let name: Arc<str> = (&*desired.name).into();
        let probe = Arc::new(Probe::of(&name, &factory.telemetry.events));
        let link = Link::open(&name, settings.clone(), Arc::clone(&probe), factory.callers.share().clone())?;
        let parts = RemoteParts {
            name,
            hub: Arc::clone(&factory.hub),
            urls: factory.urls.clone(),
            label: Arc::new(ArcSwap::from_pointee(Label::of(desired))),
            store: Arc::clone(&factory.store),
            telemetry: factory.telemetry.clone(),
            link: Arc::new(ArcSwap::from_pointee(link)),
        };
        let tasks = match settings.mode {
            Mode::Durable => Tasks::Durable(Arc::new(Durable::new(&parts, factory).await)),
            Mode::Proxy => Tasks::Proxy(Arc::new(Proxy::new(&parts, factory))),
        };
        let RemoteParts { name, urls, label, store, link, .. } = parts;
        let remote = Self { name, urls, label, store, probe, link, tasks };
        let _ = tokio::time::timeout(START_TIMEOUT, remote.refresh()).await;
        if remote.link.load().connected().is_none() {
            remote.recall().await;
        }
        Ok(remote)
    }

    /// Starts the background work of the agent, until `stop`.
    fn start(self: Arc<Self>, agent: &Arc<ServedAgent>, stop: &CancellationToken) {
        if let Tasks::Durable(durable) = &self.tasks {
            let cancels = Arc::clone(durable).deliver_cancels();
            tokio::spawn(stop.clone().run_until_cancelled_owned(cancels));
        }
        let watching = self.watch(Arc::downgrade(agent));
        tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
    }

    /// Fetches the card and uses it; true if it has changed.
    async fn refresh(&self) -> bool {
        let link = self.link.load_full();
        let fetched = card::fetch(&link).await;
        link.record_card_outcome(&fetched);
        let connected = fetched.and_then(|card| Ok((link.connect(Arc::clone(&card))?, card)));
        match connected {
            Ok((false, _)) => false,
            Ok((true, card)) => {
                self.keep(&card).await;
                true
            }
            Err(error) => {
                if self.probe.health().condition == Condition::Up {
                    // The agent answers, but its card cannot be used.
                    link.saw(Condition::Degraded(error.message().to_owned()));
                }
                tracing::debug!(agent = &*self.name, %error, "no card");
                false
            }
        }
    }

    async fn keep(&self, card: &FetchedCard) {
        if let Err(error) = card::keep(&*self.store, &self.name, card).await {
            tracing::warn!(agent = &*self.name, %error, "the card of an agent cannot be stored");
        }
    }

    /// Uses the last good card.
    async fn recall(&self) {
        let link = self.link.load_full();
        let recalled = match card::kept(&*self.store, &self.name).await {
            Ok(Some(card)) => link.connect(card).map(drop).map_err(anyhow::Error::from),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = recalled {
            tracing::warn!(agent = &*self.name, %error, "the last good card of an agent cannot be used");
        }
    }

    /// The card that the hub serves for the agent.
    fn card(&self) -> AgentCard {
        match (self.link.load().connected(), &self.tasks) {
            (Some(connected), Tasks::Proxy(proxy)) => proxy.shown_card(connected.client.card()),
            (Some(connected), Tasks::Durable(durable)) => durable.shown_card(connected.client.card()),
            (None, _) => card::provisional(&self.name, &self.label.load(), &self.urls),
        }
    }

    /// Fetches the card at intervals: `card_refresh` while the agent is up, with back-off while it is not.
    async fn watch(self: Arc<Self>, agent: Weak<ServedAgent>) {
        let (mut pause, mut forgotten) = (CARD_BACKOFF.base, None::<Instant>);
        loop {
            if forgotten.is_none_or(|at| at.elapsed() >= EXPIRY_INTERVAL) {
                expiry::forget(&*self.store, record_kinds()).await;
                forgotten = Some(Instant::now());
            }
            let every = self.link.load().settings.card_refresh;
            let wait = if self.probe.is_up() { every } else { pause.min(every) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // A pause first: the cause of the failure is probably not over yet.
                () = self.probe.fell() => continue,
            }
            let changed = self.refresh().await;
            pause = if self.probe.is_up() { CARD_BACKOFF.base } else { CARD_BACKOFF.after(pause) };
            let Some(agent) = agent.upgrade() else { return };
            if changed {
                self.show(&agent);
            }
        }
    }

    fn show(&self, agent: &ServedAgent) {
        let card = match (agent.runtime(), &self.tasks) {
            (Some(runtime), Tasks::Durable(durable)) => {
                runtime.replace(self.card(), Arc::new(RemoteExecutor(Arc::clone(durable))));
                AgentCard::clone(&runtime.card())
            }
            _ => self.card(),
        };
        match agent.show(card) {
            Ok(()) => tracing::info!(agent = &*self.name, "the card of an agent has changed"),
            Err(error) => {
                tracing::warn!(agent = &*self.name, %error, "the new card of an agent cannot be shown")
            }
        }
    }
}

/// The kinds of records that expire.
fn record_kinds() -> impl Iterator<Item = &'static str> {
    durable::RECORD_KINDS.into_iter().chain(proxy::record_kinds())
}

#[cfg(test)]
pub(super) mod tests;
