//! Migration of a database of an older version, with all its data.

use futures_util::future::join_all;
use nuncio_protocol::{Seq, TaskState};

use super::{
    outbox::{due, hook, owed},
    *,
};
use crate::store::{
    Commit, Expect, PutRecord, Refused,
    conformance::{Writer, at, creation, key, reserve::reservation, scope, stored},
    postgres::{
        maintenance::{check, vacuum},
        schema::KNOWN,
    },
};

/// Statements that undo each version, newest first.
const ADDED: [(i64, &str); 4] = [
    (5, "SELECT 1"),
    (4, "DROP TABLE nuncio.reservations; ALTER TABLE nuncio.answers DROP COLUMN reserved"),
    (3, "DROP TABLE nuncio.memos, nuncio.records"),
    (2, "DROP TABLE nuncio.webhooks, nuncio.deliveries"),
];

/// Creates tables of this version, with two tasks, one of them in progress.
async fn older(url: &str, version: i64) {
    let store = connect(url).await;
    let mut done = Writer::create(&shared(&store), &scope("ann"), "t-1", "c-1", 1).await;
    done.status(TaskState::Completed, 2).await;
    Writer::create(&shared(&store), &scope("ann"), "t-2", "c-1", 1).await;
    store.close().await;
    for (_, without) in ADDED.iter().filter(|(added, _)| *added > version) {
        postgres::run(url, without).await;
    }
    postgres::run(url, &format!("UPDATE nuncio.schema_version SET version = {version}")).await;
}

#[tokio::test]
async fn a_database_of_an_older_version_is_brought_forward_once() {
    assert_eq!(ADDED[0].0, KNOWN, "every version is in this test");
    for version in 1..KNOWN {
        brought_forward_from(version).await;
    }
}

async fn brought_forward_from(version: i64) {
    let url = postgres::database().await;
    older(&url, version).await;
    assert_eq!(check(&url).await.unwrap(), [""; 0], "what is not there yet is no problem");
    vacuum(&url).await.unwrap();
    let hubs = join_all((0..4).map(|_| connect(&url))).await;
    let now = postgres::run(&url, "SELECT version FROM nuncio.schema_version").await;
    assert_eq!(now, [[KNOWN.to_string()]]);
    let (ann, task) = (scope("ann"), "t-2".into());
    assert_eq!(stored(&*hubs[0], &ann, &"t-1".into()).await.map(|(_, seq)| seq), Some(Seq(2)));
    assert_eq!(hubs[1].adopt("agent", 9).await.unwrap().len(), 1, "what was in progress goes on");
    assert_eq!(hubs[2].put_webhook(&ann, &task, hook("w", "x:1"), at(1)).await.unwrap(), Ok(()));
    let mut writer = Writer::open(&shared(&hubs[1]), &ann, creation("t-2", "c-1", 1), Seq(1));
    let entry = writer.entry(writer.status_event(TaskState::Completed, 3));
    assert_eq!(
        writer.offer(Commit { push: true, ..entry }.attach(|with| with.memo = Some("m".into()))).await,
        Ok(())
    );
    assert_eq!(hubs[0].task(&ann, &task).await.unwrap().unwrap().memo, Some("m".into()));
    let record = PutRecord {
        kind: "kind".into(),
        key: "key".into(),
        value: "value".into(),
        at: at(1),
        expect: Expect::Absent,
    };
    assert_eq!(hubs[0].put_records(vec![record]).await.unwrap(), [Ok(1)]);
    assert_eq!(owed(&hubs[3].lease(&due()).await.unwrap()), [("w".to_owned(), vec![2])]);
    let wanted = reservation(&ann, "t-3", Some(key("k", 1)));
    assert_eq!(hubs[0].reserve(wanted.clone()).await.unwrap(), Ok(()));
    assert_eq!(
        hubs[1].reserve(reservation(&ann, "t-4", wanted.idempotency)).await.unwrap(),
        Err(Refused::KeyTaken)
    );
    assert_eq!(problems(&url).await, [""; 0]);
}

/// A migration does not wait for concurrent writers.
#[tokio::test]
async fn a_database_that_is_in_use_is_brought_forward() {
    let url = postgres::database().await;
    older(&url, 1).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; UPDATE nuncio.tasks SET context_id = 'c-2'").await.unwrap();
    let store = connect(&url).await;
    client.batch_execute("COMMIT").await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(stored(&*store, &scope("ann"), &"t-2".into()).await.map(|(_, seq)| seq), Some(Seq(1)));
    assert_eq!(problems(&url).await, [""; 0]);
}
