//! Messages to a task that exists.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use nuncio_server::{
    Limits,
    protocol::{ErrorKind, TaskState},
    testing::{Harness, Say, ScriptedExecutor, Step, summary},
};
use tokio::sync::Semaphore;

use crate::{refused, secs, settle};

fn asking() -> Harness {
    Harness::new(ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![]]))
}

#[tokio::test(start_paused = true)]
async fn the_context_is_inferred_and_a_wrong_one_is_refused() {
    // REQ-102, REQ-103
    let harness = asking();
    let task = harness.task("hi").await.unwrap();
    let wrong = Say::to(&task, "blue").change(|request| request.message.context_id = Some("other".into()));
    assert_eq!(refused(harness.task(wrong).await), ErrorKind::InvalidParams);
    assert_eq!(harness.get(&task.id).await.unwrap(), task, "untouched");
    let done = harness.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(summary(&done), "completed | user: hi; agent: which?; user: blue | ");
    assert_eq!(done.history[2].context_id.as_ref(), Some(&task.context_id));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_takes_no_message() {
    // REQ-098, from memory and from the store
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let task = harness.task("hi").await.unwrap();
    let error = harness.task(Say::to(&task, "more")).await.unwrap_err();
    assert_eq!((error.kind(), error.kind().row().code), (ErrorKind::UnsupportedOperation, -32004));
    assert_eq!(harness.get(&task.id).await.unwrap(), task, "and is not changed by it");
}

#[tokio::test(start_paused = true)]
async fn messages_queue_and_take_their_turns_in_order() {
    let (order, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
    let (seen, turn) = (Arc::clone(&order), Arc::clone(&gate));
    let harness = Harness::new(ScriptedExecutor::new(move |cx, out| {
        let (seen, turn) = (Arc::clone(&seen), Arc::clone(&turn));
        async move {
            let before = cx.task.as_ref().map_or(0, |task| task.history.len());
            seen.lock().unwrap().push(format!("{} after {before}", cx.text()));
            turn.acquire().await.unwrap().forget();
            out.input_required(format!("more than {}?", cx.text())).await.map(drop)
        }
    }));
    let task = harness.begin("0").await.unwrap();
    let answers = ["1", "2", "3"].map(|text| {
        let (harness, say) = (harness.clone(), Say::to(&task, text));
        tokio::spawn(async move { harness.task(say).await.unwrap() })
    });
    settle().await;
    assert_eq!(*order.lock().unwrap(), ["0 after 0"], "one at a time");
    gate.add_permits(4);
    let answers = join_all(answers).await;
    assert_eq!(*order.lock().unwrap(), ["0 after 0", "1 after 1", "2 after 3", "3 after 5"]);
    let first = answers[0].as_ref().unwrap();
    assert!(summary(first).contains("agent: more than 0?; user: 1"), "{}", summary(first));
    assert_eq!(
        summary(&harness.get(&task.id).await.unwrap()),
        "input-required \"more than 3?\" | user: 0; agent: more than 0?; user: 1; agent: more than 1?; user: 2; \
         agent: more than 2?; user: 3 | "
    );
}

#[tokio::test(start_paused = true)]
async fn messages_whose_task_ends_before_their_turn_are_refused_and_not_kept() {
    // Product table: -32004, not kept in history.
    let harness =
        Harness::new(ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(5)), Step::Completed]));
    let task = harness.begin("0").await.unwrap();
    settle().await;
    let waiting = ["1", "2"].map(|text| harness.task(Say::to(&task, text)));
    for answer in join_all(waiting).await {
        assert_eq!(refused(answer), ErrorKind::UnsupportedOperation);
    }
    assert_eq!(summary(&harness.get(&task.id).await.unwrap()), "completed | user: 0 | ");
}

#[tokio::test(start_paused = true)]
async fn a_message_reaches_a_task_that_waits_for_an_authorisation() {
    // REQ-196: while the agent still waits, it queues; when it has returned, it is the next turn.
    let turns = [vec![Step::AuthRequired("log in")], vec![Step::Artifact("a", "x")]];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::AuthRequired);
    let done = harness.task(Say::to(&task, "done")).await.unwrap();
    assert_eq!(summary(&done), "completed | user: hi; agent: log in; user: done | a \"x\"");
}

#[tokio::test(start_paused = true)]
async fn the_agent_sees_the_tasks_that_a_message_refers_to_as_far_as_they_are_the_callers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let references = Arc::clone(&seen);
    let harness = Harness::new(ScriptedExecutor::new(move |cx, _| {
        references.lock().unwrap().push(cx.references.iter().map(|task| task.id.clone()).collect::<Vec<_>>());
        std::future::ready(Ok(()))
    }));
    let (ann, bob) = (harness.as_caller("ann"), harness.as_caller("bob"));
    let (own, foreign) = (ann.task("one").await.unwrap(), bob.task("two").await.unwrap());
    let ids = vec![own.id.clone(), foreign.id, "t-unknown".into()];
    ann.task(Say::from("three").change(|request| request.message.reference_task_ids = ids)).await.unwrap();
    assert_eq!(seen.lock().unwrap()[2], [own.id]);
}

/// An agent at work on a task, and the task.
async fn busy(limits: Limits) -> (Harness, nuncio_server::protocol::Task) {
    let executor = ScriptedExecutor::turns([vec![Step::Working, Step::Hang]]);
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    (harness, task)
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_must_wait_is_not_waited_for_against_the_callers_will() {
    // REQ-096
    let (harness, task) = busy(Limits::default()).await;
    let now = harness.task(Say::to(&task, "more").immediately()).await.unwrap();
    assert_eq!(now.status.state, TaskState::Working);

    let ceiling = Limits { blocking_ceiling: secs(60), ..Limits::default() };
    let (harness, task) = busy(ceiling).await;
    let after_a_minute = harness.task(Say::to(&task, "more")).await.unwrap();
    assert_eq!(after_a_minute.status.state, TaskState::Working);
    assert_eq!(after_a_minute.history.len(), 1, "it waits for its turn");
}

#[tokio::test(start_paused = true)]
async fn a_task_takes_only_so_many_messages() {
    let limits = Limits { history: 3, ..Limits::default() };
    let executor = ScriptedExecutor::steps([Step::InputRequired("which?")]);
    let harness = Harness::with(executor, |builder| builder.limits(limits));
    let task = harness.task("hi").await.unwrap();
    harness.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(refused(harness.task(Say::to(&task, "red")).await), ErrorKind::ResourceExhausted);
}

/// Otherwise the answer would wait for an agent that waits for the answer.
#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_on_after_it_has_asked_learns_that_an_answer_waits() {
    let harness = Harness::new(ScriptedExecutor::new(|cx, out| async move {
        if cx.task.is_none() {
            out.auth_required("log in").await?;
            out.until_follow_up().await;
            return Ok(());
        }
        out.completed().await.map(drop)
    }));
    let asked = harness.task("1").await.unwrap();
    settle().await;
    assert_eq!(harness.runtime.running(), 1, "it goes on, and nobody has answered");
    let done = harness.task(Say::to(&asked, "2")).await.unwrap();
    assert_eq!(summary(&done), "completed | user: 1; agent: log in; user: 2 | ");
}
