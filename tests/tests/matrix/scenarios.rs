//! The scenarios, once for all that play them: each by the file that it is in.

/// Hands the scenarios to a macro, in groups: what every way has, what JSON carries and protobuf does not, what there is
/// since 1.0, and the same of webhooks.
macro_rules! scenarios {
    ($play:ident) => {
        $play! {
            run {
                messages::a_blocking_send_answers_with_the_finished_task;
                messages::return_immediately_answers_with_the_new_task;
                messages::an_agent_that_says_nothing_completes_its_task;
                messages::a_direct_reply_makes_no_task;
                messages::a_question_is_answered_by_the_task_id_alone;
                messages::an_authorisation_is_asked_for_and_given;
                messages::rejection_failure_and_panic_end_the_task;
                messages::pieces_become_one_artifact;
                messages::an_agent_reads_the_conversation_of_its_caller;
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
                streams::a_text_that_grows_is_one_text;
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
                refusals::roles_are_named_in_the_words_of_the_version;
            }
            over_json {
                messages::large_integers_survive;
            }
            since_1_0 {
                lists::filters_combine;
                lists::pages_have_no_gaps_and_no_doubles;
                lists::a_list_is_the_callers_own;
                lists::wrong_parameters_of_a_list_are_named;
            }
            webhooks {
                webhooks::a_webhook_is_made_told_and_replaced;
                webhooks::a_webhook_without_an_id_gets_one;
                webhooks::a_task_has_several_webhooks;
                webhooks::a_repeated_send_makes_one_webhook;
                webhooks::a_webhook_is_deleted_and_hears_no_more;
                webhooks::webhooks_of_unknown_and_foreign_tasks_are_told_alike;
                webhooks::wrong_webhooks_are_refused;
                webhooks::a_webhook_of_a_message_is_told_what_happens;
                webhooks::a_webhook_of_a_follow_up_is_told_the_rest;
                webhooks::a_webhook_is_told_a_text_in_one_part;
            }
            webhooks_since_1_0 {
                webhooks::webhooks_come_in_pages;
            }
        }
    };
}
