//! Connections for requests that are handed on: HTTP/1.1, and driven by whoever waits for the answer.
//!
//! A connection that is a task of its own costs two wake-ups per request, often of another thread, which is
//! more than everything else that a relay does. Here whoever waits for an answer moves the connection along;
//! while nobody waits it rests, and whether it is still good is seen when it is taken up again.

use std::{
    collections::HashMap,
    future::{Future as _, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use super::{CONNECT_TIMEOUT, TCP_KEEPALIVE};

/// How many connections rest per host, and for how long. Servers close theirs after some seconds, too.
const MAX_RESTING: usize = 128;
const RESTS: Duration = Duration::from_secs(55);

type Socket = TokioIo<Either<TcpStream, Box<TlsStream<TcpStream>>>>;

/// All connections of a way out.
pub(super) struct Lanes {
    tls: Arc<ClientConfig>,
    /// By scheme and authority, the one that was used last at the end.
    resting: Mutex<HashMap<Host, Vec<(Instant, Lane)>>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Host {
    pub(super) secure: bool,
    pub(super) authority: Authority,
}

/// One connection.
pub(super) struct Lane {
    sender: SendRequest<Full<Bytes>>,
    /// `None` when it has ended.
    driver: Option<Connection<Socket, Full<Bytes>>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] io::Error),
    /// There was one.
    #[error(transparent)]
    Broke(#[from] hyper::Error),
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("hosts", &self.resting().len()).finish_non_exhaustive()
    }
}

impl Lanes {
    pub(super) fn new(tls: &ClientConfig) -> Self {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls: Arc::new(tls), resting: Mutex::default() }
    }

    fn resting(&self) -> MutexGuard<'_, HashMap<Host, Vec<(Instant, Lane)>>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request and returns as soon as the head of the answer is there. A connection that rested and is
    /// found to be gone before anything was written is no failure.
    pub(super) async fn exchange(
        &self,
        host: &Host,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lane), Fault> {
        while let Some(mut lane) = self.take(host) {
            match lane.exchange(request).await {
                Ok(response) => return Ok((response, lane)),
                Err((_, Some(unsent))) => request = *unsent,
                Err((error, None)) => return Err(error.into()),
            }
        }
        let mut lane = self.connect(host).await?;
        match lane.exchange(request).await {
            Ok(response) => Ok((response, lane)),
            Err((error, _)) => Err(error.into()),
        }
    }

    /// A connection that rests and seems to be good.
    fn take(&self, host: &Host) -> Option<Lane> {
        let mut resting = self.resting();
        let lanes = resting.get_mut(host)?;
        while let Some((since, mut lane)) = lanes.pop() {
            if since.elapsed() < RESTS && lane.is_good() {
                return Some(lane);
            }
        }
        None
    }

    /// Lets a connection rest, if it is good for more.
    pub(super) fn rest(&self, host: &Host, mut lane: Lane) {
        // Polled once more, it notices that the answer is over.
        if !lane.is_good() {
            return;
        }
        let (now, mut resting) = (Instant::now(), self.resting());
        let lanes = match resting.get_mut(host) {
            Some(lanes) => lanes,
            None => resting.entry(host.clone()).or_default(),
        };
        let stale = lanes.iter().take_while(|(since, _)| now - *since >= RESTS).count();
        lanes.drain(..stale);
        if lanes.len() < MAX_RESTING {
            lanes.push((now, lane));
        }
    }

    async fn connect(&self, host: &Host) -> Result<Lane, Fault> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within the time for it");
        let socket = timeout(CONNECT_TIMEOUT, self.dial(host)).await.map_err(late)??;
        let (sender, driver) = http1::handshake(TokioIo::new(socket)).await?;
        Ok(Lane { sender, driver: Some(driver) })
    }

    async fn dial(&self, host: &Host) -> io::Result<Either<TcpStream, Box<TlsStream<TcpStream>>>> {
        let name = host.authority.host();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let port = host.authority.port_u16().unwrap_or(if host.secure { 443 } else { 80 });
        let socket = TcpStream::connect((bare, port)).await?;
        socket.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE);
        SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
        if !host.secure {
            return Ok(Either::Left(socket));
        }
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await?;
        Ok(Either::Right(Box::new(socket)))
    }
}

impl Lane {
    /// True if it can take a request, as far as can be seen without waiting.
    fn is_good(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Moves the connection along.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(driver) = &mut self.driver else { return };
        // Why it has ended is told to whoever waits for the answer.
        if Pin::new(driver).poll(cx).is_ready() {
            self.driver = None;
        }
    }

    /// Makes a request; with the error comes the request if nothing of it was written.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Box<Request<Full<Bytes>>>>)> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let outcome = poll_fn(|cx| {
            // What the connection reads is for the answer.
            if let Some(connection) = driver
                && Pin::new(connection).poll(cx).is_ready()
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
