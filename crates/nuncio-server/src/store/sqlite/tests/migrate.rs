//! Files of older versions.

use std::sync::Arc;

use nuncio_protocol::{Seq, TaskState};
use rusqlite::Connection;

use super::{Folder, end, lease, maintain, open, rows, webhook};
use crate::store::{
    OpenError, SqliteOptions, SqliteStore, Store, TaskQuery,
    conformance::{Writer, at, events, scope, stored},
    sqlite::schema::VERSION_1,
};

/// What of the first version had rows, in an order that no reference minds.
const TABLES: [&str; 9] =
    ["meta", "scopes", "counters", "tasks", "log", "blobs", "turns", "links", "answers"];

/// A file of the first version with the tasks of another, which has them as that version wrote them.
async fn first_version() -> Folder {
    let (newer, older) = (Folder::new(), Folder::new());
    let handle = Arc::new(open(&newer.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    super::fill(&store).await;
    drop(store);
    end(handle).await;
    let db = Connection::open(older.file()).unwrap();
    db.execute_batch(VERSION_1).unwrap();
    db.execute_batch("DELETE FROM meta; PRAGMA application_id = 0x4e554e43; PRAGMA user_version = 1")
        .unwrap();
    db.execute("ATTACH ?1 AS newer", [newer.file().to_str()]).unwrap();
    for table in TABLES {
        let mut columns = db.prepare("SELECT group_concat(name) FROM pragma_table_info(?1, 'main')").unwrap();
        let columns: String = columns.query_row([table], |row| row.get(0)).unwrap();
        let copy = format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM newer.{table}");
        db.execute_batch(&copy).unwrap();
    }
    older
}

fn version(folder: &Folder) -> i64 {
    let db = Connection::open(folder.file()).unwrap();
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_file_of_the_first_version_opens_with_all_that_it_has() {
    let (folder, ann) = (first_version().await, scope("ann"));
    assert_eq!(maintain::check(&folder.file()).unwrap(), [""; 0], "before");
    let before = rows(&folder.file());
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    assert_eq!(version(&folder), 2);
    let kept = rows(&folder.file()).into_iter().filter(|(table, _)| TABLES.contains(&&**table));
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

    // And what is new works, for what was there and for what comes.
    let id = "t-0".into();
    store.put_webhook(&ann, &id, webhook("a"), at(1)).await.unwrap().unwrap();
    assert!(store.task(&ann, &id).await.unwrap().unwrap().pushes);
    let (task, seq) = stored(&*store, &ann, &id).await.unwrap();
    let mut writer = Writer::open(&store, &ann, task, seq);
    let entry = writer.entry(writer.status_event(TaskState::Working, 20));
    writer.offer(crate::store::Commit { push: true, take: true, ..entry }).await.unwrap();
    let leased = lease(&*store).await;
    assert_eq!((leased.len(), &leased[0].task_id, leased[0].owed[0].seq), (1, &id, Seq(5)));
    drop((store, writer));
    end(handle).await;
    assert_eq!(maintain::check(&folder.file()).unwrap(), [""; 0], "after");
}

#[tokio::test]
async fn a_migration_says_from_where_to_where() {
    let folder = first_version().await;
    let copy = folder.path().join("copy");
    assert!(maintain::backup(&folder.file(), &copy).unwrap() > 0, "as it is");
    assert_eq!(maintain::migrate(&folder.file()).unwrap(), (1, 2));
    assert_eq!(maintain::migrate(&folder.file()).unwrap(), (2, 2));
    assert_eq!(maintain::check(&folder.file()).unwrap(), [""; 0]);
    maintain::vacuum(&copy).unwrap();
    assert_eq!(maintain::migrate(&copy).unwrap(), (2, 2));
}

#[tokio::test]
async fn a_migration_that_fails_half_way_has_changed_nothing() {
    let folder = first_version().await;
    let change = |sql: &str| Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
    // In the way of the last step.
    change("CREATE INDEX deliveries_dead ON turns (begun)");
    let before = rows(&folder.file());
    let refused = SqliteStore::open(&folder.file(), SqliteOptions::default()).await;
    assert!(matches!(refused, Err(OpenError::Other { .. })), "{refused:?}");
    assert!(maintain::migrate(&folder.file()).is_err());
    assert_eq!((version(&folder), rows(&folder.file())), (1, before));
    assert_eq!(maintain::check(&folder.file()).unwrap(), [""; 0]);
    change("DROP INDEX deliveries_dead");
    assert_eq!(maintain::migrate(&folder.file()).unwrap(), (1, 2));
}
