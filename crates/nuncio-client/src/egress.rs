//! The only place where HTTP clients are made: every outgoing connection of the house begins here.
//!
//! What each of them keeps: TLS by rustls with roots that are compiled in (and those of the system, if
//! it has any, so that a bare container image works too), no redirects, a connect timeout, and a bound
//! on how much of an answer is read.
//!
//! There are two levels of trust. What the *operator* gave (configuration, flags, arguments) may be private and may
//! be reached by a proxy: [`Egress::operator`]. What a *caller* gave (webhooks, cards that were handed over) is
//! *guarded*: [`Egress::guarded`]. A guarded way out looks at every address twice, as text before each
//! request and resolved before each connection, and knows neither proxies, which would resolve names for us,
//! nor redirects. Every binding goes through here, gRPC too, and so does the fetching of cards and tokens.
//!
//! Reading order: [`guard`] (the rules, pure), [`resolve`] (the rules at work on names), [`post`] (one request to
//! a webhook), [`forward`] and [`http1_pool`] (requests to agents), [`tls`] (what is special about TLS), [`cause`] (what errors mean).

mod guard;
mod resolve;

mod forward;
mod http1_pool;

mod post;

mod fetch;
mod tls;

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
    post::Kept,
    resolve::{Resolver, Screening},
};
pub use self::{
    forward::ForwardBody,
    guard::{AddressKind, Policy, Refusal},
    post::{PostError, PostErrorKind, Posted},
    tls::{EgressBuilder, TlsError},
};
pub(crate) use self::{forward::Wire, guard::is_localhost};
use crate::failure::Failure;

/// Our user agent.
const USER_AGENT: &str = concat!("nuncio/", env!("CARGO_PKG_VERSION"));
/// A peer that takes longer to accept a connection is taken for down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle streams are legal; this is how we notice that the machine at the other end is gone.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The same by HTTP/2, for a peer behind a proxy. No more often: by default gRPC servers hang up on a client
/// that asks more than once in five minutes whether they are still there.
#[cfg(feature = "grpc")]
const HTTP2_PING: Duration = Duration::from_secs(5 * 60 + 15);
/// The idle connections that a guarded egress keeps per host, and for how long: callers name many hosts, most of
/// them seldom.
const MAX_IDLE_PER_HOST: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The protocols that we offer over TLS.
const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];
#[cfg(feature = "grpc")]
const HTTP2: &[&[u8]] = &[b"h2"];
/// The largest answer we read, and the largest event of a stream.
pub const DEFAULT_MAX_BODY: usize = 16 << 20;

/// The way out. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Egress {
    /// For the world, by way of a proxy if the environment names one.
    http: Client,
    /// For this machine: a proxy has no business there, though many environments forget to say so.
    local: Client,
    /// As [`Self::http`], in HTTP/2 and nothing else, which gRPC needs.
    #[cfg(feature = "grpc")]
    http2: Client,
    /// As [`Self::local`], in HTTP/2 and nothing else.
    #[cfg(feature = "grpc")]
    http2_direct: Client,
    /// For what is handed on as it is; `None` on a guarded way.
    pool: Option<Arc<Pool>>,
    /// The environment names a proxy.
    has_proxy: bool,
    max_body: usize,
    max_event: usize,
    /// The same without our certificate, for peers that are not to know who we are; `None` if there is no
    /// certificate.
    anonymous: Option<Arc<Self>>,
    /// For addresses that a caller gave; `None` if all are the operator's.
    guard: Option<Arc<Guard>>,
}

/// The parts that only a guarded egress has.
#[derive(Debug)]
struct Guard {
    /// Knows the rules.
    resolver: Arc<Resolver>,
    /// With whom connections are kept.
    kept: Kept,
    /// For the others: keeps none.
    once: Client,
}

/// The resolver of host names.
enum Names {
    /// By the rules for what callers name.
    Guarded(Arc<Resolver>),
    /// Without what no agent is at.
    Screened(Arc<Screening>),
    /// As the system says.
    Open,
}

impl Egress {
    /// For addresses that the operator gave: private addresses and the environment's proxies are
    /// allowed.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn operator() -> Result<Self> {
        Self::builder().build()
    }

    /// For addresses that a caller gave: only what the policy admits, without proxies.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn guarded(policy: Policy) -> Result<Self> {
        Self::builder().guarded(policy).build()
    }

    /// As [`Self::operator`], with settings: further roots to trust, a certificate of our own, a guard.
    pub fn builder() -> EgressBuilder {
        EgressBuilder::new()
    }

    fn with_tls(tls: &ClientConfig, names: &Names, anonymous: Option<Arc<Self>>) -> Result<Self> {
        let builder = |alpn| client_builder(tls, alpn, names);
        let build = |builder: ClientBuilder| builder.build().map_err(Error::internal);
        #[cfg(feature = "grpc")]
        let http2 = || builder(HTTP2).http2_prior_knowledge().http2_keep_alive_interval(HTTP2_PING);
        let guard = |resolver: &Arc<Resolver>| {
            let once = build(builder(HTTP).pool_max_idle_per_host(0))?;
            Ok::<_, Error>(Arc::new(Guard { resolver: Arc::clone(resolver), kept: Kept::default(), once }))
        };
        Ok(Self {
            http: build(builder(HTTP))?,
            local: build(builder(HTTP).no_proxy())?,
            #[cfg(feature = "grpc")]
            http2: build(http2())?,
            #[cfg(feature = "grpc")]
            http2_direct: build(http2().no_proxy())?,
            pool: match names {
                Names::Guarded(_) => None,
                Names::Screened(names) => Some(Arc::new(Pool::new(tls, Some(Arc::clone(names.screen()))))),
                Names::Open => Some(Arc::new(Pool::new(tls, None))),
            },
            has_proxy: names_a_proxy(),
            max_body: DEFAULT_MAX_BODY,
            max_event: DEFAULT_MAX_BODY,
            anonymous,
            guard: match names {
                Names::Guarded(resolver) => Some(guard(resolver)?),
                Names::Screened(_) | Names::Open => None,
            },
        })
    }

    /// True if peers that ask for a certificate get one.
    pub(crate) fn has_identity(&self) -> bool {
        self.anonymous.is_some()
    }

    /// The same way out, on which no certificate of ours is shown.
    pub(crate) fn without_identity(self) -> Self {
        match self.anonymous.as_deref() {
            Some(other) => Self { max_body: self.max_body, max_event: self.max_event, ..other.clone() },
            None => self,
        }
    }

    /// Bounds what is read of an answer; 16 MiB by default.
    #[must_use]
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Bounds one event of a stream; 16 MiB by default.
    #[must_use]
    pub fn with_max_event(mut self, bytes: usize) -> Self {
        self.max_event = bytes;
        self
    }

    /// The bound on an answer.
    #[cfg(feature = "grpc")]
    pub(crate) fn max_body(&self) -> usize {
        self.max_body
    }

    /// The bound on one event of a stream.
    pub(crate) fn max_event(&self) -> usize {
        self.max_event
    }

    /// Judges an address by its text. Needed before each request: the resolver never sees hosts that are
    /// written as addresses.
    ///
    /// # Errors
    /// It is one to which this way does not lead.
    pub fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.resolver.policy().check(url))
    }

    fn client(&self, url: &Url) -> &Client {
        if is_loopback(url) { &self.local } else { &self.http }
    }

    /// The client for this address, in HTTP/2 and nothing else if need be.
    fn client_for(&self, url: &Url, http2: bool) -> &Client {
        #[cfg(feature = "grpc")]
        if http2 {
            // Proxies do not pass HTTP/2 on unless it is in TLS, where they do not see it.
            let direct = is_loopback(url) || url.scheme() == "http";
            return if direct { &self.http2_direct } else { &self.http2 };
        }
        #[cfg(not(feature = "grpc"))]
        let _ = http2;
        self.client(url)
    }

    /// Makes a request and returns as soon as the head of the answer is there.
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

    /// The same by HTTP/2 and nothing else.
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

    /// Reads the rest of an answer.
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

/// True if the environment names a proxy, for whatever it is.
fn names_a_proxy() -> bool {
    const NAMES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];
    NAMES.iter().any(|name| {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        set(name) || set(&name.to_uppercase())
    })
}

/// The settings that all of our clients share, and all of those with a guard.
fn client_builder(tls: &ClientConfig, alpn: &[&[u8]], names: &Names) -> ClientBuilder {
    let mut tls = tls.clone();
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE);
    match names {
        Names::Open => builder,
        Names::Screened(names) => builder.dns_resolver(Arc::clone(names)),
        Names::Guarded(resolver) => builder
            .no_proxy()
            .dns_resolver(Arc::clone(resolver))
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .pool_idle_timeout(IDLE_TIMEOUT),
    }
}

/// The error of a request that did not come through, with its cause in words.
pub(crate) fn failure(url: &Url, error: reqwest::Error) -> Failure {
    let connect = error.is_connect();
    let error = error.without_url();
    told(url, Cause::of(&error), connect, error)
}

/// The error of a request that did not come through; `connect`: there was no connection.
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
    let what =
        if connect || is_refusal { "cannot connect to" } else { "the connection broke while talking to" };
    let kind = if is_refusal { ErrorKind::Unauthenticated } else { ErrorKind::Unavailable };
    let told = Error::new(kind, format!("{what} {}: {why}", shown(url))).with_source(error);
    match (is_refusal, connect) {
        (true, _) => Failure::answered(told),
        (false, true) => Failure::nobody(told),
        (false, false) => Failure::perhaps(told),
    }
}

/// The error of a request that the guard has stopped. It will do so again, and other ways to the same agent are
/// no better for it.
fn blocked(url: &Url, refusal: &Refusal) -> Failure {
    let message = format!("the address {} is not allowed: {refusal}", shown(url));
    Failure::answered(Error::new(ErrorKind::PermissionDenied, message))
}

/// An address for messages: without user, password, query and fragment, which may hold secrets.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for addresses that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// The same for what may be no address, as it is written if there is nothing to leave out.
pub(crate) fn shown_text(address: &str) -> String {
    if !address.contains(['?', '#', '@']) {
        return address.to_owned();
    }
    let bare = || address.split(['?', '#']).next().unwrap_or_default().to_owned();
    Url::parse(address).map_or_else(|_| bare(), |url| shown(&url))
}

/// True if the address is on this machine, as far as its text tells.
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
