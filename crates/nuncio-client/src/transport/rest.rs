//! HTTP+JSON: methods and paths below the interface's URL (spec 11), in any dialect.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use nuncio_protocol::{
    CallContext, ErrorKind, Event, Result,
    op::{Call, Op, Reply, Verb},
    wire::rest::{self, Outgoing},
};
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    Transport, WireStream,
    address::Address,
    endpoint::{CompleteResponse, Endpoint, Response},
    events::only,
    headers, no_such_operation, with_tenant,
};
use crate::{
    auth::Granted,
    choose::{RestForm, has_operation},
    failure::Failure,
    http_headers,
};

/// The expected answer, for messages.
const EXPECTED: &str = "JSON";

/// One HTTP+JSON interface of an agent.
pub(crate) struct RestTransport {
    endpoint: Endpoint,
    address: Address,
    tenant: Option<String>,
    form: RestForm,
    /// The agent supports subscribe only as GET (trap T-01).
    subscribes_by_get: AtomicBool,
}

impl RestTransport {
    pub(crate) fn new(mut endpoint: Endpoint, tenant: Option<String>, form: RestForm) -> Result<Self> {
        let base = base_path(&endpoint.url, form.paths.prefix);
        endpoint.url.set_path(&base);
        let address = Address::new(&endpoint.url)?;
        let tenant = tenant.filter(|_| form.paths.tenants);
        Ok(Self { endpoint, address, tenant, form, subscribes_by_get: AtomicBool::new(false) })
    }

    /// Sends a request and waits for the headers of the answer.
    async fn ask(&self, cx: &CallContext, call: &Call, by_get: bool) -> Result<Response, Failure> {
        // The call cannot be encoded, so nothing was sent, and a retry would not help.
        let request = self.encode(call).map_err(Failure::answered)?;
        let request = if by_get { request.by_get() } else { request };
        let headers = headers::outgoing(cx, self.form.version(), call.op(), &self.endpoint.granted);
        let mut headers = headers.await?;
        self.negotiate(&mut headers, call.op(), request.body.is_some());
        let uri = self.address.below(&request.path, Some(&request.query)).map_err(Failure::answered)?;
        let body = request.body.map(Bytes::from).unwrap_or_default();
        self.endpoint.send(cx, method(request.verb), uri, headers, body).await
    }

    fn encode(&self, call: &Call) -> Result<Outgoing> {
        let (op, version) = (call.op(), self.form.version());
        if !has_operation(version, op) {
            return Err(no_such_operation(op, version));
        }
        let call = with_tenant(call, self.tenant.as_deref()).into_owned();
        rest::encode_request(&self.form.paths, &*self.form.dialect, call)
    }

    /// Sets the media types of this binding in place of JSON-RPC's (trap T-07).
    fn negotiate(&self, headers: &mut HeaderMap, op: Op, has_body: bool) {
        let accept = if op.row().streaming { self.form.accept_stream } else { self.form.accept };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.form.media_type));
        } else {
            headers.remove(CONTENT_TYPE);
        }
    }

    /// Reads a complete answer; an error unless its status is a success.
    async fn read(&self, cx: &CallContext, response: Response) -> Result<CompleteResponse, Failure> {
        let answer = self.endpoint.read(cx, response).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let said =
            is_error(&answer.body).then(|| (self.form.decode_error)(answer.status.as_u16(), &answer.body));
        Err(self.endpoint.refused(&answer, said))
    }

    /// The JSON of an answer. The error for another body names its media type.
    fn open<'a>(&self, op: Op, answer: &'a CompleteResponse) -> Result<&'a RawValue, Failure> {
        let media_type = http_headers::media_type(&answer.headers);
        let unexpected = || Failure::answered(self.endpoint.unexpected(EXPECTED, media_type));
        if answer.body.trim_ascii().is_empty() && op != Op::DeleteTaskPushNotificationConfig {
            return Err(unexpected());
        }
        rest::decode_body(&answer.body).map_err(|error| {
            if media_type.contains("json") { Failure::answered(error) } else { unexpected() }
        })
    }

    async fn open_stream(&self, cx: &CallContext, call: &Call, by_get: bool) -> Result<WireStream, Failure> {
        let response = self.ask(cx, call, by_get).await?;
        if self.endpoint.is_stream(EXPECTED, &response)? {
            let form = self.form.clone();
            return Ok(self.endpoint.events(response, move |data| decode_frame(&form, data)));
        }
        if call.op() == Op::SubscribeToTask && !by_get && matches!(response.status().as_u16(), 404 | 405) {
            return self.subscribe_by_get(cx, call, response).await;
        }
        // An error, or the only event, from some servers.
        let answer = self.read(cx, response).await?;
        self.open(call.op(), &answer)?;
        let text = String::from_utf8_lossy(&answer.body);
        Ok(only(decode_frame(&self.form, &text).map_err(Failure::answered)?))
    }

    /// Repeats a subscribe as GET. Most servers accept POST, which is tried first; some have the path only
    /// for GET (trap T-01).
    async fn subscribe_by_get(
        &self,
        cx: &CallContext,
        call: &Call,
        refusal: Response,
    ) -> Result<WireStream, Failure> {
        let answer = self.endpoint.read(cx, refusal).await?;
        let said = (self.form.decode_error)(answer.status.as_u16(), &answer.body);
        if said.kind() != ErrorKind::MethodNotFound {
            // The path exists, and the task does not.
            return Err(self.endpoint.refused(&answer, Some(said)));
        }
        let stream = Box::pin(self.open_stream(cx, call, true)).await?;
        self.subscribes_by_get.store(true, Ordering::Relaxed);
        Ok(stream)
    }
}

/// The path of a URL, to append paths to. Some cards of v0.3 already include the common prefix of its
/// paths.
pub(super) fn base_path(url: &Url, prefix: &str) -> String {
    let path = url.path().trim_end_matches('/');
    path.strip_suffix(prefix).unwrap_or(path).to_owned()
}

fn method(verb: Verb) -> Method {
    match verb {
        Verb::Get => Method::GET,
        Verb::Post => Method::POST,
        Verb::Delete => Method::DELETE,
    }
}

/// Decodes a frame: an event, or the error that ended the stream, without an envelope (spec 11.7).
fn decode_frame(form: &RestForm, data: &str) -> Result<Event> {
    let event = form.dialect.decode_event(rest::decode_body(data.as_bytes())?);
    event.map_err(|error| {
        // The HTTP status was sent before, so only the body has the error.
        if is_error(data.as_bytes()) { (form.decode_error)(500, data.as_bytes()) } else { error }
    })
}

/// True for a body with an error in any known form. The error page of a web server or a proxy is not one.
fn is_error(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| {
        body["error"].is_object() || body["message"].is_string() || body["title"].is_string()
    })
}

#[async_trait]
impl Transport for RestTransport {
    fn granted(&self) -> &Granted {
        &self.endpoint.granted
    }

    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let response = self.ask(cx, call, false).await?;
        let answer = self.read(cx, response).await?;
        let json = self.open(call.op(), &answer)?;
        self.form.dialect.decode_reply(call.op(), json).map_err(Failure::answered)
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let by_get = call.op() == Op::SubscribeToTask && self.subscribes_by_get.load(Ordering::Relaxed);
        self.open_stream(cx, call, by_get).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_an_address() {
        // Trap T-37: an address that ends in /v1 is a v0.3 base with its prefix, or any v1.0 base.
        for (address, prefix, path, query, expected) in [
            ("https://a.example", "", "/tasks/1", "", "https://a.example/tasks/1"),
            ("https://a.example/", "", "/tasks/1", "", "https://a.example/tasks/1"),
            (
                "https://a.example/agents/x/",
                "",
                "/acme/tasks",
                "pageSize=1",
                "https://a.example/agents/x/acme/tasks?pageSize=1",
            ),
            ("https://a.example/v1", "", "/message:send", "", "https://a.example/v1/message:send"),
            ("https://a.example", "/v1", "/v1/message:send", "", "https://a.example/v1/message:send"),
            ("https://a.example/v1/", "/v1", "/v1/message:send", "", "https://a.example/v1/message:send"),
            ("https://a.example/x/v1", "/v1", "/v1/card", "", "https://a.example/x/v1/card"),
            ("https://a.example/v10", "/v1", "/v1/card", "", "https://a.example/v10/v1/card"),
            (
                "https://a.example/x?key=1",
                "",
                "/tasks",
                "pageSize=1",
                "https://a.example/x/tasks?key=1&pageSize=1",
            ),
            ("https://a.example/x?key=1", "", "/tasks/a%2Fb", "", "https://a.example/x/tasks/a%2Fb?key=1"),
        ] {
            let mut base = Url::parse(address).unwrap();
            base.set_path(&base_path(&base, prefix));
            let uri = Address::new(&base).unwrap().below(path, Some(query)).unwrap();
            assert_eq!(uri.to_string(), expected, "{address} {prefix}");
        }
    }

    #[test]
    fn bodies_that_are_errors() {
        for (body, expected) in [
            (r#"{"error":{"code":404}}"#, true),
            (r#"{"code":-32001,"message":"no such task"}"#, true),
            (r#"{"type":"about:blank","title":"Not Found","status":404}"#, true),
            (r#"{"detail":"Not Found"}"#, false),
            (r#"{"message":{"messageId":"m"}}"#, false),
            ("<html>", false),
            ("", false),
        ] {
            assert_eq!(is_error(body.as_bytes()), expected, "{body}");
        }
    }
}
