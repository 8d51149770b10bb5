//! Webhooks of a hub: who it is, where it goes, and what the options of `serve` change about that.

use std::fs;

use nuncio_client::{
    Receiver,
    receiver::{Notification, Proof},
};
use nuncio_protocol::Version;
use nuncio_server::testing::postgres;
use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    receiver::Receiver as Raw,
    webhook::Webhook,
};
use serde_json::Value;

use crate::{directory, path, wrong_input::check};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn send(hub: &Hub, url: &str, more: &[&str]) -> nuncio_tests::process::Output {
    let mut args = vec!["send", "", "hello", "--push", url, "--push-token", "t0ken"];
    let agent = hub.agent("echo");
    args[1] = &agent;
    args.extend(more);
    cli(&args).await
}

/// The four notifications of a task of `echo`.
async fn four(webhook: &mut Webhook) -> Vec<Notification> {
    let mut all = Vec::new();
    while all.len() < 4 {
        all.push(webhook.next().await);
    }
    all
}

fn key(proof: &Proof) -> Option<String> {
    if let Proof::Key { kid } = proof { Some(kid.clone()) } else { None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_signed_by_the_published_key_and_by_the_secret_also_after_a_restart() {
    let folder = directory("signed-webhooks");
    let (data, secret) = (folder.join("nuncio.db"), folder.join("secret"));
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let args = ["--data", path(&data), "--allow-private-push", "--push-secret-file", path(&secret)];
    let mut signed_by = Vec::new();
    for version in ["1.0", "0.3"] {
        let hub = Hub::start(&args).await;
        let jwks = format!("{}/.well-known/jwks.json", hub.base).parse().unwrap();
        let all = Receiver::builder().token("t0ken").secret(SECRET.parse().unwrap()).jwks_url(jwks);
        let mut webhook = Webhook::open(all).await;
        let url = webhook.url.clone();
        assert_eq!(send(&hub, &url, &["--a2a-version", version]).await.code, Some(0));
        for notification in four(&mut webhook).await {
            // Every configured kind of proof has to hold, or it is refused.
            assert!(
                notification.proofs.contains(&Proof::Secret) && notification.proofs.contains(&Proof::Token)
            );
            assert_eq!(notification.version, Version::parse(version).unwrap());
            assert!(notification.id.is_some() && notification.attempt == Some(1));
            signed_by.extend(notification.proofs.iter().filter_map(key));
        }
    }
    assert_eq!(signed_by.len(), 8);
    signed_by.dedup();
    assert_eq!(signed_by.len(), 1, "the key stays: {signed_by:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_notifications_go_is_the_operators_to_say() {
    // REQ-168
    let mut webhook = Webhook::open(Receiver::builder().token("t0ken")).await;
    let url = webhook.url.clone();
    let by_name = url.replace("127.0.0.1", "localhost");
    let refused = |why: &'static str| Some(why);
    let cases: [(&[&str], Option<&str>); 6] = [
        (&[], refused("webhooks on loopback addresses are not allowed by this hub")),
        (
            &["--allow-push", "10.0.0.0/8"],
            refused("webhooks on loopback addresses are not allowed by this hub"),
        ),
        (&["--allow-private-push", "--deny-push", "127.0.0.0/8"], refused("127.0.0.1 is")),
        (&["--allow-private-push", "--push-https-only"], refused("expected https")),
        (&["--no-push"], refused("not supported")),
        (&["--allow-push", "127.0.0.0/8"], None),
    ];
    for (args, expected) in cases {
        let hub = Hub::start(args).await;
        let sent = send(&hub, &url, &[]).await;
        match expected {
            Some(why) => {
                assert!(sent.code != Some(0) && sent.stderr.contains(why), "{args:?}: {sent:?}");
                // A name is judged when it is resolved: with one family of addresses left it may be named.
                if !args.contains(&"--deny-push") {
                    assert_ne!(send(&hub, &by_name, &[]).await.code, Some(0), "{args:?}");
                }
            }
            None => {
                assert_eq!(sent.code, Some(0), "{args:?}: {sent:?}");
                four(&mut webhook).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_receivers_of_the_old_version_get_can_be_chosen() {
    let raw = Raw::start().await;
    let hub = Hub::start(&["--allow-private-push", "--push-dialect", "neuralpost"]).await;
    let sent = send(&hub, &raw.url("/hook"), &["--a2a-version", "0.3"]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let posts = raw.expect("/hook", 4).await;
    for post in posts {
        let body: Value = serde_json::from_slice(&post.body).unwrap();
        assert_eq!(body["jsonrpc"], "2.0");
        assert!(body["result"]["kind"].is_string(), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_options_is_said_at_once() {
    let folder = directory("wrong-webhooks");
    let (short, none) = (folder.join("short"), folder.join("none"));
    fs::write(&short, "whsec_AAAA").unwrap();
    for ([option, value], code, words) in [
        (["--push-secret-file", path(&none)], 2, "cannot be read"),
        (["--push-secret-file", path(&short)], 2, "openssl rand"),
        (["--push-give-up-hours", "0"], 2, "1 or more"),
        (["--allow-push", "here"], 2, "10.0.0.0/8"),
        (["--key-file", path(&short)], 1, "openssl rand -base64 32"),
    ] {
        let args = ["serve", "--demo", "--listen", "127.0.0.1:0", option, value];
        check(&args, code, &[words]).await;
    }
    // Hubs that share a database share a key, and nobody can guess which.
    let database = postgres::database().await;
    let args = ["serve", "--demo", "--listen", "127.0.0.1:0"];
    let output = cli_with_env(&args, &[("NUNCIO_DATA", &database)]).await;
    assert!(output.code != Some(0) && output.stderr.contains("--key-file"), "{output:?}");
    assert!(output.stderr.contains("--no-push"), "{output:?}");
}
