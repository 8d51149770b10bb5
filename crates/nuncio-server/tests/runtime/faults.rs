//! Failures of the store: nothing is shown that is not stored (invariant 4).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_server::{
    protocol::{A2aService as _, ErrorKind, ListTasksRequest, Seq, TaskState},
    store::{MemoryStore, Refused},
    testing::{
        FailingStore, Harness, STORE_SECRET, Say, ScriptedExecutor, Step, card, lines, next_line, summary,
    },
};

use crate::{Dropped, refused, secs, settle};

/// Says that it works, and a second later that it has made something.
fn works_on() -> ScriptedExecutor {
    ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(1)), Step::Artifact("a", "x")])
}

#[tokio::test(start_paused = true)]
async fn what_is_not_committed_is_shown_to_nobody() {
    let fails: [fn(&Harness); 2] = [
        |harness| harness.store.fail_writes(true),
        |harness| harness.store.refuse_next(Refused::Version(Seq(7))),
    ];
    // A server that shares its store says a message again whose entry was refused.
    let stores: [fn() -> FailingStore; 2] =
        [FailingStore::default, || FailingStore::alone(MemoryStore::default())];
    for (fail, store) in fails.into_iter().flat_map(|fail| stores.map(|store| (fail, store))) {
        let harness = Harness::of(card(), store(), works_on(), |builder| builder);
        let mut stream = harness.stream("hi").await.unwrap();
        assert_eq!(next_line(&mut stream).await, "1 task submitted");
        assert_eq!(next_line(&mut stream).await, "2 status working");
        let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
        let id = list.tasks[0].id.clone();
        let (queued, say) = (harness.clone(), Say::to(&list.tasks[0], "more"));
        let queued = tokio::spawn(async move { queued.task(say).await });
        let second = harness.subscribe(&id).await.unwrap();
        settle().await;
        fail(&harness);
        assert_eq!(lines(stream).await, ["error Unavailable"]);
        assert_eq!(lines(second).await, ["2 task working", "error Unavailable"]);
        assert_eq!(refused(queued.await.unwrap()), ErrorKind::Unavailable, "not that the task has ended");

        harness.store.fail_writes(false);
        let reads = harness.store.reads();
        assert_eq!(summary(&harness.get(&id).await.unwrap()), "working | user: hi | ");
        assert!(harness.store.reads() > reads, "read from the store, not from memory");
        settle().await;
        assert_eq!((harness.runtime.live_tasks(), harness.runtime.running()), (0, 0));
        assert_eq!(
            harness.cancel(&id).await.unwrap().status.state,
            TaskState::Canceled,
            "and it is not stuck"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_caller_is_told_to_come_back_and_nothing_of_the_cause() {
    // Invariant 10
    for steps in [vec![], vec![Step::Working, Step::Sleep(secs(1))], vec![Step::Reply("hello")]] {
        let harness = Harness::new(ScriptedExecutor::steps(steps.clone()));
        harness.store.fail_writes(true);
        let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
        let error = keyed.send("hi").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{steps:?}");
        assert!(
            !error.message().contains(STORE_SECRET)
                && !format!("{:?}", error.details()).contains(STORE_SECRET)
        );
        harness.store.fail_writes(false);
        let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
        assert_eq!(list.total_size, 0, "{steps:?}: nothing was kept");
        settle().await;
        assert_eq!(harness.runtime.live_tasks(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_could_not_be_kept_is_not_given() {
    // It was given to a stream although a repeat would not have found it.
    let harness = Harness::new(ScriptedExecutor::steps([Step::Sleep(secs(1)), Step::Reply("hello")]));
    harness.store.fail_writes(true);
    let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    assert_eq!(refused(keyed.stream("hi").await), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_on_after_a_failure_writes_nothing_and_is_stopped() {
    // It wrote on behind the lost entry, with a snapshot that held it; and a drain waited for it for ever.
    let (attempts, done) = (Arc::new(AtomicUsize::new(0)), Dropped::default());
    let (count, ended) = (Arc::clone(&attempts), done.clone());
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| {
        let (count, ended) = (Arc::clone(&count), ended.guard());
        async move {
            let _ended = ended;
            loop {
                if out.working().await.is_err() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(secs(1)).await;
            }
        }
    }));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    harness.store.fail_writes(true);
    tokio::time::sleep(secs(2)).await;
    harness.store.fail_writes(false);
    let before = harness.get(&task.id).await.unwrap();
    tokio::time::sleep(secs(20)).await;
    assert!(attempts.load(Ordering::SeqCst) > 0);
    assert!(done.is_dropped(), "its error was the end of the execution");
    assert_eq!(harness.get(&task.id).await.unwrap(), before);
    harness.runtime.drain(secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_with_the_next_message_when_the_store_is_back() {
    let turns = [vec![Step::Working, Step::Sleep(secs(1)), Step::Completed], vec![Step::Artifact("a", "x")]];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    harness.store.fail_writes(true);
    tokio::time::sleep(secs(2)).await;
    harness.store.fail_writes(false);
    let done = harness.task(Say::to(&task, "again")).await.unwrap();
    assert_eq!(summary(&done), "completed | user: hi; user: again | a \"x\"");
    let log = harness.calling(|cx| cx.last_event_id = Some(Seq(0))).subscribe(&task.id).await.unwrap();
    assert_eq!(
        lines(log).await,
        ["1 task submitted", "2 status working", "4 artifact a \"x\" last", "5 status completed"],
        "without a gap: 3 is what the caller said"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_are_unavailable_too() {
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let task = harness.task("hi").await.unwrap();
    settle().await;
    harness.store.fail_reads(true);
    assert_eq!(refused(harness.get(&task.id).await), ErrorKind::Unavailable);
    assert_eq!(refused(harness.cancel(&task.id).await), ErrorKind::Unavailable);
    assert_eq!(refused(harness.task(Say::to(&task, "more")).await), ErrorKind::Unavailable);
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await;
    assert_eq!(refused(list), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lags_behind_a_store_that_fails_ends_with_an_error() {
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        for _ in 0..1000 {
            out.working().await?;
        }
        Ok(())
    }));
    let mut stream = harness.stream("hi").await.unwrap();
    settle().await;
    assert_eq!(next_line(&mut stream).await, "1 task submitted");
    harness.store.fail_reads(true);
    let rest = lines(stream).await;
    assert_eq!(rest.last().unwrap(), "error Unavailable", "{}", rest.len());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_cannot_be_kept_is_not_a_refusal() {
    // An idle task was called not cancelable because the store was down.
    let harness = Harness::new(ScriptedExecutor::steps([Step::InputRequired("which?")]));
    let task = harness.task("hi").await.unwrap();
    harness.store.fail_writes(true);
    assert_eq!(refused(harness.cancel(&task.id).await), ErrorKind::Unavailable);
    harness.store.fail_writes(false);
    assert_eq!(harness.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

/// Panics before it gives a future: not by `async fn`, but possible by hand.
struct PanicsAtOnce;

impl nuncio_server::Executor for PanicsAtOnce {
    fn execute<'a, 'b>(
        &'a self,
        _cx: nuncio_server::ExecContext,
        _out: nuncio_server::Emitter,
    ) -> std::pin::Pin<Box<dyn Future<Output = nuncio_server::protocol::Result<()>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        panic!("before there is a future")
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_before_it_gives_a_future_fails_its_task() {
    let harness = Harness::new(PanicsAtOnce);
    let task = harness.task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
}
