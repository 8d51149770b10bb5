//! JSON-RPC over HTTP: one POST per call to the interface's URL (spec 9), in any dialect.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use nuncio_protocol::{
    CallContext, ErrorKind, Result,
    op::{Call, Op, Reply},
    wire::{Dialect, jsonrpc},
};
use serde_json::value::RawValue;

use super::{
    Transport, WireStream,
    address::Address,
    endpoint::{CompleteResponse, Endpoint, Response},
    events::only,
    headers, no_such_operation, with_tenant,
};
use crate::{auth::Granted, failure::Failure, http_headers};

/// The expected answer, for messages.
const EXPECTED: &str = "JSON-RPC";

/// One JSON-RPC interface of an agent.
pub(crate) struct JsonRpcTransport {
    endpoint: Endpoint,
    address: Address,
    tenant: Option<String>,
    dialect: Arc<dyn Dialect>,
    /// Request ids; they only have to be unique.
    next_id: AtomicU64,
}

impl JsonRpcTransport {
    pub(crate) fn new(endpoint: Endpoint, tenant: Option<String>, dialect: Arc<dyn Dialect>) -> Result<Self> {
        let address = Address::new(&endpoint.url)?;
        Ok(Self { endpoint, address, tenant, dialect, next_id: AtomicU64::new(1) })
    }

    /// Posts a call and waits for the headers of the answer.
    async fn post(&self, cx: &CallContext, call: &Call) -> Result<Response, Failure> {
        // The call cannot be encoded, so nothing was sent, and a retry would not help.
        let body = self.encode(call).map_err(Failure::answered)?;
        let headers = headers::outgoing(cx, self.dialect.version(), call.op(), &self.endpoint.granted);
        let headers = headers.await?;
        self.endpoint.send(cx, Method::POST, self.address.whole(), headers, body).await
    }

    fn encode(&self, call: &Call) -> Result<Bytes> {
        let op = call.op();
        let method = self.dialect.method(op).ok_or_else(|| no_such_operation(op, self.dialect.version()))?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut body = Vec::with_capacity(512);
        let call = with_tenant(call, self.tenant.as_deref());
        jsonrpc::encode_request(id, method, &mut body, |out| self.dialect.encode_call(&call, out))?;
        Ok(body.into())
    }

    /// Reads a complete answer; an error unless its status is a success.
    async fn read(&self, cx: &CallContext, response: Response) -> Result<CompleteResponse, Failure> {
        let answer = self.endpoint.read(cx, response).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let head = self.endpoint.head(answer.status, &answer.headers);
        Err(Failure::answered(head.error(&answer.body, Timestamp::now())))
    }

    /// The result of an answer. The error for a body that is not JSON-RPC names its media type.
    fn open<'a>(&self, answer: &'a CompleteResponse) -> Result<&'a RawValue, Failure> {
        self.understood(answer, jsonrpc::decode_response(&answer.body))
    }

    fn understood<T>(&self, answer: &CompleteResponse, decoded: Result<T>) -> Result<T, Failure> {
        decoded.map_err(|error| {
            let media_type = http_headers::media_type(&answer.headers);
            if error.kind() != ErrorKind::InvalidAgentResponse || media_type.contains("json") {
                return Failure::answered(error);
            }
            Failure::answered(self.endpoint.unexpected(EXPECTED, media_type))
        })
    }
}

#[async_trait]
impl Transport for JsonRpcTransport {
    fn granted(&self) -> &Granted {
        &self.endpoint.granted
    }

    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let response = self.post(cx, call).await?;
        let answer = self.read(cx, response).await?;
        if call.op() == Op::DeleteTaskPushNotificationConfig {
            return self.understood(&answer, jsonrpc::decode_done(&answer.body)).map(|()| Reply::Empty);
        }
        self.dialect.decode_reply(call.op(), self.open(&answer)?).map_err(Failure::answered)
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let response = self.post(cx, call).await?;
        if self.endpoint.is_stream(EXPECTED, &response)? {
            let dialect = Arc::clone(&self.dialect);
            // Each frame is a complete JSON-RPC response (REQ-038).
            return Ok(self.endpoint.events(response, move |data| dialect.decode_event_response(data)));
        }
        // An error, or the only event, from some servers. Boxed, since most answers are streams.
        let answer = Box::pin(self.read(cx, response)).await?;
        let event = self.dialect.decode_event(self.open(&answer)?).map_err(Failure::answered)?;
        Ok(only(event))
    }
}
