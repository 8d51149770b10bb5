//! DNS rebinding: a page of another site that got our address under its own name reaches nothing,
//! because on loopback we answer to our own names only.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::{IntoResponse as _, Response};
use futures_util::future::Either;
use http::{Request, StatusCode, header};
use tower::Service;

/// Checks the host of each request before anything else sees it. Not a layer of the router, which would
/// box every request's future for it.
#[derive(Clone)]
pub(crate) struct HostCheck<S> {
    inner: S,
    /// Names under which callers may address us; empty: any.
    hosts: Arc<[String]>,
}

impl<S> HostCheck<S> {
    pub(crate) fn new(inner: S, hosts: Arc<[String]>) -> Self {
        Self { inner, hosts }
    }

    fn knows<B>(&self, request: &Request<B>) -> bool {
        if self.hosts.is_empty() {
            return true;
        }
        let host = request.uri().host().or_else(|| {
            let value = request.headers().get(header::HOST)?.to_str().ok()?;
            Some(without_port(value))
        });
        host.is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

impl<S, B> Service<Request<B>> for HostCheck<S>
where
    S: Service<Request<B>, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.knows(&request) {
            return Either::Left(self.inner.call(request));
        }
        let message = "this host name is not ours; listen on another address or set --public-url\n";
        Either::Right(ready(Ok((StatusCode::MISDIRECTED_REQUEST, message).into_response())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_names_only() {
        let hosts: Arc<[String]> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        let check = HostCheck::new((), hosts);
        let asks =
            |host: &str| check.knows(&Request::builder().uri("/").header("host", host).body(()).unwrap());
        for own in ["localhost", "LOCALHOST:2602", "127.0.0.1:2602", "[::1]:2602", "[::1]"] {
            assert!(asks(own), "{own}");
        }
        for other in
            ["evil.example", "evil.example:2602", "127.0.0.1.evil.example", "localhost.evil.example", ""]
        {
            assert!(!asks(other), "{other}");
        }
        assert!(!check.knows(&Request::builder().uri("/").body(()).unwrap()), "no host at all");
        assert!(check.knows(&Request::builder().uri("http://localhost:2602/").body(()).unwrap()), "HTTP/2");
    }

    #[test]
    fn beyond_loopback_any_name() {
        let check = HostCheck::new((), Arc::default());
        assert!(check.knows(&Request::builder().uri("/").header("host", "agents.example").body(()).unwrap()));
    }
}
