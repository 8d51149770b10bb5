//! Bindings: any [`A2aService`] on the wire. A binding opens the envelope, finds the dialect and the
//! operation, calls the service, and puts the answer back; it touches neither runtime nor store.

mod answer;
mod card;
mod context;
mod document;
#[cfg(feature = "grpc")]
mod grpc;
mod jsonrpc;
mod rest;
mod sse;
mod version;

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{FromRef, Request, State},
    response::Response,
    routing::{any, get, post},
};
use nuncio_protocol::{
    A2aService, AgentCard, Binding, CallContext, Result,
    op::{Call, Reply},
};

#[cfg(feature = "grpc")]
pub use self::grpc::{Grpc, is_grpc, unimplemented};
pub use self::{
    answer::BodyMemory,
    card::{CardSigner, PublicBase},
    document::Document,
};
use self::{card::Cards, version::Spoken};

/// How a binding behaves.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The largest body.
    pub body_bytes: usize,
    /// What all bodies together may take while they arrive.
    pub body_memory: BodyMemory,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Takes the version that a method's name or a path proves, although the caller did not send it.
    pub lenient_version: bool,
    /// Takes JSON-RPC batches of non-streaming calls, at most so many; 0 takes none.
    pub batch: usize,
    /// How often an idle stream shows that it is alive; zero: never.
    pub heartbeat: Duration,
    /// How long a card may be cached.
    pub card_max_age: Duration,
    /// Serves the card also where old clients look for it.
    pub legacy_card_path: bool,
    /// Where the card's addresses say we are. Those below it are shown below the [`PublicBase`] of a
    /// request instead, where there is one; `None`: all are shown as they are.
    pub card_base: Option<PublicBase>,
    /// Requests get their [`PublicBase`] by what a proxy says, so that caches must look at that, too.
    pub card_follows_proxies: bool,
    /// Signs the cards.
    pub card_signer: Option<CardSigner>,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024 * 1024,
            body_memory: BodyMemory::default(),
            body_timeout: Duration::from_secs(60),
            lenient_version: false,
            batch: 0,
            heartbeat: Duration::from_secs(15),
            card_max_age: Duration::from_secs(300),
            legacy_card_path: true,
            card_base: None,
            card_follows_proxies: false,
            card_signer: None,
        }
    }
}

/// An agent on the wire.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    service: Arc<dyn A2aService>,
    cards: Cards,
    /// URIs that the card declares: those of a request are active.
    extensions: Vec<String>,
    jsonrpc: Spoken,
    rest: Spoken,
    #[cfg(feature = "grpc")]
    grpc: Spoken,
    options: BindOptions,
}

impl Inner {
    /// Carries a call out for a caller that sees us under this base.
    async fn carry_out(&self, call: Call, cx: &CallContext, base: Option<&PublicBase>) -> Result<Reply> {
        let mut reply = call.dispatch(&*self.service, cx).await?;
        if let Reply::Card(card) = &mut reply {
            **card = self.cards.present(card, base)?;
        }
        Ok(reply)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Agent {
    /// Puts a service on the wire with this card, in the versions of its interfaces.
    ///
    /// # Errors
    /// When the card cannot be written as JSON or signed.
    pub fn new(service: Arc<dyn A2aService>, card: &AgentCard, options: BindOptions) -> Result<Self> {
        let extensions = card.capabilities.extensions.iter().map(|extension| extension.uri.clone()).collect();
        let cards = Cards::new(card, &options)?;
        Ok(Self {
            inner: Arc::new(Inner {
                service,
                cards,
                extensions,
                jsonrpc: Spoken::on(Binding::JsonRpc, card),
                rest: Spoken::on(Binding::HttpJson, card),
                #[cfg(feature = "grpc")]
                grpc: Spoken::on(Binding::Grpc, card),
                options,
            }),
        })
    }

    /// The routes of this agent below `prefix` (empty for the root): JSON-RPC with and without a
    /// trailing slash, HTTP+JSON, and the card. gRPC has paths of its own: see [`Grpc`].
    pub fn router(&self, prefix: &str) -> Router {
        let mounted = Mounted { agent: self.clone(), prefix: prefix.into() };
        let mut router = Router::new()
            .route(&format!("{prefix}/"), post(call).get(card))
            .route(&format!("{prefix}/.well-known/agent-card.json"), get(card))
            .route(&format!("{prefix}/{{*below}}"), any(operation));
        if !prefix.is_empty() {
            router = router.route(prefix, post(call).get(card));
        }
        if self.inner.options.legacy_card_path {
            router = router.route(&format!("{prefix}/.well-known/agent.json"), get(legacy_card));
        }
        router.with_state(mounted)
    }
}

/// An agent at its place.
#[derive(Clone)]
struct Mounted {
    agent: Agent,
    prefix: Arc<str>,
}

impl FromRef<Mounted> for Agent {
    fn from_ref(mounted: &Mounted) -> Self {
        mounted.agent.clone()
    }
}

/// The routes of an agent at the root: every binding on one port.
pub fn router(agent: &Agent) -> Router {
    let router = agent.router("");
    #[cfg(feature = "grpc")]
    let router = router.merge(Grpc::of(agent).router());
    router
}

async fn call(State(agent): State<Agent>, request: Request) -> Response {
    jsonrpc::serve(&agent.inner, request).await
}

async fn operation(State(mounted): State<Mounted>, request: Request) -> Response {
    #[cfg(feature = "grpc")]
    if is_grpc(request.headers()) {
        return unimplemented("there is no such service here");
    }
    rest::serve(&mounted.agent.inner, &mounted.prefix, request).await
}

async fn card(State(agent): State<Agent>, request: Request) -> Response {
    agent.inner.cards.respond(request.headers(), request.extensions().get())
}

async fn legacy_card(State(agent): State<Agent>, request: Request) -> Response {
    card::deprecated(agent.inner.cards.respond(request.headers(), request.extensions().get()))
}
