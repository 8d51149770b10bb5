//! Thousands of tasks while half of the receivers hang: the other half gets everything, and nothing piles up in
//! memory. `NUNCIO_CROWD` makes it a smaller or larger one.

use std::{path::Path, time::Instant};

use futures_util::{StreamExt as _, stream};
use nuncio_protocol::Version;
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::Hub,
    receiver::{React, Receiver},
};

use super::{agent, begin, say_and_tell};
use crate::{address, path, stop};

/// The number of callers that send at the same time.
const CONCURRENT_CALLERS: usize = 64;

/// The most connections to one receiver.
const CAP: usize = 32;

/// The notifications of each task: submitted, working, an artifact, completed.
const EVENTS_PER_TASK: usize = 4;

fn tasks(usually: usize) -> usize {
    std::env::var("NUNCIO_CROWD").map_or(usually, |tasks| tasks.parse().expect("NUNCIO_CROWD is a number"))
}

/// The peak memory of a hub, in MiB.
fn most_memory(hub: &Hub) -> u64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(hub.process.id().to_string()).join("status"));
    let status = status.unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    most.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

async fn half_gets_everything(data: &str, tasks: usize) {
    let hub = Hub::start(&["--data", data, "--allow-private-push", "--log-level", "warn"]).await;
    let [good, hangs] = [Receiver::start().await, Receiver::start().await];
    hangs.set_others(React::Hang);
    let echo = agent(address(&hub), "echo", Version::V1_0);
    let (before, begun) = (most_memory(&hub), Instant::now());
    let sends = (0..tasks).map(|number| {
        let receiver = if number % 2 == 0 { &good } else { &hangs };
        let req = say_and_tell("hello", receiver.url(&format!("/{number}")));
        let echo = &echo;
        async move { begin(&**echo, Version::V1_0, &req).await }
    });
    let sent = stream::iter(sends).buffer_unordered(CONCURRENT_CALLERS).count().await;
    let sending = begun.elapsed();
    let expected = sent.div_ceil(2) * EVENTS_PER_TASK;
    eventually("the good half", async || (good.count() >= expected).then_some(())).await;
    let (all, most) = (begun.elapsed(), most_memory(&hub));
    eprintln!(
        "{data}: {sent} tasks in {sending:.1?}, {expected} notifications in {all:.1?}; from {before} to {most} MiB, \
         at most {} at a time to the good half, {} to the other",
        good.peak_waiting(),
        hangs.peak_connections(),
    );
    assert_eq!(good.count(), expected, "each once");
    assert_eq!(good.crowded(), [""; 0]);
    assert!(hangs.peak_connections() <= CAP && good.peak_waiting() <= CAP);
    assert!(most - before < 150, "from {before} to {most} MiB");
    stop(hub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_receivers_hang_and_the_others_get_everything_over_sqlite() {
    let folder = Folder::new();
    half_gets_everything(path(&folder.path().join("nuncio.db")), tasks(10_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_receivers_hang_and_the_others_get_everything_in_memory() {
    half_gets_everything("memory", tasks(2_000)).await;
}

/// Large notifications wait for a permit of their own receiver, not for one that a hanging receiver holds.
#[tokio::test(flavor = "multi_thread")]
async fn large_notifications_to_a_receiver_that_hangs_take_no_room_from_others() {
    let hub = Hub::start(&["--allow-private-push", "--log-level", "warn"]).await;
    let [good, hangs] = [Receiver::start().await, Receiver::start().await];
    hangs.set_others(React::Hang);
    let echo = agent(address(&hub), "echo", Version::V1_0);
    let words = "large ".repeat(200_000);
    for number in 0..12 {
        let req = say_and_tell(&words, hangs.url(&format!("/{number}")));
        begin(&*echo, Version::V1_0, &req).await;
    }
    eventually("some hang", async || (hangs.waiting() >= 2).then_some(())).await;
    begin(&*echo, Version::V1_0, &say_and_tell(&words, good.url("/"))).await;
    good.expect("/", EVENTS_PER_TASK).await;
    assert!(hangs.count() <= 2, "it has waited until {} others were given up", hangs.count());
    stop(hub).await;
}
