//! CancelTask: token, grace, drop; and the state changes only when the agent has stopped.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_server::{
    Limits,
    protocol::{ErrorKind, Part, Seq, TaskState},
    testing::{Harness, Say, ScriptedExecutor, Step, lines, summary},
};

use crate::{Dropped, refused, secs, settle};

#[tokio::test(start_paused = true)]
async fn the_state_changes_only_after_the_agent_has_stopped() {
    // Pain 12, REQ-128
    let stopped = Dropped::default();
    let flag = stopped.clone();
    let harness = Harness::new(ScriptedExecutor::new(move |cx, out| {
        let flag = flag.guard();
        async move {
            out.working().await?;
            cx.cancellation.cancelled().await;
            tokio::time::sleep(secs(2)).await;
            drop(flag);
            Ok(())
        }
    }));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    let canceling = harness.clone();
    let id = task.id.clone();
    let cancel = tokio::spawn(async move { canceling.cancel(&id).await });
    tokio::time::sleep(secs(1)).await;
    assert_eq!(
        harness.get(&task.id).await.unwrap().status.state,
        TaskState::Working,
        "it has not stopped yet"
    );
    let canceled = cancel.await.unwrap().unwrap();
    assert!(stopped.is_dropped());
    assert_eq!(summary(&canceled), "canceled | user: hi | ");
    assert_eq!(harness.get(&task.id).await.unwrap(), canceled);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_listen_is_dropped_after_the_grace() {
    let dropped = Dropped::default();
    let flag = dropped.clone();
    let limits = Limits { cancel_grace: secs(3), ..Limits::default() };
    let executor = ScriptedExecutor::new(move |_, out| {
        let flag = flag.guard();
        async move {
            let _flag = flag;
            out.working().await?;
            std::future::pending().await
        }
    });
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    let begun = tokio::time::Instant::now();
    let canceled = harness.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(begun.elapsed().as_secs(), 3, "paused time: the grace and no more");
    assert!(dropped.is_dropped());
    settle().await;
    assert_eq!((harness.runtime.running(), harness.runtime.live_tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_agent_may_say_nothing_more_but_the_end() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&said);
    let harness = Harness::new(ScriptedExecutor::new(move |cx, out| {
        let seen = Arc::clone(&seen);
        async move {
            out.working().await?;
            cx.cancellation.cancelled().await;
            let attempts = [
                out.working().await,
                out.text("late", "x").await,
                out.input_required("really?").await,
                out.submitted().await.map(|()| Seq(0)),
            ];
            seen.lock().unwrap().extend(attempts.map(|result| result.map_err(|error| error.kind())));
            out.working().await.map(drop)
        }
    }));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    assert_eq!(summary(&harness.cancel(&task.id).await.unwrap()), "canceled | user: hi | ");
    assert_eq!(*said.lock().unwrap(), [Err(ErrorKind::UnsupportedOperation); 4]);
}

#[tokio::test(start_paused = true)]
async fn the_agent_may_end_the_task_in_its_own_words() {
    for (state, words, answer) in [
        (TaskState::Canceled, "stopped at page 3", Ok("canceled \"stopped at page 3\" | user: hi | ")),
        (TaskState::Completed, "just done", Err(ErrorKind::TaskNotCancelable)),
        (TaskState::Failed, "broke", Err(ErrorKind::TaskNotCancelable)),
    ] {
        let harness = Harness::new(ScriptedExecutor::new(move |cx, out| async move {
            out.working().await?;
            cx.cancellation.cancelled().await;
            out.status(state, vec![Part::text(words)]).await.map(drop)
        }));
        let task = harness.begin("hi").await.unwrap();
        harness.until(&task.id, TaskState::Working).await.unwrap();
        let canceled = harness.cancel(&task.id).await;
        let canceled = canceled.as_ref().map(summary).map_err(|error| error.kind());
        assert_eq!(canceled, answer.map(str::to_owned));
        assert_eq!(harness.get(&task.id).await.unwrap().status.state, state, "the first end stands");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_first_wins_when_a_cancel_meets_the_completion() {
    // Pain 4: never two ends, and the answer says which one it was.
    for yields in 0..40 {
        let harness = Harness::new(ScriptedExecutor::new(move |_, out| async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            out.completed().await.map(drop)
        }));
        let task = harness.begin("hi").await.unwrap();
        // From the beginning: it may be over already.
        let watching = harness.calling(|cx| cx.last_event_id = Some(Seq(0)));
        let watching = watching.subscribe(&task.id).await.unwrap();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let answer = harness.cancel(&task.id).await;
        let seen = lines(watching).await;
        let state = harness.get(&task.id).await.unwrap().status.state;
        match answer {
            Ok(task) => assert_eq!((task.status.state, state), (TaskState::Canceled, TaskState::Canceled)),
            Err(error) => {
                assert_eq!((error.kind(), state), (ErrorKind::TaskNotCancelable, TaskState::Completed));
            }
        }
        assert_eq!(seen.len(), 2, "the task and one end: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_an_answer_can_be_canceled() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let executor = ScriptedExecutor::steps([Step::InputRequired("which?")]).on_cancel(move |cx| {
        seen.lock().unwrap().push((cx.task_id.clone(), cx.task.as_ref().map(|task| task.status.state)));
        std::future::ready(Ok(()))
    });
    let harness = Harness::new(executor);
    let task = harness.task("hi").await.unwrap();
    let watching = harness.subscribe(&task.id).await.unwrap();
    let canceled = harness.cancel(&task.id).await.unwrap();
    assert_eq!(summary(&canceled), "canceled | user: hi; agent: which? | ");
    assert_eq!(*told.lock().unwrap(), [(task.id.clone(), Some(TaskState::InputRequired))]);
    assert_eq!(lines(watching).await, ["2 task input-required \"which?\"", "3 status canceled"]);
    assert_eq!(refused(harness.task(Say::to(&task, "blue")).await), ErrorKind::UnsupportedOperation);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_cancel_hangs_or_panics_does_not_keep_the_task() {
    for hang in [true, false] {
        let executor =
            ScriptedExecutor::steps([Step::InputRequired("which?")]).on_cancel(move |_| async move {
                if hang {
                    std::future::pending::<()>().await;
                }
                panic!("no");
            });
        let harness = Harness::new(executor);
        let task = harness.task("hi").await.unwrap();
        assert_eq!(harness.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_while_an_idle_task_is_canceled_is_stopped_too() {
    let executor =
        ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![Step::Working, Step::Hang]])
            .on_cancel(|_| async {
                tokio::time::sleep(secs(2)).await;
                Ok(())
            });
    let harness = Harness::new(executor);
    let task = harness.task("hi").await.unwrap();
    let (canceling, id) = (harness.clone(), task.id.clone());
    let cancel = tokio::spawn(async move { canceling.cancel(&id).await });
    tokio::time::sleep(secs(1)).await;
    let answered = harness.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(answered.status.state, TaskState::Canceled);
    assert_eq!(cancel.await.unwrap().unwrap().status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_is_not_canceled_again() {
    // REQ-129, REQ-131, trap T-05
    let harness = Harness::new(ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![]]));
    let canceled = harness.task("hi").await.unwrap();
    harness.cancel(&canceled.id).await.unwrap();
    let completed = harness.task("hi").await.unwrap();
    for task in [canceled, completed] {
        let before = harness.get(&task.id).await.unwrap();
        let error = harness.cancel(&task.id).await.unwrap_err();
        assert_eq!((error.kind(), error.kind().row().code), (ErrorKind::TaskNotCancelable, -32002));
        assert_eq!(harness.get(&task.id).await.unwrap(), before, "no further effect");
    }
}

#[tokio::test(start_paused = true)]
async fn cancels_at_the_same_time_agree() {
    let calls = Arc::new(AtomicUsize::new(0));
    for steps in [vec![Step::Working, Step::Hang], vec![Step::InputRequired("which?")]] {
        let count = Arc::clone(&calls);
        let executor = ScriptedExecutor::steps(steps.clone()).on_cancel(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            async {
                tokio::time::sleep(secs(1)).await;
                Ok(())
            }
        });
        let harness = Harness::new(executor);
        let task = harness.begin("hi").await.unwrap();
        settle().await;
        let (one, two) = tokio::join!(harness.cancel(&task.id), harness.cancel(&task.id));
        assert_eq!(one.unwrap().status.state, TaskState::Canceled, "{steps:?}");
        assert_eq!(two.unwrap().status.state, TaskState::Canceled, "{steps:?}");
        let replay = harness.calling(|cx| cx.last_event_id = Some(Seq(0)));
        let ends = lines(replay.subscribe(&task.id).await.unwrap())
            .await
            .iter()
            .filter(|line| line.contains("canceled"))
            .count();
        assert_eq!(ends, 1, "one end in the log");
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_who_waits_learns_of_the_cancel() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let stream = harness.stream("hi").await.unwrap();
    let list = nuncio_server::protocol::ListTasksRequest::default();
    let list =
        nuncio_server::protocol::A2aService::list_tasks(&harness.runtime, &harness.cx, list).await.unwrap();
    let task = list.tasks[0].clone();
    let (queued, say) = (harness.clone(), Say::to(&task, "more"));
    let queued = tokio::spawn(async move { queued.task(say).await });
    settle().await;
    harness.cancel(&task.id).await.unwrap();
    assert_eq!(lines(stream).await, ["1 task submitted", "2 status working", "3 status canceled"]);
    assert_eq!(refused(queued.await.unwrap()), ErrorKind::UnsupportedOperation);
    assert_eq!(summary(&harness.get(&task.id).await.unwrap()), "canceled | user: hi | ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_comes_between_two_turns_is_not_lost() {
    // It met an execution that was over and not yet cleared away, and waited for an end that nobody made; and then
    // the end was made, and the agent did not hear of it.
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let executor = ScriptedExecutor::steps([Step::InputRequired("which?")]).on_cancel(move |cx| {
        heard.lock().unwrap().push(cx.task_id.clone());
        std::future::ready(Ok(()))
    });
    let harness = Harness::new(executor);
    for round in 0..300 {
        let task = harness.task("hi").await.unwrap();
        let (saying, reply) = (harness.clone(), Say::to(&task, "blue"));
        let follow_up = tokio::spawn(async move { saying.task(reply).await });
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
        }
        let canceled = harness.cancel(&task.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        assert!(told.lock().unwrap().contains(&task.id), "the agent is told, in round {round}");
        // It was answered, canceled, or too late.
        let _ = follow_up.await.unwrap();
    }
}
