//! Masks the possibly secret parts of addresses.

use crate::config::secret::HIDDEN;

/// Masks user info, query values and fragments of all addresses in a text.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>');
        let (address, behind) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        out.push_str(before);
        push_address(address, &mut out);
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Appends an address without its scheme.
fn push_address(address: &str, out: &mut String) {
    let mut address = address;
    if let Some(at) = end_of_user(address) {
        out.push_str(HIDDEN);
        address = &address[at..];
    }
    let (address, fragment) = split(address, '#');
    let (address, query) = split(address, '?');
    out.push_str(address);
    if let Some(query) = query {
        let pairs: Vec<_> = query.split('&').map(masked_pair).collect();
        out.push('?');
        out.push_str(&pairs.join("&"));
    }
    if fragment.is_some() {
        out.push('#');
        out.push_str(HIDDEN);
    }
}

/// The end of the user info, if there may be one. A password may contain characters that end a host,
/// unescaped, so a path with an `@` is masked as well. In a query an `@` is common, and is masked only if the
/// host before it has a port that is not a number.
fn end_of_user(address: &str) -> Option<usize> {
    let query = address.find(['?', '#']).unwrap_or(address.len());
    let is_port = |port: &str| port.ends_with(']') || port.bytes().all(|b| b.is_ascii_digit());
    let host = address[..query].split('/').next().unwrap_or_default();
    let is_host = host.rsplit_once(':').is_none_or(|(_, port)| is_port(port));
    address[..if is_host { query } else { address.len() }].rfind('@')
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// `name=***`; a value without a name is masked as a whole.
fn masked_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_in_an_address_is_masked() {
        for (text, expected) in [
            ("no address", "no address"),
            ("https://a.example/x/y", "https://a.example/x/y"),
            ("http://[::1]:2602/x", "http://[::1]:2602/x"),
            ("https://a.example/x?key=s3cret", "https://a.example/x?key=***"),
            ("https://a.example?key=s3cret&v=1&s3cret", "https://a.example?key=***&v=***&***"),
            ("https://a.example/#s3cret", "https://a.example/#***"),
            ("https://a.example/x?a=b#s3cret?c=d", "https://a.example/x?a=***#***"),
            ("https://me:s3cret@a.example/x", "https://***@a.example/x"),
            ("https://s3cret@a.example", "https://***@a.example"),
            ("https://me:1/s3cret@a.example/x", "https://***@a.example/x"),
            ("https://me:s3?cret@a.example/x", "https://***@a.example/x"),
            ("https://a.example/x?mail=me@s3cret", "https://a.example/x?mail=***"),
            ("http://[::1]/x?mail=me@s3cret", "http://[::1]/x?mail=***"),
            (
                "./agent --to https://a.example?k=s3cret --and 'http://u:s3cret@b'",
                "./agent --to https://a.example?k=*** --and 'http://***@b'",
            ),
        ] {
            assert_eq!(masked(text), expected, "{text}");
        }
    }
}
