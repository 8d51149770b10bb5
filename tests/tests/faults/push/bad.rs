//! Every kind of bad receiver, beside a good one: what is told of it, and that all arrives when it is mended.

use std::time::Duration;

use nuncio_protocol::{TaskId, Timestamp, Version};
use nuncio_tests::{
    data::Folder,
    eventually,
    receiver::{React, Receiver},
};
use serde_json::Value;

use super::{Admin, agent, arrived, begin, ended, say_and_tell};
use crate::{address, path, stop};

/// The outcome of the first delivery.
enum Becomes {
    /// Taken, at once or after a while.
    Delivered,
    /// Tried again: the status, or what is said instead.
    Again(Option<u64>, &'static str),
    /// Tried again, not within the hour.
    MuchLater,
    /// Given up, and so are the others, each when it is tried.
    Dead(u64),
    /// Given up with all others, untried.
    Stopped,
}

fn cases(receiver: &Receiver) -> Vec<(&'static str, React, Becomes)> {
    use Becomes::{Again, Dead, Delivered, MuchLater, Stopped};
    vec![
        ("/good", React::Status(200), Delivered),
        ("/good/no-content", React::Status(204), Delivered),
        ("/good/slow", React::Slow(Duration::from_secs(1)), Delivered),
        ("/good/endless", React::EndlessBody, Delivered),
        ("/bad/500", React::Status(500), Again(Some(500), "ok")),
        ("/bad/404", React::Status(404), Again(Some(404), "ok")),
        ("/bad/429", React::RetryAfter(429, 3_700), MuchLater),
        ("/bad/410", React::Status(410), Stopped),
        ("/bad/400", React::Status(400), Dead(400)),
        ("/bad/redirect", React::Redirect(receiver.url("/elsewhere")), Again(Some(307), "ok")),
        ("/bad/break", React::Break, Again(None, "no answer from")),
        ("/bad/garbage", React::Garbage, Again(None, "no answer from")),
        ("/bad/headers", React::EndlessHeaders, Again(None, "no answer from")),
        ("/bad/hang", React::Hang, Again(None, "the deadline has passed")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_receiver_is_told_of_and_gets_everything_when_it_is_mended() {
    let folder = Folder::new();
    let data = folder.path().join("nuncio.db");
    let args = ["--data", path(&data)];
    let (hub, admin) = Admin::hub("127.0.0.1:0", &folder.path().join("token"), &args).await;
    let receiver = Receiver::start().await;
    let echo = agent(address(&hub), "echo", Version::V1_0);
    let cases = cases(&receiver);
    let mut tasks = Vec::new();
    // All that there will be is owed before anybody reacts.
    receiver.set_all(React::Hang);
    for (path, ..) in &cases {
        tasks.push(begin(&*echo, Version::V1_0, &say_and_tell("hello", receiver.url(path))).await);
    }
    for ((path, react, _), task) in cases.iter().zip(&tasks) {
        ended(&*echo, task).await;
        receiver.set(path, react.clone());
    }
    let mut stuck: Vec<String> = Vec::new();
    for ((path, _, becomes), task) in cases.iter().zip(&tasks) {
        stuck.extend(look(&admin, path, task, becomes).await);
    }
    // The good ones had everything long before anything was mended.
    for ((path, _, becomes), task) in cases.iter().zip(&tasks) {
        if matches!(becomes, Becomes::Delivered) {
            let (_, log) = ended(&*echo, task).await;
            assert_eq!(arrived(&receiver, path, &log, Version::V1_0).await, 0, "{path}: nothing twice");
        }
    }
    receiver.set_all(React::Status(200));
    let redriven = admin.delivery(&["redrive", "--since", "1h"]).await;
    assert_eq!(
        redriven[0]["redriven"], 4,
        "of one receiver: the other one has answered 410, and is to be left alone"
    );
    for id in &stuck {
        admin.delivery(&["replay", id]).await;
    }
    for ((path, ..), task) in cases.iter().zip(&tasks) {
        let (_, log) = ended(&*echo, task).await;
        arrived(&receiver, path, &log, Version::V1_0).await;
        eventually(path, async || {
            admin.of(task).await.iter().all(|delivery| delivery["state"] == "delivered").then_some(())
        })
        .await;
    }
    // What was delivered is delivered once more when somebody asks for it, under its name.
    let again = admin.of(&tasks[0]).await.swap_remove(1);
    let before = receiver.posts_to("/good").len();
    admin.delivery(&["replay", again["id"].as_str().unwrap()]).await;
    let posts = receiver.expect("/good", before + 1).await;
    assert_eq!(posts.last().unwrap().id(), again["id"]);
    let elsewhere = receiver.posts_to("/elsewhere");
    assert!(elsewhere.is_empty(), "a redirect was followed: {elsewhere:?}");
    assert_eq!(receiver.crowded(), [""; 0]);
    stop(hub).await;
}

/// Waits until it has become so; gives the deliveries that somebody has to replay.
async fn look(admin: &Admin, path: &str, task: &TaskId, becomes: &Becomes) -> Vec<String> {
    let all =
        eventually(path, async || Some(admin.of(task).await).filter(|all| has_become(all, becomes))).await;
    let [first, rest @ ..] = &all[..] else { panic!("{path}: {all:?}") };
    let shown = admin.delivery(&["show", first["id"].as_str().unwrap()]).await.swap_remove(0);
    assert!(!shown.to_string().contains(path), "paths of webhooks may be secrets: {shown}");
    let attempt = &shown["attempts"][0];
    match becomes {
        Becomes::Delivered => {
            assert_eq!(
                (&shown["attemptCount"], attempt["code"].as_u64().unwrap() / 100),
                (&1.into(), 2),
                "{path}"
            );
        }
        Becomes::Again(code, says) => {
            assert_eq!(attempt["code"].as_u64(), *code, "{path}: {shown}");
            assert!(attempt["error"].as_str().unwrap().contains(says), "{path}: {shown}");
            assert!(rest.iter().all(|next| next["attemptCount"] == 0), "{path}: the others wait: {rest:?}");
        }
        Becomes::MuchLater => {
            assert_eq!((&shown["attemptCount"], attempt["code"].as_u64()), (&1.into(), Some(429)), "{path}");
            let time = |value: &Value| Timestamp::parse(value.as_str().unwrap()).unwrap().as_millis();
            let pause = time(&shown["nextAttempt"]) - time(&attempt["time"]);
            assert!(pause >= 3_700_000, "{path}: {shown}");
            return ids(&all[..1]);
        }
        Becomes::Dead(code) => {
            for delivery in &all {
                assert_eq!(delivery["attempts"][0]["code"].as_u64(), Some(*code), "{path}: {delivery}");
                assert_eq!(delivery["attemptCount"], 1, "{path}: {delivery}");
            }
        }
        Becomes::Stopped => {
            assert_eq!(attempt["code"], 410, "{path}: {shown}");
            assert!(rest.iter().all(|next| next["attemptCount"] == 0), "{path}: {rest:?}");
            return ids(&all);
        }
    }
    Vec::new()
}

fn ids(deliveries: &[Value]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery["id"].as_str().unwrap().to_owned()).collect()
}

fn has_become(all: &[Value], becomes: &Becomes) -> bool {
    let are = |state: &str| all.len() == 4 && all.iter().all(|delivery| delivery["state"] == state);
    match becomes {
        Becomes::Delivered => are("delivered"),
        Becomes::Again(..) => are("pending") && all[0]["attemptCount"].as_u64() >= Some(1),
        Becomes::MuchLater => {
            are("pending") && all[0]["nextAttempt"].is_string() && all[0]["attemptCount"] == 1
        }
        Becomes::Dead(_) | Becomes::Stopped => are("dead"),
    }
}
