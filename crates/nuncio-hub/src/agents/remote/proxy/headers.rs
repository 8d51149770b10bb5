//! Headers that are relayed, in both directions: those with a meaning in the protocol, and those that the
//! operator allows. All others are dropped, because they concern only one of the two connections.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE,
        RETRY_AFTER, USER_AGENT, VARY,
    },
};
use nuncio_protocol::{HOPS_HEADER, TraceContext, Version};
use nuncio_server::bind::SealedCall;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const HOPS: HeaderName = HeaderName::from_static(HOPS_HEADER);

/// Request headers. The user agent is included, because agents answer some SDKs in a different form.
const FROM_CALLERS: [HeaderName; 8] = [
    ACCEPT,
    CONTENT_TYPE,
    USER_AGENT,
    VERSION,
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("grpc-timeout"),
];

/// Response headers.
const FROM_AGENTS: [HeaderName; 14] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CACHE_CONTROL,
    RETRY_AFTER,
    ALLOW,
    VARY,
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
    HeaderName::from_static("x-accel-buffering"),
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
];

/// The headers of an outgoing call.
pub(super) fn outgoing(
    call: &SealedCall<'_>,
    allowed: &[HeaderName],
    trace: &TraceContext,
    hops: &[String],
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    for name in FROM_CALLERS.iter().chain(allowed) {
        for value in call.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    // Callers of the implied version do not send the header, and agents encode errors differently if it is
    // set.
    if call.version != Version::IMPLIED {
        headers.insert(VERSION, version(call.version));
    }
    let mut set = |name, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    set(TRACEPARENT, &trace.parent);
    if let Some(state) = &trace.state {
        set(TRACESTATE, state);
    }
    set(HOPS, &hops.join(","));
    headers
}

/// Sets or removes the idempotency key of a message.
pub(super) fn set_idempotency_key(headers: &mut HeaderMap, key: Option<&str>) {
    headers.remove(IDEMPOTENCY_KEY);
    if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
        headers.insert(IDEMPOTENCY_KEY, key);
    }
}

fn version(version: Version) -> HeaderValue {
    HeaderValue::from_static(version.as_str())
}

/// The headers of a response. The content length is that of a body that is relayed whole.
pub(super) fn incoming(from: HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    // Only the first of several values has a name here; the others are dropped.
    for (name, value) in from {
        if let Some(name) = name.filter(|name| FROM_AGENTS.contains(name)) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The media type without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}
