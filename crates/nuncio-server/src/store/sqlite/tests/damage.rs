//! Invalid files: refused with clear messages, and found by the check.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;

use super::{Folder, end, fill, maintenance, open};
use crate::store::{
    OpenError, SqliteOptions, SqliteStore, Store, TaskLog,
    conformance::{scope, stored},
    sqlite::schema::KNOWN,
};

async fn refused(path: &Path) -> OpenError {
    SqliteStore::open(path, SqliteOptions::default()).await.expect_err("it is refused")
}

/// A database with tasks, closed.
async fn filled() -> Folder {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    fill(&store).await;
    drop(store);
    end(handle).await;
    folder
}

fn change(folder: &Folder, sql: &str) {
    Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let folder = filled().await;
    change(&folder, "PRAGMA user_version = 7");
    let error = refused(&folder.file()).await;
    assert!(matches!(error, OpenError::NewerSchema { found: 7, known: KNOWN, .. }), "{error}");
    for error in [maintenance::check(&folder.file()).err(), maintenance::migrate(&folder.file()).err()] {
        let words = error.unwrap().to_string();
        assert!(words.contains(&format!("schema version 7, this version supports {KNOWN}")), "{words}");
    }
    change(&folder, &format!("PRAGMA user_version = {KNOWN}"));
    assert!(stored(&open(&folder.file()).await, &scope("ann"), &"t-0".into()).await.is_some());
}

#[tokio::test]
async fn what_is_not_a_task_store_is_refused() {
    let folder = Folder::new();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "Dear diary, ".repeat(1_000)).unwrap();
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE music (title TEXT)").unwrap();
    let marked = folder.path().join("marked.db");
    Connection::open(&marked).unwrap().execute_batch("PRAGMA application_id = 5").unwrap();
    for path in [&text, &other, &marked] {
        let before = std::fs::read(path).unwrap();
        let error = refused(path).await;
        assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
        assert!(matches!(maintenance::check(path), Err(OpenError::NotOurs { .. })));
        assert_eq!(std::fs::read(path).unwrap(), before, "untouched");
    }
    let error = refused(&folder.path().join("nowhere/tasks.db")).await;
    assert!(matches!(error, OpenError::NoSuchDirectory(_)), "{error}");
    let error = refused(folder.path()).await.to_string();
    assert!(error.contains("is a folder"), "{error}");
    let error = maintenance::check(&folder.path().join("nothing.db")).unwrap_err().to_string();
    assert!(error.contains("there is no file"), "{error}");
    assert!(!folder.path().join("nothing.db").exists());
}

#[tokio::test]
async fn a_corrupted_file_is_told_and_not_repaired() {
    let folder = filled().await;
    let roots = {
        let db = Connection::open(folder.file()).unwrap();
        let roots = "SELECT rootpage FROM sqlite_schema WHERE rootpage > 0 AND name <> 'meta'";
        let mut roots = db.prepare(roots).unwrap();
        let roots = roots.query_map([], |row| row.get::<_, u32>(0)).unwrap();
        roots.map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut bytes = std::fs::read(folder.file()).unwrap();
    // Damages every tree except `meta`.
    for root in roots {
        bytes[(root as usize - 1) * 4096..][..64].iter_mut().for_each(|byte| *byte ^= 0x5a);
    }
    std::fs::write(folder.file(), &bytes).unwrap();
    let problems = maintenance::check(&folder.file()).unwrap();
    assert!(problems.iter().any(|problem| problem.starts_with("file: ")), "{problems:?}");
    match SqliteStore::open(&folder.file(), SqliteOptions::default()).await {
        Err(error) => assert!(matches!(error, OpenError::Corrupt { .. }), "{error}"),
        Ok(store) => {
            let error = store.task(&scope("ann"), &"t-0".into()).await.expect_err("damaged");
            assert!(!error.is_down(), "nothing will help but people: {error}");
            store.close().await;
        }
    }
    assert!(!maintenance::check(&folder.file()).unwrap().is_empty(), "still there");
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    // A folder that nobody can write to, not even root.
    let Some(place) = ["/sys", "/proc"].iter().map(Path::new).find(|place| place.is_dir()) else {
        panic!("a folder that cannot be written to is needed for this test");
    };
    let error = refused(&place.join("tasks.db")).await;
    let told =
        matches!(error, OpenError::ReadOnly { .. } | OpenError::Denied { .. } | OpenError::Other { .. });
    assert!(told, "{error:?}");
}

#[tokio::test]
async fn the_check_finds_each_kind_of_damage() {
    let cases = [
        ("UPDATE counters SET tasks = tasks + 1 WHERE state = 3", "counters: "),
        ("DELETE FROM counters WHERE state = 2", "counters: "),
        ("DELETE FROM log WHERE rowid = (SELECT max(place) FROM log)", "its log ends with entry"),
        ("DELETE FROM log WHERE rowid = (SELECT min(place) + 1 FROM log)", "after entry 1 comes entry 3"),
        ("UPDATE log SET first_seq = first_seq + 1", "comes entry 2"),
        ("UPDATE log SET body = x'5b'", "damaged"),
        ("UPDATE log SET body = x'5b5d'", "a segment ends with entry"),
        ("INSERT INTO log (place, first_seq, body) VALUES (999 << 28, 1, x'5b5d')", "is of no task"),
        (
            "UPDATE tasks SET seq = seq + 1 WHERE id = 't-2'",
            "task t-2: its log ends with entry 4, expected 5",
        ),
        ("UPDATE tasks SET state = 4 WHERE id = 't-2'", "task t-2: its status does not match its log"),
        ("UPDATE tasks SET snapshot = x'7b7d' WHERE id = 't-2'", "task t-2: its snapshot does not match"),
        (
            "UPDATE tasks SET snapshot = x'7b' WHERE id = 't-2'",
            "task t-2: the task store failed: stored data",
        ),
        ("DELETE FROM blobs", "large content is missing"),
        ("UPDATE tasks SET pending = 9 WHERE id = 't-1'", "turns: task t-1 counts"),
        ("UPDATE answers SET task = NULL", "has no answer"),
        ("UPDATE answers SET reserved = 't-9' WHERE task IS NOT NULL", "has no answer"),
        (
            "UPDATE answers SET reply = NULL, reserved = 't-9' WHERE reply IS NOT NULL",
            "reservations: reservation t-9 and its key do not agree",
        ),
        (
            "INSERT INTO reservations VALUES ('t-9', 1, 'k', 1, 1, x'')",
            "reservations: reservation t-9 and its key do not agree",
        ),
        (
            "INSERT INTO reservations VALUES ('t-1', 1, NULL, 1, 1, x'')",
            "reservations: reservation t-1 has a task",
        ),
        ("UPDATE tasks SET webhooks = 0 WHERE id = 't-1'", "webhooks: task t-1 counts 0 webhooks"),
        ("DELETE FROM webhooks WHERE uid = 't-1'", "webhooks: task t-1 counts 1 webhooks"),
        ("UPDATE webhooks SET due_at = NULL", "webhooks: the due time of t-2 does not match its deliveries"),
        ("UPDATE webhooks SET owed_from = 2", "webhooks: the due time of t-2 does not match its deliveries"),
        ("UPDATE webhooks SET stopped = TRUE", "webhooks: the due time of t-2 does not match its deliveries"),
        ("UPDATE deliveries SET seq = 9", "deliveries: t-0-9 is invalid"),
        ("UPDATE deliveries SET state = 3", "deliveries: t-0-1 is invalid"),
        ("UPDATE deliveries SET recent = '[{'", "deliveries: t-0-1 is invalid"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM webhooks", "of deliveries refers to nothing in webhooks"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM tasks WHERE id = 't-3'", "refers to nothing in tasks"),
    ];
    for (damage, told) in cases {
        let folder = filled().await;
        assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
        change(&folder, damage);
        let problems = maintenance::check(&folder.file()).unwrap();
        assert!(problems.iter().any(|problem| problem.contains(told)), "{damage}: {problems:?}");
    }
}
