//! The servers that are measured, each a process of its own.

use std::{
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::Child,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use nuncio_hub::{
    Hub, NewApiKey,
    config::{Config, Data, Durability, Limits, Push, Storage},
};

use crate::{bare, bare_tonic, mailbox, place::Place, process, request::AGENT};

/// Finished tasks that the hub keeps by default.
pub(crate) const KEEP: usize = 100_000;

/// Path of the agent on every server but the bare ones.
const AGENT_PATH: &str = "/agents/echo";

/// Core of the measured server; all other processes run on another one.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const GENERATOR_CORE: usize = 1;

/// A measured server.
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
    /// Address on which it listens.
    pub(crate) address: String,
    /// Path of the agent.
    pub(crate) path: &'static str,
    /// True if it keeps nothing.
    pub(crate) is_bare: bool,
    /// Key of callers, if they need one.
    pub(crate) key: Option<String>,
}

impl Server {
    /// Starts a server on the first core; the generator goes to the second.
    pub(crate) fn start(subject: Subject) -> Result<Self> {
        Self::start_in(Place::new(subject)?, subject, &[])
    }

    /// The same with webhooks.
    pub(crate) fn start_with_push(subject: Subject) -> Result<Self> {
        let place = Place::new(subject)?;
        let key = place.key_file();
        Self::start_in(place, subject, &["--push", &key])
    }

    /// The same for holders of a key.
    pub(crate) fn start_with_key(subject: Subject) -> Result<Self> {
        Self::start_in(Place::new(subject)?, subject, &["--key"])
    }

    /// The same with a mailbox.
    pub(crate) fn start_with_mailbox(subject: Subject) -> Result<Self> {
        Self::start_in(Place::new(subject)?, subject, &["--mailbox"])
    }

    /// A hub on all cores that takes at most so many bytes of memory. The generator is on all cores, too.
    pub(crate) fn start_limited(subject: Subject, memory: usize) -> Result<Self> {
        process::unpin(std::process::id());
        let (place, memory) = (Place::new(subject)?, memory.to_string());
        let data = place.data.clone();
        let args = ["serve", subject.name(), &data, "--memory-limit", &memory];
        let child = process::start_anywhere(std::env::current_exe()?.as_os_str(), &args)?;
        Self::announced(child, place)
    }

    fn start_in(place: Place, subject: Subject, how: &[&str]) -> Result<Self> {
        let data = place.data.clone();
        let args = [&["serve", subject.name(), &data], how].concat();
        let mut server = Self::run(place, SERVER_CORE, &args)?;
        if subject.is_bare() {
            (server.is_bare, server.path) = (true, "/");
        }
        Ok(server)
    }

    /// The echo agent behind an intermediary: on the core of the load generator, so that the intermediary has a core to
    /// itself.
    pub(crate) fn start_behind() -> Result<Self> {
        let place = Place::new(Subject::Nuncio)?;
        let data = place.data.clone();
        Self::run(place, GENERATOR_CORE, &["serve", Subject::Nuncio.name(), &data])
    }

    /// This program with these arguments, which prints its address and perhaps a key.
    pub(crate) fn run(place: Place, core: usize, args: &[&str]) -> Result<Self> {
        let child = process::start(core, std::env::current_exe()?.as_os_str(), args)?;
        process::pin(std::process::id(), GENERATOR_CORE);
        Self::announced(child, place)
    }

    /// A process of this program, once it has printed its address and perhaps a key.
    fn announced(mut child: Child, place: Place) -> Result<Self> {
        let out = child.stdout.take().context("no stdout")?;
        let mut told = String::new();
        BufReader::new(out).read_line(&mut told)?;
        let mut words = told.split_whitespace().map(str::to_owned);
        let address = words.next().context("the server did not start")?;
        Ok(Self { child, place, address, path: AGENT_PATH, is_bare: false, key: words.next() })
    }

    /// A process that listens here.
    pub(crate) fn of(child: Child, place: Place, address: String) -> Self {
        process::pin(std::process::id(), GENERATOR_CORE);
        Self { child, place, address, path: AGENT_PATH, is_bare: false, key: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of the server, and of its database.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        Ok(process::cpu_ns(self.child.id())? + self.place.cpu_ns()?)
    }

    /// Number of transactions so far; 0 without a store.
    pub(crate) async fn commits(&self) -> Result<u64> {
        self.place.commits().await
    }

    /// Number of bytes on disk.
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
pub(crate) async fn serve(
    subject: Subject,
    data: &str,
    push: Option<PathBuf>,
    key: bool,
    memory_limit_bytes: Option<usize>,
    with_mailbox: bool,
) -> Result<()> {
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
            let enabled = push.is_some();
            let agents = if with_mailbox { vec![mailbox::agent()?] } else { Vec::new() };
            let hub = Hub::bind(Config {
                data: Storage { key_file: push, ..Storage::of(data) },
                demo: true,
                agents,
                // Version 0.3 of gRPC cannot say which agent is meant.
                default_agent: Some(AGENT.to_owned()),
                drain_grace: Duration::ZERO,
                limits: Limits { memory_limit_bytes, ..Limits::default() },
                push: Push { enabled, allow_private: true, ..Push::default() },
                ..Config::new(([127, 0, 0, 1], 0).into())
            })
            .await?;
            tell(&hub, key).await?;
            Box::pin(hub.run(std::future::pending())).await
        }
    }
}

pub(crate) fn parse(data: &str) -> Result<Data> {
    data.parse().map_err(anyhow::Error::msg)
}

/// Prints the address of a hub, and a key of it if callers need one.
pub(crate) async fn tell(hub: &Hub, with_key: bool) -> Result<()> {
    let address = hub.address();
    if !with_key {
        return announce(&address.to_string());
    }
    let (_, key) = hub.keyring().create(NewApiKey::named("bench")).await?;
    announce(&format!("{address} {}", key.reveal()))
}

pub(crate) fn announce(address: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    Ok(())
}
