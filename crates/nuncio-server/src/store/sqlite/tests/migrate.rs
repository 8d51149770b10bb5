//! Files of older versions.

use std::sync::Arc;

use nuncio_protocol::{Event, Metadata, Seq, TaskState};
use rusqlite::Connection;

use super::{Folder, end, lease, maintenance, open, rows, webhook};
use crate::store::{
    Commit, OpenError, Outcome, Refused, SqliteOptions, SqliteStore, Store, TaskLog, TaskQuery,
    conformance::{
        Writer, at, commit_one, creation, events, key, opening, reserve::reservation, scope, stored,
    },
    sqlite::schema::{KNOWN, MIGRATIONS},
};

/// A file of this version, with the data of a current file in the form that this version wrote.
async fn older(version: usize) -> Folder {
    let (newer, older) = (Folder::new(), Folder::new());
    let handle = Arc::new(open(&newer.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    super::fill(&store).await;
    drop(store);
    end(handle).await;
    let db = Connection::open(older.file()).unwrap();
    db.execute_batch(&MIGRATIONS[..version].concat()).unwrap();
    db.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM meta; PRAGMA application_id = 0x4e554e43")
        .unwrap();
    db.pragma_update(None, "user_version", version as i64).unwrap();
    db.execute("ATTACH ?1 AS newer", [newer.file().to_str()]).unwrap();
    for (table, _) in rows(&older.file()) {
        if table == "memos" {
            // Newer versions keep small memos in the rows of their tasks.
            let all = "INSERT INTO memos SELECT key, memo FROM newer.tasks WHERE memo IS NOT NULL
                       UNION ALL SELECT task, body FROM newer.memos";
            db.execute_batch(all).unwrap();
            continue;
        }
        let mut columns = db.prepare("SELECT group_concat(name) FROM pragma_table_info(?1, 'main')").unwrap();
        let columns: String = columns.query_row([&table], |row| row.get(0)).unwrap();
        let copy = format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM newer.{table}");
        db.execute_batch(&copy).unwrap();
    }
    older
}

/// A file of this version, checked, and the store after it was opened.
async fn opened(version: usize) -> (Folder, Arc<SqliteStore>) {
    let folder = older(version).await;
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0], "before");
    let handle = Arc::new(open(&folder.file()).await);
    assert_eq!(self::version(&folder), KNOWN);
    (folder, handle)
}

/// Closes the store and checks the file.
async fn closed(folder: &Folder, handle: Arc<SqliteStore>) {
    end(handle).await;
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0], "after");
}

/// Continues the task with another memo.
async fn takes_a_memo(store: Arc<dyn Store>, id: &str) {
    let (ann, id) = (scope("ann"), id.into());
    let (task, seq) = stored(&*store, &ann, &id).await.unwrap();
    let mut writer = Writer::open(&store, &ann, task, seq);
    let entry = writer.entry(writer.status_event(TaskState::Working, 20));
    writer.offer(Commit { take: true, ..entry }.attach(|with| with.memo = Some("m".into()))).await.unwrap();
    assert_eq!(store.task(&ann, &id).await.unwrap().unwrap().memo, Some("m".into()));
}

fn version(folder: &Folder) -> i64 {
    let db = Connection::open(folder.file()).unwrap();
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_file_of_the_first_version_opens_with_all_that_it_has() {
    let (folder, ann) = (older(1).await, scope("ann"));
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0], "before");
    let before = rows(&folder.file());
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    assert_eq!(version(&folder), KNOWN);
    let kept =
        rows(&folder.file()).into_iter().filter(|(table, _)| before.iter().any(|(had, _)| had == table));
    assert_eq!(kept.collect::<Vec<_>>(), before);
    for (i, state) in TaskState::ALL.iter().skip(1).enumerate() {
        let id = format!("t-{i}").as_str().into();
        let (task, seq) = stored(&*store, &ann, &id).await.unwrap();
        assert_eq!((task.status.state, seq, task.artifacts.len()), (*state, Seq(4), 1));
        assert_eq!(events(&*store, &ann, &id, 0, 9).await.len(), 4);
        assert!(!store.task(&ann, &id).await.unwrap().unwrap().pushes);
    }
    let all = TaskQuery { limit: 100, count: true, ..TaskQuery::default() };
    assert_eq!(store.tasks(&ann, &all).await.unwrap().total, Some(8));

    // New features work, for existing tasks and for new ones.
    let id = "t-0".into();
    store.put_webhook(&ann, &id, webhook("a"), at(1)).await.unwrap().unwrap();
    assert!(store.task(&ann, &id).await.unwrap().unwrap().pushes);
    let (task, seq) = stored(&*store, &ann, &id).await.unwrap();
    let mut writer = Writer::open(&store, &ann, task, seq);
    let entry = writer.entry(writer.status_event(TaskState::Working, 20));
    writer.offer(Commit { push: true, take: true, ..entry }).await.unwrap();
    let leased = lease(&*store).await;
    assert_eq!((leased.len(), &leased[0].task_id, leased[0].owed[0].seq), (1, &id, Seq(5)));
    drop((store, writer));
    closed(&folder, handle).await;
}

#[tokio::test]
async fn a_file_of_the_second_version_takes_records_and_memos() {
    let ((folder, handle), ann) = (opened(2).await, scope("ann"));
    let store: Arc<dyn Store> = handle.clone();
    let stored = store.task(&ann, &"t-0".into()).await.unwrap().unwrap();
    assert_eq!((stored.seq, stored.pushes, stored.memo), (Seq(4), true, None));
    assert_eq!(store.record("kind", "key").await.unwrap(), None);
    assert_eq!(store.put_records(vec![super::record()]).await.unwrap(), [Ok(1)]);
    takes_a_memo(store, "t-0").await;
    closed(&folder, handle).await;
}

#[tokio::test]
async fn a_file_of_the_third_version_has_kept_its_memos() {
    let ((folder, handle), ann) = (opened(3).await, scope("ann"));
    let store: Arc<dyn Store> = handle.clone();
    let stored = store.task(&ann, &"t-0".into()).await.unwrap().unwrap();
    assert_eq!((stored.seq, stored.memo), (Seq(4), Some("remember".into())));
    let large = store.task(&ann, &"t-1".into()).await.unwrap().unwrap().memo;
    assert_eq!(large.map(|memo| memo.len()), Some("remember".len() * 1_001));
    takes_a_memo(store, "t-0").await;
    closed(&folder, handle).await;
}

#[tokio::test]
async fn a_file_of_the_fourth_version_takes_reservations() {
    let ((folder, handle), ann) = (opened(4).await, scope("ann"));
    let store: Arc<dyn Store> = handle.clone();
    assert!(matches!(
        store.idempotent_outcome(&ann, "t-0").await.unwrap().unwrap().outcome,
        Outcome::Task(_)
    ));
    assert!(matches!(
        store.idempotent_outcome(&ann, "reply").await.unwrap().unwrap().outcome,
        Outcome::Reply(_)
    ));
    let wanted = |id: &str, name: &str| reservation(&ann, id, Some(key(name, 1)));
    assert_eq!(store.reserve(wanted("t-9", "t-0")).await.unwrap(), Err(Refused::KeyTaken), "by a task");
    assert_eq!(store.reserve(wanted("t-9", "reply")).await.unwrap(), Err(Refused::KeyTaken), "by a reply");
    assert_eq!(store.reserve(wanted("t-9", "new")).await.unwrap(), Ok(()));
    assert_eq!(store.reserve(wanted("t-10", "newer")).await.unwrap(), Ok(()));
    let first = opening(&ann, "t-9", None).attach(|with| with.reserved = true);
    assert_eq!(commit_one(&*store, first).await, Ok(()));
    drop(store);
    closed(&folder, handle).await;
    let next = open(&folder.file()).await;
    assert_eq!(next.abandoned("agent", 9).await.unwrap(), [wanted("t-10", "newer")]);
}

#[tokio::test]
async fn a_file_of_the_fifth_version_takes_large_metadata() {
    let ((folder, handle), ann) = (opened(5).await, scope("ann"));
    let store: Arc<dyn Store> = handle.clone();
    assert!(stored(&*store, &ann, &"t-0".into()).await.is_some());
    let mut made = creation("t-9", "c-1", 1);
    made.metadata = Metadata::from_iter([("list", "x".repeat(200_000))]);
    let entry = Commit { event: Arc::new(Event::Task(made.clone())), ..opening(&ann, "t-9", None) };
    assert_eq!(commit_one(&*store, entry).await, Ok(()));
    assert_eq!(stored(&*store, &ann, &"t-9".into()).await, Some((made, Seq(1))));
    drop(store);
    closed(&folder, handle).await;
}

#[tokio::test]
async fn a_migration_says_from_where_to_where() {
    let folder = older(1).await;
    let copy = folder.path().join("copy");
    assert!(maintenance::backup(&folder.file(), &copy).unwrap() > 0, "as it is");
    assert_eq!(maintenance::migrate(&folder.file()).unwrap(), (1, KNOWN));
    assert_eq!(maintenance::migrate(&folder.file()).unwrap(), (KNOWN, KNOWN));
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
    maintenance::vacuum(&copy).unwrap();
    assert_eq!(maintenance::migrate(&copy).unwrap(), (KNOWN, KNOWN));
}

#[tokio::test]
async fn a_migration_that_fails_half_way_has_changed_nothing() {
    let folder = older(1).await;
    let change = |sql: &str| Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
    // Makes the last step of the migration fail.
    change("CREATE INDEX records_by_time ON turns (begun)");
    let before = rows(&folder.file());
    let refused = SqliteStore::open(&folder.file(), SqliteOptions::default()).await;
    assert!(matches!(refused, Err(OpenError::Other { .. })), "{refused:?}");
    assert!(maintenance::migrate(&folder.file()).is_err());
    assert_eq!((version(&folder), rows(&folder.file())), (1, before));
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
    change("DROP INDEX records_by_time");
    assert_eq!(maintenance::migrate(&folder.file()).unwrap(), (1, KNOWN));
}
