//! The only place where HTTP clients are built: every outgoing connection begins here.
//!
//! All of them use TLS by rustls with compiled-in roots (and those of the system, if there are any, so that
//! a bare container image works, too), follow no redirects, and have a connect timeout and a limit on the
//! size of an answer.
//!
//! There are two levels of trust. URLs of the *operator* (configuration, flags, arguments) may be private
//! and may be reached through a proxy: [`Egress::operator`]. URLs of a *caller* (webhooks, cards given by
//! callers) are *guarded*: [`Egress::guarded`]. A guarded egress checks every address twice, as text before
//! each request and resolved before each connection. It uses no proxies, because they would resolve names
//! for us, and no redirects. All bindings use this module, gRPC too, and so do the fetches of cards and
//! tokens.
//!
//! Reading order: [`guard`] (the rules, pure), [`resolve`] (the rules applied to names), [`post`] (one
//! request to a webhook), [`forward`] and [`http1_pool`] (requests to agents), [`tls`] (trust and
//! identity), [`cause`] (error causes).

mod guard;
mod resolve;

mod forward;
mod http1_pool;

mod post;

mod events;
mod fetch;
mod tls;
mod tls_offer;

mod cause;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use nuncio_protocol::{Error, ErrorKind, Result};
use reqwest::{Client, ClientBuilder, Response, redirect};
use rustls::ClientConfig;
use url::{Host, Url};

use self::{
    cause::Cause,
    http1_pool::Pool,
    post::OpenHosts,
    resolve::{Resolver, Screening},
};
pub use self::{
    events::{EventAnswer, ServerEvent},
    forward::ForwardBody,
    guard::{AddressKind, Policy, Refusal},
    post::{PostError, PostErrorKind, Posted},
    tls::{EgressBuilder, TlsError},
    tls_offer::TlsOffer,
};
pub(crate) use self::{forward::Wire, guard::is_localhost};
use crate::failure::Failure;

/// Our user agent.
const USER_AGENT: &str = concat!("nuncio/", env!("CARGO_PKG_VERSION"));
/// Timeout of a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of TCP keep-alive. Idle streams are legal, so this detects a dead peer.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Interval of HTTP/2 pings, for a peer behind a proxy. Not shorter: by default gRPC servers close the
/// connection of a client that pings more than once in five minutes.
#[cfg(feature = "grpc")]
const HTTP2_PING: Duration = Duration::from_secs(5 * 60 + 15);
/// Idle connections per host of a guarded egress, and their timeout: callers name many hosts, most of them
/// seldom.
const MAX_IDLE_PER_HOST: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The protocols offered by ALPN.
const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];
#[cfg(feature = "grpc")]
const HTTP2: &[&[u8]] = &[b"h2"];
/// Default maximum size of an answer, and of an event of a stream, in bytes.
pub const DEFAULT_MAX_BODY: usize = 16 << 20;

/// An HTTP client with its TLS settings, limits and address rules. Cheap to clone; clones share their
/// connections.
#[derive(Clone, Debug)]
pub struct Egress {
    /// For other machines, through a proxy if the environment sets one.
    http: Client,
    /// For this machine: never through a proxy, even if the environment does not exclude it.
    local: Client,
    /// Like [`Self::http`], only HTTP/2, for gRPC.
    #[cfg(feature = "grpc")]
    http2: Client,
    /// Like [`Self::local`], only HTTP/2.
    #[cfg(feature = "grpc")]
    http2_direct: Client,
    /// For relayed requests; `None` on a guarded egress.
    pool: Option<Arc<Pool>>,
    /// The environment sets a proxy.
    has_proxy: bool,
    max_body: usize,
    max_event: usize,
    /// The same without our client certificate, for peers that must not see it; `None` if there is no
    /// certificate.
    anonymous: Option<Arc<Self>>,
    /// For URLs of callers; `None` if all URLs are the operator's.
    guard: Option<Arc<Guard>>,
}

/// The parts that only a guarded egress has.
#[derive(Debug)]
struct Guard {
    /// Applies the policy.
    resolver: Arc<Resolver>,
    /// Hosts with open connections.
    kept: OpenHosts,
    /// For all other hosts: keeps no connections.
    once: Client,
}

/// The resolver of host names.
enum HostResolver {
    /// Applies the policy for URLs of callers.
    Guarded(Arc<Resolver>),
    /// Refuses addresses where no agent can be.
    Screened(Arc<Screening>),
    /// The system's resolver.
    Open,
}

impl Egress {
    /// An egress for URLs of the operator: private addresses and the environment's proxies are allowed.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn operator() -> Result<Self> {
        Self::builder().build()
    }

    /// An egress for URLs of callers: only addresses that the policy allows, without proxies.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn guarded(policy: Policy) -> Result<Self> {
        Self::builder().guarded(policy).build()
    }

    /// Like [`Self::operator`], with settings: additional roots, a client certificate, a guard.
    pub fn builder() -> EgressBuilder {
        EgressBuilder::new()
    }

    fn with_tls(tls: &ClientConfig, names: &HostResolver, anonymous: Option<Arc<Self>>) -> Result<Self> {
        let builder = |alpn| client_builder(tls, alpn, names);
        let build = |builder: ClientBuilder| builder.build().map_err(Error::internal);
        #[cfg(feature = "grpc")]
        let http2 = || builder(HTTP2).http2_prior_knowledge().http2_keep_alive_interval(HTTP2_PING);
        let guard = |resolver: &Arc<Resolver>| {
            let once = build(builder(HTTP).pool_max_idle_per_host(0))?;
            Ok::<_, Error>(Arc::new(Guard {
                resolver: Arc::clone(resolver),
                kept: OpenHosts::default(),
                once,
            }))
        };
        Ok(Self {
            http: build(builder(HTTP))?,
            local: build(builder(HTTP).no_proxy())?,
            #[cfg(feature = "grpc")]
            http2: build(http2())?,
            #[cfg(feature = "grpc")]
            http2_direct: build(http2().no_proxy())?,
            pool: match names {
                HostResolver::Guarded(_) => None,
                HostResolver::Screened(names) => {
                    Some(Arc::new(Pool::new(tls, Some(Arc::clone(names.screen())))))
                }
                HostResolver::Open => Some(Arc::new(Pool::new(tls, None))),
            },
            has_proxy: names_a_proxy(),
            max_body: DEFAULT_MAX_BODY,
            max_event: DEFAULT_MAX_BODY,
            anonymous,
            guard: match names {
                HostResolver::Guarded(resolver) => Some(guard(resolver)?),
                HostResolver::Screened(_) | HostResolver::Open => None,
            },
        })
    }

    /// True if there is a client certificate.
    pub(crate) fn has_identity(&self) -> bool {
        self.anonymous.is_some()
    }

    /// The same egress without the client certificate.
    pub(crate) fn without_identity(self) -> Self {
        match self.anonymous.as_deref() {
            Some(other) => Self { max_body: self.max_body, max_event: self.max_event, ..other.clone() },
            None => self,
        }
    }

    /// Sets the maximum size of an answer; 16 MiB by default.
    #[must_use]
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the maximum size of one event of a stream; 16 MiB by default.
    #[must_use]
    pub fn with_max_event(mut self, bytes: usize) -> Self {
        self.max_event = bytes;
        self
    }

    /// The maximum size of an answer.
    #[cfg(feature = "grpc")]
    pub(crate) fn max_body(&self) -> usize {
        self.max_body
    }

    /// The maximum size of one event of a stream.
    pub(crate) fn max_event(&self) -> usize {
        self.max_event
    }

    /// Checks a URL by its text. Required before each request: the resolver never sees hosts that are
    /// written as IP addresses.
    ///
    /// # Errors
    /// The policy does not allow the URL.
    pub fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.resolver.policy().check(url))
    }

    fn client(&self, url: &Url) -> &Client {
        if is_loopback(url) { &self.local } else { &self.http }
    }

    /// The client for this URL; with `http2`, one that speaks only HTTP/2.
    fn client_for(&self, url: &Url, http2: bool) -> &Client {
        #[cfg(feature = "grpc")]
        if http2 {
            // Proxies forward HTTP/2 only inside of TLS, where they do not see it.
            let direct = is_loopback(url) || url.scheme() == "http";
            return if direct { &self.http2_direct } else { &self.http2 };
        }
        #[cfg(not(feature = "grpc"))]
        let _ = http2;
        self.client(url)
    }

    /// Sends a request and returns as soon as the headers of the answer have arrived.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        self.admit(url).map_err(|refusal| blocked(url, &refusal))?;
        let request = self.client(url).request(method, url.clone()).headers(headers).body(body);
        request.send().await.map_err(|error| failure(url, error))
    }

    /// Like [`Self::send`], as a POST over HTTP/2 only.
    #[cfg(feature = "grpc")]
    pub(crate) async fn post_http2(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        self.admit(url).map_err(|refusal| blocked(url, &refusal))?;
        let request = self.client_for(url, true).post(url.clone()).headers(headers).body(body);
        request.send().await.map_err(|error| failure(url, error))
    }

    /// Reads the body of an answer.
    pub(crate) async fn read(&self, mut response: Response) -> Result<Bytes, Failure> {
        let url = response.url().clone();
        if response.content_length().is_some_and(|length| length > self.max_body as u64) {
            return Err(self.too_large(&url));
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&url, error))? {
            if body.len() + chunk.len() > self.max_body {
                return Err(self.too_large(&url));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn too_large(&self, url: &Url) -> Failure {
        let message =
            format!("the answer of {} is larger than the limit of {} bytes", shown(url), self.max_body);
        Failure::answered(Error::new(ErrorKind::InvalidAgentResponse, message))
    }
}

/// True if the environment sets any proxy.
fn names_a_proxy() -> bool {
    const NAMES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];
    NAMES.iter().any(|name| {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        set(name) || set(&name.to_uppercase())
    })
}

/// The settings that all clients share, and those of guarded clients.
fn client_builder(tls: &ClientConfig, alpn: &[&[u8]], names: &HostResolver) -> ClientBuilder {
    let mut tls = tls.clone();
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE);
    match names {
        HostResolver::Open => builder,
        HostResolver::Screened(names) => builder.dns_resolver(Arc::clone(names)),
        HostResolver::Guarded(resolver) => builder
            .no_proxy()
            .dns_resolver(Arc::clone(resolver))
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .pool_idle_timeout(IDLE_TIMEOUT),
    }
}

/// The error of a failed request, with its cause.
pub(crate) fn failure(url: &Url, error: reqwest::Error) -> Failure {
    let connect = error.is_connect();
    let error = error.without_url();
    told(url, Cause::of(&error), connect, error)
}

/// The error of a failed request; `connect`: no connection was made.
fn told(
    url: &Url,
    cause: Cause,
    connect: bool,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let Cause { why, refusal, trouble, .. } = cause;
    if let Some(refusal) = refusal {
        return blocked(url, &refusal);
    }
    let is_refusal = trouble.is_some_and(tls::Trouble::is_refusal);
    let message = match trouble {
        Some(tls::Trouble::Untrusted(distrust)) => {
            format!("the certificate of {} is not trusted: {distrust}", peer(url))
        }
        _ if connect || is_refusal => format!("cannot connect to {}: {why}", shown(url)),
        _ => format!("the connection broke while talking to {}: {why}", shown(url)),
    };
    let kind = if is_refusal { ErrorKind::Unauthenticated } else { ErrorKind::Unavailable };
    let told = Error::new(kind, message).with_source(error);
    match (is_refusal, connect) {
        (true, _) => Failure::answered(told),
        (false, true) => Failure::nobody(told),
        (false, false) => Failure::perhaps(told),
    }
}

/// The host and port of a URL.
fn peer(url: &Url) -> String {
    let port = url.port_or_known_default().map(|port| format!(":{port}"));
    format!("{}{}", url.host_str().unwrap_or_default(), port.unwrap_or_default())
}

/// The error of a request that the guard refused. Retries and other interfaces of the agent would not help.
fn blocked(url: &Url, refusal: &Refusal) -> Failure {
    let message = format!("the address {} is not allowed: {refusal}", shown(url));
    Failure::answered(Error::new(ErrorKind::PermissionDenied, message))
}

/// A URL for messages: without user, password, query and fragment, which may contain secrets.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Like [`shown`], for a text that need not be a URL. It is unchanged if it contains nothing to remove.
pub(crate) fn shown_text(address: &str) -> String {
    if !address.contains(['?', '#', '@']) {
        return address.to_owned();
    }
    let bare = || address.split(['?', '#']).next().unwrap_or_default().to_owned();
    Url::parse(address).map_or_else(|_| bare(), |url| shown(&url))
}

/// True if the host is this machine, judged by its text.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url = Url::parse("https://user:secret@agent.example/a2a?key=secret#x").unwrap();
        assert_eq!(shown(&url), "https://agent.example/a2a");
    }

    #[tokio::test]
    async fn a_refused_connection_reached_nobody() {
        // Port 1 of loopback: nothing listens there.
        let url = Url::parse("http://127.0.0.1:1/").unwrap();
        let egress = Egress::operator().unwrap();
        let failure = egress.send(Method::GET, &url, HeaderMap::new(), Bytes::new()).await.unwrap_err();
        assert_eq!(failure.reached, crate::failure::Reached::Nobody);
        assert!(
            failure.error.message().starts_with("cannot connect to http://127.0.0.1:1/: "),
            "{}",
            failure.error
        );
        assert!(crate::was_not_sent(&failure.into()), "and whoever asks is told");
        assert!(!crate::was_not_sent(&Failure::perhaps(ErrorKind::Unavailable.into()).into()));
    }
}
