//! A private PostgreSQL for tests: one server per process, one empty database per test.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The script that starts the server, and documents its options.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");

/// A server that stops when this is dropped, or when this process ends for any reason.
#[derive(Debug)]
pub struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts a server with options of `scripts/postgres`.
    ///
    /// # Panics
    /// If it does not start: a test without its database fails.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        let mut command = Command::new(SCRIPT);
        // In a process group of its own: an interrupt at the terminal ends the test, which then shuts the
        // server down in good order.
        command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{SCRIPT}: {error}"));
        let mut url = String::new();
        let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut url));
        assert!(matches!(said, Some(Ok(_))) && url.ends_with('\n'), "no PostgreSQL for this test: see above");
        url.truncate(url.len() - 1);
        Self { child, url }
    }

    /// The URL of the server's database `postgres`, for its superuser.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of another database of the server.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').unwrap_or((&self.url, ""));
        format!("{server}/{database}")
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Panics
    /// If it cannot be created: a test without its database fails.
    pub async fn database(&self) -> String {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        run(&self.url, &format!("CREATE DATABASE {name}")).await;
        self.url_of(&name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server stops when its standard input closes. Waiting makes sure that its port is free.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The server that the tests of this process share. It does not wait for the disk.
pub fn server() -> &'static Server {
    // Never dropped: the server stops when the process ends, for any reason.
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&["--no-sync"]))
}

/// The URL of an empty database for one test.
pub async fn database() -> String {
    server().database().await
}

/// Runs statements in a database, bypassing the stores, as an administrator or an accident might.
///
/// # Panics
/// If they fail.
pub async fn run(url: &str, statements: &str) -> Vec<Vec<String>> {
    let (client, connection) = match tokio_postgres::connect(url, tokio_postgres::NoTls).await {
        Ok(connected) => connected,
        Err(error) => panic!("the test's own connection: {error}"),
    };
    let connection = tokio::spawn(connection);
    let said = client.simple_query(statements).await;
    drop(client);
    let _ = connection.await;
    let said = said.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    let rows = said.into_iter().filter_map(|said| match said {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect())
        .collect()
}
