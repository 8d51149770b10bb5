//! The hub is killed again and again, at random moments, while callers work with it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    hub::{Hub, free_address},
};

use crate::{
    check_store, kill,
    ledger::Ledger,
    load::{Load, Reached},
    path, stop,
    verify::verify,
};

const CALLERS: u64 = 16;

/// Longer than an owner that is gone counts as alive in a database: what it left is taken up in between.
const UNDISTURBED: Duration = Duration::from_secs(9);

pub(crate) fn kills() -> u64 {
    std::env::var("NUNCIO_KILLS").map_or(8, |kills| kills.parse().expect("NUNCIO_KILLS is a number"))
}

/// Kills the hub so many times; every so many times it is left alone for longer before.
async fn survives(data: &str, undisturbed_every: Option<u64>) {
    let seed = Chance::seed();
    eprintln!("{data}: NUNCIO_SEED={seed} NUNCIO_KILLS={}", kills());
    let begun = Instant::now();
    let mut chance = Chance::new(seed);
    let args = ["--data", data, "--log-level", "warn"];
    let listen = free_address();
    let mut hub = Hub::start_at(&listen.to_string(), &args).await;
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(listen)), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
    for number in 1..=kills() {
        let undisturbed = undisturbed_every.is_some_and(|every| number % every == 0);
        let pause = if undisturbed { UNDISTURBED } else { Duration::ZERO };
        tokio::time::sleep(pause + chance.millis(20..=700)).await;
        kill(&mut hub).await;
        load.check();
        hub = Hub::start_at(&listen.to_string(), &args).await;
    }
    load.end().await;
    let ran = begun.elapsed();
    let ends = verify(&reached, &ledger).await;
    stop(hub).await;
    check_store(data).await;
    let (tasks, repeats) = (ledger.len(), ledger.repeats.load(Ordering::Relaxed));
    let verified = begun.elapsed() - ran;
    eprintln!(
        "{data}: {tasks} tasks told of, {repeats} repeats, {ran:.1?} and {verified:.1?} to verify; {ends:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_hub_is_killed_over_sqlite() {
    let folder = Folder::new();
    survives(path(&folder.path().join("nuncio.db")), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_hub_is_killed_over_postgresql() {
    survives(&postgres::database().await, Some(8)).await;
}
