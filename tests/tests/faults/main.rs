//! Faults with real processes: a hub that is killed, a database that goes away, a disk that is full. Whatever
//! was acknowledged is there afterwards, once, in order.
//!
//! | file | what it holds |
//! |---|---|
//! | `kills` | `kill -9` at random moments under load, on both databases |
//! | `outage` | PostgreSQL cut off, frozen, and restarted in mid-load |
//! | `full` | a disk without room |
//! | `clock` | a clock that jumps |
//! | `damage` | a file that somebody has written over |
//! | `behind` | kills, while the agents are behind the hub and go on, whether they know repeats or not |
//! | `reload`, `moody` | a configuration that is rewritten under load |
//! | `rooms` | kills in the middle of a conversation of two callers |
//! | `workers` | kills of a hub and of the workers of its mailboxes; two hubs that are one mailbox |
//! | `pair` | two hubs on one database, one of which dies |
//! | `once` | programs that count their runs: under one key there is one, whatever is killed, at however many hubs |
//! | `push` | all of that, and bad receivers, while notifications are on their way |
//! | `load`, `ledger`, `verify` | callers that insist, what they were told, and what must be true of it |
//!
//! `NUNCIO_KILLS=200` makes the run long, `NUNCIO_SEED` repeats one, `NUNCIO_CROWD` says how many tasks a crowd has.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, its helpers too; a random run says what it was"
)]

mod behind;
mod clock;
mod damage;
mod full;
mod kills;
mod ledger;
mod load;
mod moody;
mod once;
mod outage;
mod pair;
mod push;
mod reload;
mod rooms;
mod verify;
mod workers;

use std::{net::SocketAddr, path::Path};

use nuncio_tests::hub::{Hub, cli};
use serde_json::Value;

/// The address of a hub.
fn address(hub: &Hub) -> SocketAddr {
    hub.announced["listen"].as_str().unwrap().parse().unwrap()
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// Ends a hub as a power cut would.
async fn kill(hub: &mut Hub) {
    hub.process.signal("KILL").await;
    hub.process.end().await;
    unharmed(hub);
}

/// Ends a hub in good order.
async fn stop(mut hub: Hub) {
    hub.process.signal("TERM").await;
    assert_eq!(hub.process.end().await.code(), Some(0), "{}", hub.process.stderr());
    unharmed(&hub);
}

/// Nothing has happened in the hub that may not happen.
fn unharmed(hub: &Hub) {
    let log = hub.process.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

/// `nuncio store check` finds nothing, whether a hub runs or not.
async fn check_store(data: &str) {
    let output = cli(&["store", "check", "--data", data, "-o", "json"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(found["problems"], Value::Array(Vec::new()), "{output:?}");
}
