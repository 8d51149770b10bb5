//! Conversations: whatever callers call them, an agent that remembers by context tells nobody what another caller
//! said, and goes on with the same caller after a restart.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
};

use nuncio_hub::{
    NewApiKey,
    config::{Agent, AgentKind, AgentOrigin, Command, Config, Data, Format, Storage, Upstream},
};
use nuncio_protocol::{AgentCard, Artifact, Message, Part, SendMessageRequest, Version, op::Call};
use nuncio_server::{
    Runtime,
    bind::{self, BindOptions},
    testing::ScriptedExecutor,
};
use tokio::net::TcpListener;

use crate::{
    Running, file,
    wire::{Answer, WIRES, Wire},
};

/// The context id that all callers use.
const CONTEXT: &str = "main-of-everybody";

/// A program that keeps what it hears in a file of the conversation, and says all that is in it.
const PROGRAM: &str = r#"cat >> "$FOLDER/$NUNCIO_CONTEXT_ID"; cat "$FOLDER/$NUNCIO_CONTEXT_ID""#;

/// The same by what stands in the message itself.
const JSON_PROGRAM: &str = r#"
    read -r line
    context=$(printf '%s' "$line" | sed 's/.*"message":{[^}]*"contextId":"\([^"]*\)".*/\1/')
    printf '%s' "$line" | sed 's/.*"text":"\([^"]*\)".*/\1/' >> "$FOLDER/$context"
    printf '{"artifact":{"artifactId":"a","parts":[{"text":"%s"}]}}' "$(tr '\n' ' ' < "$FOLDER/$context")""#;

/// A program that keeps nothing, and says all that it is told of the conversation.
const TOLD_PROGRAM: &str = r#"
    read -r line
    words=$(printf '%s' "$line" | grep -o 'secret-of-[a-z]*-[0-9]*\|again' | sort -u | tr '\n' ' ')
    printf '{"text":"%s"}' "$words""#;

/// An agent on a socket that answers with all that it has heard in a conversation.
async fn remembering() -> String {
    let heard: Arc<Mutex<HashMap<String, Vec<String>>>> = Arc::default();
    let executor = ScriptedExecutor::new(move |cx, out| {
        let said = {
            let mut heard = heard.lock().unwrap();
            let said = heard.entry(cx.context_id.to_string()).or_default();
            said.push(cx.text().into_owned());
            said.join(" ")
        };
        async move { out.artifact(Artifact::new("heard", Part::text(said))).await.map(drop) }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let card = AgentCard::new("remembering", "Remembers.").served_at(&url).with_streaming();
    let runtime = Runtime::builder(card.clone(), executor).build();
    let agent = bind::Agent::new(Arc::new(runtime), &card, BindOptions::default()).unwrap();
    tokio::spawn(async move { axum::serve(listener, bind::router(&agent)).await });
    url
}

/// The agents that remember, each with a name.
async fn agents() -> Vec<(&'static str, AgentKind)> {
    let program = |format, script: &str| {
        let folder = file("memory");
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(format, "sh", ["-c", script].map(str::to_owned));
        command.environment.0.insert("FOLDER".to_owned(), folder.to_str().unwrap().to_owned());
        AgentKind::Command(Box::new(command))
    };
    let upstream = Upstream::new(remembering().await.parse().unwrap());
    vec![
        ("remote", AgentKind::Upstream(Box::new(upstream))),
        ("program", program(Format::Text, PROGRAM)),
        ("json-program", program(Format::Json, JSON_PROGRAM)),
        ("told-program", program(Format::Json, TOLD_PROGRAM)),
    ]
}

async fn start(data: &Path, name: &str, kind: &AgentKind) -> Running {
    let agent = Agent::new(name.parse().unwrap(), kind.clone(), AgentOrigin::File);
    Running::start(|config| {
        let data = Storage::of(Data::Sqlite { path: data.to_owned(), durability: Default::default() });
        // The older gRPC has no name for an agent.
        let default_agent = Some(name.to_owned());
        *config = Config { data, demo: false, default_agent, agents: vec![agent], ..config.clone() };
    })
    .await
}

fn say(text: &str) -> Call {
    let mut message = Message::user("m", [Part::text(format!("{text} "))]);
    message.context_id = Some(CONTEXT.into());
    Call::SendMessage(Box::new(SendMessageRequest { message, ..Default::default() }))
}

/// Says something, and is answered in its own words.
async fn told(hub: &Running, wire: Wire, agent: &str, key: &str, text: &str) -> String {
    let answer: Answer = wire.call(hub, agent, Some(key), say(text)).await.unwrap();
    assert!(answer.is_ok(), "{agent} {wire:?}: {}", answer.text());
    let told = answer.text();
    assert!(told.contains(text), "{agent} {wire:?}: it has heard it: {told}");
    assert!(told.contains(CONTEXT), "{agent} {wire:?}: the caller's own name comes back: {told}");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_what_another_caller_said() {
    for (agent, kind) in agents().await {
        let data = file("conversations.db");
        let hub = start(&data, agent, &kind).await;
        let mut keys = Vec::new();
        for (name, principal, tenant) in [
            ("ann", "ann", None),
            ("bob", "bob", None),
            ("north", "ann", Some("north")),
            ("south", "ann", Some("south")),
        ] {
            let (principal, tenant) = (Some(principal.to_owned()), tenant.map(str::to_owned));
            let new = NewApiKey { principal, tenant, ..NewApiKey::named(name) };
            keys.push((name, hub.keyring.create(new).await.unwrap().1.reveal().to_owned()));
        }
        for (number, wire) in WIRES.into_iter().enumerate() {
            for (name, key) in &keys {
                let told = told(&hub, wire, agent, key, &format!("secret-of-{name}-{number}")).await;
                for (other, _) in keys.iter().filter(|(other, _)| other != name) {
                    let secret = format!("secret-of-{other}-");
                    assert!(!told.contains(&secret), "{agent} {wire:?}: {name} is told {secret}: {told}");
                }
                // What was said before goes on, whatever the wire.
                let first = format!("secret-of-{name}-0");
                assert!(told.contains(&first), "{agent} {wire:?}: {name} is not told {first}: {told}");
            }
        }
        hub.stop().await;
        let hub = start(&data, agent, &kind).await;
        for (name, key) in &keys {
            let told = told(&hub, Wire::Rest(Version::V1_0), agent, key, "again").await;
            let first = format!("secret-of-{name}-0");
            assert!(told.contains(&first), "{agent}: after a restart {name} is not told {first}: {told}");
        }
        hub.stop().await;
    }
}
