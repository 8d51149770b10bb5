//! Memos of tasks: with the next event, for the next message, and over a crash.

use std::sync::{Arc, Mutex};

use nuncio_server::{
    Execution, MAX_MEMO_BYTES,
    protocol::{Error, ErrorKind, Part, SendMessageResponse, TaskId, TaskState},
    store::{AdminTaskQuery, MemoryStore, OperatorQueries as _},
    testing::{FailingStore, Harness, Say, ScriptedExecutor, card, summary},
};

use crate::{refused, settle};

/// The memos that the executions have found.
type Seen = Arc<Mutex<Vec<Option<String>>>>;

fn found(cx: &Execution) -> Option<String> {
    cx.memo.as_ref().map(|memo| String::from_utf8_lossy(memo).into_owned())
}

/// Remembers each message, asks for the next, and writes down what it had remembered before.
fn remembers(seen: &Seen) -> ScriptedExecutor {
    let seen = Arc::clone(seen);
    ScriptedExecutor::new(move |cx, out| {
        seen.lock().unwrap().push(found(&cx));
        async move {
            out.remember(cx.text().into_owned())?;
            out.input_required("more?").await.map(drop)
        }
    })
}

async fn kept(harness: &Harness, id: &TaskId) -> Option<String> {
    let (_, stored) = harness.store.find_task(id).await.unwrap()?;
    stored.memo.map(|memo| String::from_utf8(memo.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_sees_what_was_remembered_last() {
    let seen = Seen::default();
    let harness = Harness::new(remembers(&seen));
    let task = harness.task("one").await.unwrap();
    assert_eq!(kept(&harness, &task.id).await.as_deref(), Some("one"));
    harness.task(Say::to(&task, "two")).await.unwrap();
    harness.task(Say::to(&task, "three")).await.unwrap();
    harness.task("other").await.unwrap();
    let told = [None, Some("one"), Some("two"), None].map(|memo| memo.map(str::to_owned));
    assert_eq!(*seen.lock().unwrap(), told, "each task has its own");
    assert_eq!(harness.runtime.live_tasks(), 0, "out of the store, not out of memory");
    assert_eq!(kept(&harness, &task.id).await.as_deref(), Some("three"));
}

#[tokio::test(start_paused = true)]
async fn a_memo_is_written_with_the_next_event_and_not_before() {
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        out.working().await?;
        out.remember("first")?;
        out.remember("second")?;
        out.flush().await?;
        tokio::time::sleep(crate::secs(5)).await;
        out.text("a", "x").await?;
        out.remember("with the end")
    }));
    let task = harness.begin("hi").await.unwrap();
    settle().await;
    assert_eq!(kept(&harness, &task.id).await, None, "nothing has happened since");
    tokio::time::sleep(crate::secs(4)).await;
    assert_eq!(kept(&harness, &task.id).await, None);
    harness.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(kept(&harness, &task.id).await.as_deref(), Some("with the end"), "which the runtime recorded");
}

#[tokio::test(start_paused = true)]
async fn a_memo_before_the_first_event_goes_with_the_task() {
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        out.remember("early")?;
        out.submitted().await?;
        std::future::pending().await
    }));
    let sender = harness.clone();
    let _waits = tokio::spawn(async move { sender.task("hi").await });
    settle().await;
    let query = AdminTaskQuery { limit: 9, ..AdminTaskQuery::default() };
    let page = harness.store.all_tasks(&query).await.unwrap();
    assert_eq!((page.tasks.len(), page.tasks[0].seq.0), (1, 1));
    assert_eq!(kept(&harness, &page.tasks[0].id).await.as_deref(), Some("early"));
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_drops_the_memo_and_nothing_can_be_remembered_after_it() {
    let late = Arc::new(Mutex::new(None));
    let said = Arc::clone(&late);
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| {
        let said = Arc::clone(&said);
        async move {
            out.remember("nobody will ask")?;
            out.message(Part::text("hello")).await?;
            *said.lock().unwrap() = out.remember("too late").err().map(|error| error.kind());
            Ok(())
        }
    }));
    assert!(matches!(harness.send("hi").await.unwrap(), SendMessageResponse::Message(_)));
    assert_eq!(*late.lock().unwrap(), Some(ErrorKind::InvalidAgentResponse));
    assert_eq!(harness.store.count_tasks().await.unwrap(), [], "there is no task");
}

#[tokio::test(start_paused = true)]
async fn a_memo_is_refused_when_it_is_too_large_and_when_the_task_has_ended() {
    let refusals: Arc<Mutex<Vec<Option<Error>>>> = Arc::default();
    let told = Arc::clone(&refusals);
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| {
        let told = Arc::clone(&told);
        async move {
            let tell = |result: nuncio_server::protocol::Result<()>| told.lock().unwrap().push(result.err());
            tell(out.remember(vec![0; MAX_MEMO_BYTES]));
            tell(out.remember(vec![0; MAX_MEMO_BYTES + 1]));
            out.completed().await?;
            tell(out.remember("too late"));
            Ok(())
        }
    }));
    let task = harness.task("hi").await.unwrap();
    let kinds: Vec<_> =
        refusals.lock().unwrap().iter().map(|error| error.as_ref().map(Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Internal), Some(ErrorKind::UnsupportedOperation)]);
    assert_eq!(kept(&harness, &task.id).await.map(|memo| memo.len()), Some(MAX_MEMO_BYTES));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_task_at_rest_tells_what_was_remembered() {
    let told = Seen::default();
    let seen = Arc::clone(&told);
    let executor = remembers(&Seen::default()).on_cancel(move |cx| {
        seen.lock().unwrap().push(found(&cx));
        std::future::ready(Ok(()))
    });
    let harness = Harness::new(executor);
    let task = harness.task("upstream t-7").await.unwrap();
    harness.cancel(&task.id).await.unwrap();
    assert_eq!(*told.lock().unwrap(), [Some("upstream t-7".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_the_store_refused_takes_its_memo_along() {
    // A server that shares its store says a message again whose entry was refused.
    for store in [FailingStore::default(), FailingStore::alone(MemoryStore::default())] {
        let seen = Seen::default();
        let harness = Harness::of(card(), store, remembers(&seen), |builder| builder);
        let task = harness.task("one").await.unwrap();
        harness.store.refuse_next(nuncio_server::store::Refused::Held);
        assert_eq!(refused(harness.task(Say::to(&task, "lost")).await), ErrorKind::Unavailable);
        settle().await;
        harness.task(Say::to(&task, "three")).await.unwrap();
        assert_eq!(seen.lock().unwrap().last(), Some(&Some("one".to_owned())));
    }
}

/// A server on this data whose agent may be asked again.
fn server(data: &MemoryStore, executor: ScriptedExecutor) -> Harness {
    let store = FailingStore::waiting(data.another());
    Harness::of(card(), store, executor, |builder| builder.idempotent(true))
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_asked_again_goes_on_with_what_it_had_remembered() {
    let data = MemoryStore::default();
    let first = server(
        &data,
        ScriptedExecutor::new(|_, out| async move {
            out.remember("upstream t-7")?;
            out.working().await?;
            out.remember("not written any more")?;
            std::future::pending().await
        }),
    );
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    first.store.retire();
    let second = server(
        &data,
        ScriptedExecutor::new(|cx, out| async move {
            let state = cx.task.as_ref().map(|task| task.status.state);
            let told = format!("again={} {state:?} {:?}", cx.resumed, found(&cx));
            out.artifact(nuncio_server::protocol::Artifact::new("t", Part::text(told))).await.map(drop)
        }),
    );
    let done = second.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(
        summary(&done),
        "completed | user: hi | t \"again=true Some(Working) Some(\"upstream t-7\")\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waited_over_a_crash_sees_what_was_remembered() {
    let data = MemoryStore::default();
    let first = server(
        &data,
        ScriptedExecutor::new(|_, out| async move {
            out.remember("one")?;
            out.input_required("more?").await?;
            std::future::pending().await
        }),
    );
    let task = first.task("hi").await.unwrap();
    first.task(Say::to(&task, "two").immediately()).await.unwrap();
    first.store.retire();
    let seen = Seen::default();
    let second = server(&data, remembers(&seen));
    second.until(&task.id, TaskState::InputRequired).await.unwrap();
    while seen.lock().unwrap().is_empty() {
        tokio::time::sleep(crate::secs(1)).await;
    }
    assert_eq!(*seen.lock().unwrap(), [Some("one".to_owned())]);
}
