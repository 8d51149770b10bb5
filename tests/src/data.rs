//! The stores of the tests.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use nuncio_server::{
    store::{MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store},
    testing::postgres,
};
use tokio::sync::OnceCell;

/// A kind of store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// In memory.
    Memory,
    /// In a file of its own.
    Sqlite,
    /// In a database that the tests of a process share.
    Postgres,
}

/// Resources that are removed at the end of the test.
#[derive(Debug)]
pub struct Kept {
    _folder: Option<Folder>,
}

impl Data {
    /// An empty store of this kind.
    ///
    /// # Panics
    /// When there is none: a test without its store fails.
    pub async fn open(self) -> (Arc<dyn Store>, Kept) {
        match self {
            Self::Memory => (Arc::new(MemoryStore::default()), Kept { _folder: None }),
            Self::Sqlite => {
                let folder = Folder::new();
                let store =
                    SqliteStore::open(&folder.path().join("tasks.db"), SqliteOptions::default()).await;
                (Arc::new(store.expect("an empty store opens")), Kept { _folder: Some(folder) })
            }
            Self::Postgres => {
                static SHARED: OnceCell<String> = OnceCell::const_new();
                let url = SHARED.get_or_init(postgres::database).await;
                let store = PostgresStore::connect(url, PostgresOptions::default()).await;
                (Arc::new(store.expect("the database is there")), Kept { _folder: None })
            }
        }
    }
}

/// A folder that is removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("nuncio-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// The URL or path of the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
