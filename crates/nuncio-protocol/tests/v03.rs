//! The v0.3 dialects against golden files: every file is read, compared with its v1.0 form beside it, and
//! written again, in both directions. Then the tables: methods, liberal input, refusals, errors.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use nuncio_protocol::{
    Content, Error, ErrorKind, Event, Role, SendMessageResponse, TaskState, Validate as _, Version,
    op::{Call, Op, Reply},
    v03::{self, JsonRpc, LEFTOVER, Rest},
    wire::{Dialect, V1, rest},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

fn raw(json: &Value) -> Box<RawValue> {
    to_raw_value(json).unwrap()
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice(&out).expect("what is written is JSON")
}

/// Reads `json` in one dialect and writes it in the other.
fn translate(from: &dyn Dialect, to: &dyn Dialect, kind: &str, op: &str, json: &Value) -> Value {
    let op = Op::from_name(op);
    match (kind, op) {
        ("call", Some(op)) => {
            let call = from.decode_call(op, Some(&raw(json))).unwrap();
            written(|out| to.encode_call(&call, out).unwrap())
        }
        ("reply", Some(op)) => {
            let reply = from.decode_reply(op, &raw(json)).unwrap();
            written(|out| to.encode_reply(op, &reply, out).unwrap())
        }
        ("event", None) => {
            let event = from.decode_event(&raw(json)).unwrap();
            written(|out| to.encode_event(&event, out))
        }
        _ => panic!("a file is called call.OP.case, reply.OP.case or event.case"),
    }
}

/// `old` is v0.3 and `new` the same in v1.0; each becomes the other, and itself.
fn check(dialect: &dyn Dialect, kind: &str, op: &str, old: &Value, new: &Value, case: &str) {
    assert_eq!(translate(dialect, &V1, kind, op, old), *new, "{case}: up");
    assert_eq!(translate(&V1, dialect, kind, op, new), *old, "{case}: down");
    assert_eq!(translate(dialect, dialect, kind, op, old), *old, "{case}: there and back");
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn check_folder(dialect: &dyn Dialect, form: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v03").join(form);
    let mut cases = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if let Some(case) = name.strip_suffix(".json").filter(|case| !case.ends_with(".v1")) {
            cases.insert(case.to_owned(), path);
        }
    }
    for (case, path) in &cases {
        let (kind, rest) = case.split_once('.').unwrap();
        let op = rest.split('.').next().unwrap();
        check(dialect, kind, op, &read_json(path), &read_json(&path.with_extension("v1.json")), case);
    }
    cases.len()
}

// REQ-147, REQ-149, REQ-200 to REQ-204; traps T-08, T-12, T-22.
#[test]
fn golden_files_of_json_rpc() {
    assert!(check_folder(&JsonRpc, "jsonrpc") >= 30, "files are missing");
}

#[test]
fn golden_files_of_rest() {
    assert!(check_folder(&Rest, "rest") >= 28, "files are missing");
}

#[test]
fn methods() {
    // REQ-033
    let expected = "\
        SendMessage message/send\n\
        SendStreamingMessage message/stream\n\
        GetTask tasks/get\n\
        ListTasks -\n\
        CancelTask tasks/cancel\n\
        SubscribeToTask tasks/resubscribe\n\
        CreateTaskPushNotificationConfig tasks/pushNotificationConfig/set\n\
        GetTaskPushNotificationConfig tasks/pushNotificationConfig/get\n\
        ListTaskPushNotificationConfigs tasks/pushNotificationConfig/list\n\
        GetExtendedAgentCard agent/getAuthenticatedExtendedCard\n\
        DeleteTaskPushNotificationConfig tasks/pushNotificationConfig/delete\n";
    let ours: String = Op::TABLE
        .iter()
        .map(|row| format!("{} {}\n", row.name, JsonRpc.method(row.op).unwrap_or("-")))
        .collect();
    assert_eq!(ours, expected);
    for row in Op::TABLE {
        assert_eq!(
            JsonRpc.method(row.op).and_then(|method| JsonRpc.op(method)),
            JsonRpc.method(row.op).map(|_| row.op)
        );
        assert_eq!(Rest.method(row.op), None, "{}", row.name);
    }
    // The misspelling of 03 section 11.1.3
    assert_eq!(JsonRpc.op("agent/authenticatedExtendedCard"), Some(Op::GetExtendedAgentCard));
    for method in ["tasks/list", "SendMessage", "message/Send", "", "tasks/send"] {
        assert_eq!(JsonRpc.op(method), None, "{method}");
    }
    assert_eq!(Rest.op("message/send"), None);
    assert_eq!((JsonRpc.version(), Rest.version()), (Version::V0_3, Version::V0_3));
    let mut slots = [V1.slot(), JsonRpc.slot(), Rest.slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
}

const BOTH: [&dyn Dialect; 2] = [&JsonRpc, &Rest];

fn part_up(dialect: &dyn Dialect, part: &Value) -> Result<Value, Error> {
    let params = json!({"message": {"messageId": "m", "role": "user", "parts": [part]}});
    let call = dialect.decode_call(Op::SendMessage, Some(&raw(&params)))?;
    let v1 = written(|out| V1.encode_call(&call, out).unwrap());
    Ok(v1["message"]["parts"][0].clone())
}

#[test]
fn parts_are_read_in_every_shape() {
    // Trap T-08; contradictions C-05 to C-07
    let uri = json!({"url": "https://a.example/x", "filename": "x", "mediaType": "a/b"});
    let bytes = json!({"raw": "+/8=", "filename": "x"});
    for (part, expected) in [
        (json!({"text": "a"}), json!({"text": "a"})),
        (json!({"kind": "text", "text": "a"}), json!({"text": "a"})),
        (json!({"type": "text", "text": "a", "file": null}), json!({"text": "a"})),
        (json!({"kind": "text", "text": "a", "metadata": null}), json!({"text": "a"})),
        (
            json!({"kind": "file", "file": {"uri": "https://a.example/x", "name": "x", "mimeType": "a/b"}}),
            uri.clone(),
        ),
        (
            json!({"file": {"fileWithUri": "https://a.example/x", "name": "x", "mime_type": "a/b"}}),
            uri.clone(),
        ),
        (
            json!({"file": {"file_with_uri": "https://a.example/x", "filename": "x", "mediaType": "a/b"}}),
            uri.clone(),
        ),
        (
            json!({"file": {"fileWithUri": {"uri": "https://a.example/x", "mimeType": "a/b"}, "name": "x"}}),
            uri,
        ),
        (json!({"kind": "file", "file": {"bytes": "+/8=", "uri": null, "name": "x"}}), bytes.clone()),
        (json!({"file": {"fileWithBytes": "-_8", "name": "x"}}), bytes.clone()),
        (json!({"file": {"file_with_bytes": "-_8=", "name": "x", "mimeType": ""}}), bytes.clone()),
        (json!({"file": {"fileWithBytes": {"bytes": "+/8"}, "name": "x"}}), bytes.clone()),
        (json!({"file": {"data": "+/8=", "name": "x"}}), bytes),
        (json!({"kind": "data", "data": {"a": 1}}), json!({"data": {"a": 1}})),
        (json!({"data": {"a": 1}}), json!({"data": {"a": 1}})),
        (json!({"data": {"data": {"a": 1}}}), json!({"data": {"a": 1}})),
        (json!({"kind": "data", "data": {"data": {"a": 1}}}), json!({"data": {"data": {"a": 1}}})),
        (json!({"data": {"data": {"a": 1}, "b": 2}}), json!({"data": {"data": {"a": 1}, "b": 2}})),
        (json!({"kind": "data", "data": [1]}), json!({"data": [1]})),
    ] {
        for dialect in BOTH {
            assert_eq!(part_up(dialect, &part).unwrap(), expected, "{part}");
        }
    }
}

#[test]
fn parts_that_hold_none_or_several_are_refused_by_their_field() {
    // Contradiction C-08; traps T-12 and T-40
    for part in [
        json!({"kind": "text"}),
        json!({"kind": "text", "text": null}),
        json!({"kind": "data", "data": null}),
        json!({"kind": "file", "file": {}}),
        json!({"text": "a", "data": {}}),
        json!({"file": {"uri": "u", "bytes": ""}}),
        json!({"file": {"uri": "u", "fileWithUri": "v"}}),
        json!({"file": {"bytes": "%%"}}),
        json!({"url": "https://a.example"}),
        json!("a"),
    ] {
        for dialect in BOTH {
            let error = part_up(dialect, &part).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{part}");
            let field = &error.violations()[0].field;
            assert!(field.starts_with("message.parts[0]"), "{part}: {field}");
        }
    }
}

#[test]
fn enums_are_read_by_every_name() {
    // REQ-202; contradictions C-09 to C-13
    for (names, state) in [
        (&["submitted", "TASK_STATE_SUBMITTED", "Submitted"][..], TaskState::Submitted),
        (&["working", "TASK_STATE_WORKING"], TaskState::Working),
        (&["completed", "TASK_STATE_COMPLETED"], TaskState::Completed),
        (&["failed", "TASK_STATE_FAILED"], TaskState::Failed),
        (&["canceled", "cancelled", "TASK_STATE_CANCELLED", "TASK_STATE_CANCELED"], TaskState::Canceled),
        (&["input-required", "input_required", "TASK_STATE_INPUT_REQUIRED"], TaskState::InputRequired),
        (&["rejected", "TASK_STATE_REJECTED"], TaskState::Rejected),
        (&["auth-required", "auth_required", "TASK_STATE_AUTH_REQUIRED"], TaskState::AuthRequired),
        (&["unknown", "TASK_STATE_UNSPECIFIED", "TASK_STATE_UNKNOWN"], TaskState::Unspecified),
    ] {
        let numbers = [json!(state.number())];
        for name in names.iter().map(|name| json!(name)).chain(numbers) {
            for dialect in BOTH {
                let task = json!({"id": "t", "contextId": "c", "status": {"state": name}});
                let Reply::Task(task) = dialect.decode_reply(Op::GetTask, &raw(&task)).unwrap() else {
                    panic!()
                };
                assert_eq!(task.status.state, state, "{name}");
            }
        }
    }
    let task = json!({"id": "t", "status": {"state": "paused"}});
    let error = JsonRpc.decode_reply(Op::GetTask, &raw(&task)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
    assert!(error.message().contains("status.state"), "{error}");
}

#[test]
fn kind_is_inferred_where_it_is_missing() {
    // C-05: many peers leave it out. Bare and wrapped, in both dialects (trap T-08).
    let status = json!({"state": "working"});
    for (event, expected) in [
        (json!({"id": "t", "contextId": "c", "status": status}), "task"),
        (json!({"id": "t", "context_id": "c", "status": status, "history": []}), "task"),
        (json!({"kind": "task", "id": "t", "status": status}), "task"),
        (json!({"task": {"id": "t", "status": status}}), "task"),
        (json!({"messageId": "t", "role": "agent", "parts": []}), "message"),
        (json!({"message_id": "t", "role": "ROLE_AGENT", "content": [{"text": "a"}]}), "message"),
        (json!({"message": {"messageId": "t", "role": "agent", "parts": []}}), "message"),
        (json!({"msg": {"messageId": "t", "role": "agent", "parts": []}}), "message"),
        (json!({"taskId": "t", "contextId": "c", "status": status, "final": false}), "statusUpdate"),
        (json!({"status": status, "taskId": "t", "final": true, "kind": "status-update"}), "statusUpdate"),
        (json!({"status_update": {"task_id": "t", "status": status}}), "statusUpdate"),
        (json!({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}), "artifactUpdate"),
        (
            json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifact_id": "a", "parts": []}}}),
            "artifactUpdate",
        ),
        (
            json!({"kind": "odd", "taskId": "t", "artifact": {"artifactId": "a", "parts": []}}),
            "artifactUpdate",
        ),
    ] {
        for dialect in BOTH {
            let up = translate(dialect, &V1, "event", "", &event);
            assert_eq!(up.as_object().unwrap().keys().collect::<Vec<_>>(), [expected], "{event}");
        }
    }
    for event in [json!({}), json!({"kind": "odd"}), json!(null), json!([]), json!({"taskId": "t"})] {
        for dialect in BOTH {
            let error = dialect.decode_event(&raw(&event)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{event}");
        }
    }
    let update = json!({"kind": "status-update", "taskId": "t", "status": status, "final": false});
    let error = JsonRpc.decode_reply(Op::SendMessage, &raw(&update)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "an update is no answer to a send");
}

#[test]
fn python_rest_clients_write_the_names_of_the_proto() {
    // Trap T-08: a2a-python prints its messages with proto field names.
    let params = json!({
        "request": {"message_id": "m", "context_id": "c", "task_id": "t", "role": "ROLE_USER",
            "content": [{"text": "hi"}, {"file": {"file_with_uri": "u", "mime_type": "a/b"}}]},
        "configuration": {"accepted_output_modes": ["text/plain"], "history_length": 2, "blocking": true,
            "push_notification": {"url": "https://me.example", "authentication": {"schemes": ["Bearer"]}}},
    });
    let Call::SendMessage(req) = Rest.decode_call(Op::SendMessage, Some(&raw(&params))).unwrap() else {
        panic!()
    };
    assert_eq!(req.message.role, Role::User);
    assert_eq!(req.message.parts[1].content, Content::Url("u".to_owned()));
    let configuration = req.configuration.unwrap();
    assert_eq!((configuration.history_length, configuration.return_immediately), (Some(2), false));
    assert_eq!(configuration.task_push_notification_config.unwrap().url, "https://me.example");
}

fn return_immediately(dialect: &dyn Dialect, configuration: &Value) -> Option<bool> {
    let params = json!({"message": {}, "configuration": configuration});
    let Call::SendMessage(req) = dialect.decode_call(Op::SendMessage, Some(&raw(&params))).unwrap() else {
        panic!()
    };
    req.configuration.map(|configuration| configuration.return_immediately)
}

#[test]
fn blocking_is_the_inverse_of_return_immediately() {
    // REQ-200, trap T-22. ProtoJSON leaves `false` out, so there absent is false.
    for (configuration, json_rpc, rest) in [
        (json!(null), None, None),
        (json!({}), Some(false), Some(true)),
        (json!({"blocking": null}), Some(false), Some(true)),
        (json!({"blocking": true}), Some(false), Some(false)),
        (json!({"blocking": false}), Some(true), Some(true)),
    ] {
        assert_eq!(return_immediately(&JsonRpc, &configuration), json_rpc, "JSON-RPC {configuration}");
        assert_eq!(return_immediately(&Rest, &configuration), rest, "REST {configuration}");
    }
    for dialect in BOTH {
        let down = translate(&V1, dialect, "call", "SendMessage", &json!({"message": {"messageId": "m"}}));
        assert_eq!(down["configuration"]["blocking"], true, "always explicit");
    }
}

#[test]
fn a_history_length_of_zero_is_said_and_understood() {
    // protocol-notes.md, loss table: the proto cannot tell it from unset, but JSON can, and all SDKs write it when they
    // mean it.
    for dialect in BOTH {
        for zero in [json!(0), json!("0")] {
            let up = translate(dialect, &V1, "call", "GetTask", &json!({"id": "t", "historyLength": zero}));
            assert_eq!(up, json!({"id": "t", "historyLength": 0}));
        }
        let down = translate(&V1, dialect, "call", "GetTask", &json!({"id": "t", "historyLength": 0}));
        assert_eq!(down["historyLength"], 0);
    }
}

#[test]
fn targets_are_read_by_every_name() {
    // Path variables come under their v1.0 names; bodies and queries under v0.3's own.
    let task = json!({"id": "t"});
    let config = json!({"taskId": "t", "id": "c"});
    let list = json!({"taskId": "t"});
    for (op, params, expected) in [
        ("GetTask", json!({"id": "t"}), &task),
        ("GetTask", json!({"name": "tasks/t"}), &task),
        ("CancelTask", json!({"id": "t", "name": "tasks/t"}), &task),
        ("SubscribeToTask", json!({"id": "t", "metadata": {"lost": 1}}), &task),
        ("GetTaskPushNotificationConfig", json!({"taskId": "t", "id": "c"}), &config),
        ("GetTaskPushNotificationConfig", json!({"id": "t", "pushNotificationConfigId": "c"}), &config),
        (
            "GetTaskPushNotificationConfig",
            json!({"task_id": "t", "push_notification_config_id": "c"}),
            &config,
        ),
        ("DeleteTaskPushNotificationConfig", json!({"name": "tasks/t/pushNotificationConfigs/c"}), &config),
        ("ListTaskPushNotificationConfigs", json!({"id": "t"}), &list),
        ("ListTaskPushNotificationConfigs", json!({"taskId": "t"}), &list),
        ("ListTaskPushNotificationConfigs", json!({"parent": "tasks/t"}), &list),
    ] {
        for dialect in BOTH {
            assert_eq!(translate(dialect, &V1, "call", op, &params), *expected, "{op} {params}");
        }
    }
    let error = Rest.decode_call(Op::GetTask, Some(&raw(&json!({"name": "t"})))).unwrap_err();
    assert_eq!(error.violations()[0].field, "name");
    let Call::GetTask(req) = JsonRpc.decode_call(Op::GetTask, None).unwrap() else { panic!() };
    assert!(req.validate().is_err(), "no id at all");
}

#[test]
fn a_webhook_without_an_id_has_the_id_of_its_task() {
    // protocol-notes.md, loss table: a2a-python 0.3 stored it so, and a get may leave the id out.
    let set = json!({"taskId": "t", "pushNotificationConfig": {"url": "https://me.example"}});
    let own = json!({"taskId": "t", "id": "t", "url": "https://me.example"});
    let op = "CreateTaskPushNotificationConfig";
    for dialect in BOTH {
        assert_eq!(translate(dialect, &V1, "call", op, &set), own);
        let get = translate(dialect, &V1, "call", "GetTaskPushNotificationConfig", &json!({"id": "t"}));
        assert_eq!(get, json!({"taskId": "t", "id": "t"}));
    }
    let nameless = json!({"taskId": "t", "url": "https://me.example"});
    assert_eq!(translate(&V1, &JsonRpc, "call", op, &nameless), set, "JSON-RPC leaves it to the server");
    assert_eq!(translate(&V1, &Rest, "call", op, &nameless)["configId"], "t", "REQUIRED in the proto");
}

#[test]
fn webhooks_are_read_in_every_shape() {
    // REQ-043, REQ-110
    let inner = json!({"id": "c", "url": "https://me.example"});
    let named = json!({"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": inner});
    let flat = json!({"id": "c", "taskId": "t", "url": "https://me.example"});
    for params in [
        json!({"taskId": "t", "pushNotificationConfig": inner}),
        json!({"task_id": "t", "push_notification_config": inner}),
        named.clone(),
        json!({"taskId": "t", "config": named}),
        json!({"taskId": "t", "parent": "tasks/t", "configId": "c", "config": named}),
        json!({"parent": "tasks/t", "config_id": "c", "config": {"pushNotificationConfig": {"url": "https://me.example"}}}),
        json!({"taskId": "t", "config": {"name": "", "pushNotificationConfig": inner}}),
    ] {
        for dialect in BOTH {
            let up = translate(dialect, &V1, "call", "CreateTaskPushNotificationConfig", &params);
            assert_eq!(up, flat, "{params}");
        }
    }
    for (authentication, expected) in [
        (
            json!({"schemes": ["Basic", "Bearer"], "credentials": "x"}),
            json!({"scheme": "Basic", "credentials": "x"}),
        ),
        (json!({"schemes": [], "credentials": "x"}), json!({"scheme": "Bearer", "credentials": "x"})),
        (json!({"scheme": "Digest"}), json!({"scheme": "Digest"})),
        (json!({"schemes": []}), Value::Null),
        (Value::Null, Value::Null),
    ] {
        let params =
            json!({"taskId": "t", "pushNotificationConfig": {"url": "u", "authentication": authentication}});
        let up = translate(&JsonRpc, &V1, "call", "CreateTaskPushNotificationConfig", &params);
        assert_eq!(up["authentication"], expected, "{authentication}");
    }
}

#[test]
fn a_webhook_of_no_task_has_no_name() {
    for config in [json!({"url": "u"}), json!({"id": "c", "url": "u"})] {
        let op = "GetTaskPushNotificationConfig";
        let down = translate(&V1, &Rest, "reply", op, &config);
        assert_eq!(down["name"], "", "half a name could not be read");
        assert_eq!(translate(&Rest, &V1, "reply", op, &down), config);
    }
}

#[test]
fn lists_of_webhooks_are_read_as_array_and_as_page() {
    let config = json!({"taskId": "t", "pushNotificationConfig": {"id": "c", "url": "u"}});
    let flat = json!({"id": "c", "taskId": "t", "url": "u"});
    for (list, expected) in [
        (json!([config]), json!({"configs": [flat]})),
        (
            json!({"configs": [config], "next_page_token": "n"}),
            json!({"configs": [flat], "nextPageToken": "n"}),
        ),
        (json!([]), json!({"configs": []})),
        (json!({}), json!({"configs": []})),
        (json!(null), json!({"configs": []})),
    ] {
        for dialect in BOTH {
            let up = translate(dialect, &V1, "reply", "ListTaskPushNotificationConfigs", &list);
            assert_eq!(up, expected, "{list}");
        }
    }
    let bad = raw(&json!([{"pushNotificationConfig": {"url": 5}}]));
    let error = JsonRpc.decode_reply(Op::ListTaskPushNotificationConfigs, &bad).err().unwrap();
    assert!(error.message().contains("[0].pushNotificationConfig.url"), "{error}");
}

#[test]
fn routes_of_rest() {
    // REQ-043; what a client sends, a server understands.
    let push = json!({"taskId": "t", "id": "c", "url": "https://me.example"});
    for (op, v1_params, verb, path) in [
        ("SendMessage", json!({"message": {"messageId": "m"}}), "POST", "/v1/message:send"),
        ("SendStreamingMessage", json!({"message": {"messageId": "m"}}), "POST", "/v1/message:stream"),
        ("GetTask", json!({"id": "t", "historyLength": 4}), "GET", "/v1/tasks/t"),
        ("CancelTask", json!({"id": "t"}), "POST", "/v1/tasks/t:cancel"),
        ("SubscribeToTask", json!({"id": "t"}), "POST", "/v1/tasks/t:subscribe"),
        ("CreateTaskPushNotificationConfig", push, "POST", "/v1/tasks/t/pushNotificationConfigs"),
        (
            "GetTaskPushNotificationConfig",
            json!({"taskId": "t", "id": "c"}),
            "GET",
            "/v1/tasks/t/pushNotificationConfigs/c",
        ),
        (
            "ListTaskPushNotificationConfigs",
            json!({"taskId": "t"}),
            "GET",
            "/v1/tasks/t/pushNotificationConfigs",
        ),
        (
            "DeleteTaskPushNotificationConfig",
            json!({"taskId": "t", "id": "c"}),
            "DELETE",
            "/v1/tasks/t/pushNotificationConfigs/c",
        ),
        ("GetExtendedAgentCard", json!({}), "GET", "/v1/card"),
    ] {
        let call = V1.decode_call(Op::from_name(op).unwrap(), Some(&raw(&v1_params))).unwrap();
        let sent = rest::encode_request(&v03::PATHS, &Rest, call.clone()).unwrap();
        assert_eq!((sent.verb.as_str(), sent.path.as_str()), (verb, path), "{op}");
        let body = sent.body.unwrap_or_default();
        let came = rest::decode_request(&v03::PATHS, verb, path, Some(&sent.query), &body).unwrap();
        assert_eq!(came.op.name(), op);
        let again = came.decode_call(&Rest).unwrap();
        let v1 = |call: &Call| written(|out| V1.encode_call(call, out).unwrap());
        let mut expected = v1(&call);
        if op.starts_with("Send") {
            // Always sent, so always there afterwards.
            expected["configuration"] = json!({});
        }
        assert_eq!(v1(&again), expected, "{op}");
    }
}

#[test]
fn list_tasks_is_not_there() {
    // REQ-206
    for dialect in BOTH {
        let unsupported = |error: Error| assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        unsupported(dialect.decode_call(Op::ListTasks, None).unwrap_err());
        unsupported(dialect.encode_call(&Call::ListTasks(Box::default()), &mut Vec::new()).unwrap_err());
        unsupported(dialect.decode_reply(Op::ListTasks, &raw(&json!([]))).err().unwrap());
        let page = Reply::Tasks(nuncio_protocol::ListTasksResponse::default());
        unsupported(dialect.encode_reply(Op::ListTasks, &page, &mut Vec::new()).unwrap_err());
    }
}

#[test]
fn a_message_without_a_role_keeps_that_it_has_none() {
    let message =
        json!({"message": {"messageId": "m", "role": "ROLE_UNSPECIFIED", "parts": [{"text": "a"}]}});
    let down = translate(&V1, &JsonRpc, "event", "", &message);
    assert_eq!(down["role"], "agent", "strict peers know two roles only");
    assert_eq!(translate(&JsonRpc, &V1, "event", "", &down), message);
}

#[test]
fn data_of_others_under_our_key_is_left_alone() {
    for foreign in [
        json!(5),
        json!({"filename": 5}),
        json!({"filename": "x", "surprise": 1}),
        json!({}),
        json!([]),
        json!(null),
    ] {
        let message = json!({"kind": "message", "messageId": "m", "role": "user",
            "parts": [{"kind": "text", "text": "a", "metadata": {LEFTOVER: foreign}}], "metadata": {LEFTOVER: foreign}});
        let up = translate(&JsonRpc, &V1, "event", "", &message);
        assert_eq!(up["message"]["metadata"][LEFTOVER], foreign);
        assert_eq!(up["message"]["parts"][0]["metadata"][LEFTOVER], foreign);
    }
}

#[test]
fn naive_timestamps_are_utc() {
    // Trap T-28: the samples of v0.3 have no zone.
    let task = json!({"kind": "task", "id": "t", "contextId": "c",
        "status": {"state": "working", "timestamp": "2025-07-30T10:00:00.5"}});
    let Event::Task(task) = JsonRpc.decode_event(&raw(&task)).unwrap() else { panic!() };
    assert_eq!(task.status.timestamp.unwrap().to_string(), "2025-07-30T10:00:00.500Z");
}

#[test]
fn a_direct_reply_is_not_taken_for_a_task() {
    let message = json!({"kind": "message", "messageId": "m", "taskId": "t", "role": "agent", "parts": []});
    let reply = JsonRpc.decode_reply(Op::SendMessage, &raw(&message)).unwrap();
    assert!(matches!(reply, Reply::Sent(SendMessageResponse::Message(_))));
}

#[test]
fn statuses_of_rest_errors() {
    // protocol-notes.md, Errors: the statuses of a2a-python 0.3
    let expected = "\
        -32001 404\n-32002 409\n-32003 501\n-32004 501\n-32005 415\n-32006 502\n-32007 404\n-32008 400\n-32009 400\n\
        -32700 400\n-32600 400\n-32601 404\n-32602 422\n-32603 500\n\
        -32050 401\n-32051 403\n-32052 429\n-32053 503\n-32054 413\n-32055 504\n";
    let ours: String = ErrorKind::TABLE
        .iter()
        .map(|row| format!("{} {}\n", row.code, v03::rest_error(&row.kind.into()).0))
        .collect();
    assert_eq!(ours, expected);
}

#[test]
fn rest_errors_survive_the_wire() {
    for row in ErrorKind::TABLE {
        let error = Error::new(row.kind, "no such luck").with_metadata("taskId", "t");
        let (status, body) = v03::rest_error(&error);
        assert_eq!((&body["code"], &body["message"]), (&json!(row.code), &json!("no such luck")));
        let again = v03::decode_rest_error(status, body.to_string().as_bytes());
        assert_eq!((again.kind(), again.message()), (row.kind, "no such luck"));
        assert_eq!(again.metadata(), error.metadata());
    }
}

#[test]
fn rest_errors_are_read_by_all_sdks() {
    let error = Error::new(ErrorKind::TaskNotFound, "gone").with_metadata("taskId", "t");
    let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org", "metadata": {"taskId": "t"}});
    let (status, body) = v03::rest_error(&error);
    // a2a-js reads code and message, a2a-python 1.x the type, a2a-go 2.x the details of the error.
    let inner = json!({"code": 404, "status": "NOT_FOUND", "message": "gone", "details": [info]});
    let expected = json!({"code": -32001, "message": "gone", "data": [info], "type": "TaskNotFoundError",
        "error": inner});
    assert_eq!((status, body), (404, expected));

    let frame = v03::rest_error_frame(&error);
    let expected = json!({"error": {"code": -32001, "message": "gone", "data": [info],
        "type": "TaskNotFoundError", "status": "NOT_FOUND", "details": [info]}});
    assert_eq!(frame, expected);
    let again = v03::decode_rest_error(500, frame.to_string().as_bytes());
    assert_eq!((again.kind(), again.metadata()), (ErrorKind::TaskNotFound, error.metadata()));
}

#[test]
fn rest_errors_of_others() {
    // protocol-notes.md, Errors: by code, then by class name, then by status
    for (status, body, kind) in [
        (404, r#"{"code":-32007,"message":"TaskNotFoundError"}"#, ErrorKind::ExtendedAgentCardNotConfigured),
        (500, r#"{"message":"TaskNotFoundError: gone"}"#, ErrorKind::TaskNotFound),
        (
            400,
            r#"{"type":"ContentTypeNotSupportedError","message":"no"}"#,
            ErrorKind::ContentTypeNotSupported,
        ),
        (404, r#"{"message":"Task not found"}"#, ErrorKind::TaskNotFound),
        (409, r#"{"message":"too late"}"#, ErrorKind::TaskNotCancelable),
        (422, r#"{"message":"bad"}"#, ErrorKind::InvalidParams),
        (501, r#"{"message":"no"}"#, ErrorKind::UnsupportedOperation),
        (502, "Bad Gateway", ErrorKind::InvalidAgentResponse),
        (
            400,
            r#"{"type":"TaskNotCancelableError","message":"no","error":{"code":400,"message":"x"}}"#,
            ErrorKind::TaskNotCancelable,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"x","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"VERSION_NOT_SUPPORTED","domain":"a2a-protocol.org"}]}}"#,
            ErrorKind::VersionNotSupported,
        ),
    ] {
        assert_eq!(v03::decode_rest_error(status, body.as_bytes()).kind(), kind, "{status} {body}");
    }
}
