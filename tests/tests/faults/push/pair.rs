//! Two hubs on one database: what one has in hand when it dies, the other delivers.

use nuncio_protocol::Version;
use nuncio_server::testing::postgres;
use nuncio_tests::{
    eventually,
    hub::Hub,
    receiver::{React, Receiver},
};

use super::{agent, arrived, begin, ended, say_and_tell};
use crate::{address, kill, stop};

const TASKS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_hub_had_in_hand_is_delivered_by_the_other_and_never_two_at_a_time() {
    let data = postgres::database().await;
    let args = ["--data", &*data, "--allow-private-push"];
    let (mut first, second) = (Hub::start(&args).await, Hub::start(&args).await);
    let receivers = [Receiver::start().await, Receiver::start().await];
    receivers[0].set_others(React::Hang);
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (name, hub) = (["echo", "slow"][number % 2], [&first, &second][number / 2 % 2]);
        let (receiver, path) = (&receivers[number % 2], format!("/{number}"));
        let req = say_and_tell("10 5ms", receiver.url(&path));
        let id = begin(&*agent(address(hub), name, Version::V1_0), Version::V1_0, &req).await;
        tasks.push((id, name, receiver, path));
    }
    // One receiver holds what it gets, from both hubs.
    eventually("notifications are held", async || (receivers[0].waiting() >= TASKS / 2).then_some(())).await;
    kill(&mut first).await;
    receivers[0].set_others(React::Status(200));
    for (id, name, receiver, path) in &tasks {
        let (_, log) = ended(&*agent(address(&second), name, Version::V1_0), id).await;
        arrived(receiver, path, &log, Version::V1_0).await;
    }
    for receiver in &receivers {
        assert_eq!(receiver.crowded(), [""; 0]);
    }
    stop(second).await;
}
