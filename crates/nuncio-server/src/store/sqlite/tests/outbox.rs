//! The outbox of the SQLite store: its writes, and deletion.

use std::sync::Arc;

use nuncio_protocol::{Seq, TaskState};
use rusqlite::Connection;

use super::{Folder, end, fresh, lease, maintenance, open, rows, settle, webhook};
use crate::store::{
    Commit, DeliveryQuery, DeliveryState, Redrive, Settled, Store, Then,
    conformance::{Writer, at, commit_one, opening, scope},
};

/// The number of changes by the writer.
async fn changes(store: &super::SqliteStore) -> u64 {
    store.writer.alone(|session| Ok(session.db.total_changes())).await.unwrap()
}

/// A task with a webhook that has this many pending deliveries.
async fn begin(store: &Arc<dyn Store>, id: &str, entries: u64) -> Writer {
    let first = Commit { push: true, ..opening(&scope("ann"), id, None) }
        .attach(|with| with.webhook = Some(webhook(id)));
    let task = crate::store::conformance::creation(id, "c-1", 1);
    let mut writer = Writer::open(store, &scope("ann"), task, Seq::ZERO);
    writer.offer(first).await.unwrap();
    for i in 1..entries {
        let entry = writer.entry(writer.status_event(TaskState::Working, i as i64));
        writer.offer(Commit { push: true, ..entry }).await.unwrap();
    }
    writer
}

#[tokio::test]
async fn a_lease_writes_nothing() {
    let handle = fresh().await;
    let store: Arc<dyn Store> = handle.clone();
    begin(&store, "t-1", 2).await;
    let before = changes(&handle).await;
    assert_eq!(lease(&*store).await.len(), 1);
    store
        .settle(vec![Settled { webhook: "other".into(), outcomes: Vec::new(), then: Then::Stop }])
        .await
        .unwrap();
    assert_eq!(changes(&handle).await, before);
}

#[tokio::test]
async fn a_delivery_whose_attempts_cannot_be_read_stops_nobody() {
    // Guards against a former fault: everything in the same transaction failed with it, again and again.
    let handle = fresh().await;
    let store: Arc<dyn Store> = handle.clone();
    begin(&store, "t-1", 1).await;
    let damage = |session: &mut super::super::write::WriteSession| {
        Ok(session.db.execute("UPDATE deliveries SET recent = '[{'", [])?)
    };
    assert_eq!(handle.writer.alone(damage).await.unwrap(), 1);
    assert_eq!(lease(&*store).await.len(), 1);
    settle(&*store, "t-1", 1, DeliveryState::Delivered).await;
    let (page, _) = store.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await.unwrap();
    assert_eq!((page[0].state, page[0].recent.len()), (DeliveryState::Delivered, 1));
}

#[tokio::test]
async fn a_task_without_webhooks_writes_what_it_always_did() {
    let handle = fresh().await;
    let store: Arc<dyn Store> = handle.clone();
    let mut counts = Vec::new();
    for (id, push) in [("silent", false), ("pushed to nobody", true)] {
        let before = changes(&handle).await;
        assert_eq!(commit_one(&*store, Commit { push, ..opening(&scope("ann"), id, None) }).await, Ok(()));
        counts.push(changes(&handle).await - before);
    }
    // The first call creates the scope.
    assert_eq!(counts, [4, 3]);
}

#[tokio::test]
async fn what_fails_to_be_settled_stays_in_hand() {
    let handle = fresh().await;
    let store: Arc<dyn Store> = handle.clone();
    begin(&store, "t-1", 1).await;
    lease(&*store).await;
    let change = |sql: &'static str| handle.writer.alone(move |session| Ok(session.db.execute_batch(sql)?));
    change("CREATE TEMP TRIGGER no BEFORE UPDATE ON webhooks BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await
        .unwrap();
    let released =
        || vec![Settled { webhook: "t-1".into(), outcomes: Vec::new(), then: Then::Release(at(1)) }];
    store.settle(released()).await.expect_err("it cannot be written");
    assert!(handle.held_leases.hold("t-1"));
    change("DROP TRIGGER no").await.unwrap();
    store.settle(released()).await.unwrap();
    assert!(!handle.held_leases.hold("t-1"));
}

#[tokio::test]
async fn what_is_owed_is_found_without_reading_what_is_done() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    begin(&store, "t-1", 5).await;
    let owed_from = || {
        let db = Connection::open(folder.file()).unwrap();
        db.query_row("SELECT owed_from FROM webhooks", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    for seq in 1..=3 {
        lease(&*store).await;
        settle(&*store, "t-1", seq, DeliveryState::Delivered).await;
        assert_eq!(owed_from(), seq as i64 + 1);
    }
    let id = crate::store::DeliveryId::parse("t-1-2").unwrap();
    assert_eq!(store.redrive(&Redrive::One(id), at(5)).await.unwrap(), 1);
    assert_eq!(owed_from(), 2);
    let owed: Vec<u64> = lease(&*store).await[0].owed.iter().map(|owed| owed.seq.0).collect();
    assert_eq!(owed, [2, 4, 5]);
    assert_eq!(maintenance::check(&folder.file()).unwrap(), [""; 0]);
    drop(store);
    end(handle).await;
    let left: Vec<_> = rows(&folder.file()).into_iter().filter(|(table, _)| table == "deliveries").collect();
    assert_eq!(left, [("deliveries".to_owned(), 5)]);
}

#[tokio::test]
async fn damaged_deliveries_are_told() {
    let folder = Folder::new();
    let store: Arc<dyn Store> = Arc::new(open(&folder.file()).await);
    begin(&store, "t-1", 1).await;
    for (damage, told) in [("state = 7", "7 is not a delivery state"), ("state = 0, recent = '{'", "damaged")]
    {
        let db = Connection::open(folder.file()).unwrap();
        db.execute_batch(&format!("UPDATE deliveries SET {damage}")).unwrap();
        let query = DeliveryQuery { limit: 9, ..DeliveryQuery::default() };
        let error = store.deliveries(&query).await.unwrap_err();
        assert!(error.to_string().contains(told) && !error.is_down(), "{error}");
    }
}
