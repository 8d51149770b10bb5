//! A receiver that is not there at first.

use nuncio_protocol::Version;
use nuncio_tests::{data::Folder, eventually, hub::free_address, receiver::Receiver};

use super::{Admin, agent, arrived, begin, ended, say_and_tell};
use crate::{address, stop};

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_took_arrives_when_the_receiver_is_back() {
    let folder = Folder::new();
    let (hub, admin) = Admin::hub("127.0.0.1:0", &folder.path().join("token"), &[]).await;
    let place = free_address();
    let mut tasks = Vec::new();
    for number in 0..6 {
        let version = if number % 3 == 2 { Version::V0_3 } else { Version::V1_0 };
        let name = ["echo", "slow"][number % 2];
        let path = format!("/{number}");
        let service = agent(address(&hub), name, version);
        let req = say_and_tell("3 10ms", format!("http://{place}{path}"));
        tasks.push((begin(&*service, version, &req).await, name, version, path));
    }
    // All have ended, and each was tried more than once.
    for (id, name, ..) in &tasks {
        ended(&*agent(address(&hub), name, Version::V1_0), id).await;
        let first = eventually("attempts", async || {
            let first = admin.of(id).await.swap_remove(0);
            (first["attemptCount"].as_u64()? >= 2).then_some(first)
        });
        let first = first.await;
        assert_eq!(first["state"], "pending", "{first}");
        let why = first["attempts"][0]["error"].as_str().unwrap();
        assert!(why.contains("cannot connect to"), "{first}");
    }
    let receiver = Receiver::start_at(place).await;
    for (id, name, version, path) in &tasks {
        let (_, log) = ended(&*agent(address(&hub), name, Version::V1_0), id).await;
        arrived(&receiver, path, &log, *version).await;
        let posts = receiver.posts_to(path);
        assert!(posts[0].attempt() >= 3, "those that failed count: {:?}", posts[0]);
        assert!(posts[1..].iter().all(|post| post.attempt() == 1), "the others had to wait their turn");
    }
    for (id, ..) in &tasks {
        eventually("all are delivered", async || {
            admin.of(id).await.iter().all(|delivery| delivery["state"] == "delivered").then_some(())
        })
        .await;
    }
    assert_eq!(receiver.crowded(), [""; 0]);
    stop(hub).await;
}
