//! The operators' side of the hub, on a listener of its own: health for all, an API for whoever has the token.
//!
//! Reading order: this file binds and mounts, `token` makes the token and keeps its file, `table` has every
//! route, `route` and `query` say what one is, `openapi` describes them, `answer` has the errors; then a file
//! per kind of thing that the API is about.

mod agents;
mod answer;
mod deliveries;
mod health;
mod keys;
mod openapi;
mod query;
mod reload;
mod route;
mod table;
mod tasks;
mod token;
mod trail;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderValue, header};
use nuncio_server::store::Store;
use tokio::net::TcpListener;

use self::{
    answer::Problem,
    table::Table,
    token::{Token, TokenFile},
};
pub use self::{reload::Reloader, token::admin_token_file};
use crate::{
    audit::{Row, What},
    config::{self, Config, Data},
    fleet::Fleet,
    health::router_with_agents,
    identity::Identity,
    listen::{Listener, Names, Open},
    registry::Registry,
    telemetry::Levels,
};

/// What whoever administers the hub works on.
pub(crate) struct Desk {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) store: Arc<dyn Store>,
    /// The store is gone with the process, and API keys with it.
    pub(crate) is_volatile: bool,
    /// Tells whoever delivers that there is something to deliver.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) identity: Arc<Identity>,
    /// Whoever read the configuration says so after the hub was made.
    pub(crate) reloader: Arc<OnceLock<Arc<dyn Reloader>>>,
}

impl Desk {
    /// Something was changed.
    fn note(&self, what: What, about: String) {
        tracing::info!(?what, about, "changed by administration");
        let mut row = Row::of(what);
        match what {
            What::AgentAdded | What::AgentChanged | What::AgentRemoved | What::AgentRefreshed => {
                row.agent = Some(about);
            }
            What::KeyCreated | What::KeyRotated | What::KeyRevoked | What::KeyDeleted => {
                row.key = Some(about)
            }
            _ => row.detail = Some(about).filter(|about| !about.is_empty()),
        }
        self.identity.audit().note(row);
    }
}

/// Bound, and ready to serve.
pub(crate) struct Admin {
    listener: Listener,
    address: SocketAddr,
    file: TokenFile,
    router: Router,
}

/// What is left of it when it is to end.
pub(crate) struct Closing {
    open: Open,
    file: TokenFile,
}

impl Closing {
    /// Tells them to close, and waits until they have; false if some did not in time. The token's file goes.
    pub(crate) async fn close(self, grace: Duration) -> bool {
        let Self { open, file } = self;
        let ended = open.close(grace).await;
        drop(file);
        ended
    }
}

impl Admin {
    /// Binds the address, and only then writes the token: the file of a port belongs to whoever has the port.
    pub(crate) async fn bind(
        config: &Config,
        names: impl FnOnce(SocketAddr) -> Names,
        desk: Arc<Desk>,
        levels: Levels,
    ) -> Result<Option<Self>> {
        let admin = &config.admin;
        let Some(listen) = admin.listen else { return Ok(None) };
        let socket = TcpListener::bind(listen).await.with_context(|| {
            format!(
                "cannot listen on {listen} for administration; is another hub running? say --admin with another \
                 port, such as --admin 127.0.0.1:0 for a free one, or --admin off"
            )
        })?;
        let address = socket.local_addr()?;
        let Some(file) = token_file(config, admin, address.port())? else { return Ok(None) };
        let listener = Listener {
            socket,
            // On loopback nobody listens in, and the commands need no certificate to be given.
            certificates: None,
            names: names(address),
            connections: config.connections,
        };
        let router = router(desk, levels, file.token());
        Ok(Some(Self { listener, address, file, router }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token_file(&self) -> &Path {
        self.file.path()
    }

    /// Serves until `shutdown` is done, and then until what it gives is closed.
    pub(crate) async fn serve(self, shutdown: impl Future<Output = ()>) -> Closing {
        Closing { open: self.listener.serve(self.router, shutdown).await, file: self.file }
    }
}

/// Where the token is; `None`, with a warning, if nobody said where and there is no place for it.
fn token_file(config: &Config, admin: &config::Admin, port: u16) -> Result<Option<TokenFile>> {
    if let Some(path) = &admin.token_file {
        return TokenFile::named(path).map(Some);
    }
    let data = match &config.data.store() {
        Data::Sqlite { path, .. } => Some(path.clone()),
        Data::Memory { .. } | Data::Postgres { .. } => None,
    };
    let file = TokenFile::usual(port, data.as_deref());
    if file.is_none() {
        tracing::warn!(
            "there is no administration: its token can be kept neither at home nor beside the data; name a file \
             by --admin-token-file, or say --admin off"
        );
    }
    Ok(file)
}

fn router(desk: Arc<Desk>, levels: Levels, token: &Token) -> Router {
    let health = router_with_agents(&desk.fleet);
    let api = Router::new()
        .fallback(table::serve)
        .with_state(Arc::new(Table::new(desk)))
        // Around all of it: without the token one does not even learn what there is.
        .layer(middleware::from_fn_with_state(token.clone(), with_token));
    // Numbers without names of callers or tasks, for whoever is on this machine: scrapers have no token.
    let metrics = Router::new().route("/metrics", get(metrics)).with_state(Arc::new(levels));
    health.merge(metrics).nest("/api", api).fallback(nothing)
}

/// Lets in whoever has the token. No other site's page can: it would have to know it, and is answered nothing
/// that its browser lets it read.
async fn with_token(State(token): State<Token>, request: Request, next: Next) -> Response {
    let mut response = match bearer(request.headers()) {
        Some(given) if token.is(given) => next.run(request).await,
        given => Problem::no_token(given.is_some()).into_response(),
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn metrics(State(levels): State<Arc<Levels>>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, TYPE)], levels.text().await).into_response()
}

async fn nothing(request: Request) -> Problem {
    let path = request.uri().path();
    Problem::not_found(format!("there is nothing at {path}; administration is at /api/v1, health at /readyz"))
}
