//! A worker of a mailbox: an agent without an address. It asks a hub for work over outbound requests only, and writes
//! the outcome back line by line.
//!
//! ```no_run
//! use nuncio_client::worker::{Line, Worker};
//!
//! # async fn run(key: String) -> Result<(), nuncio_client::worker::WorkerError> {
//! let worker = Worker::builder("https://agents.example.com", "coder").key(key).build()?;
//! loop {
//!     let lease = worker.next().await?;
//!     lease.write(Line::text(format!("you said: {}", lease.claim().message.text())));
//!     lease.finish(Line::completed("")).await?;
//! }
//! # }
//! ```
//!
//! A lease is the right to work on one turn of a task. While [`Lease`] lives, its heartbeat prolongs the lease, and its
//! lines are sent in order, each with its number: after a broken connection, and after a restart of the hub, the hub
//! says how many lines it has, and the rest is sent again. A lease that expired or was taken over is lost
//! ([`Lease::lost`]): the hub takes no line of it any more.
//!
//! Reading order: this file (claims), `claim` (the work), `lease` (lines and heartbeat), `line` (the forms of a line),
//! `outbox` (numbering, pure), `wire` (requests and answers), `register` (a mailbox by invitation), `access` (consent by the agent).

mod access;
mod claim;
mod lease;
mod line;
mod outbox;
mod register;
mod wire;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use nuncio_protocol::{AgentCard, Error, ErrorKind, retry::Backoff};
use parking_lot::Mutex;
use url::Url;
use uuid::Uuid;

use self::wire::{Call, Mailbox};
pub use self::{
    access::{AgentCaller, CallerDecision},
    claim::Claim,
    lease::Lease,
    line::Line,
    register::{Registration, register, register_webhook},
    wire::{Release, WorkerError},
};
use crate::{Egress, auth::secret::Secret};

/// The time that [`Worker::next`] lets the hub wait for work, within the limit that proxies leave a request.
const CLAIM_WAIT: Duration = Duration::from_secs(50);

/// Pauses between attempts while the hub cannot be reached.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30));

/// The name of a worker that gives none.
const DEFAULT_NAME: &str = "worker";

/// Builds a [`Worker`].
#[derive(Debug)]
#[must_use]
pub struct WorkerBuilder {
    hub: String,
    mailbox: String,
    key: Option<Secret>,
    name: String,
    take_over: bool,
    egress: Option<Egress>,
}

impl WorkerBuilder {
    /// The key of the mailbox. Without one the hub must admit callers on its own machine.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(Secret::new(key));
        self
    }

    /// The name of this worker, which operators see: letters, digits and `._@:-`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Ends the leases that an earlier worker of this name still holds, with the first claim. For a worker that was
    /// killed and comes back before its leases expire.
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.take_over = take_over;
        self
    }

    /// Connects by this egress. Default: [`Egress::operator`].
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Builds the worker. Nothing is sent yet.
    ///
    /// # Errors
    /// `Invalid` if the address of the hub is not one of HTTP.
    pub fn build(self) -> Result<Worker, WorkerError> {
        let url = below(&self.hub, &["mailboxes", &self.mailbox])?;
        let egress = match self.egress {
            Some(egress) => egress,
            None => Egress::operator().map_err(|error| WorkerError::Invalid(error.to_string()))?,
        };
        let mailbox = Mailbox { url, key: self.key, name: self.name, egress };
        Ok(Worker {
            mailbox: Arc::new(mailbox),
            claim_key: Arc::new(Mutex::new(new_key())),
            take_over: Arc::new(AtomicBool::new(self.take_over)),
        })
    }
}

/// A worker of one mailbox of a hub. Cheap to clone; clones claim one after the other.
#[derive(Clone, Debug)]
pub struct Worker {
    mailbox: Arc<Mailbox>,
    /// The key of the claim that is under way: a repeat under it gets the same lease.
    claim_key: Arc<Mutex<String>>,
    /// The next claim ends the leases of an earlier worker of this name.
    take_over: Arc<AtomicBool>,
}

impl Worker {
    /// Starts a builder for a worker of this mailbox.
    pub fn builder(hub: impl Into<String>, mailbox: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            hub: hub.into(),
            mailbox: mailbox.into(),
            key: None,
            name: DEFAULT_NAME.to_owned(),
            take_over: false,
            egress: None,
        }
    }

    /// Waits for work. While the hub cannot be reached, it asks again with growing pauses.
    ///
    /// # Errors
    /// The hub refuses the worker, for example because of a wrong key.
    pub async fn next(&self) -> Result<Lease, WorkerError> {
        let mut failures = 0;
        loop {
            match self.claim(CLAIM_WAIT).await {
                Ok(Some(lease)) => return Ok(lease),
                Ok(None) => failures = 0,
                Err(error) if error.is_temporary() => {
                    tokio::time::sleep(error.pause(failures)).await;
                    failures = failures.saturating_add(1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Claims work; `None` if there is none for so long. If no answer arrives, the next claim asks for the same lease.
    ///
    /// # Errors
    /// The hub cannot be reached ([`WorkerError::is_temporary`]), or refuses the worker.
    pub async fn claim(&self, wait: Duration) -> Result<Option<Lease>, WorkerError> {
        let key = self.claim_key.lock().clone();
        let take_over = self.take_over.load(Ordering::Relaxed);
        let claim = self.mailbox.claim(&key, wait, take_over).await?;
        *self.claim_key.lock() = new_key();
        self.take_over.store(false, Ordering::Relaxed);
        Ok(claim.map(|claim| Lease::begin(&self.mailbox, claim)))
    }

    /// Hands back the lease of a claim whose answer was not awaited, if there is one.
    ///
    /// # Errors
    /// The hub cannot be reached; the lease expires by itself.
    pub async fn abandon_claim(&self) -> Result<(), WorkerError> {
        match self.claim(Duration::ZERO).await? {
            Some(lease) => match lease.release().await? {
                Release::Released | Release::Begun => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Publishes the card that callers of the mailbox see.
    ///
    /// # Errors
    /// The hub cannot be reached, or refuses the card.
    pub async fn put_card(&self, card: &AgentCard) -> Result<(), WorkerError> {
        let body = serde_json::to_vec(card).map_err(|error| WorkerError::Invalid(error.to_string()))?;
        let mut call = Call::new(Method::PUT, "/card");
        call.content_type = Some("application/json");
        self.mailbox.call(call, body.into()).await.map(drop)
    }
}

/// An address below that of a hub.
fn below(hub: &str, path: &[&str]) -> Result<Url, WorkerError> {
    let invalid = |why: &str| WorkerError::Invalid(format!("{}: {why}", crate::egress::shown_text(hub)));
    let mut url = Url::parse(hub).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("expected http:// or https://"));
    }
    url.path_segments_mut().map_err(|()| invalid("expected a host"))?.pop_if_empty().extend(path);
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// A key that no other claim has.
fn new_key() -> String {
    Uuid::now_v7().to_string()
}

impl From<WorkerError> for Error {
    fn from(error: WorkerError) -> Self {
        let kind = match &error {
            WorkerError::Invalid(_) => ErrorKind::InvalidParams,
            WorkerError::Unauthorized(_) => ErrorKind::Unauthenticated,
            WorkerError::Lost(_) | WorkerError::Refused { .. } => ErrorKind::UnsupportedOperation,
            WorkerError::Unavailable { .. } => ErrorKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}
