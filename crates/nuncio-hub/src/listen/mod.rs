//! The network edge: from a socket to an HTTP request, and when a connection ends.
//!
//! Reading order follows the bytes: this file accepts, `tls` makes the connection secure, `stream` is
//! what is read and written, `host`, `forwarded` and `local` look at the names in a request, `addresses` counts
//! connections by address, and `idle` ends what goes nowhere.

mod tls;

mod stream;

mod host;

mod forwarded;

mod local;

mod addresses;

mod idle;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

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

pub(crate) use self::host::{Names, Peer};
pub use self::tls::{Certificates, Reload};
use self::{
    addresses::Addresses,
    host::HostCheck,
    idle::{Pulse, Verdict, Watch},
    stream::Stream,
};
use crate::config::Connections;

/// How long to wait before accepting again when the system refuses (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// After how long of silence the system asks whether a peer is still there. Its own rhythm then decides
/// when a peer that is gone is given up, such as that of a stream with nothing to say.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How often a connection of HTTP/2 is asked whether it is still there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// The most bytes of headers with HTTP/2; enough for tokens and traces, and a bound for what many
/// streams can make us keep.
const HEADER_BYTES: u32 = 32 * 1024;
/// The most bytes that are kept of a connection of HTTP/1, either way. A head has to fit, with its line.
const BUFFER_BYTES: usize = 64 * 1024;

/// Where connections come in, and all that is done for them before the routes.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) names: Names,
    pub(crate) connections: Connections,
}

/// What is left of a listener that is to end: connections, and whoever comes to hear why there is no more.
pub(crate) struct Open {
    closing: watch::Sender<()>,
    accepting: AbortOnDropHandle<Infallible>,
}

impl Open {
    /// Takes no more connections, tells those that there are to close, and waits until they have; false if some did
    /// not in time.
    pub(crate) async fn close(self, grace: Duration) -> bool {
        self.accepting.abort();
        // Until it has gone, one more may come.
        let _ = self.accepting.await;
        // Who opened last may have gone already.
        let _ = self.closing.send(());
        tokio::time::timeout(grace, self.closing.closed()).await.is_ok()
    }
}

impl Listener {
    /// Serves until `shutdown` is done, and then until what it gives is closed: a hub that drains says so.
    pub(crate) async fn serve<S: Answers>(self, service: S, shutdown: impl Future<Output = ()>) -> Open {
        let (closing, _) = watch::channel(());
        let accepting = AbortOnDropHandle::new(tokio::spawn(self.accept_all(service, closing.clone())));
        shutdown.await;
        Open { closing, accepting }
    }

    async fn accept_all<S: Answers>(self, service: S, closing: watch::Sender<()>) -> Infallible {
        let Self { socket, certificates, names, connections } = self;
        let room = Arc::new(Semaphore::new(connections.most.min(Semaphore::MAX_PERMITS)));
        let addresses = Addresses::new(connections.most_per_address, names.proxies.clone());
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
                tracing::debug!(%peer, "a connection was closed: its address has as many as it may");
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

/// The next connection when there is room for it; `None` if the system refused.
async fn accept(socket: &TcpListener, room: &Arc<Semaphore>) -> Option<Accepted> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, peer)) => {
            // Events are small and must go out at once.
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
    // Why there is no timeout for heads: see `idle`.
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
        .max_concurrent_streams(Some(connections.streams))
        .max_header_list_size(HEADER_BYTES);
    engine
}

/// What answers requests. It is always ready.
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

/// What every connection needs.
struct Edge<S> {
    engine: auto::Builder<TokioExecutor>,
    certificates: Option<Certificates>,
    names: Arc<Names>,
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
        let pulse = Arc::new(Pulse::default());
        let check = HostCheck::new(self.service.clone(), Arc::clone(&self.names), peer.ip());
        let service = idle::Counted::new(check, Arc::clone(&pulse));
        let io = TokioIo::new(stream::Counted::new(stream, Arc::clone(&pulse)));
        let connection = self.engine.serve_connection(io, service);

        let mut watch = Watch::new(self.connections, Instant::now());
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
                    match watch.look(&pulse, now) {
                        Verdict::Keep => {}
                        Verdict::Close => connection.as_mut().graceful_shutdown(),
                        Verdict::Cut => {
                            tracing::debug!(%peer, "a connection that went nowhere was cut");
                            return;
                        }
                    }
                    look.as_mut().reset(now + watch.interval());
                }
            }
        }
    }

    /// The stream to speak HTTP on, if there is one.
    async fn secure(&self, stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
        let Some(certificates) = &self.certificates else { return Some(Stream::Plain(stream)) };
        let handshake = certificates.accept(stream);
        match tokio::time::timeout(self.connections.head_timeout, handshake).await {
            Ok(Ok(stream)) => stream.map(|stream| Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a handshake of TLS failed");
                None
            }
            Err(_) => {
                tracing::debug!(%peer, "a handshake of TLS took too long");
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
