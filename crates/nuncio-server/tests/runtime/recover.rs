//! Tasks of a stopped server, and their recovery by another.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use nuncio_server::{
    CallerShare, Emitter, ExecContext, Executor, Limits, Retention, RuntimeBuilder, TaskQuota,
    protocol::{A2aService as _, Caller, ErrorKind, ListTasksRequest, Result, Seq, Task, TaskState},
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, ScriptedExecutor, Step, card, lines, next_line, summary},
};

use crate::{Dropped, refused, secs, settle};

/// A server on this data, with this agent.
fn server(data: &MemoryStore, executor: ScriptedExecutor, idempotent: bool) -> Harness {
    let store = FailingStore::waiting(data.another());
    Harness::of(card(), store, executor, |builder: RuntimeBuilder| builder.idempotent(idempotent))
}

fn hangs() -> ScriptedExecutor {
    ScriptedExecutor::steps([Step::Working, Step::Append("a", "x"), Step::Hang])
}

/// Tells whether it was asked again, and in which state it found its task.
fn tells() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx, out| async move {
        let found = cx.task.as_ref().map(|task| format!("{:?}", task.status.state));
        let told = format!("{} again={} {}", cx.text(), cx.resumed, found.unwrap_or_default());
        out.artifact(nuncio_server::protocol::Artifact::new("t", nuncio_server::protocol::Part::text(told)))
            .await
            .map(drop)
    })
}

/// An agent of which each execution leaves a task.
struct LeavesTask(ScriptedExecutor);

#[async_trait]
impl Executor for LeavesTask {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        self.0.execute(cx, out).await
    }

    fn always_leaves_task(&self) -> bool {
        true
    }
}

/// Over by itself, in whatever state.
async fn settled(server: &Harness, task: &Task) -> String {
    for _ in 0..1_000 {
        let task = server.get(&task.id).await.unwrap();
        if task.status.state.is_settled() {
            return summary(&task);
        }
        tokio::time::sleep(secs(1)).await;
    }
    panic!("the task is stuck")
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_at_work_fails_with_a_reason_unless_its_agent_is_idempotent() {
    let data = MemoryStore::default();
    for (idempotent, expected) in [
        (
            false,
            "failed \"the server stopped while the agent was at work on this task; it was not run again, because the agent is not marked as idempotent\" | user: hi | a \"x\"",
        ),
        (true, "completed | user: hi | a \"x\"; t \"hi again=true Working\""),
    ] {
        let first = server(&data, hangs(), idempotent);
        let task = first.begin("hi").await.unwrap();
        first.until(&task.id, TaskState::Working).await.unwrap();
        first.store.retire();
        let second = server(&data, tells(), idempotent);
        assert_eq!(settled(&second, &task).await, expected);
    }
}

/// The unfinished tasks of one caller do not lock out others, and that caller cannot start more besides them.
#[tokio::test(start_paused = true)]
async fn tasks_that_are_taken_up_leave_room_for_other_callers() {
    let data = MemoryStore::default();
    let server = |executor, share, quota| {
        let store = FailingStore::waiting(data.another());
        Harness::of(card(), store, executor, |builder: RuntimeBuilder| {
            let limits = Limits { tasks: 8, ..Limits::default() };
            let shared = builder.caller_share(CallerShare::percent(share)).task_quota(TaskQuota::new(quota));
            shared.limits(limits).idempotent(true)
        })
    };
    let first = server(hangs(), 0, 0);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(first.as_caller("ann").begin("hi").await.unwrap());
    }
    for task in &tasks {
        first.as_caller("ann").until(&task.id, TaskState::Working).await.unwrap();
    }
    first.store.retire();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let executor = ScriptedExecutor::new(move |cx, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            cx.cancellation.cancelled().await;
            Ok(())
        }
    });
    let second = server(executor, 25, 7);
    while begun.load(Ordering::SeqCst) < 6 {
        tokio::time::sleep(secs(1)).await;
    }
    let (ann, bob) = (second.as_caller("ann"), second.as_caller("bob"));
    bob.begin("hi").await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(begun.load(Ordering::SeqCst), 7, "six of ann's, and bob's");
    let error = ann.begin("hi").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().contains("unfinished"), "eight of seven: {error}");
    for task in &tasks {
        ann.cancel(&task.id).await.unwrap();
    }
    assert!(ann.begin("hi").await.is_ok(), "all places are given back");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_acknowledged_and_never_begun_runs() {
    // Only an agent that leaves a task in any case has its task made before it begins.
    let server = |data: &MemoryStore, executor, idempotent| {
        let store = FailingStore::waiting(data.another());
        Harness::of(card(), store, LeavesTask(executor), |builder| builder.idempotent(idempotent))
    };
    for idempotent in [false, true] {
        let data = MemoryStore::default();
        let first = server(&data, hangs(), idempotent);
        // Acknowledged, and then the process ends before the agent is called: its store takes nothing more.
        first.store.take_down_after_commit();
        let task = first.begin("hi").await.unwrap();
        settle().await;
        assert_eq!(first.get(&task.id).await.unwrap().status.state, TaskState::Submitted);
        first.store.retire();
        let second = server(&data, tells(), idempotent);
        assert_eq!(settled(&second, &task).await, "completed | user: hi | t \"hi again=false \"");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_before_a_task_is_taken_up_stops_its_execution() {
    // It was canceled while nobody worked on it, and then the agent was asked all the same; or never told.
    let data = MemoryStore::default();
    let first = server(&data, hangs(), true);
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    first.store.retire();
    let (told, stopped) = (Arc::new(AtomicUsize::new(0)), Dropped::default());
    let (count, seen) = (Arc::clone(&told), stopped.clone());
    let executor = ScriptedExecutor::new(move |cx, _| {
        assert!(cx.resumed);
        count.fetch_add(1, Ordering::SeqCst);
        let stopped = seen.guard();
        async move {
            cx.cancellation.cancelled().await;
            drop(stopped);
            Ok(())
        }
    });
    let second = server(&data, executor, true);
    let canceled = second.cancel(&task.id).await.unwrap();
    assert_eq!(summary(&canceled), "canceled | user: hi | a \"x\"");
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert!(stopped.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waited_for_its_turn_is_not_lost() {
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([Step::InputRequired("which?"), Step::Hang]), false);
    let task = first.task("hi").await.unwrap();
    let queued = first.task(Say::to(&task, "blue").immediately()).await.unwrap();
    assert_eq!(queued.status.state, TaskState::InputRequired);
    first.store.retire();
    let second = server(&data, tells(), false);
    let done = second.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(
        summary(&done),
        "completed | user: hi; agent: which?; user: blue | t \"blue again=false InputRequired\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_was_at_work_is_not_forgotten_although_the_state_says_that_nobody_works() {
    // Recorded with its message: in progress, whatever the last status was.
    for (idempotent, state) in [(false, TaskState::Failed), (true, TaskState::Completed)] {
        let data = MemoryStore::default();
        let turns = [vec![Step::InputRequired("which?")], vec![Step::Hang]];
        let first = server(&data, ScriptedExecutor::turns(turns), idempotent);
        let task = first.task("hi").await.unwrap();
        let (sender, say) = (first.clone(), Say::to(&task, "blue"));
        let _waits = tokio::spawn(async move { sender.task(say).await });
        while first.get(&task.id).await.unwrap().history.len() < 2 {
            tokio::time::sleep(secs(1)).await;
        }
        first.store.retire();
        let second = server(&data, tells(), idempotent);
        let done = second.until(&task.id, state).await.unwrap();
        assert!(
            summary(&done).contains("| user: hi; agent: which?; user: blue |"),
            "said once: {}",
            summary(&done)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_caller_is_left_alone() {
    let data = MemoryStore::default();
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Artifact("a", "x")]];
    let first = server(&data, ScriptedExecutor::turns(turns), false);
    let task = first.task("hi").await.unwrap();
    first.store.retire();
    let second = server(&data, ScriptedExecutor::steps([Step::Artifact("b", "y")]), false);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(second.get(&task.id).await.unwrap().status.state, TaskState::InputRequired);
    let done = second.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_stream_resumes_at_the_next_server_without_a_gap_or_a_repeat() {
    let data = MemoryStore::default();
    let first = server(&data, hangs(), true);
    let mut stream = first.stream("hi").await.unwrap();
    for line in ["1 task submitted", "2 status working", "3 artifact a +\"x\""] {
        assert_eq!(next_line(&mut stream).await, line);
    }
    first.store.retire();
    drop(stream);
    let second = server(&data, tells(), true);
    let list = second.runtime.list_tasks(&second.cx, ListTasksRequest::default()).await.unwrap();
    let resumed = second.calling(|cx| cx.last_event_id = Some(Seq(2)));
    let rest = lines(resumed.subscribe(&list.tasks[0].id).await.unwrap()).await;
    assert_eq!(
        rest,
        ["3 artifact a +\"x\"", "4 artifact t \"hi again=true Working\" last", "5 status completed"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_only_slow_is_stopped_when_its_task_is_taken_over() {
    // The fencing: it comes back, and finds that nothing it says counts.
    let data = MemoryStore::default();
    let ended = Dropped::default();
    let guard = ended.clone();
    let slow = ScriptedExecutor::new(move |_, out| {
        let guard = guard.guard();
        async move {
            let _guard = guard;
            loop {
                out.working().await?;
                tokio::time::sleep(secs(30)).await;
            }
        }
    });
    let first = server(&data, slow, false);
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    first.store.retire();
    let second = server(&data, tells(), false);
    let failed = second.until(&task.id, TaskState::Failed).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert!(ended.is_dropped(), "it learns that it is over");
    assert_eq!(second.get(&task.id).await.unwrap(), failed);
    assert_eq!(first.get(&task.id).await.unwrap(), failed, "and tells what is true");
}

#[tokio::test(start_paused = true)]
async fn of_two_living_servers_one_works_and_the_other_sees_it() {
    let data = MemoryStore::default();
    let ended = Dropped::default();
    let guard = ended.clone();
    let works = ScriptedExecutor::new(move |_, out| {
        let guard = guard.guard();
        async move {
            let _guard = guard;
            loop {
                out.working().await?;
                tokio::time::sleep(secs(1)).await;
            }
        }
    });
    let (first, second) = (server(&data, works, false), server(&data, tells(), false));
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    settle().await;

    let mut stream = second.subscribe(&task.id).await.unwrap();
    assert!(next_line(&mut stream).await.ends_with("task working"));
    assert!(next_line(&mut stream).await.ends_with("status working"), "as it goes on");

    // A cancel wins, wherever it comes in.
    assert_eq!(second.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(lines(stream).await.last().unwrap().split_once(' ').unwrap().1, "status canceled");
    tokio::time::sleep(secs(10)).await;
    assert!(ended.is_dropped(), "its agent is stopped");
    assert_eq!(first.get(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_at_the_next_server() {
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([]), false);
    for i in 0..5 {
        first.task(&*format!("hi {i}")).await.unwrap();
    }
    let request = ListTasksRequest { page_size: Some(2), ..ListTasksRequest::default() };
    let page = first.runtime.list_tasks(&first.cx, request.clone()).await.unwrap();
    let second = server(&data, ScriptedExecutor::steps([]), false);
    let request = ListTasksRequest { page_token: Some(page.next_page_token), ..request };
    let next = second.runtime.list_tasks(&second.cx, request).await.unwrap();
    assert_eq!((next.tasks.len(), next.total_size), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_are_forgotten_when_their_time_is_over_and_no_others() {
    let turns = [vec![Step::Completed], vec![Step::InputRequired("which?")], vec![Step::Working, Step::Hang]];
    let store = FailingStore::waiting(MemoryStore::default());
    let harness = Harness::of(card(), store, ScriptedExecutor::turns(turns), |builder| {
        builder.retention(Retention::finished(secs(0)))
    });
    let finished = harness.task("one").await.unwrap();
    let waits = harness.task("two").await.unwrap();
    let works = harness.begin("three").await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(refused(harness.get(&finished.id).await), ErrorKind::TaskNotFound);
    assert_eq!(harness.get(&waits.id).await.unwrap().status.state, TaskState::InputRequired);
    assert_eq!(harness.get(&works.id).await.unwrap().status.state, TaskState::Working);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_forgotten_by_the_state_that_is_named_but_never_in_progress() {
    let turns = [vec![Step::Completed], vec![Step::InputRequired("which?")], vec![Step::Working, Step::Hang]];
    let store = FailingStore::waiting(MemoryStore::default());
    let harness = Harness::of(card(), store, ScriptedExecutor::turns(turns), |builder| {
        let named = [TaskState::InputRequired, TaskState::Working];
        builder
            .retention(named.into_iter().fold(Retention::default(), |kept, state| kept.state(state, secs(0))))
    });
    let finished = harness.task("one").await.unwrap();
    let waits = harness.task("two").await.unwrap();
    let works = harness.begin("three").await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(harness.get(&finished.id).await.unwrap().status.state, TaskState::Completed);
    assert_eq!(refused(harness.get(&waits.id).await), ErrorKind::TaskNotFound);
    assert_eq!(harness.get(&works.id).await.unwrap().status.state, TaskState::Working);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_wants_to_be_gone_is_gone() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let store = FailingStore::waiting(MemoryStore::default());
    let executor = ScriptedExecutor::new(move |cx, out| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            out.working().await?;
            if cx.text() == "hang" {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let harness = Harness::of(card(), store, executor, |builder| builder);
    let (ann, bob) = (harness.as_caller("ann"), harness.as_caller("bob"));
    let done = ann.task("hi").await.unwrap();
    let works = ann.begin("hang").await.unwrap();
    ann.until(&works.id, TaskState::Working).await.unwrap();
    let other = bob.task("hi").await.unwrap();
    assert_eq!(harness.runtime.erase(None, &Caller::authenticated("ann")).await.unwrap(), 2);
    for id in [&done.id, &works.id] {
        assert_eq!(refused(ann.get(id).await), ErrorKind::TaskNotFound);
    }
    assert_eq!(bob.get(&other.id).await.unwrap().status.state, TaskState::Completed);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.runtime.running(), 0, "what ran is stopped");
}
