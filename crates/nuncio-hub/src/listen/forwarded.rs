//! The forwarding headers of proxies: `Forwarded` (RFC 7239) and `X-Forwarded-*`.
//!
//! Anybody can send these headers, so they are read only on connections of trusted proxies, and of a list
//! only the elements that trusted proxies have added. The last element is the peer's. The one before it was
//! added by the sender that the peer reports, and counts only if that sender is trusted as well.
//!
//! A proxy that sets one kind of header often forwards the other kind from its callers unchanged. So if both
//! are present and differ, both are ignored.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderValue};

use crate::config::Network;

/// Maximum length of a DNS name with a port.
const MAX_HOST_BYTES: usize = 253 + 6;
/// Maximum length of a path prefix.
const MAX_PREFIX_BYTES: usize = 256;
/// Maximum number of pairs in an element; four have a meaning.
const MAX_PAIRS: usize = 16;

/// The address of the hub as trusted proxies report it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Forwarded {
    /// `http` or `https`.
    scheme: Option<&'static str>,
    /// In lower case, with the port if it is not the default one.
    host: Option<String>,
    /// The path prefix that a proxy removed; empty, or with a leading and without a trailing slash.
    prefix: String,
}

impl Forwarded {
    /// Reads the headers of a request from a trusted proxy; `None` if they contain nothing usable.
    pub(super) fn read(headers: &HeaderMap, proxies: &[Network]) -> Option<Self> {
        let (rfc7239, x_forwarded) = (rfc7239(headers, proxies), x_forwarded(headers, proxies));
        let said = match (rfc7239, x_forwarded) {
            (Some(rfc7239), Some(x_forwarded)) if !rfc7239.agrees(&x_forwarded) => {
                tracing::debug!(
                    ?rfc7239,
                    ?x_forwarded,
                    "Forwarded and X-Forwarded-* differ: both are ignored"
                );
                return None;
            }
            (_, Some(said)) | (Some(said), None) => said,
            (None, None) => return None,
        };
        Some(said).filter(|said| *said != Self::default())
    }

    /// The host name, if the headers have one.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The base under which the caller sees the hub. Parts that the headers lack are taken from the request
    /// itself.
    pub(super) fn base(&self, scheme: &str, host: Option<&str>) -> Option<String> {
        let scheme = self.scheme.unwrap_or(scheme);
        let host = match &self.host {
            Some(host) => host.clone(),
            None => self::host(host?)?,
        };
        Some(format!("{scheme}://{}{}", without_default_port(&host, scheme), self.prefix))
    }

    /// True if both have the same host and scheme. (`Forwarded` has no prefix.)
    fn agrees(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.host == other.host
    }

    fn new(scheme: Option<&'static str>, host: Option<String>, prefix: String) -> Self {
        let host = match (host, scheme) {
            (Some(host), Some(scheme)) => Some(without_default_port(&host, scheme).to_owned()),
            (host, _) => host,
        };
        Self { scheme, host, prefix }
    }
}

/// The caller's address, as the outermost trusted proxy saw it; `None` if the headers lack it or do not
/// agree.
pub(super) fn caller(headers: &HeaderMap, proxies: &[Network]) -> Option<IpAddr> {
    let outermost = |nodes: &mut dyn Iterator<Item = &str>| {
        let mut last = None;
        for node in nodes {
            last = Some(address(node)?);
            if !is_proxy(node, proxies) {
                break;
            }
        }
        last
    };
    let x_forwarded = list(headers, "x-forwarded-for").map(|nodes| outermost(&mut nodes.into_iter().rev()));
    let lines: Vec<_> =
        headers.get_all("forwarded").iter().map(|line| line.to_str().unwrap_or("?")).collect();
    let rfc7239 = (!lines.is_empty()).then(|| {
        let elements = elements(&lines.join(","))?;
        outermost(&mut elements.iter().rev().map(|element| element.node.as_deref().unwrap_or("?")))
    });
    match (rfc7239, x_forwarded) {
        (Some(rfc7239), Some(x_forwarded)) => rfc7239.filter(|rfc7239| Some(*rfc7239) == x_forwarded),
        (Some(said), None) | (None, Some(said)) => said,
        (None, None) => None,
    }
}

fn without_default_port<'a>(host: &'a str, scheme: &str) -> &'a str {
    let port = if scheme == "https" { ":443" } else { ":80" };
    host.strip_suffix(port).unwrap_or(host)
}

/// An element of `Forwarded`, unchecked.
#[derive(Debug, Default)]
struct Element {
    node: Option<String>,
    proto: Option<String>,
    host: Option<String>,
    others: Vec<String>,
    pairs: usize,
}

/// Reads `Forwarded`; `None` if it was not sent. A malformed one counts as empty.
fn rfc7239(headers: &HeaderMap, proxies: &[Network]) -> Option<Forwarded> {
    let lines: Vec<_> = headers.get_all("forwarded").iter().map(HeaderValue::to_str).collect();
    if lines.is_empty() {
        return None;
    }
    let text: Option<Vec<_>> = lines.into_iter().map(Result::ok).collect();
    let Some(elements) = text.and_then(|lines| elements(&lines.join(","))) else {
        return Some(Forwarded::default());
    };
    let (mut scheme, mut host) = (None, None);
    for element in elements.iter().rev() {
        scheme = element.proto.as_deref().and_then(self::scheme).or(scheme);
        host = element.host.as_deref().and_then(self::host).or(host);
        if !element.node.as_deref().is_some_and(|node| is_proxy(node, proxies)) {
            break;
        }
    }
    Some(Forwarded::new(scheme, host, String::new()))
}

/// The elements of `Forwarded`; `None` if it is malformed.
fn elements(text: &str) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    let mut element: Option<Element> = None;
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            ',' => {
                elements.extend(element.take());
                rest = rest[1..].trim_start();
            }
            // Superfluous semicolons before the first pair and after the last are harmless.
            ';' => rest = rest[1..].trim_start(),
            _ => {
                let (name, after) = rest.split_once('=')?;
                let (value, after) = value(after)?;
                element.get_or_insert_default().set(name, value)?;
                rest = after.trim_start();
                if !rest.is_empty() && !rest.starts_with([',', ';']) {
                    return None;
                }
            }
        }
    }
    elements.extend(element);
    Some(elements)
}

impl Element {
    /// Sets a pair; `None` if the name is invalid, repeated, or one too many.
    fn set(&mut self, name: &str, value: String) -> Option<()> {
        self.pairs += 1;
        if self.pairs > MAX_PAIRS {
            return None;
        }
        let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let name = name.to_ascii_lowercase();
        let place = match name.as_str() {
            "for" => &mut self.node,
            "proto" => &mut self.proto,
            "host" => &mut self.host,
            _ if is_token && !self.others.contains(&name) => {
                self.others.push(name);
                return Some(());
            }
            _ => return None,
        };
        place.replace(value).is_none().then_some(())
    }
}

/// A token or a quoted string, and the rest of the text. Tokens with a colon or brackets are not allowed, but
/// are common.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ';', ' ', '\t']).unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        return (!token.is_empty() && !token.contains('"')).then(|| (token.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            _ => value.push(char),
        }
    }
    None
}

/// Reads `X-Forwarded-*`; `None` if none was sent.
fn x_forwarded(headers: &HeaderMap, proxies: &[Network]) -> Option<Forwarded> {
    let nodes = list(headers, "x-forwarded-for");
    // The number of trusted proxies on the path, besides the peer itself.
    let hops = nodes.iter().flatten().rev().take_while(|node| is_proxy(node, proxies)).count();
    let [proto, host, port, prefix] = ["proto", "host", "port", "prefix"]
        .map(|name| list(headers, &format!("x-forwarded-{name}")).map(|list| at(&list, hops)));
    if nodes.is_none() && [&proto, &host, &port, &prefix].into_iter().all(Option::is_none) {
        return None;
    }
    let [proto, host, port, prefix] = [proto, host, port, prefix].map(Option::flatten);
    let mut host = host.and_then(self::host);
    if let (Some(host), Some(port)) = (&mut host, port.and_then(|port| port.parse::<u16>().ok()))
        && !has_port(host)
    {
        *host = format!("{host}:{port}");
    }
    let prefix = prefix.and_then(self::prefix).unwrap_or_default();
    Some(Forwarded::new(proto.and_then(scheme), host, prefix))
}

/// The elements of a list over all lines of the header; `None` if it was not sent.
fn list<'a>(headers: &'a HeaderMap, name: &str) -> Option<Vec<&'a str>> {
    let mut lines = headers.get_all(name).iter().peekable();
    lines.peek()?;
    let members = lines.flat_map(|line| line.to_str().unwrap_or_default().split(','));
    Some(members.map(str::trim).collect())
}

/// The element that the outermost trusted proxy has added. There is only one where proxies replace the header
/// instead of extending it.
fn at<'a>(list: &[&'a str], hops: usize) -> Option<&'a str> {
    list.iter().rev().nth(hops).or_else(|| list.first()).copied()
}

fn scheme(text: &str) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|scheme| scheme.eq_ignore_ascii_case(text))
}

/// A host with or without a port, in lower case; `None` if it is malformed.
fn host(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (name, port) = if has_port(&text) { text.rsplit_once(':')? } else { (&*text, "1") };
    let is_name = |name: &str| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) && !name.is_empty()
    };
    let is_v6 = |name: &str| {
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
    };
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_host = is_port && (is_name(name) || is_v6(name)) && text.len() <= MAX_HOST_BYTES;
    is_host.then_some(text)
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

/// A path prefix without a trailing slash; `None` if it is malformed.
fn prefix(text: &str) -> Option<String> {
    let path = text.trim_end_matches('/');
    let is_segment = |segment: &str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        !segment.is_empty() && !segment.bytes().all(|b| b == b'.') && segment.bytes().all(is_plain)
    };
    if path.is_empty() {
        return text.starts_with('/').then(String::new);
    }
    let is_path = path.strip_prefix('/')?.split('/').all(is_segment) && path.len() <= MAX_PREFIX_BYTES;
    is_path.then(|| path.to_owned())
}

/// An address with or without a port, such as `192.0.2.1`, `192.0.2.1:4711` or `[2001:db8::1]:4711`.
fn address(node: &str) -> Option<IpAddr> {
    let bare = node.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| node.parse().ok().map(|node: SocketAddr| node.ip()))
}

fn is_proxy(node: &str, proxies: &[Network]) -> bool {
    address(node).is_some_and(|address| proxies.iter().any(|network| network.contains(address)))
}

#[cfg(test)]
mod tests;
