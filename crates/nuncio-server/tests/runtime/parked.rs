//! Parked tasks, tasks that a server begins by itself, and messages that are held back.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use nuncio_server::{
    Execution, HeldMessage,
    protocol::{
        A2aService as _, ErrorKind, ListTasksRequest, Message, Part, Role, TaskId, TaskState, Timestamp,
    },
    store::{Expect, MemoryStore, PutRecord, RecordChange, Records as _, Scope},
    testing::{FailingStore, Harness, Say, ScriptedExecutor, card, lines, next_line, summary},
};

use crate::{refused, settle};

fn scope() -> Arc<Scope> {
    Arc::new(Scope { agent: card().name.into(), ..Scope::default() })
}

fn record(value: &'static str, expect: Expect) -> PutRecord {
    let value = Bytes::from_static(value.as_bytes());
    PutRecord { kind: "lease".into(), key: "1".into(), value, at: Timestamp::EPOCH, expect }
}

/// Says that it waits, and parks the task.
fn waits() -> ScriptedExecutor {
    ScriptedExecutor::new(|_, out| async move {
        out.park()?;
        out.status(TaskState::Submitted, vec![Part::text("waits for a worker")]).await.map(drop)
    })
}

#[tokio::test(start_paused = true)]
async fn a_parked_task_costs_no_memory_and_goes_on_from_outside() {
    let harness = Harness::new(waits());
    let task = harness.begin("hi").await.unwrap();
    settle().await;
    let parked = harness.get(&task.id).await.unwrap();
    assert_eq!(summary(&parked), "submitted \"waits for a worker\" | user: hi | ");
    assert_eq!((harness.runtime.live_tasks(), harness.runtime.running()), (0, 0));
    let out = harness.runtime.write_to(&scope(), &task.id).await.unwrap();
    out.working().await.unwrap();
    out.flush().await.unwrap();
    drop(out);
    assert_eq!(harness.runtime.live_tasks(), 0, "parked again");
    let out = harness.runtime.write_to(&scope(), &task.id).await.unwrap();
    out.text("a", "done").await.unwrap();
    out.completed().await.unwrap();
    assert_eq!(harness.get(&task.id).await.unwrap().status.state, TaskState::Completed);
    assert_eq!(refused(out.working().await), ErrorKind::UnsupportedOperation);
    let unknown = harness.runtime.write_to(&scope(), &"unknown".into()).await;
    assert_eq!(refused(unknown), ErrorKind::TaskNotFound);
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_parked_task_and_follow_it() {
    let harness = Harness::new(waits());
    let caller = harness.clone();
    let blocking = tokio::spawn(async move { caller.task("hi").await.unwrap() });
    settle().await;
    let mut stream = harness.stream("follow").await.unwrap();
    assert!(next_line(&mut stream).await.contains("submitted"));
    let page = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(page.tasks.len(), 2);
    for task in &page.tasks {
        let out = harness.runtime.write_to(&scope(), &task.id).await.unwrap();
        out.completed().await.unwrap();
    }
    assert_eq!(blocking.await.unwrap().status.state, TaskState::Completed);
    assert!(lines(stream).await.last().unwrap().contains("completed"));
}

#[tokio::test(start_paused = true)]
async fn a_parked_task_is_not_taken_up_by_the_next_server() {
    for idempotent in [false, true] {
        let data = MemoryStore::default();
        let server = |executor| {
            let store = FailingStore::waiting(data.another());
            Harness::of(card(), store, executor, |builder| builder.idempotent(idempotent))
        };
        let first = server(waits());
        let task = first.begin("hi").await.unwrap();
        settle().await;
        first.store.retire();
        let second =
            server(ScriptedExecutor::new(|_, out| async move { out.failed("ran again").await.map(drop) }));
        for _ in 0..10 {
            tokio::time::advance(crate::secs(2)).await;
            settle().await;
        }
        assert_eq!(second.get(&task.id).await.unwrap().status.state, TaskState::Submitted, "{idempotent}");
        let out = second.runtime.write_to(&scope(), &task.id).await.unwrap();
        out.completed().await.unwrap();
        out.flush().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_record_has_changed_writes_nothing() {
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        out.park()?;
        out.put_record(record("generation 1", Expect::Absent))?;
        out.status(TaskState::Submitted, Vec::new()).await.map(drop)
    }));
    let task = harness.begin("hi").await.unwrap();
    settle().await;
    let taken_over =
        harness.store.put_records(vec![record("generation 2", Expect::Version(1))]).await.unwrap();
    assert_eq!(taken_over, [Ok(2)]);
    let stale = harness.runtime.write_to(&scope(), &task.id).await.unwrap();
    stale.put_record(record("line 1", Expect::Version(1))).unwrap();
    let written = async {
        stale.working().await?;
        stale.flush().await
    };
    assert_eq!(refused(written.await), ErrorKind::Unavailable);
    assert_eq!(harness.get(&task.id).await.unwrap().status.state, TaskState::Submitted);
    let holder = harness.runtime.write_to(&scope(), &task.id).await.unwrap();
    holder.put_record(record("line 1", Expect::Version(2))).unwrap();
    holder.working().await.unwrap();
    holder.delete_record("lease".into(), "1".into(), 3).unwrap();
    holder.completed().await.unwrap();
    holder.flush().await.unwrap();
    assert_eq!(harness.store.record("lease", "1").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_parked_task_is_executed_at_once_and_may_park_it_again() {
    let harness = Harness::new(ScriptedExecutor::new(|cx, out| async move {
        out.park()?;
        if cx.task.is_none() { out.working().await.map(drop) } else { Ok(()) }
    }));
    let task = harness.begin("hi").await.unwrap();
    settle().await;
    harness.begin(Say::to(&task, "more")).await.unwrap();
    settle().await;
    let parked = harness.get(&task.id).await.unwrap();
    assert_eq!(summary(&parked), "working | user: hi; user: more | ");
    assert_eq!(harness.runtime.live_tasks(), 0, "the status was repeated, and parked");
}

#[tokio::test(start_paused = true)]
async fn a_parked_task_is_canceled_through_its_executor() {
    let told = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&told);
    let executor = waits().on_cancel(move |cx: nuncio_server::ExecContext| {
        counter.fetch_add(usize::from(cx.task.is_some()), Ordering::SeqCst);
        std::future::ready(Ok(()))
    });
    let harness = Harness::new(executor);
    let task = harness.begin("hi").await.unwrap();
    settle().await;
    assert_eq!(harness.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert!(harness.runtime.write_to(&scope(), &task.id).await.unwrap().working().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_begins_a_task_for_a_principal() {
    let harness = Harness::new(waits());
    let bob = Arc::new(Scope { owner: Some("bob".into()), ..(*scope()).clone() });
    let message = Message { role: Role::Agent, ..Message::user("m-1", Part::text("hello")) };
    for history in [None, Some(Arc::new(message))] {
        let id: TaskId = if history.is_some() { "t-2" } else { "t-1" }.into();
        let out = harness.runtime.begin_task(&bob, id.clone(), "c-1".into(), history.clone()).unwrap();
        out.input_required("your turn").await.unwrap();
        out.flush().await.unwrap();
        let seen = harness.as_caller("bob").get(&id).await.unwrap();
        let said = if history.is_some() { "agent: hello" } else { "" };
        assert_eq!(summary(&seen), format!("input-required \"your turn\" | {said} | "));
        assert_eq!(refused(harness.as_caller("ann").get(&id).await), ErrorKind::TaskNotFound);
        let twice = harness.runtime.begin_task(&bob, id, "c-1".into(), history);
        assert_eq!(refused(twice), ErrorKind::Unavailable);
    }
    let again = harness.runtime.begin_task(&bob, "t-1".into(), "c-1".into(), None).unwrap();
    again.input_required("again").await.ok();
    assert!(again.flush().await.is_err(), "the task exists");
}

/// Holds the first messages back, and answers them when they are run.
fn holds(held: &Arc<parking_lot::Mutex<Vec<Bytes>>>, messages: usize) -> ScriptedExecutor {
    let (held, seen) = (Arc::clone(held), AtomicUsize::new(0));
    ScriptedExecutor::new(move |cx, out| {
        let (held, seen) = (Arc::clone(&held), seen.fetch_add(1, Ordering::SeqCst));
        async move {
            if seen < messages {
                held.lock().push(Execution::hold(&cx)?);
                return out.auth_required("waits for consent").await.map(drop);
            }
            out.text("a", format!("{} {}", cx.text(), cx.task.is_some())).await?;
            if cx.text() == "last" { Ok(()) } else { out.input_required("more").await.map(drop) }
        }
    })
}

fn let_go(held: &parking_lot::Mutex<Vec<Bytes>>) -> Vec<HeldMessage> {
    held.lock().iter().map(|held| HeldMessage { held: held.clone(), records: Vec::new() }).collect()
}

#[tokio::test(start_paused = true)]
async fn held_messages_are_executed_later_in_order_and_once() {
    for (waiting, said) in [(false, &["last"][..]), (true, &["last"]), (true, &["one", "last"])] {
        let data = MemoryStore::default();
        let held = Arc::default();
        let store = if waiting { FailingStore::waiting(data) } else { data.into() };
        let harness = Harness::of(card(), store, holds(&held, said.len()), |builder| builder);
        let mut task = harness.task(said[0]).await.unwrap();
        for said in &said[1..] {
            task = harness.task(Say::to(&task, said)).await.unwrap();
        }
        assert_eq!(task.status.state, TaskState::AuthRequired);
        assert!(harness.runtime.run_held(&scope(), &task.id, let_go(&held)).await.unwrap());
        let done = harness.until(&task.id, TaskState::Completed).await.unwrap();
        let texts: Vec<_> = done.artifacts.iter().map(|artifact| artifact.text().to_string()).collect();
        let wanted: Vec<_> =
            said.iter().enumerate().map(|(number, said)| format!("{said} {}", number > 0)).collect();
        assert_eq!(texts, wanted);
        assert!(
            !harness.runtime.run_held(&scope(), &task.id, let_go(&held)).await.unwrap(),
            "the task has ended"
        );
    }
}

/// A repeat after a crash, or of another server, is refused by the record, also when the task is interrupted again.
#[tokio::test(start_paused = true)]
async fn a_held_message_whose_record_has_changed_is_not_executed() {
    let held = Arc::default();
    let harness = Harness::new(holds(&held, 1));
    let task = harness.task("one").await.unwrap();
    let message = || {
        let records = vec![RecordChange::Put(record("let go", Expect::Absent))];
        let_go(&held).into_iter().map(|held| HeldMessage { records: records.clone(), ..held }).collect()
    };
    assert!(harness.runtime.run_held(&scope(), &task.id, message()).await.unwrap());
    let asked = harness.until(&task.id, TaskState::InputRequired).await.unwrap();
    let repeat = harness.runtime.run_held(&scope(), &task.id, message()).await;
    assert_eq!(refused(repeat), ErrorKind::Unavailable);
    settle().await;
    let after = harness.get(&task.id).await.unwrap();
    assert_eq!((summary(&after), after.artifacts.len()), (summary(&asked), 1));
}

#[tokio::test(start_paused = true)]
async fn a_held_message_that_was_let_go_survives_its_server() {
    let data = MemoryStore::default();
    let held = Arc::default();
    let server = |executor| {
        Harness::of(card(), FailingStore::waiting(data.another()), executor, |builder| {
            builder.idempotent(true)
        })
    };
    let first = server(holds(&held, 1));
    let task = first.task("one").await.unwrap();
    // The server stops before the decision.
    first.store.retire();
    let second =
        server(ScriptedExecutor::new(|cx, out| async move { out.text("a", cx.text()).await.map(drop) }));
    assert!(second.runtime.run_held(&scope(), &task.id, let_go(&held)).await.unwrap());
    let done = second.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(done.artifacts[0].text(), "one");
}
