//! The courier of production: notifications leave by the guarded client of `nuncio-client`, and are signed
//! with its keys.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use nuncio_client::{
    Egress, PostError, PostErrorKind, SigningKey,
    notification::{self, Claims, WebhookSecret},
};
use url::{Position, Url};

use super::{
    courier::{Courier, Failure, ReceiverAnswer, ReceiverResponse},
    request::{Sign, Unsigned},
};
use crate::store::FailureCause;

#[async_trait]
impl Courier for Egress {
    fn check(&self, url: &Url) -> Result<(), String> {
        self.admit(url).map_err(|refusal| refusal.to_string())
    }

    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<ReceiverResponse, Failure> {
        let secrets = Secrets::of(url, &headers);
        let posted = Self::post(self, url, headers, body, deadline).await.map_err(|error| failure(&error))?;
        Ok(ReceiverResponse {
            status: posted.status,
            retry_after: posted.retry_after(),
            excerpt: secrets.hide(String::from_utf8_lossy(&posted.excerpt).into_owned()),
        })
    }

    async fn ask(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
        max_body: usize,
    ) -> Result<ReceiverAnswer, Failure> {
        let secrets = Secrets::of(url, &headers);
        let posted = self.post_for_answer(url, headers, body, deadline, max_body).await;
        let posted = posted.map_err(|error| match error.kind {
            // Whoever repeats it wants to know that it was not sent.
            PostErrorKind::ConnectTimeout => Failure::Failed(FailureCause::Connect, error.to_string().into()),
            _ => failure(&error),
        })?;
        let beginning = posted.excerpt.get(..MAX_EXCERPT_BYTES).unwrap_or(&posted.excerpt);
        let response = ReceiverResponse {
            status: posted.status,
            retry_after: posted.retry_after(),
            excerpt: secrets.hide(String::from_utf8_lossy(beginning).into_owned()),
        };
        Ok(ReceiverAnswer { response, body: posted.excerpt })
    }
}

/// Bytes of an answer that are kept as its excerpt.
const MAX_EXCERPT_BYTES: usize = 1024;

/// The minimum length of a text that is hidden as a secret.
const MIN_SECRET_BYTES: usize = 4;
/// The same for a part of a URL: shorter parts are ordinary words.
const MIN_URL_PART_BYTES: usize = 8;

/// Secrets of a request, to be hidden in the response: its excerpt is stored and logged, and error pages
/// repeat URLs, sometimes headers too.
struct Secrets(Vec<String>);

impl Secrets {
    fn of(url: &Url, headers: &HeaderMap) -> Self {
        let shown = headers.values().filter(|value| value.is_sensitive());
        let shown = shown.filter_map(|value| value.to_str().ok());
        // Both the whole authorization header and the credentials after the scheme.
        let shown = shown.flat_map(|value| [value, value.split_once(' ').map_or(value, |(_, rest)| rest)]);
        let (path, query) = (url.path(), url.query().unwrap_or_default());
        let whole = &url[Position::BeforePath..Position::AfterQuery];
        let parts = path.split('/').chain(query.split(['&', '=']));
        let parts = parts.filter(|part| part.len() >= MIN_URL_PART_BYTES);
        let mut all: Vec<String> =
            shown.chain([whole, path, query]).chain(parts).map(str::to_owned).collect();
        all.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        // A secret may contain another one: the longest are replaced first.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        Self(all)
    }

    fn hide(&self, mut text: String) -> String {
        for secret in &self.0 {
            text = text.replace(secret.as_str(), "…");
            // The excerpt may end within a secret.
            let mut begun = (MIN_SECRET_BYTES..secret.len()).rev().filter_map(|length| secret.get(..length));
            if let Some(begun) = begun.find(|begun| text.ends_with(begun)) {
                text.truncate(text.len() - begun.len());
                text.push('…');
            }
        }
        text
    }
}

fn failure(error: &PostError) -> Failure {
    let why: Arc<str> = error.to_string().into();
    match &error.kind {
        PostErrorKind::Blocked(_) => Failure::Blocked(why),
        PostErrorKind::Dns => Failure::Failed(FailureCause::Dns, why),
        PostErrorKind::Connect => Failure::Failed(FailureCause::Connect, why),
        PostErrorKind::Tls => Failure::Failed(FailureCause::Tls, why),
        PostErrorKind::Timeout | PostErrorKind::ConnectTimeout => Failure::Failed(FailureCause::Timeout, why),
        PostErrorKind::Broke => Failure::Failed(FailureCause::Broken, why),
        _ => Failure::Failed(FailureCause::Other, why),
    }
}

/// Signs with a key that the server publishes: claims about the notification, as a JWT.
#[must_use]
pub fn sign_by_key(key: SigningKey, issuer: String) -> Sign {
    Arc::new(move |unsigned: &Unsigned<'_>| {
        let Unsigned { delivery, task_id, url, body, .. } = *unsigned;
        let claims = Claims::new(&issuer, url, delivery, task_id.as_str(), body, seconds(unsigned));
        match notification::sign(&key, &claims) {
            Ok(signed) => Some(signed),
            Err(error) => {
                tracing::error!(%error, "cannot sign a notification; sending it without this signature");
                None
            }
        }
    })
}

/// Signs with secrets that the receivers know (Standard Webhooks). Each secret makes a signature, so that
/// secrets can be rotated.
#[must_use]
pub fn sign_by_secrets(secrets: Vec<WebhookSecret>) -> Sign {
    Arc::new(move |unsigned: &Unsigned<'_>| {
        let by = |secret: &WebhookSecret| secret.sign(unsigned.delivery, seconds(unsigned), unsigned.body);
        Some(secrets.iter().map(by).collect::<Vec<_>>().join(" "))
    })
}

fn seconds(unsigned: &Unsigned<'_>) -> i64 {
    unsigned.now.as_millis().div_euclid(1_000)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use nuncio_client::Policy;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn a_secret_is_hidden_though_the_text_ends_within_it() {
        let secrets =
            Secrets::of(&Url::parse("http://x.example/hook/0123456789?a=b").unwrap(), &HeaderMap::new());
        for (text, expected) in [
            ("no /hook/0123456789?a=b", "no …"),
            ("no 0123456789, no /hook/01", "no …, no …"),
            ("no hook", "no hook"),
            ("", ""),
        ] {
            assert_eq!(secrets.hide(text.to_owned()), expected);
        }
    }

    #[tokio::test]
    async fn what_a_receiver_repeats_of_our_secrets_is_not_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"ping") {
                stream.read_buf(&mut head).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\nno route to: ").await.unwrap();
            stream.write_all(&head).await.unwrap();
        });
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", "Bearer cr3dentials"), ("a2a-notification-token", "t0ken")] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let egress = Egress::guarded(Policy { allow_private: true, ..Policy::default() }).unwrap();
        let url = Url::parse(&format!("http://127.0.0.1:{port}/hooks/s3cret-path?key=s3cret-query")).unwrap();
        let deadline = Duration::from_secs(60);
        let answer =
            Courier::post(&egress, &url, headers, Bytes::from_static(b"ping"), deadline).await.unwrap();
        assert!(answer.excerpt.starts_with("no route to: POST … HTTP/1.1"), "{}", answer.excerpt);
        for secret in ["cr3dentials", "t0ken", "s3cret-path", "s3cret-query"] {
            assert!(!answer.excerpt.contains(secret), "{}", answer.excerpt);
        }
    }
}
