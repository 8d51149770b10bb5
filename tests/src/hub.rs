//! The real binary: as a hub, and as the command line that drives it.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command as StdCommand, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use serde_json::Value;
use tokio::process::Command;

use crate::process::{self, Output, Process};

/// Settings of the machine that must not reach the programs under test.
const SETTINGS: [&str; 22] = [
    "NUNCIO_ADMIN",
    "NUNCIO_ADMIN_LISTEN",
    "NUNCIO_ADMIN_TOKEN",
    "NUNCIO_ADMIN_TOKEN_FILE",
    "NUNCIO_AGENT_BEARER",
    "NUNCIO_ALLOW_PRIVATE_PUSH",
    "NUNCIO_CONFIG",
    "NUNCIO_DATA",
    "NUNCIO_KEY",
    "NUNCIO_KEY_FILE",
    "NUNCIO_LISTEN",
    "NUNCIO_LOG",
    "NUNCIO_METRICS",
    "NUNCIO_OAUTH_SECRET",
    "NUNCIO_PUBLIC_URL",
    "NUNCIO_PUSH_CREDENTIALS",
    "NUNCIO_PUSH_SECRET",
    "NUNCIO_PUSH_TOKEN",
    "NUNCIO_TLS_CERT",
    "NUNCIO_TLS_KEY",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in a folder of the repository")
}

/// The binary under test: the one that `NUNCIO_BIN` names, which the test command has built, or the one that cargo
/// builds now, for a test that is run by hand.
///
/// # Panics
/// When it is missing and cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("NUNCIO_BIN").map(PathBuf::from) {
        Some(binary) if binary.is_file() => binary,
        Some(binary) => panic!("NUNCIO_BIN names {}, which is not a file", binary.display()),
        None => build(),
    })
}

/// Builds the binary as the test command does, so that nothing is compiled twice.
fn build() -> PathBuf {
    let built = StdCommand::new(env!("CARGO"))
        .args(["build", "--workspace", "--bins"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(built.status.success(), "the binary nuncio could not be built");
    let lines = built.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let binaries = messages.filter(|message| message["target"]["name"] == "nuncio");
    let executable =
        binaries.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    executable.expect("cargo says where the binary is")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args);
    clean(command, args)
}

fn clean(mut command: Command, args: &[&str]) -> Command {
    for setting in SETTINGS {
        command.env_remove(setting);
    }
    // Hubs of several tests run side by side, and there is one usual port. Who wants it says --admin.
    command.env("NUNCIO_ADMIN_LISTEN", "off");
    if args.iter().any(|arg| arg.starts_with("postgres")) {
        // Hubs that share a database share a key.
        command.env("NUNCIO_KEY_FILE", std::env::temp_dir().join("nuncio-tests.key"));
    }
    command
}

/// Runs a command of the command line.
pub async fn cli(args: &[&str]) -> Output {
    process::run(command(args), "").await
}

/// Runs a command of the command line with these variables in its environment.
pub async fn cli_with_env(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = command(args);
    command.envs(variables.iter().copied());
    process::run(command, "").await
}

/// Runs a command of the command line as somebody who may not write to what is read-only. Root may, so that
/// it gives up that power first.
///
/// # Panics
/// When it cannot be given up.
pub async fn cli_with_permissions(args: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]).arg(binary()).args(args);
    process::run(clean(command, args), "").await
}

/// Runs a command of the command line with this on its stdin.
pub async fn cli_with_stdin(args: &[&str], stdin: &str) -> Output {
    process::run(command(args), stdin).await
}

/// Starts a command of the command line that goes on beside the test.
#[must_use]
pub fn start(args: &[&str]) -> Process {
    Process::start(command(args))
}

/// A hub on a port of its own, with the demo agents unless it was told of others.
#[derive(Debug)]
pub struct Hub {
    /// The process.
    pub process: Process,
    /// Its output up to the line that says it is ready.
    pub announced: Value,
    /// Its address, such as `http://127.0.0.1:4711`, or `https://…` if it has a certificate.
    pub base: String,
}

impl Hub {
    /// Starts it with further arguments and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    pub async fn start(args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", args).await
    }

    /// The same at this address, for one that comes again.
    ///
    /// # Panics
    /// When it does not listen there.
    pub async fn start_at(listen: &str, args: &[&str]) -> Self {
        Self::from(listen, args, start).await
    }

    /// The same, started by another program, which is given first.
    ///
    /// # Panics
    /// When it does not listen.
    pub async fn start_by(program: &[&str], listen: &str, args: &[&str]) -> Self {
        let by = |args: &[&str]| {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(binary()).args(args);
            Process::start(clean(command, args))
        };
        Self::from(listen, args, by).await
    }

    async fn from(listen: &str, args: &[&str], start: impl FnOnce(&[&str]) -> Process) -> Self {
        let mut all = vec!["serve", "--demo", "--listen", listen, "-o", "json"];
        all.extend(args);
        Self::ready(start(&all), args).await
    }

    /// A hub of the agents that the arguments name, and not of the demo ones.
    ///
    /// # Panics
    /// When it does not listen.
    pub async fn of_agents(listen: &str, args: &[&str]) -> Self {
        let all = [&["serve", "--listen", listen, "-o", "json"], args].concat();
        Self::ready(start(&all), args).await
    }

    async fn ready(mut process: Process, args: &[&str]) -> Self {
        let Some(line) = process.line().await else {
            panic!("the hub did not start: {}", process.stderr());
        };
        let announced: Value = serde_json::from_str(&line).expect("it announces itself in JSON");
        let scheme = if args.contains(&"--tls-cert") { "https" } else { "http" };
        let base = format!("{scheme}://{}", announced["listen"].as_str().expect("it says where it listens"));
        Self { process, announced, base }
    }

    /// The URL of one of its agents.
    #[must_use]
    pub fn agent(&self, name: &str) -> String {
        format!("{}/agents/{name}", self.base)
    }
}

/// An address where nobody listens, for a hub that is to come again. Its port is none that the system gives to
/// connections: one of these could take it while the hub is away.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_address() -> SocketAddr {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).expect("a small number");
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let port =
        (first..32_000).find(|port| !taken.contains(port) && free(port)).expect("there is a free port");
    taken.insert(port);
    SocketAddr::from(([127, 0, 0, 1], port))
}
