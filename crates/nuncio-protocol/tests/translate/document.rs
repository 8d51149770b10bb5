//! The golden documents. Those of v1.0 are files of single types, which are put into every call, answer and
//! event that can hold them; those of v0.3 are calls, answers and events already.

use std::{fs, path::Path};

use nuncio_protocol::op::Op;
use serde_json::{Value, json};

use crate::wire::{Kind, Wire};

/// A golden document.
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) json: Value,
}

/// The golden documents of v1.0.
pub(crate) fn of_v1() -> Vec<Document> {
    let mut documents = Vec::new();
    for (name, json) in files("v1") {
        // Liberal input is written as the `out` beside it.
        if !name.ends_with(".in") {
            let prefix = name.split('.').next().unwrap();
            let mut placed = Vec::new();
            place(prefix, json, &mut placed);
            assert!(!placed.is_empty(), "{name}: no place for it");
            documents.extend(placed.into_iter().map(|(kind, json)| Document {
                name: name.clone(),
                kind,
                json,
            }));
        }
    }
    let errors =
        files("errors/v1").into_iter().map(|(name, json)| Document { name, kind: Kind::Error, json });
    documents.extend(errors);
    documents
}

/// The golden documents of a form of v0.3. Those of HTTP+JSON are the ProtoJSON of what gRPC says, except
/// for cards and errors.
pub(crate) fn of_v03(wire: Wire) -> Vec<Document> {
    let folders: &[&str] = match wire {
        Wire::JsonRpc => &["v03/jsonrpc", "translate/jsonrpc", "errors/jsonrpc"],
        Wire::Rest => &["v03/rest", "translate/rest", "errors/rest"],
        Wire::Grpc => &["v03/rest", "translate/rest", "translate/grpc", "errors/grpc"],
        Wire::V1Json | Wire::V1Grpc => &[],
    };
    let mut documents = Vec::new();
    for folder in folders {
        for (name, json) in files(folder).into_iter().filter(|(name, _)| !name.ends_with(".v1")) {
            let kind = kind_of(folder, &name);
            let is_json_card = kind == Kind::Reply(Op::GetExtendedAgentCard) && *folder != "translate/grpc";
            if !(wire == Wire::Grpc && is_json_card) {
                documents.push(Document { name: format!("{folder}/{name}"), kind, json });
            }
        }
    }
    documents
}

/// `call.OP.case`, `reply.OP.case` or `event.case`; a folder of errors has nothing else.
fn kind_of(folder: &str, name: &str) -> Kind {
    let mut words = name.split('.');
    let kind = words.next().unwrap();
    let op = || Op::from_name(words.clone().next().unwrap()).unwrap_or_else(|| panic!("{name}: no such op"));
    match kind {
        _ if folder.starts_with("errors/") => Kind::Error,
        "call" => Kind::Call(op()),
        "reply" => Kind::Reply(op()),
        "event" => Kind::Event,
        _ => panic!("{name}: neither call, reply nor event"),
    }
}

/// The files of a folder without `.json`, in order.
fn files(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<(String, Value)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let json = serde_json::from_slice(&fs::read(&path).unwrap());
            (name, json.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Puts a value of a type into the documents that can hold it.
fn place(prefix: &str, json: Value, out: &mut Vec<(Kind, Value)>) {
    let hello = || json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let working = || json!({"state": "TASK_STATE_WORKING"});
    let mut call = |op, json| out.push((Kind::Call(op), json));
    match prefix {
        "send-message-request" => {
            call(Op::SendMessage, json.clone());
            call(Op::SendStreamingMessage, json);
        }
        "send-message-configuration" => {
            place("send-message-request", json!({"message": hello(), "configuration": json}), out);
        }
        "get-task-request" => call(Op::GetTask, json),
        "list-tasks-request" => call(Op::ListTasks, json),
        "cancel-task-request" => call(Op::CancelTask, json),
        "subscribe-to-task-request" => call(Op::SubscribeToTask, json),
        "get-task-push-notification-config-request" => call(Op::GetTaskPushNotificationConfig, json),
        "list-task-push-notification-configs-request" => call(Op::ListTaskPushNotificationConfigs, json),
        "delete-task-push-notification-config-request" => call(Op::DeleteTaskPushNotificationConfig, json),
        "get-extended-agent-card-request" => call(Op::GetExtendedAgentCard, json),
        "send-message-response" => out.push((Kind::Reply(Op::SendMessage), json)),
        "list-tasks-response" => out.push((Kind::Reply(Op::ListTasks), json)),
        "list-task-push-notification-configs-response" => {
            out.push((Kind::Reply(Op::ListTaskPushNotificationConfigs), json));
        }
        "task-push-notification-config" => {
            call(Op::CreateTaskPushNotificationConfig, json.clone());
            out.push((Kind::Reply(Op::CreateTaskPushNotificationConfig), json.clone()));
            out.push((Kind::Reply(Op::GetTaskPushNotificationConfig), json.clone()));
            place("list-task-push-notification-configs-response", json!({"configs": [json]}), out);
            place("send-message-configuration", json!({"taskPushNotificationConfig": json}), out);
        }
        "authentication-info" => {
            let config =
                json!({"id": "p", "taskId": "t", "url": "https://me.example", "authentication": json});
            place("task-push-notification-config", config, out);
        }
        "stream-response" => out.push((Kind::Event, json)),
        "task" => {
            out.push((Kind::Reply(Op::GetTask), json.clone()));
            out.push((Kind::Reply(Op::CancelTask), json.clone()));
            place("send-message-response", json!({"task": json}), out);
            place("stream-response", json!({"task": json}), out);
        }
        "task-status" => {
            place("task", json!({"id": "t", "contextId": "c", "status": json}), out);
            place("task-status-update-event", json!({"taskId": "t", "contextId": "c", "status": json}), out);
        }
        "task-status-update-event" => place("stream-response", json!({"statusUpdate": json}), out),
        "task-artifact-update-event" => place("stream-response", json!({"artifactUpdate": json}), out),
        "artifact" => {
            place("task", json!({"id": "t", "status": working(), "artifacts": [json]}), out);
            place(
                "task-artifact-update-event",
                json!({"taskId": "t", "contextId": "c", "artifact": json}),
                out,
            );
        }
        "message" => {
            place("send-message-request", json!({"message": json, "configuration": {}}), out);
            place("send-message-response", json!({"message": json}), out);
            place("stream-response", json!({"message": json}), out);
            place("task", json!({"id": "t", "status": working(), "history": [hello(), json]}), out);
            place("task-status", json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": json}), out);
        }
        "part" => {
            place("message", json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [json]}), out);
            place("artifact", json!({"artifactId": "a", "parts": [{"text": "one"}, json]}), out);
        }
        _ => place_in_card(prefix, json, out),
    }
}

/// Puts a value of a type that cards are made of into a card.
fn place_in_card(prefix: &str, json: Value, out: &mut Vec<(Kind, Value)>) {
    let kind = Kind::Reply(Op::GetExtendedAgentCard);
    let mut card = |member: &str, value: Value| {
        let mut card = json!({
            "name": "Echo", "description": "says it again", "version": "1.0.0", "capabilities": {},
            "supportedInterfaces": [reached()], "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
        });
        card[member] = value;
        out.push((kind, card));
    };
    match prefix {
        "agent-card" => {
            let mut both = json.clone();
            both["supportedInterfaces"].as_array_mut().unwrap().push(reached());
            out.extend([(kind, json), (kind, both)]);
        }
        "agent-interface" => card("supportedInterfaces", json!([json, reached()])),
        "agent-provider" => card("provider", json),
        "agent-capabilities" => card("capabilities", json),
        "agent-extension" => card("capabilities", json!({"extensions": [json]})),
        "agent-skill" => card("skills", json!([json])),
        "agent-card-signature" => card("signatures", json!([json])),
        "security-scheme" => card("securitySchemes", json!({"s": json})),
        "o-auth-flows" => card("securitySchemes", json!({"s": {"oauth2SecurityScheme": {"flows": json}}})),
        "security-requirement" => card("securityRequirements", json!([json])),
        "string-list" => card("securityRequirements", json!([{"schemes": {"s": json}}])),
        _ => {}
    }
}

/// An address that v0.3 clients know.
fn reached() -> Value {
    json!({"url": "https://old.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"})
}
