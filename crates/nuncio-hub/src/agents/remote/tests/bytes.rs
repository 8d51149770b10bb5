//! A task that an agent lets grow without end is stopped here, and canceled there.

use super::*;

const LIMIT: usize = 50_000;

/// It grew by 1.4 gigabytes, and nothing would have stopped it.
#[tokio::test]
async fn an_agent_that_appends_for_ever_is_canceled_and_its_task_fails() {
    let plain = settings(&Url::parse("http://set.later").unwrap());
    for (name, manners, wanted) in [
        ("by a stream", Manners::good(), plain.clone()),
        ("by looking", Manners::default(), plain.clone()),
        ("told to poll", Manners::good(), Upstream { follow: Follow::Poll, ..plain.clone() }),
    ] {
        let peer = Peer::start(manners).await;
        let factory = factory(Arc::new(MemoryStore::default())).await;
        let limits = config::Limits { max_task_bytes: LIMIT, ..config::Limits::default() };
        factory.limits.store(Arc::new(limits));
        let hub = Hub::made(factory, Upstream { url: peer.url.clone(), ..wanted }, None).await;
        let task = hub.harness.task("forever").await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed, "{name}");
        let why = task.status.message.as_ref().unwrap().text().into_owned();
        assert!(why.contains("max_task_bytes"), "{name}: {why}");
        let kept: usize = task.artifacts.iter().map(|artifact| artifact.text().len()).sum();
        assert!(kept <= LIMIT, "{name}: {kept} bytes");
        eventually("the cancel", || peer.count(&[Op::CancelTask]) == 1).await;
    }
}
