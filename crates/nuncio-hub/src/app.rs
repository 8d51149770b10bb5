//! The composition root: configuration in, a running hub out.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::Router;
use nuncio_server::{
    Retention,
    bind::{BindOptions, PublicBase},
    push::Push,
    store::Store,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    admin::{Admin, Outbox},
    agents,
    config::Config,
    data,
    grpc::Health,
    listen::{Certificates, Listener, Names},
    master,
    place::Place,
    push::{self, Pushing},
    ready,
    router::{self, Routes},
    signing::CardKeys,
};

/// How long connections may take to end after the tasks have.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);

/// How long notifications that are on their way may take.
const PUSH_GRACE: Duration = Duration::from_secs(5);

/// A hub that listens and is ready to run.
pub struct Hub {
    listener: Listener,
    address: SocketAddr,
    place: Place,
    routes: Arc<Routes>,
    store: Arc<dyn Store>,
    pushing: Option<Pushing>,
    health: Health,
    router: Router,
    admin: Option<Admin>,
    config: Config,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("address", &self.address).finish_non_exhaustive()
    }
}

/// An agent as it is served.
#[derive(Clone, Debug)]
pub struct Served {
    pub name: &'static str,
    pub url: String,
    pub card_url: String,
    /// A word to try it with.
    pub example: &'static str,
}

/// Where it is administered.
#[derive(Clone, Debug)]
pub struct Administered {
    /// Where it listens.
    pub address: SocketAddr,
    /// What to show there is in this file.
    pub token_file: PathBuf,
}

impl Hub {
    /// Opens the store, binds the address and builds the agents.
    ///
    /// # Errors
    /// Says what could not be done and what to do.
    pub async fn bind(config: Config) -> Result<Self> {
        let certificates = config.tls.clone().map(Certificates::load).transpose()?;
        let keys = CardKeys::load(&config.card_keys)?;
        let store = data::open(&config.data).await?;
        let push = config.push.as_ref();
        let master = push.map(|_| master::load(&config.data, config.key_file.as_deref())).transpose()?;
        let push_key = master.as_ref().map(push::signing_key).transpose()?;
        let socket = TcpListener::bind(config.listen).await.with_context(|| {
            format!(
                "cannot listen on {}; is another hub running? say --listen with another port",
                config.listen
            )
        })?;
        let address = socket.local_addr()?;
        let base = match &config.public_url {
            Some(url) => url.to_string(),
            None => format!("{}://{address}", config.scheme()),
        };
        let base = PublicBase::parse(&base).with_context(|| {
            format!("{base} is no address; expected one such as https://agents.example.com")
        })?;
        let place = Place::new(&Url::parse(base.as_str())?, config.default_agent.as_deref());
        let own_names = names(&config, address);
        let options = BindOptions {
            legacy_card_path: config.legacy_card,
            card_base: Some(base.clone()),
            card_follows_proxies: own_names.follow,
            card_signer: keys.signer(),
            ..BindOptions::default()
        };
        let start = |(push, master)| push::start(push, &store, master, base.as_str().trim_end_matches('/'));
        let pushing = push.zip(master).map(start).transpose()?;
        let retention = config.keep.map(Retention::finished).unwrap_or_default();
        let agents = match config.demo {
            true => agents::demo(config.profile, &place, &store, &retention, pushing.as_ref()),
            false => Vec::new(),
        };
        let routes = Arc::new(Routes { agents, store_is_well: AtomicBool::new(true) });
        let (router, health) = router::router(&routes, config.default_agent.as_deref(), &options).await?;
        let router = router.merge(keys.router(push_key.as_ref(), &options)?);
        let local = |address| Names { proxies: Vec::new(), follow: false, ..names(&config, address) };
        let woken = pushing.as_ref().map(|pushing| pushing.push.clone());
        let wake = Arc::new(move || woken.iter().for_each(Push::wake));
        let outbox = Outbox { store: Arc::clone(&store), wake };
        let admin = Admin::bind(&config, local, &routes, outbox).await?;
        let listener = Listener { socket, certificates, names: own_names, connections: config.connections };
        Ok(Self { listener, address, place, routes, store, pushing, health, router, admin, config })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address it listens on as one to call, such as `http://127.0.0.1:2602`.
    #[must_use]
    pub fn local_url(&self) -> String {
        format!("{}://{}", self.config.scheme(), self.address)
    }

    /// Where it is administered, if it is.
    #[must_use]
    pub fn administered(&self) -> Option<Administered> {
        let at = |admin: &Admin| Administered {
            address: admin.address(),
            token_file: admin.token_file().to_owned(),
        };
        self.admin.as_ref().map(at)
    }

    /// The certificate that callers are shown, if it speaks TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<Certificates> {
        self.listener.certificates.clone()
    }

    /// What it serves.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        let served = |agent: &agents::Agent| {
            let url = self.place.url(agent.name);
            Served {
                name: agent.name,
                card_url: format!("{url}/.well-known/agent-card.json"),
                url,
                example: agent.example,
            }
        };
        self.routes.agents.iter().map(served).collect()
    }

    /// Serves until `shutdown` is done, then drains: readiness off, streams closed, running tasks given
    /// their grace, what is left recorded as failed.
    ///
    /// # Errors
    /// None at present; listening may fail later.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let stopping = CancellationToken::new();
        let calls = async {
            let open = self.listener.serve(self.router, shutdown).await;
            stopping.cancel();
            open
        };
        let administration = async {
            match self.admin {
                Some(admin) => Some(admin.serve(stopping.cancelled()).await),
                None => None,
            }
        };
        let (open, admin) = tokio::select! {
            open = futures_util::future::join(calls, administration) => open,
            never = ready::watch(&*self.store, &self.routes, &self.health) => match never {},
        };
        self.health.set(false).await;
        drain(&self.routes, self.config.drain_grace).await;
        self.health.close().await;
        let closing = async {
            match admin {
                Some(admin) => admin.close(CONNECTION_GRACE).await,
                None => true,
            }
        };
        if futures_util::future::join(open.close(CONNECTION_GRACE), closing).await != (true, true) {
            tracing::warn!("some connections did not end in time and were cut");
        }
        if let Some(Pushing { push, .. }) = &self.pushing {
            push.drain(PUSH_GRACE).await;
        }
        self.store.close().await;
        Ok(())
    }
}

async fn drain(routes: &Routes, grace: Duration) {
    let running: usize = routes.agents.iter().map(|agent| agent.runtime.running()).sum();
    if running > 0 {
        tracing::info!(running, "waiting for running tasks; a second Ctrl-C ends at once");
    }
    let mut drains = tokio::task::JoinSet::new();
    for agent in &routes.agents {
        let runtime = agent.runtime.clone();
        drains.spawn(async move { runtime.drain(grace).await });
    }
    drains.join_all().await;
}

/// The names we answer to, whoever calls. Beyond loopback anybody may call us by any name.
fn names(config: &Config, address: SocketAddr) -> Names {
    let mut own = Vec::new();
    if address.ip().is_loopback() {
        own.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        own.push(address.ip().to_string());
        own.extend(config.public_url.as_ref().and_then(|url| url.host_str().map(str::to_owned)));
        own.extend(config.allowed_hosts.iter().map(ToString::to_string));
    }
    Names {
        own,
        // One address for all beats whatever proxies say.
        follow: config.public_url.is_none() && !config.trusted_proxies.is_empty(),
        proxies: config.trusted_proxies.clone(),
        scheme: config.scheme(),
    }
}
