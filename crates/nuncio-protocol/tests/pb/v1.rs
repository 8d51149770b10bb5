//! v1.0: every message there and back, and the same bytes as the JSON form has.

use bytes::Bytes;
use nuncio_protocol::{
    ErrorKind, Event, Message, Part, SendMessageRequest, Task, TaskStatus,
    op::{Call, Op, Reply},
    pb::{self, generated},
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    oracle::{json_of, of_bytes, of_json},
    strategies as any,
};

fn encode_call(call: &Call) -> Bytes {
    let mut out = Vec::new();
    pb::encode_call(call, &mut out).unwrap();
    out.into()
}

fn encode_reply(op: Op, reply: &Reply) -> Bytes {
    let mut out = Vec::new();
    pb::encode_reply(op, reply, &mut out).unwrap();
    out.into()
}

/// The JSON of `value` means what these bytes mean, and their ProtoJSON means `value` again.
fn check_json<T>(name: &str, value: &T, bytes: &[u8], encode: impl FnOnce(T) -> Bytes)
where
    T: Serialize + DeserializeOwned,
{
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(of_json(name, &json), of_bytes(name, bytes), "{name}: {json}");
    let again: T = serde_json::from_str(&json_of(name, bytes)).unwrap();
    assert_eq!(of_bytes(name, &encode(again)), of_bytes(name, bytes), "{name}: {json}");
}

/// One test per operation and direction: there and back, and against JSON.
macro_rules! calls {
    ($($test:ident: $op:ident($strategy:ident) as $pb:ident;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(#[test]
            fn $test(req in any::$strategy()) {
                let encode = |req| encode_call(&Call::$op(Box::new(req)));
                let bytes = encode(req.clone());
                let Call::$op(again) = pb::decode_call(Op::$op, bytes.clone()).unwrap() else { panic!("another call") };
                prop_assert_eq!(&*again, &req);
                check_json(concat!("lf.a2a.v1.", stringify!($pb)), &req, &bytes, encode);
            })+
        }
    };
}

calls! {
    send_message: SendMessage(send_request) as SendMessageRequest;
    send_streaming_message: SendStreamingMessage(send_request) as SendMessageRequest;
    get_task: GetTask(get_request) as GetTaskRequest;
    list_tasks: ListTasks(list_request) as ListTasksRequest;
    cancel_task: CancelTask(cancel_request) as CancelTaskRequest;
    subscribe_to_task: SubscribeToTask(subscribe_request) as SubscribeToTaskRequest;
    create_config: CreateTaskPushNotificationConfig(push_config) as TaskPushNotificationConfig;
    get_config: GetTaskPushNotificationConfig(get_config_request) as GetTaskPushNotificationConfigRequest;
    list_configs: ListTaskPushNotificationConfigs(list_configs_request) as ListTaskPushNotificationConfigsRequest;
    delete_config: DeleteTaskPushNotificationConfig(delete_config_request) as DeleteTaskPushNotificationConfigRequest;
    get_card: GetExtendedAgentCard(card_request) as GetExtendedAgentCardRequest;
}

macro_rules! replies {
    ($($test:ident: $op:ident $reply:ident($strategy:ident) as $pb:ident;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(#[test]
            fn $test(answer in any::$strategy()) {
                let encode = |answer| encode_reply(Op::$op, &Reply::$reply(answer));
                let bytes = encode(answer.clone());
                let Reply::$reply(again) = pb::decode_reply(Op::$op, bytes.clone()).unwrap() else { panic!("another reply") };
                prop_assert_eq!(&again, &answer);
                check_json(concat!("lf.a2a.v1.", stringify!($pb)), &answer, &bytes, encode);
            })+
        }
    };
}

replies! {
    sent: SendMessage Sent(sent) as SendMessageResponse;
    a_task: GetTask Task(task) as Task;
    a_page_of_tasks: ListTasks Tasks(page_of_tasks) as ListTasksResponse;
    a_push_config: GetTaskPushNotificationConfig PushConfig(push_config) as TaskPushNotificationConfig;
    a_page_of_push_configs: ListTaskPushNotificationConfigs PushConfigs(page_of_push_configs)
        as ListTaskPushNotificationConfigsResponse;
    a_card: GetExtendedAgentCard Card(boxed_card) as AgentCard;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_event(event in any::event()) {
        let encode = |event: Event| {
            let mut out = Vec::new();
            pb::encode_event(&event, &mut out).unwrap();
            Bytes::from(out)
        };
        let bytes = encode(event.clone());
        prop_assert_eq!(&pb::decode_event(bytes.clone()).unwrap(), &event);
        check_json("lf.a2a.v1.StreamResponse", &event, &bytes, encode);
    }
}

#[test]
fn every_operation_has_its_rpc() {
    for row in Op::TABLE {
        let rpc = pb::rpc_name(row.op).unwrap();
        assert_eq!(pb::op_from_rpc(rpc), Some(row.op));
    }
    assert_eq!(pb::op_from_rpc("TaskSubscription"), None);
}

#[test]
fn nothing_is_no_bytes() {
    let op = Op::DeleteTaskPushNotificationConfig;
    assert!(encode_reply(op, &Reply::Empty).is_empty());
    assert!(matches!(pb::decode_reply(op, Bytes::new()), Ok(Reply::Empty)));
}

#[test]
fn a_file_shares_the_memory_of_its_request() {
    let file = Bytes::from(vec![7; 4096]);
    let call = Call::SendMessage(Box::new(SendMessageRequest {
        message: Message::user("m", Part::raw(file)),
        ..SendMessageRequest::default()
    }));
    let bytes = encode_call(&call);
    let Call::SendMessage(req) = pb::decode_call(Op::SendMessage, bytes.clone()).unwrap() else { panic!() };
    let nuncio_protocol::Content::Raw(raw) = &req.message.parts[0].content else { panic!() };
    assert!(bytes.as_ptr_range().contains(&raw.as_ptr()));
}

fn call_with_data(data: serde_json::Value) -> Call {
    let message = Message::user("m", [Part::text("x"), Part::data(data)]);
    Call::SendMessage(Box::new(SendMessageRequest { message, ..SendMessageRequest::default() }))
}

#[test]
fn an_integer_that_a_double_cannot_hold_is_refused_by_its_path() {
    // Trap T-31
    let limit = 1_u64 << 53;
    for fits in [json!(limit), json!(-(limit as i64)), json!(1e300), json!(-0.5)] {
        let Call::SendMessage(req) =
            pb::decode_call(Op::SendMessage, encode_call(&call_with_data(fits.clone()))).unwrap()
        else {
            panic!()
        };
        assert_eq!(req.message.parts[1], Part::data(fits));
    }
    for too_large in [json!(limit + 1), json!(-(limit as i64) - 1), json!(u64::MAX), json!(i64::MIN)] {
        let mut out = b"before".to_vec();
        let error = pb::encode_call(&call_with_data(json!({"a": [0, too_large]})), &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert_eq!(error.violations()[0].field, "message.parts[1].data.a[1]");
        assert_eq!(out, b"before");

        let mut task = Task::default();
        task.metadata.insert("n", too_large);
        let error = pb::encode_event(&Event::Task(task), &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
        assert!(error.message().contains("task.metadata.n: "), "{error}");
    }
}

fn send(message: generated::Message) -> Vec<u8> {
    let send = generated::SendMessageRequest { message: Some(message), ..Default::default() };
    prost::Message::encode_to_vec(&send)
}

#[test]
fn what_has_no_meaning_is_refused_by_its_field() {
    let text = generated::part::Content::Text("x".to_owned());
    let full = generated::Part { content: Some(text), ..Default::default() };
    // `SendMessageRequest.message.parts.data.number_value`: not a number.
    let nan = b"\x12\x0d\x2a\x0b\x22\x09\x11\x00\x00\x00\x00\x00\x00\xf8\x7f".to_vec();
    for (send, field, description) in [
        (
            send(generated::Message { parts: vec![full, generated::Part::default()], ..Default::default() }),
            "message.parts[1]",
            "none of text, raw, url, data; expected exactly one",
        ),
        (
            send(generated::Message { role: 42, ..Default::default() }),
            "message.role",
            "expected a Role, got 42",
        ),
        (nan, "message.parts[0].data", "expected a finite number, got NaN"),
    ] {
        let error = pb::decode_call(Op::SendMessage, send.into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert_eq!(error.violations()[0].field, field);
        assert_eq!(error.violations()[0].description, description);
    }
}

#[test]
fn a_moment_that_is_none_is_refused() {
    for (seconds, nanos) in [(i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
        let timestamp = Some(prost_types::Timestamp { seconds, nanos });
        let status = Some(generated::TaskStatus { timestamp, ..Default::default() });
        let task = generated::Task { status, ..Default::default() };
        let bytes = prost::Message::encode_to_vec(&task).into();
        let error = pb::decode_reply(Op::GetTask, bytes).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
        assert!(
            error.message().starts_with("invalid agent response: status.timestamp: expected a time"),
            "{error}"
        );
    }
}

#[test]
fn what_is_missing_reads_as_empty() {
    // As in JSON: validation then names the fields.
    let Call::SendMessage(req) = pb::decode_call(Op::SendMessage, Bytes::new()).unwrap() else { panic!() };
    assert_eq!(*req, SendMessageRequest::default());
    let Reply::Task(task) = pb::decode_reply(Op::GetTask, Bytes::new()).unwrap() else { panic!() };
    assert_eq!(task.status, TaskStatus::default());
    let error = pb::decode_event(Bytes::new()).unwrap_err();
    assert_eq!(
        error.message(),
        "invalid agent response: expected one of task message statusUpdate artifactUpdate"
    );
}
