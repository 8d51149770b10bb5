//! The check of host names, before anything else sees a request.
//!
//! A request has exactly one `Host` (RFC 9112, section 3.2): with two, a proxy and the hub could each use
//! another.
//!
//! DNS rebinding: a page of another site that resolves its own name to our address is refused, because on
//! loopback the hub answers to known names only. That holds for connections of trusted proxies as well: a
//! proxy and a browser on this machine have the same address. A page cannot choose its `Host`, so this header
//! is always checked; a host name in a proxy's headers is checked if it would appear on cards.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::IpAddr,
    sync::Arc,
};

use axum::response::{IntoResponse as _, Response};
use futures_util::future::Either;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use nuncio_server::bind::PublicBase;

use super::{
    forwarded::{self, Forwarded},
    local,
};
use crate::config::Network;

/// The host names of the hub, and the sources they may come from.
#[derive(Clone, Debug)]
pub(crate) struct HostNames {
    /// Hosts under which callers may address the hub; empty: any.
    pub(crate) own: Vec<String>,
    /// Trusted proxies, whose forwarding headers are read.
    pub(crate) proxies: Vec<Network>,
    /// Cards show the base from the proxies' headers; otherwise always the same base.
    pub(crate) follow: bool,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
}

/// Checks the host names of each request of a connection. Not a layer of the router, which would box the
/// future of every request.
#[derive(Clone)]
pub(super) struct HostCheck<S> {
    inner: S,
    names: Arc<HostNames>,
    /// The peer is a trusted proxy.
    is_proxy: bool,
    peer: IpAddr,
}

/// The origin of a request. An extension of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The caller's address, as reported by trusted proxies, otherwise the peer's.
    pub(crate) address: IpAddr,
    /// The connection comes from this machine, though the caller may not: see [`local::is_local`].
    is_loopback: bool,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, connected: IpAddr) -> Self {
        Self { address, is_loopback: connected.to_canonical().is_loopback() }
    }

    /// True if the request was made on this machine, by a program that calls the hub directly.
    pub(crate) fn is_local(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        self.is_loopback && local::is_local(uri, headers)
    }
}

/// The reason why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostRefusal {
    /// Its host is not one of the hub's.
    Misdirected,
    /// It has two `Host` headers.
    Ambiguous,
}

impl HostRefusal {
    fn response(self) -> Response {
        let (status, message) = match self {
            Self::Misdirected => (
                StatusCode::MISDIRECTED_REQUEST,
                "this host name is not the hub's; allow it with --allow-host, set --public-url, or listen on another \
                 address\n",
            ),
            Self::Ambiguous => (StatusCode::BAD_REQUEST, "the request has two Host headers; send one\n"),
        };
        (status, message).into_response()
    }
}

impl<S> HostCheck<S> {
    pub(super) fn new(inner: S, names: Arc<HostNames>, peer: IpAddr) -> Self {
        let is_proxy = names.proxies.iter().any(|network| network.contains(peer));
        Self { inner, names, is_proxy, peer }
    }

    /// Refuses a request for another host; any other one gets its [`Peer`] and its base as extensions.
    fn admit<B>(&self, request: &mut Request<B>) -> Result<(), HostRefusal> {
        if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
            return Err(HostRefusal::Ambiguous);
        }
        if !self.knows(authority(request)) {
            return Err(HostRefusal::Misdirected);
        }
        let said = || forwarded::caller(request.headers(), &self.names.proxies);
        let address = if self.is_proxy { said().unwrap_or(self.peer) } else { self.peer };
        request.extensions_mut().insert(Peer::new(address, self.peer));
        if !self.is_proxy || !self.names.follow {
            return Ok(());
        }
        let Some(forwarded) = Forwarded::read(request.headers(), &self.names.proxies) else {
            return Ok(());
        };
        if forwarded.host().is_some_and(|host| !self.knows(Some(host))) {
            return Err(HostRefusal::Misdirected);
        }
        let base = forwarded.base(self.names.scheme, authority(request));
        if let Some(base) = base.as_deref().and_then(PublicBase::parse) {
            request.extensions_mut().insert(base);
        }
        Ok(())
    }

    fn knows(&self, host: Option<&str>) -> bool {
        let own = &self.names.own;
        own.is_empty()
            || host.is_some_and(|host| {
                let host = without_port(host);
                own.iter().any(|own| own.eq_ignore_ascii_case(host))
            })
    }
}

/// Host and port of the request: from the URI with HTTP/2, otherwise from the header.
fn authority<B>(request: &Request<B>) -> Option<&str> {
    let in_uri = request.uri().authority().map(http::uri::Authority::as_str);
    in_uri.or_else(|| request.headers().get(header::HOST)?.to_str().ok())
}

pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

impl<S, B> hyper::service::Service<Request<B>> for HostCheck<S>
where
    // A router is always ready.
    S: tower::Service<Request<B>, Response = Response, Error = Infallible> + Clone,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn call(&self, mut request: Request<B>) -> Self::Future {
        match self.admit(&mut request) {
            Ok(()) => Either::Left(self.inner.clone().call(request)),
            Err(refused) => Either::Right(ready(Ok(refused.response()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: &[&str], peer: &str) -> HostCheck<()> {
        let names = HostNames {
            own: own.iter().map(|&own| own.to_owned()).collect(),
            proxies: vec!["127.0.0.2".parse().unwrap(), "10.0.0.0/8".parse().unwrap()],
            follow: true,
            scheme: "http",
        };
        HostCheck::new((), Arc::new(names), peer.parse().unwrap())
    }

    /// Whether a request is let in, and the base it is then answered under.
    fn asks(check: &HostCheck<()>, uri: &str, headers: &[(&str, &str)]) -> (bool, Option<String>) {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        for (name, value) in headers {
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let admitted = check.admit(&mut request).is_ok();
        (admitted, request.extensions().get::<PublicBase>().map(ToString::to_string))
    }

    const OWN: &[&str] = &["localhost", "127.0.0.1", "[::1]", "a.example"];

    #[test]
    fn our_own_names_only() {
        let check = check(OWN, "127.0.0.1");
        for own in ["localhost", "LOCALHOST:2602", "127.0.0.1:2602", "[::1]:2602", "[::1]"] {
            assert_eq!(asks(&check, "/", &[("host", own)]), (true, None), "{own}");
        }
        for other in
            ["evil.example", "evil.example:2602", "127.0.0.1.evil.example", "localhost.evil.example", ""]
        {
            assert_eq!(asks(&check, "/", &[("host", other)]), (false, None), "{other}");
        }
        assert_eq!(asks(&check, "/", &[]), (false, None), "no host at all");
        assert_eq!(asks(&check, "http://localhost:2602/", &[]), (true, None), "HTTP/2");
        assert_eq!(asks(&check, "http://evil.example/", &[("host", "localhost")]), (false, None), "HTTP/2");
    }

    /// RFC 9112, 3.2: a request with more than one `Host` is answered with 400, whatever they say.
    #[test]
    fn a_request_has_one_host() {
        for (own, hosts, expected) in [
            (OWN, &["localhost"][..], Ok(())),
            (OWN, &["localhost", "evil.example"], Err(HostRefusal::Ambiguous)),
            (OWN, &["evil.example", "localhost"], Err(HostRefusal::Ambiguous)),
            (OWN, &["localhost", "localhost"], Err(HostRefusal::Ambiguous)),
            (&[], &["a.example", "b.example"], Err(HostRefusal::Ambiguous)),
        ] {
            let mut request = Request::new(());
            for host in hosts {
                request.headers_mut().append(header::HOST, host.parse().unwrap());
            }
            assert_eq!(check(own, "127.0.0.1").admit(&mut request), expected, "{hosts:?}");
        }
        assert_eq!(HostRefusal::Ambiguous.response().status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn beyond_loopback_any_name() {
        assert!(asks(&check(&[], "192.0.2.1"), "/", &[("host", "agents.example")]).0);
    }

    #[test]
    fn only_proxies_that_we_trust_are_believed() {
        let (host, claim) = (("host", "evil.example"), ("x-forwarded-host", "localhost"));
        let claims = [claim, ("x-forwarded-host", "a.example"), ("forwarded", "host=a.example;proto=https")];
        for claim in claims {
            for stranger in ["127.0.0.1", "192.0.2.1", "::1", "11.0.0.1"] {
                let (own, any) = (check(OWN, stranger), check(&[], stranger));
                assert_eq!(asks(&own, "/", &[host, claim]), (false, None), "{stranger} {claim:?}");
                assert_eq!(asks(&own, "/", &[("host", "localhost"), claim]), (true, None), "{stranger}");
                assert_eq!(asks(&any, "/", &[host, claim]), (true, None), "{stranger} {claim:?}");
            }
        }
        for peer in ["127.0.0.2", "10.0.0.1", "::ffff:10.0.0.1"] {
            for own in [OWN, &[]] {
                let check = check(own, peer);
                let seen =
                    asks(&check, "/", &[("host", "127.0.0.1:2602"), ("x-forwarded-host", "a.example")]);
                assert_eq!(seen, (true, Some("http://a.example".to_owned())));
                let seen = asks(&check, "/", &[("host", "a.example"), ("x-forwarded-proto", "https")]);
                assert_eq!(seen, (true, Some("https://a.example".to_owned())), "the name was handed on");
                let seen = asks(&check, "http://a.example/x", &[("x-forwarded-proto", "https")]);
                assert_eq!(seen, (true, Some("https://a.example".to_owned())), "HTTP/2");
            }
            // A proxy that says nothing is like anybody else.
            assert_eq!(asks(&check(OWN, peer), "/", &[host]), (false, None));
        }
    }

    #[test]
    fn a_base_that_is_fixed_stays() {
        let mut check = check(OWN, "10.0.0.1");
        Arc::make_mut(&mut check.names).follow = false;
        for forwarded in ["a.example", "other.example"] {
            let seen = asks(&check, "/", &[("host", "127.0.0.1"), ("x-forwarded-host", forwarded)]);
            assert_eq!(seen, (true, None), "{forwarded} is not used");
        }
        assert_eq!(asks(&check, "/", &[("host", "evil.example")]), (false, None));
    }

    /// A page of evil.example, rebound to us, comes from where our proxy does, and may say what it does,
    /// except for `Host`.
    #[test]
    fn a_trusted_proxy_gives_no_foreign_names() {
        for follow in [true, false] {
            let mut check = check(OWN, "127.0.0.2");
            Arc::make_mut(&mut check.names).follow = follow;
            for claim in [
                ("x-forwarded-host", "evil.example"),
                ("x-forwarded-host", "localhost"),
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-for", "203.0.113.9"),
                ("forwarded", "host=localhost"),
            ] {
                let seen = asks(&check, "/", &[("host", "evil.example:2602"), claim]);
                assert_eq!(seen, (false, None), "{claim:?}");
                let seen = asks(&check, "http://evil.example/", &[("host", "localhost"), claim]);
                assert_eq!(seen, (false, None), "HTTP/2: {claim:?}");
            }
        }
        let check = check(OWN, "127.0.0.2");
        for claim in [("x-forwarded-host", "evil.example"), ("forwarded", "host=\"evil.example:80\"")] {
            assert_eq!(asks(&check, "/", &[("host", "localhost"), claim]), (false, None), "{claim:?}");
        }
    }
}
