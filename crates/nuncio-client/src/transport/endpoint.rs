//! One URL of an agent with its egress and credentials: the parts that all bindings share.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body::Body as _;
use jiff::Timestamp;
use nuncio_protocol::{AgentInterface, CallContext, Error, ErrorKind, Event, Result};
use url::Url;

use super::{WireStream, events::events, status, within};
use crate::{
    Credentials,
    auth::Granted,
    egress::{Egress, ForwardBody, Wire, shown},
    failure::Failure,
    http_headers,
};

/// A URL, its egress, and the part of the caller's credentials that it gets.
pub(crate) struct Endpoint {
    pub(crate) egress: Egress,
    pub(crate) url: Url,
    pub(crate) granted: Granted,
}

/// An answer with its headers; the body may still arrive.
pub(crate) type Response = http::Response<ForwardBody>;

/// A complete answer.
pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The URL of an interface over HTTP.
///
/// # Errors
/// `InvalidAgentResponse` if it is not an http or https URL.
pub(crate) fn http_url(interface: &AgentInterface) -> Result<Url> {
    let url = Url::parse(&interface.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        let message = format!("the interface {:?} of the card is not an http or https URL", interface.url);
        Error::new(ErrorKind::InvalidAgentResponse, message)
    })
}

impl Endpoint {
    /// An endpoint for a URL of a card that came from `home`; credentials are bound to that origin.
    pub(crate) fn new(egress: &Egress, url: Url, credentials: &Credentials, home: &Url) -> Self {
        let (egress, granted) = credentials.for_target(egress.clone(), &url, &home.origin());
        if granted.withheld {
            tracing::warn!(interface = %shown(&url), "credentials are not sent to another origin than the card's");
        }
        Self { egress, url, granted }
    }

    /// Sends a request and waits for the headers of the answer.
    pub(crate) fn send(
        &self,
        cx: &CallContext,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Result<Response, Failure>> + Send + use<'_> {
        let mut request = Box::new(Request::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        within(cx.deadline, self.egress.forward(&self.url, request, Wire::Best))
    }

    /// Reads the body of an answer.
    pub(crate) async fn read(
        &self,
        cx: &CallContext,
        response: Response,
    ) -> Result<CompleteResponse, Failure> {
        let (head, body) = response.into_parts();
        let body = within(cx.deadline, self.egress.collect(&self.url, body)).await?;
        Ok(CompleteResponse { status: head.status, headers: head.headers, body })
    }

    /// True if the answer to a streaming call is a stream; false if it has to be read whole.
    pub(crate) fn is_stream(&self, expected: &str, response: &Response) -> Result<bool, Failure> {
        let media_type = http_headers::media_type(response.headers());
        if !response.status().is_success() {
            return Ok(false);
        }
        if media_type.eq_ignore_ascii_case("text/event-stream") {
            return Ok(true);
        }
        if media_type.is_empty() || media_type.contains("json") {
            return Ok(false);
        }
        // Some servers send errors as plain text. A body with a length has an end.
        if media_type.eq_ignore_ascii_case("text/plain") && response.body().size_hint().exact().is_some() {
            return Ok(false);
        }
        // A body of any other type may be endless, so it is not read.
        Err(Failure::answered(self.unexpected(expected, media_type)))
    }

    /// The events of an answer that is a stream.
    pub(crate) fn events(
        &self,
        response: Response,
        decode: impl Fn(&str) -> Result<Event> + Send + Unpin + 'static,
    ) -> WireStream {
        events(response.into_body(), self.egress.max_event(), decode)
    }

    /// The headers of an error answer.
    pub(crate) fn head<'a>(&'a self, status: StatusCode, headers: &'a HeaderMap) -> status::ResponseHead<'a> {
        status::ResponseHead { url: &self.url, status, headers, withheld: self.granted.withheld }
    }

    /// The error of an answer without success; `said` is the decoded body, if any.
    pub(crate) fn refused(&self, answer: &CompleteResponse, said: Option<Error>) -> Failure {
        let head = self.head(answer.status, &answer.headers);
        Failure::answered(head.told(said, Timestamp::now()))
    }

    /// The error for an answer that is not A2A, with its media type.
    pub(crate) fn unexpected(&self, expected: &str, media_type: &str) -> Error {
        let came = if media_type.is_empty() { "an answer without a content type" } else { media_type };
        let message =
            format!("expected {expected} from {}, got {came}; is this an A2A address?", shown(&self.url));
        Error::new(ErrorKind::InvalidAgentResponse, message)
    }
}
