//! By which others know a repeat of a keyed send again, also when nothing of the first one was stored.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use nuncio_server::{
    protocol::{ContextId, SendMessageRequest},
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, ScriptedExecutor, card},
};

use crate::settle;

/// An execution: its repeat id, its context, and whether it was resumed.
type Called = (Option<Arc<str>>, ContextId, bool);

/// A server on this data that notes what its executions are called, and hangs in each of them or ends it.
fn server(data: &MemoryStore, hangs: bool, says: bool) -> (Harness, Arc<Mutex<Vec<Called>>>) {
    let called: Arc<Mutex<Vec<Called>>> = Arc::default();
    let noted = Arc::clone(&called);
    let executor = ScriptedExecutor::new(move |cx, out| {
        noted.lock().unwrap().push((cx.repeat_id.clone(), cx.context_id.clone(), cx.resumed));
        async move {
            if says {
                out.working().await?;
            }
            if hangs {
                cx.cancellation.cancelled().await;
            }
            Ok(())
        }
    });
    let store = FailingStore::waiting(data.another());
    let harness = Harness::of(card(), store, executor, |builder| builder.idempotent(true));
    (harness.calling(|cx| cx.idempotency_key = Some("k".to_owned())), called)
}

/// The same request each time.
fn request(text: &str, immediately: bool) -> SendMessageRequest {
    let say = Say::from(text).change(|request| request.message.message_id = "m".into());
    if immediately { say.immediately().into_request() } else { say.into_request() }
}

fn only(called: &Mutex<Vec<Called>>) -> Called {
    let called = called.lock().unwrap();
    assert_eq!(called.len(), 1, "{called:?}");
    called[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_repeat_after_a_crash_before_the_first_event_has_the_same_names() {
    let data = MemoryStore::default();
    let (first, before) = server(&data, true, false);
    let sender = first.clone();
    let _lost = tokio::spawn(async move { sender.task(request("hi", false)).await });
    settle().await;
    first.store.retire();
    let (second, after) = server(&data, false, true);
    let task = second.task(request("hi", false)).await.unwrap();
    let (before, after) = (only(&before), only(&after));
    assert!(before.0.is_some());
    assert_eq!(before, after);
    assert_eq!(task.context_id, after.1);
}

#[tokio::test(start_paused = true)]
async fn other_sends_have_other_names() {
    let (server, called) = server(&MemoryStore::default(), false, true);
    server.task(request("hi", false)).await.unwrap();
    server.as_caller("ann").task(request("hi", false)).await.unwrap();
    server.as_caller("bob").task(request("hi", false)).await.unwrap();
    let tenant = server.calling(|cx| cx.tenant = Some("acme".to_owned()));
    tenant.task(request("hi", false)).await.unwrap();
    let other_key = server.calling(|cx| cx.idempotency_key = Some("l".to_owned()));
    other_key.task(request("hi", false)).await.unwrap();
    let called = called.lock().unwrap();
    let names: HashSet<_> = called.iter().map(|(name, ..)| name.clone().unwrap()).collect();
    let contexts: HashSet<_> = called.iter().map(|(_, context, _)| context.clone()).collect();
    assert_eq!((called.len(), names.len(), contexts.len()), (5, 5, 5), "{called:?}");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_with_another_body_is_another_name() {
    // Refused while the first one is known; at a server that knows nothing of it, another send.
    let names = |text: &'static str, data: &MemoryStore| {
        let (server, called) = server(data, true, false);
        async move {
            let sender = server.clone();
            let _lost = tokio::spawn(async move { sender.task(request(text, false)).await });
            settle().await;
            server.store.retire();
            only(&called)
        }
    };
    let data = MemoryStore::default();
    let (one, other) = (names("hi", &data).await, names("bye", &data).await);
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_there_is_no_name() {
    let (server, called) = server(&MemoryStore::default(), false, true);
    server.calling(|cx| cx.idempotency_key = None).task(request("hi", false)).await.unwrap();
    assert_eq!(only(&called).0, None);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_taken_up_keeps_its_names() {
    for says in [true, false] {
        let data = MemoryStore::default();
        let (first, before) = server(&data, true, says);
        let task = first.task(request("hi", true)).await.unwrap();
        settle().await;
        first.store.retire();
        let (second, after) = server(&data, false, true);
        second.until(&task.id, nuncio_server::protocol::TaskState::Completed).await.unwrap();
        let (before, after) = (only(&before), only(&after));
        assert_eq!((&after.1, after.2), (&task.context_id, true));
        assert_eq!((before.0, before.1), (after.0, after.1));
        // A repeat elsewhere finds the task.
        let (third, repeated) = server(&data.another(), false, true);
        assert_eq!(third.task(request("hi", true)).await.unwrap().id, task.id);
        assert!(repeated.lock().unwrap().is_empty());
    }
}
