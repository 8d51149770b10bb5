//! SendMessage: what it waits for, what it answers, and what becomes of the agent's words.

use std::sync::{Arc, Mutex};

use nuncio_server::{
    Limits,
    protocol::{
        A2aService as _, Error, ErrorKind, GetTaskRequest, ListTasksRequest, SendMessageResponse, Task,
        TaskState,
    },
    testing::{Harness, STORE_SECRET, Say, ScriptedExecutor, Step, lines, next_line, summary},
};

use crate::{refused, secs, settle};

async fn check(steps: &[Step], expected: &str) {
    let harness = Harness::new(ScriptedExecutor::steps(steps));
    let task = harness.task("hi").await.unwrap();
    assert_eq!(summary(&task), expected, "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_send_waits_until_the_task_is_terminal_or_interrupted() {
    // REQ-094, REQ-095
    check(&[], "completed | user: hi | ").await;
    check(&[Step::Working, Step::Artifact("a", "x")], "completed | user: hi | a \"x\"").await;
    check(&[Step::Sleep(secs(60)), Step::Working, Step::Sleep(secs(60))], "completed | user: hi | ").await;
    check(&[Step::Working, Step::InputRequired("which?")], "input-required \"which?\" | user: hi | ").await;
    check(&[Step::AuthRequired("log in"), Step::Sleep(secs(9))], "auth-required \"log in\" | user: hi | ")
        .await;
    check(&[Step::Append("a", "x"), Step::Append("a", "y")], "completed | user: hi | a \"xy\"").await;
}

#[tokio::test(start_paused = true)]
async fn a_blocking_send_has_a_ceiling_and_the_task_goes_on() {
    // Trap T-03
    let limits = Limits { blocking_ceiling: secs(30), ..Limits::default() };
    for (steps, expected) in [
        (vec![Step::Working, Step::Sleep(secs(60)), Step::Artifact("a", "x")], "working | user: hi | "),
        (vec![Step::Sleep(secs(60)), Step::Artifact("a", "x")], "submitted | user: hi | "),
    ] {
        let harness = Harness::with(ScriptedExecutor::steps(steps), |builder| builder.limits(limits.clone()));
        let task = harness.task("hi").await.unwrap();
        assert_eq!(summary(&task), expected);
        let done = harness.until(&task.id, TaskState::Completed).await.unwrap();
        assert_eq!(summary(&done), "completed | user: hi | a \"x\"");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_comes_after_the_ceiling_completes_the_task_that_was_made_for_it() {
    let limits = Limits { blocking_ceiling: secs(30), ..Limits::default() };
    let steps = [Step::Sleep(secs(60)), Step::Reply("late")];
    let harness = Harness::with(ScriptedExecutor::steps(steps), |builder| builder.limits(limits));
    let task = harness.task("hi").await.unwrap();
    let done = harness.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(summary(&done), "completed \"late\" | user: hi | ");
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_deadline_counts_before_the_ceiling() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let deadline = (tokio::time::Instant::now() + secs(2)).into_std();
    let task = harness.calling(|cx| cx.deadline = Some(deadline)).task("hi").await.unwrap();
    assert_eq!(summary(&task), "working | user: hi | ");
}

#[tokio::test(start_paused = true)]
async fn return_immediately_answers_before_the_agent_has_said_anything() {
    // REQ-096
    let harness = Harness::new(ScriptedExecutor::steps([Step::Sleep(secs(1)), Step::Working]));
    let task = harness.begin("hi").await.unwrap();
    assert_eq!(summary(&task), "submitted | user: hi | ");
    harness.until(&task.id, TaskState::Completed).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn return_immediately_leaves_a_quick_message_a_message() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Reply("hello")]));
    for key in [None, Some("k")] {
        let caller = harness.calling(|cx| cx.idempotency_key = key.map(str::to_owned));
        let reply = caller.send(Say::from("hi").immediately()).await.unwrap();
        let SendMessageResponse::Message(reply) = reply else { panic!("a task") };
        assert_eq!(reply.text(), "hello");
    }
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.total_size, 0);
}

#[tokio::test(start_paused = true)]
async fn ids_are_made_by_the_server_and_contexts_are_kept_or_made() {
    // REQ-100, REQ-101
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let (one, two) = (harness.task("hi").await.unwrap(), harness.task("hi").await.unwrap());
    assert_ne!(one.id, two.id);
    assert!(!one.context_id.is_empty());
    assert_ne!(one.context_id, two.context_id);
    let own = Say::from("hi").change(|request| request.message.context_id = Some("mine".into()));
    let task = harness.task(own).await.unwrap();
    assert_eq!(task.context_id.as_str(), "mine");
    assert_eq!(task.history[0].context_id, Some("mine".into()), "trap T-42");
    assert_eq!(task.history[0].task_id, Some(task.id));
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_is_the_whole_answer_and_leaves_nothing_behind() {
    // REQ-093, REQ-134
    let harness = Harness::new(ScriptedExecutor::steps([Step::Reply("hello")]));
    let SendMessageResponse::Message(reply) = harness.send("hi").await.unwrap() else { panic!("a task") };
    assert_eq!(reply.text(), "hello");
    assert!(reply.context_id.is_some() && reply.task_id.is_none());
    assert_eq!(lines(harness.stream("hi").await.unwrap()).await, ["- message \"hello\""]);
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.total_size, 0);
    settle().await;
    assert_eq!(harness.runtime.live_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_a_direct_reply() {
    let outcome = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&outcome);
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| {
        let seen = Arc::clone(&seen);
        async move {
            out.message(nuncio_server::protocol::Part::text("hello")).await?;
            let more = out.working().await.map_err(|error| error.kind());
            seen.lock().unwrap().push(more);
            out.submitted().await
        }
    }));
    assert!(matches!(harness.send("hi").await.unwrap(), SendMessageResponse::Message(_)));
    settle().await;
    assert_eq!(*outcome.lock().unwrap(), [Err(ErrorKind::InvalidAgentResponse)]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fails_after_its_reply_leaves_no_task() {
    // The end of the execution was recorded as a failed task that nobody had asked for.
    for end in [Step::Fail("too late"), Step::Panic("too late"), Step::Working] {
        let harness = Harness::new(ScriptedExecutor::steps([Step::Reply("hello"), end]));
        assert!(matches!(harness.send("hi").await.unwrap(), SendMessageResponse::Message(_)));
        settle().await;
        let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
        assert_eq!(list.total_size, 0, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_a_task_that_exists_completes_it() {
    // Trap T-50: once a task exists, the answer is a task.
    for steps in [vec![Step::Submitted, Step::Reply("done")], vec![Step::Working, Step::Reply("done")]] {
        let harness = Harness::new(ScriptedExecutor::steps(steps));
        assert_eq!(summary(&harness.task("hi").await.unwrap()), "completed \"done\" | user: hi | ");
    }
    let harness = Harness::new(ScriptedExecutor::steps([Step::Sleep(secs(1)), Step::Reply("done")]));
    let task = harness.begin("hi").await.unwrap();
    let task = harness.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(summary(&task), "completed \"done\" | user: hi | ");
    let message = task.status.message.unwrap();
    assert_eq!(
        (message.task_id.as_ref(), message.context_id.as_ref()),
        (Some(&task.id), Some(&task.context_id))
    );

    let turns = [vec![Step::InputRequired("which?")], vec![Step::Reply("blue it is")]];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    let task = harness.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(summary(&task), "completed \"blue it is\" | user: hi; agent: which?; user: blue | ");
}

#[tokio::test(start_paused = true)]
async fn words_of_a_status_move_to_history_when_the_next_status_comes() {
    // Contradiction C-19
    let turns = [
        vec![Step::AuthRequired("log in"), Step::Working, Step::InputRequired("which?")],
        vec![Step::Working, Step::InputRequired("sure?")],
        vec![],
    ];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let one = harness.stream("hi").await.unwrap();
    assert_eq!(lines(one).await.last().unwrap(), "4 status input-required \"which?\"");
    let list = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    let task = &list.tasks[0];
    assert_eq!(summary(task), "input-required \"which?\" | user: hi; agent: log in | ");
    let two = harness.task(Say::to(task, "blue")).await.unwrap();
    assert_eq!(
        summary(&two),
        "input-required \"sure?\" | user: hi; agent: log in; agent: which?; user: blue | "
    );
    let three = harness.task(Say::to(task, "yes")).await.unwrap();
    assert_eq!(
        summary(&three),
        "completed | user: hi; agent: log in; agent: which?; user: blue; agent: sure?; user: yes | "
    );
}

#[tokio::test(start_paused = true)]
async fn history_length_keeps_the_most_recent_messages_everywhere() {
    // REQ-108, REQ-113 to REQ-116
    let steps = || vec![Step::InputRequired("q")];
    let full = "user: 1; agent: q; user: 2";
    for (length, expected) in [(None, full), (Some(9), full), (Some(2), "agent: q; user: 2"), (Some(0), "")] {
        let harness = Harness::new(ScriptedExecutor::turns([steps(), steps(), steps()]));
        let task = harness.task("1").await.unwrap();
        let history = |task: &Task| summary(task).split(" | ").nth(1).unwrap().to_owned();
        let with = |say: Say| length.map_or(say.clone(), |length| say.history(length));

        let sent = harness.task(with(Say::to(&task, "2"))).await.unwrap();
        assert_eq!(history(&sent), expected, "send {length:?}");
        let get = GetTaskRequest { id: task.id.clone(), history_length: length, ..GetTaskRequest::default() };
        let got = harness.runtime.get_task(&harness.cx, get).await.unwrap();
        assert_eq!(history(&got), expected, "get {length:?}");
        let list = ListTasksRequest { history_length: length, ..ListTasksRequest::default() };
        let listed = harness.runtime.list_tasks(&harness.cx, list).await.unwrap();
        assert_eq!(history(&listed.tasks[0]), expected, "list {length:?}");

        let mut stream = harness.stream(with(Say::to(&task, "3"))).await.unwrap();
        let first = futures_util::StreamExt::next(&mut stream).await.unwrap().unwrap();
        let nuncio_server::protocol::Event::Task(task) = &**first.event() else { panic!("no task first") };
        let kept = task.history.len() as i32;
        assert!(length.is_none_or(|length| kept <= length), "stream {length:?}: {kept}");
    }
    let harness = Harness::new(ScriptedExecutor::steps([]));
    assert_eq!(refused(harness.task(Say::from("hi").history(-1)).await), ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fails_or_panics_fails_the_task_with_a_reason() {
    // Pain 18, invariant 10: the words for people are shown, the cause is not.
    for (steps, expected) in [
        (vec![Step::Fail("no paper")], "failed \"no paper\" | user: hi | "),
        (vec![Step::Working, Step::Fail("no paper")], "failed \"no paper\" | user: hi | "),
        (vec![Step::Panic(STORE_SECRET)], "failed \"the agent failed unexpectedly\" | user: hi | "),
        (
            vec![Step::Working, Step::Panic(STORE_SECRET)],
            "failed \"the agent failed unexpectedly\" | user: hi | ",
        ),
    ] {
        let harness = Harness::new(ScriptedExecutor::steps(steps.clone()));
        let task = harness.task("hi").await.unwrap();
        assert_eq!(summary(&task), expected);
        assert!(!format!("{task:?}").contains(STORE_SECRET), "{steps:?}");
        assert_eq!(harness.get(&task.id).await.unwrap(), task);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_agent_refuses_gets_its_error_and_makes_no_task() {
    let dull = || Error::invalid_field("message.parts", "too dull").with_retry_after(secs(3));
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| async move { out.refuse(dull()) }));
    for error in [harness.task("hi").await.unwrap_err(), harness.stream("hi").await.err().unwrap()] {
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::InvalidParams, Some(secs(3))));
        assert_eq!(error.violations(), dull().violations());
    }
    let listed = harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(listed.tasks, []);
    settle().await;
    assert_eq!(harness.runtime.live_tasks(), 0);
    // Who does not wait is told the same if it comes at once; otherwise there is a task, which fails with these words.
    assert_eq!(harness.begin("hi").await.unwrap_err().violations(), dull().violations());
    let harness = Harness::new(ScriptedExecutor::new(move |_, out| async move {
        tokio::time::sleep(secs(1)).await;
        out.refuse(dull())
    }));
    let task = harness.begin("hi").await.unwrap();
    let failed = harness.until(&task.id, TaskState::Failed).await.unwrap();
    assert_eq!(failed.status.message.unwrap().text(), dull().message());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_after_it_completed_has_completed() {
    for end in [Step::Fail("late"), Step::Panic("late"), Step::Working] {
        let harness = Harness::new(ScriptedExecutor::steps([Step::Completed, end]));
        let task = harness.task("hi").await.unwrap();
        settle().await;
        assert_eq!(summary(&harness.get(&task.id).await.unwrap()), "completed | user: hi | ", "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_fails_when_there_is_a_watchdog_and_every_word_counts_as_life() {
    // Pain 15
    let limits = Limits { silence: Some(secs(10)), ..Limits::default() };
    let reason = "failed \"the agent was silent for too long\" | user: hi | ";
    for (steps, expected) in [
        (vec![Step::Hang], reason),
        (vec![Step::Working, Step::Hang], reason),
        (vec![Step::Sleep(secs(9)), Step::Working, Step::Sleep(secs(9))], "completed | user: hi | "),
    ] {
        let harness = Harness::with(ScriptedExecutor::steps(steps), |builder| builder.limits(limits.clone()));
        assert_eq!(summary(&harness.task("hi").await.unwrap()), expected);
    }
    // It waits for its caller, and is not to blame.
    let steps = [Step::AuthRequired("log in"), Step::Sleep(secs(60)), Step::Completed];
    let harness = Harness::with(ScriptedExecutor::steps(steps), |builder| builder.limits(limits));
    let asked = harness.task("hi").await.unwrap();
    assert_eq!(asked.status.state, TaskState::AuthRequired);
    harness.until(&asked.id, TaskState::Completed).await.unwrap();
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let mut stream = harness.stream("hi").await.unwrap();
    next_line(&mut stream).await;
    assert_eq!(next_line(&mut stream).await, "2 status working");
    let patience = tokio::time::timeout(secs(100_000), next_line(&mut stream)).await;
    assert!(patience.is_err(), "there is no watchdog unless one is asked for");
}
