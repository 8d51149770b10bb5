//! Conversations of callers, as the agent knows them.

use nuncio_protocol::{Caller, ContextId};

use super::*;

/// The context id that all callers use.
const CONTEXT: &str = "main";

fn say(text: &str) -> Say {
    Say::from(text).change(|req| req.message.context_id = Some(CONTEXT.into()))
}

/// The messages to the agent, in order.
fn names(peer: &Peer) -> Vec<ContextId> {
    sent(peer).into_iter().map(|message| message.context_id.unwrap()).collect()
}

/// The tenant that a call says names nobody.
fn callers() -> [(CallContext, &'static str); 5] {
    let of = |caller| CallContext { caller, ..CallContext::default() };
    let routed = CallContext { tenant: Some("north".to_owned()), ..of(Caller::authenticated("ann")) };
    [
        (of(Caller::anonymous()), "nobody"),
        (of(Caller::authenticated("ann")), "ann"),
        (of(Caller::authenticated("bob")), "bob"),
        (of(Caller::authenticated("ann").of_tenant("north")), "ann of north"),
        (routed, "ann"),
    ]
}

#[tokio::test]
async fn the_agent_knows_a_conversation_by_whose_it_is_and_its_caller_by_its_own_name() {
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let mut known: std::collections::HashMap<&str, ContextId> = Default::default();
        for (cx, who) in callers().into_iter().chain(callers()) {
            let harness = hub.harness.calling(|own| *own = cx);
            let asked = harness.task(say("ask")).await.unwrap();
            let name = names(&peer).pop().unwrap();
            assert_ne!(name.as_str(), CONTEXT, "{who}");
            assert_eq!(*known.entry(who).or_insert_with(|| name.clone()), name, "{who}: always the same");
            // A follow-up goes on with what the agent has answered.
            let done = harness.task(Say::to(&asked, "two")).await.unwrap();
            assert_eq!(names(&peer).pop().unwrap(), name, "{who}");
            let list = ListTasksRequest { context_id: Some(CONTEXT.into()), ..ListTasksRequest::default() };
            let listed = harness.runtime.list_tasks(&harness.cx, list).await.unwrap().tasks.remove(0);
            for task in [&asked, &done, &harness.get(&done.id).await.unwrap(), &listed] {
                let seen = serde_json::to_string(task).unwrap();
                assert_eq!(task.context_id.as_str(), CONTEXT, "{who}");
                assert!(!seen.contains(name.as_str()), "{who} does not see the agent's name: {seen}");
            }
            let mut told = harness.stream(say("two")).await.unwrap();
            while let Some(item) = futures_util::StreamExt::next(&mut told).await {
                let item = serde_json::to_string(&**item.unwrap().event()).unwrap();
                assert!(!item.contains(name.as_str()), "{who}: {item}");
            }
        }
        let all: std::collections::HashSet<_> = known.values().collect();
        assert_eq!(all.len(), known.len(), "{known:?}");
    }
}

/// The message was on its way when the hub stopped, and is sent again.
#[tokio::test]
async fn a_message_that_is_taken_up_again_is_in_the_conversation_of_its_caller() {
    for (cx, who) in callers() {
        let (folder, peer) = (Folder::new(), Peer::start(Manners::good()).await);
        let settings = Upstream { idempotent: true, ..settings(&peer.url) };
        let store = folder.open().await;
        let first = hub_with(settings.clone(), Arc::clone(&store)).await;
        first.harness.calling(|own| *own = cx).begin(say("mute")).await.unwrap();
        eventually("the message", || peer.sends() == 1).await;
        first.harness.runtime.drain(Duration::ZERO).await;
        drop(first);
        store.close().await;
        drop(store);
        let store = folder.open().await;
        let next = hub_with(settings, Arc::clone(&store)).await;
        eventually("the message once more", || peer.sends() == 2).await;
        let names = names(&peer);
        assert_eq!(names[0], names[1], "{who}");
        drop(next);
        store.close().await;
    }
}

/// An agent that gives one task to two callers: neither learns of the other.
#[tokio::test]
async fn a_task_of_the_agents_is_told_to_one_caller_only() {
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(Manners { repeats_tasks: true, ..manners }).await;
        let hub = hub(settings(&peer.url)).await;
        let (ann, bob) = (hub.harness.as_caller("ann"), hub.harness.as_caller("bob"));
        let first = ann.task("ask").await.unwrap();
        assert_eq!(first.status.state, TaskState::InputRequired);
        let refused = bob.task("ask").await.unwrap();
        let told = summary(&refused);
        assert!(told.starts_with("failed") && told.contains("not the caller's"), "{told}");
        assert!(!told.contains("which?"), "nothing of ann's: {told}");
        let canceled = peer.count(&[Op::CancelTask]);
        assert_eq!(canceled, 0, "ann's task goes on");
        let again = ann.task(Say::to(&first, "two")).await.unwrap();
        assert_eq!(again.status.state, TaskState::Completed, "{}", summary(&again));
    }
}

/// The agent counts its tasks from 1 again, and the hub has been restarted since the first of them ended.
#[tokio::test]
async fn a_task_of_the_agents_is_told_to_one_caller_only_also_after_a_restart() {
    let folder = Folder::new();
    let peer = Peer::start(Manners { repeats_tasks: true, ..Manners::good() }).await;
    let store = folder.open().await;
    let first = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    let asked = first.harness.as_caller("ann").task("ask").await.unwrap();
    let ended = first.harness.as_caller("ann").task(Say::to(&asked, "two")).await.unwrap();
    assert_eq!(ended.status.state, TaskState::Completed, "{}", summary(&ended));
    first.harness.runtime.drain(Duration::ZERO).await;
    drop(first);
    store.close().await;
    drop(store);
    let store = folder.open().await;
    let next = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    let told = summary(&next.harness.as_caller("bob").task("ask").await.unwrap());
    assert!(told.starts_with("failed") && told.contains("not the caller's"), "{told}");
    assert!(!told.contains("which?"), "nothing of ann's: {told}");
    drop(next);
    store.close().await;
}
