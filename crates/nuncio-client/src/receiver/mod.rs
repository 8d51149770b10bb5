//! The other end of a webhook: notifications on the way in, proven, told apart, and typed.
//!
//! Reading order: this file is the way of one notification; `builder` has the options, `head` reads headers,
//! `proof` checks who sent it (`jwks` has the keys), `payload` reads what it says, `seen` knows what has
//! been handed over before, `rejected` is every reason to refuse.

mod builder;
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

use self::{builder::Expects, head::Head, proof::Proofs, seen::Seen};
pub use self::{
    builder::ReceiverBuilder, payload::decode as read_body, proof::Proof, rejected::Rejected, seen::Receipt,
};

/// Receives notifications: checks who sent them, leaves out those that came before, and hands over what they
/// say as types. It opens no socket: any HTTP server can be in front of it.
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
/// Every kind of proof that is configured must hold; of one kind (two secrets, while one replaces the other)
/// any does. At least one is needed, or [`ReceiverBuilder::insecure_accept_all`].
///
/// Senders repeat what was not answered in time, so the same delivery may come twice. It is handed over once,
/// as long as its id is remembered; who shows another token has ids of its own. Notifications without an id, which
/// most SDKs send, are not told apart: two equal bodies may well be two events.
pub struct Receiver {
    proofs: Proofs,
    expects: Expects,
    seen: Arc<Seen>,
    max_body: usize,
}

/// A notification that was verified.
#[derive(Clone, PartialEq, Debug)]
pub struct Notification {
    /// The id of the delivery, the same for every attempt; `None` if the sender gives none.
    pub id: Option<String>,
    /// The number of this attempt, as the sender says.
    pub attempt: Option<u32>,
    /// The moment of this attempt, in Unix seconds, as the sender says. Proven by a secret only.
    pub timestamp: Option<i64>,
    /// The version of the body.
    pub version: Version,
    /// The event. In v0.3 it is mostly the whole task as it is now.
    pub event: Event,
    /// The proof of its sender.
    pub proofs: Vec<Proof>,
}

/// A notification to be handled.
#[derive(Debug)]
pub struct Accepted {
    /// The notification.
    pub notification: Notification,
    /// To be [done](Receipt::done) when it has been handled. Dropped, the same delivery is accepted again.
    pub receipt: Receipt,
}

impl Receiver {
    /// A receiver with options.
    pub fn builder() -> ReceiverBuilder {
        ReceiverBuilder::default()
    }

    /// The largest body that is accepted: the server in front should read no more.
    #[must_use]
    pub fn max_body(&self) -> usize {
        self.max_body
    }

    /// Looks at a request. What comes of it is to be answered 2xx once it has been handled, and the receipt
    /// be done; if it cannot be handled, any 5xx makes the sender try again.
    ///
    /// # Errors
    /// It is not to be handled; the error says what to answer.
    pub async fn accept(&self, headers: &HeaderMap, body: &[u8]) -> Result<Accepted, Rejected> {
        self.accept_at(headers, body, Timestamp::now().as_second()).await
    }

    /// Looks at a request, lets `handler` handle what it brings, and says what to answer: 204, what a refusal
    /// says, or 500 if the handler failed, after which the sender tries again. Reasons go to the log.
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

    /// [`Self::accept`] at another moment than now. Cheap checks come first, and nothing is read of the body
    /// before its sender is known.
    async fn accept_at(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Accepted, Rejected> {
        if body.len() > self.max_body {
            return Err(Rejected::TooLarge { limit: self.max_body });
        }
        let head = Head::read(headers)?;
        let (proofs, sender) = self.proofs.check(headers, &head, body, now).await?;
        let (version, event) = payload::decode(body, head.version)?;
        self.expects.check(event.task_id())?;
        let receipt = self.seen.claim(sender, head.id)?;
        let Head { id, attempt, timestamp, version: _ } = head;
        let notification =
            Notification { id: id.map(str::to_owned), attempt, timestamp, version, event, proofs };
        Ok(Accepted { notification, receipt })
    }
}

impl Expects {
    /// REQ-171.
    fn check(&self, task: Option<&TaskId>) -> Result<(), Rejected> {
        if task.map_or(self.is_empty(), |task| self.contains(task)) {
            return Ok(());
        }
        // It goes to logs, and may be as long as a body.
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
