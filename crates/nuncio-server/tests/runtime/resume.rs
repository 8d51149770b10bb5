//! `Last-Event-ID`: the events after it, no snapshot first.

use nuncio_server::{
    protocol::{
        A2aService as _, Artifact, ErrorKind, EventStream, ListTasksRequest, Part, Result, Seq, TaskId,
        TaskState,
    },
    testing::{Harness, Say, ScriptedExecutor, Step, lines, next_line},
};

use crate::{refused, secs};

async fn after(harness: &Harness, id: &TaskId, seq: u64) -> Result<EventStream> {
    harness.calling(|cx| cx.last_event_id = Some(Seq(seq))).subscribe(id).await
}

#[tokio::test(start_paused = true)]
async fn a_live_task_goes_on_after_the_last_event() {
    let harness = Harness::new(ScriptedExecutor::steps([
        Step::Working,
        Step::Sleep(secs(5)),
        Step::Artifact("a", "x"),
    ]));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    let rest = ["2 status working", "3 artifact a \"x\" last", "4 status completed"];
    let streams = [0, 1, 2].map(|seq| after(&harness, &task.id, seq));
    let [all, one, two] = futures_util::future::join_all(streams).await.try_into().ok().unwrap();
    assert_eq!(lines(all.unwrap()).await, [&["1 task submitted"], &rest[..]].concat());
    assert_eq!(lines(one.unwrap()).await, rest);
    assert_eq!(lines(two.unwrap()).await, rest[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_gives_the_rest_and_closes() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working]));
    let task = harness.task("hi").await.unwrap();
    let all = ["1 task submitted", "2 status working", "3 status completed"];
    for seen in 0..=3 {
        let stream = after(&harness, &task.id, seen as u64).await.unwrap();
        assert_eq!(lines(stream).await, all[seen..], "after {seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_beyond_the_log_is_an_error() {
    let harness = Harness::new(ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![]]));
    let task = harness.task("hi").await.unwrap();
    for seq in [3, 4, u64::MAX] {
        assert_eq!(refused(after(&harness, &task.id, seq).await), ErrorKind::InvalidParams, "waiting, {seq}");
    }
    harness.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(refused(after(&harness, &task.id, 5).await), ErrorKind::InvalidParams, "ended");
    assert_eq!(refused(after(&harness, &"t-unknown".into(), 1).await), ErrorKind::TaskNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_long_log_is_read_from_any_place() {
    const PIECES: u64 = 1_000;
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        for i in 0..PIECES {
            out.chunk(Artifact::new("a", Part::text(i.to_string())), true, false).await?;
        }
        tokio::time::sleep(secs(5)).await;
        out.input_required("more?").await.map(drop)
    }));
    let task = harness.begin("hi").await.unwrap();
    tokio::time::sleep(secs(1)).await;
    // Live: beyond the ring, within it, and at the end.
    for seen in [1, 5, 500, 900, 1_001] {
        let mut stream = after(&harness, &task.id, seen).await.unwrap();
        for expected in seen + 1..=PIECES + 1 {
            let line = next_line(&mut stream).await;
            assert!(line.starts_with(&format!("{expected} artifact")), "after {seen}: {line}");
        }
        drop(stream);
    }
    harness.until(&task.id, TaskState::InputRequired).await.unwrap();
    harness.cancel(&task.id).await.unwrap();
    for seen in [0, 129, 256, 1_002] {
        let rest = lines(after(&harness, &task.id, seen).await.unwrap()).await;
        assert_eq!(rest.len() as u64, PIECES + 3 - seen, "after {seen}");
        assert_eq!(rest.last().unwrap(), "1003 status canceled");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_said_leaves_a_gap_in_the_ids_and_none_in_the_log() {
    let harness =
        Harness::new(ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![Step::Working]]));
    let task = harness.task("hi").await.unwrap();
    harness.task(Say::to(&task, "blue")).await.unwrap();
    let rest = lines(after(&harness, &task.id, 2).await.unwrap()).await;
    assert_eq!(rest, ["4 status working", "5 status completed"]);
    let rest = lines(after(&harness, &task.id, 3).await.unwrap()).await;
    assert_eq!(rest, ["4 status working", "5 status completed"], "the gap itself is a good place");
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.tasks.len(), 1);
}
