//! One POST to a webhook. Its result is an answer or a kind of failure that a dispatcher can branch on.
//!
//! The receiver can cost no more than the deadline and a few kilobytes: only the headers and the beginning
//! of the body are read, and idle connections are limited.

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

/// Maximum number of bytes of the body that are kept, for diagnosis.
const MAX_EXCERPT: usize = 1024;
/// Maximum number of hosts with open connections. Each is kept for some seconds only, but callers can name
/// many hosts.
const MAX_OPEN_HOSTS: usize = 512;

/// The answer to a POST.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The status, including redirects, which are not followed.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The beginning of the body, at most one KiB, as far as it arrived in time.
    pub excerpt: Bytes,
    /// The IP address that answered.
    pub remote: Option<SocketAddr>,
}

impl Posted {
    /// The pause that the receiver requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        http_headers::retry_after(&self.headers, Timestamp::now())
    }
}

/// A POST without an answer. Its text is fit for logs: it has only the origin of the URL, because paths of
/// webhooks may be secret.
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
    /// The guard refused the URL; nothing was sent.
    Blocked(Refusal),
    /// The name does not resolve.
    Dns,
    /// No connection could be made.
    Connect,
    /// The TLS handshake failed, for example because of the certificate.
    Tls,
    /// The deadline has passed.
    Timeout,
    /// No connection was made in time; nothing was sent.
    ConnectTimeout,
    /// The connection broke, or the answer was not HTTP.
    Broke,
    /// The body of the answer is too large.
    TooLarge,
}

impl PostError {
    fn new(url: &Url, kind: PostErrorKind, why: impl fmt::Display) -> Self {
        let what = match kind {
            PostErrorKind::Blocked(_) => "it is not allowed to post to",
            PostErrorKind::Dns
            | PostErrorKind::Connect
            | PostErrorKind::ConnectTimeout
            | PostErrorKind::Tls => "cannot connect to",
            PostErrorKind::Timeout | PostErrorKind::Broke => "no answer from",
            PostErrorKind::TooLarge => "too large an answer from",
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
        let kind = if error.is_timeout() && error.is_connect() {
            PostErrorKind::ConnectTimeout
        } else if error.is_timeout() {
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
    /// Posts to a webhook. Any status is an answer; the deadline covers everything from the DNS lookup to
    /// the excerpt. Once the status has arrived, it is the answer, even if the body never arrives.
    ///
    /// # Errors
    /// There is no answer; the kind has the reason.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Posted, PostError> {
        let late = tokio::time::sleep(deadline);
        tokio::pin!(late);
        let mut response = self.post_and_wait(url, headers, body, deadline, late.as_mut()).await?;
        let excerpt = excerpt(&mut response, late.as_mut()).await;
        Ok(posted(response, excerpt))
    }

    /// Like [`Self::post`], with the whole body of the answer in [`Posted::excerpt`].
    ///
    /// # Errors
    /// There is no answer; or its body is larger than `max_body`, or is not complete before the deadline.
    pub async fn post_for_answer(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
        max_body: usize,
    ) -> Result<Posted, PostError> {
        let late = tokio::time::sleep(deadline);
        tokio::pin!(late);
        let mut response = self.post_and_wait(url, headers, body, deadline, late.as_mut()).await?;
        let mut whole = BytesMut::new();
        loop {
            let chunk = tokio::select! {
                chunk = response.chunk() => chunk,
                () = &mut late => return Err(PostError::late(url)),
            };
            match chunk.map_err(|error| PostError::broken(url, &error.without_url()))? {
                None => return Ok(posted(response, whole.freeze())),
                Some(chunk) if whole.len() + chunk.len() > max_body => {
                    let why = format!("its body has more than {max_body} bytes");
                    return Err(PostError::new(url, PostErrorKind::TooLarge, why));
                }
                Some(chunk) => whole.extend_from_slice(&chunk),
            }
        }
    }

    /// Posts, and waits for the head of the answer.
    async fn post_and_wait(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
        mut late: Pin<&mut Sleep>,
    ) -> Result<Response, PostError> {
        self.admit(url).map_err(|refusal| PostError::blocked(url, refusal))?;
        let client = match &self.guard {
            Some(guard) if !guard.kept.admits(url, deadline) => &guard.once,
            _ => self.client(url),
        };
        let request = client.post(url.clone()).headers(headers).body(body).send();
        let answer = tokio::select! {
            answer = request => answer,
            () = &mut late => return Err(PostError::late(url)),
        };
        answer.map_err(|error| PostError::broken(url, &error.without_url()))
    }
}

fn posted(mut response: Response, excerpt: Bytes) -> Posted {
    let (status, remote) = (response.status(), response.remote_addr());
    Posted { status, headers: std::mem::take(response.headers_mut()), excerpt, remote }
}

/// The beginning of the body. The rest is not read, and the connection is closed unless the body is
/// complete.
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

/// The hosts with open connections, each with the time at which its last connection is certainly closed.
/// The HTTP client limits its connections per host, but not the number of hosts.
#[derive(Debug, Default)]
pub(super) struct OpenHosts(Mutex<HashMap<String, Instant>>);

impl OpenHosts {
    /// True if a connection to this host may be kept after a request with this deadline.
    fn admits(&self, url: &Url, deadline: Duration) -> bool {
        let now = Instant::now();
        let Some(until) = now.checked_add(deadline.saturating_add(IDLE_TIMEOUT)) else { return false };
        let origin = url.origin().ascii_serialization();
        let mut kept = self.0.lock();
        if kept.len() >= MAX_OPEN_HOSTS && !kept.contains_key(&origin) {
            kept.retain(|_, until| *until > now);
        }
        if kept.len() >= MAX_OPEN_HOSTS && !kept.contains_key(&origin) {
            return false;
        }
        let entry = kept.entry(origin).or_insert(until);
        *entry = until.max(*entry);
        true
    }
}

#[cfg(test)]
mod tests;
