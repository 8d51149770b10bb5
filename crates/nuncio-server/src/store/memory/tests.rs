//! The memory store: the contract, and its limits.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Part, Seq, TaskState};

use crate::store::{
    MemoryStore, Refused, Store, TaskQuery,
    conformance::{
        Handles, Writer, at, commit_one, creation, key, opening, random::sequences, scope, stored,
    },
};

crate::store_conformance!(Arc::new(MemoryStore::default()));
crate::store_ownership_conformance!(MemoryHandles::default());
crate::store_sharing_conformance!(MemoryHandles::default());

#[derive(Default)]
struct MemoryHandles(MemoryStore);

#[async_trait]
impl Handles for MemoryHandles {
    type Handle = MemoryStore;

    async fn open(&self) -> Arc<MemoryStore> {
        Arc::new(self.0.another())
    }

    async fn die(&self, handle: Arc<MemoryStore>) {
        handle.retire();
    }
}

async fn finished(store: &Arc<dyn Store>, id: &str) -> Writer {
    let mut writer = Writer::create(store, &scope("ann"), id, "c-1", 1).await;
    writer.status(TaskState::Completed, 2).await;
    writer
}

async fn known(store: &dyn Store, ids: &[&str]) -> Vec<bool> {
    let mut known = Vec::new();
    for id in ids {
        known.push(stored(store, &scope("ann"), &(*id).into()).await.is_some());
    }
    known
}

#[tokio::test]
async fn finished_tasks_make_room_in_bytes_and_unfinished_ones_do_not() {
    // Each takes 1400 bytes and its content.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default().max_bytes(6000));
    let mut working = Writer::create(&store, &scope("ann"), "working", "c-1", 1).await;
    for id in ["one", "two", "three"] {
        finished(&store, id).await;
    }
    assert_eq!(known(&*store, &["working", "one", "two", "three"]).await, [true, false, false, true]);
    for (id, seconds) in [("w-2", 3), ("w-3", 4), ("w-4", 5)] {
        Writer::create(&store, &scope("ann"), id, "c-1", seconds).await;
    }
    assert_eq!(known(&*store, &["three"]).await, [false]);
    let refused = commit_one(&*store, opening(&scope("ann"), "w-5", None)).await;
    assert!(matches!(refused, Err(Refused::Full)), "{refused:?}");
    working.status(TaskState::Completed, 7).await;
    assert_eq!(known(&*store, &["working", "w-4"]).await, [false, true], "and it makes room at once");
}

#[tokio::test]
async fn finished_tasks_are_forgotten_in_the_order_they_finished() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(2));
    let mut slow = Writer::create(&store, &scope("ann"), "slow", "c-1", 1).await;
    for id in ["one", "two"] {
        finished(&store, id).await;
    }
    slow.status(TaskState::Failed, 3).await;
    assert_eq!(known(&*store, &["one", "two", "slow"]).await, [false, true, true]);
    finished(&store, "three").await;
    assert_eq!(known(&*store, &["two", "slow", "three"]).await, [false, true, true]);
    let page = store
        .tasks(&scope("ann"), &TaskQuery { limit: 9, count: true, ..TaskQuery::default() })
        .await
        .unwrap();
    assert_eq!((page.tasks.len(), page.total), (2, Some(2)), "the list forgets with it");
}

#[tokio::test]
async fn tasks_in_motion_are_never_forgotten() {
    // Pain 15: even with a limit of 0, no unfinished task is deleted.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(0));
    let mut writers = Vec::new();
    for (i, state) in
        [TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired].into_iter().enumerate()
    {
        let mut writer = Writer::create(&store, &scope("ann"), &format!("t-{i}"), "c-1", 1).await;
        writer.status(state, 2).await;
        writers.push(writer);
    }
    for i in 0..50 {
        finished(&store, &format!("done-{i}")).await;
    }
    assert_eq!(known(&*store, &["t-0", "t-1", "t-2", "done-49"]).await, [true, true, true, false]);
    writers[1].caller_says("blue").await;
    writers[1].status(TaskState::Completed, 3).await;
    assert_eq!(known(&*store, &["t-1"]).await, [false], "finished now");
}

#[tokio::test]
async fn keys_and_replies_are_forgotten_like_tasks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let ann = scope("ann");
    for id in ["one", "two"] {
        assert_eq!(commit_one(&*store, opening(&ann, id, Some(key(id, 1)))).await, Ok(()));
        let mut writer = Writer::open(&store, &ann, creation(id, "c-1", 1), Seq(1));
        writer.status(TaskState::Completed, 2).await;
        let reply = Arc::new(Message::agent("r", Part::text(id)));
        store.put_reply(&ann, key(&format!("reply-{id}"), 1), reply, at(1)).await.unwrap();
    }
    for (name, kept) in [("one", false), ("reply-one", false), ("two", true), ("reply-two", true)] {
        assert_eq!(store.idempotent_outcome(&ann, name).await.unwrap().is_some(), kept, "{name}");
    }
}

#[tokio::test]
async fn many_more_random_operations_agree_with_the_model() {
    sequences(Arc::new(MemoryStore::default()), 1_000..1_300).await;
}
