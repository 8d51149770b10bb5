//! Storage of a measured server: a folder on a real disk, and a PostgreSQL of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use crate::{process, server::Subject};

/// Starts a private PostgreSQL; see there.
const POSTGRES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/postgres");

/// Removed with all that is in it when it is dropped.
pub(crate) struct Place {
    /// As `--data` takes it.
    pub(crate) data: String,
    folder: PathBuf,
    postgres: Option<Child>,
    /// Kept open: PostgreSQL has a process for each connection, and its CPU time ends with it.
    client: OnceCell<Client>,
}

impl Place {
    /// An empty folder for this subject, beside the program: a folder in memory would measure no disk.
    pub(crate) fn new(subject: Subject) -> Result<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let program = std::env::current_exe()?;
        let beside = program.parent().context("the program is in no folder")?;
        let name = format!("bench-data-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let folder = beside.join(name);
        fs::create_dir_all(&folder)?;
        let mut place = Self { data: "memory".to_owned(), folder, postgres: None, client: OnceCell::new() };
        match subject {
            Subject::Sqlite | Subject::SqliteRelaxed => {
                place.data = place.folder.join("tasks.db").display().to_string();
            }
            Subject::Postgres => place.start_postgres()?,
            Subject::BareAxum | Subject::BareTonic | Subject::Nuncio | Subject::NuncioKeepAll => {}
        }
        Ok(place)
    }

    fn start_postgres(&mut self) -> Result<()> {
        let mut command = Command::new(POSTGRES);
        // As people run it: every commit waits for the disk.
        let mut child =
            command.arg("--data").arg(self.cluster()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("no stdout")?;
        BufReader::new(out).read_line(&mut self.data)?;
        self.data = self.data.trim_start_matches("memory").trim().to_owned();
        self.postgres = Some(child);
        ensure!(!self.data.is_empty(), "PostgreSQL did not start: see above");
        Ok(())
    }

    fn cluster(&self) -> PathBuf {
        self.folder.join("cluster")
    }

    /// For files of its own.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of the hub's key file.
    pub(crate) fn key_file(&self) -> String {
        self.folder.join("key").display().to_string()
    }

    /// Number of transactions so far; 0 without a store.
    pub(crate) async fn commits(&self) -> Result<u64> {
        if self.postgres.is_some() {
            let client = self.client.get_or_try_init(|| connect(&self.data)).await?;
            // Each transaction that writes gets a number.
            let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
            return Ok(client.query_one(next, &[]).await?.get::<_, String>(0).parse()?);
        }
        match fs::File::open(format!("{}-shm", self.data)) {
            // The index of SQLite's log counts them, at this place.
            Ok(index) => {
                let mut count = [0; 4];
                index.read_exact_at(&mut count, 8)?;
                Ok(u32::from_ne_bytes(count).into())
            }
            Err(_) => Ok(0),
        }
    }

    /// CPU time of the database's own processes, in nanoseconds; none where there are none.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        if self.postgres.is_none() {
            return Ok(0);
        }
        let pid = fs::read_to_string(self.cluster().join("postmaster.pid"))?;
        let postmaster: u32 = pid.lines().next().context("an empty postmaster.pid")?.trim().parse()?;
        // One of them may be gone meanwhile.
        Ok(process::family(postmaster)?.into_iter().flat_map(process::cpu_ns).sum())
    }

    /// Number of bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_in(&self.folder)
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_in(&entry.path()),
        Ok(meta) => meta.len(),
        // It may be gone meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut postgres) = self.postgres.take() {
            // It stops when its standard input closes.
            drop(postgres.stdin.take());
            let _ = postgres.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
