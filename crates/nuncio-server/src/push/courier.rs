//! The way out of the house, as far as webhooks need it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use url::Url;

/// Carries notifications. What it does not carry, it says at once.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Refuses an address to which it would never go, as far as its text tells; says why, for the caller.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, url: &Url) -> Result<(), String>;

    /// Posts, and gives up after so long.
    ///
    /// # Errors
    /// There was no answer.
    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Answer, Failure>;
}

/// What a receiver said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// When it wants to be tried again.
    pub retry_after: Option<Duration>,
    /// The beginning of what it said.
    pub excerpt: String,
}

/// Why there was no answer, in words for people and without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// We do not go there.
    Blocked(Arc<str>),
    /// It did not work out, this time.
    Failed(Arc<str>),
}
