//! The matrix once more, through a hub: its callers speak one binding and version, its agent another, and the tasks
//! are the hub's or the agent's own. What callers see is what the bare runtime shows, but for what `nature` lists.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../matrix/lists.rs"]
#[expect(dead_code, reason = "one of them is not about a scenario")]
mod lists;
#[path = "../matrix/messages.rs"]
#[expect(dead_code, reason = "one of them is not about a scenario")]
mod messages;
#[path = "../matrix/refusals.rs"]
mod refusals;
#[path = "../matrix/streams.rs"]
mod streams;

mod nature;
mod notified;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use nuncio_tests::{transcript::Transcript, within, world::Way};

/// Plays a scenario on the bare runtime and on this way, and compares. What differs by nature has to differ: a row
/// that is not needed any more is as wrong as one that is missing.
fn check(way: Way, name: &str, scenario: impl AsyncFn(Way) -> Transcript) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let play = |way| {
        let played = AssertUnwindSafe(within("the end of the scenario", scenario(way)));
        runtime.block_on(played.catch_unwind())
    };
    let expected = play(Way::BARE).unwrap();
    let difference = match play(way) {
        Ok(seen) => seen.difference(&expected, |object| nature::forget(way, object)),
        Err(_) => Some("see above".to_owned()),
    };
    match (nature::differs(way, name), difference) {
        (None, None) | (Some(_), Some(_)) => {}
        (None, Some(difference)) => panic!("{difference}"),
        (Some(why), None) => panic!("the same after all, though {why}"),
    }
}

/// Instantiates scenarios over modes, the wires of callers and the wires of the agent.
macro_rules! matrix {
    (run $scenarios:tt) => {
        matrix!(@mode durable = Durable; $scenarios);
        matrix!(@mode proxy = Proxy; $scenarios);
    };
    (@mode $name:ident = $mode:ident; $scenarios:tt) => {
        mod $name {
            use nuncio_hub::config::Mode;
            use nuncio_protocol::{Binding, Version};
            use nuncio_tests::world::Way;
            const MODE: Mode = Mode::$mode;
            matrix!(@caller jsonrpc_1_0 = (JsonRpc, V1_0); $scenarios);
            matrix!(@caller rest_1_0 = (HttpJson, V1_0); $scenarios);
            matrix!(@caller grpc_1_0 = (Grpc, V1_0); $scenarios);
            matrix!(@caller jsonrpc_0_3 = (JsonRpc, V0_3); $scenarios);
            matrix!(@caller rest_0_3 = (HttpJson, V0_3); $scenarios);
            matrix!(@caller grpc_0_3 = (Grpc, V0_3); $scenarios);
        }
    };
    (@caller $name:ident = ($binding:ident, $version:ident); $scenarios:tt) => {
        mod $name {
            use super::{Binding, MODE, Version, Way};
            const CALLER: (Binding, Version) = (Binding::$binding, Version::$version);
            matrix!(@agent to_jsonrpc_1_0 = (JsonRpc, V1_0); $scenarios);
            matrix!(@agent to_rest_1_0 = (HttpJson, V1_0); $scenarios);
            matrix!(@agent to_grpc_1_0 = (Grpc, V1_0); $scenarios);
            matrix!(@agent to_jsonrpc_0_3 = (JsonRpc, V0_3); $scenarios);
            matrix!(@agent to_rest_0_3 = (HttpJson, V0_3); $scenarios);
            matrix!(@agent to_grpc_0_3 = (Grpc, V0_3); $scenarios);
        }
    };
    (@agent $name:ident = ($binding:ident, $version:ident); {$($file:ident :: $scenario:ident;)*}) => {
        mod $name {
            use super::{Binding, CALLER, MODE, Version, Way};
            const WAY: Way = Way::through(MODE, CALLER, (Binding::$binding, Version::$version));
            $(
                #[test]
                fn $scenario() {
                    crate::check(WAY, stringify!($scenario), crate::$file::$scenario);
                }
            )*
        }
    };
}

matrix! {
    run {
        messages::a_blocking_send_answers_with_the_finished_task;
        messages::return_immediately_answers_with_the_new_task;
        messages::an_agent_that_says_nothing_completes_its_task;
        messages::a_direct_reply_makes_no_task;
        messages::a_question_is_answered_by_the_task_id_alone;
        messages::an_authorisation_is_asked_for_and_given;
        messages::rejection_failure_and_panic_end_the_task;
        messages::pieces_become_one_artifact;
        messages::every_kind_of_part_survives;
        messages::metadata_survives_everywhere;
        messages::references_are_those_of_the_caller;
        messages::history_is_as_long_as_asked_for;
        messages::a_conversation_spans_tasks;
        messages::a_repeated_send_finds_its_task;
        streams::a_stream_shows_the_whole_lifecycle;
        streams::a_direct_reply_is_the_only_event;
        streams::a_question_ends_the_stream_of_a_send_and_no_subscription;
        streams::a_stream_stays_open_while_an_authorisation_is_awaited;
        streams::a_follow_up_stream_begins_with_the_task;
        streams::a_subscription_begins_with_a_snapshot;
        streams::all_subscribers_see_the_same_and_one_may_leave;
        streams::a_stream_resumes_after_the_last_event;
        streams::a_repeated_streaming_send_resumes;
        streams::a_caller_that_leaves_stops_nothing;
        streams::streams_show_the_cancel;
        streams::history_length_is_for_the_first_event;
        refusals::unknown_and_foreign_tasks_are_told_alike;
        refusals::a_task_can_be_canceled_once;
        refusals::a_finished_task_takes_no_message;
        refusals::a_context_that_is_not_the_tasks_is_refused;
        refusals::a_media_type_that_is_not_taken_is_refused;
        refusals::a_required_extension_must_be_declared;
        refusals::the_extended_card_is_for_those_who_authenticate;
        refusals::there_are_no_webhooks;
        refusals::there_are_no_streams_unless_declared;
        refusals::wrong_parameters_are_named;
        messages::large_integers_survive;
        lists::filters_combine;
        lists::pages_have_no_gaps_and_no_doubles;
        lists::a_list_is_the_callers_own;
        lists::wrong_parameters_of_a_list_are_named;
    }
}
