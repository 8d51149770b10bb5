//! A second opinion on our JSON: a ProtoJSON implementation that knows the schema and nothing of us.
//!
//! Ours must be read by it with unknown fields denied, and what it then writes, in each of its styles,
//! must be read by us as the value we began with. What the two may differ in, and what the comparison
//! therefore evens out: a number in a `Struct` is a double, so `1` and `1.0` are the same. What the
//! strategies keep away from: time below a millisecond and integers beyond 2^53.

use std::{fmt::Debug, sync::LazyLock};

use proptest::prelude::*;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::strategies;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let files = protox::compile(["a2a_v1.proto"], [folder]).expect("the schema compiles");
    DescriptorPool::from_file_descriptor_set(files).expect("the schema is whole")
});

fn read_by_the_oracle(name: &str, json: &str) -> DynamicMessage {
    let descriptor = POOL.get_message_by_name(&format!("lf.a2a.v1.{name}")).expect("a message of the schema");
    let mut reader = serde_json::Deserializer::from_str(json);
    DynamicMessage::deserialize(descriptor, &mut reader)
        .unwrap_or_else(|error| panic!("{name}: {error}\n{json}"))
}

fn written_by_the_oracle(message: &DynamicMessage, options: &SerializeOptions) -> String {
    let mut out = Vec::new();
    message.serialize_with_options(&mut serde_json::Serializer::new(&mut out), options).expect("JSON");
    String::from_utf8(out).expect("JSON is text")
}

/// The styles in which ProtoJSON may be written; all must be understood.
fn styles() -> [SerializeOptions; 4] {
    let plain = SerializeOptions::new();
    [
        plain.clone(),
        plain.clone().use_proto_field_name(true),
        plain.clone().use_enum_numbers(true),
        plain.skip_default_fields(false),
    ]
}

/// As JSON, with whole doubles as integers.
fn evened(value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).expect("JSON");
    even(&mut value);
    value
}

fn even(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(double) = number.as_f64().filter(|double| double.fract() == 0.0) {
                *value = Value::from(double as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(even),
        Value::Object(members) => members.values_mut().for_each(even),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn agree<T: Serialize + DeserializeOwned + Debug>(name: &str, ours: &T) -> Result<(), TestCaseError> {
    let json = serde_json::to_string(ours).expect("JSON");
    let message = read_by_the_oracle(name, &json);
    for style in styles() {
        let theirs = written_by_the_oracle(&message, &style);
        let again: T = serde_json::from_str(&theirs).map_err(|error| {
            TestCaseError::fail(format!("{error}\n--- ours\n{json}\n--- theirs\n{theirs}"))
        })?;
        prop_assert_eq!(evened(&again), evened(ours), "{}", theirs);
        // And the other way round: what we make of theirs, it reads as what it wrote.
        let message_again = read_by_the_oracle(name, &serde_json::to_string(&again).expect("JSON"));
        prop_assert_eq!(&message_again, &message);
    }
    Ok(())
}

proptest! {
    #[test]
    fn on_messages(message in strategies::message()) {
        agree("Message", &message)?;
    }

    #[test]
    fn on_events(event in strategies::event()) {
        agree("StreamResponse", &event)?;
    }

    #[test]
    fn on_cards(card in strategies::card()) {
        agree("AgentCard", &card)?;
    }

    #[test]
    fn on_sends(req in strategies::send_request(), sent in strategies::sent()) {
        agree("SendMessageRequest", &req)?;
        agree("SendMessageResponse", &sent)?;
    }

    #[test]
    fn on_lists(req in strategies::list_request(), page in strategies::page_of_tasks()) {
        agree("ListTasksRequest", &req)?;
        agree("ListTasksResponse", &page)?;
    }

    #[test]
    fn on_webhooks(
        config in strategies::push_config(),
        page in strategies::page_of_push_configs(),
        list in strategies::list_configs_request(),
        get in strategies::get_config_request(),
        delete in strategies::delete_config_request(),
    ) {
        agree("TaskPushNotificationConfig", &config)?;
        agree("ListTaskPushNotificationConfigsResponse", &page)?;
        agree("ListTaskPushNotificationConfigsRequest", &list)?;
        agree("GetTaskPushNotificationConfigRequest", &get)?;
        agree("DeleteTaskPushNotificationConfigRequest", &delete)?;
    }

    #[test]
    fn on_small_requests(
        get in strategies::get_request(),
        cancel in strategies::cancel_request(),
        subscribe in strategies::subscribe_request(),
        card in strategies::card_request(),
    ) {
        agree("GetTaskRequest", &get)?;
        agree("CancelTaskRequest", &cancel)?;
        agree("SubscribeToTaskRequest", &subscribe)?;
        agree("GetExtendedAgentCardRequest", &card)?;
    }
}
