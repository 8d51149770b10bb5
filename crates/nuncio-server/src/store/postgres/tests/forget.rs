//! Deletion leaves nothing behind, even with concurrent writers.

use bytes::Bytes;
use nuncio_protocol::{Event, Message, Part, Seq, TaskState};

use super::*;
use crate::store::{
    Commit, ErasureTarget, Prune, Pruned, Scope, StoredTurn, TurnChange, Webhook,
    conformance::{Writer, at, commit_one, creation, key, opening, reserve::reservation, scope},
};

/// A task with a key, a reference, a turn, large content and a webhook with a pending delivery.
async fn rich_task(store: &Arc<PostgresStore>, owner: &str, id: &str, state: TaskState) {
    let ann = scope(owner);
    let mut created = creation(id, "c-1", 1);
    let said = Message {
        reference_task_ids: vec!["t-parent".into()],
        ..Message::user("m-2", Part::text("x".repeat(100_000)))
    };
    created.history.push(Arc::new(said));
    let turn = StoredTurn { id: "1".into(), begun: true, body: Bytes::from_static(b"x") };
    let event = Arc::new(Event::Task(created.clone()));
    let webhook = Webhook { uid: id.into(), id: "w".into(), target: "x:1".into(), body: "{}".into() };
    let (turn, webhook) = (Some(turn), Some(webhook));
    let memo = Some(Bytes::from_static(b"m"));
    let entry = Commit { event, push: true, ..opening(&ann, id, Some(key(id, 1))) }.attach(|with| {
        with.turn = turn;
        with.webhook = webhook;
        with.memo = memo;
    });
    assert_eq!(commit_one(&**store, entry).await, Ok(()));
    let waiting = StoredTurn { id: "2".into(), begun: false, body: Bytes::from_static(b"y") };
    store.update_turn(&ann, &id.into(), TurnChange::Queue(waiting)).await.unwrap().unwrap();
    Writer::open(&shared(store), &ann, created, Seq(1)).status(state, 2).await;
}

#[tokio::test]
async fn what_is_erased_or_pruned_leaves_no_rows() {
    let url = postgres::database().await;
    let store = connect(&url).await;
    let reply = Arc::new(Message::agent("r", Part::text("reply")));
    for (owner, id, state) in [("ann", "t-1", TaskState::Working), ("bob", "t-2", TaskState::Completed)] {
        rich_task(&store, owner, id, state).await;
        store.put_reply(&scope(owner), key("reply", 1), Arc::clone(&reply), at(1)).await.unwrap();
    }
    let reserved = reservation(&scope("ann"), "t-3", Some(key("reserved", 1)));
    assert_eq!(store.reserve(reserved).await.unwrap(), Ok(()));
    assert_eq!(rows(&url).await.len(), 12, "every table has something");
    assert_eq!(problems(&url).await, [""; 0]);
    let ann = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    assert_eq!(store.erase(&ann, 10).await.unwrap(), 3);
    assert_eq!(postgres::run(&url, "SELECT owner FROM nuncio.scopes").await, [["bob"]], "not even the name");
    for what in [Pruned::Tasks(TaskState::Completed), Pruned::Replies] {
        let prune = Prune { agent: "agent".into(), what, before: at(10) };
        assert_eq!(store.prune(&prune, 10).await.unwrap(), 1);
    }
    assert_eq!(problems(&url).await, [""; 0]);
    let bob = ErasureTarget { owner: Some("bob".into()), ..ann };
    assert_eq!(store.erase(&bob, 10).await.unwrap(), 0, "only the name is left");
    assert_eq!(rows(&url).await, []);
}

/// A hub that has a caller's scope in its cache creates tasks for it after another hub has erased it.
#[tokio::test]
async fn a_caller_that_was_erased_elsewhere_comes_back() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let ann = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    for round in 0..3 {
        rich_task(&one, "ann", &format!("t-{round}"), TaskState::Completed).await;
        assert_eq!(two.erase(&ann, 10).await.unwrap(), 1);
        assert_eq!(rows(&url).await, []);
    }
    rich_task(&one, "ann", "t-9", TaskState::Completed).await;
    assert_eq!(problems(&url).await, [""; 0]);
}

/// One hub writes for a caller while another erases it: in any order, no task is left incomplete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasing_and_writing_at_once_leaves_nothing_half_done() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let writing = tokio::spawn(async move {
        for round in 0..60 {
            let ann = scope("ann");
            let id = format!("t-{round}");
            assert_eq!(commit_one(&*one, opening(&ann, &id, Some(key(&id, 1)))).await, Ok(()));
            let writer = Writer::open(&shared(&one), &ann, creation(&id, "c-1", 1), Seq(1));
            let end = writer.entry(writer.status_event(TaskState::Completed, 2));
            let result = commit_one(&*one, end).await;
            assert!(matches!(result, Ok(()) | Err(crate::store::Refused::NotFound)), "{result:?}");
        }
    });
    let ann = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    while !writing.is_finished() {
        two.erase(&ann, 5).await.unwrap();
    }
    writing.await.unwrap();
    assert_eq!(problems(&url).await, [""; 0]);
    while two.erase(&ann, 100).await.unwrap() > 0 {}
    two.erase(&ann, 100).await.unwrap();
    assert_eq!(rows(&url).await, []);
}

/// Stopped hubs are removed from the list of owners while a caller with their counters is erased: both lock
/// in the same order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasing_while_gone_owners_are_cleaned_away_gets_through() {
    let url = postgres::database().await;
    let moment = Duration::from_millis(1);
    let brief = PostgresOptions { beat: moment, lapse: moment, ..PostgresOptions::default() };
    let store = PostgresStore::connect(&url, brief).await.unwrap();
    let tenant = |n: usize| Arc::new(Scope { tenant: Some(n.to_string().into()), ..(*scope("ann")).clone() });
    let scopes: Vec<Arc<Scope>> = (0..200).map(tenant).collect();
    let hubs = tokio::spawn({
        let url = url.clone();
        async move {
            for round in 0..20 {
                let guest = connect(&url).await;
                let tasks = scopes.iter().enumerate().map(|(n, scope)| {
                    let id = format!("t-{round}-{n}");
                    let mut task = creation(&id, "c-1", 1);
                    task.status.state = TaskState::Completed;
                    Commit { event: Arc::new(Event::Task(task)), ..opening(scope, &id, None) }
                });
                let written = guest.commit(tasks.collect()).await.unwrap();
                assert_eq!(written, vec![Ok(()); scopes.len()]);
                guest.close().await;
            }
        }
    });
    let ann = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    while !hubs.is_finished() {
        store.erase(&ann, 20).await.unwrap();
    }
    hubs.await.unwrap();
    assert_eq!(problems(&url).await, [""; 0]);
    // The server counts deadlocks when the sessions end at the latest.
    store.close().await;
    drop(store);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let ended = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    eventually("the end of all sessions", async || {
        (postgres::run(&url, ended).await == [["0"]]).then_some(())
    })
    .await;
    assert_eq!(postgres::run(&url, deadlocks).await, [["0"]]);
}
