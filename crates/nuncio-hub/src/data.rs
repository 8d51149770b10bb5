//! Opens the configured store.

use std::sync::Arc;

use nuncio_server::{
    MemoryAccount,
    store::{MemoryStore, OpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store},
};

use crate::{config::Data, memory};

/// Opens or creates the store; the memory store gets a share of the hub's memory.
pub(crate) async fn open(data: &Data, memory: &MemoryAccount) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match data {
        Data::Memory { keep_finished } => {
            Arc::new(MemoryStore::new(*keep_finished).max_bytes(memory::store_bytes(memory)))
        }
        Data::Sqlite { path, durability } => {
            let mut options = SqliteOptions::default();
            options.durability = *durability;
            Arc::new(SqliteStore::open(path, options).await?)
        }
        Data::Postgres { url, durability } => {
            let mut options = PostgresOptions::default();
            options.durability = *durability;
            Arc::new(PostgresStore::connect(url.reveal(), options).await?)
        }
    })
}
