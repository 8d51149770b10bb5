//! Tenants: the name of an agent, in the body, in the query or in the path of a call to the root.

use nuncio_protocol::{Message, Part, SendMessageRequest, op::Call, pb};
use nuncio_tests::{
    http2::Http2,
    hub::Hub,
    raw::{Answer, Raw},
};
use serde_json::{Value, json};

use crate::text;

const VERSION: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

fn message() -> Value {
    json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "0" }] })
}

fn with_tenant(mut body: Value, tenant: Option<&str>) -> Value {
    if let Some(tenant) = tenant {
        body["tenant"] = tenant.into();
    }
    body
}

/// Calls by JSON-RPC at this path.
async fn jsonrpc(hub: &Raw, path: &str, method: &str, params: Value) -> Answer {
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    hub.ask("POST", path, &[VERSION, JSON], request.to_string()).await
}

/// Sends by HTTP+JSON to this path.
async fn send(hub: &Raw, path: &str, tenant: Option<&str>) -> Answer {
    let body = with_tenant(json!({ "message": message() }), tenant);
    hub.ask("POST", path, &[VERSION, JSON], body.to_string()).await
}

/// The name of the only artifact, which each of these agents has its own of.
fn artifact(task: &Value) -> &str {
    text(&task["artifacts"][0]["name"])
}

/// Every interface of every card, as it says.
#[tokio::test(flavor = "multi_thread")]
async fn the_tenant_of_a_card_leads_to_its_agent() {
    let hub = Hub::start(&["--default", "slow"]).await;
    let raw = Raw::new(&*hub.base);
    for (agent, expected, tenants) in [("echo", "echo", 3), ("slow", "countdown", 0)] {
        let card = raw.get(&format!("/agents/{agent}"), &[]).await.json();
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        assert_eq!(interfaces.iter().filter(|interface| interface["tenant"] == agent).count(), tenants);
        let spoken = |interface: &&Value| interface["protocolVersion"] == "1.0";
        for interface in interfaces.iter().filter(spoken) {
            let (url, tenant) = (text(&interface["url"]), interface["tenant"].as_str());
            let at = Raw::new(url);
            let task = match text(&interface["protocolBinding"]) {
                "JSONRPC" => {
                    let params = with_tenant(json!({ "message": message() }), tenant);
                    jsonrpc(&at, "", "SendMessage", params).await.json()["result"]["task"].clone()
                }
                "HTTP+JSON" => {
                    let path = tenant.map(|tenant| format!("/{tenant}")).unwrap_or_default();
                    send(&at, &format!("{path}/message:send"), None).await.json()["task"].clone()
                }
                // See `grpc.rs`.
                _ => continue,
            };
            assert_eq!(artifact(&task), expected, "{interface}");
            // The tenant was the way there, not a scope: the agent's own address shows the same task, and so do others.
            let id = text(&task["id"]);
            let mut paths = vec![format!("/agents/{agent}/tasks/{id}"), format!("/{agent}/tasks/{id}")];
            paths.push(format!("/tasks/{id}?tenant={agent}"));
            for path in paths {
                let found = raw.get(&path, &[VERSION]).await;
                assert_eq!((found.status, &found.json()["id"]), (200, &task["id"]), "{path}: {found:?}");
            }
            let params = json!({ "id": id, "tenant": agent });
            let found = jsonrpc(&raw, "/", "GetTask", params).await;
            assert_eq!(found.json()["result"]["id"], task["id"], "{found:?}");
        }
    }
    for path in ["/message:send", "/echo/message:send"] {
        let named = send(&raw, path, Some("echo")).await;
        assert_eq!(artifact(&named.json()["task"]), "echo", "{path}: {named:?}");
        assert_eq!(named.header("nuncio-agent"), "");
    }
    let unnamed = send(&raw, "/message:send", None).await;
    assert_eq!((artifact(&unnamed.json()["task"]), unnamed.header("nuncio-agent")), ("countdown", "slow"));
}

/// The same words over every binding, at the root, at an agent's own address, and with and without a default agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_nobody_has_is_refused_alike() {
    const WHY: &str = "there is no agent of this name here";
    for args in [&[][..], &["--default", "slow"]] {
        let hub = Hub::start(args).await;
        let raw = Raw::new(&*hub.base);
        for (base, tenant) in [("", "nobody"), ("/agents/echo", "nobody"), ("/agents/echo", "slow")] {
            let params = json!({ "message": message(), "tenant": tenant });
            let root = if base.is_empty() { "/" } else { base };
            let refused = jsonrpc(&raw, root, "SendMessage", params).await.json();
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32602)), "{refused}");
            assert!(refused.to_string().contains(WHY), "{refused}");
            let listed = jsonrpc(&raw, root, "ListTasks", json!({ "tenant": tenant })).await.json();
            assert_eq!(listed["error"]["code"], -32602, "{listed}");
            for (path, in_body) in [
                (format!("{base}/{tenant}/message:send"), None),
                (format!("{base}/message:send"), Some(tenant)),
            ] {
                let refused = send(&raw, &path, in_body).await;
                assert_eq!(refused.status, 400, "{path}: {refused:?}");
                assert!(refused.body.contains(WHY), "{path}: {refused:?}");
            }
            for path in [format!("{base}/{tenant}/tasks"), format!("{base}/tasks?tenant={tenant}")] {
                let refused = raw.get(&path, &[VERSION]).await;
                assert_eq!(refused.status, 400, "{path}: {refused:?}");
                assert!(refused.body.contains(WHY), "{path}: {refused:?}");
            }
        }
        let mut connection = Http2::connect(hub.base.trim_start_matches("http://").parse().unwrap()).await;
        let request = SendMessageRequest {
            tenant: Some("nobody".to_owned()),
            message: Message::user("m", Part::text("0")),
            ..SendMessageRequest::default()
        };
        let outcome = connection.call(&pb::CODEC, &[], &Call::SendMessage(request.into())).await;
        assert_eq!(outcome.code(), Some(3), "{outcome:?}");
        let said = outcome.headers["grpc-message"].to_str().unwrap().replace("%20", " ");
        assert!(said.contains(WHY), "{outcome:?}");
    }
}

/// A call that names nobody is told whom it could name; what is no call is told where the agents are.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_default_agent_a_call_has_to_name_one() {
    const WHY: &str = "tenants are conformance, echo, slow";
    let hub = Hub::start(&[]).await;
    let raw = Raw::new(&*hub.base);
    let refused = jsonrpc(&raw, "/", "SendMessage", json!({ "message": message() })).await.json();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32602)), "{refused}");
    assert!(refused.to_string().contains(WHY), "{refused}");
    let refused = send(&raw, "/message:send", None).await;
    assert!(refused.status == 400 && refused.body.contains(WHY), "{refused:?}");
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "message/send", "params": {} });
    let old = raw.ask("POST", "/", &[JSON], request.to_string()).await.json();
    assert_eq!(old["error"]["code"], -32602, "0.3 has no tenant to name one by: {old}");
    let broken = raw.ask("POST", "/", &[JSON], "{").await.json();
    assert_eq!(broken["error"]["code"], -32700, "{broken}");
    for path in ["/", "/nothing", "/echo", "/echo/nothing"] {
        let found = raw.get(path, &[VERSION]).await;
        assert!(found.status == 404 && found.body.contains("GET /agents"), "{path}: {found:?}");
    }
}

/// An agent of one's own may have no name that is a part of other addresses.
#[tokio::test(flavor = "multi_thread")]
async fn reserved_names_are_refused() {
    for name in ["agents", "mailboxes", "rooms", "files", "push", "tasks", "message", "sendmessage"] {
        let agent = format!("{name}=cmd:cat");
        let output = nuncio_tests::hub::cli(&["check", "--agent", &agent]).await;
        assert_ne!(output.code, Some(0), "{name}");
        assert!(output.stderr.contains("is reserved"), "{name}: {output:?}");
    }
}
