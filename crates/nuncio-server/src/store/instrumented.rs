//! A store with measurements: durations of calls, and outcomes of deliveries. It changes nothing else.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use nuncio_protocol::{Message, PushConfigId, Seq, Task, TaskId, Timestamp};

use super::{
    AdminTaskPage, AdminTaskQuery, Backlog, Commit, Delivery, DeliveryQuery, ErasureTarget, Expect, HandIn,
    IdempotencyKey, IdempotentAnswer, Lease, Leases, Links, Moved, OperatorQueries, Orphan, Outbox,
    Projection, Prune, PutRecord, Record, RecordQuery, Records, Redrive, Refused, Reservation, Scope,
    Settled, Signals, Store, StoreError, StoredEvent, StoredTask, TaskCount, TaskLog, TaskPage, TaskQuery,
    TurnChange, WaitingQuery, WaitingTurn, Webhook,
};

/// Receives the measurements. Called within the store's operations, so it must not block.
pub trait Watch: Send + Sync + 'static {
    /// Called when the store has answered: the kind of the call, its duration, and its success.
    fn answered(&self, asked: StoreOp, took: Duration, is_ok: bool);

    /// Called when outcomes of webhooks are being stored.
    fn settled(&self, settled: &[Settled]);
}

/// A kind of store call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOp {
    /// Appends to logs.
    Commit,
    /// Reads.
    Read,
    /// Any other write.
    Write,
}

impl StoreOp {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Commit, Self::Read, Self::Write];

    /// The name in measurements.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Wraps a store with measurements. Calls to a memory store are not timed: they take next to no time.
pub fn instrumented(store: Arc<dyn Store>, watch: Arc<dyn Watch>) -> Arc<dyn Store> {
    let timed = !store.is_immediate();
    Arc::new(Instrumented { store, watch, timed })
}

struct Instrumented {
    store: Arc<dyn Store>,
    watch: Arc<dyn Watch>,
    timed: bool,
}

impl Instrumented {
    async fn time<T>(
        &self,
        asked: StoreOp,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !self.timed {
            return answer.await;
        }
        let begun = Instant::now();
        let answer = answer.await;
        self.watch.answered(asked, begun.elapsed(), answer.is_ok());
        answer
    }
}

/// Implements a trait by a timed call of each of its methods.
macro_rules! timed {
    ($trait:ident { $($asked:ident $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)+ } $($other:tt)*) => {
        #[async_trait]
        impl $trait for Instrumented {
            $(async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreError> {
                self.time(StoreOp::$asked, self.store.$method($($name),*)).await
            })+
            $($other)*
        }
    };
}

timed! { TaskLog {
    Commit commit(batch: Vec<Commit>) -> Vec<Result<(), Refused>>;
    Read task(scope: &Scope, id: &TaskId) -> Option<StoredTask>;
    Read changed_since(known: &[(TaskId, Seq)]) -> Vec<Moved>;
    Read shown(scope: &Scope, id: &TaskId, shown: Projection) -> Option<Task>;
    Read tasks(scope: &Scope, query: &TaskQuery) -> TaskPage;
    Read events(scope: &Scope, id: &TaskId, after: Seq, limit: usize) -> Vec<StoredEvent>;
    Read links(scope: &Scope, id: &TaskId) -> Links;
    Read idempotent_outcome(scope: &Scope, key: &str) -> Option<IdempotentAnswer>;
    Write put_reply(scope: &Arc<Scope>, key: IdempotencyKey, reply: Arc<Message>, at: Timestamp) -> ();
    Write reserve(reservation: Reservation) -> Result<(), Refused>;
    Write release(scope: &Scope, id: &TaskId) -> ();
    Read abandoned(agent: &str, limit: usize) -> Vec<Reservation>;
    Write update_turn(scope: &Scope, id: &TaskId, change: TurnChange) -> Result<(), Refused>;
    Write hand_in(scope: &Scope, id: &TaskId, handed: HandIn) -> Result<(), Refused>;
    Read waiting_turns(query: &WaitingQuery) -> Vec<WaitingTurn>;
    Write adopt(agent: &str, limit: usize) -> Vec<Orphan>;
    Write prune(what: &Prune, limit: usize) -> usize;
} }

timed! { Outbox {
    Write put_webhook(scope: &Scope, id: &TaskId, webhook: Webhook, now: Timestamp) -> Result<(), Refused>;
    Read webhook(scope: &Scope, id: &TaskId, webhook: &PushConfigId) -> Option<Webhook>;
    Read webhooks(scope: &Scope, id: &TaskId, after: Option<&PushConfigId>, limit: usize) -> Option<Vec<Webhook>>;
    Write delete_webhook(scope: &Scope, id: &TaskId, webhook: &PushConfigId) -> Result<Option<Arc<str>>, Refused>;
    Write lease(lease: &Lease) -> Leases;
}
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        self.watch.settled(&settled);
        self.time(StoreOp::Write, self.store.settle(settled)).await
    }
}

timed! { Records {
    Read record(kind: &str, key: &str) -> Option<Record>;
    Read records(query: &RecordQuery) -> Vec<Record>;
    Read count_records(query: &RecordQuery) -> usize;
    Write put_records(puts: Vec<PutRecord>) -> Vec<Result<u64, Refused>>;
    Write delete_record(kind: &str, key: &str, expect: Expect) -> Result<bool, Refused>;
    Write prune_records(kind: &str, before: Timestamp, limit: usize) -> usize;
} }

timed! { OperatorQueries {
    Read all_tasks(query: &AdminTaskQuery) -> AdminTaskPage;
    Read find_task(id: &TaskId) -> Option<(Scope, StoredTask)>;
    Read count_tasks() -> Vec<TaskCount>;
    Read size() -> u64;
    Read deliveries(query: &DeliveryQuery) -> (Vec<Delivery>, bool);
    Read backlog() -> Backlog;
    Write redrive(what: &Redrive, now: Timestamp) -> usize;
    Write erase(whose: &ErasureTarget, limit: usize) -> usize;
} }

timed! { Store {
    Write secret(name: &str) -> [u8; 32];
    Read ready() -> ();
}
    fn is_immediate(&self) -> bool {
        self.store.is_immediate()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn concurrent_commits(&self) -> usize {
        self.store.concurrent_commits()
    }

    fn signals(&self) -> Arc<dyn Signals> {
        self.store.signals()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::{Attempt, DeliveryOutcome, DeliveryState, MemoryStore, Then, failing::FailingStore};

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Watch for Notes {
        fn answered(&self, asked: StoreOp, _: Duration, is_ok: bool) {
            self.0.lock().unwrap().push(format!("{} {is_ok}", asked.name()));
        }

        fn settled(&self, settled: &[Settled]) {
            let outcomes = settled.iter().flat_map(|settled| &settled.outcomes);
            let states: Vec<_> = outcomes.map(|outcome| format!("{:?}", outcome.state)).collect();
            self.0.lock().unwrap().push(states.join(" "));
        }
    }

    mod is_a_store_like_any_other {
        use super::*;

        fn store() -> Arc<dyn Store> {
            instrumented(Arc::new(FailingStore::waiting(MemoryStore::default())), Arc::new(Notes::default()))
        }

        crate::store_conformance!(store());
    }

    fn settled() -> Vec<Settled> {
        let attempt = Attempt { at: Timestamp::EPOCH, took: 1, status: Some(200), cause: None, error: None };
        let outcome = DeliveryOutcome { seq: Seq(1), state: DeliveryState::Delivered, attempt };
        vec![Settled { webhook: "w".into(), outcomes: vec![outcome], then: Then::Keep }]
    }

    #[tokio::test]
    async fn what_takes_time_is_told_and_what_becomes_of_deliveries() {
        let (inner, notes) =
            (Arc::new(FailingStore::waiting(MemoryStore::default())), Arc::new(Notes::default()));
        let store = instrumented(Arc::clone(&inner) as _, Arc::clone(&notes) as _);
        assert_eq!((store.is_immediate(), store.is_shared()), (inner.is_immediate(), inner.is_shared()));
        store.commit(Vec::new()).await.unwrap();
        store.backlog().await.unwrap();
        store.secret("s").await.unwrap();
        store.settle(settled()).await.unwrap();
        inner.fail_reads(true);
        assert!(store.backlog().await.is_err());
        let told = std::mem::take(&mut *notes.0.lock().unwrap());
        assert_eq!(told, ["commit true", "read true", "write true", "Delivered", "write true", "read false"]);
    }

    #[tokio::test]
    async fn in_memory_no_time_is_taken() {
        let notes = Arc::new(Notes::default());
        let store = instrumented(Arc::new(MemoryStore::default()), Arc::clone(&notes) as _);
        store.commit(Vec::new()).await.unwrap();
        store.settle(settled()).await.unwrap();
        assert_eq!(*notes.0.lock().unwrap(), ["Delivered"]);
    }
}
