//! The official SDKs as peers: programs of `tests/peers`, which see.

use std::{net::TcpListener, path::PathBuf};

use nuncio_protocol::Binding;
use serde_json::Value;
use tokio::process::Command;

use crate::{
    hub::root,
    process::{self, Process},
};

/// The number of ports that are tried when another process has taken the first.
const ATTEMPTS: usize = 5;

/// The folder in which the SDKs are installed.
fn folder() -> PathBuf {
    let folder = std::env::var_os("NUNCIO_PEERS").map_or_else(|| root().join(".cache/peers"), PathBuf::from);
    assert!(
        folder.join("stamp").exists(),
        "the official SDKs are not installed in {}: run tests/peers/setup",
        folder.display()
    );
    folder
}

fn command(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(root().join("tests/peers/run"));
    command.arg(name).args(args).env("NUNCIO_PEERS", folder());
    command
}

/// The peers' name for a binding.
fn name_of(binding: Binding) -> &'static str {
    match binding {
        Binding::JsonRpc => "jsonrpc",
        Binding::HttpJson => "rest",
        Binding::Grpc => "grpc",
    }
}

/// The lines that a client printed for its checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names of the checks that passed, in their order.
    pub passed: Vec<String>,
    /// Checks that do not apply, each as `NAME: why`.
    pub skipped: Vec<String>,
}

/// Lets an official client check an agent over this binding.
///
/// # Panics
/// When a check fails, with all that the client said.
pub async fn check(client: &str, url: &str, binding: Binding, args: &[&str]) -> Report {
    let binding = name_of(binding);
    let mut all = vec![url, "--binding", binding];
    all.extend(args);
    let output = process::run(command(client, &all), "").await;
    assert!(
        output.code == Some(0),
        "{client} {args:?} against {url} over {binding}\n{}{}",
        output.stdout,
        output.stderr
    );
    let mut report = Report::default();
    for line in output.stdout.lines() {
        if let Some(name) = line.strip_prefix("ok ") {
            report.passed.push(name.to_owned());
        } else if let Some(skipped) = line.strip_prefix("skip ") {
            report.skipped.push(skipped.to_owned());
        }
    }
    report
}

/// Lets an official client talk to an agent; returns the lines of JSON that it printed, one for each message.
///
/// # Panics
/// When it fails, with all that it said.
pub async fn chat(url: &str, said: &[&str]) -> Vec<Value> {
    let output = process::run(command("py1_chat", &[&[url], said].concat()), "").await;
    assert!(output.code == Some(0), "{}{}", output.stdout, output.stderr);
    output.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// An official server that runs.
#[derive(Debug)]
pub struct Peer {
    /// The address of the peer.
    pub url: String,
    /// Ends with this.
    _process: Process,
}

impl Peer {
    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    pub async fn start(server: &str, args: &[&str]) -> Self {
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            let port = free_port().to_string();
            let mut all = vec![port.as_str()];
            all.extend(args);
            let mut process = Process::start(command(server, &all));
            let ready = format!("listening on {port}");
            while let Some(line) = process.line().await {
                if line == ready {
                    return Self { url: format!("http://127.0.0.1:{port}"), _process: process };
                }
            }
            process.end().await;
            said = process.stderr();
        }
        panic!("{server} {args:?} does not start: {said}");
    }
}

/// A port that was free a moment ago. The peers cannot choose one themselves: their card says where they
/// are before they listen.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("a listener has an address").port()
}
