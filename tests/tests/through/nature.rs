//! What is otherwise through a hub, by nature, and why. Everything else that differs is a defect.

use nuncio_hub::config::Mode;
use nuncio_protocol::{Binding, Version};
use nuncio_tests::world::Way;
use serde_json::{Map, Value};

/// Where a scenario differs.
type Where = fn(Way) -> bool;

/// The scenarios that cannot give what the bare runtime gives.
const TABLE: &[(&str, Where, &str)] = &[
    ("large_integers_survive", over_protobuf, "protobuf has doubles only, and refuses rather than rounds"),
    ("filters_combine", without_lists, "0.3 has no ListTasks (REQ-206)"),
    ("pages_have_no_gaps_and_no_doubles", without_lists, "0.3 has no ListTasks (REQ-206)"),
    ("a_list_is_the_callers_own", without_lists, "0.3 has no ListTasks (REQ-206)"),
    ("wrong_parameters_of_a_list_are_named", without_lists, "0.3 has no ListTasks (REQ-206)"),
    ("pages_have_no_gaps_and_no_doubles", proxy, "what the agent counts is not the caller's alone"),
    ("a_list_is_the_callers_own", proxy, "a conversation of the agent's belongs to one caller"),
    ("references_are_those_of_the_caller", proxy, "references go on as they came, or not at all"),
    ("there_are_no_streams_unless_declared", durable, "the hub streams, whatever the agent can do"),
    ("there_are_no_streams_unless_declared", proxy, FIRST),
    ("a_required_extension_must_be_declared", proxy, FIRST),
    ("wrong_parameters_are_named", proxy, FIRST),
    ("the_extended_card_is_for_those_who_authenticate", durable, "the hub has no extended card of its own"),
    ("the_extended_card_is_for_those_who_authenticate", proxy, "where it is reached is for the hub to say"),
];

const FIRST: &str =
    "whose the task is comes before what is wrong with the call, which is for the agent to say";

/// Why this scenario differs on this way, if it does.
pub(crate) fn differs(way: Way, scenario: &str) -> Option<&'static str> {
    let row = TABLE.iter().find(|(name, applies, _)| *name == scenario && applies(way));
    row.map(|(.., why)| *why)
}

/// Takes out of what the agent was given (see `show` in the script) what is not the caller's word but the hub's.
pub(crate) fn forget(way: Way, object: &mut Map<String, Value>) {
    if !(object.contains_key("before") && object.contains_key("caller")) {
        return;
    }
    // It comes in its own name.
    object.remove("caller");
    if way.is_durable() {
        // The agent's task is not ours, and what is asked of it is what its card declares.
        for name in ["taskId", "references", "configuration", "extensions"] {
            object.remove(name);
        }
        if let Some(Value::Object(message)) = object.get_mut("message") {
            message.remove("taskId");
            message.remove("referenceTaskIds");
        }
    }
}

fn durable(way: Way) -> bool {
    way.is_durable()
}

fn proxy(way: Way) -> bool {
    way.hub().is_some_and(|hub| hub.mode == Mode::Proxy)
}

fn over_protobuf(way: Way) -> bool {
    way.binding() == Some(Binding::Grpc) || way.hub().is_some_and(|hub| hub.binding == Binding::Grpc)
}

fn without_lists(way: Way) -> bool {
    way.version() == Version::V0_3 || proxy(way) && way.hub().is_some_and(|hub| hub.version == Version::V0_3)
}
