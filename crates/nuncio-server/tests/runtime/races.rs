//! Races between callers, the store and other servers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::StreamExt as _;
use nuncio_server::{
    Limits, RuntimeBuilder,
    protocol::{A2aService as _, Caller, ErrorKind, ListTasksRequest, SendMessageResponse, TaskState},
    store::{MemoryStore, Refused, Scope, StoredTurn, TaskLog as _, TurnChange},
    testing::{FailingStore, Harness, Say, ScriptedExecutor, Step, card, lines, next_line, summary},
};

use crate::{refused, secs, settle};

/// A server on this data, with this agent.
fn server(
    data: &MemoryStore,
    executor: ScriptedExecutor,
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> Harness {
    Harness::of(card(), FailingStore::waiting(data.another()), executor, build)
}

fn alone(executor: ScriptedExecutor) -> Harness {
    server(&MemoryStore::default(), executor, |builder| builder)
}

/// Counts what it is asked, by the words.
fn counting(word: &'static str, turns: impl Into<Vec<Vec<Step>>>) -> (ScriptedExecutor, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let (asked, inner) = (Arc::clone(&count), Arc::new(ScriptedExecutor::turns(turns)));
    let executor = ScriptedExecutor::new(move |cx, out| {
        if cx.text() == word {
            asked.fetch_add(1, Ordering::SeqCst);
        }
        let inner = Arc::clone(&inner);
        async move { nuncio_server::Executor::execute(&*inner, cx, out).await }
    });
    (executor, count)
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_at_a_task_does_not_stop_a_turn_whose_commit_is_on_its_way() {
    // The store was further than what is known to be committed, and the turn was broken off for it.
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Sleep(secs(5)), Step::Artifact("a", "x")]];
    let harness = alone(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    settle().await;
    harness.store.hold_reads_after(1);
    let (looker, id) = (harness.clone(), task.id.clone());
    let looks = tokio::spawn(async move { lines(looker.subscribe(&id).await.unwrap()).await });
    settle().await;
    harness.store.lose_next_answer();
    let (sender, say) = (harness.clone(), Say::to(&task, "blue"));
    let sent = tokio::spawn(async move { sender.task(say).await });
    settle().await;
    harness.store.hold_reads(false);
    assert_eq!(sent.await.unwrap().unwrap().status.state, TaskState::Completed);
    assert_eq!(looks.await.unwrap().last().unwrap(), "5 status completed");
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_references_cannot_be_read_when_it_is_adopted_is_not_stuck() {
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    let other = first.task("other").await.unwrap();
    first.store.take_down_after_commit();
    let say = Say::from("hi").change(|request| request.message.reference_task_ids = vec![other.id.clone()]);
    let task = first.begin(say).await.unwrap();
    settle().await;
    first.store.retire();
    let second = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    second.store.fail_reads(true);
    tokio::time::sleep(secs(1)).await;
    second.store.fail_reads(false);
    second.until(&task.id, TaskState::Completed).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_keeps_its_idempotency_key_over_the_end_of_its_server() {
    let data = MemoryStore::default();
    let first =
        server(&data, ScriptedExecutor::steps([Step::InputRequired("which?"), Step::Hang]), |builder| {
            builder
        });
    let task = first.task("hi").await.unwrap();
    let say = Say::to(&task, "blue").immediately();
    let keyed = |server: &Harness| server.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    keyed(&first).task(say.clone()).await.unwrap();
    first.store.retire();
    let (executor, asked) = counting("blue", [vec![Step::Sleep(secs(5)), Step::InputRequired("and?")]]);
    let second = server(&data, executor, |builder| builder);
    for _ in 0..3 {
        tokio::time::sleep(secs(3)).await;
        let again = keyed(&second).task(say.clone()).await.unwrap();
        assert_eq!(again.id, task.id);
    }
    tokio::time::sleep(secs(60)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1, "a repeat is not said again");
    assert_eq!(second.get(&task.id).await.unwrap().status.state, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn an_agent_does_not_see_a_message_twice_that_the_store_has_refused() {
    // It was acknowledged, so whoever has the task now lets its agent see it: this server, once.
    let turns = [vec![Step::InputRequired("which?"), Step::Sleep(secs(5))], vec![]];
    let (executor, asked) = counting("blue", turns);
    let harness = alone(executor);
    let task = harness.task("hi").await.unwrap();
    harness.task(Say::to(&task, "blue").immediately()).await.unwrap();
    harness.store.refuse_next(Refused::Held);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let history = harness.get(&task.id).await.unwrap().history;
    assert_eq!(history.iter().filter(|message| message.text() == "blue").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_not_given_before_it_is_kept_also_not_to_one_who_will_not_wait() {
    let limits = Limits { blocking_ceiling: secs(5), ..Limits::default() };
    let data = MemoryStore::default();
    let harness =
        server(&data, ScriptedExecutor::steps([Step::Reply("hello")]), |builder| builder.limits(limits));
    let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let say = Say::from("hi");
    harness.store.hold_writes(true);
    assert_eq!(refused(keyed.send(say.clone()).await), ErrorKind::Unavailable);
    harness.store.hold_writes(false);
    settle().await;
    let SendMessageResponse::Message(reply) = keyed.send(say).await.unwrap() else { panic!("no reply") };
    assert_eq!(reply.text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_reply_waits_for_a_store_that_is_down() {
    let (executor, asked) = counting("hi", [vec![Step::Sleep(secs(1)), Step::Reply("hello")]]);
    let harness = alone(executor).calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let sender = harness.clone();
    let sent = tokio::spawn(async move { sender.send("hi").await });
    settle().await;
    harness.store.take_down(true);
    tokio::time::sleep(secs(5)).await;
    harness.store.take_down(false);
    assert!(matches!(sent.await.unwrap().unwrap(), SendMessageResponse::Message(_)));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_waits_for_the_store_is_not_taken_for_silent() {
    let agents = [
        ScriptedExecutor::new(|_, out| async move {
            out.working().await?;
            out.flush().await?;
            out.completed().await.map(drop)
        }),
        ScriptedExecutor::steps([Step::Reply("hello")]),
    ];
    for agent in agents {
        let limits = Limits { silence: Some(secs(10)), ..Limits::default() };
        let harness = server(&MemoryStore::default(), agent, |builder| builder.limits(limits));
        let harness = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
        harness.store.take_down(true);
        let say = Say::from("hi");
        assert_eq!(
            refused(harness.send(say.clone()).await),
            ErrorKind::Unavailable,
            "its caller may come back"
        );
        tokio::time::sleep(secs(60)).await;
        harness.store.take_down(false);
        tokio::time::sleep(secs(2)).await;
        match harness.send(say).await.unwrap() {
            SendMessageResponse::Task(task) => assert_eq!(summary(&task), "completed | user: hi | "),
            SendMessageResponse::Message(reply) => assert_eq!(reply.text(), "hello"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_to_the_store_is_erased_too() {
    let harness = alone(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let ann = harness.as_caller("ann");
    harness.store.hold_writes(true);
    let sender = ann.clone();
    let sent = tokio::spawn(async move { sender.begin("hi").await });
    settle().await;
    let runtime = harness.runtime.clone();
    let erased = tokio::spawn(async move { runtime.erase(None, &Caller::authenticated("ann")).await });
    settle().await;
    harness.store.hold_writes(false);
    assert!(erased.await.unwrap().is_ok());
    let _ = sent.await.unwrap();
    settle().await;
    let list = ann.runtime.list_tasks(&ann.cx, ListTasksRequest::default()).await.unwrap();
    assert_eq!(list.total_size, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_at_rest_that_goes_on_at_another_server_is_not_shown_as_it_was() {
    let data = MemoryStore::default();
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Artifact("a", "x")]];
    let first = server(&data, ScriptedExecutor::turns(turns), |builder| builder);
    let second = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    let task = first.task("hi").await.unwrap();
    let mut stream = second.subscribe(&task.id).await.unwrap();
    assert_eq!(next_line(&mut stream).await, "2 task input-required \"which?\"");
    first.task(Say::to(&task, "blue")).await.unwrap();
    assert_eq!(second.get(&task.id).await.unwrap().status.state, TaskState::Completed);
    let rest = tokio::time::timeout(secs(5), lines(stream)).await.expect("an end");
    assert_eq!(rest, ["4 artifact a \"x\" last", "5 status completed"]);
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_agent_that_is_shut_down_goes_on_at_the_next_server() {
    // As it would if its server had crashed.
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([Step::Working, Step::Hang]), |builder| {
        builder.idempotent(true)
    });
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    first.runtime.drain(secs(1)).await;
    first.store.retire();
    let second = server(&data, ScriptedExecutor::steps([]), |builder| builder.idempotent(true));
    let done = second.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(summary(&done), "completed | user: hi | ");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_asked_before_the_server_ends_stays_asked() {
    let harness = alone(ScriptedExecutor::new(|cx, out| async move {
        out.input_required("which?").await?;
        cx.cancellation.cancelled().await;
        Ok(())
    }));
    let task = harness.task("hi").await.unwrap();
    harness.runtime.drain(secs(1)).await;
    assert_eq!(harness.get(&task.id).await.unwrap().status.state, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_message_that_waits_for_its_turn_is_told_so() {
    let harness = alone(ScriptedExecutor::steps([Step::InputRequired("which?"), Step::Hang]));
    let task = harness.task("hi").await.unwrap();
    let keyed = harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    let say = Say::to(&task, "blue").immediately();
    keyed.task(say.clone()).await.unwrap();
    let again = tokio::time::timeout(secs(60), keyed.task(say)).await.expect("an answer");
    assert_eq!(again.unwrap().id, task.id);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_wins_over_a_task_that_another_server_writes_to_all_the_time() {
    let data = MemoryStore::default();
    let chatty = ScriptedExecutor::new(|_, out| async move {
        loop {
            out.working().await?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let first = server(&data, chatty, |builder| builder);
    let slow = ScriptedExecutor::steps([]).on_cancel(|_| async {
        tokio::time::sleep(secs(1)).await;
        Ok(())
    });
    let second = server(&data, slow, |builder| builder);
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    assert_eq!(second.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_at_another_server_is_the_outcome_for_streams_and_sends_here() {
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([Step::Working, Step::Hang]), |builder| builder);
    let second = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    let sender = first.clone();
    let waits = tokio::spawn(async move { sender.task("hi").await });
    settle().await;
    let list = first.runtime.list_tasks(&first.cx, ListTasksRequest::default()).await.unwrap();
    let task = list.tasks[0].clone();
    let stream = first.subscribe(&task.id).await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    settle().await;
    let canceled = second.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    let shown = lines(stream).await;
    assert_eq!(shown.last().unwrap(), "3 status canceled", "{shown:?}");
    assert_eq!(waits.await.unwrap().unwrap().status.state, TaskState::Canceled);
}

/// As many as there are cores, so that two follow-ups are really at it at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_messages_at_the_same_time_the_one_that_waits_is_kept() {
    for _ in 0..2_000 {
        let data = MemoryStore::default();
        let turns = [vec![Step::InputRequired("which?")], vec![Step::Hang]];
        let harness = server(&data, ScriptedExecutor::turns(turns), |builder| builder);
        let task = harness.task("hi").await.unwrap();
        let live = harness.subscribe(&task.id).await.unwrap();
        let start = Arc::new(std::sync::Barrier::new(2));
        let both = ["blue", "red"].map(|word| {
            let (harness, say, start) =
                (harness.clone(), Say::to(&task, word).immediately(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait();
                harness.task(say).await
            })
        });
        for sent in both {
            sent.await.unwrap().unwrap();
        }
        harness.store.retire();
        let orphans = data.another().adopt("scripted", 9).await.unwrap();
        let kept: usize = orphans.iter().map(|orphan| orphan.turns.len()).sum();
        assert_eq!((orphans.len(), kept), (1, 1));
        drop(live);
    }
}
#[tokio::test(start_paused = true)]
async fn a_turn_that_has_not_begun_when_the_server_ends_is_left_to_the_next_one() {
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([Step::InputRequired("which?"), Step::Hang]), |b| b);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let task = first.task("hi").await.unwrap();
        first.task(Say::to(&task, "blue").immediately()).await.unwrap();
        tasks.push(task.id);
    }
    first.store.retire();
    let limits = Limits { tasks: 1, ..Limits::default() };
    let second = server(&data, ScriptedExecutor::steps([Step::Working, Step::Hang]), |b| b.limits(limits));
    tokio::time::sleep(secs(5)).await;
    if second.get(&tasks[0]).await.unwrap().status.state != TaskState::Working {
        tasks.reverse();
    }
    assert_eq!(second.get(&tasks[0]).await.unwrap().status.state, TaskState::Working);
    second.runtime.drain(secs(1)).await;
    second.store.retire();
    let third = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    assert_eq!(third.get(&tasks[0]).await.unwrap().status.state, TaskState::Failed);
    third.until(&tasks[1], TaskState::Completed).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_does_not_wait_for_ever_for_the_store() {
    let harness = alone(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    harness.store.take_down(true);
    let canceled = tokio::time::timeout(secs(600), harness.cancel(&task.id)).await.expect("an answer");
    assert_eq!(refused(canceled), ErrorKind::Unavailable);
    harness.store.take_down(false);
    harness.until(&task.id, TaskState::Canceled).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_caller_leaves_while_it_is_kept_takes_its_turn() {
    // It stayed in the store, and nobody ran it before the next start.
    let data = MemoryStore::default();
    let turns = [vec![Step::InputRequired("which?"), Step::Sleep(secs(5))], vec![]];
    let harness = server(&data, ScriptedExecutor::turns(turns), |builder| builder);
    let task = harness.task("hi").await.unwrap();
    harness.store.hold_writes(true);
    let (sender, say) = (harness.clone(), Say::to(&task, "blue"));
    let sent = tokio::spawn(async move { sender.task(say).await });
    settle().await;
    sent.abort();
    settle().await;
    harness.store.hold_writes(false);
    harness.until(&task.id, TaskState::Completed).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_left_to_a_task_that_has_ended_does_not_stay_for_ever() {
    // Kept just before the end was recorded, and the process ended before it could take it back.
    let data = MemoryStore::default();
    let first = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    let task = first.task("hi").await.unwrap();
    let said = Say::to(&task, "blue").into_request().message;
    let body = serde_json::json!({ "message": said, "version": "1.0" }).to_string().into();
    let turn = TurnChange::Queue(StoredTurn { id: "turn".into(), begun: false, body });
    let scope = Scope { agent: "scripted".into(), ..Scope::default() };
    first.store.update_turn(&scope, &task.id, turn).await.unwrap().unwrap();
    first.store.retire();
    let second = server(&data, ScriptedExecutor::steps([]), |builder| builder);
    tokio::time::sleep(secs(60)).await;
    second.store.retire();
    assert!(data.another().adopt("scripted", 9).await.unwrap().is_empty());
    assert_eq!(second.get(&task.id).await.unwrap(), task);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_the_store_cannot_take_does_not_end_the_tasks_beside_it() {
    let harness = alone(ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x")]));
    harness.store.hold_writes(true);
    let sends = ["one", "two", "poison", "three"].map(|word| {
        let harness = harness.clone();
        tokio::spawn(async move { harness.task(word).await })
    });
    settle().await;
    harness.store.choke_on("poison");
    harness.store.hold_writes(false);
    let [one, two, poison, three] = sends;
    for sent in [one, two, three] {
        assert_eq!(sent.await.unwrap().unwrap().status.state, TaskState::Completed);
    }
    assert_eq!(refused(poison.await.unwrap()), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_down_and_then_failed_is_not_taken_for_down_for_ever() {
    // New work was refused, so nothing was written, so nobody found out that it was well again.
    let harness = alone(ScriptedExecutor::steps([]));
    harness.store.take_down(true);
    let sender = harness.clone();
    let sent = tokio::spawn(async move { sender.task("during").await });
    settle().await;
    harness.store.fail_writes(true);
    harness.store.take_down(false);
    assert_eq!(refused(sent.await.unwrap()), ErrorKind::Unavailable);
    harness.store.fail_writes(false);
    assert_eq!(harness.task("after").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_takes_the_store_too_long_is_made_smaller() {
    // It ran into the patience of the connection each time, and nothing was recorded any more.
    let harness = alone(ScriptedExecutor::steps([Step::Working, Step::Artifact("a", "x")]));
    harness.store.hold_writes(true);
    let sends: Vec<_> = (0..50)
        .map(|i| {
            let harness = harness.clone();
            tokio::spawn(async move { harness.task(&*format!("hi {i}")).await })
        })
        .collect();
    settle().await;
    harness.store.take_at_most(20);
    harness.store.hold_writes(false);
    for sent in sends {
        assert_eq!(sent.await.unwrap().unwrap().status.state, TaskState::Completed);
    }
}

/// Two servers get one message under one key at the same moment, by a send or by a stream: one task is made,
/// and both callers get it.
#[tokio::test(start_paused = true)]
async fn the_loser_of_a_race_for_a_key_gets_the_task_of_the_winner() {
    for idempotent in [false, true] {
        for streams in [[false, false], [true, true], [true, false]] {
            let data = MemoryStore::default();
            let agent =
                || ScriptedExecutor::steps([Step::Working, Step::Sleep(secs(2)), Step::Artifact("a", "x")]);
            let servers = [(); 2].map(|()| {
                let harness = server(&data, agent(), |builder| builder.idempotent(idempotent));
                harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()))
            });
            let say = Say::from("hi");
            let answers = servers.iter().zip(streams).map(|(server, streams)| (server, streams, say.clone()));
            let answers = answers.map(|(server, streams, say)| async move {
                if streams {
                    let items = server.stream(say).await.unwrap().map(Result::unwrap);
                    let items: Vec<_> = items.collect().await;
                    assert_eq!(items.last().unwrap().event().status().unwrap().state, TaskState::Completed);
                    items.iter().find_map(|item| item.event().task_id().cloned()).unwrap()
                } else {
                    let task = server.task(say).await.unwrap();
                    assert_eq!(task.status.state, TaskState::Completed);
                    task.id
                }
            });
            let ids = futures_util::future::join_all(answers).await;
            assert_eq!(ids[0], ids[1], "idempotent: {idempotent}, streams: {streams:?}");
        }
    }
}
