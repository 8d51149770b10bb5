//! The end in good order.

use nuncio_server::{
    protocol::{ErrorKind, TaskState},
    testing::{Harness, Say, ScriptedExecutor, Step, lines, summary},
};

use crate::{refused, secs, settle};

#[tokio::test(start_paused = true)]
async fn no_new_work_is_taken_and_old_work_is_still_readable() {
    let harness = Harness::new(ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![]]));
    let task = harness.task("hi").await.unwrap();
    assert!(harness.runtime.is_ready());
    harness.runtime.drain(secs(10)).await;
    assert!(!harness.runtime.is_ready());
    for answer in [harness.task("hi").await, harness.task(Say::to(&task, "blue")).await] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.retry_after().is_some());
    }
    assert_eq!(refused(harness.stream("hi").await), ErrorKind::Unavailable);
    assert_eq!(harness.get(&task.id).await.unwrap(), task);
}

#[tokio::test(start_paused = true)]
async fn running_tasks_finish_within_the_grace_and_their_streams_show_it() {
    let harness = Harness::new(ScriptedExecutor::steps([
        Step::Working,
        Step::Sleep(secs(5)),
        Step::Artifact("a", "x"),
    ]));
    let stream = harness.stream("hi").await.unwrap();
    let waiting = harness.clone();
    let waiting = tokio::spawn(async move { waiting.task("hi").await.unwrap() });
    settle().await;
    let drained = harness.runtime.drain(secs(60));
    let (seen, ()) = tokio::join!(lines(stream), drained);
    assert_eq!(
        seen,
        ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"],
        "nothing of what was done is lost"
    );
    assert_eq!(summary(&waiting.await.unwrap()), "completed | user: hi | a \"x\"");
    settle().await;
    assert_eq!((harness.runtime.running(), harness.runtime.live_tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_still_runs_after_the_grace_has_failed_with_the_reason() {
    // Invariant 7; an agent that listens to nothing is dropped.
    for steps in [vec![Step::Working, Step::Sleep(secs(100_000))], vec![Step::Hang]] {
        let harness = Harness::new(ScriptedExecutor::steps(steps.clone()));
        let task = harness.begin("hi").await.unwrap();
        let waiting = harness.clone();
        let waiting = tokio::spawn(async move { waiting.task("hi").await });
        settle().await;
        harness.runtime.drain(secs(10)).await;
        let failed = "failed \"the server was shut down before the task was done\" | user: hi | ";
        assert_eq!(summary(&harness.get(&task.id).await.unwrap()), failed, "{steps:?}");
        assert_eq!(summary(&waiting.await.unwrap().unwrap()), failed, "{steps:?}");
        settle().await;
        assert_eq!((harness.runtime.running(), harness.runtime.live_tasks()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_given_while_the_server_ends_leaves_no_task() {
    // It was followed by a failed task that nobody had begun.
    let harness = Harness::new(ScriptedExecutor::new(|cx, out| async move {
        cx.cancellation.cancelled().await;
        out.message(nuncio_server::protocol::Part::text("sorry")).await
    }));
    let waiting = harness.clone();
    let waiting = tokio::spawn(async move { waiting.send("hi").await });
    settle().await;
    harness.runtime.drain(secs(1)).await;
    let answer = waiting.await.unwrap().unwrap();
    assert!(matches!(answer, nuncio_server::protocol::SendMessageResponse::Message(_)));
    let list = nuncio_server::protocol::ListTasksRequest::default();
    let list =
        nuncio_server::protocol::A2aService::list_tasks(&harness.runtime, &harness.cx, list).await.unwrap();
    assert_eq!(list.total_size, 0);
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_their_turn_are_refused_when_the_task_is_ended() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let task = harness.begin("hi").await.unwrap();
    let (queued, say) = (harness.clone(), Say::to(&task, "more"));
    let queued = tokio::spawn(async move { queued.task(say).await });
    settle().await;
    harness.runtime.drain(secs(1)).await;
    assert_eq!(refused(queued.await.unwrap()), ErrorKind::UnsupportedOperation);
    assert_eq!(harness.get(&task.id).await.unwrap().status.state, TaskState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_still_being_let_in_does_not_begin_after_the_drain() {
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Working, Step::Hang]];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    settle().await;
    harness.store.hold_reads(true);
    let late = [("k-1", Say::from("hi")), ("k-2", Say::to(&task, "blue"))].map(|(key, say)| {
        let harness = harness.calling(|cx| cx.idempotency_key = Some(key.to_owned()));
        tokio::spawn(async move { harness.task(say).await })
    });
    settle().await;
    harness.runtime.drain(secs(1)).await;
    harness.store.hold_reads(false);
    for late in late {
        assert_eq!(refused(late.await.unwrap()), ErrorKind::Unavailable);
    }
    assert_eq!((harness.runtime.running(), harness.runtime.live_tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn subscribers_of_waiting_tasks_do_not_hold_up_the_end() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::InputRequired("which?")]));
    let task = harness.task("hi").await.unwrap();
    let stream = harness.subscribe(&task.id).await.unwrap();
    harness.runtime.drain(secs(3600)).await;
    assert_eq!(lines(stream).await, ["2 task input-required \"which?\""]);
    assert_eq!(harness.get(&task.id).await.unwrap(), task, "and the task waits on, in the store");
    assert_eq!(harness.runtime.live_tasks(), 0);
}
