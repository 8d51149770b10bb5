//! Property tests of the v0.3 dialects. Going down and up again is the identity for everything that has
//! metadata, however nasty that is; going up and down again is the identity for v0.3 that is exact.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, Content, Event, Message, Metadata, Part, Role, Task, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp,
    v03::{FileBytes, JsonRpc, LEFTOVER, Rest, RestWith},
    wire::Dialect,
};
use proptest::{
    collection::vec,
    option,
    prelude::{Just, Strategy, any},
    prop_assert_eq, prop_compose, prop_oneof, proptest,
    sample::select,
    strategy::BoxedStrategy,
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

/// Names that mean something to the dialects, and some that do not.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            LEFTOVER,
            "data_part_compat",
            "value",
            "data",
            "kind",
            "metadata",
            "filename",
            "mediaType",
            "referenceTaskIds",
            "role",
            "file",
            "text",
            "",
        ])
        .prop_map(str::to_owned),
        "[a-zé\"\\\\]{1,4}",
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000i32..1000).prop_map(|n| json!(f64::from(n) / 8.0)),
        "[ -~é]{0,6}".prop_map(Value::from),
        Just(json!("ROLE_USER")),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((key(), inner), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Looks like something of ours.
fn forged() -> impl Strategy<Value = (String, Value)> {
    let leftover = || LEFTOVER.to_owned();
    prop_oneof![
        any::<bool>().prop_map(|flag| ("data_part_compat".to_owned(), flag.into())),
        Just((leftover(), json!({"filename": "forged", "mediaType": "a/b"}))),
        Just((leftover(), json!({"base64": true}))),
        Just((leftover(), json!({"referenceTaskIds": ["forged"], "role": "ROLE_AGENT"}))),
        Just((leftover(), json!({"metadata": {"data_part_compat": true, LEFTOVER: {"filename": "x"}}}))),
        Just((leftover(), json!({}))),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let member = prop_oneof![3 => (key(), value()), 2 => forged()];
    vec(member, 0..4).prop_map(|members| members.into_iter().collect())
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        "[ -~é]{0,8}".prop_map(Content::Text),
        vec(any::<u8>(), 0..8).prop_map(|bytes| Content::Raw(bytes.into())),
        // Looks like base64 text, or does when it is written as such.
        "[A-Za-z0-9+/]{12,16}".prop_map(|text| Content::Raw(text.into())),
        "([A-Za-z0-9+/]{4}){3,5}".prop_map(|text| Content::Raw(text.into())),
        "([0-9a-f]{4}){3,5}".prop_map(|text| Content::Raw(text.into())),
        "[ -~]{0,8}".prop_map(Content::Url),
        value().prop_map(|json| Content::Data(json.into())),
        value().prop_map(|inner| Content::Data(json!({"value": inner}).into())),
        value().prop_map(|inner| Content::Data(json!({"data": inner}).into())),
    ]
}

prop_compose! {
    // Empty strings are unset on every wire, so they are not generated where unset is another value.
    fn part()(content in content(), metadata in metadata(),
              filename in option::of("[a-z.]{1,5}"), media_type in option::of("[a-z/]{1,5}|text/[a-z]")) -> Part {
        Part { content, metadata, filename, media_type }
    }
}

prop_compose! {
    fn message()(id in "[a-z]{0,3}", context in option::of("[a-z]{1,3}"), task in option::of("[a-z]{1,3}"),
                 role in select(Role::ALL), parts in vec(part(), 0..4), metadata in metadata(),
                 extensions in vec("[a-z:]{0,4}", 0..3), references in vec("[a-z]{0,3}", 0..3)) -> Message {
        Message {
            message_id: id.into(),
            context_id: context.map(Into::into),
            task_id: task.map(Into::into),
            role,
            parts,
            metadata,
            extensions,
            reference_task_ids: references.into_iter().map(Into::into).collect(),
        }
    }
}

prop_compose! {
    fn status()(state in select(TaskState::ALL), message in option::of(message()),
                millis in option::of(0i64..4_000_000_000_000)) -> TaskStatus {
        TaskStatus { state, message: message.map(Arc::new), timestamp: millis.and_then(Timestamp::from_millis) }
    }
}

prop_compose! {
    fn artifact()(id in "[a-z]{0,3}", name in "[a-z]{0,3}", description in "[a-z]{0,3}", parts in vec(part(), 0..3),
                  metadata in metadata(), extensions in vec("[a-z:]{0,4}", 0..2)) -> Artifact {
        Artifact { artifact_id: id.into(), name, description, parts, metadata, extensions }
    }
}

prop_compose! {
    fn task()(id in "[a-z]{0,3}", context in "[a-z]{0,3}", status in status(), artifacts in vec(artifact(), 0..3),
              history in vec(message(), 0..3), metadata in metadata()) -> Task {
        Task {
            id: id.into(),
            context_id: context.into(),
            status,
            artifacts: artifacts.into_iter().map(Arc::new).collect(),
            history: history.into_iter().map(Arc::new).collect(),
            metadata,
        }
    }
}

prop_compose! {
    fn status_update()(task in "[a-z]{0,3}", context in "[a-z]{0,3}", status in status(), metadata in metadata())
        -> TaskStatusUpdateEvent {
        TaskStatusUpdateEvent { task_id: task.into(), context_id: context.into(), status, metadata }
    }
}

prop_compose! {
    fn artifact_update()(task in "[a-z]{0,3}", context in "[a-z]{0,3}", artifact in artifact(), append: bool,
                         last_chunk: bool, metadata in metadata()) -> TaskArtifactUpdateEvent {
        TaskArtifactUpdateEvent {
            task_id: task.into(), context_id: context.into(), artifact: Arc::new(artifact), append, last_chunk,
            joins: false, metadata,
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        task().prop_map(Event::Task),
        message().prop_map(|message| Event::Message(Arc::new(message))),
        status_update().prop_map(Event::StatusUpdate),
        artifact_update().prop_map(Event::ArtifactUpdate),
    ]
}

fn down(dialect: &dyn Dialect, event: &Event) -> Box<RawValue> {
    let mut out = Vec::new();
    dialect.encode_event(event, &mut out);
    serde_json::from_slice(&out).expect("what is written is JSON")
}

/// Exact v0.3 of a form: what a conforming peer writes, in the members it always writes.
struct Exact {
    kind: bool,
    parts: &'static str,
    uri: &'static str,
    bytes: &'static str,
    /// Content of files: over REST the base64 text that most SDKs write, which is base64 again on the wire.
    contents: &'static [&'static str],
    states: &'static [(&'static str, bool)],
    roles: &'static [&'static str],
}

const JSON_RPC: Exact = Exact {
    kind: true,
    parts: "parts",
    uri: "uri",
    bytes: "bytes",
    contents: &["", "AA==", "+/8="],
    states: &[
        ("unknown", false),
        ("working", false),
        ("canceled", true),
        ("input-required", true),
        ("auth-required", false),
    ],
    roles: &["user", "agent"],
};

const REST: Exact = Exact {
    kind: false,
    parts: "content",
    uri: "fileWithUri",
    bytes: "fileWithBytes",
    contents: &["", "QVFJREJBVUdCd2dKQ2dzTURRND0=", "Ky8vNy8vdi8rLy83Ly92LysvLzcvL3Yv"],
    states: &[
        ("TASK_STATE_UNSPECIFIED", false),
        ("TASK_STATE_WORKING", false),
        ("TASK_STATE_CANCELLED", true),
        ("TASK_STATE_INPUT_REQUIRED", true),
        ("TASK_STATE_AUTH_REQUIRED", false),
    ],
    roles: &["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"],
};

impl Exact {
    fn tagged(&self, kind: &str, mut object: Value) -> Value {
        if self.kind {
            object["kind"] = kind.into();
        }
        object
    }

    fn event(&'static self, kind: &'static str, member: &'static str, object: Value) -> Value {
        if self.kind { self.tagged(kind, object) } else { json!({ member: object }) }
    }

    /// Metadata as anybody might have it: not under a key of ours.
    fn with_metadata(object: Value, members: Vec<(String, Value)>) -> Value {
        let mut object = object;
        let ours = |key: &str| key == LEFTOVER || key == "data_part_compat";
        let metadata: Metadata = members.into_iter().filter(|(key, _)| !ours(key)).collect();
        if !metadata.is_empty() {
            object["metadata"] = json!(metadata);
        }
        object
    }

    fn part(&'static self) -> BoxedStrategy<Value> {
        let text = "[ -~]{0,6}".prop_map(|text| self.tagged("text", json!({"text": text})));
        let uri = "[ -~]{0,6}"
            .prop_map(|uri| self.tagged("file", json!({"file": {self.uri: uri, "mimeType": "a/b"}})));
        let bytes = select(self.contents)
            .prop_map(|bytes| self.tagged("file", json!({"file": {self.bytes: bytes, "name": "n"}})));
        let data = vec((key(), value()), 0..3).prop_map(|members| {
            let object = Value::Object(members.into_iter().collect());
            self.tagged(
                "data",
                if self.kind { json!({"data": object}) } else { json!({"data": {"data": object}}) },
            )
        });
        (prop_oneof![text, uri, bytes, data], vec((key(), value()), 0..3))
            .prop_map(|(part, metadata)| Self::with_metadata(part, metadata))
            .boxed()
    }

    fn message(&'static self) -> BoxedStrategy<Value> {
        let members =
            (select(self.roles), vec(self.part(), 0..3), vec((key(), value()), 0..3), any::<bool>());
        members
            .prop_map(|(role, parts, metadata, bound)| {
                let mut message = json!({"messageId": "m", "role": role, self.parts: parts});
                if bound {
                    message["taskId"] = "t".into();
                    message["contextId"] = "c".into();
                    message["extensions"] = json!(["x"]);
                }
                self.tagged("message", Self::with_metadata(message, metadata))
            })
            .boxed()
    }

    fn event_strategy(&'static self) -> BoxedStrategy<Value> {
        let message =
            self.message().prop_map(|message| if self.kind { message } else { json!({"message": message}) });
        let update =
            (select(self.states), option::of(self.message())).prop_map(|((state, is_final), message)| {
                let mut status = json!({"state": state, "timestamp": "2026-02-06T10:00:00.000Z"});
                if let Some(message) = message {
                    status["message"] = message;
                }
                let update = json!({"taskId": "t", "contextId": "c", "status": status, "final": is_final});
                self.event("status-update", "statusUpdate", update)
            });
        let artifact = vec(self.part(), 0..3).prop_map(|parts| {
            let artifact = json!({"artifactId": "a", "parts": parts});
            let update = json!({"taskId": "t", "contextId": "c", "artifact": artifact, "append": true});
            self.event("artifact-update", "artifactUpdate", update)
        });
        let task = (select(self.states), vec(self.message(), 1..3)).prop_map(|((state, _), history)| {
            let task = json!({"id": "t", "contextId": "c", "status": {"state": state}, "history": history});
            self.event("task", "task", task)
        });
        prop_oneof![message, update, artifact, task].boxed()
    }
}

fn up(dialect: &dyn Dialect, json: &Value) -> Event {
    dialect.decode_event(&to_raw_value(json).unwrap()).unwrap_or_else(|error| panic!("{json}: {error}"))
}

proptest! {
    #[test]
    fn down_and_up_is_the_identity(event in event()) {
        let (base64, raw) = (RestWith(FileBytes::Base64), RestWith(FileBytes::Raw));
        for dialect in [&JsonRpc as &dyn Dialect, &Rest, &base64, &raw] {
            let wire = down(dialect, &event);
            prop_assert_eq!(&dialect.decode_event(&wire).unwrap(), &event, "{}", wire);
        }
    }

    #[test]
    fn metadata_of_tasks_and_updates_is_never_taken_for_ours(message in message(), metadata in metadata()) {
        // Only messages and parts have a leftover; a copy of one elsewhere is just data.
        let copy: Value = serde_json::from_str(down(&Rest, &Event::Message(Arc::new(message))).get()).unwrap();
        let mut metadata = metadata;
        metadata.insert("copy", copy);
        let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"},
            "metadata": metadata});
        let again: Value = serde_json::from_str(down(&JsonRpc, &up(&JsonRpc, &task)).get()).unwrap();
        prop_assert_eq!(again, task);
    }

    #[test]
    fn up_and_down_is_the_identity_on_exact_json_rpc(json in JSON_RPC.event_strategy()) {
        let again: Value = serde_json::from_str(down(&JsonRpc, &up(&JsonRpc, &json)).get()).unwrap();
        prop_assert_eq!(again, json);
    }

    #[test]
    fn up_and_down_is_the_identity_on_exact_rest(json in REST.event_strategy()) {
        let again: Value = serde_json::from_str(down(&Rest, &up(&Rest, &json)).get()).unwrap();
        prop_assert_eq!(again, json);
    }
}
