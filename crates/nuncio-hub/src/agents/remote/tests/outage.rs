//! Messages to an agent that is down wait for it, if the operator wants that, and are sent once.

use super::*;
use crate::agents::WAITS_FOR;
use crate::config::WhenDown;

fn waits(url: &Url) -> Upstream {
    Upstream { when_down: WhenDown::Wait, ..settings(url) }
}

/// An address where nobody listens.
async fn free() -> (std::net::SocketAddr, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, Url::parse(&format!("http://{address}")).unwrap())
}

async fn waiting(hub: &Hub, word: &str) -> Task {
    let task = hub.harness.begin(word).await.unwrap();
    eventually_task(hub, &task.id, is_waiting).await
}

fn is_waiting(task: &Task) -> bool {
    let says =
        task.status.message.as_ref().is_some_and(|said| said.text().starts_with("waits for peer until"));
    let until = task.metadata.get(WAITS_FOR).is_some_and(|value| value.as_str().contains("\"until\""));
    task.status.state == TaskState::Submitted && says && until
}

async fn eventually_task(hub: &Hub, id: &TaskId, is_so: impl Fn(&Task) -> bool) -> Task {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let task = hub.harness.get(id).await.unwrap();
        if is_so(&task) {
            return task;
        }
        assert!(Instant::now() < patience, "never came: {}", summary(&task));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn back(hub: &Hub) {
    hub.agent.upstream().unwrap().refresh(&hub.agent).await.unwrap();
}

#[tokio::test]
async fn a_message_waits_for_an_agent_that_is_down_and_is_sent_once_when_it_is_back() {
    let (address, url) = free().await;
    let hub = hub(waits(&url)).await;
    let task = waiting(&hub, "two").await;
    let peer = Peer::on(TcpListener::bind(address).await.unwrap(), Manners::good());
    back(&hub).await;
    let done = eventually_task(&hub, &task.id, |task| task.status.state.is_terminal()).await;
    assert_eq!((done.status.state, peer.sends()), (TaskState::Completed, 1), "{}", summary(&done));
    assert!(done.metadata.get(WAITS_FOR).is_some_and(|value| value.as_str() == "null"), "it waits no more");
}

#[tokio::test]
async fn a_message_that_waits_is_refused_without_the_setting_and_ends_when_its_time_is_over_or_it_is_canceled()
 {
    let (_, url) = free().await;
    let fails = hub(settings(&url)).await;
    assert_eq!(fails.harness.task("two").await.unwrap_err().kind(), ErrorKind::Unavailable);
    let over = hub(Upstream { wait: Duration::from_millis(1), ..waits(&url) }).await;
    let failed = over.harness.task("two").await.unwrap();
    assert_eq!(failed.status.state, TaskState::Failed);
    let words = summary(&failed);
    assert!(words.contains("peer was not reached until") && !words.contains("127.0.0.1"), "{words}");
    let hub = hub(waits(&url)).await;
    let task = waiting(&hub, "two").await;
    let canceled = hub.harness.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
}

/// Also for an agent that does not recognise repeats: nothing was sent before the restart.
#[tokio::test]
async fn a_message_that_waits_survives_a_restart_of_the_hub() {
    for knows_repeats in [false, true] {
        let (folder, (address, url)) = (Folder::new(), free().await);
        let store = folder.open().await;
        let first = hub_with(waits(&url), Arc::clone(&store)).await;
        let id = waiting(&first, "two").await.id;
        first.harness.runtime.drain(Duration::ZERO).await;
        drop(first);
        store.close().await;
        drop(store);

        let store = folder.open().await;
        let next = hub_with(waits(&url), Arc::clone(&store)).await;
        let still = eventually_task(&next, &id, is_waiting).await;
        assert_eq!(still.status.state, TaskState::Submitted);
        let manners = Manners { knows_repeats, ..Manners::good() };
        let peer = Peer::on(TcpListener::bind(address).await.unwrap(), manners);
        back(&next).await;
        let done = eventually_task(&next, &id, |task| task.status.state.is_terminal()).await;
        assert_eq!((done.status.state, peer.sends()), (TaskState::Completed, 1), "{}", summary(&done));
        drop(next);
        store.close().await;
    }
}

/// A message that may have been sent when the hub stopped is not taken for one that waits.
#[tokio::test]
async fn a_message_that_waited_and_was_on_its_way_when_the_hub_stopped_is_not_sent_again() {
    let (folder, (address, url)) = (Folder::new(), free().await);
    let store = folder.open().await;
    let first = hub_with(waits(&url), Arc::clone(&store)).await;
    let id = waiting(&first, "mute").await.id;
    let peer = Peer::on(TcpListener::bind(address).await.unwrap(), Manners::good());
    back(&first).await;
    eventually("the message", || peer.sends() == 1).await;
    first.harness.runtime.drain(Duration::ZERO).await;
    drop(first);
    store.close().await;
    drop(store);

    let store = folder.open().await;
    let next = hub_with(waits(&url), Arc::clone(&store)).await;
    let failed = eventually_task(&next, &id, |task| task.status.state.is_terminal()).await;
    assert_eq!((failed.status.state, peer.sends()), (TaskState::Failed, 1), "{}", summary(&failed));
    drop(next);
    store.close().await;
}
