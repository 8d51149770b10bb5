//! Broken framing and versions.

use http::HeaderValue;
use serde_json::{Value, json};

use super::{Case, G1, H1, J1, json_response, look, page, rpc_error};
use crate::{
    agent::Behaviour,
    breaker::{Breaker, Told, WHOLE},
};

/// Sets the code of an error.
fn code(told: &mut Told, code: i32) {
    let body = told.body();
    body["error"]["code"] = code.into();
    body["error"]["data"] = Value::Null;
}

fn extended() -> Behaviour {
    Behaviour { card: |card| card.capabilities.extended_agent_card = Some(true), ..Default::default() }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rpc();
    cases.extend(http());
    cases.extend(grpc());
    cases.extend(version());
    cases
}

fn rpc() -> Vec<Case> {
    let after = |check, after| look(check, J1, Breaker { after: Some(after), ..WHOLE });
    vec![
        after("rpc.parse", |asked, told| {
            if asked.path == "/" && asked.json.is_null() {
                code(told, -32600);
            }
        }),
        after("rpc.member", |asked, told| {
            if asked.json["jsonrpc"] == "1.0" {
                code(told, -32603);
            }
        }),
        after("rpc.method", |asked, told| {
            if asked.rpc() == "nuncio/audit" {
                code(told, -32600);
            }
        }),
        after("rpc.params", |asked, told| {
            if asked.json["params"]["id"].is_object() {
                code(told, -32603);
            }
        }),
        after("rpc.id", |asked, told| {
            if asked.json["id"] == 42 {
                told.body()["id"] = json!("42");
            }
        }),
        after("rpc.either", |asked, told| {
            if asked.rpc() == "GetTask" && told.body()["error"].is_object() {
                told.body()["result"] = Value::Null;
            }
        }),
        after("rpc.content-type", |asked, told| {
            if asked.path == "/" {
                told.set("content-type", "text/plain");
            }
        }),
        look(
            "rpc.unknown-member",
            J1,
            Breaker {
                instead: Some(|asked| {
                    (asked.json["params"]["nuncioAudit"] == true).then(|| rpc_error(-32602))
                }),
                ..WHOLE
            },
        ),
    ]
}

fn http() -> Vec<Case> {
    let after = |check, after| look(check, H1, Breaker { after: Some(after), ..WHOLE });
    vec![
        Case {
            behaviour: extended(),
            ..look(
                "http.routes",
                H1,
                Breaker {
                    instead: Some(|asked| (asked.path == "/extendedAgentCard").then(|| page(404))),
                    ..WHOLE
                },
            )
        },
        after("http.error-shape", |_, told| {
            if told.status == 404 {
                told.body()["error"]["code"] = json!(5);
            }
        }),
        after("http.error-info", |_, told| {
            if told.status == 404 {
                told.body()["error"]["details"] = json!([]);
            }
        }),
        after("http.media-type", |asked, told| {
            if asked.path.starts_with("/tasks") {
                told.set("content-type", "text/json");
            }
        }),
        look(
            "http.json-accepted",
            H1,
            Breaker {
                instead: Some(|asked| {
                    let is_plain = asked.header("content-type") == "application/json";
                    (is_plain && asked.path.ends_with(":cancel"))
                        .then(|| refused(415, "CONTENT_TYPE_NOT_SUPPORTED"))
                }),
                ..WHOLE
            },
        ),
        look(
            "http.query",
            H1,
            Breaker {
                instead: Some(|asked| {
                    asked.query.contains("includeArtifacts").then(|| refused(400, "INVALID_PARAMS"))
                }),
                ..WHOLE
            },
        ),
    ]
}

/// An error of HTTP+JSON.
fn refused(status: u16, reason: &str) -> axum::response::Response {
    let info = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
        "domain": "a2a-protocol.org" });
    let error =
        json!({ "code": status, "status": "INVALID_ARGUMENT", "message": "broken", "details": [info] });
    json_response(status, &json!({ "error": error }))
}

fn grpc() -> Vec<Case> {
    let trailers = |check, trailers| look(check, G1, Breaker { trailers: Some(trailers), ..WHOLE });
    vec![
        Case {
            behaviour: extended(),
            ..trailers("grpc.service", |asked, headers| {
                if asked.path.ends_with("/GetExtendedAgentCard") {
                    headers.insert("grpc-status", HeaderValue::from_static("12"));
                    headers.remove("grpc-status-details-bin");
                }
            })
        },
        trailers("grpc.error-info", |asked, headers| {
            if asked.path.ends_with("/GetTask") {
                headers.remove("grpc-status-details-bin");
            }
        }),
        trailers("grpc.codes", |asked, headers| {
            if asked.path.ends_with("/GetTask") && headers.get("grpc-status").is_some_and(|code| code == "5")
            {
                headers.insert("grpc-status", HeaderValue::from_static("2"));
            }
        }),
    ]
}

fn version() -> Vec<Case> {
    let before = |check, before| look(check, J1, Breaker { before: Some(before), ..WHOLE });
    vec![
        before("version.unsupported", |asked| {
            if asked.header("a2a-version") == "99.0" {
                asked.headers.insert("a2a-version", HeaderValue::from_static("1.0"));
            }
        }),
        before("version.absent", |asked| {
            asked.headers.entry("a2a-version").or_insert(HeaderValue::from_static("1.0"));
        }),
        look(
            "version.patch",
            J1,
            Breaker {
                instead: Some(|asked| (asked.header("a2a-version") == "1.0.1").then(|| rpc_error(-32009))),
                ..WHOLE
            },
        ),
        look(
            "version.query",
            H1,
            Breaker {
                instead: Some(|asked| {
                    asked.query.contains("A2A-Version").then(|| refused(400, "VERSION_NOT_SUPPORTED"))
                }),
                ..WHOLE
            },
        ),
    ]
}
