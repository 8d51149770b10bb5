//! The receiver of a webhook: notifications are authenticated, deduplicated and decoded.
//!
//! Reading order: this file has the path of one notification; `builder` the options; `head` reads headers,
//! `proof` authenticates the sender (`jwks` has the keys), `payload` decodes the body, `seen` detects
//! duplicates, `rejected` has every reason to refuse; `delivery` is a message for an agent that has only a webhook, with
//! its answers.
//!
//! **Invariant:** the body is not parsed before its sender is authenticated, and a delivery counts as seen
//! only after it was handled.

mod builder;
mod delivery;
mod head;
mod jwks;
mod payload;
mod proof;
mod rejected;
mod seen;

use std::{fmt, sync::Arc};

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use nuncio_protocol::{Event, TaskId, Version, wire::excerpt};

use self::{builder::Expects, head::NotificationHead, proof::Proofs, seen::SeenDeliveries};
pub use self::{
    builder::ReceiverBuilder, delivery::Delivery, payload::decode as read_body, proof::Proof,
    rejected::Rejected, seen::Receipt,
};

/// Receives notifications: authenticates the sender, drops duplicates, and decodes the event. It opens no
/// socket, so any HTTP server can be in front of it.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use nuncio_client::Receiver;
///
/// # async fn example() -> nuncio_client::protocol::Result<()> {
/// let receiver = Receiver::builder()
///     .token("the token of the push configuration")
///     .task("the task that was begun")
///     .build()?;
///
/// // In the handler of `POST /hook`, with the headers and the body as they came:
/// # let (headers, body) = (HeaderMap::new(), Vec::new());
/// let answer: StatusCode = receiver
///     .accept_with(&headers, &body, |notification| async move {
///         println!("{:?}", notification.event);
///         Ok::<_, std::io::Error>(())
///     })
///     .await;
/// # Ok(())
/// # }
/// ```
///
/// Every configured kind of proof is required; within a kind (two secrets, while one replaces the other)
/// one match is enough. At least one proof is required, or [`ReceiverBuilder::insecure_accept_all`].
///
/// Senders repeat unanswered deliveries, so the same delivery may arrive twice. It is handled once, as long
/// as its id is remembered; senders with different tokens have separate ids. Notifications without an id,
/// which most SDKs send, are not deduplicated: two equal bodies may be two events.
pub struct Receiver {
    proofs: Proofs,
    expects: Expects,
    seen: Arc<SeenDeliveries>,
    max_body: usize,
}

/// A verified notification.
#[derive(Clone, PartialEq, Debug)]
pub struct Notification {
    /// The id of the delivery, the same for every attempt; `None` if the sender gives none.
    pub id: Option<String>,
    /// The number of this attempt, as the sender states it.
    pub attempt: Option<u32>,
    /// The time of this attempt, in Unix seconds, as the sender states it. Only a secret proves it.
    pub timestamp: Option<i64>,
    /// The version of the body.
    pub version: Version,
    /// The event. In v0.3 it is usually the whole current task.
    pub event: Event,
    /// The verified proofs of its sender.
    pub proofs: Vec<Proof>,
}

/// A notification to be handled.
#[derive(Debug)]
pub struct Accepted {
    /// The notification.
    pub notification: Notification,
    /// Call [`done`](Receipt::done) after handling. If it is dropped, the same delivery is accepted again.
    pub receipt: Receipt,
}

impl Receiver {
    /// A builder with the options.
    pub fn builder() -> ReceiverBuilder {
        ReceiverBuilder::default()
    }

    /// The maximum size of a body: the server in front should read no more.
    #[must_use]
    pub fn max_body(&self) -> usize {
        self.max_body
    }

    /// Checks a request. After the notification was handled, call [`done`](Receipt::done) on the receipt
    /// and answer 2xx; if it cannot be handled, any 5xx makes the sender retry.
    ///
    /// # Errors
    /// The notification is not to be handled; the error has the status to answer.
    pub async fn accept(&self, headers: &HeaderMap, body: &[u8]) -> Result<Accepted, Rejected> {
        self.accept_at(headers, body, Timestamp::now().as_second()).await
    }

    /// Checks a request, calls `handler`, and returns the status to answer: 204, the status of a rejection,
    /// or 500 if the handler failed, so that the sender retries. Reasons are logged.
    pub async fn accept_with<F, Fut, E>(&self, headers: &HeaderMap, body: &[u8], handler: F) -> StatusCode
    where
        F: FnOnce(Notification) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let Accepted { notification, receipt } = match self.accept(headers, body).await {
            Ok(accepted) => accepted,
            Err(rejected) => {
                tracing::info!(status = rejected.status().as_u16(), reason = %rejected, "a notification is not handled");
                return rejected.status();
            }
        };
        match handler(notification).await {
            Ok(()) => {
                receipt.done();
                StatusCode::NO_CONTENT
            }
            Err(error) => {
                tracing::warn!(%error, "a notification could not be handled");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Like [`Self::accept`], at the given time. Cheap checks come first, and the body is not parsed before
    /// its sender is authenticated.
    async fn accept_at(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Accepted, Rejected> {
        if body.len() > self.max_body {
            return Err(Rejected::TooLarge { limit: self.max_body });
        }
        let head = NotificationHead::read(headers)?;
        let (proofs, sender) = self.proofs.check(headers, &head, body, now).await?;
        let (version, event) = payload::decode(body, head.version)?;
        self.expects.check(event.task_id())?;
        let receipt = self.seen.claim(sender, head.id)?;
        let NotificationHead { id, attempt, timestamp, version: _ } = head;
        let notification =
            Notification { id: id.map(str::to_owned), attempt, timestamp, version, event, proofs };
        Ok(Accepted { notification, receipt })
    }
}

impl Expects {
    /// Checks that the task is expected (REQ-171).
    fn check(&self, task: Option<&TaskId>) -> Result<(), Rejected> {
        if task.map_or(self.is_empty(), |task| self.contains(task)) {
            return Ok(());
        }
        // Shortened: it is logged, and may be as long as a body.
        Err(Rejected::Unexpected(task.map(|task| excerpt(task.to_string()).into()).unwrap_or_default()))
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("proofs", &self.proofs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
