//! The PostgreSQL store: the contract, and what only a server that many share can do wrong.

mod forget;
mod lists;
mod maintain;
mod migrate;
mod open;
mod outbox;
mod replicas;

use std::{sync::Arc, time::Duration};

use super::{PostgresOptions, PostgresStore};
use crate::{
    store::{OperatorQueries, Outbox, Records, Store, TaskLog, conformance::Handles},
    testing::postgres,
};

crate::store_conformance!(connect(&postgres::database().await).await);
crate::store_ownership_conformance!(Database(postgres::database().await));
crate::store_sharing_conformance!(Database(postgres::database().await));

struct Database(String);

#[async_trait::async_trait]
impl Handles for Database {
    type Handle = PostgresStore;

    async fn open(&self) -> Arc<PostgresStore> {
        connect(&self.0).await
    }

    // The lapse has a test of its own.
    async fn die(&self, handle: Arc<PostgresStore>) {
        handle.close().await;
    }
}

fn options() -> PostgresOptions {
    PostgresOptions {
        beat: Duration::from_millis(100),
        lapse: Duration::from_secs(3),
        ..PostgresOptions::default()
    }
}

async fn connect(url: &str) -> Arc<PostgresStore> {
    match PostgresStore::connect(url, options()).await {
        Ok(store) => Arc::new(store),
        Err(error) => panic!("{error}"),
    }
}

/// How many rows each table has, but for those that are always there.
async fn rows(url: &str) -> Vec<(String, u64)> {
    let tables = [
        "tasks",
        "segments",
        "blobs",
        "turns",
        "links",
        "answers",
        "counters",
        "scopes",
        "webhooks",
        "deliveries",
        "memos",
        "reservations",
    ];
    let mut counted = Vec::new();
    for table in tables {
        let told = postgres::run(url, &format!("SELECT count(*) FROM nuncio.{table}")).await;
        let number = told[0][0].parse().unwrap();
        if number > 0 {
            counted.push((table.to_owned(), number));
        }
    }
    counted
}

/// What the check of the whole database says.
async fn problems(url: &str) -> Vec<String> {
    super::maintain::check(url).await.unwrap()
}

/// Tries until it holds; nothing else says when a server has noticed something.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let tried = async {
        let mut again = tokio::time::interval(Duration::from_millis(50));
        loop {
            again.tick().await;
            if let Some(done) = attempt().await {
                return done;
            }
        }
    };
    match tokio::time::timeout(Duration::from_secs(60), tried).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within a minute"),
    }
}

fn shared(store: &Arc<PostgresStore>) -> Arc<dyn Store> {
    Arc::clone(store) as Arc<dyn Store>
}
