//! One POST to a webhook: what came back, or what went wrong, in kinds that a dispatcher can branch on.
//!
//! Nothing that the other end does costs more than the deadline and a few kilobytes: of the answer only the
//! head and the beginning of the body are read, and idle connections are counted.

use std::{collections::HashMap, fmt, net::SocketAddr, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::Response;
use tokio::time::{Instant, Sleep};
use url::Url;

use super::{Egress, IDLE_TIMEOUT, cause::Cause, guard::Refusal};
use crate::http_headers;

/// The most bytes of a body that are kept, for people who look for what went wrong.
const MAX_EXCERPT: usize = 1024;
/// With how many hosts connections are kept open. Each is kept for some seconds only, but those who name hosts
/// can name many.
const MAX_KEPT: usize = 512;

/// The answer to a POST.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Its status: any, also that of a redirect, which is not followed.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// The beginning of its body, at most one KiB, as far as it came in time.
    pub excerpt: Bytes,
    /// The address that answered.
    pub remote: Option<SocketAddr>,
}

impl Posted {
    /// The pause that the receiver asks for.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        http_headers::retry_after(&self.headers, Timestamp::now())
    }
}

/// A POST that got no answer. Its text is fit for logs: of the address it has the origin only, since paths of
/// webhooks may be secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PostError {
    /// The kind of the failure.
    pub kind: PostErrorKind,
    message: String,
}

/// The reason why a POST got no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// The guard refused the address; nothing was sent.
    Blocked(Refusal),
    /// The name has no address, or nobody could say.
    Dns,
    /// There is no connection to be had.
    Connect,
    /// The other end is not who it has to be, or does not speak TLS with us.
    Tls,
    /// The deadline has passed, or the time for making a connection.
    Timeout,
    /// The connection broke, or what came was not HTTP.
    Broke,
}

impl PostError {
    fn new(url: &Url, kind: PostErrorKind, why: impl fmt::Display) -> Self {
        let what = match kind {
            PostErrorKind::Blocked(_) => "it is not allowed to post to",
            PostErrorKind::Dns | PostErrorKind::Connect | PostErrorKind::Tls => "cannot connect to",
            PostErrorKind::Timeout | PostErrorKind::Broke => "no answer from",
        };
        let message = format!("{what} {}: {why}", url.origin().ascii_serialization());
        Self { kind, message }
    }

    fn blocked(url: &Url, refusal: Refusal) -> Self {
        let why = refusal.to_string();
        Self::new(url, PostErrorKind::Blocked(refusal), why)
    }

    fn late(url: &Url) -> Self {
        Self::new(url, PostErrorKind::Timeout, "the deadline has passed")
    }

    fn broken(url: &Url, error: &reqwest::Error) -> Self {
        let cause = Cause::of(error);
        if let Some(refusal) = cause.refusal {
            return Self::blocked(url, refusal);
        }
        let kind = if error.is_timeout() {
            PostErrorKind::Timeout
        } else if error.is_dns() {
            PostErrorKind::Dns
        } else if cause.is_tls {
            PostErrorKind::Tls
        } else if error.is_connect() {
            PostErrorKind::Connect
        } else {
            PostErrorKind::Broke
        };
        Self::new(url, kind, cause.why)
    }
}

impl Egress {
    /// Posts to a webhook. Any status is an answer; the deadline covers everything from looking up the name to
    /// reading the excerpt. Once there is a status it counts, even if the rest of the answer never comes:
    /// the receiver has spoken.
    ///
    /// # Errors
    /// There is no answer; the kind says why.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Posted, PostError> {
        self.admit(url).map_err(|refusal| PostError::blocked(url, refusal))?;
        let late = tokio::time::sleep(deadline);
        tokio::pin!(late);
        let client = match &self.guard {
            Some(guard) if !guard.kept.admits(url, deadline) => &guard.once,
            _ => self.client(url),
        };
        let request = client.post(url.clone()).headers(headers).body(body).send();
        let answer = tokio::select! {
            answer = request => answer,
            () = &mut late => return Err(PostError::late(url)),
        };
        let mut response = answer.map_err(|error| PostError::broken(url, &error.without_url()))?;
        let excerpt = excerpt(&mut response, late.as_mut()).await;
        let (status, remote) = (response.status(), response.remote_addr());
        Ok(Posted { status, headers: std::mem::take(response.headers_mut()), excerpt, remote })
    }
}

/// The beginning of a body. What remains is not read: with the response goes the connection, unless all of it
/// has come.
async fn excerpt(response: &mut Response, mut late: Pin<&mut Sleep>) -> Bytes {
    let mut excerpt = BytesMut::new();
    while excerpt.len() < MAX_EXCERPT {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk,
            () = &mut late => break,
        };
        let Ok(Some(chunk)) = chunk else { break };
        let fits = chunk.len().min(MAX_EXCERPT - excerpt.len());
        excerpt.extend_from_slice(&chunk[..fits]);
    }
    excerpt.freeze()
}

/// The hosts with which connections may be kept open, each with the time at which the last one is closed for
/// sure. The HTTP client bounds what it keeps per host, but not the number of hosts.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<HashMap<String, Instant>>);

impl Kept {
    /// True if a connection to this host may be kept after a request that ends before the deadline.
    fn admits(&self, url: &Url, deadline: Duration) -> bool {
        let now = Instant::now();
        let Some(until) = now.checked_add(deadline.saturating_add(IDLE_TIMEOUT)) else { return false };
        let origin = url.origin().ascii_serialization();
        let mut kept = self.0.lock();
        if kept.len() >= MAX_KEPT && !kept.contains_key(&origin) {
            kept.retain(|_, until| *until > now);
        }
        if kept.len() >= MAX_KEPT && !kept.contains_key(&origin) {
            return false;
        }
        let entry = kept.entry(origin).or_insert(until);
        *entry = until.max(*entry);
        true
    }
}

#[cfg(test)]
mod tests;
