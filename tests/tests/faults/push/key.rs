//! Copies of a store, and keys that do not fit.

use nuncio_protocol::Version;
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::{cli, free_address},
    receiver::Receiver,
};

use super::{Admin, agent, arrived, begin, ended, say_and_tell};
use crate::{address, path, stop};

/// Notifications sealed by another key are neither sent nor lost: they are sent when that key is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_key_and_a_hub_with_another_one_says_so_and_loses_nothing() {
    let folder = Folder::new();
    let (token, data, copy) =
        (folder.path().join("token"), folder.path().join("nuncio.db"), folder.path().join("copy.db"));
    let place = free_address();
    let args = ["--data", path(&data)];
    let (hub, admin) = Admin::hub("127.0.0.1:0", &token, &args).await;
    let echo = agent(address(&hub), "echo", Version::V1_0);
    let id = begin(&*echo, Version::V1_0, &say_and_tell("hello", format!("http://{place}/hook"))).await;
    let (_, log) = ended(&*echo, &id).await;
    eventually("an attempt", async || (admin.of(&id).await[0]["attemptCount"].as_u64()? > 0).then_some(()))
        .await;
    let backup = cli(&["store", "backup", "--data", path(&data), "--to", path(&copy)]).await;
    assert_eq!(backup.code, Some(0), "{backup:?}");
    stop(hub).await;

    let other = folder.path().join("other.key");
    let (hub, admin) =
        Admin::hub("127.0.0.1:0", &token, &[&args[..], &["--key-file", path(&other)]].concat()).await;
    hub.process.says("it was sealed with another key").await;
    let receiver = Receiver::start_at(place).await;
    let kept = admin.of(&id).await;
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|delivery| delivery["state"] == "pending"), "{kept:?}");
    stop(hub).await;
    assert_eq!(receiver.count(), 0, "nobody was told by the wrong hub");

    // The copy, with the key that was copied.
    let (hub, _) = Admin::hub("127.0.0.1:0", &token, &["--data", path(&copy)]).await;
    arrived(&receiver, "/hook", &log, Version::V1_0).await;
    let first = receiver.count();
    stop(hub).await;
    // The original, with its own.
    let (hub, admin) = Admin::hub("127.0.0.1:0", &token, &args).await;
    receiver.expect("/hook", first + 4).await;
    eventually("all are delivered", async || {
        admin.of(&id).await.iter().all(|delivery| delivery["state"] == "delivered").then_some(())
    })
    .await;
    arrived(&receiver, "/hook", &log, Version::V1_0).await;
    assert_eq!(receiver.count(), 8, "each hub has sent each once");
    stop(hub).await;
}
