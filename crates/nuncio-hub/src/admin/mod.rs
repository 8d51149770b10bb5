//! The admin API of the hub, on a listener of its own: health without a token, everything else with it.
//!
//! Reading order: [`api`] is the contract, route by route, as types; this file binds and mounts, `token`
//! creates the token and its file, `caller` has the other tokens and the roles, `table` lists every endpoint, `endpoint` and `query` read requests as the
//! types of their routes, `sse` writes streams, `openapi` describes the table, `problem` has the refusals; then handlers, one file
//! per resource.

mod access;
mod admin_tokens;
mod agents;
pub mod api;
mod artifacts;
mod audits;
mod caller;
mod dashboard;
mod deliveries;
mod delivery_hosts;
mod diagnostics;
mod endpoint;
mod events;
mod health;
mod hubs;
mod invitations;
mod keys;
mod mailboxes;
mod observed;
mod openapi;
mod playground;
mod problem;
mod query;
mod reload;
mod room_watch;
mod rooms;
mod seats;
mod sse;
mod stats;
mod table;
mod tasks;
mod token;
mod trail;
mod ui;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Result;
use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, header};
use nuncio_server::{push::Push, store::Store};
use tokio::net::TcpListener;

pub(crate) use self::{audits::Audits, caller::AdminTokens, stats::HubFacts, ui::session::Sessions};
use self::{
    problem::AdminProblem,
    table::EndpointTable,
    token::{Token, TokenFile},
};
pub use self::{reload::Reloader, token::admin_token_file};
use crate::{
    agents::{Consents, ContextKey, Mailboxes},
    config::{self, Config, Data},
    events::EventLog,
    fleet::Fleet,
    gauges::Gauges,
    health::router_with_agents,
    hubs::Hubs,
    identity::Authenticator,
    listen::{DrainingListener, HostNames, Listener, cannot_listen},
    playground::Playground,
    registry::Registry,
    rooms::Rooms,
    scrape,
    trail::{Row, What},
};

/// The parts of the hub that handlers work on.
pub(crate) struct AdminState {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) store: Arc<dyn Store>,
    /// The store is lost with the process, and API keys with it.
    pub(crate) is_volatile: bool,
    /// Wakes the delivery of notifications.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) rooms: Rooms,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) consents: Arc<Consents>,
    pub(crate) audits: Audits,
    pub(crate) playground: Playground,
    pub(crate) hubs: Hubs,
    /// Finds the conversations that agents have begun with others.
    pub(crate) contexts: ContextKey,
    /// Set after the hub was made, by the code that read the configuration.
    pub(crate) reloader: Arc<OnceLock<Arc<dyn Reloader>>>,
    /// The sessions of the dashboard.
    pub(crate) sessions: Sessions,
    pub(crate) facts: HubFacts,
    pub(crate) events: Arc<EventLog>,
    pub(crate) tokens: AdminTokens,
    /// The delivery engine; `None` if webhooks are turned off.
    pub(crate) push: Option<Push>,
}

impl AdminState {
    /// Writes a change to the log and to the audit trail. `who` is the name of the operator's token, if it has one;
    /// `principal` is the caller that a decision is about, if it is about one.
    fn note(&self, what: What, subject: String, principal: Option<String>, who: Option<&str>) {
        let about = Some(&*subject).filter(|subject| !subject.is_empty());
        tracing::info!(%what, about, who, "changed by administration");
        let mut row = Row::of(what);
        match principal {
            Some(_) => (row.principal, row.detail) = (principal, who.map(|who| format!("by {who}"))),
            None => row.principal = who.map(str::to_owned),
        }
        match what {
            What::AgentAdded
            | What::AgentChanged
            | What::AgentRemoved
            | What::AgentRefreshed
            | What::MailboxCreated
            | What::MailboxRotated
            | What::MailboxRemoved
            | What::MailboxRetried
            | What::MailboxEnabled
            | What::InvitationCreated
            | What::InvitationRevoked
            | What::LeasesTakenOver
            | What::AccessAccepted
            | What::AccessDeclined
            | What::AccessBlocked
            | What::AccessRevoked
            | What::AgentAudited
            | What::TrialSent
            | What::TrialCanceled => row.agent = Some(subject),
            What::KeyCreated | What::KeyRotated | What::KeyRevoked | What::KeyDeleted => {
                row.key = Some(subject)
            }
            _ => row.detail = Some(subject).filter(|subject| !subject.is_empty()),
        }
        self.identity.trail().note(row);
    }
}

/// The remedy for an address that is in use.
const ADMIN_REMEDY: &str =
    "--admin, such as --admin 127.0.0.1:0 for a free one, or turn administration off with --admin off";

/// The listener of administration, bound and ready to serve.
pub(crate) struct AdminListener {
    listener: Listener,
    address: SocketAddr,
    file: TokenFile,
    router: Router,
}

/// The listener of administration while it shuts down.
pub(crate) struct Closing {
    open: DrainingListener,
    file: TokenFile,
}

impl Closing {
    /// Closes its connections, and returns false if some did not end in time. The token's file is deleted.
    pub(crate) async fn close(self, grace: Duration) -> bool {
        let Self { open, file } = self;
        let ended = open.close(grace).await;
        drop(file);
        ended
    }
}

impl AdminListener {
    /// Binds the address, and only then writes the token: the file belongs to the hub that has the port.
    pub(crate) async fn bind(
        config: &Config,
        names: impl FnOnce(SocketAddr) -> HostNames,
        state: Arc<AdminState>,
        gauges: Arc<Gauges>,
    ) -> Result<Option<Self>> {
        let admin = &config.admin;
        let Some(listen) = admin.listen else { return Ok(None) };
        let socket = TcpListener::bind(listen).await;
        let socket = socket.map_err(|error| {
            let address = format!("{listen} for administration");
            cannot_listen(&address, &error, ADMIN_REMEDY)
        })?;
        let address = socket.local_addr()?;
        let Some(file) = token_file(config, admin, address.port())? else { return Ok(None) };
        let listener = Listener {
            socket,
            // On loopback nobody can eavesdrop, and the commands need no certificate.
            certificates: None,
            names: names(address),
            connections: config.connections,
        };
        let router = router(state, gauges, file.token(), address);
        Ok(Some(Self { listener, address, file, router }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token_file(&self) -> &Path {
        self.file.path()
    }

    /// Serves until `shutdown` is done. Connections stay open until [`Closing::close`].
    pub(crate) async fn serve(self, shutdown: impl Future<Output = ()>) -> Closing {
        Closing { open: self.listener.serve(self.router, shutdown).await, file: self.file }
    }
}

/// The token's file; `None`, with a warning, if none is configured and no default location is usable.
fn token_file(config: &Config, admin: &config::Admin, port: u16) -> Result<Option<TokenFile>> {
    if let Some(path) = &admin.token_file {
        return TokenFile::named(path).map(Some);
    }
    let data = match &config.data.store() {
        Data::Sqlite { path, .. } => Some(path.clone()),
        Data::Memory { .. } | Data::Postgres { .. } => None,
    };
    let file = TokenFile::create(port, data.as_deref());
    if file.is_none() {
        tracing::warn!(
            "the admin API is off: its token can be stored neither at home nor beside the data; name a file \
             by --admin-token-file, or use --admin off"
        );
    }
    Ok(file)
}

fn router(state: Arc<AdminState>, gauges: Arc<Gauges>, token: &Token, address: SocketAddr) -> Router {
    let health = router_with_agents(&state.fleet);
    let table = Arc::new(EndpointTable::new(Arc::clone(&state)));
    let pages = ui::router(Arc::clone(&state), Arc::clone(&table), token.clone(), address);
    let api = Router::new()
        .fallback(table::serve)
        .with_state(table)
        // Around all of it: without a token not even the routes are visible.
        .layer(middleware::from_fn_with_state((token.clone(), state), with_token));
    // Without the token, since scrapers have none.
    health.merge(scrape::router(gauges)).nest("/api", api).merge(pages).fallback(nothing)
}

/// Requires a token, and adds its [`AdminCaller`] to the request. Web pages of other sites cannot call: they do not
/// have it, and browsers do not let them read the answers.
async fn with_token(
    State((file, state)): State<(Token, Arc<AdminState>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = bearer(request.headers());
    let caller = given.and_then(|given| state.tokens.caller(&file, given));
    let mut response = match caller {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => AdminProblem::no_token(given.is_some()).into_response(),
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn nothing(request: Request) -> AdminProblem {
    let path = request.uri().path();
    AdminProblem::not_found(format!(
        "there is nothing at {path}; the dashboard is at /ui, administration at /api/v1, health at /readyz"
    ))
}
