//! The check whether a request was made on this machine.
//!
//! A hub on loopback is reached by programs on this machine, and by a reverse proxy on it, which forwards
//! calls from anywhere. A request counts as foreign if it has any trace of that: a header that proxies add,
//! or a host name that is not this machine's. A proxy that adds no header and rewrites `Host`, as a bare
//! nginx `proxy_pass` does, cannot be distinguished from a local program: there `identity.anonymous` has to
//! be `never`.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Uri, header, uri::Authority};

use super::host::without_port;

/// Headers that proxies add to a request, besides `X-Forwarded-*`.
const FORWARDING: &[&str] = &["forwarded", "via", "x-real-ip"];

/// True if a request has no trace of another machine. The address of the connection is checked elsewhere.
pub(super) fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let in_uri = uri.authority().map(Authority::as_str);
    let in_headers = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    !is_forwarded(headers) && in_uri.into_iter().chain(in_headers).all(is_own_name)
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    let tells =
        |name: &HeaderName| FORWARDING.contains(&name.as_str()) || name.as_str().starts_with("x-forwarded");
    headers.keys().any(tells)
}

/// True if a host, with or without a port, means the caller's own machine.
fn is_own_name(host: &str) -> bool {
    let name = without_port(host);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_trace_of_another_machine_makes_a_request_foreign() {
        for (uri, headers, expected) in [
            ("/", &[("host", "localhost")][..], true),
            ("/", &[("host", "LOCALHOST:2602"), ("user-agent", "x"), ("accept", "*/*")], true),
            ("/", &[("host", "127.0.0.1:2602")], true),
            ("/", &[("host", "127.3.2.1")], true),
            ("/", &[("host", "[::1]:2602")], true),
            ("http://localhost:2602/", &[], true),
            // Names of other machines, also where one of two is ours.
            ("/", &[("host", "agents.example.com")], false),
            ("/", &[("host", "localhost.example.com")], false),
            ("/", &[("host", "192.0.2.1:2602")], false),
            ("/", &[("host", "[2001:db8::1]")], false),
            ("http://agents.example.com/", &[("host", "localhost")], false),
            ("http://localhost/", &[("host", "agents.example.com")], false),
            // Headers that proxies add, with any value.
            ("/", &[("host", "localhost"), ("forwarded", "for=127.0.0.1")], false),
            ("/", &[("host", "localhost"), ("forwarded", "")], false),
            ("/", &[("host", "localhost"), ("x-forwarded-for", "127.0.0.1")], false),
            ("/", &[("host", "localhost"), ("X-Forwarded-Proto", "https")], false),
            ("/", &[("host", "localhost"), ("x-forwarded-client-cert", "x")], false),
            ("/", &[("host", "localhost"), ("x-real-ip", "127.0.0.1")], false),
            ("/", &[("host", "localhost"), ("via", "1.1 nginx")], false),
        ] {
            let mut sent = HeaderMap::new();
            for (name, value) in headers {
                sent.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(is_local(&uri.parse().unwrap(), &sent), expected, "{uri} {headers:?}");
        }
    }
}
