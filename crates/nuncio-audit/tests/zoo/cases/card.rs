//! Broken cards.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Case, J1, json_response, look, page};
use crate::breaker::{Asked, Breaker, Told, WHOLE};

fn is_card(asked: &Asked) -> bool {
    asked.path.starts_with("/.well-known/")
}

/// A case with another card.
macro_rules! card {
    ($check:literal, |$card:ident| $change:expr) => {{
        fn after(asked: &Asked, told: &mut Told) {
            if is_card(asked) && told.status == 200 {
                let $card = told.body();
                $change;
            }
        }
        look($check, J1, Breaker { after: Some(after), ..WHOLE })
    }};
}

fn signed(header: &Value) -> Value {
    json!([{ "protected": URL_SAFE_NO_PAD.encode(header.to_string()), "signature": "c2ln" }])
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        look(
            "card.found",
            J1,
            Breaker {
                instead: Some(|asked| {
                    (asked.path == "/.well-known/agent-card.json").then(|| json_response(404, &json!({})))
                }),
                ..WHOLE
            },
        ),
        card!("card.required", |card| card["defaultOutputModes"] = json!([])),
        card!("card.interfaces", |card| {
            let entry = json!({ "url": card["url"], "protocolBinding": "JSONRPC" });
            push(card, entry);
        }),
        card!("card.preference", |card| {
            let entry = card["supportedInterfaces"][0].clone();
            push(card, entry);
        }),
        card!("card.conflict", |card| {
            card["preferredTransport"] = json!("HTTP+JSON");
            card["additionalInterfaces"] = json!([{ "url": card["url"], "transport": "JSONRPC" }]);
        }),
        card!("card.modes", |card| card["defaultInputModes"] = json!(["text"])),
        look(
            "card.cache",
            J1,
            Breaker {
                after: Some(|asked, told| {
                    if is_card(asked) {
                        told.headers.remove("cache-control");
                    }
                }),
                ..WHOLE
            },
        ),
        look(
            "card.etag",
            J1,
            Breaker {
                before: Some(|asked| {
                    asked.headers.remove("if-none-match");
                }),
                ..WHOLE
            },
        ),
        card!("card.signature", |card| card["signatures"] = signed(&json!({ "alg": "ES256" }))),
        card!("card.signature-type", |card| {
            card["signatures"] = signed(&json!({ "alg": "ES256", "typ": "JWT", "kid": "k" }));
        }),
        card!("card.https", |card| {
            push(
                card,
                json!({ "url": "http://agent.example:8080", "protocolBinding": "GRPC", "protocolVersion": "1.0" }),
            );
        }),
        card!("card.schemes", |card| {
            card["securitySchemes"] = json!({ "key": { "apiKeySecurityScheme": { "name": "x-key" } } });
        }),
        card!("card.skills", |card| card["skills"][0]["id"] = json!("")),
        Case {
            on: super::J0,
            alone: true,
            ..look(
                "card.transport",
                J1,
                Breaker { instead: Some(|asked| (asked.rpc() == "tasks/get").then(|| page(404))), ..WHOLE },
            )
        },
        Case {
            alone: true,
            ..look(
                "reach.answers",
                J1,
                Breaker { instead: Some(|asked| (asked.path == "/").then(|| page(200))), ..WHOLE },
            )
        },
        Case {
            alone: true,
            behaviour: crate::agent::Behaviour {
                card: |card| card.supported_interfaces[0].tenant = Some("acme".to_owned()),
                ..Default::default()
            },
            ..look(
                "reach.tenant",
                J1,
                Breaker {
                    instead: Some(|asked| {
                        (asked.json["params"]["tenant"] == "acme").then(|| super::rpc_error(-32602))
                    }),
                    ..WHOLE
                },
            )
        },
    ]
}

fn push(card: &mut Value, entry: Value) {
    if let Some(list) = card["supportedInterfaces"].as_array_mut() {
        list.push(entry);
    }
}
