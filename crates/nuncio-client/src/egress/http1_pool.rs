//! A pool of HTTP/1.1 connections for relayed requests. The task that waits for an answer drives its
//! connection.
//!
//! A connection in its own task would cost two wake-ups per request, often of another thread, which is more
//! than all other work of a relay. Here the waiting task polls the connection. Between requests the
//! connection is parked, and checked when it is taken again.

use std::{
    collections::HashMap,
    future::{Future as _, poll_fn},
    hash::{Hash, Hasher},
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Authority};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use parking_lot::{Mutex, MutexGuard};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    runtime::Handle,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use tower::ServiceExt as _;

use super::{
    CONNECT_TIMEOUT, TCP_KEEPALIVE,
    guard::{Refusal, Screen},
};

/// Limits of parked connections: number per host, and time. Servers close theirs after some seconds, too.
const MAX_IDLE_PER_HOST: usize = 128;
const MAX_IDLE_TIME: Duration = Duration::from_secs(55);

type Socket = TokioIo<Either<TcpStream, Box<TlsStream<TcpStream>>>>;

/// An outgoing request.
pub(super) type PooledRequest = Box<Request<Full<Bytes>>>;

/// All connections of an egress.
pub(super) struct Pool {
    tls: Arc<ClientConfig>,
    dialer: HttpConnector,
    /// Checks the resolved addresses.
    screen: Option<Arc<Screen>>,
    /// By scheme and authority; the most recently used one is last.
    idle: Mutex<HashMap<Host, Vec<(Instant, PooledConnection)>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) secure: bool,
    pub(super) authority: Authority,
}

impl Host {
    fn key(&self) -> (bool, &str) {
        (self.secure, self.authority.as_str())
    }
}

/// Compares the text as written: `Authority` itself compares and hashes byte by byte in lower case.
impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Host {}

impl Hash for Host {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A connection of the pool.
pub(super) struct PooledConnection {
    sender: SendRequest<Full<Bytes>>,
    /// `None` when it has ended. Boxed, because a connection is moved for each request.
    driver: Option<Box<Connection<Socket, Full<Bytes>>>>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// No connection was made.
    #[error("there is no connection")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke.
    #[error("the connection broke")]
    Broke(#[from] hyper::Error),
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("hosts", &self.idle().len()).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(tls: &ClientConfig, screen: Option<Arc<Screen>>) -> Self {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls: Arc::new(tls), dialer: dialer(), screen, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Host, Vec<(Instant, PooledConnection)>>> {
        self.idle.lock()
    }

    /// Sends a request and returns as soon as the headers of the answer have arrived. If a parked
    /// connection turns out to be closed before anything was written, another one is used.
    pub(super) async fn exchange(
        &self,
        host: &Host,
        mut request: PooledRequest,
    ) -> Result<(Response<Incoming>, PooledConnection), Fault> {
        while let Some(mut connection) = self.take(host) {
            match connection.exchange(request).await {
                Ok(response) => return Ok((response, connection)),
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(error.into()),
            }
        }
        // Boxed: it is large and seldom needed.
        let mut connection = Box::pin(self.connect(host)).await?;
        match connection.exchange(request).await {
            Ok(response) => Ok((response, connection)),
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Takes a parked connection that seems usable.
    fn take(&self, host: &Host) -> Option<PooledConnection> {
        let mut idle = self.idle();
        let connections = idle.get_mut(host)?;
        while let Some((since, mut connection)) = connections.pop() {
            if since.elapsed() < MAX_IDLE_TIME && connection.is_good() {
                return Some(connection);
            }
        }
        None
    }

    /// Parks a connection, if it can be reused.
    pub(super) fn park(self: &Arc<Self>, host: &Host, mut connection: PooledConnection) {
        // `is_good` polls the connection, which notices that the answer is complete.
        if !connection.is_good() {
            return;
        }
        // Without a tokio runtime, the connection cannot be used again.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = self.idle();
        if idle.is_empty() {
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
        let connections = match idle.get_mut(host) {
            Some(connections) => connections,
            None => idle.entry(host.clone()).or_default(),
        };
        if connections.len() < MAX_IDLE_PER_HOST {
            connections.push((Instant::now(), connection));
        }
    }

    /// Closes connections that were parked for too long; true if any are left.
    fn close_stale(&self) -> bool {
        let (now, mut idle) = (Instant::now(), self.idle());
        idle.retain(|_, connections| {
            let stale = connections.iter().take_while(|(since, _)| now - *since >= MAX_IDLE_TIME).count();
            connections.drain(..stale);
            !connections.is_empty()
        });
        !idle.is_empty()
    }

    async fn connect(&self, host: &Host) -> Result<PooledConnection, Fault> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within the time for it");
        let dialed = timeout(CONNECT_TIMEOUT, self.dial(host)).await.map_err(late);
        let socket = dialed.map_err(Into::into).and_then(|dialed| dialed).map_err(Fault::Connect)?;
        let (sender, driver) = http1::handshake(socket).await?;
        Ok(PooledConnection { sender, driver: Some(Box::new(driver)) })
    }

    async fn dial(&self, host: &Host) -> Result<Socket, Box<dyn std::error::Error + Send + Sync>> {
        let scheme = if host.secure { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(host.authority.clone()).path_and_query("/");
        let socket = self.dialer.clone().oneshot(uri.build()?).await?.into_inner();
        let name = host.authority.host();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        // An IP address in the URL was configured as such.
        if let Some(screen) = self.screen.as_ref().filter(|_| bare.parse::<IpAddr>().is_err()) {
            let refused = |kind| Refusal::Resolved { name: name.to_owned(), kind };
            screen.judge(socket.peer_addr()?.ip()).map_err(refused)?;
        }
        if !host.secure {
            return Ok(TokioIo::new(Either::Left(socket)));
        }
        let name = ServerName::try_from(bare.to_owned())?;
        let socket = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await?;
        Ok(TokioIo::new(Either::Right(Box::new(socket))))
    }
}

/// Closes connections that were parked for too long, until none is left: hosts that are not called again
/// are not checked otherwise.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(MAX_IDLE_TIME / 4).await;
        if !pool.upgrade().is_some_and(|pool| pool.close_stale()) {
            return;
        }
    }
}

/// Connects to a host, at the first address that answers.
fn dialer() -> HttpConnector {
    let mut dialer = HttpConnector::new();
    dialer.enforce_http(false);
    dialer.set_nodelay(true);
    dialer.set_keepalive(Some(TCP_KEEPALIVE));
    dialer.set_keepalive_interval(Some(TCP_KEEPALIVE));
    dialer
}

impl PooledConnection {
    /// True if the connection can take a request, as far as known without waiting.
    fn is_good(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Polls the connection.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(driver) = &mut self.driver else { return };
        // The error goes to the task that waits for the answer.
        if Pin::new(&mut **driver).poll(cx).is_ready() {
            self.driver = None;
        }
    }

    /// Sends a request; the error includes the request if nothing of it was written.
    async fn exchange(
        &mut self,
        request: PooledRequest,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<PooledRequest>)> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(*request));
        let driver = &mut self.driver;
        let outcome = poll_fn(|cx| {
            // The connection is polled first, because it reads the answer.
            if let Some(connection) = driver
                && Pin::new(&mut **connection).poll(cx).is_ready()
            {
                *driver = None;
            }
            answer.as_mut().poll(cx)
        });
        outcome.await.map_err(|mut refused| {
            let unsent = refused.take_message().map(Box::new);
            (refused.into_error(), unsent)
        })
    }
}
