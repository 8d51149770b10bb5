//! Their clients against our agents.

use async_trait::async_trait;
use nuncio_hub::config::Mode;
use nuncio_protocol::{Artifact, Binding, Content, Part, Result, Version};
use nuncio_server::{Emitter, ExecContext, Executor, bind::BindOptions};
use nuncio_tests::{
    between::{Between, Relation, upstream},
    hub::Hub,
    peer,
    world::Server,
};

use crate::{
    quirks::skipped,
    sdk::{
        GO_1, GO_03, JAVASCRIPT_1, JAVASCRIPT_03, PYTHON_1, PYTHON_03, RUST_1, Sdk,
        Way::{self, Direct},
        durable, proxy,
    },
};

/// The names of all checks, in the order in which the clients run them. Those from `ask` on run with `--talk`, those
/// from `webhooks` on with `--push`.
const CHECKS: &[&str] = &[
    "card",
    "send",
    "stream",
    "get",
    "history_zero",
    "list_tasks",
    "not_found",
    "refused_stream",
    "cancel",
    "cancel_again",
    "finished",
    "parts",
    "subscribe",
];
const TALK: &[&str] = &["ask", "ask_by_stream", "message", "file"];
const PUSH: &[&str] = &["webhooks", "notified"];

/// A client, the wire that it uses, and the way to the agent.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) sdk: Sdk,
    pub(crate) version: Version,
    pub(crate) binding: Binding,
    pub(crate) way: Way,
}

/// Runs the client with these flags. Every check passes, but for those that the SDK cannot do.
async fn check(row: &Row, url: &str, flags: &[&str]) {
    let args = [row.sdk.args(row.version), flags].concat();
    let report = peer::check(&row.sdk.client(), url, row.binding, &args).await;
    let skipped = skipped(row.version, row.binding);
    assert_eq!(report.skipped, skipped, "{row:?}: the table does not know all that the client skips");
    let talk = if flags.contains(&"--talk") { TALK } else { &[] };
    let push = if flags.contains(&"--push") { PUSH } else { &[] };
    let expected: Vec<_> = [CHECKS, talk, push]
        .concat()
        .into_iter()
        .filter(|name| !skipped.iter().any(|line| line.starts_with(&format!("{name}: "))))
        .collect();
    assert_eq!(report.passed, expected, "{row:?}");
}

/// Runs the client against the agent of the binary, which also pushes, and against one that also asks back and answers
/// without a task.
async fn check_direct(row: &Row) {
    // The proto of 0.3 has no tenant, so that over it the hub can only be one agent.
    let only_one = row.version == Version::V0_3 && row.binding == Binding::Grpc;
    let default: &[&str] = if only_one { &["--default", "echo"] } else { &[] };
    let hub = Hub::start(&[&["--allow-private-push"], default].concat()).await;
    check(row, &hub.agent("echo"), &["--push"]).await;
    let server = Server::start(TalkingEcho, BindOptions::default(), |_| {}).await;
    check(row, &format!("http://{}", server.address), &["--talk"]).await;
    if row.sdk != RUST_1 {
        check_text(row).await;
    }
}

/// Runs the client against a program that says a text in pieces. The task has one text.
async fn check_text(row: &Row) {
    // Pauses, so that there are pieces.
    let program = r#"i=0
        while [ $i -lt 400 ]; do
            printf "token %s " $i
            i=$((i+1))
            [ $((i%100)) != 0 ] || sleep 0.15
        done"#;
    let agent = format!("tokens=cmd:sh -c '{program}'");
    let hub = Hub::start(&["--agent", &agent, "--default", "tokens"]).await;
    let args = [row.sdk.args(row.version), &["--text"]].concat();
    let report = peer::check(&row.sdk.client(), &hub.agent("tokens"), row.binding, &args).await;
    assert_eq!(report.passed, ["card", "text"], "{row:?}");
}

async fn check_through(row: &Row, relation: Relation) {
    let server = Server::start(TalkingEcho, BindOptions::default(), |_| {}).await;
    let agent = upstream(&format!("http://{}", server.address), relation);
    match relation.mode {
        // The hub has webhooks, whatever the agent can do.
        Mode::Durable => {
            let hub = Between::before(agent, true).await;
            check(row, &hub.url, &["--talk", "--push"]).await;
        }
        // The hub has webhooks if the agent has them, so that these are checked with an agent that has.
        Mode::Proxy => {
            let hub = Between::before(agent, false).await;
            check(row, &hub.url, &["--talk"]).await;
            let echo = Between::echo().await;
            let hub = Between::before(upstream(&echo.url, relation), true).await;
            check(row, &hub.url, &["--push"]).await;
        }
    }
}

macro_rules! clients {
    ($($name:ident: $sdk:ident $version:ident $binding:ident, $way:expr;)+) => {
        /// All rows of the table, each with its test below.
        pub(crate) const ROWS: &[Row] = {
            use Binding::{Grpc, HttpJson, JsonRpc};
            use Version::{V0_3, V1_0};
            &[$(Row { sdk: $sdk, version: $version, binding: $binding, way: $way }),+]
        };

        #[derive(Clone, Copy)]
        #[expect(non_camel_case_types, reason = "the names of the tests")]
        enum Index { $($name),+ }

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let row = &ROWS[Index::$name as usize];
                match row.way {
                    Direct => check_direct(row).await,
                    Way::Through(relation) => check_through(row, relation).await,
                }
            }
        )+
    };
}

// Behind a durable hub the agent speaks something else than the client, so that both are translated. Behind a proxy it
// speaks the same, which is relayed as it is, or something else; Go and Rust clients are cheap to start and meet both.
clients! {
    python_1_0_json_rpc: PYTHON_1 V1_0 JsonRpc, Direct;
    python_1_0_json_rpc_durable: PYTHON_1 V1_0 JsonRpc, durable(V0_3, HttpJson);
    python_1_0_json_rpc_proxy: PYTHON_1 V1_0 JsonRpc, proxy(V1_0, HttpJson);
    python_1_0_rest: PYTHON_1 V1_0 HttpJson, Direct;
    python_1_0_rest_durable: PYTHON_1 V1_0 HttpJson, durable(V0_3, JsonRpc);
    python_1_0_rest_relay: PYTHON_1 V1_0 HttpJson, proxy(V1_0, HttpJson);
    python_1_0_grpc: PYTHON_1 V1_0 Grpc, Direct;
    python_1_0_grpc_durable: PYTHON_1 V1_0 Grpc, durable(V0_3, JsonRpc);
    python_1_0_grpc_relay: PYTHON_1 V1_0 Grpc, proxy(V1_0, Grpc);
    python_1_0_speaking_0_3_json_rpc: PYTHON_1 V0_3 JsonRpc, Direct;
    python_1_0_speaking_0_3_json_rpc_durable: PYTHON_1 V0_3 JsonRpc, durable(V1_0, Grpc);
    python_1_0_speaking_0_3_json_rpc_relay: PYTHON_1 V0_3 JsonRpc, proxy(V0_3, JsonRpc);
    python_1_0_speaking_0_3_rest: PYTHON_1 V0_3 HttpJson, Direct;
    python_1_0_speaking_0_3_rest_durable: PYTHON_1 V0_3 HttpJson, durable(V1_0, Grpc);
    python_1_0_speaking_0_3_rest_proxy: PYTHON_1 V0_3 HttpJson, proxy(V1_0, Grpc);
    python_1_0_speaking_0_3_grpc: PYTHON_1 V0_3 Grpc, Direct;
    python_1_0_speaking_0_3_grpc_durable: PYTHON_1 V0_3 Grpc, durable(V1_0, HttpJson);
    python_1_0_speaking_0_3_grpc_relay: PYTHON_1 V0_3 Grpc, proxy(V0_3, Grpc);
    python_0_3_json_rpc: PYTHON_03 V0_3 JsonRpc, Direct;
    python_0_3_json_rpc_durable: PYTHON_03 V0_3 JsonRpc, durable(V1_0, HttpJson);
    python_0_3_json_rpc_proxy: PYTHON_03 V0_3 JsonRpc, proxy(V1_0, HttpJson);
    python_0_3_rest: PYTHON_03 V0_3 HttpJson, Direct;
    python_0_3_rest_durable: PYTHON_03 V0_3 HttpJson, durable(V1_0, JsonRpc);
    python_0_3_rest_relay: PYTHON_03 V0_3 HttpJson, proxy(V0_3, HttpJson);
    python_0_3_grpc: PYTHON_03 V0_3 Grpc, Direct;
    python_0_3_grpc_durable: PYTHON_03 V0_3 Grpc, durable(V1_0, JsonRpc);
    python_0_3_grpc_relay: PYTHON_03 V0_3 Grpc, proxy(V0_3, Grpc);
    javascript_1_0_json_rpc: JAVASCRIPT_1 V1_0 JsonRpc, Direct;
    javascript_1_0_json_rpc_durable: JAVASCRIPT_1 V1_0 JsonRpc, durable(V0_3, Grpc);
    javascript_1_0_json_rpc_relay: JAVASCRIPT_1 V1_0 JsonRpc, proxy(V1_0, JsonRpc);
    javascript_1_0_rest: JAVASCRIPT_1 V1_0 HttpJson, Direct;
    javascript_1_0_rest_durable: JAVASCRIPT_1 V1_0 HttpJson, durable(V0_3, Grpc);
    javascript_1_0_rest_proxy: JAVASCRIPT_1 V1_0 HttpJson, proxy(V1_0, Grpc);
    javascript_1_0_grpc: JAVASCRIPT_1 V1_0 Grpc, Direct;
    javascript_1_0_grpc_durable: JAVASCRIPT_1 V1_0 Grpc, durable(V0_3, HttpJson);
    javascript_1_0_grpc_relay: JAVASCRIPT_1 V1_0 Grpc, proxy(V1_0, Grpc);
    javascript_1_0_speaking_0_3_json_rpc: JAVASCRIPT_1 V0_3 JsonRpc, Direct;
    javascript_1_0_speaking_0_3_json_rpc_durable: JAVASCRIPT_1 V0_3 JsonRpc, durable(V1_0, HttpJson);
    javascript_1_0_speaking_0_3_json_rpc_proxy: JAVASCRIPT_1 V0_3 JsonRpc, proxy(V1_0, HttpJson);
    javascript_1_0_speaking_0_3_rest: JAVASCRIPT_1 V0_3 HttpJson, Direct;
    javascript_1_0_speaking_0_3_rest_durable: JAVASCRIPT_1 V0_3 HttpJson, durable(V1_0, JsonRpc);
    javascript_1_0_speaking_0_3_rest_relay: JAVASCRIPT_1 V0_3 HttpJson, proxy(V0_3, HttpJson);
    javascript_1_0_speaking_0_3_grpc: JAVASCRIPT_1 V0_3 Grpc, Direct;
    javascript_1_0_speaking_0_3_grpc_durable: JAVASCRIPT_1 V0_3 Grpc, durable(V1_0, JsonRpc);
    javascript_1_0_speaking_0_3_grpc_relay: JAVASCRIPT_1 V0_3 Grpc, proxy(V0_3, Grpc);
    javascript_0_3_json_rpc: JAVASCRIPT_03 V0_3 JsonRpc, Direct;
    javascript_0_3_json_rpc_durable: JAVASCRIPT_03 V0_3 JsonRpc, durable(V1_0, Grpc);
    javascript_0_3_json_rpc_relay: JAVASCRIPT_03 V0_3 JsonRpc, proxy(V0_3, JsonRpc);
    javascript_0_3_rest: JAVASCRIPT_03 V0_3 HttpJson, Direct;
    javascript_0_3_rest_durable: JAVASCRIPT_03 V0_3 HttpJson, durable(V1_0, Grpc);
    javascript_0_3_rest_proxy: JAVASCRIPT_03 V0_3 HttpJson, proxy(V1_0, Grpc);
    javascript_0_3_grpc: JAVASCRIPT_03 V0_3 Grpc, Direct;
    javascript_0_3_grpc_durable: JAVASCRIPT_03 V0_3 Grpc, durable(V1_0, HttpJson);
    javascript_0_3_grpc_relay: JAVASCRIPT_03 V0_3 Grpc, proxy(V0_3, Grpc);
    go_1_0_json_rpc: GO_1 V1_0 JsonRpc, Direct;
    go_1_0_json_rpc_durable: GO_1 V1_0 JsonRpc, durable(V0_3, HttpJson);
    go_1_0_json_rpc_relay: GO_1 V1_0 JsonRpc, proxy(V1_0, JsonRpc);
    go_1_0_json_rpc_proxy: GO_1 V1_0 JsonRpc, proxy(V1_0, Grpc);
    go_1_0_rest: GO_1 V1_0 HttpJson, Direct;
    go_1_0_rest_durable: GO_1 V1_0 HttpJson, durable(V0_3, Grpc);
    go_1_0_rest_relay: GO_1 V1_0 HttpJson, proxy(V1_0, HttpJson);
    go_1_0_rest_proxy: GO_1 V1_0 HttpJson, proxy(V1_0, JsonRpc);
    go_1_0_grpc: GO_1 V1_0 Grpc, Direct;
    go_1_0_grpc_durable: GO_1 V1_0 Grpc, durable(V0_3, JsonRpc);
    go_1_0_grpc_relay: GO_1 V1_0 Grpc, proxy(V1_0, Grpc);
    go_1_0_grpc_proxy: GO_1 V1_0 Grpc, proxy(V1_0, HttpJson);
    go_1_0_speaking_0_3_json_rpc: GO_1 V0_3 JsonRpc, Direct;
    go_1_0_speaking_0_3_json_rpc_durable: GO_1 V0_3 JsonRpc, durable(V1_0, HttpJson);
    go_1_0_speaking_0_3_json_rpc_relay: GO_1 V0_3 JsonRpc, proxy(V0_3, JsonRpc);
    go_1_0_speaking_0_3_json_rpc_proxy: GO_1 V0_3 JsonRpc, proxy(V1_0, Grpc);
    go_1_0_speaking_0_3_rest: GO_1 V0_3 HttpJson, Direct;
    go_1_0_speaking_0_3_rest_durable: GO_1 V0_3 HttpJson, durable(V1_0, Grpc);
    go_1_0_speaking_0_3_rest_relay: GO_1 V0_3 HttpJson, proxy(V0_3, HttpJson);
    go_1_0_speaking_0_3_rest_proxy: GO_1 V0_3 HttpJson, proxy(V1_0, JsonRpc);
    go_1_0_speaking_0_3_grpc: GO_1 V0_3 Grpc, Direct;
    go_1_0_speaking_0_3_grpc_durable: GO_1 V0_3 Grpc, durable(V1_0, JsonRpc);
    go_1_0_speaking_0_3_grpc_relay: GO_1 V0_3 Grpc, proxy(V0_3, Grpc);
    go_1_0_speaking_0_3_grpc_proxy: GO_1 V0_3 Grpc, proxy(V1_0, HttpJson);
    go_0_3_json_rpc: GO_03 V0_3 JsonRpc, Direct;
    go_0_3_json_rpc_durable: GO_03 V0_3 JsonRpc, durable(V1_0, Grpc);
    go_0_3_json_rpc_relay: GO_03 V0_3 JsonRpc, proxy(V0_3, JsonRpc);
    go_0_3_json_rpc_proxy: GO_03 V0_3 JsonRpc, proxy(V1_0, HttpJson);
    go_0_3_grpc: GO_03 V0_3 Grpc, Direct;
    go_0_3_grpc_durable: GO_03 V0_3 Grpc, durable(V1_0, HttpJson);
    go_0_3_grpc_relay: GO_03 V0_3 Grpc, proxy(V0_3, Grpc);
    go_0_3_grpc_proxy: GO_03 V0_3 Grpc, proxy(V1_0, JsonRpc);
    rust_1_0_json_rpc: RUST_1 V1_0 JsonRpc, Direct;
    rust_1_0_json_rpc_durable: RUST_1 V1_0 JsonRpc, durable(V0_3, Grpc);
    rust_1_0_json_rpc_relay: RUST_1 V1_0 JsonRpc, proxy(V1_0, JsonRpc);
    rust_1_0_json_rpc_proxy: RUST_1 V1_0 JsonRpc, proxy(V1_0, HttpJson);
    rust_1_0_rest: RUST_1 V1_0 HttpJson, Direct;
    rust_1_0_rest_durable: RUST_1 V1_0 HttpJson, durable(V0_3, JsonRpc);
    rust_1_0_rest_relay: RUST_1 V1_0 HttpJson, proxy(V1_0, HttpJson);
    rust_1_0_rest_proxy: RUST_1 V1_0 HttpJson, proxy(V1_0, Grpc);
    rust_1_0_grpc: RUST_1 V1_0 Grpc, Direct;
    rust_1_0_grpc_durable: RUST_1 V1_0 Grpc, durable(V0_3, HttpJson);
    rust_1_0_grpc_relay: RUST_1 V1_0 Grpc, proxy(V1_0, Grpc);
    rust_1_0_grpc_proxy: RUST_1 V1_0 Grpc, proxy(V1_0, JsonRpc);
}

/// The agent that the official clients expect; see the table in `tests/peers/README.md`.
pub(crate) struct TalkingEcho;

#[async_trait]
impl Executor for TalkingEcho {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let (text, begins) = (cx.text().into_owned(), cx.task.is_none());
        if begins && text.starts_with("message") {
            return out.message(Part::text(text)).await;
        }
        out.working().await?;
        if begins && text == "ask" {
            return out.input_required("What shall I echo?").await.map(drop);
        }
        if begins && text.starts_with("hold") {
            cx.cancellation.cancelled().await;
            return Ok(());
        }
        let file = cx.message.parts.iter().find_map(|part| match &part.content {
            Content::Raw(raw) => Some((raw.len(), part.clone())),
            Content::Text(_) | Content::Url(_) | Content::Data(_) => None,
        });
        let answer = match file {
            Some((size, file)) if text == "file" => vec![Part::text(size.to_string()), file],
            _ => vec![Part::text(text)],
        };
        out.artifact(Artifact::new("echo", answer)).await?;
        out.completed().await.map(drop)
    }
}
