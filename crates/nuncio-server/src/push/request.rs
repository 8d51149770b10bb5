//! The HTTP request of a delivery: headers, credentials and signatures.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use nuncio_client::notification;
use nuncio_protocol::{TaskId, Timestamp, TraceContext};

use super::{config::Config, payload::NotificationBody};

const TOKEN: [HeaderName; 2] =
    [HeaderName::from_static(notification::X_TOKEN), HeaderName::from_static(notification::TOKEN)];
const VERSION: HeaderName = HeaderName::from_static(notification::VERSION);
const ID: HeaderName = HeaderName::from_static(notification::ID);
const TIMESTAMP: HeaderName = HeaderName::from_static(notification::TIMESTAMP);
const ATTEMPT: HeaderName = HeaderName::from_static(notification::ATTEMPT);
const HMAC: HeaderName = HeaderName::from_static(notification::SECRET_SIGNATURE);
const JWS: HeaderName = HeaderName::from_static(notification::SIGNATURE);
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The headers and body of a notification.
pub(super) struct Request {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An attempt of a delivery.
pub(super) struct Attempted<'a> {
    pub(super) delivery: &'a str,
    pub(super) task_id: &'a TaskId,
    /// The number of the attempt, from 1.
    pub(super) attempt: u32,
    pub(super) now: Timestamp,
}

/// The input of a [`Sign`] function.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// The delivery's id, the same for each of its attempts.
    pub delivery: &'a str,
    /// The task of the notification.
    pub task_id: &'a TaskId,
    /// The webhook's URL.
    pub url: &'a str,
    /// The time of the attempt.
    pub now: Timestamp,
    /// The request body.
    pub body: &'a [u8],
}

/// Makes a signature header for a notification; `None` if signing fails.
pub type Sign = std::sync::Arc<dyn Fn(&Unsigned<'_>) -> Option<String> + Send + Sync>;

impl Request {
    /// Builds the request. `hmac` signs with the agent's secrets, `jws` with the server's key.
    pub(super) fn new(
        config: &Config,
        payload: NotificationBody,
        attempted: &Attempted<'_>,
        hmac: Option<&Sign>,
        jws: Option<&Sign>,
    ) -> Self {
        let body = Bytes::from(payload.body);
        let mut headers = HeaderMap::new();
        let seconds = attempted.now.as_millis().div_euclid(1_000);
        set(&mut headers, header::CONTENT_TYPE, Some(payload.content_type));
        set(&mut headers, VERSION, Some(config.version.as_str()));
        set(&mut headers, ID, Some(attempted.delivery));
        set(&mut headers, TIMESTAMP, Some(&seconds.to_string()));
        set(&mut headers, ATTEMPT, Some(&attempted.attempt.to_string()));
        for name in TOKEN {
            secret(&mut headers, name, config.given.token.as_deref());
        }
        // Trap T-46: no header for a scheme without credentials.
        let authentication = config.given.authentication.as_ref();
        let authorization = authentication.and_then(|authentication| {
            let credentials = authentication.credentials.as_deref()?;
            Some(format!("{} {credentials}", authentication.scheme))
        });
        secret(&mut headers, header::AUTHORIZATION, authorization.as_deref());
        let unsigned = Unsigned {
            delivery: attempted.delivery,
            task_id: attempted.task_id,
            url: config.url.as_str(),
            now: attempted.now,
            body: &body,
        };
        set(&mut headers, HMAC, hmac.and_then(|sign| sign(&unsigned)).as_deref());
        set(&mut headers, JWS, jws.and_then(|sign| sign(&unsigned)).as_deref());
        if let Some((parent, state)) = config.trace.as_ref().and_then(|trace| span(trace, rand::random())) {
            set(&mut headers, TRACEPARENT, Some(&parent));
            set(&mut headers, TRACESTATE, state);
        }
        Self { headers, body }
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: Option<&str>) {
    if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(name, value);
    }
}

/// As [`set`], for values that must not be logged.
fn secret(headers: &mut HeaderMap, name: HeaderName, text: Option<&str>) {
    if let Some(mut value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// Continues the trace with a span of ours (W3C Trace Context, 3.2); `None` if `trace` is malformed.
fn span(trace: &TraceContext, span: u64) -> Option<(String, Option<&str>)> {
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let [version, id, parent, flags] =
        <[&str; 4]>::try_from(trace.parent.split('-').collect::<Vec<_>>()).ok()?;
    let sound = hex(version, 2) && hex(id, 32) && hex(parent, 16) && hex(flags, 2);
    sound.then(|| (format!("00-{id}-{:016x}-{flags}", span.max(1)), trace.state.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_on_with_a_span_of_ours() {
        let goes_on = |parent: &str| {
            let trace = TraceContext { parent: parent.to_owned(), state: Some("a=b".to_owned()) };
            span(&trace, 0xab).map(|(parent, state)| (parent, state.map(str::to_owned)))
        };
        let ours = "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000ab-01".to_owned();
        let theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(goes_on(theirs), Some((ours, Some("a=b".to_owned()))));
        for wrong in ["", "00-1-2-3", "x", &theirs[1..], &format!("{theirs}-more")] {
            assert_eq!(goes_on(wrong), None, "{wrong}");
        }
    }
}
