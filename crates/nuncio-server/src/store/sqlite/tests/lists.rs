//! Slow lists: they fail alone, and nothing else waits for them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use nuncio_protocol::{Error, ErrorKind, TaskState};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{Folder, at};
use crate::store::{
    AdminTaskQuery, Durability, OperatorQueries, Projection, SqliteOptions, SqliteStore, Store, StoreError,
    TaskLog, TaskQuery,
    conformance::{Writer, events, scope, stored},
    sqlite::{LISTS, Readers},
};

/// A statement that never ends by itself.
const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

async fn open(folder: &Folder, list_timeout: Duration) -> Arc<SqliteStore> {
    let options = SqliteOptions { durability: Durability::Relaxed, list_timeout, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open(&folder.file(), options).await.unwrap())
}

type Slow = JoinHandle<Result<i64, StoreError>>;

/// Occupies `count` readers; returns once all of them are busy.
async fn occupy(store: &Arc<SqliteStore>, readers: fn(&SqliteStore) -> &Readers, count: usize) -> Vec<Slow> {
    let (begun, mut begins) = mpsc::unbounded_channel();
    let slow = |_| {
        let (store, begun) = (Arc::clone(store), begun.clone());
        tokio::spawn(async move {
            let question = move |db: &rusqlite::Connection| {
                let _ = begun.send(());
                Ok(db.query_row(ENDLESS, [], |row| row.get(0))?)
            };
            readers(&store).ask(question).await
        })
    };
    let slow = (0..count).map(slow).collect();
    for _ in 0..count {
        begins.recv().await.unwrap();
    }
    slow
}

fn all() -> TaskQuery {
    TaskQuery { limit: 9, count: true, ..TaskQuery::default() }
}

fn assert_too_slow<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let failed = answer.expect_err("it takes too long");
    assert!(failed.is_busy(), "{failed}");
    let told = Error::from(failed);
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    assert!(told.retry_after().is_some() && told.message().contains("took too long"), "{told}");
}

/// Guards against a former fault: lists used the threads of all readers, so a few slow lists blocked every
/// read of events.
#[tokio::test]
async fn slow_lists_fail_alone_while_everything_else_goes_on() {
    let folder = Folder::new();
    let store = open(&folder, Duration::from_secs(1)).await;
    let shared: Arc<dyn Store> = Arc::clone(&store) as _;
    let ann = scope("ann");
    let mut writer = Writer::create(&shared, &ann, "t-1", "c-1", 1).await;
    let id = writer.task.id.clone();
    let slow = occupy(&store, |store| &store.lists, LISTS).await;
    let waiting: Vec<_> = (0..3 * LISTS)
        .map(|_| {
            let (store, ann) = (Arc::clone(&store), Arc::clone(&ann));
            tokio::spawn(async move { store.tasks(&ann, &all()).await })
        })
        .collect();
    for second in 2..22 {
        writer.status(TaskState::Working, second).await;
        assert!(stored(&*shared, &ann, &id).await.is_some());
        assert!(store.shown(&ann, &id, Projection::WHOLE).await.unwrap().is_some());
        assert_eq!(events(&*shared, &ann, &id, 0, 99).await.len() as i64, second);
        store.ready().await.unwrap();
        let operators = AdminTaskQuery { limit: 9, since: Some(at(1)), ..AdminTaskQuery::default() };
        assert_eq!(store.all_tasks(&operators).await.unwrap().tasks.len(), 1);
    }
    join_all(slow).await.into_iter().for_each(|answer| assert_too_slow(answer.unwrap()));
    // The time limit of waiting lists may be over before they get a thread.
    join_all(waiting).await.into_iter().map(Result::unwrap).filter(Result::is_err).for_each(assert_too_slow);
    let page = store.tasks(&ann, &all()).await.unwrap();
    assert_eq!((page.tasks.len(), page.total), (1, Some(1)));
}

/// The statement of a caller that went away is cancelled, and its reader is soon free for others.
#[tokio::test]
async fn a_list_that_nobody_waits_for_is_stopped() {
    let folder = Folder::new();
    let store = open(&folder, Duration::from_secs(600)).await;
    let shared: Arc<dyn Store> = Arc::clone(&store) as _;
    let ann = scope("ann");
    let writer = Writer::create(&shared, &ann, "t-1", "c-1", 1).await;
    let slow = occupy(&store, |store| &store.lists, LISTS).await;
    let operators = occupy(&store, |store| &store.operator_queries, 1).await;
    slow.iter().chain(&operators).for_each(JoinHandle::abort);
    assert_eq!(store.tasks(&ann, &all()).await.unwrap().tasks, [writer.task]);
    assert_eq!(store.count_tasks().await.unwrap().len(), 1);
}
