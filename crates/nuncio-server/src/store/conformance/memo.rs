//! Checks of memos: the data that an executor stores with its task.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Seq, TaskState};

use super::{Handles, Writer, adopted, at, commit, commit_one, creation, opening, scope, works};
use crate::store::{Commit, Prune, Pruned, Refused, Scope, Store};

fn memo(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

async fn kept(store: &dyn Store, scope: &Scope, id: &str) -> Option<Bytes> {
    works(store.task(scope, &id.into()).await).and_then(|stored| stored.memo)
}

/// A memo is stored and replaced with its entry, or not at all.
pub async fn a_memo_stands_or_falls_with_its_entry(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let first = opening(&ann, "t-1", None).attach(|with| with.memo = memo("1"));
    assert_eq!(commit_one(&*store, first).await, Ok(()));
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("1"), "with the creation");
    assert_eq!(kept(&*store, &scope("bob"), "t-1").await, None, "not yours");
    let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), Seq(1));
    writer.chunk("a", "x").await;
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("1"), "an entry without one leaves it");
    let entry = writer.entry(writer.chunk_event("a", "x"));
    assert_eq!(writer.offer(entry.attach(|with| with.memo = memo("2"))).await, Ok(()));
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("2"), "a later one replaces it");
    let late = Commit { expected: Seq(2), ..writer.entry(writer.chunk_event("a", "x")) }
        .attach(|with| with.memo = memo("3"));
    assert_eq!(commit_one(&*store, late).await, Err(Refused::Version(Seq(3))));
    let foreign = opening(&scope("bob"), "t-1", None).attach(|with| with.memo = memo("3"));
    assert!(commit_one(&*store, foreign).await.is_err());
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("2"), "nothing comes of a refused entry");
    let entry = writer.entry(writer.status_event(TaskState::Completed, 2));
    assert_eq!(writer.offer(entry.attach(|with| with.memo = memo(""))).await, Ok(()));
    assert_eq!(kept(&*store, &ann, "t-1").await, memo(""), "an empty one is one, and an end does not end it");
    Writer::create(&store, &ann, "t-2", "c-1", 1).await;
    assert_eq!(kept(&*store, &ann, "t-2").await, None, "each task has its own");
}

/// The last memo of a batch counts, among accepted entries; it may be any bytes up to the limit.
pub async fn the_last_memo_of_a_batch_is_kept(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), Seq(1));
    let mut batch = vec![opening(&ann, "t-1", None).attach(|with| with.memo = memo("1"))];
    for text in [Some("2"), Some("3"), None] {
        let event = writer.chunk_event("a", "x");
        batch.push(writer.entry(event.clone()).attach(|with| with.memo = text.and_then(memo)));
        writer.advance(&event);
    }
    let wrong = Commit { expected: Seq(9), ..writer.entry(writer.chunk_event("a", "x")) }
        .attach(|with| with.memo = memo("4"));
    batch.push(wrong);
    let results = commit(&*store, batch).await;
    assert_eq!(results[..4], [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert!(results[4].is_err());
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("3"));
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let large = Bytes::from(bytes.repeat(crate::MAX_MEMO_BYTES / 256));
    let entry = writer.entry(writer.chunk_event("a", "x"));
    assert_eq!(writer.offer(entry.attach(|with| with.memo = Some(large.clone()))).await, Ok(()));
    assert!(kept(&*store, &ann, "t-1").await.is_some_and(|kept| kept == large));
    let entry = writer.entry(writer.chunk_event("a", "x"));
    assert_eq!(writer.offer(entry.attach(|with| with.memo = memo("small"))).await, Ok(()));
    assert_eq!(kept(&*store, &ann, "t-1").await, memo("small"), "in place of a large one");
    let first = opening(&ann, "t-2", None).attach(|with| with.memo = Some(large.clone()));
    assert_eq!(commit_one(&*store, first).await, Ok(()));
    assert!(kept(&*store, &ann, "t-2").await.is_some_and(|kept| kept == large), "with the creation");
}

/// A task that is created again under the same id has no memo.
pub async fn a_memo_is_forgotten_with_its_task(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let first = || opening(&ann, "t-1", None).attach(|with| with.memo = memo("1"));
    for erase in [false, true] {
        assert_eq!(commit_one(&*store, first()).await, Ok(()));
        let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), Seq(1));
        writer.status(TaskState::Completed, 2).await;
        let gone = if erase {
            let whose = crate::store::ErasureTarget { agent: None, tenant: None, owner: ann.owner.clone() };
            store.erase(&whose, 9).await
        } else {
            let what = Pruned::Tasks(TaskState::Completed);
            store.prune(&Prune { agent: "agent".into(), what, before: at(9) }, 9).await
        };
        assert_eq!(works(gone), 1);
        let mut again = Writer::create(&store, &ann, "t-1", "c-1", 1).await;
        assert_eq!(kept(&*store, &ann, "t-1").await, None);
        again.status(TaskState::Completed, 2).await;
        let whose = crate::store::ErasureTarget { agent: None, tenant: None, owner: ann.owner.clone() };
        assert_eq!(works(store.erase(&whose, 9).await), 1);
    }
}

/// An adopting owner gets the memo of the task.
pub async fn an_adopted_task_has_its_memo<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let ann = scope("ann");
    let first = opening(&ann, "t-1", None).attach(|with| with.memo = memo("1"));
    assert_eq!(commit_one(&*gone, first).await, Ok(()));
    handles.die(gone).await;
    let store = handles.open().await;
    let orphans = adopted(&*store, "agent", 9).await;
    assert_eq!(orphans.iter().map(|orphan| orphan.stored.memo.clone()).collect::<Vec<_>>(), [memo("1")]);
}
