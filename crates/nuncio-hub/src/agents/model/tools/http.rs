//! Servers of tools over HTTP: the transport of the protocol's library, through our own egress.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use nuncio_client::{Credentials, Egress, EventAnswer};
use nuncio_protocol::Error;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::Sse;
use url::Url;

use crate::{agents::upstream_auth, config::Auth};

/// The maximum size of an answer, and of an event of a stream.
pub(super) const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Bytes of an error that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// The headers that the library adds.
type Headers = HashMap<HeaderName, HeaderValue>;

/// A failure of ours, or of the server.
type Fault = StreamableHttpError<Error>;

/// The HTTP client of one server. Cheap to clone.
#[derive(Clone)]
pub(super) struct HttpClient(Arc<Inner>);

struct Inner {
    url: Url,
    egress: Egress,
    credentials: Credentials,
}

impl HttpClient {
    /// Prepares connections and credentials. Makes no call.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(super) fn open(url: &Url, auth: &Auth) -> anyhow::Result<Self> {
        let egress = upstream_auth::egress(auth, Vec::new())?
            .with_max_event(MAX_ANSWER_BYTES)
            .with_max_body(MAX_ANSWER_BYTES);
        let credentials = upstream_auth::credentials(auth)?.allow_origin(url);
        Ok(Self(Arc::new(Inner { url: url.clone(), egress, credentials })))
    }

    /// The address.
    pub(super) fn url(&self) -> &str {
        self.0.url.as_str()
    }

    async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        custom: Headers,
        more: HeaderMap,
        body: Bytes,
    ) -> Result<EventAnswer, Fault> {
        let Inner { url, egress, credentials } = &*self.0;
        let (egress, granted) =
            credentials.headers_for(egress, url, url).await.map_err(StreamableHttpError::Client)?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        let invalid = |_| Error::invalid_field("url", "is not valid");
        *request.uri_mut() = url.as_str().parse().map_err(invalid).map_err(StreamableHttpError::Client)?;
        let headers = request.headers_mut();
        headers.extend(custom);
        headers.extend(more);
        headers.insert(header::ACCEPT, ACCEPTED);
        if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
            headers.insert(SESSION_ID, session);
        }
        headers.extend(granted);
        egress.events(request).await.map_err(StreamableHttpError::Client)
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = Error;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        custom: Headers,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let body = serde_json::to_vec(&message)?;
        let mut more = HeaderMap::new();
        more.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.send(Method::POST, session.as_deref(), custom, more, body.into()).await?;
        let status = answer.status();
        let awaits_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        if status == StatusCode::ACCEPTED || status == StatusCode::NO_CONTENT {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return refusal(answer, &message, session.is_some()).await;
        }
        let own = answer.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if answer.is_event_stream() {
            return Ok(StreamableHttpPostResponse::Sse(events(answer), own));
        }
        let body = answer.bytes(MAX_ANSWER_BYTES).await.map_err(StreamableHttpError::Client)?;
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, own)),
            // Nobody waits for the answer to a notification; some servers write one nevertheless.
            Err(_) if !awaits_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        custom: Headers,
    ) -> Result<(), Fault> {
        // A server may refuse this (405), and forgets the session on its own.
        self.send(Method::DELETE, Some(&session), custom, HeaderMap::new(), Bytes::new()).await.map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        let mut more = HeaderMap::new();
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
            more.insert(LAST_EVENT_ID, id);
        }
        let answer = self.send(Method::GET, session.as_deref(), custom, more, Bytes::new()).await?;
        match answer.status() {
            status if status.is_success() && answer.is_event_stream() => Ok(events(answer)),
            status if status.is_success() => Err(StreamableHttpError::UnexpectedContentType(None)),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            status => Err(HttpStatusError::new(status.as_u16(), None).into()),
        }
    }
}

/// The meaning of an answer that is not a success. A server of an older version of the protocol refuses the question for
/// its versions (`server/discover`); the library then begins in the older way.
async fn refusal(
    answer: EventAnswer,
    message: &ClientJsonRpcMessage,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, Fault> {
    let status = answer.status();
    let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if is_denied || !status.is_client_error() {
        return Err(HttpStatusError::new(status.as_u16(), None).into());
    }
    let body = answer.bytes(MAX_ERROR_BYTES).await.unwrap_or_default();
    let told = match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        Ok(_) | Err(_) => None,
    };
    let ClientJsonRpcMessage::Request(request) = message else {
        return Err(HttpStatusError::new(status.as_u16(), None).into());
    };
    let is_discovery = !has_session && matches!(request.request, ClientRequest::DiscoverRequest(_));
    let discovery = || ErrorData::invalid_request(format!("HTTP status {}", status.as_u16()), None);
    match told.or_else(|| is_discovery.then(discovery)) {
        Some(error) => {
            let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            Ok(StreamableHttpPostResponse::Json(error, None))
        }
        None => Err(HttpStatusError::new(status.as_u16(), None).into()),
    }
}

/// The events of an answer, decoded within the egress's limit.
fn events(answer: EventAnswer) -> BoxStream<'static, Result<Sse, SseError>> {
    let events = futures_util::stream::unfold(Some(answer), |answer| async {
        let mut answer = answer?;
        match answer.next().await {
            Ok(Some(event)) => {
                let event = Sse { event: event.name, data: Some(event.data), id: event.id, retry: None };
                Some((Ok(event), Some(answer)))
            }
            Ok(None) => None,
            Err(error) => Some((Err(SseError::Body(Box::new(error))), None)),
        }
    });
    events.boxed()
}
