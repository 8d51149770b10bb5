//! Receivers that an operator has paused.

use nuncio_server::{
    push::PushOptions,
    store::MemoryStore,
    testing::{
        Harness, Say, ScriptedExecutor, Step,
        courier::{Reaction, ScriptedCourier},
    },
};

use super::{secs, settle};

const URL: &str = "http://receiver.example/hook";
const OTHER: &str = "http://other.example/hook";
const TARGET: &str = "receiver.example:80";

#[tokio::test(start_paused = true)]
async fn a_paused_receiver_gets_nothing_until_it_is_resumed_not_even_after_a_restart() {
    let memory = MemoryStore::default();
    let start = |courier: &ScriptedCourier| {
        Harness::pushing(
            ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x")]),
            memory.another(),
            courier,
            |engine| engine,
            |builder, push| builder.push(push, PushOptions::default()),
        )
    };
    let courier = ScriptedCourier::new(|_| Reaction::Status(200));
    let (harness, push) = start(&courier);
    assert!(push.pause(TARGET).await.unwrap());
    assert!(!push.pause(TARGET).await.unwrap(), "it is paused already");
    for url in [URL, OTHER] {
        harness.task(Say::from("hi").push(url)).await.unwrap();
    }
    let posts = courier.until(4).await;
    settle().await;
    assert_eq!(courier.posts().len(), 4);
    assert!(posts.iter().all(|post| post.url == OTHER), "others are not held up");
    push.drain(secs(1)).await;
    harness.store.retire();
    drop((harness, push));

    let courier = ScriptedCourier::new(|_| Reaction::Status(200));
    let (_harness, push) = start(&courier);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(courier.posts().len(), 0);
    assert_eq!(push.paused().keys().map(|target| &**target).collect::<Vec<_>>(), [TARGET]);
    assert!(push.resume(TARGET).await.unwrap());
    assert!(!push.resume(TARGET).await.unwrap(), "it is not paused any more");
    assert!(courier.until(4).await.iter().all(|post| post.url == URL));
}
