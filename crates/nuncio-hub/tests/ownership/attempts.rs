//! Callers with many wrong credentials, and tokens that cannot be verified: on every wire, by the caller's address.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nuncio_hub::config::{Anonymous, Network, Source, Variables};
use serde_json::json;

use crate::{
    Running, file,
    refusals::{check, get_task, header},
    wire::{Answer, WIRES, get_as},
};

/// So many may be wrong in a minute (docs/operating.md, "Who may call").
const MAX_FAILURES: usize = 60;

/// Is wrong so often, as a caller whose request came through these proxies by what this header says.
async fn fail(hub: &Running, times: usize, headers: &[(&str, &str)]) {
    for number in 0..times {
        let answer = get_as(hub, "/agents", Some("nuncio_wrong"), headers).await;
        assert_eq!(answer.status, 401, "{number} {headers:?}: {}", answer.text());
    }
}

/// True if this caller has been wrong too often; and holds the answer to that.
fn is_limited(answer: &Answer) -> bool {
    if answer.status != 429 {
        return false;
    }
    let wait: u64 = header(answer, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(!answer.headers.contains_key("www-authenticate"), "{}", answer.text());
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_wrong_too_often_waits_on_every_wire_and_whoever_is_right_does_not() {
    let hub = Running::start(|_| {}).await;
    let key = hub.key("team-a", None).await;
    fail(&hub, MAX_FAILURES - 1, &[]).await;
    assert_eq!(get_as(&hub, "/agents", Some(&key), &[]).await.status, 200, "one more may be wrong");
    fail(&hub, 1, &[]).await;
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", Some("nuncio_wrong"), get_task()).await.unwrap();
        check(wire, &answer, 429, -32052, "RESOURCE_EXHAUSTED", "8");
        let wait: u64 = header(&answer, "retry-after").parse().unwrap();
        assert!((1..=60).contains(&wait), "{wire:?}: {wait}");
        // Others at that address go on, as if nobody had been wrong.
        let answer = wire.call(&hub, "echo", Some(&key), get_task()).await.unwrap();
        assert!(answer.text().replace("%20", " ").contains("not found"), "{wire:?}: {}", answer.text());
        // Nothing shown is no attempt.
        let answer = wire.call(&hub, "echo", None, get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
    }
    assert_eq!(get_as(&hub, "/agents", Some(&key), &[]).await.status, 200);
    assert!(is_limited(&get_as(&hub, "/agents", Some("nuncio_wrong"), &[]).await));
    assert_eq!(hub.denials("credentials_refused").await, MAX_FAILURES as u64);
    assert_eq!(hub.denials("attempts_limited").await, WIRES.len() as u64 + 1);
    let rows = hub.trail(2).await;
    let what: Vec<_> = rows.iter().map(|row| (&row["what"], &row["peer"])).collect();
    let peer = &json!("127.0.0.1");
    assert_eq!(what, [(&json!("credentials-refused"), peer), (&json!("attempts-limited"), peer)]);
}

/// The proxies that are trusted, who is wrong too often, and who has to wait for it: callers by what a proxy says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_has_the_address_that_trusted_proxies_say() {
    const XFF: &str = "x-forwarded-for";
    for (proxies, wrong, waits, goes_on) in [
        // Whoever else says so is not believed.
        ("", &[(XFF, "192.0.2.1")][..], &[(XFF, "192.0.2.2")][..], None),
        ("10.0.0.0/8", &[(XFF, "192.0.2.1")], &[("forwarded", "for=192.0.2.2")], None),
        ("127.0.0.1", &[(XFF, "192.0.2.1")], &[(XFF, "192.0.2.1")], Some((XFF, "192.0.2.2"))),
        (
            "127.0.0.1",
            &[("forwarded", "for=192.0.2.1")],
            &[(XFF, "192.0.2.1")],
            Some(("forwarded", "for=192.0.2.2")),
        ),
        // Of a list, what our own proxy has added.
        (
            "127.0.0.1",
            &[(XFF, "192.0.2.9, 192.0.2.1")],
            &[(XFF, "192.0.2.1")],
            Some((XFF, "192.0.2.1, 192.0.2.9")),
        ),
        // One subscriber.
        ("127.0.0.1", &[(XFF, "2001:db8::1")], &[(XFF, "2001:db8::ffff:2")], Some((XFF, "2001:db8:0:1::1"))),
        (
            "127.0.0.1",
            &[("forwarded", "for=\"[2001:db8::1]:4711\"")],
            &[(XFF, "2001:db8::9")],
            Some(("forwarded", "for=\"[2001:db8:0:1::1]\"")),
        ),
    ] {
        let case = format!("{proxies:?} {wrong:?}");
        let hub = Running::start(|config| {
            config.trusted_proxies.extend(proxies.parse::<Network>());
            config.identity.anonymous = Anonymous::Never;
        })
        .await;
        let key = hub.key("team-a", None).await;
        fail(&hub, MAX_FAILURES, wrong).await;
        for headers in [wrong, waits] {
            let answer = get_as(&hub, "/agents", Some("nuncio_wrong"), headers).await;
            assert!(is_limited(&answer), "{case} {headers:?}: {}", answer.text());
            let answer = get_as(&hub, "/agents", Some(&key), headers).await;
            assert_eq!(answer.status, 200, "{case} {headers:?}: {}", answer.text());
        }
        if let Some(other) = goes_on {
            let answer = get_as(&hub, "/agents", Some("nuncio_wrong"), &[other]).await;
            assert_eq!(answer.status, 401, "{case} {other:?}: {}", answer.text());
        }
    }
}

/// A token of this issuer that nobody has signed.
fn token(issuer: &str) -> String {
    let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let head = json!({ "alg": "EdDSA", "typ": "JWT", "kid": "one" });
    let claims = json!({ "iss": issuer, "aud": "nuncio", "sub": "ann", "exp": 4_000_000_000_u64 });
    format!("{}.{}.{}", part(head), part(claims), URL_SAFE_NO_PAD.encode([0; 64]))
}

/// It may be good: that is no attempt, however often it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_whose_issuer_does_not_answer_is_neither_good_nor_bad() {
    // Port 1 of loopback: nothing listens there.
    let issuer = "http://127.0.0.1:1";
    let path = file("issuer.toml");
    let text = format!("demo = true\n[[identity.jwt]]\nissuer = \"{issuer}\"\naudience = [\"nuncio\"]\n");
    std::fs::write(&path, text).unwrap();
    let source = Source { file: Some(path), variables: Variables::of(&[]), ..Source::default() };
    let identity = source.load().unwrap_or_else(|problems| panic!("{problems}")).config.identity;
    let hub = Running::start(|config| config.identity = identity).await;
    let key = hub.key("team-a", None).await;
    for wire in WIRES {
        for _ in 0..MAX_FAILURES / WIRES.len() + 1 {
            let answer = wire.call(&hub, "echo", Some(&token(issuer)), get_task()).await.unwrap();
            check(wire, &answer, 503, -32053, "UNAVAILABLE", "14");
            assert_eq!(header(&answer, "retry-after"), "5", "{wire:?}");
            assert_eq!(header(&answer, "www-authenticate"), "", "{wire:?}");
        }
        let answer = wire.call(&hub, "echo", Some(&token("http://elsewhere")), get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
        // Keys have nothing to do with it.
        let answer = wire.call(&hub, "echo", Some(&key), get_task()).await.unwrap();
        assert!(answer.text().replace("%20", " ").contains("not found"), "{wire:?}: {}", answer.text());
    }
    assert_eq!(hub.denials("credentials_refused").await, WIRES.len() as u64);
}
