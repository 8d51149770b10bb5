//! PostgreSQL goes away while notifications are on their way: they go on afterwards.

use nuncio_protocol::Version;
use nuncio_server::testing::postgres;
use nuncio_tests::{
    eventually,
    forward::{Forwarder, Line},
    hub::Hub,
    receiver::{React, Receiver},
};

use super::{agent, arrived, begin, ended, say_and_tell};
use crate::{
    address,
    outage::{by, port_of},
    stop,
};

async fn goes_on_after(line: Line) {
    let data = postgres::database().await;
    let forwarder = Forwarder::start(port_of(&data)).await;
    let data = by(&data, forwarder.address);
    let hub = Hub::start(&["--data", &data, "--allow-private-push"]).await;
    let receiver = Receiver::start().await;
    let slow = agent(address(&hub), "slow", Version::V1_0);
    receiver.set_others(React::Hang);
    let mut tasks = Vec::new();
    for number in 0..10 {
        let path = format!("/{number}");
        let req = say_and_tell("10 5ms", receiver.url(&path));
        tasks.push((begin(&*slow, Version::V1_0, &req).await, path));
    }
    let mut logs = Vec::new();
    for (id, path) in tasks {
        logs.push((ended(&*slow, &id).await.1, path));
    }
    eventually("notifications are held", async || (receiver.waiting() >= logs.len()).then_some(())).await;
    // The answers come when nobody can write them down, and the next cannot be read.
    forwarder.set(line);
    receiver.set_others(React::Status(200));
    eventually("answers", async || (receiver.waiting() == 0).then_some(())).await;
    hub.process.says("cannot store delivery outcomes").await;
    forwarder.set(Line::Open);
    for (log, path) in &logs {
        arrived(&receiver, path, log, Version::V1_0).await;
    }
    assert_eq!(receiver.crowded(), [""; 0]);
    stop(hub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_go_on_after_the_database_was_cut_off() {
    goes_on_after(Line::Cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_go_on_after_the_database_had_gone_silent() {
    goes_on_after(Line::Frozen).await;
}
