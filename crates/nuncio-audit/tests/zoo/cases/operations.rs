//! Broken errors, lists, undeclared operations, extensions and authentication.

use http::HeaderValue;
use nuncio_protocol::{AgentCard, AgentExtension, ApiKeySecurityScheme, SecurityRequirement, SecurityScheme};
use serde_json::{Value, json};

use super::{Case, Depth, J1, internal, look, rpc_error, send};
use crate::{
    agent::{Behaviour, CALLER},
    breaker::{Asked, Breaker, Told, WHOLE},
};

/// An internal error instead of the error of this method.
macro_rules! internal_for {
    ($method:literal) => {{
        fn after(asked: &Asked, told: &mut Told) {
            let code = told.body()["error"]["code"].as_i64().unwrap_or_default();
            if asked.rpc() == $method && matches!(code, -32004..=-32001) {
                told.body()["error"] = internal();
            }
        }
        Breaker { after: Some(after), ..WHOLE }
    }};
}

/// Changes the params of a list.
macro_rules! list_params {
    ($check:literal, |$params:ident| $change:expr) => {
        send(
            $check,
            Breaker {
                before: Some(|asked| {
                    if asked.rpc() == "ListTasks" {
                        let $params = &mut asked.json["params"];
                        $change;
                        asked.body = asked.json.to_string().into();
                    }
                }),
                ..WHOLE
            },
        )
    };
}

/// Changes the result of a list.
macro_rules! list_result {
    ($check:literal, |$asked:ident, $result:ident| $change:expr) => {
        send(
            $check,
            Breaker {
                after: Some(|$asked, told| {
                    if $asked.rpc() == "ListTasks" && told.body()["result"].is_object() {
                        let $result = &mut told.body()["result"];
                        $change;
                    }
                }),
                ..WHOLE
            },
        )
    };
}

fn remove(value: &mut Value, name: &str) {
    if let Some(members) = value.as_object_mut() {
        members.remove(name);
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = errors();
    cases.extend(lists());
    cases.extend(undeclared());
    cases.extend(extensions());
    cases.extend(auth());
    cases
}

fn errors() -> Vec<Case> {
    let pushing = || Behaviour { pushes: true, ..Default::default() };
    let of_get = |check, after| look(check, J1, Breaker { after: Some(after), ..WHOLE });
    vec![
        look("errors.get", J1, internal_for!("GetTask")),
        look("errors.cancel", J1, internal_for!("CancelTask")),
        look("errors.subscribe", J1, internal_for!("SubscribeToTask")),
        Case {
            behaviour: pushing(),
            ..look("errors.push", J1, internal_for!("CreateTaskPushNotificationConfig"))
        },
        of_get("errors.data", |asked, told| {
            if asked.rpc() == "GetTask"
                && let Some(data) = told.body()["error"]["data"].as_array_mut()
            {
                data.push(json!({ "note": "without a type" }));
            }
        }),
        Case {
            alone: true,
            everywhere: true,
            ..of_get("errors.same", |asked, told| {
                if asked.path.starts_with("/tasks/") && told.status == 404 {
                    told.status = http::StatusCode::BAD_REQUEST;
                    told.body()["error"]["details"][0]["reason"] = json!("INVALID_PARAMS");
                }
            })
        },
        of_get("errors.info", |asked, told| {
            if asked.rpc() == "GetTask" && told.body()["error"].is_object() {
                remove(&mut told.body()["error"], "data");
            }
        }),
    ]
}

fn lists() -> Vec<Case> {
    vec![
        list_result!("list.shape", |_asked, result| remove(result, "pageSize")),
        list_params!("list.size", |params| if params["pageSize"] == 101 {
            params["pageSize"] = json!(100);
        }),
        list_params!("list.token", |params| if params["pageToken"] == "nuncio-audit-invalid" {
            remove(params, "pageToken");
        }),
        list_params!("list.status", |params| remove(params, "status")),
        list_result!("list.artifacts", |_asked, result| {
            for task in result["tasks"].as_array_mut().into_iter().flatten() {
                task["artifacts"] = json!([]);
            }
        }),
        list_result!("list.order", |asked, result| if asked.json["params"]["pageSize"].is_null()
            && let Some(tasks) = result["tasks"].as_array_mut()
        {
            tasks.reverse();
        }),
        list_result!("list.walk", |_asked, result| {
            let total = result["totalSize"].as_i64().unwrap_or_default();
            result["totalSize"] = json!(total + 5);
        }),
    ]
}

fn undeclared() -> Vec<Case> {
    let silent =
        || Behaviour { card: |card| card.capabilities.streaming = Some(false), ..Default::default() };
    vec![
        Case { behaviour: silent(), ..look("undeclared.stream", J1, internal_for!("SubscribeToTask")) },
        look("undeclared.push", J1, internal_for!("CreateTaskPushNotificationConfig")),
        look("undeclared.card", J1, internal_for!("GetExtendedAgentCard")),
    ]
}

const EXTENSION: &str = "https://extension.example/v1";

fn with_extension(card: &mut AgentCard, required: bool) {
    card.capabilities.extensions =
        vec![AgentExtension { uri: EXTENSION.to_owned(), required, ..AgentExtension::default() }];
}

fn extensions() -> Vec<Case> {
    let required = || Behaviour { card: |card| with_extension(card, true), ..Default::default() };
    let optional = || Behaviour { card: |card| with_extension(card, false), ..Default::default() };
    vec![
        Case {
            behaviour: required(),
            ..look(
                "extensions.required",
                J1,
                Breaker {
                    before: Some(|asked| {
                        asked.headers.entry("a2a-extensions").or_insert(HeaderValue::from_static(EXTENSION));
                    }),
                    ..WHOLE
                },
            )
        },
        look(
            "extensions.unknown",
            J1,
            Breaker {
                instead: Some(|asked| {
                    asked.header("a2a-extensions").contains("nuncio.invalid").then(|| rpc_error(-32602))
                }),
                ..WHOLE
            },
        ),
        Case {
            behaviour: optional(),
            ..look(
                "extensions.echoed",
                J1,
                Breaker {
                    after: Some(|asked, told| {
                        if asked.header("a2a-extensions") == EXTENSION {
                            told.set("a2a-extensions", "https://other.example/v1");
                        }
                    }),
                    ..WHOLE
                },
            )
        },
    ]
}

/// A card that requires a key.
pub(crate) fn closed(card: &mut AgentCard) {
    let scheme = ApiKeySecurityScheme {
        location: "header".to_owned(),
        name: CALLER.to_owned(),
        ..ApiKeySecurityScheme::default()
    };
    card.security_schemes.insert("key".to_owned(), SecurityScheme::ApiKey(scheme));
    let mut requirement = SecurityRequirement::default();
    requirement.schemes.insert("key".to_owned(), Default::default());
    card.security_requirements = vec![requirement];
}

fn auth() -> Vec<Case> {
    let behaviour = || Behaviour { needs_caller: true, card: closed, ..Default::default() };
    let before = |check, before| Case {
        behaviour: behaviour(),
        ..look(check, J1, Breaker { before: Some(before), ..WHOLE })
    };
    vec![
        before("auth.missing", |asked| {
            if asked.header(CALLER).is_empty() && asked.header("authorization").is_empty() {
                asked.headers.insert(CALLER, HeaderValue::from_static("anybody"));
            }
        }),
        before("auth.invalid", |asked| {
            if !asked.header("authorization").is_empty() {
                asked.headers.insert(CALLER, HeaderValue::from_static("anybody"));
            }
        }),
        Case {
            behaviour: behaviour(),
            ..look(
                "auth.challenge",
                J1,
                Breaker {
                    after: Some(|_, told| {
                        told.headers.remove("www-authenticate");
                    }),
                    ..WHOLE
                },
            )
        },
        Case {
            behaviour: Behaviour {
                card: |card| card.capabilities.extended_agent_card = Some(true),
                ..Default::default()
            },
            depth: Depth::Look,
            ..look(
                "auth.card",
                J1,
                Breaker {
                    before: Some(|asked| {
                        if asked.rpc() == "GetExtendedAgentCard" {
                            asked.headers.insert(CALLER, HeaderValue::from_static("anybody"));
                        }
                    }),
                    ..WHOLE
                },
            )
        },
    ]
}
