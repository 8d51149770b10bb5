//! Bindings: any [`A2aService`] on the wire. A binding opens the envelope, finds the dialect and the
//! operation, calls the service, and puts the answer back; it touches neither runtime nor store.

mod card;
mod jsonrpc;
mod sse;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::{get, post},
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use nuncio_protocol::{
    A2aService, AgentCard, AgentInterface, Binding, CallContext, Caller, Error, ErrorKind, Fault, Result,
    Seq, TraceContext, Version, v03,
    wire::{Dialect, V1},
};

use self::card::CardDocument;

/// How a binding behaves.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The largest body.
    pub body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Takes a version that the method's name proves although the caller did not send it.
    pub lenient_version: bool,
    /// Takes JSON-RPC batches of non-streaming calls, at most so many; 0 takes none.
    pub batch: usize,
    /// How often an idle stream shows that it is alive.
    pub heartbeat: Duration,
    /// How long a card may be cached.
    pub card_max_age: Duration,
    /// Serves the card also where old clients look for it.
    pub legacy_card_path: bool,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            body_bytes: 16 * 1024 * 1024,
            body_timeout: Duration::from_secs(60),
            lenient_version: false,
            batch: 0,
            heartbeat: Duration::from_secs(15),
            card_max_age: Duration::from_secs(300),
            legacy_card_path: true,
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
    card: CardDocument,
    /// URIs that the card declares: those of a request are active.
    extensions: Vec<String>,
    /// The versions of the card's JSON-RPC interfaces: support is judged by interface (spec 3.6.2).
    versions: Vec<Version>,
    options: BindOptions,
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
    /// When the card cannot be written as JSON.
    pub fn new(service: Arc<dyn A2aService>, card: &AgentCard, options: BindOptions) -> Result<Self> {
        Self::with_document(service, card, &v03::union_card(card), options)
    }

    /// As [`Self::new`], with the card also as the finished document, signatures included.
    ///
    /// # Errors
    /// When the card cannot be written as JSON.
    pub fn with_document(
        service: Arc<dyn A2aService>,
        card: &AgentCard,
        document: &serde_json::Value,
        options: BindOptions,
    ) -> Result<Self> {
        let extensions = card.capabilities.extensions.iter().map(|extension| extension.uri.clone()).collect();
        let jsonrpc = card
            .supported_interfaces
            .iter()
            .filter(|interface| interface.binding() == Some(Binding::JsonRpc));
        let versions = jsonrpc.filter_map(AgentInterface::version).collect();
        let card = CardDocument::new(document, options.card_max_age)?;
        Ok(Self { inner: Arc::new(Inner { service, card, extensions, versions, options }) })
    }

    /// The routes of this agent below `prefix` (empty for the root): JSON-RPC with and without a
    /// trailing slash, and the card.
    pub fn router(&self, prefix: &str) -> Router {
        let mut router = Router::new()
            .route(&format!("{prefix}/"), post(call).get(card))
            .route(&format!("{prefix}/.well-known/agent-card.json"), get(card));
        if !prefix.is_empty() {
            router = router.route(prefix, post(call).get(card));
        }
        if self.inner.options.legacy_card_path {
            router = router.route(&format!("{prefix}/.well-known/agent.json"), get(legacy_card));
        }
        router.with_state(self.clone())
    }
}

/// The routes of an agent at the root.
pub fn router(agent: &Agent) -> Router {
    agent.router("")
}

async fn call(State(agent): State<Agent>, request: Request) -> Response {
    jsonrpc::serve(&agent.inner, request).await
}

async fn card(State(agent): State<Agent>, headers: HeaderMap) -> Response {
    agent.inner.card.respond(&headers, false)
}

async fn legacy_card(State(agent): State<Agent>, headers: HeaderMap) -> Response {
    agent.inner.card.respond(&headers, true)
}

pub(crate) const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const X_A2A_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

/// The version the caller asks for, by header or query parameter; `None` if the caller did not say.
fn requested_version<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Result<Option<&'a str>> {
    let header = headers.get(A2A_VERSION).map(|value| value.to_str().unwrap_or("?").trim());
    let query = uri.query().and_then(|query| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("a2a-version"))
            .map(|(_, value)| value.trim())
    });
    let (header, query) = (header.filter(|text| !text.is_empty()), query.filter(|text| !text.is_empty()));
    if let (Some(header), Some(query)) = (header, query)
        && header != query
    {
        let why = format!("A2A-Version is {header} in the header and {query} in the query; send one");
        return Err(Error::new(ErrorKind::InvalidRequest, why));
    }
    Ok(header.or(query))
}

/// The JSON-RPC dialect of a version.
fn jsonrpc_dialect(version: Version) -> &'static dyn Dialect {
    match version {
        Version::V1_0 => &V1,
        Version::V0_3 => &v03::JsonRpc,
    }
}

impl Inner {
    /// The version to speak: the one asked for, or 0.3 if none is (spec 3.6.2).
    fn version(&self, requested: Option<&str>) -> Result<Version> {
        let version = requested.map_or(Some(Version::V0_3), Version::parse);
        version.filter(|version| self.versions.contains(version)).ok_or_else(|| {
            let why = match requested {
                Some(requested) => format!("A2A-Version {requested} is not spoken here"),
                None => "no A2A-Version was sent, which means 0.3, and 0.3 is not spoken here".to_owned(),
            };
            self.version_not_supported(&why).with_metadata("requestedVersion", requested.unwrap_or("0.3"))
        })
    }

    fn version_not_supported(&self, why: &str) -> Error {
        let supported: Vec<&str> = self.versions.iter().map(|version| version.as_str()).collect();
        let supported = supported.join(",");
        Error::new(
            ErrorKind::VersionNotSupported,
            format!("{why}; send the header A2A-Version with one of {supported}"),
        )
        .with_metadata("supportedVersions", supported)
    }

    /// Everything about a call that stands in its headers.
    fn context(
        &self,
        version: Version,
        request_headers: &HeaderMap,
        caller: Option<&Caller>,
    ) -> Result<CallContext> {
        let mut cx = CallContext::new(version);
        if request_headers.len() > 1 {
            for name in [A2A_EXTENSIONS, X_A2A_EXTENSIONS] {
                let values = request_headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
                let uris =
                    values.flat_map(|value| value.split(',')).map(str::trim).filter(|uri| !uri.is_empty());
                for uri in uris {
                    // Some send both headers, to be understood by servers of either version.
                    if !cx.extensions.iter().any(|known| known == uri) {
                        cx.extensions.push(uri.to_owned());
                    }
                }
            }
            cx.last_event_id = last_event_id(request_headers)?;
            cx.idempotency_key = text(request_headers, "idempotency-key").map(str::to_owned);
            cx.trace = text(request_headers, "traceparent").map(|parent| TraceContext {
                parent: parent.to_owned(),
                state: text(request_headers, "tracestate").map(str::to_owned),
            });
        }
        if let Some(caller) = caller {
            cx.caller = caller.clone();
        }
        Ok(cx)
    }

    /// The header that echoes the extensions which are active (REQ-080, REQ-081).
    fn activated(&self, cx: &CallContext) -> Option<(HeaderName, HeaderValue)> {
        if cx.extensions.is_empty() {
            return None;
        }
        let active: Vec<&str> = cx
            .extensions
            .iter()
            .map(String::as_str)
            .filter(|uri| self.extensions.iter().any(|own| own == uri))
            .collect();
        let value = HeaderValue::from_str(&active.join(", ")).ok().filter(|value| !value.is_empty())?;
        let name = match cx.version {
            Version::V1_0 => A2A_EXTENSIONS,
            Version::V0_3 => X_A2A_EXTENSIONS,
        };
        Some((name, value))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>> {
    let Some(text) = text(headers, "last-event-id").filter(|text| !text.is_empty()) else { return Ok(None) };
    let seq = u64::from_str(text).map_err(|_| {
        Error::invalid_field("Last-Event-ID", "expected the id of an event of this stream, which is a number")
    })?;
    Ok(Some(Seq(seq)))
}

/// The cause of our own faults goes to the log, once, here where the answer is made.
fn log(error: &Error) {
    if error.kind().fault() == Fault::Us {
        tracing::error!(%error, cause = ?std::error::Error::source(error), "a call failed");
    } else {
        tracing::debug!(kind = ?error.kind(), %error, "a call was refused");
    }
}
