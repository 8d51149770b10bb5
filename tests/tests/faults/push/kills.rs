//! The hub is killed between an attempt and its record, again and again, under load.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use nuncio_protocol::{TaskId, Version};
use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    eventually,
    hub::{Hub, free_address},
    receiver::{React, Receiver},
};
use tokio::task::JoinSet;

use super::{agent, arrived, begin, ended, say_and_tell};
use crate::{check_store, kill, path, stop};

const CALLERS: u64 = 6;

/// A task that somebody was told of.
type Told = (TaskId, &'static str, Version, String);

fn kills() -> u64 {
    std::env::var("NUNCIO_KILLS").map_or(6, |kills| kills.parse().expect("NUNCIO_KILLS is a number"))
}

async fn everything_arrives(data: &str) {
    let seed = Chance::seed();
    eprintln!("push, {data}: NUNCIO_SEED={seed} NUNCIO_KILLS={}", kills());
    let mut chance = Chance::new(seed);
    let (listen, receiver) = (free_address(), Arc::new(Receiver::start().await));
    let args = ["--data", data, "--allow-private-push", "--log-level", "warn"];
    let mut hub = Hub::start_at(&listen.to_string(), &args).await;
    let (told, over): (Arc<Mutex<Vec<Told>>>, Arc<AtomicBool>) = Default::default();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (told, over, receiver) = (Arc::clone(&told), Arc::clone(&over), Arc::clone(&receiver));
        let mut chance = Chance::new(seed.wrapping_add(caller + 1));
        callers.spawn(async move {
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let version = if caller % 3 == 2 { Version::V0_3 } else { Version::V1_0 };
            while !over.load(Ordering::Relaxed) {
                let name = if chance.once_in(2) { "slow" } else { "echo" };
                let path = format!("/{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                if chance.once_in(8) {
                    receiver.set(&path, React::Slow(chance.millis(1..=300)));
                }
                let words = format!("{} {}ms", chance.of(1..=10), chance.of(0..=20));
                let req = say_and_tell(&words, receiver.url(&path));
                let id = begin(&*agent(listen, name, version), version, &req).await;
                told.lock().unwrap().push((id, name, version, path));
                tokio::time::sleep(chance.millis(0..=60)).await;
            }
        });
    }
    for number in 0..kills() {
        if number % 2 == 0 {
            tokio::time::sleep(chance.millis(50..=700)).await;
        } else {
            // Exactly while the receiver has something that it has not answered.
            receiver.set_others(React::Hang);
            eventually("a notification is held", async || (receiver.waiting() > 0).then_some(())).await;
        }
        if number % 6 == 4 {
            // In good order, for once.
            stop(hub).await;
        } else {
            kill(&mut hub).await;
        }
        receiver.set_others(React::Status(200));
        hub = Hub::start_at(&listen.to_string(), &args).await;
    }
    tokio::time::sleep(Duration::from_millis(chance.of(0..=500))).await;
    over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let told = std::mem::take(&mut *told.lock().unwrap());
    let receiver = &receiver;
    let looks = told.iter().map(|(id, name, version, path)| async move {
        let (_, log) = ended(&*agent(listen, name, Version::V1_0), id).await;
        arrived(receiver, path, &log, *version).await
    });
    let repeated: Vec<usize> = stream::iter(looks).buffer_unordered(16).collect().await;
    assert_eq!(receiver.crowded(), [""; 0], "one at a time");
    stop(hub).await;
    check_store(data).await;
    let repeated: usize = repeated.into_iter().sum();
    eprintln!("push, {data}: {} tasks, {} notifications, {repeated} repeated", told.len(), receiver.count());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives_though_the_hub_is_killed_over_sqlite() {
    let folder = Folder::new();
    everything_arrives(path(&folder.path().join("nuncio.db"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives_though_the_hub_is_killed_over_postgresql() {
    everything_arrives(&postgres::database().await).await;
}
