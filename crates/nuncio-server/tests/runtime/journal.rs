//! Commits in batches: what a store that waits for a disk is asked, and what callers see meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use nuncio_server::{
    CommitObserver, Committed,
    protocol::{A2aService as _, Artifact, ErrorKind, ListTasksRequest, Part, Seq, TaskState},
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, ScriptedExecutor, Step, card, lines, next_line, summary},
};

use crate::{refused, secs, settle};

fn waiting(executor: ScriptedExecutor) -> Harness {
    let store = FailingStore::waiting(MemoryStore::default());
    // What is to be bounded here is what waits for the store, not the task.
    Harness::of(card(), store, executor, |builder| builder.max_task_bytes(1 << 30))
}

fn quick() -> ScriptedExecutor {
    ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x"), Step::Completed])
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_quick_task_do_not_cost_a_disk_wait_each() {
    let harness = waiting(quick());
    harness.task("hi").await.unwrap();
    assert_eq!(harness.store.commits(), 1);
    harness.stream("hi").await.map(lines).unwrap().await;
    assert_eq!(harness.store.commits(), 2);
}

#[tokio::test(start_paused = true)]
async fn tasks_share_a_commit() {
    let harness = waiting(quick());
    harness.store.hold_writes(true);
    let sends: Vec<_> = (0..200)
        .map(|i| {
            let harness = harness.clone();
            tokio::spawn(async move { harness.task(&*format!("hi {i}")).await })
        })
        .collect();
    settle().await;
    harness.store.hold_writes(false);
    for sent in join_all(sends).await {
        assert_eq!(sent.unwrap().unwrap().status.state, TaskState::Completed);
    }
    assert!(harness.store.commits() <= 3, "{}", harness.store.commits());
}

/// The writes of callers with megabytes took all the room that the queue had, and shared the batches of others.
#[tokio::test(start_paused = true)]
async fn small_writes_do_not_wait_for_large_ones() {
    let harness = waiting(quick());
    harness.store.hold_large(true);
    let large: Vec<_> = (0..8)
        .map(|_| {
            let harness = harness.clone();
            tokio::spawn(async move { harness.task(&*"x".repeat(10 << 20)).await })
        })
        .collect();
    settle().await;
    for i in 0..3 {
        let small = harness.task(&*format!("hi {i}")).await.unwrap();
        assert_eq!(small.status.state, TaskState::Completed);
    }
    harness.store.hold_large(false);
    for sent in join_all(large).await {
        assert_eq!(sent.unwrap().unwrap().status.state, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn large_and_small_writes_of_a_task_stay_in_order() {
    let large: &'static str = "x".repeat(1 << 20).leak();
    let steps = [
        Step::Working,
        Step::Artifact("a", "small"),
        Step::Sleep(secs(1)),
        Step::Artifact("b", large),
        Step::Artifact("c", "small"),
        Step::Artifact("d", large),
        Step::Completed,
    ];
    for hold in [false, true] {
        let harness = waiting(ScriptedExecutor::steps(steps));
        harness.store.hold_large(hold);
        let sent = tokio::spawn({
            let harness = harness.clone();
            async move { harness.task("hi").await }
        });
        settle().await;
        harness.store.hold_large(false);
        let task = sent.await.unwrap().unwrap();
        let names: Vec<_> = task.artifacts.iter().map(|artifact| artifact.artifact_id.as_str()).collect();
        assert_eq!((task.status.state, names), (TaskState::Completed, vec!["a", "b", "c", "d"]));
    }
}

/// If the store is far away, several batches are under way, and a task is in one of them at most.
#[tokio::test(start_paused = true)]
async fn several_batches_are_under_way_and_a_task_is_in_one_of_them() {
    for most in [1, 3] {
        let store = FailingStore::waiting(MemoryStore::default()).with_concurrent_commits(most);
        let steps = [Step::Working, Step::Sleep(secs(1)), Step::Artifact("a", "x"), Step::Sleep(secs(1))];
        let harness = Harness::of(card(), store, ScriptedExecutor::steps(steps), |builder| builder);
        harness.store.hold_writes(true);
        let mut sends = Vec::new();
        for number in 0..5 {
            let sender = harness.clone();
            sends.push(tokio::spawn(async move {
                lines(sender.stream(&*format!("hi {number}")).await.unwrap()).await
            }));
            settle().await;
            assert_eq!(harness.store.commits_under_way(), most.min(number + 1));
        }
        // The agents go on; what they say waits for the commit before it.
        tokio::time::sleep(secs(3)).await;
        settle().await;
        assert_eq!((harness.store.commits_under_way(), harness.store.commits()), (most, 0));
        assert!(sends.iter().all(|sent| !sent.is_finished()), "nothing is told before it is committed");
        harness.store.hold_writes(false);
        for sent in join_all(sends).await {
            let whole =
                ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"];
            assert_eq!(sent.unwrap(), whole);
        }
        let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
        assert!(list.tasks.iter().all(|task| task.status.state == TaskState::Completed));
    }
}

/// A store that fails for a while, with several batches under way: nothing is lost, doubled or out of order.
#[tokio::test(start_paused = true)]
async fn several_batches_survive_an_outage() {
    let store = FailingStore::waiting(MemoryStore::default()).with_concurrent_commits(4);
    let steps = [Step::Working, Step::Sleep(secs(1)), Step::Artifact("a", "x"), Step::Sleep(secs(1))];
    let harness = Harness::of(card(), store, ScriptedExecutor::steps(steps), |builder| builder);
    let sends: Vec<_> = (0..20)
        .map(|number| {
            let harness = harness.clone();
            tokio::spawn(async move { lines(harness.stream(&*format!("hi {number}")).await.unwrap()).await })
        })
        .collect();
    settle().await;
    harness.store.take_down(true);
    tokio::time::sleep(secs(5)).await;
    harness.store.lose_next_answer();
    harness.store.take_down(false);
    for sent in join_all(sends).await {
        let whole = ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"];
        assert_eq!(sent.unwrap(), whole);
    }
}

/// A worker runs first what it has just woken, and would commit the first write of many alone.
#[test]
fn those_who_are_ready_to_write_share_the_first_commit_too() {
    // One worker, which lets nobody in before all that is ready has run.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().event_interval(100_000).build().unwrap();
    let commits = runtime.block_on(async {
        let harness = waiting(quick());
        let sender = harness.clone();
        // From the worker, so that all are ready before the first begins.
        let all = tokio::spawn(async move {
            join_all((0..20).map(|i| {
                let harness = sender.clone();
                tokio::spawn(async move { harness.task(&*format!("hi {i}")).await })
            }))
            .await
        });
        for sent in all.await.unwrap() {
            assert_eq!(sent.unwrap().unwrap().status.state, TaskState::Completed);
        }
        harness.store.commits()
    });
    assert_eq!(commits, 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_store_is_shown_to_nobody() {
    // Invariant 4, with a store that takes its time: committed before announced.
    let harness =
        waiting(ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(5)), Step::Artifact("a", "x")]));
    let mut stream = harness.stream("hi").await.unwrap();
    assert_eq!(next_line(&mut stream).await, "1 task submitted");
    assert_eq!(next_line(&mut stream).await, "2 status working");
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    let id = list.tasks[0].id.clone();

    harness.store.hold_writes(true);
    tokio::time::sleep(secs(6)).await;
    settle().await;
    let (reader, subscriber) = (harness.clone(), harness.clone());
    let (of, on) = (id.clone(), id.clone());
    let read = tokio::spawn(async move { reader.get(&of).await });
    let second = tokio::spawn(async move {
        lines(subscriber.calling(|cx| cx.last_event_id = Some(Seq(2))).subscribe(&on).await.unwrap()).await
    });
    let next = tokio::spawn(async move { lines(stream).await });
    settle().await;
    assert!(!read.is_finished(), "an answer waits for the commit of what it reports");
    assert!(!second.is_finished() && !next.is_finished());
    harness.store.hold_writes(false);
    assert_eq!(summary(&read.await.unwrap().unwrap()), "completed | user: hi | a \"x\"");
    let rest = ["3 artifact a \"x\" last", "4 status completed"];
    assert_eq!(next.await.unwrap(), rest);
    assert_eq!(second.await.unwrap(), rest);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_waited_for_and_new_work_is_refused() {
    let harness = waiting(quick());
    harness.task("before").await.unwrap();
    harness.store.take_down(true);
    let waiting = harness.clone();
    let waits = tokio::spawn(async move { waiting.task("during").await });
    settle().await;
    let error = harness.send("too much").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.retry_after().is_some(), "the caller is told when to come back");
    tokio::time::sleep(secs(5)).await;
    assert!(!waits.is_finished());
    harness.store.take_down(false);
    assert_eq!(waits.await.unwrap().unwrap().status.state, TaskState::Completed);
    assert_eq!(harness.task("after").await.unwrap().status.state, TaskState::Completed);
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.total_size, 3, "nothing lost, nothing doubled");
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_not_kept_waiting_for_a_store_that_stays_down() {
    let harness = waiting(quick());
    harness.store.take_down(true);
    let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let say = Say::from("hi");
    let error = keyed.task(say.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.retry_after().is_some(), "the caller is told when to come back");
    harness.store.take_down(false);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(
        summary(&keyed.task(say).await.unwrap()),
        "completed | user: hi | a \"x\"",
        "and finds it done"
    );
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.total_size, 1);
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    let harness = waiting(quick());
    harness.store.lose_next_answer();
    let task = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned())).task("hi").await.unwrap();
    assert_eq!(summary(&task), "completed | user: hi | a \"x\"");
    let log = harness.calling(|cx| cx.last_event_id = Some(Seq(0))).subscribe(&task.id).await.unwrap();
    let whole = ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"];
    assert_eq!(lines(log).await, whole);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_faster_than_the_store_waits() {
    const PIECE: usize = 1 << 20;
    let said = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&said);
    let harness = waiting(ScriptedExecutor::new(move |_, out| {
        let count = Arc::clone(&count);
        async move {
            for _ in 0..200 {
                out.chunk(Artifact::new("a", Part::text("x".repeat(PIECE))), true, false).await?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    }));
    harness.store.hold_writes(true);
    let sender = harness.clone();
    let sent = tokio::spawn(async move { sender.task("hi").await });
    settle().await;
    let queued = said.load(Ordering::SeqCst);
    assert!((2..100).contains(&queued), "a bounded number of megabytes waits: {queued}");
    harness.store.hold_writes(false);
    let task = sent.await.unwrap().unwrap();
    assert_eq!(task.artifacts[0].parts.len(), 200, "and none is lost");
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_comes_before_the_commit_does_not_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let harness = waiting(ScriptedExecutor::new(move |_, out| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { out.completed().await.map(drop) }
    }));
    let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let say = Say::from("hi");
    keyed.store.hold_writes(true);
    let twice = [say.clone(), say].map(|say| {
        let keyed = keyed.clone();
        tokio::spawn(async move {
            let task = keyed.task(say).await;
            task.map(|task| task.id)
        })
    });
    settle().await;
    keyed.store.hold_writes(false);
    let [first, second] = join_all(twice).await.try_into().unwrap();
    assert_eq!(first.unwrap().unwrap(), second.unwrap().unwrap());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_wait_until_what_it_said_is_safe() {
    let (said, safe) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (Arc::clone(&said), Arc::clone(&safe));
    let harness = waiting(ScriptedExecutor::new(move |_, out| {
        let (said, safe) = (Arc::clone(&said), Arc::clone(&safe));
        async move {
            out.working().await?;
            said.fetch_add(1, Ordering::SeqCst);
            out.flush().await?;
            safe.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }));
    harness.store.hold_writes(true);
    let sender = harness.clone();
    let sent = tokio::spawn(async move { sender.task("hi").await });
    settle().await;
    assert_eq!((seen.0.load(Ordering::SeqCst), seen.1.load(Ordering::SeqCst)), (1, 0));
    harness.store.hold_writes(false);
    sent.await.unwrap().unwrap();
    assert_eq!(seen.1.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_ever_for_a_store_that_is_down() {
    let harness = waiting(quick());
    harness.store.take_down(true);
    let sender = harness.clone();
    let sent = tokio::spawn(async move { sender.task("hi").await });
    settle().await;
    harness.runtime.drain(secs(1)).await;
    assert_eq!(refused(sent.await.unwrap()), ErrorKind::Unavailable);
}

#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<(u64, Option<TaskState>)>>);

impl CommitObserver for Notes {
    fn committed(&self, committed: Committed) {
        self.0.lock().unwrap().push((committed.seq.0, committed.state));
    }
}

/// The observer gets each entry once, in one commit or in several, and the end as well.
#[tokio::test(start_paused = true)]
async fn an_observer_is_told_of_what_is_committed_and_of_nothing_else() {
    for waits in [false, true] {
        let notes = Arc::new(Notes::default());
        let memory = MemoryStore::default();
        let store = if waits { FailingStore::waiting(memory) } else { FailingStore::new(memory) };
        let steps = [Step::Working, Step::Artifact("a", "x"), Step::Completed];
        let observer = Arc::clone(&notes) as Arc<dyn CommitObserver>;
        let executor = ScriptedExecutor::steps(steps);
        let harness = Harness::of(card(), store, executor, |builder| builder.observer(observer));
        harness.task("hi").await.unwrap();
        let told = std::mem::take(&mut *notes.0.lock().unwrap());
        assert!(told.is_sorted_by(|(one, _), (next, _)| one < next), "{told:?}");
        assert_eq!(told.last(), Some(&(4, Some(TaskState::Completed))), "{told:?}");
        harness.store.fail_writes(true);
        drop(harness.task("hi").await);
        assert_eq!(notes.0.lock().unwrap().len(), 0, "nothing was committed");
    }
}
