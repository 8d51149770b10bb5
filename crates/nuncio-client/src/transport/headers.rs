//! The headers of a call: the service parameters of the specification (section 3.2.6), and the headers for
//! the rest of a [`CallContext`].

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, CONTENT_TYPE},
};
use nuncio_protocol::{CallContext, Error, HOPS_HEADER, Result, Version, op::Op};
use uuid::Uuid;

use super::within;
use crate::{auth::Granted, choose::extensions_header, failure::Failure, http_headers::FRAMING};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const HOPS: HeaderName = HeaderName::from_static(HOPS_HEADER);
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

/// The usual number of headers of a call, for the initial capacity.
const INITIAL_HEADER_CAPACITY: usize = 12;

/// The headers of a call, with its credentials. Headers of the protocol override the call's own headers,
/// and those override static headers of the same name.
///
/// # Errors
/// A value of the context is not allowed in a header, or there is no access token.
pub(crate) async fn outgoing(
    cx: &CallContext,
    version: Version,
    op: Op,
    granted: &Granted,
) -> Result<HeaderMap, Failure> {
    let mut headers = within(cx.deadline, granted.headers()).await?;
    // The call cannot be encoded, so nothing was sent, and a retry would not help.
    describe(&mut headers, cx, version, op, granted).map_err(Failure::answered)?;
    Ok(headers)
}

fn describe(
    headers: &mut HeaderMap,
    cx: &CallContext,
    version: Version,
    op: Op,
    granted: &Granted,
) -> Result<()> {
    let streaming = op.row().streaming;
    headers.reserve(INITIAL_HEADER_CAPACITY);
    own(cx, granted, headers)?;
    let extensions = extensions(cx, headers);
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(ACCEPT, if streaming { EVENTS } else { JSON });
    headers.insert(A2A_VERSION, HeaderValue::from_static(version.as_str()));
    if !extensions.is_empty() {
        headers.insert(extensions_header(version), value("extensions", extensions.join(","))?);
    }
    if is_send(op) {
        let key = cx.idempotency_key.as_deref().map_or_else(|| Cow::Owned(new_key()), Cow::Borrowed);
        headers.insert(IDEMPOTENCY_KEY, value("idempotency key", key)?);
    }
    if let Some(seq) = cx.last_event_id.filter(|_| streaming) {
        headers.insert(LAST_EVENT_ID, HeaderValue::from(seq.0));
    }
    if !cx.hops.is_empty() {
        headers.insert(HOPS, value("hops", cx.hops.join(","))?);
    }
    if let Some(trace) = &cx.trace {
        headers.insert(TRACEPARENT, value("traceparent", &*trace.parent)?);
        if let Some(state) = &trace.state {
            headers.insert(TRACESTATE, value("tracestate", &**state)?);
        }
    }
    Ok(())
}

/// Adds the call's own headers. They go to the same origins as credentials, because any of them may be
/// secret.
fn own(cx: &CallContext, granted: &Granted, headers: &mut HeaderMap) -> Result<()> {
    for (name, text) in cx.headers.iter() {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Error::invalid_field("headers", format!("{name:?} is not a valid header name")))?;
        if FRAMING.contains(&header) {
            let why = format!("{name} cannot be set by a call; the connection sets it");
            return Err(Error::invalid_field("headers", why));
        }
        let mut value = value(name, text)?;
        value.set_sensitive(true);
        if granted.foreign {
            tracing::debug!(%header, "a header of a call is not sent to another origin than the card's");
        } else {
            headers.insert(header, value);
        }
    }
    Ok(())
}

/// The extensions to declare: those of the context, and those in extension headers of either version that
/// were added to the call. Such headers are removed.
fn extensions<'a>(cx: &'a CallContext, headers: &mut HeaderMap) -> Cow<'a, [String]> {
    let mut all = Cow::Borrowed(&*cx.extensions);
    if headers.is_empty() {
        return all;
    }
    for version in Version::ALL {
        let name = extensions_header(*version);
        let values = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok());
        for uri in values.flat_map(|value| value.split(',')).map(str::trim) {
            if !uri.is_empty() && !all.iter().any(|other| other == uri) {
                all.to_mut().push(uri.to_owned());
            }
        }
        headers.remove(name);
    }
    all
}

/// True for operations with an idempotency key.
pub(crate) fn is_send(op: Op) -> bool {
    matches!(op, Op::SendMessage | Op::SendStreamingMessage)
}

/// A unique idempotency key.
pub(crate) fn new_key() -> String {
    Uuid::now_v7().to_string()
}

fn value<'a>(what: &str, text: impl Into<Cow<'a, str>>) -> Result<HeaderValue> {
    match text.into() {
        Cow::Borrowed(text) => HeaderValue::from_str(text).ok(),
        Cow::Owned(text) => HeaderValue::try_from(text).ok(),
    }
    .ok_or_else(|| Error::invalid_field(what, "has characters that are not allowed in a header"))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use nuncio_protocol::{Seq, TraceContext};

    use url::Url;

    use super::*;
    use crate::Credentials;

    fn check(cx: &CallContext, version: Version, op: Op) -> Vec<String> {
        lines(cx, version, op, &Granted::default())
    }

    fn lines(cx: &CallContext, version: Version, op: Op, granted: &Granted) -> Vec<String> {
        let headers = outgoing(cx, version, op, granted).now_or_never().unwrap().unwrap();
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_full_context_in_both_versions() {
        let mut cx = CallContext::new(Version::V1_0);
        cx.extensions = vec!["https://a.example/1".to_owned(), "https://b.example/2".to_owned()];
        cx.idempotency_key = Some("k".to_owned());
        cx.last_event_id = Some(Seq(7));
        cx.trace = Some(TraceContext { parent: "00-1".to_owned(), state: Some("v=1".to_owned()) });
        cx.hops = vec!["h1/a".to_owned(), "h2/b".to_owned()];
        assert_eq!(
            check(&cx, Version::V1_0, Op::SendStreamingMessage),
            [
                "a2a-extensions: https://a.example/1,https://b.example/2",
                "a2a-version: 1.0",
                "accept: text/event-stream, application/json",
                "content-type: application/json",
                "idempotency-key: k",
                "last-event-id: 7",
                "nuncio-hops: h1/a,h2/b",
                "traceparent: 00-1",
                "tracestate: v=1",
            ]
        );
        assert_eq!(
            check(&cx, Version::V0_3, Op::GetTask),
            [
                "a2a-version: 0.3",
                "accept: application/json",
                "content-type: application/json",
                "nuncio-hops: h1/a,h2/b",
                "traceparent: 00-1",
                "tracestate: v=1",
                "x-a2a-extensions: https://a.example/1,https://b.example/2",
            ]
        );
    }

    #[test]
    fn headers_of_the_call_stand_between_static_ones_and_the_protocol() {
        let mut cx = CallContext::new(Version::V1_0);
        for (name, value) in
            [("X-Team", "a"), ("Authorization", "t"), ("a2a-version", "9"), ("Accept", "x/y")]
        {
            cx.headers.set(name, value);
        }
        let common = ["a2a-version: 1.0", "accept: application/json"];
        let (json, team) = ("content-type: application/json", "x-team: a");
        let home = Url::parse("https://agent.example").unwrap();
        let other = Url::parse("https://other.example").unwrap();
        let credentials = Credentials::none().header("authorization", "static").unwrap();
        let credentials = credentials.header("x-other", "o").unwrap();
        let granted = |target: &Url| {
            let egress = crate::Egress::operator().unwrap();
            credentials.for_target(egress, target, &home.origin()).1
        };
        assert_eq!(
            lines(&cx, Version::V1_0, Op::GetTask, &granted(&home)),
            [common[0], common[1], "authorization: t", json, "x-other: o", team]
        );
        // Another origin than the card's: they may be secrets, and stay at home.
        assert_eq!(lines(&cx, Version::V1_0, Op::GetTask, &granted(&other)), [common[0], common[1], json]);
        let granted = Granted::default();
        let headers = outgoing(&cx, Version::V1_0, Op::GetTask, &granted).now_or_never().unwrap().unwrap();
        assert!(!format!("{headers:?}").contains("\"t\""), "not shown");
    }

    #[test]
    fn extensions_of_headers_are_declared_beside_the_others() {
        for (headers, expected) in [
            (&[("A2A-Extensions", "https://a.example/1, https://c.example/3")][..], "1,2,3"),
            (&[("X-A2A-Extensions", "https://c.example/3")], "1,2,3"),
            (
                &[("a2a-extensions", "https://c.example/3"), ("x-a2a-extensions", "https://d.example/4")],
                "1,2,3,4",
            ),
            (&[("a2a-extensions", " , ")], "1,2"),
        ] {
            let mut credentials = Credentials::none();
            for (name, value) in headers {
                credentials = credentials.header(name, value).unwrap();
            }
            let home = Url::parse("https://agent.example").unwrap();
            let egress = crate::Egress::operator().unwrap();
            let granted = credentials.for_target(egress, &home, &home.origin()).1;
            let cx = CallContext {
                extensions: vec!["https://a.example/1".to_owned(), "https://b.example/2".to_owned()],
                ..CallContext::default()
            };
            for (version, name) in [(Version::V1_0, "a2a-extensions"), (Version::V0_3, "x-a2a-extensions")] {
                let sent = lines(&cx, version, Op::GetTask, &granted);
                let sent: Vec<_> = sent.iter().filter(|line| line.contains("extensions")).collect();
                let uris = sent[0].strip_prefix(&format!("{name}: ")).unwrap();
                let numbers: Vec<_> = uris.split(',').filter_map(|uri| uri.rsplit('/').next()).collect();
                assert_eq!((sent.len(), &*numbers.join(",")), (1, expected), "{headers:?}");
            }
        }
    }

    #[test]
    fn every_send_has_a_key_of_its_own() {
        let key = || {
            let (cx, granted) = (CallContext::default(), Granted::default());
            let headers = outgoing(&cx, Version::V1_0, Op::SendMessage, &granted).now_or_never();
            headers.unwrap().unwrap()[IDEMPOTENCY_KEY].clone()
        };
        assert_ne!(key(), key());
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_refused() {
        let cx = CallContext { idempotency_key: Some("a\r\nb: c".to_owned()), ..CallContext::default() };
        let granted = Granted::default();
        let error =
            outgoing(&cx, Version::V1_0, Op::SendMessage, &granted).now_or_never().unwrap().unwrap_err();
        assert!(error.error.message().contains("idempotency key"), "{error:?}");
        for (name, value, expected) in [
            ("no name", "v", "\"no name\" is not a valid header name"),
            ("", "v", "\"\" is not a valid header name"),
            ("x-a", "a\r\nb: c", "x-a: has characters that are not allowed in a header"),
            ("Content-Length", "0", "Content-Length cannot be set by a call"),
            ("transfer-encoding", "chunked", "transfer-encoding cannot be set by a call"),
        ] {
            let mut cx = CallContext::default();
            cx.headers.set(name, value);
            let refused = outgoing(&cx, Version::V1_0, Op::GetTask, &granted).now_or_never().unwrap();
            let error = refused.unwrap_err();
            assert!(error.error.message().contains(expected), "{error:?}");
        }
    }
}
