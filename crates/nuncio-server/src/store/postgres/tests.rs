//! The PostgreSQL store: the contract, and cases that only a shared database has.

mod forget;
mod lists;
mod maintenance;
mod migrate;
mod open;
mod outbox;
mod poolers;
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

    // The lapse of a heartbeat has a test of its own.
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

/// The number of rows in each table that is not empty, except tables that always have rows.
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

/// The problems that the check of the whole database finds.
async fn problems(url: &str) -> Vec<String> {
    super::maintenance::check(url).await.unwrap()
}

/// Repeats an attempt until it succeeds; there is no signal for changes in the server.
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
