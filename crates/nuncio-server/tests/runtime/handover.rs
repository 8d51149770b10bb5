//! Turns that another server hands over: the events come back, the task stays there.

use std::sync::{Arc, Mutex};

use nuncio_server::{
    EarlierLimit, Execution, HandedTurn, Runtime, TurnRun,
    protocol::{
        Artifact, CallContext, Caller, ErrorKind, Event, Message, Part, SendMessageConfiguration, StreamItem,
        Task, TaskState, TaskStatus, Timestamp, Version,
    },
    testing::{ScriptedExecutor, Step, card, line},
};

use crate::{Dropped, refused, secs};

fn turn(text: &str) -> HandedTurn {
    HandedTurn {
        task_id: "theirs".into(),
        context_id: "conversation".into(),
        message: Message::user("m", Part::text(text)),
        task: None,
        earlier: Vec::new(),
        references: Vec::new(),
        configuration: SendMessageConfiguration::default(),
        metadata: Default::default(),
        call: CallContext { caller: Caller::authenticated("ann"), ..CallContext::new(Version::V1_0) },
        repeat_id: Some("repeat".into()),
        resumed: false,
        memo: None,
    }
}

fn task(state: TaskState) -> Task {
    Task {
        id: "theirs".into(),
        context_id: "conversation".into(),
        status: TaskStatus { state, message: None, timestamp: None },
        history: vec![Arc::new(Message::user("m0", Part::text("first")))],
        ..Task::default()
    }
}

/// The events and memos of a turn, a line each.
async fn told(mut run: TurnRun) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(entry) = run.next().await {
        told.extend(entry.memo.map(|memo| format!("memo {}", String::from_utf8_lossy(&memo))));
        told.push(line(&Ok(StreamItem::new(None, entry.event)))[2..].to_owned());
    }
    told
}

fn runtime(executor: ScriptedExecutor) -> Runtime {
    Runtime::builder(card(), executor).build()
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_turn_come_back_in_order_with_their_memos() {
    let runtime = runtime(ScriptedExecutor::new(|cx: nuncio_server::ExecContext, out| async move {
        assert_eq!((cx.task_id.as_str(), cx.context_id.as_str()), ("theirs", "conversation"));
        assert_eq!(cx.repeat_id.as_deref(), Some("repeat"));
        out.working().await?;
        out.remember("half")?;
        out.artifact(Artifact::new("a", Part::text("x"))).await?;
        out.completed().await.map(drop)
    }));
    let told = told(runtime.run_turn(turn("hi")).await.unwrap()).await;
    assert_eq!(told, ["status working", "memo half", "artifact a \"x\" last", "status completed"]);
    assert_eq!(runtime.live_tasks(), 0, "it is not a task of this runtime");
}

/// Each way in which an executor can end is an end for the other server as well.
#[tokio::test(start_paused = true)]
async fn every_end_is_told() {
    for (steps, expected) in [
        (&[Step::Working][..], "status completed"),
        (&[Step::Reply("hello")], "status completed \"hello\""),
        (&[Step::Fail("no")], "status failed \"no\""),
        (&[Step::Working, Step::InputRequired("which?")], "status input-required \"which?\""),
        (&[Step::Working, Step::Panic("broken")], "status failed \"the agent failed unexpectedly\""),
    ] {
        let runtime = runtime(ScriptedExecutor::steps(steps));
        let told = told(runtime.run_turn(turn("hi")).await.unwrap()).await;
        assert_eq!(told.last().map(String::as_str), Some(expected), "{steps:?}: {told:?}");
    }
}

/// A follow-up sees the task before its message, a resumed turn all that an earlier run has said, and both the memo.
#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_where_the_task_is() {
    for (resumed, state, messages) in [(false, TaskState::InputRequired, 1), (true, TaskState::Working, 1)] {
        let seen = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&seen);
        let runtime = runtime(ScriptedExecutor::new(move |cx: nuncio_server::ExecContext, out| {
            let Execution { task, memo, resumed, .. } = &*cx;
            let before = task.as_ref().map(|task| (task.status.state, task.history.len()));
            *shared.lock().unwrap() = Some((before, memo.clone(), *resumed));
            async move { out.completed().await.map(drop) }
        }));
        let handed =
            HandedTurn { task: Some(task(state)), memo: Some("kept".into()), resumed, ..turn("second") };
        let told = told(runtime.run_turn(handed).await.unwrap()).await;
        assert_eq!(told, ["status completed"], "{resumed}");
        let expected = (Some((state, messages)), Some("kept".into()), resumed);
        assert_eq!(seen.lock().unwrap().take(), Some(expected), "{resumed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_gets_no_turn() {
    let runtime = runtime(ScriptedExecutor::steps([Step::Completed]));
    let handed = HandedTurn { task: Some(task(TaskState::Completed)), ..turn("more") };
    assert_eq!(refused(runtime.run_turn(handed).await), ErrorKind::UnsupportedOperation);
}

#[tokio::test(start_paused = true)]
async fn the_conversation_comes_with_the_turn() {
    let runtime = runtime(ScriptedExecutor::new(|cx: nuncio_server::ExecContext, out| async move {
        let earlier = cx.earlier(EarlierLimit::default()).await?;
        let ids: Vec<_> = earlier.iter().map(|task| task.id.to_string()).collect();
        out.artifact(Artifact::new("a", Part::text(ids.join(" ")))).await.map(drop)
    }));
    let earlier = ["one", "two", "three"].into_iter().zip(1..).map(|(id, at)| {
        let status =
            TaskStatus { timestamp: Timestamp::from_millis(at), ..task(TaskState::Completed).status };
        Task { id: id.into(), status, ..task(TaskState::Completed) }
    });
    let handed = HandedTurn { earlier: earlier.collect(), ..turn("hi") };
    let told = told(runtime.run_turn(handed).await.unwrap()).await;
    assert_eq!(told[0], "artifact a \"one two three\" last");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_agent_and_its_end_is_told() {
    let runtime = runtime(ScriptedExecutor::new(|cx: nuncio_server::ExecContext, out| async move {
        out.working().await?;
        cx.cancellation.cancelled().await;
        assert!(out.is_canceled());
        tokio::time::sleep(secs(1)).await;
        Ok(())
    }));
    let mut run = runtime.run_turn(turn("hi")).await.unwrap();
    assert!(matches!(&*run.next().await.unwrap().event, Event::StatusUpdate(_)));
    run.cancel();
    assert_eq!(told(run).await, ["status canceled"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_turn_is_dropped_is_stopped_but_not_canceled() {
    let stopped = Dropped::default();
    let flag = stopped.clone();
    let runtime = runtime(ScriptedExecutor::new(move |cx: nuncio_server::ExecContext, out| {
        let flag = flag.guard();
        async move {
            let _flag = flag;
            out.working().await?;
            cx.cancellation.cancelled().await;
            assert!(!out.is_canceled());
            Ok(())
        }
    }));
    let mut run = runtime.run_turn(turn("hi")).await.unwrap();
    run.next().await.unwrap();
    drop(run);
    crate::settle().await;
    assert!(stopped.is_dropped());
}
