//! The inherent differences of calls through a hub, with reasons. Every other difference is a defect.

use futures_util::future::BoxFuture;
use nuncio_hub::config::Mode;
use nuncio_protocol::{Binding, Version};
use nuncio_tests::world::Way;
use serde_json::{Map, Value};

use crate::instead;

/// The cases in which a scenario differs.
type Where = fn(Way) -> bool;

/// The check in place of the scenario.
pub(crate) type Instead = fn(Way) -> BoxFuture<'static, ()>;

/// The scenarios that cannot give what the bare runtime gives, where and why, and what is given in place of it.
const TABLE: &[(&str, Where, &str, Instead)] = &[
    (
        "large_integers_survive",
        over_protobuf,
        "protobuf has doubles only, and refuses rather than rounds",
        |way| Box::pin(instead::protobuf_refuses_what_it_would_round(way)),
    ),
    ("filters_combine", without_lists, NO_LISTS, |way| Box::pin(instead::a_list_is_refused(way))),
    ("pages_have_no_gaps_and_no_doubles", without_lists, NO_LISTS, |way| {
        Box::pin(instead::a_list_is_refused(way))
    }),
    ("wrong_parameters_of_a_list_are_named", without_lists, NO_LISTS, |way| {
        Box::pin(instead::a_list_is_refused(way))
    }),
    ("a_list_is_the_callers_own", without_lists, NO_LISTS, |way| Box::pin(instead::a_list_is_refused(way))),
    (
        "pages_have_no_gaps_and_no_doubles",
        proxy,
        "how many tasks there were when the first page was made is not kept",
        |way| Box::pin(instead::pages_are_whole_and_the_total_is_of_now(way)),
    ),
    ("a_list_is_the_callers_own", proxy, "a conversation of the agent's belongs to one caller", |way| {
        Box::pin(instead::a_conversation_is_of_one_caller_and_so_is_a_list(way))
    }),
    ("references_are_those_of_the_caller", proxy, "references go on as they came, or not at all", |way| {
        Box::pin(instead::references_go_on_or_are_not_found(way))
    }),
    ("there_are_no_streams_unless_declared", durable, "the hub streams, whatever the agent can do", |way| {
        Box::pin(instead::the_hub_streams(way))
    }),
    ("there_are_no_streams_unless_declared", proxy, FIRST, |way| {
        Box::pin(instead::there_are_no_streams_of_what_is_known(way))
    }),
    ("a_required_extension_must_be_declared", proxy, FIRST, |way| {
        Box::pin(instead::a_required_extension_comes_after_whose_the_task_is(way))
    }),
    ("wrong_parameters_are_named", proxy, FIRST, |way| {
        Box::pin(instead::wrong_parameters_come_after_whose_the_task_is(way))
    }),
    (
        "the_extended_card_is_for_those_who_authenticate",
        |_| true,
        "where the agent is reached is for the hub to say",
        |way| Box::pin(instead::the_extended_card_has_the_addresses_of_the_hub(way)),
    ),
];

const NO_LISTS: &str = "0.3 has no ListTasks (REQ-206)";
const FIRST: &str =
    "whose the task is comes before what is wrong with the call, which is for the agent to say";

/// The check in place of this scenario on this route, if it differs there.
pub(crate) fn instead_of(scenario: &str, way: Way) -> Option<Instead> {
    let row = TABLE.iter().find(|(name, applies, ..)| *name == scenario && applies(way));
    row.map(|(.., instead)| *instead)
}

/// Takes out of what the agent was given (see `show` in the script) what is not the caller's word but the hub's.
pub(crate) fn forget(way: Way, object: &mut Map<String, Value>) {
    if !(object.contains_key("before") && object.contains_key("caller")) {
        return;
    }
    // It comes in its own name.
    object.remove("caller");
    if way.is_durable() {
        // The agent's task is not ours, nor is its name of the conversation, and what is asked of it is what its card
        // declares.
        for name in ["taskId", "contextId", "references", "configuration", "extensions"] {
            object.remove(name);
        }
        if let Some(Value::Object(message)) = object.get_mut("message") {
            message.remove("taskId");
            message.remove("contextId");
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
