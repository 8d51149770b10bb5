//! Headers as proxies and liars send them.

use http::HeaderName;

use super::*;

/// The base that a request from a trusted proxy is answered under, where we are `http://own:1`.
fn base(headers: &[(&str, &str)]) -> Option<String> {
    let proxies = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    Forwarded::read(&map, &proxies).and_then(|forwarded| forwarded.base("http", Some("own:1")))
}

/// Headers, and the base that they make.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

fn check(cases: &[Case<'_>]) {
    for (headers, expected) in cases {
        assert_eq!(base(headers).as_deref(), *expected, "{headers:?}");
    }
}

const FORWARDED: &str = "forwarded";

#[test]
fn one_element_says_scheme_and_host() {
    for (text, expected) in [
        ("proto=https;host=a.example", Some("https://a.example")),
        ("for=1.2.3.4;proto=https;by=5.6.7.8;host=a.example", Some("https://a.example")),
        ("Proto=HTTPS;Host=A.Example", Some("https://a.example")),
        ("proto=\"https\";host=\"a.example:8443\"", Some("https://a.example:8443")),
        ("proto = https", None),
        ("host=\"a\\.example\"", Some("http://a.example")),
        // A colon needs quotes, and often has none.
        ("host=a.example:8080", Some("http://a.example:8080")),
        ("host=\"[2001:DB8::1]:8443\";proto=https", Some("https://[2001:db8::1]:8443")),
        ("host=[2001:db8::1]", Some("http://[2001:db8::1]")),
        ("proto=https", Some("https://own:1")),
        ("host=a.example:443;proto=https", Some("https://a.example")),
        ("host=a.example:80", Some("http://a.example")),
        ("host=a.example:443", Some("http://a.example:443")),
        (" ; host=a.example ; ", Some("http://a.example")),
        ("host=a.example;ext-1=x", Some("http://a.example")),
        (", ,host=a.example,, ", Some("http://a.example")),
    ] {
        check(&[(&[(FORWARDED, text)], expected)]);
    }
}

#[test]
fn an_element_has_so_many_pairs() {
    for (others, expected) in [(MAX_PAIRS - 1, Some("http://a.example")), (MAX_PAIRS, None)] {
        let others: String = (0..others).map(|n| format!("ext-{n}=x;")).collect();
        for text in [format!("{others}host=a.example"), format!("host=a.example;{others}")] {
            check(&[(&[(FORWARDED, &text)], expected)]);
        }
        // Each element may have so many.
        let two = format!("{others}for=203.0.113.9,{others}host=a.example");
        check(&[(&[(FORWARDED, &two)], expected)]);
    }
}

#[test]
fn garbage_says_nothing() {
    for text in [
        "",
        ",",
        ";",
        "=",
        "host",
        "host=",
        "host=;proto=",
        "=a.example",
        "host=\"a.example",
        "host=\"a.example\\",
        "host=a\"b",
        "host=\"a.example\"x",
        "host=a.example b",
        "ho st=a.example",
        "host=a.example;host=b.example",
        "x=1;x=2;host=a.example",
        "host=user@a.example",
        "host=a.example/path",
        "host=\"a.example/../x\"",
        "host=a.example?x",
        "host=a.example#x",
        "host=\"a example\"",
        "host=\"<script>\"",
        "host=a.example:",
        "host=a.example:0",
        "host=a.example:99999",
        "host=a.example:+80",
        "host=:80",
        "host=[::1",
        "host=[a.example]",
        "host=::1",
        "host=\u{e4}.example",
        "proto=ftp",
        "proto=javascript",
        "proto=\"https, http\"",
    ] {
        check(&[(&[(FORWARDED, text)], None)]);
    }
    let long = format!("host={}.example", "a".repeat(300));
    check(&[(&[(FORWARDED, &long)], None)]);
}

#[test]
fn of_a_list_only_what_trusted_proxies_have_added_counts() {
    let evil = "proto=http;host=evil.example";
    for (rest, expected) in [
        // The peer had it from a caller: all before is the caller's own invention.
        ("for=203.0.113.9;proto=https;host=a.example", Some("https://a.example")),
        ("for=203.0.113.9;proto=https", Some("https://own:1")),
        ("for=unknown;host=a.example", Some("http://a.example")),
        ("for=_secret;host=a.example", Some("http://a.example")),
        ("host=a.example", Some("http://a.example")),
        // The peer had it from another proxy of ours, which had it from a caller.
        (
            "for=203.0.113.9;proto=https;host=a.example, for=10.0.0.1;proto=http;host=inner",
            Some("https://a.example"),
        ),
        (
            "for=203.0.113.9;proto=https;host=a.example, for=\"10.0.0.1:4711\";host=inner",
            Some("https://a.example"),
        ),
        (
            "for=203.0.113.9;proto=https;host=a.example, for=\"[fd00::1]:4711\", for=10.0.0.1",
            Some("https://a.example"),
        ),
        ("for=203.0.113.9;proto=https, for=10.0.0.1;host=inner", Some("https://inner")),
        ("for=203.0.113.9, for=203.0.113.10;host=a.example", Some("http://a.example")),
    ] {
        check(&[(&[(FORWARDED, &format!("{evil}, {rest}"))], expected)]);
        // The same over several lines.
        check(&[(&[(FORWARDED, evil), (FORWARDED, rest)], expected)]);
    }
    // A quote that never ends would swallow what the proxy adds; then nothing is believed.
    check(&[(&[(FORWARDED, "host=\"evil.example, for=203.0.113.9;host=a.example")], None)]);
}

#[test]
fn the_usual_headers_say_the_same_and_more() {
    check(&[
        (&[("x-forwarded-proto", "https")], Some("https://own:1")),
        (&[("x-forwarded-host", "a.example")], Some("http://a.example")),
        (&[("x-forwarded-host", "a.example"), ("x-forwarded-proto", "HTTPS")], Some("https://a.example")),
        (&[("x-forwarded-host", "a.example:8443")], Some("http://a.example:8443")),
        (
            &[
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-port", "8443"),
            ],
            Some("https://a.example:8443"),
        ),
        (
            &[("x-forwarded-host", "a.example"), ("x-forwarded-proto", "https"), ("x-forwarded-port", "443")],
            Some("https://a.example"),
        ),
        (&[("x-forwarded-host", "a.example:1"), ("x-forwarded-port", "2")], Some("http://a.example:1")),
        (&[("x-forwarded-host", "[fd00::1]"), ("x-forwarded-port", "2")], Some("http://[fd00::1]:2")),
        (&[("x-forwarded-host", "a.example"), ("x-forwarded-port", "x")], Some("http://a.example")),
        (&[("x-forwarded-host", "a.example"), ("x-forwarded-prefix", "/hub/")], Some("http://a.example/hub")),
        (&[("x-forwarded-prefix", "/x/y-z_1.2~")], Some("http://own:1/x/y-z_1.2~")),
        (&[("x-forwarded-host", "a.example"), ("x-forwarded-prefix", "/")], Some("http://a.example")),
        // Who asked is no business of the card.
        (&[("x-forwarded-for", "203.0.113.9")], None),
        (&[("x-forwarded-port", "443")], None),
    ]);
    for wrong in
        ["hub", "//evil.example", "/a//b", "/../x", "/a b", "/a?b", "/a#b", "/%2e", "/\"", "/<", "/..", ""]
    {
        let with = |prefix| base(&[("x-forwarded-host", "a.example"), ("x-forwarded-prefix", prefix)]);
        assert_eq!(with(wrong).as_deref(), Some("http://a.example"), "{wrong:?}");
    }
}

#[test]
fn lists_of_the_usual_headers_are_read_as_deep_as_proxies_are_trusted() {
    let hosts = ("x-forwarded-host", "evil.example, a.example, inner");
    check(&[
        (&[hosts], Some("http://inner")),
        (&[hosts, ("x-forwarded-for", "198.51.100.1, 203.0.113.9")], Some("http://inner")),
        (&[hosts, ("x-forwarded-for", "203.0.113.9, 10.0.0.1")], Some("http://a.example")),
        (
            &[hosts, ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "10.0.0.1")],
            Some("http://a.example"),
        ),
        // A caller that claims to be a proxy is none.
        (&[hosts, ("x-forwarded-for", "10.0.0.9, 203.0.113.9")], Some("http://inner")),
        // Each proxy replaces.
        (
            &[("x-forwarded-host", "a.example"), ("x-forwarded-for", "203.0.113.9, 10.0.0.1")],
            Some("http://a.example"),
        ),
        (
            &[("x-forwarded-host", "evil.example"), ("x-forwarded-host", "a.example")],
            Some("http://a.example"),
        ),
        (&[("x-forwarded-host", "evil.example,")], None),
    ]);
}

/// A proxy that sets one kind hands on what its callers sent of the other.
#[test]
fn two_kinds_that_differ_are_not_believed() {
    check(&[
        (&[(FORWARDED, "host=evil.example"), ("x-forwarded-host", "a.example")], None),
        (&[(FORWARDED, "host=evil.example"), ("x-forwarded-for", "203.0.113.9")], None),
        (&[(FORWARDED, "host=evil.example;proto=https"), ("x-forwarded-proto", "https")], None),
        (&[(FORWARDED, "garbage"), ("x-forwarded-host", "evil.example")], None),
        (
            &[
                (FORWARDED, "for=1.2.3.4;host=a.example;proto=https"),
                ("x-forwarded-for", "1.2.3.4"),
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-port", "443"),
                ("x-forwarded-prefix", "/hub"),
                ("x-forwarded-proto", "https"),
            ],
            Some("https://a.example/hub"),
        ),
    ]);
}

/// The caller's address, for the throttle of wrong credentials.
#[test]
fn the_caller_is_whom_the_outermost_trusted_proxy_has_seen() {
    let proxies = ["10.0.0.0/8".parse().unwrap()];
    let xff = "x-forwarded-for";
    for (headers, expected) in [
        (&[][..], None),
        (&[(xff, "203.0.113.9")], Some("203.0.113.9")),
        (&[(xff, "198.51.100.1, 203.0.113.9")], Some("203.0.113.9")),
        (&[(xff, "198.51.100.1, 203.0.113.9, 10.0.0.1")], Some("203.0.113.9")),
        (&[(xff, "10.0.0.9, 10.0.0.1")], Some("10.0.0.9")),
        (&[(xff, "203.0.113.9:4711")], Some("203.0.113.9")),
        (&[(xff, "unknown")], None),
        (&[(xff, "203.0.113.9, unknown, 10.0.0.1")], None),
        (&[(FORWARDED, "for=203.0.113.9;proto=https, for=10.0.0.1")], Some("203.0.113.9")),
        (&[(FORWARDED, "for=\"[2001:db8::1]:4711\"")], Some("2001:db8::1")),
        (&[(FORWARDED, "proto=https")], None),
        (&[(FORWARDED, "garbage")], None),
        (&[(FORWARDED, "for=198.51.100.1"), (xff, "203.0.113.9")], None),
        (&[(FORWARDED, "for=203.0.113.9"), (xff, "203.0.113.9")], Some("203.0.113.9")),
    ] {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let expected = expected.map(|address: &str| address.parse().unwrap());
        assert_eq!(caller(&map, &proxies), expected, "{headers:?}");
    }
}
