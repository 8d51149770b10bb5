//! A server of tools over HTTP that answers by its script, and remembers its calls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, http::HeaderMap, response::IntoResponse as _, routing::post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::config::{NamedTools, ToolTarget};

/// A server on a port of its own. Its tools are `read` (only reads), `write`, `fail`, `long` and `hang`.
#[derive(Clone)]
pub(super) struct ToolServer(Arc<Inner>);

struct Inner {
    url: String,
    calls: Mutex<Vec<Value>>,
    /// The headers of every request.
    headers: Mutex<Vec<HeaderMap>>,
    /// A permit for each call of `hang` that has begun.
    hanging: Semaphore,
}

impl ToolServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (calls, headers, hanging) = (Mutex::default(), Mutex::default(), Semaphore::new(0));
        let own = Self(Arc::new(Inner { url, calls, headers, hanging }));
        let app = Router::new().route("/mcp", post(answer)).with_state(own.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        own
    }

    /// The settings of an agent that has these tools.
    pub(super) fn named(&self) -> NamedTools {
        let target = ToolTarget::Remote(self.0.url.parse().unwrap(), Box::default());
        NamedTools { name: "files".to_owned(), target, timeout: Duration::from_secs(60) }
    }

    /// The names and arguments of the calls so far.
    pub(super) fn calls(&self) -> Vec<Value> {
        self.0.calls.lock().clone()
    }

    pub(super) fn headers(&self) -> Vec<HeaderMap> {
        self.0.headers.lock().clone()
    }

    /// Waits until a call of `hang` has begun.
    pub(super) async fn until_hanging(&self) {
        self.0.hanging.acquire().await.unwrap().forget();
    }
}

async fn answer(
    State(server): State<ToolServer>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> axum::response::Response {
    server.0.headers.lock().push(headers);
    let Some(id) = request.get("id") else { return http::StatusCode::ACCEPTED.into_response() };
    let result = match request["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "scripted", "version": "1" },
        }),
        "tools/list" => json!({ "tools": tools() }),
        "tools/call" => match call(&server, &request["params"]).await {
            Ok(result) => result,
            Err(text) => return error(id, -32602, &text),
        },
        _ => return error(id, -32601, "no such method"),
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

fn error(id: &Value, code: i64, text: &str) -> axum::response::Response {
    Json(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } })).into_response()
}

fn tools() -> Vec<Value> {
    let hints = BTreeMap::from([("read", json!({ "readOnlyHint": true }))]);
    let tool = |name: &str| {
        json!({
            "name": name, "description": format!("To {name}."), "annotations": hints.get(name),
            "inputSchema": { "type": "object", "properties": { "path": { "type": "string" } } },
        })
    };
    ["read", "write", "fail", "long", "hang"].map(tool).to_vec()
}

async fn call(server: &ToolServer, params: &Value) -> Result<Value, String> {
    server.0.calls.lock().push(json!([params["name"], params["arguments"]]));
    let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    Ok(match params["name"].as_str().unwrap() {
        "fail" => json!({ "content": [{ "type": "text", "text": "disk full" }], "isError": true }),
        "long" => text(&"x".repeat(70_000)),
        "hang" => {
            server.0.hanging.add_permits(1);
            std::future::pending().await
        }
        "read" if params["arguments"]["path"].is_null() => return Err("path is missing".to_owned()),
        name => text(&format!("{name} {}: done", params["arguments"]["path"].as_str().unwrap_or("nothing"))),
    })
}
