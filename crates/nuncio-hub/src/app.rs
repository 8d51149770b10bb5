//! The composition root: configuration in, a running hub out.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use nuncio_server::store::{MemoryStore, Store};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use url::Url;

use crate::{
    agents,
    config::{Config, Data},
    grpc::Health,
    host::HostCheck,
    place::Place,
    router::{self, Routes},
};

/// How long a client may take to send the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long connections may take to end after the tasks have.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);
/// How long to wait before accepting again when the system refuses (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A hub that listens and is ready to run.
pub struct Hub {
    listener: TcpListener,
    address: SocketAddr,
    place: Place,
    routes: Arc<Routes>,
    health: Health,
    service: HostCheck<Router>,
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

impl Hub {
    /// Binds the address and builds the agents.
    ///
    /// # Errors
    /// Says what could not be done and what to do.
    pub async fn bind(config: Config) -> Result<Self> {
        let listener = TcpListener::bind(config.listen).await.with_context(|| {
            format!(
                "cannot listen on {}; is another hub running? say --listen with another port",
                config.listen
            )
        })?;
        let address = listener.local_addr()?;
        let base = match &config.public_url {
            Some(url) => url.clone(),
            None => Url::parse(&format!("http://{address}"))?,
        };
        let place = Place::new(&base, config.default_agent.as_deref());
        let store: Arc<dyn Store> = match config.data {
            Data::Memory { keep_finished } => Arc::new(MemoryStore::new(keep_finished)),
        };
        let agents = if config.demo { agents::demo(config.profile, &place, &store) } else { Vec::new() };
        let routes = Arc::new(Routes { agents });
        let (router, health) = router::router(&routes, config.default_agent.as_deref()).await?;
        let service = HostCheck::new(router, own_hosts(&config, address).into());
        Ok(Self { listener, address, place, routes, health, service, config })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
        let graceful = GracefulShutdown::new();
        let connections = Arc::new(Semaphore::new(self.config.connections));
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).keep_alive(true);
        server.http2().timer(TokioTimer::new()).keep_alive_interval(Some(HEADER_TIMEOUT));
        tokio::pin!(shutdown);
        loop {
            let stream = tokio::select! {
                stream = accept(&self.listener, &connections) => stream,
                () = &mut shutdown => break,
            };
            let Some((stream, permit)) = stream else { continue };
            let service = TowerToHyperService::new(self.service.clone());
            let (server, watcher) = (server.clone(), graceful.watcher());
            tokio::spawn(async move {
                let _permit = permit;
                // Who says nothing at all is not kept; from the first byte on the server has its own clock.
                if tokio::time::timeout(HEADER_TIMEOUT, stream.peek(&mut [0])).await.is_err() {
                    return;
                }
                let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
                if let Err(error) = watcher.watch(connection.into_owned()).await {
                    tracing::debug!(%error, "a connection ended with an error");
                }
            });
        }
        drop(self.listener);
        self.health.drain().await;
        drain(&self.routes, self.config.drain_grace).await;
        if tokio::time::timeout(CONNECTION_GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections did not end in time and were cut");
        }
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

type Accepted = (TcpStream, tokio::sync::OwnedSemaphorePermit);

/// The next connection when there is room for it; `None` if the system refused.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> Option<Accepted> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Events are small and must go out at once.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY was refused");
            }
            Some((stream, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// The names we answer to. Beyond loopback anybody may call us by any name.
fn own_hosts(config: &Config, address: SocketAddr) -> Vec<String> {
    if !address.ip().is_loopback() {
        return Vec::new();
    }
    let mut hosts =
        vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), address.ip().to_string()];
    hosts.extend(config.public_url.as_ref().and_then(|url| url.host_str().map(str::to_owned)));
    hosts
}
