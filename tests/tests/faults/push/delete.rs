//! REQ-159: nothing comes after a webhook is deleted.

use std::time::{Duration, Instant};

use nuncio_protocol::{
    A2aService, DeleteTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest,
    PushConfigId, TaskId, TaskPushNotificationConfig, Version,
};
use nuncio_server::testing::postgres;
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::{Hub, free_address},
    receiver::{React, Receiver},
};

use super::{agent, arrived, begin, ended, say_and_tell};
use crate::{address, kill, load::cx, path, stop};

/// The only webhook of a task.
async fn only(service: &dyn A2aService, task: &TaskId) -> PushConfigId {
    let req = ListTaskPushNotificationConfigsRequest { task_id: task.clone(), ..Default::default() };
    let known = service.list_task_push_notification_configs(&cx(), req).await.unwrap();
    let [config] = &known.configs[..] else { panic!("{known:?}") };
    config.id.clone().unwrap()
}

async fn delete(service: &dyn A2aService, task: &TaskId) {
    let id = only(service, task).await;
    let req = DeleteTaskPushNotificationConfigRequest { task_id: task.clone(), id, ..Default::default() };
    service.delete_task_push_notification_config(&cx(), req).await.unwrap();
}

/// A task of many events is deleted from while the receiver holds the first of them; another one, while they come
/// as fast as they can; a third, while it waits for the next attempt. A last one shows that the hub goes on.
async fn nothing_comes_after(data: &str) {
    let listen = free_address();
    let args = ["--data", data, "--allow-private-push", "--push-chunks"];
    let mut hub = Hub::start_at(&listen.to_string(), &args).await;
    let receiver = Receiver::start().await;
    let slow = agent(listen, "slow", Version::V1_0);
    let tell = async |words: &str, path: &str| {
        begin(&*slow, Version::V1_0, &say_and_tell(words, receiver.url(path))).await
    };
    receiver.set("/held", React::Hang);
    receiver.set("/failing", React::Status(500));
    let held = tell("200 1ms", "/held").await;
    let failing = tell("200 1ms", "/failing").await;
    receiver.expect("/held", 1).await;
    receiver.expect("/failing", 2).await;
    let mut gone = Vec::new();
    for number in 0..8 {
        let path = format!("/fast/{number}");
        let id = tell("200 1ms", &path).await;
        receiver.expect(&path, 3 + number * 5).await;
        delete(&*slow, &id).await;
        gone.push((receiver.posts_to(&path).len(), path, id));
    }
    for (path, id) in [("/held", held), ("/failing", failing)] {
        delete(&*slow, &id).await;
        gone.push((receiver.posts_to(path).len(), path.to_owned(), id));
    }
    eventually("the hub hangs up", async || (receiver.waiting() == 0).then_some(())).await;
    receiver.set_all(React::Status(200));
    // What is sent after all of these has come, so they would have, too; and again after a restart.
    for turn in ["/last/1", "/last/2"] {
        for (_, _, id) in &gone {
            ended(&*slow, id).await;
        }
        let last = tell("5 1ms", turn).await;
        let (_, log) = ended(&*slow, &last).await;
        receiver.expect(turn, log.len()).await;
        for (count, path, _) in &mut gone {
            let came = receiver.posts_to(path).len();
            // One was perhaps on its way at that moment: it has left us, and was not read there yet.
            let may = if turn == "/last/1" { *count + 1 } else { *count };
            assert!(came <= may, "{path}: {came} came, {count} before it was deleted");
            *count = came;
        }
        kill(&mut hub).await;
        hub = Hub::start_at(&listen.to_string(), &args).await;
    }
    stop(hub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_after_a_webhook_is_deleted_over_sqlite() {
    let folder = Folder::new();
    nothing_comes_after(path(&folder.path().join("nuncio.db"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_after_a_webhook_is_deleted_over_postgresql() {
    nothing_comes_after(&postgres::database().await).await;
}

/// Deleted at one hub while the other is about to send hundreds: it notices with the next.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_after_a_webhook_is_deleted_at_the_other_hub() {
    let data = postgres::database().await;
    let args = ["--data", &*data, "--allow-private-push", "--push-chunks"];
    let hubs = [Hub::start(&args).await, Hub::start(&args).await];
    let agents = [0, 1].map(|hub| agent(address(&hubs[hub]), "slow", Version::V1_0));
    let receiver = Receiver::start().await;
    receiver.set_others(React::Hang);
    let mut tasks = Vec::new();
    for number in 0..8 {
        let path = format!("/{number}");
        let req = say_and_tell("60 1ms", receiver.url(&path));
        tasks.push((begin(&*agents[number % 2], Version::V1_0, &req).await, path));
    }
    for (id, path) in &tasks {
        ended(&*agents[0], id).await;
        receiver.expect(path, 1).await;
    }
    // Somebody has the rest of each in hand, and waits for an answer: one hub or the other, so tell both.
    for (number, (id, _)) in tasks.iter().enumerate() {
        delete(&*agents[(number + 1) % 2], id).await;
    }
    receiver.set_others(React::Slow(Duration::from_millis(5)));
    eventually("no more is under way", async || (receiver.waiting() == 0).then_some(())).await;
    let last = begin(&*agents[0], Version::V1_0, &say_and_tell("60 1ms", receiver.url("/last"))).await;
    let (_, log) = ended(&*agents[0], &last).await;
    receiver.expect("/last", log.len()).await;
    for (_, path) in &tasks {
        assert_eq!(receiver.posts_to(path).len(), 1, "{path}");
    }
    for hub in hubs {
        stop(hub).await;
    }
}

/// A webhook that replaces another gets the pending notifications at once; the old address gets none.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_owed_to_a_webhook_goes_to_the_one_that_takes_its_place() {
    let folder = Folder::new();
    let data = folder.path().join("nuncio.db");
    let hub = Hub::start(&["--data", path(&data), "--allow-private-push"]).await;
    let echo = agent(address(&hub), "echo", Version::V1_0);
    let receiver = Receiver::start().await;
    receiver.set("/old", React::Hang);
    let id = begin(&*echo, Version::V1_0, &say_and_tell("hello", receiver.url("/old"))).await;
    let (_, log) = ended(&*echo, &id).await;
    receiver.expect("/old", 1).await;
    let config = TaskPushNotificationConfig {
        id: Some(only(&*echo, &id).await),
        task_id: Some(id),
        url: receiver.url("/new"),
        ..TaskPushNotificationConfig::default()
    };
    let replaced = echo.create_task_push_notification_config(&cx(), config).await.unwrap();
    assert_eq!(replaced.url, receiver.url("/new"));
    let begun = Instant::now();
    arrived(&receiver, "/new", &log, Version::V1_0).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "not only when the old one is given up");
    eventually("the hub hangs up", async || (receiver.waiting() == 0).then_some(())).await;
    assert_eq!(receiver.posts_to("/old").len(), 1);
    stop(hub).await;
}
