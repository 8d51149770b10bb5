//! Bindings: put any [`A2aService`] on the wire. A binding opens the envelope, selects the dialect and the
//! operation, calls the service, and encodes the response.
//!
//! Read `jsonrpc`, `rest` or `grpc` first, then `version` (the choice of the version), `context` (headers),
//! `body` (reading within limits), `answer`, `piece_body` and `sse` (writing), `refuse` and `request_id` (errors),
//! `sealed` (calls that are relayed without decoding), `shared_root` (agents by tenant), `card`, `directory` and
//! `document`.
//!
//! A binding uses neither the runtime nor a store.

mod answer;
mod body;
mod card;
mod context;
mod directory;
mod document;
#[cfg(feature = "grpc")]
mod grpc;
mod jsonrpc;
mod piece_body;
mod refuse;
mod request_id;
mod rest;
mod sealed;
mod shared_root;
mod sse;
mod version;

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::any,
};
use http::{HeaderName, Method, StatusCode, header};
use nuncio_protocol::{
    A2aService, AgentCard, Binding, CallContext, Error, ErrorKind, Result,
    op::{Call, Op, Reply},
};

#[cfg(feature = "grpc")]
pub use self::grpc::{Grpc, is_grpc, unimplemented};
pub use self::{
    body::{ReadBody, read as read_body},
    card::{CardSigner, PublicBase},
    directory::Directory,
    document::Document,
    refuse::{OnDenied, not_found, refuse},
    request_id::RequestId,
    sealed::{AnswerForm, Relay, SealedCall, Subject},
    shared_root::SharedRoot,
};
use self::{card::Cards, directory::unknown_tenant, version::Spoken};
use crate::{
    memory::{MemoryAccount, MemoryReservation, MemoryUse, exhausted},
    size,
};

/// The options of the bindings of an agent.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The maximum size of a request body in bytes.
    pub body_bytes: usize,
    /// The account of request bodies, calls and responses. Agents of one process share it.
    pub memory: MemoryAccount,
    /// The longest time that a body may take to arrive.
    pub body_timeout: Duration,
    /// Accepts a call without a version if its method's name or its path determines the version.
    pub lenient_version: bool,
    /// The maximum number of non-streaming calls in a JSON-RPC batch; 0 refuses batches.
    pub batch: usize,
    /// The interval of heartbeats on an idle stream; zero: none.
    pub heartbeat: Duration,
    /// The time for which clients may cache the card.
    pub card_max_age: Duration,
    /// Serves the card also at the path of older clients.
    pub legacy_card_path: bool,
    /// The base of this server in the card's URLs. URLs below it are moved to the [`PublicBase`] of a request
    /// that has one; `None`: all URLs are shown as they are.
    pub card_base: Option<PublicBase>,
    /// True if the [`PublicBase`] of requests depends on proxy headers, so that caches must vary by them.
    pub card_follows_proxies: bool,
    /// Signs the cards.
    pub card_signer: Option<CardSigner>,
    /// The caller's headers that the agent gets
    /// ([`CallContext::forwardable_headers`](nuncio_protocol::CallContext)).
    pub keep_headers: Vec<HeaderName>,
    /// Called for each call that is refused because its credential does not permit the operation.
    pub on_denied: Option<OnDenied>,
    /// The name of the agent among those of its port: calls may have it as their tenant, and no other. At the root of
    /// the port, and over gRPC, a call without a tenant is answered with it in the header `nuncio-agent`. `None`: what
    /// a tenant means is the agent's own affair.
    pub agent_name: Option<Arc<str>>,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024 * 1024,
            memory: MemoryAccount::default(),
            body_timeout: Duration::from_secs(60),
            lenient_version: false,
            batch: 0,
            heartbeat: Duration::from_secs(15),
            card_max_age: Duration::from_secs(300),
            legacy_card_path: true,
            card_base: None,
            card_follows_proxies: false,
            card_signer: None,
            keep_headers: Vec::new(),
            on_denied: None,
            agent_name: None,
        }
    }
}

/// The copies of a message while its call is in progress, besides those of its task: the request, entries
/// that wait for their commit, and a snapshot.
const CALL_COPIES: usize = 4;

/// An agent on the wire.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<AgentInner>,
}

struct AgentInner {
    service: Arc<dyn A2aService>,
    /// Handles calls that need no decoding.
    relay: Option<Arc<dyn Relay>>,
    cards: Cards,
    /// The URIs of the extensions that the card declares. Those that a request declares too are active.
    extensions: Vec<String>,
    jsonrpc: Spoken,
    rest: Spoken,
    #[cfg(feature = "grpc")]
    grpc: Spoken,
    options: BindOptions,
}

impl AgentInner {
    /// Refuses an operation that the caller's credential does not permit.
    fn permit(&self, op: Op, cx: &CallContext) -> Result<()> {
        if cx.caller.may(op) {
            return Ok(());
        }
        self.options.on_denied.iter().for_each(|on_denied| on_denied.tell(cx, op));
        let why = format!("this credential does not permit {}", op.name());
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }

    /// Takes the agent's own name out of a call, where it has one: it was the way here, and is no part of a scope.
    fn take_tenant(&self, call: &mut Call) -> Result<()> {
        let (Some(name), Some(tenant)) = (&self.options.agent_name, call.tenant()) else { return Ok(()) };
        if **name != *tenant {
            return Err(unknown_tenant());
        }
        call.set_tenant(None);
        Ok(())
    }

    /// Executes a call for a caller that reaches the server under this base. Reserves memory for `copies` of
    /// the response until it is written.
    async fn carry_out(
        &self,
        mut call: Call,
        cx: &CallContext,
        base: Option<&PublicBase>,
        copies: usize,
    ) -> Result<(Reply, MemoryReservation)> {
        self.take_tenant(&mut call)?;
        self.permit(call.op(), cx)?;
        let in_progress =
            self.options.memory.try_reserve(MemoryUse::Requests, size::call(&call) * CALL_COPIES);
        let _in_progress = in_progress.ok_or_else(exhausted)?;
        let again = repeatable(&call);
        let mut reply = self.service.call(cx, call).await?;
        if let Reply::Card(card) = &mut reply {
            **card = self.cards.present(card, base)?;
        }
        let bytes = size::reply(&reply) * copies;
        match self.options.memory.try_reserve(MemoryUse::Responses, bytes) {
            Some(held) => Ok((reply, held)),
            // Boxed: it is rare.
            None => Box::pin(self.wait_for_memory(reply, bytes, again, cx, copies)).await,
        }
    }

    /// Waits for the memory of a response. A response that can be read again is dropped meanwhile, so that
    /// the waiting call holds no memory that is not counted.
    async fn wait_for_memory(
        &self,
        reply: Reply,
        bytes: usize,
        again: Option<Call>,
        cx: &CallContext,
        copies: usize,
    ) -> Result<(Reply, MemoryReservation)> {
        let (memory, of) = (&self.options.memory, MemoryUse::Responses);
        let Some(call) = again else { return Ok((reply, memory.reserve(of, bytes).await?)) };
        drop(reply);
        let held = memory.reserve(of, bytes).await?;
        let reply = self.service.call(cx, call).await?;
        let bytes_now = size::reply(&reply) * copies;
        if bytes_now <= bytes {
            return Ok((reply, held));
        }
        // The response has grown meanwhile.
        drop(held);
        let held = memory.try_reserve(of, bytes_now).ok_or_else(exhausted)?;
        Ok((reply, held))
    }
}

/// A copy of the call, if it can be repeated and may have a large response.
fn repeatable(call: &Call) -> Option<Call> {
    match call {
        Call::GetTask(_) | Call::ListTasks(_) => Some(call.clone()),
        Call::SendMessage(_)
        | Call::SendStreamingMessage(_)
        | Call::CancelTask(_)
        | Call::SubscribeToTask(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetTaskPushNotificationConfig(_)
        | Call::ListTaskPushNotificationConfigs(_)
        | Call::GetExtendedAgentCard(_)
        | Call::DeleteTaskPushNotificationConfig(_) => None,
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
    /// The card cannot be encoded as JSON or signed.
    pub fn new(service: Arc<dyn A2aService>, card: &AgentCard, options: BindOptions) -> Result<Self> {
        Self::build(service, None, card, options)
    }

    /// Puts a service on the wire as [`Self::new`] does, with a relay that gets each call first, still
    /// sealed. The service gets the calls that the relay does not handle.
    ///
    /// # Errors
    /// The card cannot be encoded as JSON or signed.
    pub fn relayed(
        service: Arc<dyn A2aService>,
        relay: Arc<dyn Relay>,
        card: &AgentCard,
        options: BindOptions,
    ) -> Result<Self> {
        Self::build(service, Some(relay), card, options)
    }

    fn build(
        service: Arc<dyn A2aService>,
        relay: Option<Arc<dyn Relay>>,
        card: &AgentCard,
        options: BindOptions,
    ) -> Result<Self> {
        let extensions = card.capabilities.extensions.iter().map(|extension| extension.uri.clone()).collect();
        let cards = Cards::new(card, &options)?;
        Ok(Self {
            inner: Arc::new(AgentInner {
                service,
                relay,
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

    /// The routes of this agent below `prefix` (empty for the root): see [`Self::serve`].
    pub fn router(&self, prefix: &str) -> Router {
        let mounted = Mounted { agent: self.clone(), prefix: prefix.into() };
        let mut router = Router::new()
            .route(&format!("{prefix}/"), any(serve))
            .route(&format!("{prefix}/{{*below}}"), any(serve));
        if !prefix.is_empty() {
            router = router.route(prefix, any(serve));
        }
        router.with_state(mounted)
    }

    /// Answers a request to this agent, which is mounted at `prefix` (empty for the root); the path of the
    /// request must begin with it. Serves JSON-RPC with and without a trailing slash, HTTP+JSON, and the
    /// card. gRPC has fixed paths: see [`Grpc`].
    pub async fn serve(&self, prefix: &str, request: impl Into<Box<Request>>) -> Response {
        let request = request.into();
        let path = request.uri().path();
        // Compared without unescaping: an escaped slash is no separator (trap T-49).
        match path.strip_prefix(prefix).unwrap_or(path) {
            "" | "/" if request.method() == Method::POST => jsonrpc::serve(&self.inner, request).await,
            "" | "/" if is_read(&request) => self.card(&request),
            "" | "/" => wrong_method("GET,HEAD,POST"),
            "/.well-known/agent-card.json" if is_read(&request) => self.card(&request),
            "/.well-known/agent-card.json" => wrong_method("GET,HEAD"),
            "/.well-known/agent.json" if self.inner.options.legacy_card_path => {
                if is_read(&request) {
                    card::deprecated(self.card(&request))
                } else {
                    wrong_method("GET,HEAD")
                }
            }
            #[cfg(feature = "grpc")]
            _ if is_grpc(request.headers()) => unimplemented("there is no such service here"),
            _ => rest::serve(&self.inner, prefix, request).await,
        }
    }

    fn card(&self, request: &Request) -> Response {
        self.inner.cards.respond(request.headers(), request.extensions().get())
    }
}

fn is_read(request: &Request) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
}

fn wrong_method(allow: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allow)]).into_response()
}

/// An agent and its path prefix.
#[derive(Clone)]
struct Mounted {
    agent: Agent,
    prefix: Arc<str>,
}

/// The routes of an agent at the root: every binding on one port.
pub fn router(agent: &Agent) -> Router {
    let router = agent.router("");
    #[cfg(feature = "grpc")]
    let router = router.merge(Grpc::of(agent).router());
    router
}

async fn serve(State(Mounted { agent, prefix }): State<Mounted>, request: Request) -> Response {
    agent.serve(&prefix, request).await
}
