//! The HTTP client that webhooks need, as a trait.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use url::Url;

use crate::store::FailureCause;

/// Sends notifications, or refuses an address at once.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Checks the text of a URL against the rules for outgoing requests. The error is a message for the
    /// caller.
    ///
    /// # Errors
    /// The reason for the refusal.
    fn check(&self, url: &Url) -> Result<(), String>;

    /// Posts, with `deadline` as the timeout.
    ///
    /// # Errors
    /// There was no response.
    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<ReceiverResponse, Failure>;

    /// Posts to a receiver that answers in the body of its response, which may have `max_body` bytes.
    ///
    /// # Errors
    /// There was no response, or not all of it. Without an implementation nothing is sent.
    async fn ask(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
        max_body: usize,
    ) -> Result<ReceiverAnswer, Failure> {
        let _ = (url, headers, body, deadline, max_body);
        Err(Failure::Blocked("this courier reads no answers".into()))
    }
}

/// The response of a receiver that answers in its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiverAnswer {
    /// The status; its excerpt is fit for logs.
    pub response: ReceiverResponse,
    /// The whole body.
    pub body: Bytes,
}

/// The response of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiverResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The pause that the receiver asks for (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// The beginning of the response body.
    pub excerpt: String,
}

/// The reason for a missing response, as a message without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The address is not allowed.
    Blocked(Arc<str>),
    /// The request failed; it may succeed later.
    Failed(FailureCause, Arc<str>),
}
