//! The session of an audit: its connections, credentials, counters and deadline.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use http_body_util::BodyExt as _;
use nuncio_client::{Credentials, Egress, ForwardBody, was_not_sent};
use nuncio_protocol::Error;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{
    Exchange, Failure, Identity, Request, Response,
    exchange::media_type,
    stream::{Opened, Stream},
};

/// The maximum size of an answer.
const MAX_BODY: usize = 4 << 20;
/// A token that no agent has issued.
const INVALID_TOKEN: HeaderValue = HeaderValue::from_static("Bearer nuncio-audit-invalid");

/// The connections of an audit.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) egress: Egress,
    pub(crate) credentials: Credentials,
    pub(crate) second: Option<Credentials>,
    /// The URL of the card: credentials are bound to its origin.
    pub(crate) home: Url,
    /// The time for one answer.
    pub(crate) timeout: Duration,
    /// The time for the answer to a message.
    pub(crate) message_timeout: Duration,
    /// The end of the audit.
    pub(crate) deadline: Instant,
    pub(crate) requests: AtomicU32,
    pub(crate) messages: AtomicU32,
}

impl Session {
    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request) -> Exchange {
        self.send_within(request, self.timeout).await
    }

    /// Like [`Self::send`], with another time for the answer.
    pub(crate) async fn send_within(&self, mut request: Request, time: Duration) -> Exchange {
        let end = self.end(time);
        let response = match self.open(&mut request, end).await {
            Ok(response) => self.collect(response, end, time).await,
            Err(failure) => Err(failure),
        };
        Exchange { request, response }
    }

    /// Sends a request whose answer may be a stream.
    pub(crate) async fn stream(&self, mut request: Request, time: Duration) -> Opened {
        let end = self.end(time);
        let response = match self.open(&mut request, end).await {
            Ok(response) => response,
            Err(failure) => return Opened::Answer(Box::new(Exchange { request, response: Err(failure) })),
        };
        if is_stream(&response) {
            return Opened::Stream(Box::new(Stream::new(request, response, self.deadline)));
        }
        let response = self.collect(response, end, time).await;
        Opened::Answer(Box::new(Exchange { request, response }))
    }

    fn end(&self, time: Duration) -> Instant {
        (Instant::now() + time).min(self.deadline)
    }

    async fn open(
        &self,
        request: &mut Request,
        end: Instant,
    ) -> Result<http::Response<ForwardBody>, Failure> {
        if Instant::now() >= self.deadline {
            return Err(Failure::Deadline);
        }
        let (egress, secrets) = self.identify(request).await.map_err(|error| failed(&error))?;
        request.secrets = secrets.keys().map(|name| name.as_str().to_owned()).collect();
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut outgoing = http::Request::new(request.body.clone());
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() =
            request.url.as_str().parse().map_err(|_| Failure::Unreached("the URL is invalid".to_owned()))?;
        *outgoing.headers_mut() = request.headers.clone();
        outgoing.headers_mut().extend(secrets);
        let answer = timeout_at(end, egress.open(outgoing, request.http2)).await;
        answer.map_err(|_| too_slow("no answer"))?.map_err(|error| failed(&error))
    }

    /// The credentials of a request.
    async fn identify(&self, request: &Request) -> Result<(Egress, HeaderMap), Error> {
        let none = Credentials::none();
        let credentials = match request.identity {
            Identity::Caller => &self.credentials,
            Identity::Second => self.second.as_ref().unwrap_or(&none),
            Identity::Nobody | Identity::Invalid => &none,
        };
        let (egress, mut headers) = credentials.headers_for(&self.egress, &request.url, &self.home).await?;
        if request.identity == Identity::Invalid {
            headers.insert(AUTHORIZATION, INVALID_TOKEN);
        }
        Ok((egress, headers))
    }

    async fn collect(
        &self,
        response: http::Response<ForwardBody>,
        end: Instant,
        time: Duration,
    ) -> Result<Response, Failure> {
        let (parts, body) = response.into_parts();
        let read = timeout_at(end, read(body)).await;
        let (body, trailers) = read.map_err(|_| {
            too_slow(&format!("the answer (HTTP {}) did not end within {time:?}", parts.status.as_u16()))
        })??;
        Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body, trailers })
    }
}

/// True if the answer is a stream of events.
pub(crate) fn is_stream<B>(response: &http::Response<B>) -> bool {
    let media_type = media_type(response.headers());
    response.status().is_success()
        && (media_type == "text/event-stream"
            || media_type.starts_with("application/grpc") && !response.headers().contains_key("grpc-status"))
}

async fn read(mut body: ForwardBody) -> Result<(Bytes, HeaderMap), Failure> {
    let (mut bytes, mut trailers) = (BytesMut::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| Failure::Broken(error.message().to_owned()))?.into_data() {
            Ok(data) if bytes.len() + data.len() > MAX_BODY => {
                let why = format!("the answer is larger than {MAX_BODY} bytes, and was not read to its end");
                return Err(Failure::Broken(why));
            }
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok((bytes.freeze(), trailers))
}

fn too_slow(why: &str) -> Failure {
    Failure::Slow(format!("{why}; give the agent more time with --timeout"))
}

fn failed(error: &Error) -> Failure {
    let why = error.message().to_owned();
    if was_not_sent(error) { Failure::Unreached(why) } else { Failure::Broken(why) }
}
