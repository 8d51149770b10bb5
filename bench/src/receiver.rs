//! The other end of webhooks: answers at once, or not at all.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{Router, body::Bytes, http::StatusCode};
use tokio::{net::TcpListener, sync::watch, time::sleep};

/// Time after which no further notification can arrive.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Receiver {
    address: SocketAddr,
    /// Number of answered notifications.
    answered: Arc<AtomicU64>,
    /// Answers are given.
    open: watch::Sender<bool>,
}

impl Receiver {
    /// Listens in the generator's own thread.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (open, opened) = watch::channel(true);
        let answered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&answered);
        let answer = move |_: Bytes| {
            let (counter, mut opened) = (Arc::clone(&counter), opened.clone());
            async move {
                let _ = opened.wait_for(|open| *open).await;
                counter.fetch_add(1, Ordering::Relaxed);
                StatusCode::OK
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Ok(Self { address, answered, open })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/webhook", self.address)
    }

    /// Answers from now on, waiting requests too; or lets callers wait.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many were answered; says when that was.
    pub(crate) async fn until(&self, count: u64) -> Result<Instant> {
        let begin = Instant::now();
        while self.answered() < count {
            ensure!(begin.elapsed() < DELIVERY_TIMEOUT, "{} of {count} notifications came", self.answered());
            sleep(Duration::from_millis(2)).await;
        }
        Ok(Instant::now())
    }
}
