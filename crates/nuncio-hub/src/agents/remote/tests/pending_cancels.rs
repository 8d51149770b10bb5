//! A task that is canceled at the hub is canceled at the agent, now or later.

use super::{super::durable::pending_cancels::KIND, *};

async fn until_told(peer: &Peer, store: &dyn Store, cancels: usize) {
    eventually("the cancel", || peer.count(&[Op::CancelTask]) == cancels).await;
    until_none(store, KIND).await;
    assert_eq!(peer.count(&[Op::CancelTask]), cancels, "told once");
}

#[tokio::test]
async fn a_cancel_that_the_agent_could_not_hear_is_told_when_it_is_back() {
    for next_hub in [false, true] {
        for manners in [Manners::good(), Manners::default()] {
            let (folder, peer) = (Folder::new(), Peer::start(manners).await);
            let mut store = folder.open().await;
            let mut hub = hub_with(settings(&peer.url), Arc::clone(&store)).await;
            let working = hub.harness.begin("gate").await.unwrap();
            hub.harness.until(&working.id, TaskState::Working).await.unwrap();
            let asks = hub.harness.task("ask").await.unwrap();
            let before = peer.go_down();
            for task in [&working, &asks] {
                let canceled = hub.harness.cancel(&task.id).await.unwrap();
                assert_eq!(canceled.status.state, TaskState::Canceled, "as its caller wanted");
            }
            assert_eq!((records(&*store, KIND).await, peer.count(&[Op::CancelTask])), (2, 0));
            if next_hub {
                hub.harness.runtime.drain(Duration::ZERO).await;
                drop(hub);
                store.close().await;
                drop(store);
                peer.come_back(before);
                store = folder.open().await;
                hub = hub_with(settings(&peer.url), Arc::clone(&store)).await;
            } else {
                peer.come_back(before);
            }
            until_told(&peer, &*store, 2).await;
            drop(hub);
            store.close().await;
        }
    }
}

#[tokio::test]
async fn an_agent_that_names_its_task_after_the_cancel_is_still_told() {
    for manners in [Manners::good(), Manners { blocks: true, ..Manners::default() }] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let task = hub.harness.begin("mute").await.unwrap();
        eventually("the message", || peer.sends() == 1).await;
        assert_eq!(hub.harness.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(peer.count(&[Op::CancelTask]), 0, "it has no name");
        peer.state.gate.notify_one();
        eventually("the cancel", || peer.count(&[Op::CancelTask]) == 1).await;
    }
}

#[tokio::test]
async fn a_refused_cancel_is_not_repeated() {
    let peer = Peer::start(Manners { lacks: vec![Op::CancelTask], ..Manners::good() }).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let hub = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    let asks = hub.harness.task("ask").await.unwrap();
    hub.harness.cancel(&asks.id).await.unwrap();
    assert_eq!((records(&*store, KIND).await, peer.count(&[Op::CancelTask])), (0, 1));
}
