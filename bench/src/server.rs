//! The servers that are measured, each a process of its own.

use std::{
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use nuncio_hub::{
    Hub,
    config::{Config, Data, Durability, Push},
};

use crate::{bare, bare_tonic, place::Place, process, request::AGENT};

/// How many finished tasks the hub keeps when nobody says otherwise.
pub(crate) const KEEP: usize = 100_000;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Subject {
    /// A bare axum handler: typed JSON in and out, nothing stored.
    BareAxum,
    /// A bare tonic service: typed messages in and out, nothing stored.
    BareTonic,
    /// The hub's echo agent with the memory store.
    Nuncio,
    /// The same, but no task is ever forgotten.
    NuncioKeepAll,
    /// The hub's echo agent with its tasks in a file; every commit waits for the disk.
    Sqlite,
    /// The same, but commits do not wait.
    SqliteRelaxed,
    /// The hub's echo agent with its tasks in PostgreSQL, whose CPU counts.
    Postgres,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::BareAxum => "bare-axum",
            Self::BareTonic => "bare-tonic",
            Self::Nuncio => "nuncio",
            Self::NuncioKeepAll => "nuncio-keep-all",
            Self::Sqlite => "sqlite",
            Self::SqliteRelaxed => "sqlite-relaxed",
            Self::Postgres => "postgres",
        }
    }

    fn is_bare(self) -> bool {
        matches!(self, Self::BareAxum | Self::BareTonic)
    }
}

/// As the table tells it.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BareAxum => "bare axum",
            Self::BareTonic => "bare tonic",
            Self::Nuncio | Self::NuncioKeepAll => "memory",
            Self::Sqlite => "SQLite",
            Self::SqliteRelaxed => "SQLite, relaxed",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Goes when the server is gone.
    place: Place,
    /// Where it listens.
    pub(crate) address: String,
    /// Where the agent is.
    pub(crate) path: &'static str,
    /// True if it keeps nothing.
    pub(crate) is_bare: bool,
}

impl Server {
    /// Starts a server on the first core; the generator goes to the second.
    pub(crate) async fn start(subject: Subject) -> Result<Self> {
        Self::start_in(Place::new(subject)?, subject, None)
    }

    /// The same with webhooks.
    pub(crate) async fn start_with_push(subject: Subject) -> Result<Self> {
        let place = Place::new(subject)?;
        let key = place.key_file();
        Self::start_in(place, subject, Some(&key))
    }

    fn start_in(place: Place, subject: Subject, push: Option<&str>) -> Result<Self> {
        let mut args = vec!["serve", subject.name(), &place.data];
        args.extend(push.iter().flat_map(|key| ["--push", key]));
        // Pinned from the start, so that the server makes as many workers as it has cores.
        let program = std::env::current_exe()?;
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&program);
        let mut child = match command.args(&args).stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(_) => Command::new(&program).args(&args).stdout(Stdio::piped()).spawn()?,
        };
        process::pin(std::process::id(), 1);
        let out = child.stdout.take().context("no stdout")?;
        let mut address = String::new();
        BufReader::new(out).read_line(&mut address)?;
        let is_bare = subject.is_bare();
        let path = if is_bare { "/" } else { "/agents/echo" };
        Ok(Self { child, place, address: address.trim().to_owned(), path, is_bare })
    }

    /// CPU time of the server, and of its database.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        Ok(process::cpu_ns(self.child.id())? + self.place.cpu_ns()?)
    }

    /// How many transactions it has written so far; none where nothing is kept.
    pub(crate) async fn commits(&self) -> Result<u64> {
        self.place.commits().await
    }

    /// How many bytes it keeps on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.place.bytes()
    }

    pub(crate) fn rss(&self) -> Result<u64> {
        process::rss(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server process: prints its address and serves until it is killed.
pub(crate) async fn serve(subject: Subject, data: &str, push: Option<PathBuf>) -> Result<()> {
    match subject {
        Subject::BareAxum | Subject::BareTonic => {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            announce(&listener.local_addr()?.to_string())?;
            match subject {
                Subject::BareTonic => bare_tonic::serve(listener).await,
                _ => bare::serve(listener).await,
            }
        }
        _ => {
            let data = match subject {
                Subject::NuncioKeepAll => Data::Memory { keep_finished: usize::MAX },
                Subject::SqliteRelaxed => parse(data)?.with_durability(Durability::Relaxed),
                _ => parse(data)?,
            };
            let hub = Hub::bind(Config {
                data,
                demo: true,
                // Version 0.3 of gRPC cannot say which agent is meant.
                default_agent: Some(AGENT.to_owned()),
                drain_grace: Duration::ZERO,
                push: push.as_ref().map(|_| Push { allow_private: true, ..Push::default() }),
                key_file: push,
                ..Config::new(([127, 0, 0, 1], 0).into())
            })
            .await?;
            announce(&hub.address().to_string())?;
            hub.run(std::future::pending()).await
        }
    }
}

fn parse(data: &str) -> Result<Data> {
    data.parse().map_err(anyhow::Error::msg)
}

fn announce(address: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    Ok(())
}
