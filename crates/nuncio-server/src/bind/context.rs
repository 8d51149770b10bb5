//! The context of a call, read from its headers (for gRPC, its metadata).

use std::str::FromStr as _;
#[cfg(feature = "grpc")]
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use nuncio_protocol::{
    Binding, CallContext, Caller, Error, HOPS_HEADER, HOPS_TRACE_KEY, Headers, Result, Seq, TraceContext,
    Version,
};

use super::{
    AgentInner,
    version::{EXTENSIONS_HEADERS, extensions_header},
};

/// Reads the context of a call; `keep` names the headers that may be forwarded.
pub(super) fn read(
    version: Version,
    binding: Binding,
    headers: &HeaderMap,
    caller: Option<&Caller>,
    keep: &[HeaderName],
) -> Result<CallContext> {
    let mut cx = CallContext::new(version);
    cx.binding = Some(binding);
    cx.extensions = extensions(headers)?;
    cx.last_event_id = last_event_id(headers)?;
    cx.idempotency_key = text(headers, "idempotency-key").map(str::to_owned);
    cx.trace = text(headers, "traceparent").map(|parent| TraceContext {
        parent: parent.to_owned(),
        state: text(headers, "tracestate").map(str::to_owned),
    });
    cx.forwardable_headers = kept(headers, keep);
    cx.hops = hops(headers)?;
    if let Some(caller) = caller {
        cx.caller = caller.clone();
    }
    Ok(cx)
}

fn kept(headers: &HeaderMap, keep: &[HeaderName]) -> Headers {
    let mut kept = Headers::default();
    for name in keep {
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            kept.set(name.as_str(), value);
        }
    }
    kept
}

/// The maximum number of hops; higher than the limit of any hub.
const MAX_HOPS: usize = 64;

/// The hubs that the call has passed. Agents in between may have forwarded nothing but the trace.
fn hops(headers: &HeaderMap) -> Result<Vec<String>> {
    let named = headers.get_all(HOPS_HEADER).iter().filter_map(|value| value.to_str().ok());
    let mut hops = listed(named.flat_map(|value| value.split(',')));
    if hops.is_empty() {
        let states = headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok());
        let members =
            states.flat_map(|state| state.split(',')).filter_map(|member| member.trim().split_once('='));
        let own = members.filter(|(key, _)| *key == HOPS_TRACE_KEY);
        hops = listed(own.flat_map(|(_, value)| value.split(':')));
    }
    if hops.len() > MAX_HOPS {
        return Err(Error::invalid_field(HOPS_HEADER, format!("at most {MAX_HOPS} hubs")));
    }
    Ok(hops)
}

fn listed<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let texts = texts.map(str::trim).filter(|text| !text.is_empty());
    texts.take(MAX_HOPS + 1).map(str::to_owned).collect()
}

/// The maximum number of extensions; more than any agent has. Each is compared with all before it.
const MAX_EXTENSIONS: usize = 64;

fn extensions(headers: &HeaderMap) -> Result<Vec<String>> {
    let mut extensions = Vec::new();
    for name in EXTENSIONS_HEADERS {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let uris = values.flat_map(|value| value.split(',')).map(str::trim).filter(|uri| !uri.is_empty());
        for uri in uris {
            // Some callers send both headers, to be understood by servers of either version.
            if extensions.iter().any(|known| known == uri) {
                continue;
            }
            if extensions.len() == MAX_EXTENSIONS {
                let why = format!("at most {MAX_EXTENSIONS} extensions in a call");
                return Err(Error::invalid_field("A2A-Extensions", why));
            }
            extensions.push(uri.to_owned());
        }
    }
    Ok(extensions)
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>> {
    let Some(text) = text(headers, "last-event-id").filter(|text| !text.is_empty()) else { return Ok(None) };
    let seq = u64::from_str(text).map_err(|_| {
        Error::invalid_field("Last-Event-ID", "expected the id of an event of this stream, which is a number")
    })?;
    Ok(Some(Seq(seq)))
}

impl AgentInner {
    /// The header that echoes the active extensions (REQ-080, REQ-081).
    pub(super) fn activated(&self, cx: &CallContext) -> Option<(HeaderName, HeaderValue)> {
        if cx.extensions.is_empty() {
            return None;
        }
        let active: Vec<&str> =
            cx.extensions.iter().map(String::as_str).filter(|uri| self.declares(uri)).collect();
        let value = HeaderValue::from_str(&active.join(", ")).ok().filter(|value| !value.is_empty())?;
        Some((extensions_header(cx.version), value))
    }

    /// True if the caller and the agent both declare the extension.
    #[cfg(feature = "grpc")]
    pub(super) fn is_active(&self, cx: &CallContext, uri: &str) -> bool {
        self.declares(uri) && cx.extensions.iter().any(|declared| declared == uri)
    }

    fn declares(&self, uri: &str) -> bool {
        self.extensions.iter().any(|own| own == uri)
    }
}

/// The time at which the caller stops waiting, by `grpc-timeout`.
#[cfg(feature = "grpc")]
pub(super) fn deadline(headers: &HeaderMap) -> Option<Instant> {
    // The clock that the runtime waits by, which tests may pause.
    let now = tokio::time::Instant::now().into_std();
    now.checked_add(timeout(text(headers, "grpc-timeout")?)?)
}

/// Parses at most eight digits and a unit. An invalid timeout counts as none.
#[cfg(feature = "grpc")]
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    let unit = match unit {
        "H" => Duration::from_hours(1),
        "M" => Duration::from_mins(1),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    unit.checked_mul(number)
}

#[cfg(all(test, feature = "grpc"))]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_to_extensions() {
        // Regression: each is compared with all before it, and without a limit one header kept a core busy
        // for seconds.
        let declare = |count: usize| {
            let uris: Vec<_> = (0..count).map(|n| format!("urn:x:{n}")).collect();
            let mut headers = HeaderMap::new();
            headers.insert("a2a-extensions", uris.join(",").parse().unwrap());
            read(Version::V1_0, Binding::Grpc, &headers, None, &[]).map(|cx| cx.extensions.len())
        };
        assert_eq!(declare(64).unwrap(), 64);
        assert_eq!(declare(65).unwrap_err().violations()[0].field, "A2A-Extensions");
    }

    #[test]
    fn hubs_on_the_way_are_named_by_a_header_or_by_the_trace() {
        let many = ["a/b"; 65].join(",");
        for (headers, expected) in [
            (&[][..], Some("")),
            (&[("nuncio-hops", "h1/a, h2/b,")], Some("h1/a h2/b")),
            (&[("nuncio-hops", "h1/a"), ("nuncio-hops", "h2/b")], Some("h1/a h2/b")),
            (&[("tracestate", "x=1:2, nuncio=aa:bb")], Some("aa bb")),
            (&[("tracestate", "nuncio=aa:bb"), ("nuncio-hops", "h1/a")], Some("h1/a")),
            (&[("tracestate", "other=nuncio")], Some("")),
            (&[("nuncio-hops", &*many)], None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let hops = read(Version::V1_0, Binding::Grpc, &map, None, &[]).map(|cx| cx.hops.join(" "));
            assert_eq!(hops.ok().as_deref(), expected, "{headers:?}");
        }
    }

    #[test]
    fn only_headers_that_are_named_are_kept() {
        let names = ["x-request-id", "cookie", "authorization"];
        let headers =
            HeaderMap::from_iter(names.map(|name| (HeaderName::from_static(name), "v".parse().unwrap())));
        let keep = [HeaderName::from_static("x-request-id"), HeaderName::from_static("x-absent")];
        let cx = read(Version::V1_0, Binding::Grpc, &headers, None, &keep).unwrap();
        assert_eq!(cx.forwardable_headers.iter().collect::<Vec<_>>(), [("x-request-id", "v")]);
        assert!(cx.headers.is_empty(), "nothing goes out by itself");
    }

    #[test]
    fn a_timeout_is_eight_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("0S", Some(Duration::ZERO)),
            ("00000007S", Some(Duration::from_secs(7))),
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("100000000S", None),
            ("000000001S", None),
            ("S", None),
            ("", None),
            ("5", None),
            ("5s", None),
            ("5h", None),
            ("-5S", None),
            ("+5S", None),
            ("1.5S", None),
            (" 5S", None),
            ("5 S", None),
            ("5SS", None),
            ("5é", None),
        ] {
            assert_eq!(timeout(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_longest_timeout_is_a_deadline_too() {
        let headers = HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), "99999999H".parse().unwrap())]);
        assert!(deadline(&headers).is_some_and(|deadline| deadline > Instant::now()));
    }
}
