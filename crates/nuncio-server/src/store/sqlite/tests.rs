//! The SQLite store: the contract, persistence, and refused or damaged files.

mod agree;
mod damage;
mod folder;
mod lists;
mod migrate;
mod outbox;
mod written;

use std::{cell::RefCell, path::Path, sync::Arc};

use nuncio_protocol::{Event, Part, Seq, TaskId, TaskState};
use rusqlite::Connection;

use self::folder::Folder;
use super::{SqliteOptions, SqliteStore, maintenance, schema::KNOWN};
use crate::store::{
    Attempt, Commit, DeliveryOutcome, DeliveryState, Durability, ErasureTarget, Expect, Lease, Leased,
    OpenError, Outcome, Prune, Pruned, PutRecord, Refused, Scope, Settled, Store, StoredTurn, TaskLog, Then,
    TurnChange, Webhook,
    conformance::{
        Handles, Writer, at, commit, commit_one, creation, events, key, opening, reserve::reservation, scope,
        stored,
    },
};

crate::store_conformance!(fresh().await);
crate::store_ownership_conformance!(Files::default());

#[derive(Default)]
struct Files(Folder);

#[async_trait::async_trait]
impl Handles for Files {
    type Handle = SqliteStore;

    async fn open(&self) -> Arc<SqliteStore> {
        Arc::new(open(&self.0.file()).await)
    }

    async fn die(&self, handle: Arc<SqliteStore>) {
        end(handle).await;
    }
}

/// An empty store. Its files are removed at the end of the test.
async fn fresh() -> Arc<SqliteStore> {
    thread_local!(static FOLDERS: RefCell<Vec<Folder>> = const { RefCell::new(Vec::new()) });
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    FOLDERS.with_borrow_mut(|folders| folders.push(folder));
    Arc::new(store)
}

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions { durability: Durability::Relaxed, ..SqliteOptions::default() };
    SqliteStore::open(path, options).await.unwrap()
}

/// Closes the store, as the end of its process would.
async fn end(handle: Arc<SqliteStore>) {
    Arc::into_inner(handle).expect("nobody else has it").close().await;
}

/// The number of rows in each table.
fn rows(path: &Path) -> Vec<(String, i64)> {
    let db = Connection::open(path).unwrap();
    let mut tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let count = |table: String| {
        let count = format!("SELECT count(*) FROM {table}");
        let count = db.query_row(&count, [], |row| row.get(0)).unwrap();
        (table, count)
    };
    tables.map(count).collect()
}

fn turn(id: &str) -> StoredTurn {
    StoredTurn { id: id.into(), begun: false, body: "x".into() }
}

/// A webhook with this name as uid and id.
fn webhook(name: &str) -> Webhook {
    Webhook { uid: name.into(), id: name.into(), target: "x:1".into(), body: "{}".into() }
}

fn record() -> PutRecord {
    PutRecord {
        kind: "kind".into(),
        key: "key".into(),
        value: "value".into(),
        at: at(1),
        expect: Expect::Anything,
    }
}

/// Leases all due webhooks.
async fn lease(store: &dyn Store) -> Vec<Leased> {
    let lease = Lease {
        agents: vec!["agent".into()],
        now: at(1_000),
        after: "".into(),
        except: Vec::new(),
        in_hand: Vec::new(),
        limit: 100,
        each: 100,
        owed: 100,
    };
    store.lease(&lease).await.unwrap().leased
}

/// Settles a delivery, and releases its webhook.
async fn settle(store: &dyn Store, uid: &str, seq: u64, state: DeliveryState) {
    let attempt = Attempt { at: at(9), took: 1, status: Some(503), cause: None, error: Some("no".into()) };
    let outcomes = vec![DeliveryOutcome { seq: Seq(seq), state, attempt }];
    let settled = Settled { webhook: uid.into(), outcomes, then: Then::Release(at(9)) };
    store.settle(vec![settled]).await.unwrap();
}

/// Creates tasks of many kinds (large content, keys, replies, links, turns, memos, webhooks with pending
/// deliveries) and a record.
async fn fill(store: &Arc<dyn Store>) {
    let ann = scope("ann");
    for (i, state) in TaskState::ALL.iter().skip(1).enumerate() {
        let id = format!("t-{i}");
        let first = opening(&ann, &id, Some(key(&id, 1)));
        let first = Commit { push: true, ..first }.attach(|with| {
            with.turn = Some(turn("1"));
            with.webhook = Some(webhook(&id));
        });
        // Large memos are stored in another table than small ones.
        let memo = "remember".repeat(1 + 1_000 * (i % 2));
        let first = first.attach(|with| with.memo = Some(memo.into()));
        assert_eq!(commit_one(&**store, first).await, Ok(()));
        let mut writer = Writer::open(store, &ann, creation(&id, "c-1", 1), Seq(1));
        writer.chunk("a", &"large ".repeat(20_000)).await;
        let mut said = nuncio_protocol::Message::user("m-2", Part::text("see"));
        (said.task_id, said.reference_task_ids) = (Some(id.as_str().into()), vec!["t-0".into()]);
        writer.append(Event::Message(Arc::new(said))).await;
        writer.status(*state, 10 + i as i64).await;
        let queued = store.update_turn(&ann, &writer.task.id, TurnChange::Queue(turn("2"))).await.unwrap();
        assert_eq!(queued, Ok(()));
    }
    let reply = Arc::new(nuncio_protocol::Message::agent("r", Part::text("yes")));
    store.put_reply(&ann, key("reply", 1), reply, at(1)).await.unwrap();
    store.put_records(vec![record()]).await.unwrap();
    assert_eq!(lease(&**store).await.len(), 8);
    settle(&**store, "t-0", 1, DeliveryState::Delivered).await;
    settle(&**store, "t-1", 1, DeliveryState::Dead).await;
    settle(&**store, "t-2", 1, DeliveryState::Pending).await;
}

#[tokio::test]
async fn a_second_hub_is_refused_with_the_process_of_the_first() {
    let folder = Folder::new();
    let first = open(&folder.file()).await;
    let second = SqliteStore::open(&folder.file(), SqliteOptions::default()).await;
    let Err(OpenError::LockedBy { pid, .. }) = second else { panic!("{second:?}") };
    assert_eq!(pid, std::process::id());
    let vacuum = maintenance::vacuum(&folder.file()).unwrap_err().to_string();
    assert!(vacuum.contains(&format!("in use by process {pid}")), "{vacuum}");
    first.close().await;
    open(&folder.file()).await.close().await;
}

#[tokio::test]
async fn what_a_process_left_is_there_for_the_next() {
    let (folder, ann) = (Folder::new(), scope("ann"));
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    fill(&store).await;
    let secret = store.secret("cursor").await.unwrap();
    let mut before = Vec::new();
    for i in 0..8 {
        let id = TaskId::from(format!("t-{i}"));
        before.push((stored(&*store, &ann, &id).await, events(&*store, &ann, &id, 0, 100).await));
    }
    drop(store);
    end(handle).await;

    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    for (i, before) in before.iter().enumerate() {
        let id = TaskId::from(format!("t-{i}"));
        assert!(before.0.is_some());
        assert_eq!(stored(&*store, &ann, &id).await, before.0);
        assert_eq!(events(&*store, &ann, &id, 0, 100).await, before.1);
        let answer = store.idempotent_outcome(&ann, id.as_str()).await.unwrap().unwrap();
        assert!(matches!(answer.outcome, Outcome::Task(task) if task == id));
    }
    assert!(matches!(
        store.idempotent_outcome(&ann, "reply").await.unwrap().unwrap().outcome,
        Outcome::Reply(_)
    ));
    assert_eq!(store.links(&ann, &"t-0".into()).await.unwrap().children.len(), 8);
    assert_eq!(store.secret("cursor").await.unwrap(), secret);

    // Tasks in progress are held until they are adopted, and adopted once.
    let (task, seq) = before[1].0.clone().unwrap();
    assert_eq!(task.status.state, TaskState::Working);
    let mut writer = Writer::open(&store, &ann, task, seq);
    let entry = writer.entry(writer.chunk_event("a", "x"));
    assert_eq!(commit_one(&*store, entry).await, Err(Refused::Held));
    let mut orphans = store.adopt("agent", 2).await.unwrap();
    assert_eq!(orphans.len(), 2);
    orphans.extend(store.adopt("agent", 100).await.unwrap());
    let mut told: Vec<_> =
        orphans.iter().map(|orphan| (orphan.stored.task.id.as_str(), orphan.busy)).collect();
    told.sort_unstable();
    assert_eq!(told.len(), 8, "each of them has a turn that waits");
    assert_eq!(told.iter().filter(|(_, busy)| *busy).map(|(id, _)| *id).collect::<Vec<_>>(), ["t-0", "t-1"]);
    for orphan in &orphans {
        assert_eq!(orphan.turns.last(), Some(&turn("2")), "{orphan:?}");
        assert!(!orphan.stored.held);
    }
    assert!(store.adopt("agent", 100).await.unwrap().is_empty(), "once");
    writer.chunk("a", "x").await;
    drop((store, writer));
    end(handle).await;
    assert_eq!(open(&folder.file()).await.adopt("agent", 100).await.unwrap().len(), 8, "left once more");
}

#[tokio::test]
async fn only_the_owner_of_the_process_can_read_the_files() {
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(open(&folder.file()).await);
    fill(&store).await;
    #[cfg(unix)]
    for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

#[tokio::test]
async fn what_is_erased_or_pruned_leaves_no_rows() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    fill(&store).await;
    let reserved = reservation(&scope("ann"), "t-9", Some(key("reserved", 1)));
    assert_eq!(store.reserve(reserved).await.unwrap(), Ok(()));
    let full = rows(&folder.file());
    assert!(full.iter().all(|(_, rows)| *rows > 0), "each table is in this test: {full:?}");
    let whose = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    assert_eq!(store.erase(&whose, 3).await.unwrap(), 3);
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0], "half-way");
    assert_eq!(store.erase(&whose, 100).await.unwrap(), 7);
    let left = |rows: Vec<(String, i64)>| {
        rows.into_iter().filter(|(table, rows)| *rows > 0 && table != "meta").collect::<Vec<_>>()
    };
    assert_eq!(left(rows(&folder.file())), [("records".to_owned(), 1)], "records are nobody's");

    // The same by age; the scope itself stays.
    fill(&store).await;
    let ann = scope("ann");
    for i in 0..8 {
        store
            .update_turn(&ann, &format!("t-{i}").as_str().into(), TurnChange::Drop("2".into()))
            .await
            .unwrap()
            .unwrap();
    }
    let prune = |what| Prune { agent: "agent".into(), what, before: at(1_000) };
    let mut pruned = store.prune(&prune(Pruned::Replies), 100).await.unwrap();
    for state in TaskState::ALL {
        pruned += store.prune(&prune(Pruned::Tasks(*state)), 100).await.unwrap();
    }
    assert_eq!(pruned, 5, "the reply and the finished ones; the interrupted ones have a turn that waits");
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_finished_task_is_read_without_its_log() {
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(open(&folder.file()).await);
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.chunk("a", "all of it").await;
    writer.status(TaskState::Completed, 2).await;
    Connection::open(folder.file()).unwrap().execute("DELETE FROM log", []).unwrap();
    assert_eq!(events(&*store, &writer.scope, &writer.task.id, 0, 9).await, []);
    let told = stored(&*store, &writer.scope, &writer.task.id).await;
    assert_eq!(told, Some((writer.task.clone(), writer.seq)));
}

#[tokio::test]
async fn many_chunks_in_a_batch_are_few_rows() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    let writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let entry = writer.entry(writer.chunk_event("a", "0123456789"));
    let batch = (1..=10_000).map(|seq| Commit { expected: Seq(seq), ..entry.clone() }).collect();
    assert!(commit(&*store, batch).await.iter().all(Result::is_ok));
    let segments = rows(&folder.file()).into_iter().find(|(table, _)| table == "log").unwrap().1;
    assert_eq!(segments, 1 + 79);
    let (task, seq) = stored(&*store, &writer.scope, &writer.task.id).await.unwrap();
    assert_eq!((task.artifacts[0].parts.len(), seq), (10_000, Seq(10_001)));
}

#[tokio::test]
async fn large_content_is_one_row_however_often_it_is_told() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    for _ in 0..3 {
        writer.chunk("a", &"large ".repeat(100_000)).await;
    }
    writer.status(TaskState::Completed, 2).await;
    assert!(rows(&folder.file()).contains(&("blobs".to_owned(), 1)));
    let (found, told) =
        (stored(&*store, &writer.scope, &writer.task.id).await, (writer.task.clone(), writer.seq));
    assert_eq!(found, Some(told));
    drop((store, writer));
    end(handle).await;
    let size = std::fs::metadata(folder.file()).unwrap().len();
    assert!(size < 1_000_000, "{size} bytes");
}

#[tokio::test]
async fn a_chain_that_cannot_be_taken_as_one_is_taken_entry_by_entry() {
    let store: Arc<dyn Store> = fresh().await;
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.chunk("a", "x").await;
    let entry =
        |expected: u64| Commit { expected: Seq(expected), ..writer.entry(writer.chunk_event("a", "y")) };
    let results = commit(&*store, vec![entry(1), entry(2), entry(3)]).await;
    assert_eq!(results, [Err(Refused::Version(Seq(2))), Ok(()), Ok(())]);
    let again = vec![opening(&writer.scope, "t-1", None), entry(1), entry(4)];
    let results = commit(&*store, again).await;
    assert_eq!(results, [Err(Refused::Version(Seq(4))), Err(Refused::Version(Seq(4))), Ok(())]);
}

#[tokio::test]
async fn a_backup_of_a_busy_store_opens_and_is_sound() {
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(open(&folder.file()).await);
    fill(&store).await;
    let busy = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for i in 0..300 {
                let mut writer = Writer::create(&store, &scope("bob"), &format!("b-{i}"), "c-1", 1).await;
                writer.status(TaskState::Completed, 2).await;
            }
        }
    });
    for number in 0..3 {
        let (from, to) = (folder.file(), folder.path().join(format!("copy-{number}")));
        tokio::task::spawn_blocking(move || {
            assert!(maintenance::backup(&from, &to).unwrap() > 0);
            assert_eq!(maintenance::check(&to).unwrap(), [""; 0]);
            let again = maintenance::backup(&from, &to).unwrap_err().to_string();
            assert!(again.contains("choose a new file"), "{again}");
        })
        .await
        .unwrap();
    }
    busy.await.unwrap();
    let ann = Arc::new(Scope { owner: Some("ann".into()), ..(*scope("ann")).clone() });
    let copy = open(&folder.path().join("copy-0")).await;
    let of_copy = stored(&copy, &ann, &"t-0".into()).await;
    assert!(of_copy.is_some());
    assert_eq!(of_copy, stored(&*store, &ann, &"t-0".into()).await);
}

#[tokio::test]
async fn a_vacuum_gives_back_the_room_of_what_was_erased() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    fill(&store).await;
    store.erase(&ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) }, 100).await.unwrap();
    store.ready().await.unwrap();
    drop(store);
    end(handle).await;
    let (before, after) = maintenance::vacuum(&folder.file()).unwrap();
    assert!(after < before, "{before} to {after}");
    assert_eq!(maintenance::migrate(&folder.file()).unwrap(), (KNOWN, KNOWN));
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_full_disk_refuses_all_who_write_until_there_is_room() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let limit = |pages: u32| {
        let work = move |session: &mut super::write::WriteSession| {
            session.db.pragma_update(None, "max_page_count", pages).map_err(Into::into)
        };
        handle.writer.alone(work)
    };
    limit(1).await.unwrap();
    let large = || writer.entry(writer.chunk_event("a", &"x".repeat(60_000)));
    let other = || opening(&scope("new"), "t-2", Some(key("k", 1)));
    for _ in 0..2 {
        let (one, two) = tokio::join!(store.commit(vec![large()]), store.commit(vec![other(), large()]));
        for result in [one, two] {
            let error = result.expect_err("there is no room");
            assert!(error.is_down(), "it may be well again: {error}");
        }
    }
    assert_eq!(
        stored(&*store, &writer.scope, &"t-1".into()).await.map(|(_, seq)| seq),
        Some(Seq(1)),
        "reads go on"
    );
    limit(1_000_000).await.unwrap();
    store.ready().await.unwrap();
    assert_eq!(
        commit(&*store, vec![other(), large()]).await,
        [Ok(()), Ok(())],
        "and nothing is left of before"
    );
    (writer.task, writer.seq) = stored(&*store, &writer.scope, &"t-1".into()).await.unwrap();
    writer.status(TaskState::Completed, 2).await;
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
}
