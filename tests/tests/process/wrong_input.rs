//! Mistakes on the command line: each message says what to do (house rule 30).

use std::net::TcpListener;

use nuncio_tests::hub::{Hub, cli, cli_with_env, cli_with_stdin, start};
use serde_json::Value;

/// Runs a command that is wrong, and looks for words in what it says.
pub(crate) async fn check(args: &[&str], code: i32, words: &[&str]) {
    let output = cli(args).await;
    assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
    assert_eq!(output.stdout, "", "{args:?}: nothing on stdout");
    assert!(output.stderr.starts_with("error: "), "{args:?}: {output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{args:?}: expected {word:?} in {:?}", output.stderr);
    }
}

/// An address where nobody listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_cannot_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let in_use = format!(
        "error: cannot listen on {address}: the address is in use, perhaps by another hub; stop it, or choose another port \
         with --listen"
    );
    check(&["serve", "--demo", "--listen", &address], 1, &[&in_use]).await;
    let admin = ["serve", "--demo", "--listen", "127.0.0.1:0", "--admin", &address];
    check(&admin, 1, &["cannot listen on", &address, "the address is in use", "--admin off"]).await;
    let free = ["serve", "--demo", "--listen", "127.0.0.1:0"];
    let with = |more: &[&'static str]| [&free, more].concat();
    let alone = ["serve", "--listen", "127.0.0.1:0", "--admin", "off"];
    check(&alone, 2, &["no agent to serve", "--demo", "agent add"]).await;
    check(&with(&["--default", "nope"]), 2, &["--default: ", "echo, slow, conformance"]).await;
    check(&with(&["--public-url", "ftp://x.example"]), 2, &["--public-url", "https://"]).await;
    check(&["serve", "--demo", "--listen", "0.0.0.0:0"], 2, &["127.0.0.1", "--allow-anonymous"]).await;
    check(&["serve", "--demo", "--listen", "localhost"], 2, &["--listen"]).await;
    check(&with(&["--profile", "nope"]), 2, &["full", "minimal"]).await;
    check(&with(&["--drain-seconds=-1"]), 2, &["--drain-seconds"]).await;
    check(&with(&["--idle-seconds", "0"]), 2, &["--idle-seconds: ", "1 or more"]).await;
    check(&with(&["--public-url", "https://me:pw@x.example"]), 2, &["--public-url", "credentials"]).await;
    check(&with(&["--trust-proxy", "lan"]), 2, &["--trust-proxy", "10.0.0.0/8"]).await;
    let words = &["--trust-proxy: ", "no credentials are configured", "--no-anonymous", "--allow-anonymous"];
    check(&with(&["--trust-proxy", "127.0.0.1", "--allow-host", "a.example"]), 2, words).await;
    check(&with(&["--no-anonymous", "--allow-anonymous"]), 2, &["cannot be used with"]).await;
    check(&with(&["--tls-cert", "c.pem"]), 2, &["--tls-key"]).await;
    check(&with(&["--tls-key", "k.pem"]), 2, &["--tls-cert"]).await;
    check(&with(&["--tls-cert", "no/c.pem", "--tls-key", "k.pem"]), 1, &["--tls-cert no/c.pem", "PEM"]).await;
    check(&with(&["--card-kid", "k"]), 2, &["--card-key"]).await;
    check(&with(&["--card-key", "no/k.pem"]), 1, &["--card-key no/k.pem", "PEM"]).await;
    let two = ["--card-key", "k.pem", "--card-kid", "a", "--card-kid", "b"];
    check(&with(&two), 2, &["--card-kid a --card-kid b", "one for each --card-key"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_one_has_to_say_so() {
    let anyone = ["serve", "--demo", "--listen", "0.0.0.0:0", "--allow-anonymous"];
    check(&anyone, 2, &["--public-url", "http://HOST:0"]).await;
    let mut hub = start(&[&anyone[..], &["--public-url", "http://hub.example", "-o", "json"]].concat());
    let line = hub.line().await.unwrap_or_else(|| panic!("{}", hub.stderr()));
    assert!(line.contains("\"listen\":\"0.0.0.0:"), "{line}");
    assert!(line.contains("http://hub.example/agents/echo"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_an_agent_is_told_apart_from_a_wrong_one() {
    check(&["send", &nowhere(), "x"], 3, &["cannot connect to", "127.0.0.1"]).await;
    check(&["card", "get", &nowhere()], 3, &["cannot connect to"]).await;
    check(&["send", "http://", "x"], 2, &["http://"]).await;
    check(&["send", "ftp://agent.example", "x"], 2, &["http"]).await;
    let hub = Hub::start(&[]).await;
    for url in [hub.agent("nope"), hub.base.clone()] {
        let lists = format!("{}/agents lists the agents of a hub", hub.base);
        let words = ["no agent card at", "the address of the agent or of its card", &lists];
        check(&["send", &url, "x"], 3, &words).await;
    }
    let missing = format!("error: there is no agent ecko at {}: no agent card at ", hub.base);
    check(&["send", &hub.agent("ecko"), "x"], 3, &[&missing, "did you mean echo?"]).await;
    check(&["send", &hub.agent("nope"), "x"], 3, &["has conformance, echo, slow"]).await;
    let get = "for a task of your own at an agent: ";
    check(&["task", "show", &hub.agent("echo"), "t-1"], 2, &[get, " task get URL ID"]).await;
}

/// The hub answers that the agent is away and when to come back; meanwhile the command is not silent.
#[tokio::test(flavor = "multi_thread")]
async fn each_retry_of_a_stream_is_announced() {
    let away = format!("away={}", nowhere());
    let hub = Hub::of_agents("127.0.0.1:0", &["--agent", &away]).await;
    let sent = cli(&["send", &hub.agent("away"), "x", "--stream", "--timeout", "2"]).await;
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let first = sent.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("the agent cannot be reached; trying again in "), "{sent:?}");
    assert!(first.ends_with(" s (1 of 4)"), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_sent_is_checked_before_anybody_is_called() {
    let url = nowhere();
    let send = |more: &[&'static str]| [&["send", &*url, "x"], more].concat();
    check(&send(&["--data", "{"]), 2, &["--data {", "expected JSON"]).await;
    check(&send(&["--metadata", "novalue"]), 2, &["--metadata novalue", "KEY=VALUE"]).await;
    check(&send(&["--file", "no/such/file"]), 2, &["--file no/such/file: cannot be read"]).await;
    check(&send(&["-H", "nocolon"]), 2, &["--header", "'Name: value'"]).await;
    check(&send(&["-H", "b ad: x"]), 2, &["b ad"]).await;
    check(&send(&["-H", "Name: a\nb"]), 2, &["Name"]).await;
    check(&send(&["-H", "a2a-version: 0.3"]), 2, &["--header a2a-version", "--a2a-version"]).await;
    check(&send(&["--extension", ""]), 2, &["--extension"]).await;
    check(&send(&["--stream", "--no-wait"]), 2, &["--stream", "--no-wait"]).await;
    check(&send(&["--a2a-version", "2.0"]), 2, &["expected 1.0 or 0.3"]).await;
    for timeout in ["soon", "0", "0.0", "inf"] {
        check(&[&send(&[])[..], &["--timeout", timeout]].concat(), 2, &["--timeout"]).await;
    }
    check(&send(&["--ca", "no/such/file"]), 2, &["--ca no/such/file: cannot be read"]).await;
    check(&send(&["--ca", "Cargo.toml"]), 2, &["--ca Cargo.toml: no certificate"]).await;
    check(&send(&["--client-cert", "x"]), 2, &["--client-key"]).await;
    check(
        &send(&["--client-cert", "Cargo.toml", "--client-key", "x"]),
        2,
        &["--client-key x: cannot be read"],
    )
    .await;
    check(&send(&["--oauth-client-id", "me"]), 2, &["--oauth-token-url"]).await;
    let client = &["--oauth-token-url", "http://login.example/token", "--oauth-client-id", "me"];
    check(&send(client), 2, &["--oauth-client-id me", "NUNCIO_OAUTH_SECRET"]).await;
    let output = cli_with_env(&send(client), &[("NUNCIO_OAUTH_SECRET", "s3cret")]).await;
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.starts_with("error: --oauth-token-url: expected https"), "{output:?}");
    check(&["card", "verify", &url, "--key", "no/such/file"], 2, &["--key no/such/file: cannot be read"])
        .await;
    check(&["card", "verify", &url, "--key", "Cargo.toml"], 2, &["--key Cargo.toml"]).await;
    check(
        &["card", "sign", "no/card", "--key", "no/key", "--kid", "k"],
        2,
        &["--key no/key: cannot be read"],
    )
    .await;
    check(&send(&["--log-level", "blah"]), 2, &["--log-level", "nuncio_server=debug"]).await;
    check(&["task", "list", &url, "--state", "busy"], 2, &["input-required"]).await;
    let output = cli_with_stdin(&["send", &url], " \n").await;
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("the message is empty"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn help_says_where_the_key_comes_from() {
    for command in ["send", "task get", "task list", "task cancel", "task watch", "card get", "card verify"] {
        let args: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = cli(&args).await.stdout;
        assert!(help.contains("environment variable NUNCIO_KEY"), "{command}: {help}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_without_an_id_says_what_is_missing() {
    let url = nowhere();
    let words = ["missing the id of the task to cancel at ", &url, " task list "];
    check(&["task", "cancel", &url], 2, &words).await;
}

/// With `-o json` a program reads errors as it reads everything else: one document, on stderr.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_json_where_the_output_is() {
    let hub = Hub::start(&[]).await;
    let (echo, nowhere) = (hub.agent("echo"), nowhere());
    for (args, code, message, reason) in [
        // Of clap, of a command, of the client, of the agent, of a hub that is not there.
        (&["send", "-o", "json", "--nope"][..], 2, "--nope", None),
        (&["task", "cancel", &nowhere, "-o", "json"], 2, "missing the id", None),
        (&["send", &nowhere, "x", "-o", "json"], 3, "cannot connect to", Some("UNAVAILABLE")),
        (&["task", "get", &echo, "none", "-o", "json"], 5, "task not found", Some("TASK_NOT_FOUND")),
        (&["config", "show", "--config", "no/file", "-o", "json"], 2, "no/file", None),
        (&["healthcheck", &nowhere, "-o", "json"], 1, "cannot connect to", Some("UNAVAILABLE")),
    ] {
        let output = cli(args).await;
        assert_eq!((output.code, &*output.stdout), (Some(code), ""), "{args:?}: {output:?}");
        let document: Value =
            serde_json::from_str(&output.stderr).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let error = &document["error"];
        assert_eq!(error["exitCode"], code, "{args:?}");
        assert!(error["message"].as_str().unwrap().contains(message), "{args:?}: {error}");
        assert_eq!(error["reason"].as_str(), reason, "{args:?}: {error}");
        assert_eq!(error["details"].is_array(), reason.is_some(), "{args:?}: {error}");
    }
    let late = cli(&["send", &echo, "hold", "--timeout", "0.5", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&late.stderr).unwrap();
    assert!(document["error"]["hint"].as_str().unwrap().contains(" task list "), "{late:?}");
}
