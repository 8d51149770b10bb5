//! The contract of [`Store`] as lists of checks. Every store of this crate passes them; so can yours:
//!
//! ```
//! use std::sync::Arc;
//!
//! use nuncio_server::store::MemoryStore;
//!
//! nuncio_server::store_conformance!(Arc::new(MemoryStore::default()));
//! ```
//!
//! Two more lists, over [`Handles`], have the checks that need several owners:
//! [`store_ownership_conformance!`](crate::store_ownership_conformance) for owners one after the other, and
//! [`store_sharing_conformance!`](crate::store_sharing_conformance) for owners at the same time.

pub mod batch;
pub mod content;
pub mod forget;
pub mod handed_in;
pub mod history;
pub mod judge;
pub mod list;
pub mod log;
pub mod memo;
pub mod operator_queries;
pub mod outbox;
pub mod owner;
pub mod random;
pub mod records;
pub mod reserve;
pub mod secret;
pub mod sharing;
pub mod text;
pub mod turns;
mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{ContextId, Event, Message, Part, Seq, Task, TaskId, TaskState, TaskStatus, Timestamp};

pub(super) use self::writer::Writer;
use super::{Attached, Commit, IdempotencyKey, Orphan, Refused, Scope, Store, StoreError};

/// Makes one test per check. The expression creates an empty `Arc<dyn Store>`; it may await.
#[macro_export]
macro_rules! store_conformance {
    ($store:expr) => {
        $crate::store_conformance! { @each $store;
            log::numbers_begin_at_one_and_have_no_gap
            log::an_entry_is_refused_unless_the_log_is_where_it_expects
            log::an_ended_task_takes_no_more_entries
            log::one_of_many_writers_wins
            log::entries_of_a_batch_stand_or_fall_alone
            log::not_yours_is_not_found
            log::a_task_and_its_log_agree
            log::events_come_in_pages
            log::an_event_costs_its_own_size
            log::a_key_finds_its_task_and_is_taken
            log::a_later_entry_has_a_key_of_its_own
            log::a_kept_reply_stands
            list::the_list_is_newest_status_first_then_by_id
            list::filters_narrow_alone_and_together
            list::a_cursor_beyond_the_time_filter_gives_an_empty_page
            list::every_page_size_shows_each_task_exactly_once
            list::unchanged_tasks_are_listed_once_while_others_change
            list::totals_count_every_match_whatever_the_page
            list::pages_and_totals_hold_over_many_tasks
            list::a_total_is_exact_up_to_its_bound
            list::a_page_ends_with_its_bytes
            list::a_strict_page_ends_before_what_does_not_fit
            batch::a_batch_holds_entries_of_many_tasks
            batch::a_batch_holds_many_entries_of_one_task
            batch::a_refused_entry_breaks_the_chain_of_its_task
            batch::what_a_batch_could_not_make_is_not_found
            batch::entries_of_a_batch_are_taken_in_order
            batch::a_batch_may_hold_a_whole_conversation
            batch::a_long_conversation_and_its_log_agree
            turns::unknown_turns_and_turns_of_unknown_tasks_are_not_found
            turns::a_status_drops_the_turns_that_it_ends
            history::each_entry_has_its_own_time
            history::references_link_tasks_both_ways
            history::only_what_callers_said_links
            history::links_stay_in_their_scope
            history::links_are_forgotten_with_their_tasks
            history::children_are_told_up_to_a_number
            forget::tasks_are_pruned_by_state_agent_and_age
            forget::the_oldest_are_pruned_first
            forget::tasks_in_progress_are_never_pruned
            forget::what_is_forgotten_leaves_no_trace
            forget::a_callers_data_is_erased
            forget::an_erased_task_takes_no_more_entries
            content::content_of_every_kind_and_size_comes_back_equal
            content::a_very_large_part_comes_back_equal
            content::many_parts_at_the_edge_come_back_equal
            content::a_text_in_pieces_comes_back_as_one_part
            content::the_same_content_in_two_tasks_is_each_ones_own
            content::a_large_reply_comes_back_equal
            text::ids_are_told_apart_and_ordered_by_their_bytes
            text::contexts_and_keys_are_told_apart_by_their_bytes
            text::scopes_are_told_apart_by_each_of_their_names
            text::strange_references_harm_nobody
            text::any_moment_has_its_place_in_the_list
            outbox::webhooks_are_kept_by_task_and_id
            outbox::a_task_has_only_so_many_webhooks
            outbox::an_entry_is_owed_to_the_webhooks_that_are_there
            outbox::a_batch_owes_what_it_appends
            outbox::what_is_due_is_leased_once_until_it_is_released
            outbox::what_its_holder_does_not_know_of_is_leased_again
            outbox::targets_take_turns
            outbox::the_longest_due_comes_first
            outbox::a_stopped_webhook_is_owed_nothing
            outbox::a_dropped_webhook_is_owed_nothing
            outbox::a_replaced_webhook_keeps_what_it_is_owed
            outbox::deliveries_tell_what_became_of_them
            outbox::what_is_done_is_not_undone_by_a_late_word
            outbox::deliveries_are_listed_in_pages
            outbox::what_is_owed_is_counted
            outbox::what_is_redriven_is_due_again
            outbox::webhooks_are_forgotten_with_their_tasks
            records::a_record_is_written_only_where_it_is_as_expected
            records::records_stand_or_fall_with_their_entry
            records::one_of_many_entries_has_a_record
            turns::parking_drops_the_turns_that_have_begun
            records::records_of_a_call_are_taken_in_order
            records::records_are_listed_by_prefix_in_the_order_of_their_bytes
            records::values_of_every_size_come_back_equal
            records::a_record_is_dropped_only_where_it_is_as_expected
            records::the_oldest_records_are_pruned_first
            records::one_of_many_writers_of_a_record_wins
            records::many_callers_put_records_at_once
            memo::a_memo_stands_or_falls_with_its_entry
            memo::the_last_memo_of_a_batch_is_kept
            memo::a_memo_is_forgotten_with_its_task
            reserve::a_reservation_takes_its_key_and_shows_no_task
            reserve::a_reserved_task_begins_with_its_first_entry
            reserve::a_reserved_task_without_its_reservation_is_refused
            reserve::a_reply_ends_a_reservation
            reserve::a_released_key_is_free
            reserve::reservations_are_erased_with_their_caller
            operator_queries::tasks_of_all_callers_are_listed
            operator_queries::tasks_are_found_by_context_age_and_the_beginning_of_their_id
            operator_queries::the_size_of_the_data_is_known
            operator_queries::a_task_is_found_whoever_owns_it
            operator_queries::tasks_are_counted_by_agent_and_state
            secret::a_secret_is_made_once_and_each_is_its_own
            random::random_operations_agree_with_a_naive_model
        }
    };
    (@each $store:expr; $($module:ident::$check:ident)+) => {$(
        #[tokio::test]
        async fn $check() {
            let store: std::sync::Arc<dyn $crate::store::Store> = $store;
            $crate::store::conformance::$module::$check(store).await;
        }
    )+};
}

/// Makes one test per check of owners one after the other. The expression creates [`Handles`] of an empty
/// store; it may await. Only one handle is open at a time.
#[macro_export]
macro_rules! store_ownership_conformance {
    ($handles:expr) => {
        $crate::store_ownership_conformance! { @each $handles;
            owner::what_a_gone_owner_left_is_adopted_once
            owner::adoption_is_bounded
            owner::an_adopted_task_goes_on_and_is_adopted_again
            owner::what_a_gone_owner_left_is_held_until_it_is_adopted_or_taken
            owner::a_settled_task_of_a_gone_owner_needs_no_adoption
            owner::a_parked_task_is_in_nobodys_hands
            owner::what_was_committed_outlives_its_owner
            turns::turns_outlive_their_owner
            turns::turns_are_the_owners_alone
            turns::a_turn_moves_a_task_at_rest
            turns::only_turns_that_wait_make_an_orphan_of_a_settled_task
            handed_in::a_turn_is_handed_in_to_the_owner_of_its_task
            handed_in::what_was_handed_in_is_adopted_and_forgotten_with_its_task
            outbox::what_a_gone_owner_had_in_hand_is_free
            records::records_outlive_their_owner
            memo::an_adopted_task_has_its_memo
            reserve::what_a_gone_owner_reserved_is_abandoned
            judge::every_write_is_judged_by_the_one_rule
            random::what_owners_leave_agrees_with_a_naive_model
        }
    };
    (@each $handles:expr; $($module:ident::$check:ident)+) => {$(
        #[tokio::test]
        async fn $check() {
            let handles = $handles;
            $crate::store::conformance::$module::$check(&handles).await;
        }
    )+};
}

/// Makes one test per check of owners at the same time. The expression creates [`Handles`] of an empty store;
/// it may await.
#[macro_export]
macro_rules! store_sharing_conformance {
    ($handles:expr) => {
        $crate::store_ownership_conformance! { @each $handles;
            sharing::a_task_in_progress_is_its_owners_alone
            sharing::a_settled_task_moves_to_whoever_goes_on_with_it
            sharing::taking_over_wins_and_the_former_owner_is_refused
            sharing::one_of_many_owners_wins
            sharing::what_a_living_owner_works_on_is_not_adopted
            sharing::an_orphan_is_given_to_one_of_many
            sharing::an_owner_that_was_thought_gone_is_refused
            sharing::what_one_owner_commits_every_owner_reads
            sharing::what_others_write_is_seen_to_move
            handed_in::the_owner_sees_the_turns_that_wait
            handed_in::a_turn_waits_or_the_task_is_at_rest
            handed_in::one_of_many_hand_ins_under_a_key_is_stored
            outbox::a_webhook_is_in_one_owners_hands
            records::owners_share_their_records
            reserve::one_of_many_owners_has_a_key
            reserve::a_reservation_that_was_taken_is_lost
            random::what_many_owners_do_agrees_with_a_naive_model
        }
    };
}

/// Opens stores over the same data, each a separate owner.
#[async_trait]
pub trait Handles: Send + Sync {
    /// The type of the stores.
    type Handle: Store;

    /// Opens a store as a new owner.
    async fn open(&self) -> Arc<Self::Handle>;

    /// Ends an owner as a crash of its process would. No one else has the handle any more, except in the
    /// checks of owners at the same time.
    async fn die(&self, handle: Arc<Self::Handle>);
}

/// The time within which a store has to notice that an owner has stopped.
const NOTICED: Duration = Duration::from_secs(60);

/// Adopts tasks of this agent; repeats until there are some, because a store may need a while to notice that
/// an owner has stopped.
#[expect(clippy::expect_used, reason = "a check of the contract: too late is wrong")]
async fn adopted(store: &dyn Store, agent: &str, limit: usize) -> Vec<Orphan> {
    let given = async {
        let mut again = tokio::time::interval(Duration::from_millis(100));
        loop {
            again.tick().await;
            let orphans = works(store.adopt(agent, limit).await);
            assert!(orphans.len() <= limit, "more than asked for");
            if !orphans.is_empty() {
                return orphans;
            }
        }
    };
    tokio::time::timeout(NOTICED, given).await.expect("what a gone owner has left is adopted")
}

/// The checks are about the contract, not about failures.
#[expect(clippy::expect_used, reason = "said above")]
#[track_caller]
fn works<T>(result: Result<T, StoreError>) -> T {
    result.expect("the store works")
}

pub(super) fn scope(owner: &str) -> Arc<Scope> {
    Arc::new(Scope { agent: "agent".into(), tenant: None, owner: Some(owner.into()) })
}

#[expect(clippy::expect_used, reason = "small numbers are moments")]
pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).expect("a moment")
}

pub(super) fn key(name: &str, digest: u8) -> IdempotencyKey {
    IdempotencyKey { key: name.into(), digest: [digest; 32] }
}

/// The first entry of a task.
pub(super) fn creation(id: &str, context_id: &str, when: i64) -> Task {
    Task {
        id: id.into(),
        context_id: context_id.into(),
        status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(at(when)) },
        history: vec![Arc::new(Message::user("m-1", Part::text("hello")))],
        ..Task::default()
    }
}

/// The entry that creates a task.
pub(super) fn opening(scope: &Arc<Scope>, id: &str, idempotency: Option<IdempotencyKey>) -> Commit {
    Commit {
        scope: Arc::clone(scope),
        task_id: id.into(),
        expected: Seq::ZERO,
        event: Arc::new(Event::Task(creation(id, "c-1", 1))),
        at: at(1),
        snapshot: None,
        take: false,
        push: false,
        attached: Attached { idempotency, ..Attached::default() },
    }
}

/// Commits entries; the store must not fail.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub(super) async fn commit(store: &dyn Store, batch: Vec<Commit>) -> Vec<Result<(), Refused>> {
    let entries = batch.len();
    let results = store.commit(batch).await.expect("the store works");
    assert_eq!(results.len(), entries, "one result per entry");
    results
}

pub(super) async fn commit_one(store: &dyn Store, entry: Commit) -> Result<(), Refused> {
    commit(store, vec![entry]).await.remove(0)
}

/// The task and its last number.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub(super) async fn stored(store: &dyn Store, scope: &Scope, id: &TaskId) -> Option<(Task, Seq)> {
    store.task(scope, id).await.expect("the store works").map(|stored| (stored.task, stored.seq))
}

/// The numbers and events after `after`.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub(super) async fn events(
    store: &dyn Store,
    scope: &Scope,
    id: &TaskId,
    after: u64,
    limit: usize,
) -> Vec<(u64, Arc<Event>)> {
    let events = store.events(scope, id, Seq(after), limit).await.expect("the store works");
    events.into_iter().map(|entry| (entry.seq.0, entry.event)).collect()
}

pub(super) fn context(id: &str) -> ContextId {
    id.into()
}
