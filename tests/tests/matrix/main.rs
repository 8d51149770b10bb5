//! The matrix: each scenario is written once, and gives the same observations on the bare runtime and over
//! every wire, errors included (invariant 15; REQ-006, REQ-007). That a task has gone down to 0.3 and up
//! again on its way cannot be seen.
//!
//! A scenario runs in a world of its own: an agent that plays scripts, and callers. It asserts what the
//! specification or the product demands, and notes all it sees; what it noted is then compared with what
//! the bare runtime shows with its tasks in memory. If a scenario fails under `bare`, it is not the wire; if
//! it fails under one store only, it is that store.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod lists;
mod messages;
mod refusals;
mod streams;
mod webhooks;

use nuncio_tests::{transcript::Transcript, world::Way};

async fn check(way: Way, scenario: impl AsyncFn(Way) -> Transcript) {
    let expected = scenario(Way::BARE).await;
    // On the bare runtime this shows that the scenario itself is repeatable.
    let got = scenario(way).await;
    got.assert_same_as(&expected);
}

/// Instantiates scenarios over the stores and the ways to reach an agent. 0.3 lacks an operation, and only that one
/// (REQ-206).
macro_rules! matrix {
    (run $common:tt over_json $json:tt since_1_0 $newer:tt) => {
        matrix!(@data memory = Memory; $common $json $newer);
        matrix!(@data sqlite = Sqlite; $common $json $newer);
        matrix!(@data postgres = Postgres; $common $json $newer);
    };
    (@data $name:ident = $data:ident; $common:tt $json:tt $newer:tt) => {
        mod $name {
            use nuncio_protocol::{Binding, Version};
            use nuncio_tests::{
                data::Data,
                world::{By, Way},
            };
            const DATA: Data = Data::$data;
            matrix!(@on bare = Way::BARE; $common $json $newer);
            matrix!(@wire jsonrpc = JsonRpc; $common $json $newer);
            matrix!(@wire rest = HttpJson; $common $json $newer);
            matrix!(@wire grpc = Grpc; $common {} $newer);
        }
    };
    (@wire $name:ident = $binding:ident; $common:tt $json:tt $newer:tt) => {
        mod $name {
            use super::{Binding, By, DATA, Version, Way};
            matrix!(@on v1_0 = Way::wire(Binding::$binding, Version::V1_0, By::Direct); $common $json $newer);
            matrix!(@on client_1_0 = Way::wire(Binding::$binding, Version::V1_0, By::Client); $common $json $newer);
            matrix!(@on v0_3 = Way::wire(Binding::$binding, Version::V0_3, By::Direct); $common $json {});
            matrix!(@on client_0_3 = Way::wire(Binding::$binding, Version::V0_3, By::Client); $common $json {});
        }
    };
    (@on $name:ident = $way:expr; $({$($file:ident :: $scenario:ident;)*})+) => {
        mod $name {
            #[allow(unused_imports, reason = "the bare way names fewer")]
            use super::{Binding, By, DATA, Version, Way};
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::check($way.on(DATA), crate::$file::$scenario).await;
                }
            )*)+
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
        webhooks::a_webhook_is_made_told_and_replaced;
        webhooks::a_webhook_without_an_id_gets_one;
        webhooks::a_task_has_several_webhooks;
        webhooks::a_repeated_send_makes_one_webhook;
        webhooks::a_webhook_is_deleted_and_hears_no_more;
        webhooks::webhooks_of_unknown_and_foreign_tasks_are_told_alike;
        webhooks::wrong_webhooks_are_refused;
        webhooks::a_webhook_of_a_message_is_told_what_happens;
        webhooks::a_webhook_of_a_follow_up_is_told_the_rest;
    }
    over_json {
        messages::large_integers_survive;
    }
    since_1_0 {
        lists::filters_combine;
        lists::pages_have_no_gaps_and_no_doubles;
        lists::a_list_is_the_callers_own;
        lists::wrong_parameters_of_a_list_are_named;
        webhooks::webhooks_come_in_pages;
    }
}

/// REQ-206: there is no such method in 0.3, and our client does not invent one.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_cannot_be_asked_for_in_0_3() {
    lists::is_refused_in_0_3().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protobuf_refuses_what_it_cannot_carry() {
    messages::large_integers_are_refused_by_protobuf().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_id_0_3_calls_a_webhook_by_its_task() {
    webhooks::without_an_id_0_3_calls_it_by_its_task().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_webhook_is_told_in_the_version_that_made_it() {
    webhooks::each_webhook_is_told_in_the_version_that_made_it().await;
}
