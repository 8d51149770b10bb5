//! Broken answers to messages, and broken tasks.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use serde_json::{Value, json};

use super::{Case, UNKNOWN, accepted, internal, send};
use crate::{
    agent::Behaviour,
    breaker::{Asked, Breaker, Told, WHOLE},
};

/// Accepts messages that have to be refused.
macro_rules! accepts {
    ($check:literal, |$message:ident| $is:expr) => {
        send(
            $check,
            Breaker {
                instead: Some(|asked| {
                    let $message = &asked.json["params"]["message"];
                    (asked.rpc() == "SendMessage" && $is).then(accepted)
                }),
                ..WHOLE
            },
        )
    };
}

/// Changes the task in the answer to a message.
macro_rules! sent {
    ($check:literal, |$task:ident| $change:expr) => {
        send(
            $check,
            Breaker {
                after: Some(|asked, told| {
                    if asked.rpc() == "SendMessage" && told.body()["result"]["task"].is_object() {
                        let $task = &mut told.body()["result"]["task"];
                        $change;
                    }
                }),
                ..WHOLE
            },
        )
    };
}

/// Changes the params of a call.
macro_rules! params {
    ($check:literal, $method:literal, |$params:ident| $change:expr) => {
        send(
            $check,
            Breaker {
                before: Some(|asked| {
                    if asked.rpc() == $method {
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

fn remove(value: &mut Value, name: &str) -> Option<Value> {
    value.as_object_mut().and_then(|members| members.remove(name))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = refused();
    cases.extend(answers());
    cases.extend(tasks());
    cases
}

fn refused() -> Vec<Case> {
    vec![
        accepts!("send.empty-params", |message| message.is_null()),
        accepts!("send.empty-parts", |message| message["parts"] == json!([])),
        accepts!("send.two-members", |message| {
            message["parts"][0]["text"].is_string() && message["parts"][0]["data"].is_object()
        }),
        accepts!("send.unknown-task", |message| message["taskId"] == UNKNOWN),
        accepts!("send.media-type", |message| message["parts"][0]["mediaType"]
            == "application/x-nuncio-audit"),
        accepts!("send.context-mismatch", |message| message["contextId"] == "nuncio-audit-other-context"),
    ]
}

fn answers() -> Vec<Case> {
    vec![
        send(
            "send.shape",
            Breaker {
                after: Some(|asked, told| {
                    if asked.rpc() == "SendMessage" && told.body()["result"]["task"].is_object() {
                        let task = told.body()["result"]["task"].clone();
                        told.body()["result"] = task;
                    }
                }),
                ..WHOLE
            },
        ),
        sent!("send.members", |task| {
            let context = remove(task, "contextId").unwrap_or_default();
            task["context_id"] = context;
        }),
        sent!("send.names", |task| {
            let state = task["status"]["state"].as_str().unwrap_or_default();
            task["status"]["state"] = state.trim_start_matches("TASK_STATE_").to_lowercase().into();
        }),
        sent!("send.timestamps", |task| {
            let time = task["status"]["timestamp"].as_str().unwrap_or_default().replace('Z', "+00:00");
            task["status"]["timestamp"] = time.into();
        }),
        sent!("send.precision", |task| {
            let time = task["status"]["timestamp"].as_str().unwrap_or_default();
            let seconds = time.split('.').next().unwrap_or_default();
            task["status"]["timestamp"] = format!("{seconds}Z").into();
        }),
        sent!("send.base64", |task| {
            for artifact in task["artifacts"].as_array_mut().into_iter().flatten() {
                if let Some(raw) = artifact["parts"][0]["raw"].as_str() {
                    artifact["parts"][0]["raw"] = raw.replace('+', "-").into();
                }
            }
        }),
        send(
            "send.context",
            Breaker {
                after: Some(|asked, told| {
                    if matches!(asked.rpc(), "SendMessage" | "GetTask") && told.body()["result"].is_object() {
                        let result = &mut told.body()["result"];
                        remove(result, "contextId");
                        remove(&mut result["task"], "contextId");
                        if result["task"].is_null() {
                            remove(result, "task");
                        }
                    }
                }),
                ..WHOLE
            },
        ),
        send(
            "send.blocks",
            Breaker {
                after: Some(|asked, told| {
                    let is_blocking = asked.json["params"]["configuration"]["returnImmediately"] != true;
                    if asked.rpc() == "SendMessage"
                        && is_blocking
                        && told.body()["result"]["task"].is_object()
                    {
                        told.body()["result"]["task"]["status"]["state"] = json!("TASK_STATE_WORKING");
                    }
                }),
                ..WHOLE
            },
        ),
        Case {
            behaviour: Behaviour { pace: Duration::from_millis(1200), ..Default::default() },
            ..params!("send.immediate", "SendMessage", |params| {
                remove(&mut params["configuration"], "returnImmediately");
            })
        },
    ]
}

/// The tasks that were canceled.
static CANCELED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn cancel_twice(asked: &Asked, told: &mut Told) {
    if asked.rpc() != "CancelTask" {
        return;
    }
    let id = asked.json["params"]["id"].as_str().unwrap_or_default().to_owned();
    let mut canceled = CANCELED.lock().unwrap();
    if told.body()["result"].is_object() {
        canceled.insert(id);
    } else if canceled.contains(&id) {
        told.body()["error"] = internal();
    }
}

fn tasks() -> Vec<Case> {
    let after = |check, after| send(check, Breaker { after: Some(after), ..WHOLE });
    vec![
        after("task.get", |asked, told| {
            if asked.rpc() == "GetTask" && told.body()["result"]["artifacts"].is_array() {
                told.body()["result"]["artifacts"] = json!([]);
            }
        }),
        after("task.history", |asked, told| {
            if asked.json["params"]["historyLength"] == 1
                && let Some(history) = told.body()["result"]["history"].as_array_mut()
            {
                history.extend(history.clone());
            }
        }),
        params!("task.history-zero", "GetTask", |params| if params["historyLength"] == 0 {
            remove(params, "historyLength");
        }),
        params!("task.history-negative", "GetTask", |params| if params["historyLength"] == -1 {
            remove(params, "historyLength");
        }),
        after("task.cancel", |asked, told| {
            if asked.rpc() == "CancelTask" && told.body()["result"].is_object() {
                let id = told.body()["id"].clone();
                *told.body() = json!({ "jsonrpc": "2.0", "id": id, "error": internal() });
            }
        }),
        after("task.cancel-ended", |asked, told| {
            if asked.rpc() == "CancelTask" && told.body()["error"]["code"] == -32002 {
                let task = json!({ "id": asked.json["params"]["id"], "contextId": "c",
                    "status": { "state": "TASK_STATE_COMPLETED" } });
                *told.body() = json!({ "jsonrpc": "2.0", "id": told.body()["id"].clone(), "result": task });
            }
        }),
        send("task.cancel-twice", Breaker { after: Some(cancel_twice), ..WHOLE }),
        after("task.message-ended", |asked, told| {
            let message = &asked.json["params"]["message"];
            let is_late = message["taskId"].is_string()
                && message["taskId"] != UNKNOWN
                && message["contextId"].is_null();
            if asked.rpc() == "SendMessage" && is_late {
                let reply = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "yes" }] });
                *told.body() = json!({ "jsonrpc": "2.0", "id": 1, "result": { "message": reply } });
            }
        }),
        Case {
            alone: true,
            everywhere: true,
            ..after("task.same", |asked, told| {
                if asked.path.starts_with("/tasks/") && told.body()["artifacts"].is_array() {
                    told.body()["artifacts"] = json!([]);
                }
            })
        },
        after("task.subscribe-ended", |asked, told| {
            if asked.rpc() == "SubscribeToTask" && told.body()["error"]["code"] == -32004 {
                told.body()["error"] = internal();
            }
        }),
    ]
}
