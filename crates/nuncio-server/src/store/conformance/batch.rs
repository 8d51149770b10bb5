//! Checks of batches: many tasks in one, and many entries of one task.

use std::sync::Arc;

use nuncio_protocol::{Event, Seq, TaskState};

use super::{Writer, at, commit, events, key, log::agree, opening, scope, stored, works};
use crate::store::{Commit, Refused, Store, TaskQuery};

/// A writer that collects its entries instead of committing them.
struct Collector {
    writer: Writer,
    entries: Vec<Commit>,
}

impl Collector {
    fn create(store: &Arc<dyn Store>, id: &str) -> Self {
        let ann = scope("ann");
        let created = super::creation(id, "c-1", 1);
        let entries = vec![opening(&ann, id, None)];
        Self { writer: Writer::open(store, &ann, created, Seq(1)), entries }
    }

    fn add(&mut self, event: Event) {
        let entry = self.writer.entry(event);
        self.writer.advance(&entry.event);
        self.entries.push(entry);
    }

    /// The whole life of a short task.
    fn live(&mut self, when: i64) {
        self.add(self.writer.status_event(TaskState::Working, when));
        self.add(self.writer.chunk_event("a", "x"));
        self.add(self.writer.status_event(TaskState::Completed, when + 1));
    }
}

/// A typical group commit under load: whole tasks, interleaved.
pub async fn a_batch_holds_entries_of_many_tasks(store: Arc<dyn Store>) {
    const TASKS: usize = 200;
    let mut quick: Vec<Collector> =
        (0..TASKS).map(|i| Collector::create(&store, &format!("t-{i:03}"))).collect();
    for (i, task) in quick.iter_mut().enumerate() {
        task.live(i as i64);
    }
    // First all creations, then all second entries, and so on.
    let batch: Vec<Commit> =
        (0..4).flat_map(|i| quick.iter().map(move |task| task.entries[i].clone())).collect();
    assert_eq!(commit(&*store, batch).await, vec![Ok(()); 4 * TASKS]);
    for task in &quick {
        agree(&*store, &task.writer).await;
    }
    let state = Some(TaskState::Completed);
    let query = TaskQuery { state, limit: 1, count: true, ..TaskQuery::default() };
    assert_eq!(works(store.tasks(&scope("ann"), &query).await).total, Some(TASKS));
}

/// A thousand entries of one task at once, read back in pages of any size.
pub async fn a_batch_holds_many_entries_of_one_task(store: Arc<dyn Store>) {
    let mut task = Collector::create(&store, "t-1");
    for i in 0..1_000 {
        task.add(task.writer.chunk_event("a", &i.to_string()));
    }
    let entries = task.entries.len();
    assert_eq!(commit(&*store, std::mem::take(&mut task.entries)).await, vec![Ok(()); entries]);
    for limit in [1, 7, 127, 128, 129, 1_000, 2_000] {
        for after in [0, 1, 126, 127, 128, 500, 990] {
            let page = events(&*store, &task.writer.scope, &task.writer.task.id, after, limit).await;
            let numbers: Vec<u64> = page.iter().map(|(seq, _)| *seq).collect();
            let wanted: Vec<u64> = (after + 1..=entries as u64).take(limit).collect();
            assert_eq!(numbers, wanted, "after {after}, at most {limit}");
        }
    }
    let read = stored(&*store, &task.writer.scope, &task.writer.task.id).await;
    assert!(read == Some((task.writer.task, task.writer.seq)));
}

/// If an entry in the middle of a chain is refused, the later ones are refused too, the earlier ones are not.
pub async fn a_refused_entry_breaks_the_chain_of_its_task(store: Arc<dyn Store>) {
    let taken = opening(&scope("ann"), "t-0", None).attach(|with| with.idempotency = Some(key("taken", 1)));
    let mut chain = Collector::create(&store, "t-1");
    chain.live(5);
    let mut broken = chain.entries.clone();
    broken[2].attached.idempotency = Some(key("taken", 2));
    let other = Collector::create(&store, "t-2").entries.remove(0);
    let mut batch = vec![taken];
    batch.extend(broken);
    batch.push(other);
    let behind = Err(Refused::Version(Seq(2)));
    let wanted = [Ok(()), Ok(()), Ok(()), Err(Refused::KeyTaken), behind, Ok(())];
    assert_eq!(commit(&*store, batch).await, wanted);
    let (task, seq) = stored(&*store, &scope("ann"), &"t-1".into()).await.unwrap_or_default();
    assert_eq!((task.status.state, task.artifacts.len(), seq), (TaskState::Working, 0, Seq(2)));
    // The counters show the actual state.
    for (state, total) in [(TaskState::Completed, 0), (TaskState::Working, 1), (TaskState::Submitted, 2)] {
        let query = TaskQuery { state: Some(state), count: true, ..TaskQuery::default() };
        assert_eq!(works(store.tasks(&scope("ann"), &query).await).total, Some(total), "{state}");
    }
    assert_eq!(commit(&*store, chain.entries[2..].to_vec()).await, [Ok(()), Ok(())], "and it goes on");
    agree(&*store, &chain.writer).await;
}

/// A task that was not created has no later entries; a key is also taken within a batch.
pub async fn what_a_batch_could_not_make_is_not_found(store: Arc<dyn Store>) {
    let [mut first, mut second] = ["t-1", "t-2"].map(|id| Collector::create(&store, id));
    for task in [&mut first, &mut second] {
        task.live(5);
        task.entries[0].attached.idempotency = Some(key("same", 1));
    }
    let batch = [first.entries.clone(), second.entries.clone()].concat();
    let results = commit(&*store, batch).await;
    assert_eq!(results[..4], [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(results[4], Err(Refused::KeyTaken));
    assert_eq!(results[5..], [Err(Refused::NotFound), Err(Refused::NotFound), Err(Refused::NotFound)]);
    assert_eq!(stored(&*store, &scope("ann"), &"t-2".into()).await, None);
    agree(&*store, &first.writer).await;
}

/// Entries are applied in the order of the batch.
pub async fn entries_of_a_batch_are_taken_in_order(store: Arc<dyn Store>) {
    let mut task = Collector::create(&store, "t-1");
    task.live(5);
    let [create, working, chunk, completed] = [0, 1, 2, 3].map(|i| task.entries[i].clone());
    let early =
        commit(&*store, vec![working.clone(), create.clone(), create.clone(), chunk.clone(), working]).await;
    let version = |seq| Err(Refused::Version(Seq(seq)));
    assert_eq!(early, [Err(Refused::NotFound), Ok(()), version(1), version(1), Ok(())]);
    let twice = commit(&*store, vec![chunk.clone(), chunk, completed]).await;
    assert_eq!(twice, [Ok(()), version(3), Ok(())]);
    agree(&*store, &task.writer).await;
    assert_eq!(commit(&*store, Vec::new()).await, []);
}

/// A task may settle, go on and settle again within one batch.
pub async fn a_batch_may_hold_a_whole_conversation(store: Arc<dyn Store>) {
    let mut task = Collector::create(&store, "t-1");
    for when in 2..12 {
        task.add(task.writer.status_event(TaskState::InputRequired, when));
        task.add(task.writer.message_event(&format!("m-{when}"), &[]));
        task.add(task.writer.status_event(TaskState::Working, when));
    }
    let entries = std::mem::take(&mut task.entries);
    assert!(commit(&*store, entries).await.iter().all(Result::is_ok));
    agree(&*store, &task.writer).await;
    for (state, total) in [(TaskState::InputRequired, 0), (TaskState::Working, 1)] {
        let query = TaskQuery { state: Some(state), limit: 9, count: true, ..TaskQuery::default() };
        let page = works(store.tasks(&scope("ann"), &query).await);
        assert_eq!((page.tasks.len(), page.total), (total, Some(total)), "{state}");
    }
}

/// Snapshots agree with the log in long conversations too: fifty turns, read after each.
pub async fn a_long_conversation_and_its_log_agree(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    for turn in 0..50 {
        writer.status(TaskState::Working, 2 * turn).await;
        writer.chunk(["a", "b"][turn as usize % 2], "x").await;
        let asks = [TaskState::InputRequired, TaskState::AuthRequired][turn as usize % 2];
        writer.status(asks, 2 * turn + 1).await;
        agree(&*store, &writer).await;
        let query =
            TaskQuery { since: Some(at(2 * turn + 1)), limit: 9, count: true, ..TaskQuery::default() };
        let page = works(store.tasks(&writer.scope, &query).await);
        assert_eq!((page.tasks.as_slice(), page.total), (&[writer.task.clone()][..], Some(1)), "turn {turn}");
        writer.caller_says(&format!("m-{turn}")).await;
        agree(&*store, &writer).await;
    }
    writer.status(TaskState::Completed, 1_000).await;
    agree(&*store, &writer).await;
}
