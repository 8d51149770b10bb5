//! The table of what a caller must not reach, in every way to write it.

use proptest::{prelude::*, sample::select};

use super::*;

/// Ways to write an address of this kind: all are refused.
const REFUSED: &[(AddressKind, &str)] = &[
    (Loopback, "127.0.0.1 127.1 127.0.1 127.255.255.254 2130706433 0x7f000001 0x7f.1 0x7f.0.0.1 0177.0.0.1"),
    (Loopback, "017700000001 127.0.0.1. 127.1. 0X7F.0.0.1 127.000.000.001 %31%32%37.1 1２7.0.0.1"),
    (
        Loopback,
        "１２７.０.０.１ 127。0。0。1 ①②⑦.⓪.⓪.① 127.0.0.1%2e localhost LocalHost localhost. a.localhost",
    ),
    (Loopback, "a.b.LOCALHOST. loc%61lhost ｌｏｃａｌｈｏｓｔ localho\u{ad}st"),
    (Loopback, "[::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0.0.0.1]"),
    (Loopback, "[::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:7F00:0001] [0:0:0:0:0:ffff:127.0.0.1]"),
    (Loopback, "[64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [0064:ff9b:0:0:0:0:127.0.0.1]"),
    (Unspecified, "0.0.0.0 0 0. 0x 0x0 00 0.1 0.255.255.255 [::] [0::0] [::0.0.0.0]"),
    (Unspecified, "[::ffff:0.0.0.0] [::ffff:0:0] [64:ff9b::] [64:ff9b::0.0.0.1]"),
    (Private, "10.0.0.0 10.1 10.255.255.255 0xa.1 012.0.0.1 167772161 172.16.0.1 172.31.255.255 0xac100001"),
    (Private, "192.168.0.0 192.168.1 192.168.255.255 0xc0a80001 0300.0250.0.1"),
    (Private, "[::ffff:10.0.0.1] [::ffff:c0a8:1] [64:ff9b::10.0.0.1] [64:ff9b::ac10:1]"),
    (Private, "100.64.0.0 100.127.255.255 0x64400001 [::ffff:100.64.0.1] [64:ff9b::6440:1]"),
    (Private, "[fc00::] [fc00::1] [fd12:3456:789a::1] [fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]"),
    (LinkLocal, "169.254.0.0 169.254.1.1 169.254.255.255 0xa9fe0001 [::ffff:169.254.1.1] [fe80::] [fe80::1]"),
    (LinkLocal, "[febf:ffff::1] [64:ff9b::169.254.1.1]"),
    (Metadata, "169.254.169.254 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.254.43518 [::ffff:a9fe:a9fe]"),
    (
        Metadata,
        "[64:ff9b::a9fe:a9fe] 169.254.170.2 100.100.100.200 192.0.0.192 168.63.129.16 [fd00:ec2::254]",
    ),
    (
        Metadata,
        "[fd00:ec2::23] [fd20:ce::254] metadata.google.internal Metadata.Google.Internal. metadata.goog",
    ),
    (Multicast, "224.0.0.1 239.255.255.255 [ff00::] [ff02::1] [ff0e::1] [::ffff:224.0.0.1]"),
    (Documentation, "192.0.2.1 198.51.100.1 203.0.113.255 [2001:db8::1] [2001:db8:ffff::1] [3fff::1]"),
    (Documentation, "[3fff:fff:ffff::1] [::ffff:192.0.2.1]"),
    (
        Reserved,
        "192.0.0.0 192.0.0.8 192.88.99.1 198.18.0.0 198.19.255.255 240.0.0.1 255.255.255.255 0xffffffff",
    ),
    (Reserved, "4294967295 [2001:2::1] [2001:10::1] [2001:20::1] [2001:1ff::1] [fec0::1] [feff::1] [100::1]"),
    (
        Reserved,
        "[4000::1] [5f00::1] [e000::1] [1fff::1] [::ffff:0:127.0.0.1] [64:ff9b:2::1] [::ffff:240.0.0.1]",
    ),
    (
        Transition,
        "[2002:7f00:1::] [2002:a00:1::1] [2002:a9fe:a9fe::] [2002:808:808::1] [2001::1] [2001:0:a00:1::]",
    ),
    (
        Transition,
        "[64:ff9b:1::7f00:1] [64:ff9b:1::8.8.8.8] [::127.0.0.1] [::7f00:1] [::a00:1] [::2] [::8.8.8.8]",
    ),
];

const PUBLIC: &str = "example.com example.com. localhost.example notlocalhost metadata.google.internal.example intern \
    8.8.8.8 0x08080808 1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 \
    169.253.255.255 169.255.0.0 168.63.129.15 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.88.98.255 \
    192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 203.0.112.255 203.0.114.0 223.255.255.255 \
    [2000::1] [2001:200::1] [2001:db7::1] [2001:db9::1] [2003::1] [2606:4700::1111] [3ffe::1] [3fff:1000::1] \
    [::ffff:8.8.8.8] [64:ff9b::8.8.8.8] bücher.example";

fn url(text: &str) -> Url {
    Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(policy: &Policy, host: &str) -> Option<AddressKind> {
    match policy.check(&url(&format!("https://{host}/hook"))) {
        Ok(()) => None,
        Err(Refusal::Address { kind, .. }) => Some(kind),
        Err(other) => panic!("{host}: {other}"),
    }
}

/// All hosts of the table, one by one.
fn hosts() -> impl Iterator<Item = (AddressKind, &'static str)> {
    REFUSED.iter().flat_map(|(kind, hosts)| hosts.split(' ').map(|host| (*kind, host)))
}

#[test]
fn every_way_to_write_an_inner_address_is_refused() {
    for (kind, host) in hosts() {
        assert_eq!(refused(&Policy::default(), host), Some(kind), "{host}");
    }
}

#[test]
fn public_addresses_and_unknown_names_pass() {
    for host in PUBLIC.split_whitespace() {
        assert_eq!(refused(&Policy::default(), host), None, "{host}");
    }
}

#[test]
fn allowing_private_networks_opens_those_and_this_machine_and_nothing_else() {
    let policy = Policy { allow_private: true, ..Policy::default() };
    for (kind, host) in hosts() {
        let expected = (!matches!(kind, Loopback | Private)).then_some(kind);
        assert_eq!(refused(&policy, host), expected, "{host}");
    }
}

#[test]
fn lists_open_and_close_networks() {
    let nets = |text: &str| text.split_whitespace().map(|net| net.parse().unwrap()).collect::<Vec<IpNet>>();
    for (allow, deny, host, expected) in [
        ("10.2.0.0/16", "", "10.2.3.4", None),
        ("10.2.0.0/16", "", "10.3.0.1", Some(Private)),
        ("10.2.0.0/16", "", "[::ffff:10.2.3.4]", None),
        ("10.2.0.0/16", "", "[64:ff9b::10.2.3.4]", None),
        ("10.2.0.0/16", "", "[2002:a02:304::]", Some(Transition)),
        ("10.2.0.0/16", "10.2.3.0/24", "10.2.3.4", Some(AddressKind::Denied)),
        ("10.2.0.0/16", "10.2.3.0/24", "10.2.4.4", None),
        ("fd12::/16", "", "[fd12::1]", None),
        ("169.254.169.254/32", "", "169.254.169.254", None),
        ("169.254.169.254/32", "", "metadata.google.internal", None),
        ("169.254.169.254/32", "", "169.254.169.253", Some(LinkLocal)),
        ("127.0.0.0/8", "", "localhost", None),
        ("::1/128", "", "localhost", None),
        ("::1/128", "", "127.0.0.1", Some(Loopback)),
        ("", "8.8.8.0/24", "8.8.8.8", Some(AddressKind::Denied)),
        ("", "8.8.8.0/24", "[::ffff:8.8.8.8]", Some(AddressKind::Denied)),
        ("", "64:ff9b::/96", "[64:ff9b::8.8.8.8]", Some(AddressKind::Denied)),
        ("", "2606:4700::/32", "[2606:4700::1111]", Some(AddressKind::Denied)),
    ] {
        let policy = Policy { allow: nets(allow), deny: nets(deny), ..Policy::default() };
        assert_eq!(refused(&policy, host), expected, "{host} with {allow:?} but not {deny:?}");
    }
}

#[test]
fn schemes_users_and_ports() {
    let scheme = |text: &str| Some(Refusal::Scheme(text.to_owned()));
    for (text, expected) in [
        ("http://hooks.example", None),
        ("HTTPS://hooks.example", None),
        ("http:hooks.example", None),
        (r"https:\\hooks.example\x", None),
        ("ftp://hooks.example", scheme("ftp")),
        ("file:///etc/passwd", scheme("file")),
        ("file://localhost/etc/passwd", scheme("file")),
        ("gopher://hooks.example:70/_x", scheme("gopher")),
        ("unix:/var/run/docker.sock", scheme("unix")),
        ("http+unix://%2Fvar%2Frun%2Fdocker.sock/", scheme("http+unix")),
        ("ws://hooks.example", scheme("ws")),
        ("data:text/plain,x", scheme("data")),
        ("javascript:alert(1)", scheme("javascript")),
        ("https://user@hooks.example", Some(Refusal::Userinfo)),
        ("https://user:secret@hooks.example", Some(Refusal::Userinfo)),
        ("https://:secret@hooks.example", Some(Refusal::Userinfo)),
        ("https://hooks.example@8.8.8.8/", Some(Refusal::Userinfo)),
        ("http://hooks.example:80", None),
        ("http://hooks.example:443", None),
        ("https://hooks.example:80", None),
        ("https://hooks.example:1024", None),
        ("https://hooks.example:65535", None),
        ("http://hooks.example:0", Some(Refusal::Port(0))),
        ("http://hooks.example:22", Some(Refusal::Port(22))),
        ("https://hooks.example:25", Some(Refusal::Port(25))),
        ("http://hooks.example:1023", Some(Refusal::Port(1023))),
        ("http://hooks.example:00025", Some(Refusal::Port(25))),
    ] {
        assert_eq!(Policy::default().check(&url(text)).err(), expected, "{text}");
    }
    let strict = Policy { https_only: true, ports: vec![8443..=8443], ..Policy::default() };
    assert_eq!(strict.check(&url("https://hooks.example:8443/")), Ok(()));
    assert_eq!(strict.check(&url("https://hooks.example/")), Err(Refusal::Port(443)));
    assert_eq!(strict.check(&url("http://hooks.example:8443/")), Err(Refusal::NotHttps));
}

#[test]
fn what_is_no_address_at_all_does_not_even_parse() {
    for text in [
        "http://",
        "http://127.0.0.1.1/",
        "http://256.1.1.1/",
        "http://0x7f.0.0.0x1ff/",
        "http://4294967296/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[::1",
        "http://[127.0.0.1]/",
        "http://a b/",
        "http://a%00.example/",
        "http://hooks.example:65536/",
        "http://hooks.example:-1/",
    ] {
        assert!(Url::parse(text).is_err(), "{text}");
    }
}

#[test]
fn reasons_repeat_no_secret_and_no_resolved_address() {
    let reason = |text: &str| Policy::default().check(&url(text)).unwrap_err().to_string();
    assert_eq!(reason("https://0x7f.1/?key=secret"), "127.0.0.1 is a loopback address");
    assert_eq!(reason("https://[::ffff:a00:1]/"), "[::ffff:a00:1] is a private address");
    assert_eq!(reason("https://me:secret@hooks.example/"), "it holds a user or a password");
    let resolved = Refusal::Resolved { name: "hooks.example".into(), kind: Private };
    assert_eq!(resolved.to_string(), "hooks.example resolves to a private address");
}

/// Addresses of both families, most of them near the borders of the tables.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let old = (select(V4), any::<u32>(), -1_i64..=1).prop_map(|((network, _), bits, side)| {
        let inside = u32::from(network.network()) | (bits & u32::from(network.hostmask()));
        let beside = i64::from(inside) + side * (i64::from(u32::from(network.hostmask())) + 1);
        u32::try_from(beside).unwrap_or(inside)
    });
    let old = prop_oneof![old, any::<u32>()].prop_map(Ipv4Addr::from).boxed();
    let networks: Vec<Ipv6Net> = V6.iter().map(|row| row.0).chain([GLOBAL, NAT64]).collect();
    let new = (select(networks), any::<u128>())
        .prop_map(|(network, bits)| u128::from(network.network()) | (bits & u128::from(network.hostmask())));
    let new = prop_oneof![new, any::<u128>()].prop_map(Ipv6Addr::from);
    let mapped = old.clone().prop_map(|address| address.to_ipv6_mapped());
    prop_oneof![old.prop_map(IpAddr::V4), new.prop_map(IpAddr::V6), mapped.prop_map(IpAddr::V6)]
}

fn literal(address: IpAddr) -> Url {
    match address {
        IpAddr::V4(address) => url(&format!("https://{address}/")),
        IpAddr::V6(address) => url(&format!("https://[{address}]/")),
    }
}

/// The inner addresses by the methods of the standard library.
fn is_inner(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_unspecified()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6.is_unspecified()
        }
    }
}

proptest! {
    #[test]
    fn both_doors_agree_on_every_address(address in addresses(), allow_private: bool) {
        let policy = Policy { allow_private, ..Policy::default() };
        let by_text = policy.check(&literal(address)).map_err(|refusal| match refusal {
            Refusal::Address { kind, .. } => kind,
            other => panic!("{address}: {other}"),
        });
        prop_assert_eq!(by_text, policy.judge(address));
    }

    #[test]
    fn a_disguise_changes_nothing(bits: u32, allow_private: bool) {
        let policy = Policy { allow_private, ..Policy::default() };
        let address = Ipv4Addr::from(bits);
        let naked = policy.judge(address.into());
        prop_assert_eq!(policy.judge(address.to_ipv6_mapped().into()), naked);
        let translated = Ipv6Addr::from(u128::from(NAT64.network()) | u128::from(bits));
        prop_assert_eq!(policy.judge(translated.into()), naked);
        for opaque in [u128::from(bits), 0x2002 << 112 | u128::from(bits) << 80] {
            prop_assert!(policy.judge(Ipv6Addr::from(opaque).into()).is_err());
        }
    }

    #[test]
    fn what_the_standard_library_calls_inner_is_refused(address in addresses()) {
        prop_assert!(!is_inner(address) || Policy::default().judge(address).is_err());
    }

    #[test]
    fn no_text_makes_it_panic_or_reach_an_inner_address(host in "\\PC{0,40}") {
        let Ok(url) = Url::parse(&format!("http://{host}/")) else { return Ok(()) };
        if Policy::default().check(&url).is_ok() {
            let inner = match url.host() {
                Some(Host::Ipv4(address)) => is_inner(address.into()),
                Some(Host::Ipv6(address)) => is_inner(address.into()),
                // Such a name would pass the resolver by.
                Some(Host::Domain(name)) => name.parse::<IpAddr>().is_ok() || is_localhost(name),
                None => true,
            };
            prop_assert!(!inner, "{}", url);
        }
    }
}

#[test]
fn what_a_name_of_an_agent_never_leads_to() {
    let screen = Screen { named: vec!["169.254.7.7".parse().unwrap()] };
    for (address, expected) in [
        ("169.254.169.254", Err(Metadata)),
        ("169.254.1.1", Err(LinkLocal)),
        ("169.254.7.7", Ok(())),
        ("::ffff:169.254.169.254", Err(Metadata)),
        ("64:ff9b::a9fe:a9fe", Err(Metadata)),
        ("fe80::1", Err(LinkLocal)),
        ("fd00:ec2::254", Err(Metadata)),
        ("100.100.100.200", Err(Metadata)),
        ("168.63.129.16", Err(Metadata)),
        // An operator's agents are anywhere else.
        ("127.0.0.1", Ok(())),
        ("::1", Ok(())),
        ("10.0.0.1", Ok(())),
        ("fd12::1", Ok(())),
        ("198.18.0.1", Ok(())),
        ("192.0.2.1", Ok(())),
        ("93.184.216.34", Ok(())),
    ] {
        assert_eq!(screen.judge(address.parse().unwrap()), expected, "{address}");
    }
}
