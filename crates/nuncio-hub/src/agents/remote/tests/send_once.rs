//! A message goes out once, also if the hub is stopped before the agent has said anything and the caller repeats it
//! under its key.

use nuncio_protocol::{Caller, Result, SendMessageRequest};

use super::{super::durable::send_once, *};

fn keyed(key: &str) -> CallContext {
    CallContext { idempotency_key: Some(key.to_owned()), ..CallContext::default() }
}

async fn send(hub: &Hub, key: &str, req: &SendMessageRequest) -> Result<Task> {
    match hub.harness.runtime.send_message(&keyed(key), req.clone()).await? {
        SendMessageResponse::Task(task) => Ok(task),
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

#[tokio::test]
async fn a_message_that_was_on_its_way_is_known_again_by_the_agent_or_not_repeated() {
    for (knows_repeats, state) in [(true, TaskState::Completed), (false, TaskState::Failed)] {
        let (folder, peer) = (Folder::new(), Peer::start(Manners { knows_repeats, ..Manners::good() }).await);
        let req = Say::from("mute").into_request();
        let store = folder.open().await;
        let first = hub_with(settings(&peer.url), Arc::clone(&store)).await;
        let on_its_way = async {
            eventually("the message", || peer.sends() == 1).await;
            first.harness.runtime.drain(Duration::ZERO).await;
        };
        let (lost, ()) = tokio::join!(send(&first, "k", &req), on_its_way);
        lost.unwrap_err();
        drop(first);
        store.close().await;
        drop(store);

        let store = folder.open().await;
        let next = hub_with(settings(&peer.url), Arc::clone(&store)).await;
        assert_eq!(records(&*store, send_once::KIND).await, usize::from(!knows_repeats));
        let repeated = async {
            eventually("the repeat", || peer.sends() == 1 + usize::from(knows_repeats)).await;
            peer.state.gate.notify_one();
        };
        let (task, ()) = tokio::join!(send(&next, "k", &req), repeated);
        let task = task.unwrap();
        assert_eq!(task.status.state, state, "{}", summary(&task));
        assert_eq!(summary(&task).contains("was not sent again"), !knows_repeats, "{}", summary(&task));
        // (Were there two tasks, the gate would have let the first one go on.)
        let keys: std::collections::HashSet<_> =
            peer.seen().into_iter().map(|seen| seen.cx.idempotency_key).collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        let again = send(&next, "k", &req).await.unwrap();
        assert_eq!(again.id, task.id, "from now on it is known here");
        drop(next);
        store.close().await;
    }
}

#[tokio::test]
async fn what_is_answered_is_no_longer_on_its_way() {
    let (folder, peer) = (Folder::new(), Peer::start(Manners::good()).await);
    let store = folder.open().await;
    let hub = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    for (key, word) in [("1", "two"), ("2", "reply"), ("3", "ask")] {
        let req = Say::from(word).into_request();
        hub.harness.runtime.send_message(&keyed(key), req).await.unwrap();
    }
    until_none(&*store, send_once::KIND).await;
    // A repeat may be sent if the message was refused.
    let req = Say::from("two").change(|req| req.message.parts[0].media_type = Some("a/b".to_owned()));
    let req = req.into_request();
    let refused = hub.harness.runtime.send_message(&keyed("4"), req.clone()).await.unwrap_err();
    let again = hub.harness.runtime.send_message(&keyed("4"), req).await.unwrap_err();
    assert_eq!(refused.kind(), again.kind());
    drop(hub);
    store.close().await;
}

#[tokio::test]
async fn callers_do_not_share_names() {
    let peer = Peer::start(Manners { knows_repeats: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let req = Say::from("two").change(|req| req.message.context_id = Some("c".into())).into_request();
    for who in ["ann", "bob"] {
        let caller = Caller::authenticated(who.to_owned());
        let cx = CallContext { caller, ..keyed("k") };
        hub.harness.runtime.send_message(&cx, req.clone()).await.unwrap();
    }
    assert_eq!(peer.sends(), 2);
    let keys: std::collections::HashSet<_> =
        peer.seen().into_iter().map(|seen| seen.cx.idempotency_key).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
}
