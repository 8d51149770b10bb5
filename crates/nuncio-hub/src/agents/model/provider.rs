//! The connection to the provider of a model: one request, its answer piece by piece, and its list of models.

use std::{collections::VecDeque, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use nuncio_client::{Credentials, Egress, EventAnswer, was_not_sent};
use nuncio_protocol::{Error, ErrorKind, TraceContext};
use serde_json::Value;
use url::Url;

use super::dialect::{self, Piece};
use crate::{
    agents::upstream_auth,
    config::{Auth, Credential, ModelDialect, ModelTarget, Secret},
};

/// The maximum size of one event of an answer.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// The maximum size of an answer that is not a stream, and of a list of models.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Bytes of an error that are read, and those of its message that are shown.
const MAX_ERROR_BYTES: usize = 64 << 10;
const MAX_MESSAGE_BYTES: usize = 500;

/// The version of the Messages API.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// A model at its provider.
pub(super) struct Provider {
    pub(super) target: ModelTarget,
    base: Url,
    egress: Egress,
    credentials: Credentials,
}

/// The reason why an attempt gave no answer, or broke off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The provider does not take the request, for this reason: another attempt would not help.
    Refused(String),
    /// The provider refuses the hub's credentials.
    Unauthorized(String),
    /// The provider is overloaded or down for now, and may have named a time to come back.
    Busy { why: String, retry_after: Option<Duration> },
    /// No connection could be made: the provider has not received the request.
    Unreachable(String),
    /// The connection broke.
    Broken(String),
    /// The provider was silent for too long.
    Silent(Duration),
    /// The answer is not of the dialect.
    Undecodable(String),
}

impl Fault {
    /// True if the same request may have another outcome, soon or elsewhere.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Unreachable(_) | Self::Broken(_))
    }

    /// The text for callers. It has neither addresses nor credentials.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Refused(why) => format!("the provider of the model refused the request: {why}"),
            Self::Unauthorized(_) => {
                "the model of this agent is not configured: its provider refuses the hub's \
                                      credentials; the operator has to set them"
                    .to_owned()
            }
            Self::Busy { why, .. } => format!("the provider of the model is unavailable: {why}"),
            Self::Unreachable(_) => {
                "the model of this agent cannot be reached at present; its operator finds the reason in the \
                                     log of the hub"
                    .to_owned()
            }
            Self::Broken(_) => "the connection to the provider of the model broke".to_owned(),
            Self::Silent(limit) => format!("the provider of the model was silent for {} s", limit.as_secs()),
            Self::Undecodable(_) => "the answer of the provider could not be understood".to_owned(),
        }
    }

    /// The kind of the fault, for spans.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Unauthorized(_) => "unauthorized",
            Self::Busy { .. } => "busy",
            Self::Unreachable(_) => "unreachable",
            Self::Broken(_) => "broken",
            Self::Silent(_) => "silent",
            Self::Undecodable(_) => "undecodable",
        }
    }

    /// The text for the log.
    pub(super) fn cause(&self) -> &str {
        match self {
            Self::Refused(why)
            | Self::Unauthorized(why)
            | Self::Unreachable(why)
            | Self::Broken(why)
            | Self::Undecodable(why) => why,
            Self::Busy { why, .. } => why,
            Self::Silent(_) => "silence",
        }
    }
}

impl Provider {
    /// Prepares connections and credentials. Makes no call.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(super) fn open(target: &ModelTarget, auth: &Auth) -> Result<Self> {
        let egress = upstream_auth::egress(auth, Vec::new())?
            .with_max_event(MAX_EVENT_BYTES)
            .with_max_body(MAX_BODY_BYTES);
        let base = target.base();
        let auth = with_key_of_environment(target, auth);
        let credentials = match (target.dialect, &auth.credential) {
            // This dialect has a header of its own for the key.
            (ModelDialect::Anthropic, Some(Credential::Bearer(key))) => {
                let others = Auth { credential: None, ..auth.clone() };
                upstream_auth::credentials(&others)?.api_key("x-api-key", key.reveal())?
            }
            _ => upstream_auth::credentials(&auth)?,
        };
        Ok(Self { target: target.clone(), credentials: credentials.allow_origin(&base), base, egress })
    }

    /// True if requests go to the provider that the dialect is named after.
    pub(super) fn is_default(&self) -> bool {
        self.target.url.is_none()
    }

    /// Sends a request; returns when the headers of the answer have arrived.
    pub(super) async fn ask(&self, body: &Value, trace: Option<&TraceContext>) -> Result<Answer, Fault> {
        let body = serde_json::to_vec(body).map_err(|error| Fault::Refused(error.to_string()))?;
        let mut request = self.request(Method::POST, dialect::path(self.target.dialect), body.into()).await?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in trace.into_iter().flat_map(trace_headers) {
            headers.insert(name, value);
        }
        let events = self.egress.events(request).await.map_err(|error| broken(&error))?;
        if events.status() != StatusCode::OK {
            return Err(refusal(events).await);
        }
        let dialect = self.target.dialect;
        Ok(Answer { events: Some(events), dialect, pieces: VecDeque::new(), has_finished: false })
    }

    /// The names of the provider's models.
    pub(super) async fn models(&self) -> Result<Vec<String>, Fault> {
        let request = self.request(Method::GET, "models", Bytes::new()).await?;
        let answer = self.egress.events(request).await.map_err(|error| broken(&error))?;
        if answer.status() != StatusCode::OK {
            return Err(refusal(answer).await);
        }
        let body = answer.bytes(MAX_BODY_BYTES).await.map_err(|error| broken(&error))?;
        dialect::decode_models(&body).map_err(|dialect::Undecodable(why)| Fault::Undecodable(why))
    }

    /// The host and the port.
    pub(super) fn server(&self) -> (String, u16) {
        let host = self.base.host_str().unwrap_or_default().to_owned();
        (host, self.base.port_or_known_default().unwrap_or_default())
    }

    /// The address without user, password and query.
    pub(super) fn shown_url(&self) -> String {
        let mut url = self.base.clone();
        // Both succeed for a URL with a host, and settings only allow such URLs.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.to_string()
    }

    async fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Bytes>, Fault> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        let (_, mut headers) = self
            .credentials
            .headers_for(&self.egress, &url, &self.base)
            .await
            .map_err(|error| Fault::Unauthorized(error.message().to_owned()))?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.target.dialect == ModelDialect::Anthropic {
            headers.insert("anthropic-version", ANTHROPIC_VERSION);
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() =
            url.as_str().parse().map_err(|_| Fault::Refused("the address is not valid".to_owned()))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// The credentials, or the provider's key in the environment: only for the provider itself, and only if no other
/// credentials are configured.
fn with_key_of_environment(target: &ModelTarget, auth: &Auth) -> Auth {
    let mut auth = auth.clone();
    if target.url.is_none() && auth.credential.is_none() && auth.headers.is_empty() {
        let key = std::env::var(target.dialect.key_variable()).ok().filter(|key| !key.is_empty());
        auth.credential = key.map(|key| Credential::Bearer(Secret::new(key)));
    }
    auth
}

fn trace_headers(trace: &TraceContext) -> Vec<(&'static str, HeaderValue)> {
    let parent = HeaderValue::from_str(&trace.parent).ok().map(|value| ("traceparent", value));
    let state = trace.state.as_deref().and_then(|state| HeaderValue::from_str(state).ok());
    parent.into_iter().chain(state.map(|value| ("tracestate", value))).collect()
}

/// The fault of an answer with another status than 200.
async fn refusal(answer: EventAnswer) -> Fault {
    let (status, retry_after) = (answer.status(), answer.retry_after());
    // The body explains the status; without it the status is enough.
    let body = answer.bytes(MAX_ERROR_BYTES).await.unwrap_or_default();
    let said = dialect::error_message(&body).map(|text| cut(&text, MAX_MESSAGE_BYTES));
    let why = said.unwrap_or_else(|| format!("HTTP status {}", status.as_u16()));
    match status.as_u16() {
        401 | 403 => Fault::Unauthorized(why),
        // 529: overloaded, as Anthropic says it.
        429 | 502..=504 | 529 => Fault::Busy { why, retry_after },
        // 500 too: servers answer so to an image that their model cannot take.
        _ => Fault::Refused(why),
    }
}

fn broken(error: &Error) -> Fault {
    let cause = error.message().to_owned();
    match error.kind() {
        ErrorKind::Unavailable if was_not_sent(error) => Fault::Unreachable(cause),
        ErrorKind::Unavailable => Fault::Broken(cause),
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => Fault::Unauthorized(cause),
        _ => Fault::Undecodable(cause),
    }
}

/// The beginning of a text.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

/// An answer that is being read. Dropping it closes the connection, and the provider stops.
pub(super) struct Answer {
    /// `None` after the last event.
    events: Option<EventAnswer>,
    dialect: ModelDialect,
    pieces: VecDeque<Piece>,
    /// A reason to stop has come.
    has_finished: bool,
}

impl Answer {
    /// The next piece; `None` after the last one. Waits for at most `silence`.
    pub(super) async fn next(&mut self, silence: Duration) -> Result<Option<Piece>, Fault> {
        loop {
            match self.pieces.pop_front() {
                Some(Piece::End) => {
                    self.events = None;
                    self.pieces.clear();
                }
                Some(Piece::Finish(finish)) => {
                    self.has_finished = true;
                    return Ok(Some(Piece::Finish(finish)));
                }
                Some(piece) => return Ok(Some(piece)),
                None if self.events.is_none() => return Ok(None),
                None => {
                    let read = tokio::time::timeout(silence, self.read()).await;
                    read.map_err(|_| Fault::Silent(silence))??;
                }
            }
        }
    }

    /// Reads one event.
    async fn read(&mut self) -> Result<(), Fault> {
        let Some(mut events) = self.events.take() else { return Ok(()) };
        if !events.is_event_stream() {
            // A server that does not stream: the whole answer is one event.
            let body = events.bytes(MAX_BODY_BYTES).await.map_err(|error| broken(&error))?;
            let text = std::str::from_utf8(&body).map_err(|error| Fault::Undecodable(error.to_string()))?;
            return self.decode(text);
        }
        match events.next().await {
            Ok(Some(event)) => {
                self.decode(&event.data)?;
                self.events = Some(events);
                Ok(())
            }
            // Some servers end without the last event.
            Ok(None) | Err(_) if self.has_finished => Ok(()),
            Ok(None) => Err(Fault::Broken("the stream ended in the middle of the answer".to_owned())),
            Err(error) => Err(broken(&error)),
        }
    }

    fn decode(&mut self, data: &str) -> Result<(), Fault> {
        let pieces = dialect::decode(self.dialect, data)
            .map_err(|dialect::Undecodable(why)| Fault::Undecodable(why))?;
        self.pieces.extend(pieces);
        Ok(())
    }
}
