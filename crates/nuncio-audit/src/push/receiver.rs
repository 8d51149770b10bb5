//! A receiver of webhooks on this machine. It refuses the first notification of each webhook, to see whether
//! the agent sends it again.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::Notify,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use url::Url;

use crate::options::PushOptions;

/// The limits of a notification.
const MAX_BYTES: usize = 1 << 20;
/// The longest time of a connection.
const MAX_CONNECTION: Duration = Duration::from_secs(60);

/// A notification.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Notifications by the path of their webhook.
    arrived: Mutex<BTreeMap<String, Vec<Delivery>>>,
    news: Notify,
}

/// The receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    base: Url,
    inbox: Arc<Inbox>,
    number: AtomicU32,
    serving: JoinHandle<()>,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub(crate) async fn start(options: &PushOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address: SocketAddr = listener.local_addr()?;
        let own = Url::parse(&format!("http://{address}/")).map_err(io::Error::other)?;
        let inbox = Arc::new(Inbox::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&inbox)));
        Ok(Self { base: options.url.clone().unwrap_or(own), inbox, number: AtomicU32::new(0), serving })
    }

    /// The address of a new webhook.
    pub(crate) fn url(&self) -> Url {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut url = self.base.clone();
        url.set_path(&format!("{}/audit/{number}", self.base.path().trim_end_matches('/')));
        url
    }

    /// The notifications of a webhook, once they are enough, or at this time.
    pub(crate) async fn collect(
        &self,
        url: &Url,
        by: Instant,
        are_enough: impl Fn(&[Delivery]) -> bool,
    ) -> Vec<Delivery> {
        loop {
            let news = self.inbox.news.notified();
            let arrived = self.inbox.lock().get(url.path()).cloned().unwrap_or_default();
            if are_enough(&arrived) || timeout_at(by, news).await.is_err() {
                return arrived;
            }
        }
    }
}

/// True if the notification that the receiver had answered with 503 was sent again.
pub(crate) fn is_repeated(deliveries: &[Delivery]) -> bool {
    deliveries
        .split_first()
        .is_some_and(|(first, later)| later.iter().any(|delivery| delivery.body == first.body))
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Inbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Delivery>>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a notification and returns the status of its answer: the first of each webhook is refused.
    fn take(&self, path: &str, headers: BTreeMap<String, String>, body: Bytes) -> StatusCode {
        let status = {
            let mut arrived = self.lock();
            let deliveries = arrived.entry(path.to_owned()).or_default();
            let is_first = deliveries.is_empty();
            let status = if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            deliveries.push(Delivery { headers, body });
            status
        };
        self.news.notify_waiters();
        status
    }
}

async fn serve(listener: TcpListener, inbox: Arc<Inbox>) {
    while let Ok((stream, _)) = listener.accept().await {
        let inbox = Arc::clone(&inbox);
        tokio::spawn(async move {
            let handler = service_fn(|request| answer(request, &inbox));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), handler);
            // A connection that breaks has delivered nothing.
            let _ = timeout(MAX_CONNECTION, connection).await;
        });
    }
}

async fn answer(request: Request<Incoming>, inbox: &Inbox) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or("?").to_owned();
    let headers =
        request.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), MAX_BYTES).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::new(Full::default());
    *response.status_mut() = inbox.take(&path, headers, body);
    Ok(response)
}
