//! Opens the store that the configuration names, and lets go of it in good order.

use std::{sync::Arc, time::Duration};

use nuncio_server::store::{
    MemoryStore, OpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store,
};

use crate::config::Data;

/// How often, and how many times, it is looked whether others have let go of a store.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS: u32 = 100;

/// A store in use.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    kind: Kind,
}

/// The same as what it is.
enum Kind {
    Memory,
    File(Arc<SqliteStore>),
    Database(Arc<PostgresStore>),
}

impl Opened {
    /// Opens the store, or makes one.
    pub(crate) async fn open(data: &Data) -> Result<Self, OpenError> {
        Ok(match data {
            Data::Memory { keep_finished } => {
                Self { store: Arc::new(MemoryStore::new(*keep_finished)), kind: Kind::Memory }
            }
            Data::Sqlite { path, durability } => {
                let mut options = SqliteOptions::default();
                options.durability = *durability;
                let store = Arc::new(SqliteStore::open(path, options).await?);
                Self { store: Arc::clone(&store) as _, kind: Kind::File(store) }
            }
            Data::Postgres { url, durability } => {
                let mut options = PostgresOptions::default();
                options.durability = *durability;
                let store = Arc::new(PostgresStore::connect(url.reveal(), options).await?);
                Self { store: Arc::clone(&store) as _, kind: Kind::Database(store) }
            }
        })
    }

    /// Leaves a whole store in the one file, or says to other hubs that we are gone.
    pub(crate) async fn close(self) {
        drop(self.store);
        match self.kind {
            Kind::Memory => {}
            Kind::File(store) => close_file(store).await,
            Kind::Database(store) => store.retire().await,
        }
    }
}

/// Whoever else has the store is about to let go: the loops of runtimes that are gone. What they do not let go
/// in time stays beside the file, and nothing is lost.
async fn close_file(mut store: Arc<SqliteStore>) {
    for _ in 0..LOOKS {
        match Arc::try_unwrap(store) {
            Ok(alone) => return alone.close().await,
            Err(shared) => store = shared,
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
