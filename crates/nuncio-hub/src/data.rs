//! Opens the store that the configuration names, and lets go of it in good order.

use std::{sync::Arc, time::Duration};

use nuncio_server::store::{MemoryStore, OpenError, SqliteOptions, SqliteStore, Store};

use crate::config::{Data, DatabaseUrl};

/// How often, and how many times, it is looked whether others have let go of a store.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS: u32 = 100;

/// A store in use.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// The same, if it is a file.
    file: Option<Arc<SqliteStore>>,
}

impl Opened {
    /// Opens the store, or makes one.
    pub(crate) async fn open(data: &Data) -> Result<Self, OpenError> {
        let store: Arc<dyn Store> = match data {
            Data::Memory { keep_finished } => Arc::new(MemoryStore::new(*keep_finished)),
            Data::Sqlite { path, durability } => {
                let mut options = SqliteOptions::default();
                options.durability = *durability;
                let store = Arc::new(SqliteStore::open(path, options).await?);
                return Ok(Self { store: Arc::clone(&store) as _, file: Some(store) });
            }
            Data::Postgres { url, .. } => return Err(not_yet(url)),
        };
        Ok(Self { store, file: None })
    }

    /// Waits until the whole store is in its one file. Whoever else has it is about to let go: the loops of
    /// runtimes that are gone. What they do not let go in time is found beside the file, and nothing is lost.
    pub(crate) async fn close(self) {
        drop(self.store);
        let Some(mut store) = self.file else { return };
        for _ in 0..LOOKS {
            match Arc::try_unwrap(store) {
                Ok(alone) => return alone.close().await,
                Err(shared) => store = shared,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

pub(crate) fn not_yet(url: &DatabaseUrl) -> OpenError {
    let _ = url.reveal();
    OpenError::Invalid(format!("{url}: databases are not supported yet"))
}
