//! The real binary: as a hub, and as the command line that drives it.

use std::{
    path::{Path, PathBuf},
    process::{Command as StdCommand, Stdio},
    sync::OnceLock,
};

use serde_json::Value;
use tokio::process::Command;

use crate::process::{self, Output, Process};

/// Settings of the machine that must not reach the programs under test.
const SETTINGS: [&str; 8] = [
    "NUNCIO_DATA",
    "NUNCIO_KEY",
    "NUNCIO_LISTEN",
    "NUNCIO_LOG",
    "NUNCIO_OAUTH_SECRET",
    "NUNCIO_PUBLIC_URL",
    "NUNCIO_TLS_CERT",
    "NUNCIO_TLS_KEY",
];

/// The root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in a folder of the repository")
}

/// The binary, built once. It belongs to another package, so that cargo does not say where it is.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = StdCommand::new(env!("CARGO"))
            .args(["build", "--package", "nuncio", "--bin", "nuncio"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(root())
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo can be started");
        assert!(built.status.success(), "the binary nuncio could not be built");
        let lines = built.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let executable =
            messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
        executable.expect("cargo says where the binary is")
    })
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args);
    clean(command)
}

fn clean(mut command: Command) -> Command {
    for setting in SETTINGS {
        command.env_remove(setting);
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
    process::run(clean(command), "").await
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

/// A hub with the demo agents, on a port of its own.
#[derive(Debug)]
pub struct Hub {
    /// The process.
    pub process: Process,
    /// What it said when it was ready.
    pub announced: Value,
    /// Where it listens, such as `http://127.0.0.1:4711`, or `https://…` if it was given a certificate.
    pub base: String,
}

impl Hub {
    /// Starts it with further arguments and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    pub async fn start(args: &[&str]) -> Self {
        let mut all = vec!["serve", "--demo", "--listen", "127.0.0.1:0", "-o", "json"];
        all.extend(args);
        let mut process = start(&all);
        let Some(line) = process.line().await else {
            panic!("the hub did not start: {}", process.stderr());
        };
        let announced: Value = serde_json::from_str(&line).expect("it announces itself in JSON");
        let scheme = if args.contains(&"--tls-cert") { "https" } else { "http" };
        let base = format!("{scheme}://{}", announced["listen"].as_str().expect("it says where it listens"));
        Self { process, announced, base }
    }

    /// Where one of its agents is.
    #[must_use]
    pub fn agent(&self, name: &str) -> String {
        format!("{}/agents/{name}", self.base)
    }
}
