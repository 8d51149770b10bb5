//! Messages to a task that another server works on: taken at any server, once, and by the next owner.

use std::time::Duration;

use futures_util::future::join_all;
use nuncio_server::{
    Limits, RuntimeBuilder,
    protocol::{ErrorKind, Task, TaskState},
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, ScriptedExecutor, Step, card, lines, next_line, summary},
};

use crate::{refused, secs, settle};

fn server(
    data: &MemoryStore,
    executor: ScriptedExecutor,
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> Harness {
    Harness::of(card(), FailingStore::waiting(data.another()), executor, build)
}

/// Works for five seconds, then asks; answers the next messages.
fn asks() -> ScriptedExecutor {
    ScriptedExecutor::turns([
        vec![Step::Working, Step::Sleep(secs(5)), Step::InputRequired("which?")],
        vec![Step::Working, Step::Sleep(secs(1)), Step::InputRequired("and?")],
    ])
}

/// Two servers, and a task that the first works on.
async fn pair(
    executor: ScriptedExecutor,
    build: fn(RuntimeBuilder) -> RuntimeBuilder,
) -> (Harness, Harness, Task) {
    let data = MemoryStore::default();
    let first = server(&data, executor, build);
    let answers = [Step::Working, Step::Sleep(secs(1)), Step::InputRequired("and?")];
    let second = server(&data, ScriptedExecutor::steps(answers), build);
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    settle().await;
    (first, second, task)
}

/// The number of times that the task has these words of its caller.
fn said(task: &Task, words: &str) -> usize {
    task.history.iter().filter(|message| message.text() == words).count()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_taken_at_a_server_that_does_not_work_on_its_task() {
    let (first, second, task) = pair(asks(), |builder| builder).await;
    let answer = second.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(summary(&answer), "input-required \"and?\" | user: hi; agent: which?; user: blue | ");
    assert_eq!(first.get(&task.id).await.unwrap(), second.get(&task.id).await.unwrap());

    // One after the other, at either server, whoever has the task.
    for (number, server) in [&first, &second, &second, &first].into_iter().enumerate() {
        let words: &'static str = format!("word {number}").leak();
        let answer = server.task(Say::to(&task, words)).await.unwrap();
        assert_eq!((answer.status.state, said(&answer, words)), (TaskState::InputRequired, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_such_a_message_shows_its_turn() {
    let (_first, second, task) = pair(asks(), |builder| builder).await;
    let mut stream = second.stream(Say::to(&task, "blue")).await.unwrap();
    let snapshot = next_line(&mut stream).await;
    assert!(snapshot.contains("task input-required") || snapshot.contains("task working"), "{snapshot}");
    let rest = lines(stream).await;
    assert_eq!(rest.last().unwrap().split_once(' ').unwrap().1, "status input-required \"and?\"");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_answered_at_once_and_the_message_is_kept() {
    let (first, second, task) = pair(asks(), |builder| builder).await;
    let answer = tokio::time::timeout(secs(1), second.task(Say::to(&task, "blue").immediately())).await;
    assert_eq!(answer.expect("at once").unwrap().status.state, TaskState::Working);
    tokio::time::sleep(secs(60)).await;
    let done = first.get(&task.id).await.unwrap();
    assert_eq!((done.status.state, said(&done, "blue")), (TaskState::InputRequired, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_under_a_key_is_taken_once_at_however_many_servers() {
    let (first, second, task) = pair(asks(), |builder| builder).await;
    let say = Say::to(&task, "blue");
    let keyed = |server: &Harness| server.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let sends = [&second, &second, &first].map(|server| {
        let (server, say) = (keyed(server), say.clone());
        tokio::spawn(async move { server.task(say).await })
    });
    for answer in join_all(sends).await {
        let answer = answer.unwrap().unwrap();
        assert_eq!((answer.status.state, said(&answer, "blue")), (TaskState::InputRequired, 1));
    }
    for server in [&first, &second] {
        let answer = keyed(server).task(say.clone()).await.unwrap();
        assert_eq!((answer.history.len(), said(&answer, "blue")), (3, 1), "{}", summary(&answer));
    }
    let other = refused(keyed(&second).task(Say::to(&task, "red")).await);
    assert_eq!(other, ErrorKind::InvalidParams, "the key is another message's");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_store_stores_no_second_message() {
    let (first, second, task) = pair(asks(), |builder| builder).await;
    second.store.lose_next_answer();
    let answer = second.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(said(&answer, "blue"), 1);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(said(&first.get(&task.id).await.unwrap(), "blue"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_a_dead_server_is_adopted_with_its_task() {
    let data = MemoryStore::default();
    let idempotent = |builder: RuntimeBuilder| builder.idempotent(true);
    let first = server(&data, ScriptedExecutor::steps([Step::Working, Step::Hang]), idempotent);
    let second = server(&data, ScriptedExecutor::steps([Step::InputRequired("and?")]), idempotent);
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    let sends: Vec<_> = (0..5)
        .map(|number| {
            let (second, words) = (second.clone(), format!("word {number}"));
            let say = Say::to(&task, &words);
            tokio::spawn(async move { second.task(say).await })
        })
        .collect();
    tokio::time::sleep(secs(2)).await;
    first.store.retire();
    for answer in join_all(sends).await {
        assert_eq!(answer.unwrap().unwrap().status.state, TaskState::InputRequired);
    }
    let task = second.get(&task.id).await.unwrap();
    for number in 0..5 {
        assert_eq!(said(&task, &format!("word {number}")), 1, "{}", summary(&task));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_before_the_turn_refuses_the_message() {
    let steps = [Step::Working, Step::Sleep(secs(5)), Step::Completed];
    let (_first, second, task) = pair(ScriptedExecutor::steps(steps), |builder| builder).await;
    assert_eq!(refused(second.task(Say::to(&task, "more")).await), ErrorKind::UnsupportedOperation);
    let ended = second.get(&task.id).await.unwrap();
    assert_eq!((ended.status.state, said(&ended, "more")), (TaskState::Completed, 0));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_messages_wait_for_a_task() {
    let build = |builder: RuntimeBuilder| builder.limits(Limits { queue: 2, ..Limits::default() });
    let (_first, second, task) = pair(asks(), build).await;
    let mut refusals = 0;
    for number in 0..4 {
        let words = format!("word {number}");
        match second.task(Say::to(&task, &words).immediately()).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
                assert!(error.retry_after().is_some());
                refusals += 1;
            }
        }
    }
    assert_eq!(refusals, 2);
}

/// Two servers get a message to a task at rest at the same moment: one of them works on it, and the other hands its
/// message in. Neither is refused, and neither is lost or recorded twice.
#[tokio::test(start_paused = true)]
async fn of_messages_to_a_task_at_rest_none_is_refused() {
    for idempotent in [false, true] {
        for round in 0..10 {
            let data = MemoryStore::default();
            let ask = || {
                ScriptedExecutor::steps([Step::Sleep(Duration::from_millis(10)), Step::InputRequired("?")])
            };
            let servers = [(); 3].map(|()| server(&data, ask(), |builder| builder.idempotent(idempotent)));
            let task = servers[0].task("hi").await.unwrap();
            let sends: Vec<_> = (0..9)
                .map(|number| {
                    let (server, words) = (servers[number % 3].clone(), format!("word {number}"));
                    let say = Say::to(&task, &words);
                    let say = if number == round { say.immediately() } else { say };
                    tokio::spawn(async move { server.task(say).await })
                })
                .collect();
            for answer in join_all(sends).await {
                answer.unwrap().unwrap();
            }
            tokio::time::sleep(secs(60)).await;
            let task = servers[0].get(&task.id).await.unwrap();
            assert_eq!(task.status.state, TaskState::InputRequired);
            for number in 0..9 {
                assert_eq!(said(&task, &format!("word {number}")), 1, "{}", summary(&task));
            }
        }
    }
}

/// A message whose caller gives up waiting is not lost.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_too_long_gets_the_task_as_it_is() {
    let build =
        |builder: RuntimeBuilder| builder.limits(Limits { blocking_ceiling: secs(2), ..Limits::default() });
    let (first, second, task) = pair(asks(), build).await;
    let answer = second.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!((answer.status.state, said(&answer, "blue")), (TaskState::Working, 0));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(said(&first.get(&task.id).await.unwrap(), "blue"), 1);
}
