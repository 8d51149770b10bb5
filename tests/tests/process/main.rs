//! The real binary: a hub on a port of its own, driven by the command line.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod access;
mod administration;
mod agent;
mod audit;
mod audited;
mod calls;
mod cards;
mod commands;
mod configuration;
mod connect;
mod dashboard_many;
mod database;
mod empty;
mod grpc;
mod health;
mod hints;
mod key;
mod listen;
mod logged;
mod models;
mod observed;
mod packaging;
mod parties;
mod push;
mod reloaded;
mod rooms;
mod secure;
mod serving;
mod shutdown;
mod store;
mod stories;
mod tenants;
mod tools;
mod top;
mod webhook_agents;
mod webhooks;
mod wrong_input;

use std::{
    fs,
    path::{Path, PathBuf},
};

use nuncio_tests::process::Output;
use serde_json::Value;

/// The only document on stdout.
fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A document a line.
fn documents(output: &Output) -> Vec<Value> {
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected text, got {value}"))
}

/// A directory of its own for a test.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}
