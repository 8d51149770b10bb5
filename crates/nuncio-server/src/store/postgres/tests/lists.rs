//! Slow lists: they fail alone, and nothing else waits for them.

use std::sync::Arc;

use futures_util::future::join_all;
use nuncio_protocol::{Error, ErrorKind, TaskState};

use super::*;
use crate::store::{
    AdminTaskQuery, Projection, TaskQuery,
    conformance::{Writer, events, scope, stored},
    postgres::LISTS,
};

/// A connection of the test itself.
async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn all() -> TaskQuery {
    TaskQuery { limit: 9, count: true, ..TaskQuery::default() }
}

/// Guards against a former fault: lists used the connections of all readers, so two callers with slow lists
/// blocked every read of the hub, and made it unready.
#[tokio::test]
async fn slow_lists_fail_alone_while_everything_else_goes_on() {
    let url = postgres::database().await;
    let brief = PostgresOptions { list_timeout: Duration::from_secs(1), ..options() };
    let store = Arc::new(PostgresStore::connect(&url, brief).await.unwrap());
    let ann = scope("ann");
    let writer = Writer::create(&shared(&store), &ann, "t-1", "c-1", 1).await;
    let id = writer.task.id.clone();
    // Of all reads only lists use the counters.
    let other = session(&url).await;
    other.batch_execute("BEGIN; LOCK TABLE nuncio.counters IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let list = || {
        let (store, ann) = (Arc::clone(&store), Arc::clone(&ann));
        tokio::spawn(async move { store.tasks(&ann, &all()).await })
    };
    let lists: Vec<_> = (0..3 * LISTS).map(|_| list()).collect();
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("lists that wait", async || {
        let waiting: usize = postgres::run(&url, waiting).await[0][0].parse().unwrap();
        (waiting >= 2).then_some(())
    })
    .await;
    for _ in 0..20 {
        assert!(stored(&*store, &ann, &id).await.is_some());
        assert!(store.shown(&ann, &id, Projection::WHOLE).await.unwrap().is_some());
        assert_eq!(events(&*store, &ann, &id, 0, 9).await.len(), 1);
        store.ready().await.unwrap();
        let operators = AdminTaskQuery { limit: 9, ..AdminTaskQuery::default() };
        assert_eq!(store.all_tasks(&operators).await.unwrap().tasks.len(), 1);
    }
    for failed in join_all(lists).await {
        let failed = failed.unwrap().expect_err("the counters are locked");
        assert!(failed.is_busy(), "{failed}");
        let told = Error::from(failed);
        assert_eq!(told.kind(), ErrorKind::Unavailable);
        assert!(told.retry_after().is_some() && told.message().contains("took too long"), "{told}");
    }
    other.batch_execute("ROLLBACK").await.unwrap();
    let page = eventually("a list", async || store.tasks(&ann, &all()).await.ok()).await;
    assert_eq!((page.tasks.len(), page.total), (1, Some(1)));
}

/// The statement of a caller that went away is cancelled, and its connection is soon free for others.
#[tokio::test]
async fn a_list_that_nobody_waits_for_is_stopped_and_commits_wait_for_none() {
    let url = postgres::database().await;
    let patient = PostgresOptions { list_timeout: Duration::from_secs(600), ..options() };
    let store = Arc::new(PostgresStore::connect(&url, patient).await.unwrap());
    let ann = scope("ann");
    let mut writer = Writer::create(&shared(&store), &ann, "t-1", "c-1", 1).await;
    let sleep = || {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let lent = store.lists.lend().await.unwrap();
            let slow = lent.link().query("SELECT pg_sleep(600)", &[]).await;
            lent.end(slow).map(drop)
        })
    };
    let asleep: Vec<_> = (0..LISTS).map(|_| sleep()).collect();
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep(600)'";
    let sleepers = async || postgres::run(&url, sleeping).await[0][0].parse::<usize>().unwrap();
    eventually("all connections of lists are in use", async || (sleepers().await == LISTS).then_some(()))
        .await;
    writer.status(TaskState::Working, 2).await;
    assert_eq!(stored(&*store, &ann, &writer.task.id).await.unwrap().0, writer.task);
    store.ready().await.unwrap();
    let waits = tokio::spawn({
        let (store, ann) = (Arc::clone(&store), Arc::clone(&ann));
        async move { store.tasks(&ann, &all()).await }
    });
    asleep.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(waits.await.unwrap().unwrap().tasks, [writer.task.clone()]);
    eventually("nothing runs for those who left", async || (sleepers().await == 0).then_some(())).await;
}
