//! The contract of [`Store`] as a list of checks. Every store of this crate passes them; so can yours:
//!
//! ```
//! use std::sync::Arc;
//!
//! use nuncio_server::store::MemoryStore;
//!
//! nuncio_server::store_conformance!(Arc::new(MemoryStore::default()));
//! ```

mod list;
mod log;

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, ContextId, Event, Message, Part, Seq, Task, TaskArtifactUpdateEvent, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp, fold,
};

pub use self::{
    list::{
        a_cursor_beyond_the_time_filter_gives_an_empty_page, every_page_size_shows_each_task_exactly_once,
        filters_narrow_alone_and_together, the_list_is_newest_status_first_then_by_id,
        totals_count_every_match_whatever_the_page, unchanged_tasks_are_listed_once_while_others_change,
    },
    log::{
        a_kept_reply_stands, a_key_finds_its_task_and_is_taken, a_later_entry_has_a_key_of_its_own,
        a_task_and_its_log_agree, an_entry_is_refused_unless_the_log_is_where_it_expects,
        an_event_costs_its_own_size, entries_of_a_batch_stand_or_fall_alone, events_come_in_pages,
        not_yours_is_not_found, numbers_begin_at_one_and_have_no_gap, one_of_many_writers_wins,
    },
};
use super::{Commit, IdempotencyKey, Refused, Scope, Store};

/// Makes one test per check. The expression makes an empty `Arc<dyn Store>`; it may await.
#[macro_export]
macro_rules! store_conformance {
    ($store:expr) => {
        $crate::store_conformance! { @each $store;
            numbers_begin_at_one_and_have_no_gap
            an_entry_is_refused_unless_the_log_is_where_it_expects
            one_of_many_writers_wins
            entries_of_a_batch_stand_or_fall_alone
            not_yours_is_not_found
            a_task_and_its_log_agree
            events_come_in_pages
            an_event_costs_its_own_size
            a_key_finds_its_task_and_is_taken
            a_later_entry_has_a_key_of_its_own
            a_kept_reply_stands
            the_list_is_newest_status_first_then_by_id
            filters_narrow_alone_and_together
            a_cursor_beyond_the_time_filter_gives_an_empty_page
            every_page_size_shows_each_task_exactly_once
            unchanged_tasks_are_listed_once_while_others_change
            totals_count_every_match_whatever_the_page
        }
    };
    (@each $store:expr; $($check:ident)+) => {$(
        #[tokio::test]
        async fn $check() {
            let store: std::sync::Arc<dyn $crate::store::Store> = $store;
            $crate::store::conformance::$check(store).await;
        }
    )+};
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

/// The entry that makes a task.
pub(super) fn opening(scope: &Arc<Scope>, id: &str, idempotency: Option<IdempotencyKey>) -> Commit {
    Commit {
        scope: Arc::clone(scope),
        task_id: id.into(),
        expected: Seq::ZERO,
        event: Arc::new(Event::Task(creation(id, "c-1", 1))),
        at: at(1),
        snapshot: None,
        idempotency,
        turn: None,
        take: false,
    }
}

/// Writes one task, as the runtime would: it folds what it commits.
#[derive(Clone)]
pub(super) struct Writer {
    store: Arc<dyn Store>,
    pub(super) scope: Arc<Scope>,
    pub(super) task: Task,
    pub(super) seq: Seq,
}

impl Writer {
    pub(super) async fn create(
        store: &Arc<dyn Store>,
        scope: &Arc<Scope>,
        id: &str,
        context_id: &str,
        when: i64,
    ) -> Self {
        let task = creation(id, context_id, when);
        let mut writer = Self { store: Arc::clone(store), scope: Arc::clone(scope), task, seq: Seq::ZERO };
        let event = Event::Task(writer.task.clone());
        writer.append(event).await;
        writer
    }

    /// Goes on with a task that is there.
    #[cfg(test)]
    pub(super) fn open(store: &Arc<dyn Store>, scope: &Arc<Scope>, task: Task, seq: Seq) -> Self {
        Self { store: Arc::clone(store), scope: Arc::clone(scope), task, seq }
    }

    /// The entry that would append this event.
    pub(super) fn entry(&self, event: Event) -> Commit {
        let mut task = self.task.clone();
        if self.seq > Seq::ZERO {
            // Refused events do not reach a store.
            let folded = fold(&mut task, &event, Timestamp::EPOCH);
            assert_eq!(folded, Ok(()), "the check itself is wrong");
        }
        let settled = event.status().is_some_and(|status| status.state.is_settled());
        Commit {
            scope: Arc::clone(&self.scope),
            task_id: self.task.id.clone(),
            expected: self.seq,
            event: Arc::new(event),
            at: at(1),
            snapshot: settled.then_some(task),
            idempotency: None,
            turn: None,
            take: false,
        }
    }

    pub(super) async fn append(&mut self, event: Event) {
        let entry = self.entry(event);
        let event = Arc::clone(&entry.event);
        assert_eq!(commit_one(&*self.store, entry).await, Ok(()), "{event:?}");
        if self.seq > Seq::ZERO {
            let _ = fold(&mut self.task, &event, Timestamp::EPOCH);
        }
        self.seq = self.seq.next();
    }

    pub(super) fn status_event(&self, state: TaskState, when: i64) -> Event {
        Event::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task.id.clone(),
            context_id: self.task.context_id.clone(),
            status: TaskStatus { state, message: None, timestamp: Some(at(when)) },
            ..TaskStatusUpdateEvent::default()
        })
    }

    pub(super) fn chunk_event(&self, artifact: &str, text: &str) -> Event {
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task.id.clone(),
            context_id: self.task.context_id.clone(),
            artifact: Arc::new(Artifact::new(artifact, Part::text(text))),
            append: true,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    pub(super) async fn status(&mut self, state: TaskState, when: i64) {
        self.append(self.status_event(state, when)).await;
    }

    pub(super) async fn chunk(&mut self, artifact: &str, text: &str) {
        self.append(self.chunk_event(artifact, text)).await;
    }

    pub(super) async fn caller_says(&mut self, text: &str) {
        let message = Message {
            task_id: Some(self.task.id.clone()),
            context_id: Some(self.task.context_id.clone()),
            ..Message::user(text, Part::text(text))
        };
        self.append(Event::Message(Arc::new(message))).await;
    }
}

/// Commits entries; the store itself does not fail here.
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

/// The task and its last number, as the store tells.
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
