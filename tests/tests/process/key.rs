//! `nuncio key …`, as in the story of the one front door.

use nuncio_server::testing::postgres;
use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, start},
    process::Output,
    raw::Raw,
    within,
};
use serde_json::json;

use crate::{
    administration::{administered, says},
    directory, documents, path, text,
};

/// An upgrade publishes cards, so that the hub says which.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_needs_credentials_says_which_cards_are_public() {
    let state = directory("public-cards");
    let file = state.join("nuncio.toml");
    let agents = "[agents.a]\ndemo = \"echo\"\n[agents.b]\ndemo = \"echo\"\ncards = \"protected\"\n";
    for (identity, expected) in [
        ("", serde_json::Value::Null),
        ("[identity]\nanonymous = \"never\"\n", json!(["a"])),
        ("[identity]\nanonymous = \"never\"\ncards = \"protected\"\n", json!([])),
    ] {
        std::fs::write(&file, format!("{identity}{agents}")).unwrap();
        let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
        assert_eq!(hub.announced["publicCards"], expected, "{identity}");
        let raw = Raw::new(hub.base.clone());
        for (agent, is_public) in [("a", expected != json!([])), ("b", expected.is_null())] {
            let card = raw.get(&format!("/agents/{agent}"), &[]).await;
            assert_eq!(card.status, if is_public { 200 } else { 401 }, "{identity} {agent}");
        }
    }
    std::fs::write(&file, format!("[identity]\nanonymous = \"never\"\n{agents}")).unwrap();
    let hub = start(&["serve", "--listen", "127.0.0.1:0", "--config", path(&file)]);
    let says = "anybody can read the cards of a: ";
    eventually("the line", async || hub.stderr().contains(says).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_what_it_is_for_until_it_is_revoked() {
    let state = directory("key");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    let create = ["key", "create", "team-a", "--allow", "echo,slow", "--expires", "90d"];
    // It would be gone at the next restart, and the hub open again: that is said before it is made.
    says(&ask(&create).await, 2, &["in memory", "next restart", "\"never\"", "--data FILE", "--yes"]);
    assert_eq!(ask(&["key", "list"]).await.stdout, "", "none was made");
    let made = ask(&[&create[..], &["--yes"]].concat()).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("its next restart loses the key"), "{made:?}");
    let key = made.stdout.trim_end().to_owned();
    assert!(key.starts_with("nuncio_") && !key.contains(char::is_whitespace), "alone on stdout: {made:?}");
    assert!(made.stderr.contains("not shown again") && !made.stderr.contains(&key), "{made:?}");

    // The reason once, and the variable only for a caller without a key.
    let url = hub.agent("echo");
    for (env, expected) in [
        (&[][..], "send an API key or a token as Authorization: Bearer (set NUNCIO_KEY)\n"),
        (
            &[("NUNCIO_KEY", "wrong")],
            "there is no such key (the credentials come from the environment variable NUNCIO_KEY: correct or unset it)\n",
        ),
    ] {
        let refused = cli_with_env(&["send", &url, "hello"], env).await;
        assert!(refused.stderr.ends_with(expected), "{refused:?}");
        assert_eq!(refused.stderr.matches("there is no such key").count(), env.len(), "{refused:?}");
    }

    let send = async |agent: &str, key: &str| {
        cli_with_env(&["send", &hub.agent(agent), "hello"], &[("NUNCIO_KEY", key)]).await.code
    };
    assert_eq!(send("echo", &key).await, Some(0));
    assert_eq!(send("echo", "nuncio_wrong").await, Some(4));
    assert_eq!(
        cli(&["send", &hub.agent("echo"), "hello"]).await.code,
        Some(4),
        "nobody calls without one any more"
    );
    assert_eq!(send("conformance", &key).await, Some(3), "for this key there is no such agent");

    let listed = ask(&["key", "list"]).await;
    assert!(listed.stdout.contains("team-a") && listed.stdout.contains("echo,slow"), "{listed:?}");
    assert!(!listed.stdout.contains(&key));
    let rotated = ask(&["key", "rotate", "team-a", "--overlap", "1h"]).await;
    let newer = rotated.stdout.trim_end().to_owned();
    assert_ne!(newer, key);
    assert_eq!((send("echo", &key).await, send("echo", &newer).await), (Some(0), Some(0)));
    says(&ask(&["key", "revoke", "team-a"]).await, 0, &["Key team-a is revoked."]);
    assert_eq!((send("echo", &key).await, send("echo", &newer).await), (Some(4), Some(4)));
    assert!(ask(&["key", "show", "team-a"]).await.stdout.contains("revoked"));
    says(&ask(&["key", "delete", "team-a"]).await, 0, &["Key team-a is revoked and deleted."]);
    says(&ask(&["key", "show", "team-a"]).await, 5, &["there is no key team-a; `", " key list` lists them"]);
    let wrong = ["key", "create", "b", "--operations", "send", "--yes"];
    says(&ask(&wrong).await, 6, &["there are SendMessage"]);
    let trail = documents(&ask(&["trail", "--what", "key-created", "-o", "json"]).await);
    assert_eq!(trail.iter().map(|row| text(&row["what"])).collect::<Vec<_>>(), ["key-created"]);
    assert!(ask(&["trail"]).await.stdout.contains("credentials-refused"));

    let create = ["key", "create", "b", "--allow", "echo,ehco", "--yes"];
    let made = ask(&create).await;
    assert!(made.stderr.contains("there is no agent ehco yet; did you mean echo?"), "{made:?}");
    assert!(!made.stderr.contains("no agent echo"), "{made:?}");
    says(
        &ask(&create).await,
        6,
        &["there is a key of this name; `", " key rotate b`, or `", " key delete b` first"],
    );
    let secret = state.join("b.key");
    let rotated = ask(&["key", "rotate", "b", "--key-file", path(&secret)]).await;
    assert_eq!((rotated.code, &*rotated.stdout), (Some(0), ""), "{rotated:?}");
    let newer = std::fs::read_to_string(&secret).unwrap();
    assert!(
        rotated.stderr.contains("b.key; it is not shown again") && !rotated.stderr.contains(newer.trim())
    );
    assert_eq!(send("echo", newer.trim()).await, Some(0));
}

/// docs/operating.md: other hubs on the same database follow, and open streams of the key end.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_at_one_hub_is_worth_nothing_at_the_others() {
    let (data, state) = (postgres::database().await, directory("keys-of-two"));
    let token = state.join("hub.token");
    let args = ["--data", &data, "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let (first, second) = (Hub::start(&args).await, Hub::start(&["--data", &data]).await);
    let admin = format!("http://{}", text(&first.announced["admin"]["listen"]));
    let ask = async |args: &[&str]| {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
    };
    let made = ask(&["key", "create", "team-a"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!made.stderr.contains("restart"), "it is kept in the database: {made:?}");
    let bearer = format!("Bearer {}", made.stdout.trim_end());
    let raw = Raw::new(second.agent("echo"));
    let status = async |bearer: &str| {
        let headers = [("a2a-version", "1.0"), ("authorization", bearer)];
        raw.get("/tasks", &headers[..if bearer.is_empty() { 1 } else { 2 }]).await.status
    };
    // Nobody needs a key until there is one.
    eventually("the key at the other hub", async || (status("").await == 401).then_some(())).await;
    assert_eq!(status(&bearer).await, 200);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hold"}]});
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}});
    let headers = [("a2a-version", "1.0"), ("authorization", &*bearer)];
    let stream = within("the stream", raw.posting(&headers, call.to_string()).send()).await.unwrap();
    assert_eq!(stream.status(), 200);
    says(&ask(&["key", "revoke", "team-a"]).await, 0, &["Key team-a is revoked."]);
    eventually("its end at the other hub", async || (status(&bearer).await == 401).then_some(())).await;
    within("the end of the stream", stream.bytes()).await.unwrap();
}
