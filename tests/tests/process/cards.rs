//! Cards: the operator's words, those of a remote agent, and the one card at the root.

use std::fs;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env},
    process::Output,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{directory, path, text};

/// The operator's description is on the card of every kind of agent, for readers of both versions.
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_words_are_on_the_card_of_every_kind() {
    let folder = directory("cards");
    let (file, theirs) = (folder.join("nuncio.toml"), folder.join("theirs.json"));
    fs::write(&theirs, remote_card().to_string()).unwrap();
    let mut configuration = String::new();
    let kinds = [
        ("demo", "demo = \"echo\"".to_owned()),
        ("program", "command = [\"cat\"]".to_owned()),
        ("remote", "url = \"http://127.0.0.1:9/a2a\"\ncard = \"theirs.json\"".to_owned()),
    ];
    for (name, kind) in &kinds {
        configuration += &format!("[agents.{name}]\n{kind}\n{}\n", WORDS.replace("NAME", name));
    }
    fs::write(&file, configuration).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    for (name, _) in &kinds {
        let card = Raw::new(hub.agent(name)).get("", &[]).await.json();
        assert_eq!(card["description"], "Knows every invoice.", "{name}: {card}");
        assert_eq!(
            card["provider"],
            json!({ "organization": "ACME", "url": "https://acme.example/" }),
            "{name}"
        );
        assert_eq!(card["iconUrl"], "https://acme.example/i.png", "{name}");
        assert_eq!(card["documentationUrl"], "https://acme.example/docs", "{name}");
        assert_eq!(
            card["skills"],
            json!([{
                "id": "invoices", "name": "Find invoices", "description": "Finds invoices.",
                "tags": ["invoices", "finance"], "examples": ["open ones"],
                "inputModes": ["application/json"], "outputModes": ["text/plain"],
            }]),
            "{name}"
        );
        let extension = |uri: &str| {
            let all = card["capabilities"]["extensions"].as_array().unwrap().iter();
            all.clone().find(|extension| extension["uri"] == uri).cloned().unwrap_or_default()
        };
        let schemas = extension("https://nuncio.dev/a2a/skill-schemas/v1");
        let schema = json!({ "type": "object", "required": ["customer"] });
        assert_eq!(
            schemas["params"],
            json!({ "skills": { "invoices": { "inputSchema": schema } } }),
            "{name}"
        );
        assert_eq!(extension("urn:acme:currency")["params"], json!({ "currency": "EUR" }), "{name}");
        let found = Raw::new(&*hub.base).get("/agents?skill=invoices&tag=finance", &[]).await.json();
        assert_eq!(found["agents"].as_array().map(Vec::len), Some(kinds.len()), "{found}");
    }
}

const WORDS: &str = r#"
description = "Knows every invoice."
tags = ["finance"]
icon = "https://acme.example/i.png"
documentation = "https://acme.example/docs"
provider = { organization = "ACME", url = "https://acme.example" }
[[agents.NAME.skills]]
id = "invoices"
name = "Find invoices"
description = "Finds invoices."
tags = ["invoices"]
examples = ["open ones"]
input_modes = ["application/json"]
output_modes = ["text/plain"]
input_schema = { type = "object", required = ["customer"] }
[[agents.NAME.extensions]]
uri = "urn:acme:currency"
params = { currency = "EUR" }
"#;

/// A card of 0.3, with what 1.0 has otherwise or not at all.
fn remote_card() -> Value {
    json!({
        "protocolVersion": "0.3.0", "name": "Billing", "description": "Knows invoices.", "version": "7",
        "url": "http://127.0.0.1:9/a2a", "preferredTransport": "JSONRPC",
        "provider": { "organization": "Theirs", "url": "https://theirs.example" },
        "iconUrl": "https://theirs.example/i.png", "documentationUrl": "https://theirs.example/docs",
        "capabilities": { "streaming": true, "stateTransitionHistory": true,
            "extensions": [{ "uri": "urn:theirs:x", "params": { "a": 1 } }] },
        "securitySchemes": { "k": { "type": "apiKey", "in": "header", "name": "x-key" } },
        "security": [{ "k": [] }],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "s", "name": "S", "description": "d", "tags": ["t"], "examples": ["e"],
            "inputModes": ["text/plain"], "outputModes": ["text/plain"], "security": [{ "k": [] }] }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_card_of_a_remote_agent_has_passes() {
    let folder = directory("passes");
    let (file, theirs) = (folder.join("nuncio.toml"), folder.join("theirs.json"));
    fs::write(&theirs, remote_card().to_string()).unwrap();
    for mode in ["durable", "proxy"] {
        let remote = format!("url = \"http://127.0.0.1:9/a2a\"\ncard = \"theirs.json\"\nmode = \"{mode}\"");
        fs::write(&file, format!("[agents.billing]\n{remote}\n")).unwrap();
        let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
        let (card, theirs) = (Raw::new(hub.agent("billing")).get("", &[]).await.json(), remote_card());
        for key in
            ["name", "description", "version", "provider", "iconUrl", "documentationUrl", "defaultInputModes"]
        {
            assert_eq!(card[key], theirs[key], "{mode} {key}");
        }
        let skill = &card["skills"][0];
        for key in ["id", "name", "description", "tags", "examples", "inputModes", "outputModes", "security"]
        {
            assert_eq!(skill[key], theirs["skills"][0][key], "{mode} {key}");
        }
        // As 1.0 has it.
        assert_eq!(skill["securityRequirements"], json!([{ "schemes": { "k": {} } }]), "{mode}");
        let scheme = &card["securitySchemes"]["k"];
        assert_eq!((&scheme["type"], &scheme["name"]), (&json!("apiKey"), &json!("x-key")), "{mode}");
        assert_eq!(scheme["apiKeySecurityScheme"]["name"], "x-key", "{mode}");
        assert_eq!(card["capabilities"]["stateTransitionHistory"], true, "{mode}: {card}");
        assert_eq!(card["capabilities"]["extensions"][0], theirs["capabilities"]["extensions"][0], "{mode}");
        assert_eq!(
            card.get("security").or(card.get("securityRequirements")),
            None,
            "the hub asks for nothing"
        );
    }
}

/// The only agent needs no `--default`; when it is not the only one any more, whoever made it so is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_agent_answers_at_the_root() {
    let folder = directory("root");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let one = "[agents.one]\ndemo = \"echo\"\n";
    fs::write(&file, one).unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    assert_eq!(hub.announced["defaultAgent"], "one");
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
    };
    let root = Raw::new(&*hub.base);
    let card = async || {
        let answer = root.get("/.well-known/agent-card.json", &[]).await;
        (answer.status == 200).then(|| answer.json())
    };
    // As clients of either version and of any binding would call it.
    let answers = async || {
        let sent = cli(&["send", &hub.base, "hello"]).await;
        assert_eq!((sent.code, &*sent.stdout), (Some(0), "hello\n"), "{sent:?}");
        let shown = card().await.unwrap();
        let grpc = |interface: &&Value| interface["protocolBinding"] == "GRPC";
        let interfaces = shown["supportedInterfaces"].as_array().unwrap().iter().filter(grpc);
        let listed: Vec<_> = interfaces.map(|one| (text(&one["protocolVersion"]), &one["tenant"])).collect();
        assert_eq!(listed, [("1.0", &Value::Null), ("0.3", &Value::Null)]);
        text(&shown["name"]).to_owned()
    };
    const GONE: &str = "no agent answers at the root any more: one did";
    const ADVICE: &str = "--default one";
    assert_eq!(answers().await, "one");

    let added = ask(&["agent", "add", "two", "http://127.0.0.1:9"]).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(added.stderr.contains(GONE) && added.stderr.contains(ADVICE), "{added:?}");
    assert_eq!(card().await, None);
    hub.process.says("no agent answers at the root any more").await;
    assert_eq!(ask(&["agent", "remove", "two"]).await.code, Some(0));
    assert_eq!(answers().await, "one");

    let two = format!("{one}[agents.two]\ndemo = \"slow\"\n");
    fs::write(&file, &two).unwrap();
    let reloaded = ask(&["config", "reload"]).await;
    // The hub may have read the file by itself before.
    let was_first = !reloaded.stderr.contains("has not changed");
    assert_eq!(was_first, reloaded.stderr.contains(GONE) && reloaded.stderr.contains(ADVICE), "{reloaded:?}");
    eventually("the log tells, too", async || {
        (hub.process.stderr().matches("no agent answers at the root any more").count() == 2).then_some(())
    })
    .await;
    assert_eq!(card().await, None);

    fs::write(&file, format!("default_agent = \"one\"\n{two}")).unwrap();
    let reloaded = ask(&["config", "reload"]).await;
    assert!(reloaded.code == Some(0) && !reloaded.stderr.contains("root"), "{reloaded:?}");
    assert_eq!(answers().await, "one");
}
