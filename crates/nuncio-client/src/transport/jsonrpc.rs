//! JSON-RPC over HTTP: one POST per call to the interface's address (spec 9), in any dialect.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderMap, Method};
use jiff::Timestamp;
use nuncio_protocol::{
    AgentInterface, CallContext, Error, ErrorKind, EventStream, Result, Seq, StreamItem,
    op::{Call, Reply},
    wire::{
        Dialect, jsonrpc,
        sse::{Decoder, Frame},
    },
};
use reqwest::Response;
use url::{Origin, Url};

use super::{Transport, WireStream, headers, service::a2a_service, status, within};
use crate::{
    Credentials,
    auth::Granted,
    egress::{Egress, failure, shown},
    failure::Failure,
};

/// One JSON-RPC interface of an agent. As an `A2aService` it makes each call exactly once; streams are
/// not taken up again when they break. [`Client`](crate::Client) is the one that does more.
pub struct JsonRpcTransport {
    egress: Egress,
    url: Url,
    tenant: Option<String>,
    dialect: Arc<dyn Dialect>,
    granted: Granted,
    /// Ids of requests; they only have to differ.
    next_id: AtomicU64,
}

impl JsonRpcTransport {
    /// The interface of a card that came from `home`: credentials are for that origin.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the interface has no usable address.
    pub fn new(
        egress: Egress,
        interface: &AgentInterface,
        dialect: Arc<dyn Dialect>,
        credentials: &Credentials,
        home: &Origin,
    ) -> Result<Self> {
        let url = Url::parse(&interface.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| {
            let message =
                format!("the interface {:?} of the card is no http or https address", interface.url);
            Error::new(ErrorKind::InvalidAgentResponse, message)
        })?;
        let granted = credentials.for_target(&url, home);
        if granted.withheld {
            tracing::warn!(interface = %shown(&url), "credentials are not sent to another origin than the card's");
        }
        let tenant = interface.tenant.clone();
        Ok(Self { egress, url, tenant, dialect, granted, next_id: AtomicU64::new(1) })
    }

    async fn unary(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        Ok(self.call(cx, &call).await?)
    }

    async fn streaming(&self, cx: &CallContext, call: Call) -> Result<EventStream> {
        let events = self.stream(cx, &call).await?;
        Ok(Box::pin(events.map_err(Error::from)))
    }

    /// Posts a call and waits for the head of the answer.
    async fn post(&self, cx: &CallContext, call: &Call) -> Result<Response, Failure> {
        // What we cannot even say was not asked; to repeat it is of no use either.
        let body = self.encode(call).map_err(Failure::answered)?;
        let headers = headers::outgoing(cx, self.dialect.version(), call.op(), &self.granted);
        let headers = headers.await.map_err(Failure::answered)?;
        within(cx.deadline, self.egress.send(Method::POST, &self.url, headers, body)).await
    }

    fn encode(&self, call: &Call) -> Result<Bytes> {
        let op = call.op();
        let method = self.dialect.method(op).ok_or_else(|| {
            let message =
                format!("{} does not exist in version {} of the protocol", op.name(), self.dialect.version());
            Error::new(ErrorKind::UnsupportedOperation, message)
        })?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut body = Vec::with_capacity(512);
        // The tenant is the interface's, no more and no less (spec 8.3.2).
        if call.tenant() == self.tenant.as_deref() {
            jsonrpc::encode_request(id, method, &mut body, |out| self.dialect.encode_call(call, out))?;
        } else {
            let mut call = call.clone();
            call.set_tenant(self.tenant.clone());
            jsonrpc::encode_request(id, method, &mut body, |out| self.dialect.encode_call(&call, out))?;
        }
        Ok(body.into())
    }

    /// Reads a whole answer and returns its body if the status is one of success.
    async fn body(&self, cx: &CallContext, response: Response) -> Result<(HeaderMap, Bytes), Failure> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = within(cx.deadline, self.egress.read(response)).await?;
        if status.is_success() {
            return Ok((headers, body));
        }
        let head =
            status::Head { url: &self.url, status, headers: &headers, withheld: self.granted.withheld };
        Err(Failure::answered(head.error(&body, Timestamp::now())))
    }

    /// The result in an answer; a body that is no JSON-RPC says so together with what it claims to be.
    fn open<'a>(
        &self,
        headers: &HeaderMap,
        body: &'a [u8],
    ) -> Result<&'a serde_json::value::RawValue, Failure> {
        jsonrpc::decode_response(body).map_err(|error| {
            let media_type = status::media_type(headers);
            if error.kind() != ErrorKind::InvalidAgentResponse || media_type.contains("json") {
                return Failure::answered(error);
            }
            Failure::answered(self.unexpected(media_type))
        })
    }

    fn unexpected(&self, media_type: &str) -> Error {
        let came = if media_type.is_empty() { "an answer without a content type" } else { media_type };
        let message =
            format!("expected JSON-RPC from {}, got {came}; is this an A2A address?", shown(&self.url));
        Error::new(ErrorKind::InvalidAgentResponse, message)
    }
}

impl std::fmt::Debug for JsonRpcTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonRpcTransport")
            .field("url", &shown(&self.url))
            .field("version", &self.dialect.version())
            .finish_non_exhaustive()
    }
}

a2a_service!(JsonRpcTransport);

#[async_trait]
impl Transport for JsonRpcTransport {
    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let response = self.post(cx, call).await?;
        let (headers, body) = self.body(cx, response).await?;
        let result = self.open(&headers, &body)?;
        self.dialect.decode_reply(call.op(), result).map_err(Failure::answered)
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let response = self.post(cx, call).await?;
        let media_type = status::media_type(response.headers());
        if response.status().is_success() && media_type.eq_ignore_ascii_case("text/event-stream") {
            return Ok(events(response, Arc::clone(&self.dialect), self.egress.max_event()));
        }
        if response.status().is_success() && !media_type.is_empty() && !media_type.contains("json") {
            // Whatever it is, it may be endless: it is not read.
            return Err(Failure::answered(self.unexpected(media_type)));
        }
        // An error, or, from some servers, the only event there is.
        let (headers, body) = self.body(cx, response).await?;
        let result = self.open(&headers, &body)?;
        let event = self.dialect.decode_event(result).map_err(Failure::answered)?;
        Ok(stream::iter([Ok(StreamItem::new(None, Arc::new(event)))]).boxed())
    }
}

/// A connection that carries events.
struct Connection {
    response: Response,
    decoder: Decoder,
    dialect: Arc<dyn Dialect>,
}

/// The events of a connection: until it ends, breaks, or carries an error.
fn events(response: Response, dialect: Arc<dyn Dialect>, max_event: usize) -> WireStream {
    let connection = Connection { response, decoder: Decoder::new(max_event), dialect };
    let events = stream::unfold(Some(connection), |connection| async move {
        let mut connection = connection?;
        match connection.next().await {
            Ok(Some(item)) => Some((Ok(item), Some(connection))),
            Ok(None) => None,
            Err(failure) => Some((Err(failure), None)),
        }
    });
    events.boxed()
}

impl Connection {
    async fn next(&mut self) -> Result<Option<StreamItem>, Failure> {
        loop {
            let frame = self.decoder.next_frame().map_err(|error| {
                Failure::answered(Error::new(ErrorKind::InvalidAgentResponse, error.to_string()))
            })?;
            match frame {
                Some(frame) if frame.data.is_empty() => {}
                Some(frame) => return self.decode(&frame).map(Some).map_err(Failure::answered),
                None => match self.response.chunk().await {
                    Ok(Some(bytes)) => self.decoder.push(&bytes),
                    Ok(None) => return Ok(None),
                    Err(error) => return Err(failure(&self.response.url().clone(), error)),
                },
            }
        }
    }

    /// Each frame is a whole JSON-RPC response; its name does not matter (fact sheet 4.1).
    fn decode(&self, frame: &Frame) -> Result<StreamItem> {
        let result = jsonrpc::decode_response(frame.data.as_bytes())?;
        let event = self.dialect.decode_event(result)?;
        let seq = frame.id.as_deref().and_then(|id| id.parse().ok()).map(Seq);
        Ok(StreamItem::new(seq, Arc::new(event)))
    }
}
