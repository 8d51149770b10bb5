//! Forwards a request to an agent, and streams the answer.

use std::{
    error::Error as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response,
    header::{HOST, USER_AGENT},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::Incoming;
use nuncio_protocol::{Error, ErrorKind};
use url::Url;

use super::{
    Egress, blocked,
    cause::Cause,
    failure,
    http1_pool::{Fault, Host, Pool, PooledConnection, PooledRequest},
    is_loopback, told,
};
use crate::failure::Failure;

/// The protocol of a forwarded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    /// HTTP/1.1, on a connection of its own for the duration of the request.
    Http1,
    /// HTTP/2 if the peer offers it over TLS: all calls share a connection. Otherwise HTTP/1.1.
    Best,
    /// Only HTTP/2.
    Http2,
}

/// The body of an answer as a stream of frames, trailers included.
#[derive(Debug)]
pub struct ForwardBody(Source);

enum Source {
    Pooled(Box<PooledBody>),
    Client(Box<reqwest::Body>, Url),
}

/// A body and its connection.
struct PooledBody {
    /// `None` once the connection is parked.
    connection: Option<PooledConnection>,
    body: Incoming,
    pool: Arc<Pool>,
    host: Host,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

impl Egress {
    /// Sends a request and returns as soon as the headers of the answer have arrived. The URI of the
    /// request is absolute; `url` is the agent's. The request is boxed, because it is large and moved
    /// often.
    pub(crate) async fn forward(
        &self,
        url: &Url,
        request: Box<Request<Bytes>>,
        wire: Wire,
    ) -> Result<Response<ForwardBody>, Failure> {
        let by_pool = match wire {
            Wire::Http1 => true,
            Wire::Best => url.scheme() == "http",
            Wire::Http2 => false,
        };
        let Some(pool) = self.pool.as_ref().filter(|_| by_pool && self.is_direct(url)) else {
            return Box::pin(self.forward_by_client(url, request, wire == Wire::Http2)).await;
        };
        let (host, request) = addressed(request).map_err(Failure::answered)?;
        let (response, connection) =
            pool.exchange(&host, request).await.map_err(|fault| broken(url, fault))?;
        Ok(response.map(|body| {
            let pooled = PooledBody { connection: Some(connection), body, pool: Arc::clone(pool), host };
            ForwardBody(Source::Pooled(Box::new(pooled)))
        }))
    }

    /// Reads the body of an answer.
    pub(crate) async fn collect(
        &self,
        url: &Url,
        body: impl Body<Data = Bytes, Error = Error>,
    ) -> Result<Bytes, Failure> {
        if body.size_hint().lower() > self.max_body as u64 {
            return Err(self.too_large(url));
        }
        let collected = Limited::new(body, self.max_body).collect().await;
        collected.map(Collected::to_bytes).map_err(|error| match error.downcast::<Error>() {
            Ok(error) => Failure::perhaps(*error),
            Err(_) => self.too_large(url),
        })
    }

    /// True if no proxy is used.
    fn is_direct(&self, url: &Url) -> bool {
        self.guard.is_none() && (!self.has_proxy || is_loopback(url))
    }

    async fn forward_by_client(
        &self,
        url: &Url,
        request: Box<Request<Bytes>>,
        http2: bool,
    ) -> Result<Response<ForwardBody>, Failure> {
        self.admit(url).map_err(|refusal| blocked(url, &refusal))?;
        let client = self.client_for(url, http2);
        let request = reqwest::Request::try_from(*request)
            .map_err(|error| Failure::answered(Error::internal(error.without_url())))?;
        let response = client.execute(request).await.map_err(|error| failure(url, error))?;
        let response: Response<reqwest::Body> = response.into();
        Ok(response.map(|body| ForwardBody(Source::Client(Box::new(body), url.clone()))))
    }
}

/// The host, and the request in origin form: the path as target and the host in a header (RFC 9112, 3.2.1).
fn addressed(request: Box<Request<Bytes>>) -> Result<(Host, PooledRequest), Error> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().cloned();
    let authority = authority.ok_or_else(|| Error::internal("an address without a host"))?;
    let host = Host { secure: parts.uri.scheme_str() == Some("https"), authority };
    parts.headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(super::USER_AGENT));
    let value = HeaderValue::from_str(host.authority.as_str()).map_err(Error::internal)?;
    parts.headers.insert(HOST, value);
    if let Some(path) = parts.uri.path_and_query() {
        parts.uri = path.clone().into();
    }
    Ok((host, Box::new(Request::from_parts(parts, Full::new(body)))))
}

/// The error of a failed request.
fn broken(url: &Url, fault: Fault) -> Failure {
    let cause = Cause::begun_by(fault.source(), &fault);
    told(url, cause, matches!(fault, Fault::Connect(_)), fault)
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.get_mut().0 {
            Source::Pooled(pooled) => pooled.poll_frame(cx),
            Source::Client(body, url) => {
                let frame = ready!(Pin::new(&mut **body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|error| failure(url, error).error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Pooled(pooled) => pooled.body.is_end_stream(),
            Source::Client(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Pooled(pooled) => pooled.body.size_hint(),
            Source::Client(body, _) => body.size_hint(),
        }
    }
}

impl PooledBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                // No frame is buffered, so the connection has to be driven.
                if let Some(connection) = &mut self.connection {
                    connection.drive(cx);
                }
                ready!(Pin::new(&mut self.body).poll_frame(cx))
            }
        };
        if self.body.is_end_stream() || frame.is_none() {
            self.park();
        }
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                Error::new(ErrorKind::Unavailable, "the connection broke in the middle of an answer")
                    .with_source(error)
            })
        }))
    }

    /// Returns the connection to the pool after the answer.
    fn park(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.park(&self.host, connection);
        }
    }
}

impl Drop for PooledBody {
    fn drop(&mut self) {
        // An empty body may be dropped without being polled.
        if self.body.is_end_stream() {
            self.park();
        }
    }
}
