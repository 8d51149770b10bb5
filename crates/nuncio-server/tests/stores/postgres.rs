//! The PostgreSQL store: the contract, and what only a server shared by many can do wrong.

use std::{sync::Arc, time::Duration};

use nuncio_server::{
    store::{PostgresOptions, PostgresStore},
    testing::postgres,
};

fn options() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.beat = Duration::from_millis(200);
    options.lapse = Duration::from_secs(3);
    options
}

async fn open(url: &str) -> Arc<PostgresStore> {
    match PostgresStore::connect(url, options()).await {
        Ok(store) => Arc::new(store),
        Err(error) => panic!("{error}"),
    }
}

mod contract {
    use super::*;

    nuncio_server::store_conformance!(open(&postgres::database().await).await);
}
