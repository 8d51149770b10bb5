//! Opens the store that the configuration names.

use std::sync::Arc;

use nuncio_server::store::{
    MemoryStore, OpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store,
};

use crate::config::Data;

/// Opens the store, or makes one.
pub(crate) async fn open(data: &Data) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match data {
        Data::Memory { keep_finished } => Arc::new(MemoryStore::new(*keep_finished)),
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
