//! Any value at all: what is left of it after a way down and up is what the table says, and what the table
//! does not name stays as it is.

use nuncio_protocol::{AgentCard, AgentInterface, op::Op};
use proptest::{collection, option, prelude::*, sample::select};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    down::{compare, predicted, there_and_back},
    loss::Seen,
    strategies as any,
    wire::{Kind, Wire},
};

/// The documents of one kind.
fn of<T: Serialize + std::fmt::Debug>(
    kind: Kind,
    values: impl Strategy<Value = T>,
) -> impl Strategy<Value = (Kind, Value)> {
    values.prop_map(move |value| (kind, json!(value)))
}

fn call() -> impl Strategy<Value = (Kind, Value)> {
    prop_oneof![
        of(Kind::Call(Op::SendMessage), any::send_request()),
        of(Kind::Call(Op::SendStreamingMessage), any::send_request()),
        of(Kind::Call(Op::GetTask), any::get_request()),
        of(Kind::Call(Op::ListTasks), any::list_request()),
        of(Kind::Call(Op::CancelTask), any::cancel_request()),
        of(Kind::Call(Op::SubscribeToTask), any::subscribe_request()),
        of(Kind::Call(Op::CreateTaskPushNotificationConfig), any::push_config()),
        of(Kind::Call(Op::GetTaskPushNotificationConfig), any::get_config_request()),
        of(Kind::Call(Op::ListTaskPushNotificationConfigs), any::list_configs_request()),
        of(Kind::Call(Op::DeleteTaskPushNotificationConfig), any::delete_config_request()),
    ]
}

fn answer() -> impl Strategy<Value = (Kind, Value)> {
    prop_oneof![
        2 => of(Kind::Event, any::event()),
        1 => of(Kind::Event, any::message().prop_map(|message| json!({"message": message}))),
        1 => of(Kind::Reply(Op::SendMessage), any::sent()),
        1 => of(Kind::Reply(Op::GetTask), any::task()),
        1 => of(Kind::Reply(Op::CancelTask), any::task()),
        1 => of(Kind::Reply(Op::ListTasks), any::page_of_tasks()),
        1 => of(Kind::Reply(Op::CreateTaskPushNotificationConfig), any::push_config()),
        1 => of(Kind::Reply(Op::GetTaskPushNotificationConfig), any::push_config()),
        1 => of(Kind::Reply(Op::ListTaskPushNotificationConfigs), any::page_of_push_configs()),
    ]
}

/// A card that v0.3 clients reach more often than not.
fn card() -> impl Strategy<Value = Box<AgentCard>> {
    let interface = (
        select(&["https://a.example", "https://b.example", "https://c.example", ""][..]),
        select(&["JSONRPC", "GRPC", "HTTP+JSON", "https://x.example/own", ""][..]),
        option::of("[a-z]{1,3}"),
        select(&["0.3", "0.3.0", "0.3.1", "1.0", "0.2.6", "0.3.x", ""][..]),
    )
        .prop_map(|(url, binding, tenant, version)| AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.to_owned(),
            tenant,
            protocol_version: version.to_owned(),
        });
    (any::boxed_card(), collection::vec(interface, 0..5)).prop_map(|(mut card, interfaces)| {
        card.supported_interfaces = interfaces;
        card
    })
}

fn check((kind, json): &(Kind, Value)) -> Result<(), TestCaseError> {
    for wire in Wire::OLD.into_iter().chain([Wire::V1Grpc]) {
        let expected = predicted(*kind, json, &[wire], &mut Seen::default());
        let found = there_and_back(*kind, json, &[wire]);
        if let Some(failure) = compare(&format!("{kind:?} in {wire:?}"), json, &expected, &found) {
            return Err(TestCaseError::fail(failure));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn calls(document in call()) {
        check(&document)?;
    }

    #[test]
    fn calls_for_the_card(document in of(Kind::Call(Op::GetExtendedAgentCard), any::card_request())) {
        check(&document)?;
    }

    #[test]
    fn answers_and_events(document in answer()) {
        check(&document)?;
    }

    #[test]
    fn cards(document in of(Kind::Reply(Op::GetExtendedAgentCard), card())) {
        check(&document)?;
    }
}
