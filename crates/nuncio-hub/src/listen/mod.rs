//! The network edge: accepts connections, reads HTTP requests from them, and closes idle ones.
//!
//! Reading order follows the bytes: this file accepts, `tls` does the handshake (`certificate`
//! reads when a certificate expires), `stream` reads and writes,
//! `host`, `forwarded` and `local` check the host names and the origin of a request, `addresses` counts
//! connections by address, and `idle` closes connections without progress.

mod tls;

mod certificate;

mod stream;

mod host;

mod forwarded;

mod local;

mod addresses;

mod idle;

use std::{convert::Infallible, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::host::{HostNames, Peer};
pub use self::tls::{Certificates, Reload};
use self::{
    addresses::Addresses,
    host::HostCheck,
    idle::{Activity, IdleWatch, Verdict},
    stream::Stream,
};
use crate::config::Connections;

/// The error of an address that the hub cannot listen on; `remedy` says how to choose another.
pub(crate) fn cannot_listen(address: &dyn fmt::Display, error: &io::Error, remedy: &str) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen on {address}: the address is in use, perhaps by another hub; stop it, or choose another \
             port with {remedy}"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; choose another address with {remedy}"),
    }
}

/// Pause before the next accept when the system refuses one (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Idle time after which the system sends TCP keep-alive probes. The system's own settings then decide when a
/// vanished peer is given up, for example one that follows a silent stream.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Interval of HTTP/2 pings, and the timeout for their acknowledgement.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// Maximum size of a header list over HTTP/2: enough for tokens and traces, and a bound on the memory that
/// many streams can claim.
const HEADER_BYTES: u32 = 32 * 1024;
/// Maximum buffer of an HTTP/1 connection in either direction. A request line with its headers has to fit.
const BUFFER_BYTES: usize = 64 * 1024;

/// A listening socket with everything that happens to a connection before the routes.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) names: HostNames,
    pub(crate) connections: Connections,
}

/// A listener in shutdown: still accepts, so that new callers are told why, until it is closed.
pub(crate) struct DrainingListener {
    closing: watch::Sender<()>,
    accepting: AbortOnDropHandle<Infallible>,
}

impl DrainingListener {
    /// Stops accepting, asks the open connections to close, and waits for them; false if some did not close
    /// in time.
    pub(crate) async fn close(self, grace: Duration) -> bool {
        self.accepting.abort();
        // Until the task has ended, one more connection may be accepted.
        let _ = self.accepting.await;
        // An error means that no connection is left.
        let _ = self.closing.send(());
        tokio::time::timeout(grace, self.closing.closed()).await.is_ok()
    }
}

impl Listener {
    /// Serves until `shutdown` completes, and then until the returned value is closed: a draining hub still
    /// answers.
    pub(crate) async fn serve<S: Answers>(
        self,
        service: S,
        shutdown: impl Future<Output = ()>,
    ) -> DrainingListener {
        let (closing, _) = watch::channel(());
        let accepting = AbortOnDropHandle::new(tokio::spawn(self.accept_all(service, closing.clone())));
        shutdown.await;
        DrainingListener { closing, accepting }
    }

    async fn accept_all<S: Answers>(self, service: S, closing: watch::Sender<()>) -> Infallible {
        let Self { socket, certificates, names, connections } = self;
        let room = Arc::new(Semaphore::new(connections.max.min(Semaphore::MAX_PERMITS)));
        let addresses = Addresses::new(connections.max_per_address, names.proxies.clone());
        let edge = Arc::new(Edge {
            engine: engine(&connections),
            certificates: certificates.clone(),
            names: Arc::new(names),
            connections,
            service,
        });
        let reloading = async {
            match &certificates {
                Some(certificates) => certificates.watch().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(reloading);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&socket, &room) => accepted,
                () = &mut reloading => continue,
            };
            let Some((stream, peer, permit)) = accepted else { continue };
            let Some(counted) = addresses.admit(peer.ip()) else {
                tracing::debug!(%peer, "a connection was closed: its address has reached its limit of connections");
                continue;
            };
            let (edge, closing) = (Arc::clone(&edge), closing.subscribe());
            tokio::spawn(async move {
                edge.serve(stream, peer, closing).await;
                drop((permit, counted));
            });
        }
    }
}

type Accepted = (TcpStream, SocketAddr, OwnedSemaphorePermit);

/// The next connection, once there is a permit for it; `None` if the system refused.
async fn accept(socket: &TcpListener, room: &Arc<Semaphore>) -> Option<Accepted> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, peer)) => {
            // Events are small and must leave at once.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY was refused");
            }
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
            if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
                tracing::debug!(%error, "SO_KEEPALIVE was refused");
            }
            Some((stream, peer, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn engine(connections: &Connections) -> auto::Builder<TokioExecutor> {
    let mut engine = auto::Builder::new(TokioExecutor::new());
    // No header timeout: see `idle`.
    engine
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .keep_alive(true)
        .max_buf_size(BUFFER_BYTES);
    engine
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(PING))
        .keep_alive_timeout(PONG)
        .max_concurrent_streams(Some(connections.max_streams))
        .max_header_list_size(HEADER_BYTES);
    engine
}

/// A service that answers requests. It is always ready.
pub(crate) trait Answers:
    tower::Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Unpin + Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Answers for S where
    S: tower::Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Unpin + Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The state shared by all connections.
struct Edge<S> {
    engine: auto::Builder<TokioExecutor>,
    certificates: Option<Certificates>,
    names: Arc<HostNames>,
    connections: Connections,
    service: S,
}

impl<S: Answers> Edge<S> {
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, mut closing: watch::Receiver<()>) {
        let stream = tokio::select! {
            stream = self.secure(stream, peer) => stream,
            _ = closing.changed() => return,
        };
        let Some(stream) = stream else { return };
        let activity = Arc::new(Activity::default());
        let check = HostCheck::new(self.service.clone(), Arc::clone(&self.names), peer.ip());
        let service = idle::CountedService::new(check, Arc::clone(&activity));
        let io = TokioIo::new(stream::CountedStream::new(stream, Arc::clone(&activity)));
        let connection = self.engine.serve_connection(io, service);

        let mut watch = IdleWatch::new(self.connections, Instant::now());
        let look = tokio::time::sleep(watch.interval());
        let closed = closing.changed();
        tokio::pin!(connection, look, closed);
        let mut is_told = false;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "a connection ended with an error");
                    }
                    return;
                }
                _ = &mut closed, if !is_told => {
                    is_told = true;
                    watch.closing(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut look => {
                    let now = Instant::now();
                    match watch.look(&activity, now) {
                        Verdict::Keep => {}
                        Verdict::Close => connection.as_mut().graceful_shutdown(),
                        Verdict::Cut => {
                            tracing::debug!(%peer, "a connection without progress was cut");
                            return;
                        }
                    }
                    look.as_mut().reset(now + watch.interval());
                }
            }
        }
    }

    /// The stream for HTTP: plain, or after the TLS handshake; `None` if that failed.
    async fn secure(&self, stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
        let Some(certificates) = &self.certificates else { return Some(Stream::Plain(stream)) };
        let handshake = certificates.accept(stream);
        match tokio::time::timeout(self.connections.head_timeout, handshake).await {
            Ok(Ok(stream)) => stream.map(|stream| Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!(%peer, "a TLS handshake took too long");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_told_to_be_prompt_and_watchful() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let caller = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
        let (stream, peer, _permit) = accept(&socket, &Arc::new(Semaphore::new(1))).await.unwrap();
        assert_eq!(peer, caller.local_addr().unwrap());
        assert!(stream.nodelay().unwrap());
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }
}
