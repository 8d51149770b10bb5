//! Check, backup, migrate, vacuum.

use nuncio_protocol::{Seq, TaskState};

use super::*;
use crate::store::{
    Commit, OpenError, Webhook,
    conformance::{Writer, commit_one, creation, opening, scope, stored},
    postgres::{
        maintenance::{backup, check, migrate, vacuum},
        schema::KNOWN,
    },
};

async fn some_tasks(url: &str) -> Arc<PostgresStore> {
    let store = connect(url).await;
    for (id, state) in
        [("t-1", TaskState::Completed), ("t-2", TaskState::Working), ("t-3", TaskState::InputRequired)]
    {
        let webhook = Webhook {
            uid: id.replace('t', "w").into(),
            id: "w".into(),
            target: "x:1".into(),
            body: "{}".into(),
        };
        let (webhook, ann) = ((id == "t-1").then_some(webhook), scope("ann"));
        let entry = Commit { push: true, ..opening(&ann, id, None) }.attach(|with| with.webhook = webhook);
        assert_eq!(commit_one(&*store, entry).await, Ok(()));
        let mut writer = Writer::open(&shared(&store), &ann, creation(id, "c-1", 1), Seq(1));
        writer.chunk("a", &"x".repeat(100_000)).await;
        writer.status(state, 2).await;
    }
    store
}

#[tokio::test]
async fn the_check_finds_what_is_wrong() {
    let damages = [
        ("UPDATE nuncio.segments SET body = substr(body, 2) WHERE task = 't-1' AND first_seq = 1", "t-1"),
        (
            "UPDATE nuncio.segments SET first_seq = 9 WHERE task = 't-2' AND first_seq = 2",
            "after entry 1 comes entry 9",
        ),
        ("DELETE FROM nuncio.segments WHERE task = 't-2' AND last_seq = 3", "ends with entry 2"),
        ("UPDATE nuncio.tasks SET state = 5 WHERE id = 't-2'", "its status does not match its log"),
        ("UPDATE nuncio.tasks SET artifacts = NULL WHERE id = 't-1'", "its snapshot does not match"),
        ("DELETE FROM nuncio.blobs WHERE task = 't-3'", "t-3"),
        ("UPDATE nuncio.counters SET n = n + 1 WHERE state = 3", "counters: "),
        ("UPDATE nuncio.tasks SET pending = 1 WHERE id = 't-2'", "turns: "),
        ("DELETE FROM nuncio.tasks WHERE id = 't-3'", "has no task"),
        ("DELETE FROM nuncio.tasks WHERE id = 't-1'", "webhook w-1 is of no task"),
        ("UPDATE nuncio.webhooks SET due_at = NULL", "webhook w-1 has pending deliveries, but is not due"),
        ("UPDATE nuncio.webhooks SET due_at = NULL, holder = 1", "webhook w-1 is leased"),
        ("INSERT INTO nuncio.memos VALUES ('t-9', '')", "a memo of task t-9 has no task"),
        ("INSERT INTO nuncio.records VALUES ('k', 'a', 0, 1, '')", "record a of k has no version"),
        (
            "INSERT INTO nuncio.reservations SELECT 't-9', id, 'k', 1, 1, '' FROM nuncio.scopes LIMIT 1",
            "reservation t-9 and its key do not agree",
        ),
        (
            "INSERT INTO nuncio.answers SELECT id, 'k', '', 1, NULL, NULL, 't-9' FROM nuncio.scopes LIMIT 1",
            "reservation t-9 and its key do not agree",
        ),
        (
            "INSERT INTO nuncio.answers SELECT id, 'k', '', 1, NULL, NULL, NULL FROM nuncio.scopes LIMIT 1",
            "has no answer",
        ),
        (
            "INSERT INTO nuncio.reservations SELECT 't-1', id, NULL, 1, 1, '' FROM nuncio.scopes LIMIT 1",
            "reservation t-1 has a task",
        ),
        ("DELETE FROM nuncio.webhooks", "delivery w-1-1 is of no webhook"),
        ("UPDATE nuncio.deliveries SET seq = 99", "delivery w-1-99 is of no webhook, or of no entry"),
    ];
    for (damage, found) in damages {
        let url = postgres::database().await;
        let _store = some_tasks(&url).await;
        assert_eq!(check(&url).await.unwrap(), [""; 0]);
        postgres::run(&url, damage).await;
        let problems = check(&url).await.unwrap();
        assert!(problems.iter().any(|problem| problem.contains(found)), "{damage}: {problems:?}");
    }
}

#[tokio::test]
async fn a_backup_can_be_restored_into_an_empty_database() {
    let url = postgres::database().await;
    let store = some_tasks(&url).await;
    let file = std::env::temp_dir().join(format!("nuncio-backup-{}.dump", std::process::id()));
    assert!(backup(&url, &file).await.unwrap() > 0);
    let error = backup(&url, &file).await.expect_err("the file is there");
    assert!(matches!(&error, OpenError::Invalid(why) if why.contains("exists")), "{error}");
    let other = postgres::database().await;
    let restored = std::process::Command::new("pg_restore")
        .args(["--exit-on-error", "--dbname", &other])
        .arg(&file)
        .output();
    let restored = restored.unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let _ = std::fs::remove_file(&file);
    let copy = connect(&other).await;
    for id in ["t-1", "t-2", "t-3"] {
        assert_eq!(
            stored(&*copy, &scope("ann"), &id.into()).await,
            stored(&*store, &scope("ann"), &id.into()).await
        );
    }
    assert_eq!(check(&other).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn migration_makes_the_tables_once_and_vacuum_needs_them() {
    let url = postgres::database().await;
    assert!(matches!(vacuum(&url).await, Err(OpenError::NotOurs { .. })));
    assert!(matches!(check(&url).await, Err(OpenError::NotOurs { .. })));
    assert_eq!(migrate(&url).await.unwrap(), (0, KNOWN));
    assert_eq!(migrate(&url).await.unwrap(), (KNOWN, KNOWN));
    let (before, after) = vacuum(&url).await.unwrap();
    assert!(before > 0 && after > 0);
}
