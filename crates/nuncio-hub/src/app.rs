//! The composition root: configuration in, a running hub out.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use nuncio_server::{
    MemoryAccount, Retention,
    bind::{BindOptions, PublicBase},
    push::Push,
    store::Store,
};
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    admin::{AdminListener, AdminState, AdminTokens, Audits, HubFacts, Reloader, Sessions},
    agent_urls::AgentUrls,
    agents::{self, AgentFactory, Consents, Mailboxes, PullApi, RegisterApi, RoomDriver, SeatedAgents},
    config::{self, Config},
    data,
    fleet::{Fleet, ServedAgent},
    gauges::Gauges,
    grpc::GrpcHealth,
    hubs::Hubs,
    identity::{Authenticator, Keyring},
    limits::Callers,
    listen::{Certificates, HostNames, Listener, cannot_listen},
    memory,
    pipeline::{Pipeline, Stations},
    playground::Playground,
    push::{self, Pushing},
    push_receiver::PushReceiver,
    ready,
    registry::{AgentRecords, Registry, Vault},
    reload::{Live, Reloading},
    rooms::Rooms,
    root_key,
    routes::RouteTable,
    samples::Samples,
    scrape::Scrape,
    signing::CardKeys,
    target::RouteAccess,
    telemetry::{HubTelemetry, Requests},
    trail::{self, Trail},
};

/// Maximum number of connections that wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// Time for connections to close after the tasks have ended.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);

/// Interval at which quotas of idle callers are dropped.
const FORGET: Duration = Duration::from_secs(60);

/// Time for running deliveries to end.
const PUSH_GRACE: Duration = Duration::from_secs(5);
/// The time that webhooks of agents have to answer what was posted to them.
const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// Time to export the remaining telemetry.
const TELEMETRY_GRACE: Duration = Duration::from_secs(5);

/// A hub that listens and is ready to run.
pub struct Hub {
    listener: Listener,
    address: SocketAddr,
    urls: AgentUrls,
    fleet: Arc<Fleet>,
    store: Arc<dyn Store>,
    pushing: Option<Pushing>,
    health: GrpcHealth,
    pipeline: Pipeline,
    admin: Option<AdminListener>,
    scrape: Option<Box<Scrape>>,
    live: Live,
    reloader: Arc<OnceLock<Arc<dyn Reloader>>>,
    trail: trail::TrailWriter,
    mailboxes: Arc<Mailboxes>,
    consents: Arc<Consents>,
    memory: MemoryAccount,
    samples: Arc<Samples>,
    admin_state: Arc<AdminState>,
    rooms: Rooms,
    room_driver: RoomDriver,
    seated: Arc<SeatedAgents>,
    config: Config,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The maximum length of an example that is shown.
const MAX_EXAMPLE_BYTES: usize = 80;

/// A message to try an agent with. One that others run understands the examples on its card best.
fn example(agent: &ServedAgent) -> String {
    let is_foreign =
        agent.kind() == "mailbox" || agent.upstream().is_some_and(|upstream| upstream.access().is_some());
    if !is_foreign {
        return agent.example().to_owned();
    }
    let card = Arc::clone(&agent.shown().card);
    let examples = card.skills.iter().flat_map(|skill| &skill.examples);
    let plain = examples.map(String::as_str).find(|text| is_plain(text));
    plain.unwrap_or(agent.example()).to_owned()
}

/// True for a text that a shell takes literally within double quotes.
fn is_plain(text: &str) -> bool {
    let is_literal = |c: char| !c.is_control() && !"\"\\$`!".contains(c);
    !text.trim().is_empty() && text.len() <= MAX_EXAMPLE_BYTES && text.chars().all(is_literal)
}

/// An agent as it is served.
#[derive(Clone, Debug)]
pub struct Served {
    pub name: String,
    pub url: String,
    pub card_url: String,
    /// A message to try it with.
    pub example: String,
    /// The answer to it is worth watching as a stream.
    pub streams: bool,
    /// It also answers at the root.
    pub is_default: bool,
}

/// The address of the admin API.
#[derive(Clone, Debug)]
pub struct Administered {
    /// The address it listens on.
    pub address: SocketAddr,
    /// The file with the admin token.
    pub token_file: PathBuf,
}

impl Hub {
    /// Opens the store, binds the address and builds the agents.
    ///
    /// # Errors
    /// Says why the hub cannot start, and what to do.
    pub async fn bind(config: Config) -> Result<Self> {
        let invalid: Vec<_> = config.validate().iter().map(ToString::to_string).collect();
        anyhow::ensure!(invalid.is_empty(), "{}", invalid.join("; "));
        let certificates = config.tls.clone().map(Certificates::load).transpose()?;
        let keys = CardKeys::load(&config.card_keys)?;
        let telemetry = HubTelemetry::start(&config.telemetry)?;
        let memory = memory::account(config.limits.memory_limit_bytes);
        let store = telemetry.instrumented(data::open(&config.data.store(), &memory).await?);
        let push = Some(&config.push).filter(|push| push.enabled);
        let root_key = match root_key::load(&config.data.store(), config.data.key_file.as_deref()) {
            Ok(root_key) => Some(root_key),
            // Only webhooks need it: it seals their secrets.
            Err(_) if push.is_none() => None,
            Err(error) => return Err(error),
        };
        let vault = root_key.as_ref().map(|root_key| Vault::new(root_key, "agents")).transpose()?;
        let root_key = root_key.filter(|_| push.is_some());
        let push_key = root_key.as_ref().map(push::signing_key).transpose()?;
        let socket = reserve(config.listen)?;
        let address = socket.local_addr()?;
        let base = match &config.public_url {
            Some(url) => url.to_string(),
            None => format!("{}://{address}", config.scheme()),
        };
        let base = PublicBase::parse(&base).with_context(|| {
            format!("{base} is not an address; expected one such as https://agents.example.com")
        })?;
        let urls = AgentUrls::new(&Url::parse(base.as_str())?, config.default_agent.as_deref());
        let wants_urls = config.profile.is_some_and(config::Profile::wants_grpc_urls);
        let urls = if wants_urls { urls.with_grpc_urls() } else { urls };
        let own_names = names(&config, address);
        let options = BindOptions {
            legacy_card_path: config.legacy_card,
            card_base: Some(base.clone()),
            card_follows_proxies: own_names.follow,
            card_signer: keys.signer(),
            memory: memory.clone(),
            ..BindOptions::default()
        };
        let receiver = PushReceiver::new(urls.base());
        let start = |(push, root_key)| push::start(push, &store, root_key, urls.base(), receiver.clone());
        let pushing = push.zip(root_key).map(start).transpose()?;
        let retention = config.data.keep().map(Retention::finished).unwrap_or_default();
        let (trail, writer) = Trail::new(&store);
        let trail = trail.counted_by(&telemetry.metrics);
        let consents = Arc::new(Consents::new(&store, &trail));
        let identity =
            Authenticator::open(&config.identity, &store, trail, address.ip().is_loopback()).await?;
        let callers = Arc::new(Callers::new(&config.limits, &identity.limits()));
        // Before there is an agent: tasks adopted after a restart are subject to the share as well.
        callers.tell_apart(identity.has_any());
        let limits = Arc::new(ArcSwap::from_pointee(config.limits.clone()));
        let calls = Arc::new(ArcSwap::from_pointee(config.calls.clone()));
        let origins = Arc::new(ArcSwap::from_pointee(config.cors.origins.clone()));
        let contexts = agents::ContextKey::open(&*store).await?;
        let contexts_of_admin = contexts.clone();
        let mailboxes = Mailboxes::new(&store, contexts.clone(), Arc::clone(&telemetry.metrics));
        let fleet = Arc::new(Fleet::new(&urls));
        let rooms = Rooms::new(&store, &telemetry.metrics);
        let factory = AgentFactory {
            urls: urls.clone(),
            store: Arc::clone(&store),
            retention,
            pushing: pushing.clone(),
            options: options.clone(),
            telemetry: telemetry.clone(),
            identity: Arc::clone(&identity),
            callers: Arc::clone(&callers),
            limits: Arc::clone(&limits),
            calls: Arc::clone(&calls),
            consents: Arc::clone(&consents),
            fleet: Arc::clone(&fleet),
            hub: agents::hub_id(&*store).await?,
            contexts,
            rooms: rooms.clone(),
            seated: Arc::default(),
            profile: config.profile,
            mailboxes: Arc::clone(&mailboxes),
        };
        let factory = Arc::new(factory);
        let seated = Arc::clone(&factory.seated);
        let room_driver = RoomDriver::new(&factory);
        if config.demo {
            fleet.put(agents::demo_agents(&factory).await?);
        }
        let (mut routes, health) = RouteTable::new(&fleet, &store, &urls, &options).await?;
        routes.add_all(RouteAccess::Anyone, keys.route(push_key.as_ref(), &options)?)?;
        let pull = PullApi {
            mailboxes: Arc::clone(&mailboxes),
            identity: Arc::clone(&identity),
            options: options.clone(),
            consents: Arc::clone(&consents),
        };
        routes.add_all(RouteAccess::Protocol, [pull.route()])?;
        let local = |address| HostNames { proxies: Vec::new(), follow: false, ..names(&config, address) };
        let woken = pushing.as_ref().map(|pushing| pushing.push.clone());
        let wake = Arc::new(move || woken.iter().for_each(Push::wake));
        let records = AgentRecords { store: Arc::clone(&store), vault };
        let registry = Registry::new(Arc::clone(&fleet), factory, records);
        registry.set_tools(config.tools.clone()).await;
        for (name, error) in registry.configure(config.agents.clone(), false).await? {
            if config.agents.iter().any(|agent| agent.name == name) {
                return Err(error.context(format!("the agent {name} cannot be served")));
            }
            // An agent that was added by the API at some time must not keep the hub from starting.
            tracing::error!(%name, error = %format!("{error:#}"), "an agent that the API added cannot be served");
        }
        // A provider may list its models later.
        let may_come =
            config.admin.listen.is_some() || config.agents.iter().any(|agent| agent.kind.is_template());
        anyhow::ensure!(may_come || !fleet.all().is_empty(), "{}", config::NO_AGENT);
        let registry = Arc::new(registry);
        let register = RegisterApi {
            registry: Arc::clone(&registry),
            identity: Arc::clone(&identity),
            fleet: Arc::clone(&fleet),
            mailboxes: Arc::clone(&mailboxes),
            push: pushing.as_ref().map(|pushing| pushing.push.clone()),
        };
        routes.add_all(RouteAccess::Protocol, [register.route()])?;
        routes.add_all(RouteAccess::Capability, [receiver.route()])?;
        let routes = Arc::new(routes);
        let playground = Playground::new(
            Arc::clone(&routes),
            Arc::clone(&fleet),
            push::guarded(&config.push)?,
            receiver,
            Arc::clone(&telemetry.events),
            Url::parse(urls.base())?,
        );
        let requests = Requests::new(Arc::clone(&telemetry.metrics));
        let (origins_now, identity_now) = (Arc::clone(&origins), Arc::clone(&identity));
        let pipeline =
            Pipeline::new(Stations { requests, origins: origins_now, identity: identity_now, routes });
        let reloader = Arc::new(OnceLock::new());
        let metrics = Arc::clone(&telemetry.metrics);
        let gauges = Gauges::new(
            Arc::clone(&metrics),
            Arc::clone(&store),
            Arc::clone(&fleet),
            Arc::clone(&consents),
            memory.clone(),
        );
        let gauges = Arc::new(gauges);
        let samples = Arc::new(Samples::new(metrics, Arc::clone(&gauges)));
        let facts = HubFacts {
            samples: Arc::clone(&samples),
            memory: memory.clone(),
            store: (&config.data.store()).into(),
            certificates: certificates.clone(),
            signs_cards: keys.signer().is_some(),
            is_on_network: !address.ip().is_loopback(),
        };
        let admin_state = AdminState {
            fleet: Arc::clone(&fleet),
            store: Arc::clone(&store),
            is_volatile: !config.data.is_durable(),
            wake,
            registry: Arc::clone(&registry),
            rooms: rooms.clone(),
            identity: Arc::clone(&identity),
            mailboxes: Arc::clone(&mailboxes),
            consents: Arc::clone(&consents),
            audits: Audits::new(&store, config.tls.as_ref()),
            playground,
            hubs: Hubs::new(&store, urls.base(), address.to_string()),
            contexts: contexts_of_admin,
            reloader: Arc::clone(&reloader),
            sessions: Sessions::default(),
            facts,
            events: Arc::clone(&telemetry.events),
            tokens: AdminTokens::open(&store).await?,
            push: pushing.as_ref().map(|pushing| pushing.push.clone()),
        };
        let admin_state = Arc::new(admin_state);
        let live = Live {
            fleet: Arc::clone(&fleet),
            registry: Arc::clone(&registry),
            identity: Arc::clone(&identity),
            callers: Arc::clone(&callers),
            limits,
            calls,
            origins,
            telemetry: telemetry.clone(),
        };
        let scrape = Box::pin(Scrape::bind(&config, local, &fleet, Arc::clone(&gauges))).await?.map(Box::new);
        let admin = AdminListener::bind(&config, local, Arc::clone(&admin_state), gauges).await?;
        // Last: a caller that connects finds the whole hub, and an operator the token in its file.
        let socket = socket
            .listen(LISTEN_BACKLOG)
            .map_err(|error| cannot_listen(&config.listen, &error, "--listen"))?;
        let listener = Listener { socket, certificates, names: own_names, connections: config.connections };
        let trail = writer.told_to(&telemetry.events);
        Ok(Self {
            listener,
            address,
            urls,
            fleet,
            store,
            pushing,
            health,
            pipeline,
            admin,
            scrape,
            live,
            reloader,
            trail,
            mailboxes,
            consents,
            memory,
            samples,
            admin_state,
            rooms,
            room_driver,
            seated,
            config,
        })
    }

    /// Follows the source from which this hub's configuration was read: see [`Reloading::watch`]. The admin
    /// API shows it and reloads it.
    #[must_use]
    pub fn follow(&self, source: config::Source, loaded: config::Loaded) -> Arc<Reloading> {
        let reloading = Arc::new(Reloading::new(source, loaded, self.live.clone()));
        self.reload_by(Arc::clone(&reloading) as Arc<dyn Reloader>);
        reloading
    }

    /// Lets the admin API show and reload the configuration by this reloader. Only the first one counts.
    pub fn reload_by(&self, reloader: Arc<dyn Reloader>) {
        // A second reloader did not configure this hub.
        let _ = self.reloader.set(reloader);
    }

    /// The API keys.
    #[must_use]
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(self.live.identity.keyring())
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address it listens on as one to call, such as `http://127.0.0.1:2602`.
    #[must_use]
    pub fn local_url(&self) -> String {
        format!("{}://{}", self.config.scheme(), self.address)
    }

    /// The address of the admin API, if there is one.
    #[must_use]
    pub fn administered(&self) -> Option<Administered> {
        let at = |admin: &AdminListener| Administered {
            address: admin.address(),
            token_file: admin.token_file().to_owned(),
        };
        self.admin.as_ref().map(at)
    }

    /// The address of metrics and health, if they have one of their own.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.scrape.as_ref().map(|scrape| scrape.address())
    }

    /// The certificate for callers, if the hub speaks TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<Certificates> {
        self.listener.certificates.clone()
    }

    /// The agents that it serves.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        let default = self.fleet.default_agent();
        let served = |agent: &Arc<ServedAgent>| {
            let url = self.urls.url(agent.name());
            let example = example(agent);
            Served {
                streams: example == agent.example() && example != "hello",
                example,
                name: agent.name().to_string(),
                card_url: format!("{url}/.well-known/agent-card.json"),
                url,
                is_default: default.as_ref().is_some_and(|default| default.name() == agent.name()),
            }
        };
        self.fleet.all().iter().map(served).collect()
    }

    /// The agents whose cards are public; `None` where calls need no credentials, so that all cards are
    /// readable.
    #[must_use]
    pub fn public_cards(&self) -> Option<Vec<String>> {
        self.live.identity.is_closed().then(|| {
            let agents = self.fleet.all().into_iter().filter(|agent| agent.has_public_card());
            agents.map(|agent| agent.name().to_string()).collect()
        })
    }

    /// Serves until `shutdown` completes, then drains: readiness off, streams closed, running tasks given
    /// their grace, tasks that still run recorded as failed. New calls meanwhile are told that the hub is
    /// shutting down.
    ///
    /// # Errors
    /// None at present; listening may fail later.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let stopping = CancellationToken::new();
        let calls = async {
            let open = self.listener.serve(self.pipeline, shutdown).await;
            stopping.cancel();
            open
        };
        let administration = async {
            match self.admin {
                Some(admin) => Some(admin.serve(stopping.cancelled()).await),
                None => None,
            }
        };
        // Boxed, as few have one.
        let scraping = Box::pin(async {
            match self.scrape {
                Some(scrape) => Some(scrape.serve(stopping.cancelled()).await),
                None => None,
            }
        });
        let serving = async {
            let open = futures_util::future::join3(calls, administration, scraping).await;
            self.mailboxes.finish_deliveries(self.config.drain_grace.min(DELIVERY_GRACE)).await;
            self.live.callers.close();
            self.fleet.begin_to_drain();
            self.health.set(false).await;
            let grace = self.config.drain_grace;
            futures_util::future::join(self.fleet.drain(grace), self.seated.drain(grace)).await;
            self.live.telemetry.events.close();
            open
        };
        let (open, admin, scrape) = tokio::select! {
            open = serving => open,
            never = ready::watch(&*self.store, &self.fleet, &self.health) => match never {},
            never = self.live.identity.work() => match never {},
            never = follow(&self.live) => match never {},
            never = Arc::clone(&self.mailboxes).work() => match never {},
            never = self.trail.run() => match never {},
            never = memory::measure(&self.memory) => match never {},
            // Boxed, because it is large and waits most of the time.
            never = until(&stopping, Box::pin(self.consents.sweep(&self.fleet))) => match never {},
            never = self.samples.run() => match never {},
            never = self.admin_state.tokens.watch() => match never {},
            never = self.admin_state.hubs.work() => match never {},
            // No agent is added while the hub drains.
            never = until(&stopping, self.rooms.sweep()) => match never {},
            never = until(&stopping, Box::pin(self.room_driver.run())) => match never {},
            never = until(&stopping, self.live.registry.watch()) => match never {},
            never = until(&stopping, self.live.registry.watch_providers()) => match never {},
        };
        self.health.close().await;
        let closing = async {
            match admin {
                Some(admin) => admin.close(CONNECTION_GRACE).await,
                None => true,
            }
        };
        let ending = Box::pin(async {
            match scrape {
                Some(scrape) => scrape.close(CONNECTION_GRACE).await,
                None => true,
            }
        });
        let open = open.close(CONNECTION_GRACE);
        if futures_util::future::join3(open, closing, ending).await != (true, true, true) {
            tracing::warn!("some connections did not end in time and were cut");
        }
        if let Some(Pushing { push, .. }) = &self.pushing {
            push.drain(PUSH_GRACE).await;
        }
        self.admin_state.hubs.leave().await;
        self.live.identity.close().await;
        self.trail.close().await;
        self.store.close().await;
        self.live.telemetry.close(TELEMETRY_GRACE).await;
        Ok(())
    }
}

/// Binds the address, so that it is known and taken. Nobody can connect before `listen`.
fn reserve(address: SocketAddr) -> Result<TcpSocket> {
    let reserve = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of the previous hub may still be in TIME_WAIT.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    reserve().map_err(|error| cannot_listen(&address, &error, "--listen"))
}

/// Runs `work` until the token is cancelled, and then waits for ever.
async fn until(then: &CancellationToken, work: impl Future<Output = Infallible>) -> Infallible {
    match then.run_until_cancelled(work).await {
        Some(never) => match never {},
        None => std::future::pending().await,
    }
}

/// Updates cards and quotas when keys or identity settings change, for as long as it is polled.
async fn follow(live: &Live) -> Infallible {
    let Live { identity, fleet, callers, limits, .. } = live;
    let mut changes = identity.changes();
    // Changes before the first poll are handled by the first round.
    let mut declared = None;
    let mut forget = tokio::time::interval(FORGET);
    loop {
        let schemes = Some((identity.schemes(), identity.known_schemes()));
        if schemes != declared {
            declared = schemes;
            fleet.show_again();
        }
        callers.configure(&limits.load(), &identity.limits());
        callers.tell_apart(identity.has_any());
        tokio::select! {
            () = changes.next() => {}
            now = forget.tick() => callers.forget(now),
        }
    }
}

/// The host names the hub answers to. Beyond loopback it answers to any name.
fn names(config: &Config, address: SocketAddr) -> HostNames {
    let mut own = Vec::new();
    if address.ip().is_loopback() {
        own.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        own.push(address.ip().to_string());
        own.extend(config.public_url.as_ref().and_then(|url| url.host_str().map(str::to_owned)));
        own.extend(config.allowed_hosts.iter().map(ToString::to_string));
    }
    HostNames {
        own,
        // A configured public URL takes precedence over the headers of proxies.
        follow: config.public_url.is_none() && !config.trusted_proxies.is_empty(),
        proxies: config.trusted_proxies.clone(),
        scheme: config.scheme(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card is written by others, and its example is pasted into a shell.
    #[test]
    fn an_example_is_shown_if_a_shell_takes_it_literally() {
        for (text, expected) in [
            ("open invoices, please", true),
            ("what's due?", true),
            ("Grüße", true),
            ("", false),
            ("  ", false),
            ("$(rm -r .)", false),
            ("`id`", false),
            ("say \"hello\"", false),
            ("a\nb", false),
            ("\\", false),
            ("wait!", false),
            (&*"x".repeat(MAX_EXAMPLE_BYTES + 1), false),
        ] {
            assert_eq!(is_plain(text), expected, "{text:?}");
        }
    }
}
