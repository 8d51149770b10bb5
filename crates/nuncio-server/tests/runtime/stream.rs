//! Streams: what they begin with, in which order they go on, and when they end.

use std::sync::Arc;

use futures_util::{StreamExt as _, future::join_all};
use nuncio_server::{
    protocol::{
        Artifact, ErrorKind, Event, EventStream, ListTasksRequest, Part, Seq, Task, TaskState, Timestamp,
        fold,
    },
    store::MemoryStore,
    testing::{Harness, Say, ScriptedExecutor, Step, card, lines, next_line, summary},
};
use tokio::sync::Semaphore;

use crate::{refused, secs, settle};

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_the_task_and_tells_everything_in_order() {
    // REQ-135 to REQ-139
    for (steps, expected) in [
        (vec![], vec!["1 task submitted", "2 status completed"]),
        (
            vec![Step::Working, Step::Append("a", "x"), Step::Append("a", "y"), Step::Artifact("b", "z")],
            vec![
                "1 task submitted",
                "2 status working",
                "3 artifact a +\"x\"",
                "4 artifact a +\"y\"",
                "5 artifact b \"z\" last",
                "6 status completed",
            ],
        ),
        (vec![Step::Fail("no paper")], vec!["1 task submitted", "2 status failed \"no paper\""]),
        (
            vec![Step::Sleep(secs(60)), Step::Working],
            vec!["1 task submitted", "2 status working", "3 status completed"],
        ),
    ] {
        let harness = Harness::new(ScriptedExecutor::steps(steps));
        assert_eq!(lines(harness.stream("hi").await.unwrap()).await, expected);
    }
}

/// The events of the send's stream after the task, and those of a subscription.
async fn check_closing(steps: &[Step], sent: &[&str], subscribed: &[&str]) {
    let steps = [&[Step::Submitted, Step::Sleep(secs(1))], steps].concat();
    let harness = Harness::new(ScriptedExecutor::steps(steps));
    let sending = harness.stream("hi").await.unwrap();
    let id = list(&harness).await[0].id.clone();
    let subscription = harness.subscribe(&id).await.unwrap();
    let all = |stream: EventStream| async move {
        let mut stream = stream.map(|item| nuncio_server::testing::line(&item));
        let mut seen = Vec::new();
        // A stream that stays open has shown what there is after a minute of paused time.
        loop {
            match tokio::time::timeout(secs(60), stream.next()).await {
                Ok(Some(line)) => seen.push(line),
                Ok(None) => seen.push("end".to_owned()),
                Err(_) => seen.push("open".to_owned()),
            }
            if seen.last().is_some_and(|last| last == "end" || last == "open") {
                return seen.split_off(1);
            }
        }
    };
    let (one, two) = tokio::join!(all(sending), all(subscription));
    assert_eq!(one, sent, "the stream of the send");
    assert_eq!(two, subscribed, "the subscription");
}

async fn list(harness: &Harness) -> Vec<Task> {
    let list = ListTasksRequest::default();
    nuncio_server::protocol::A2aService::list_tasks(&harness.runtime, &harness.cx, list).await.unwrap().tasks
}

#[tokio::test(start_paused = true)]
async fn streams_end_at_a_terminal_state_and_those_of_a_send_at_a_question() {
    // Trap T-02, REQ-137, REQ-146
    check_closing(&[Step::Completed], &["2 status completed", "end"], &["2 status completed", "end"]).await;
    check_closing(
        &[Step::Fail("no")],
        &["2 status failed \"no\"", "end"],
        &["2 status failed \"no\"", "end"],
    )
    .await;
    let question = "2 status input-required \"which?\"";
    check_closing(&[Step::InputRequired("which?")], &[question, "end"], &[question, "open"]).await;
    let login = "2 status auth-required \"log in\"";
    check_closing(&[Step::AuthRequired("log in")], &[login, "open"], &[login, "open"]).await;
    check_closing(
        &[Step::AuthRequired("log in"), Step::Sleep(secs(5)), Step::Working, Step::InputRequired("which?")],
        &[login, "3 status working", "4 status input-required \"which?\"", "end"],
        &[login, "3 status working", "4 status input-required \"which?\"", "open"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_follow_up_begins_with_the_task_as_it_is() {
    // Trap T-33, and the bug that an artifact before the first status closed it: the old question
    // seemed to be the answer.
    let turns = [
        vec![Step::InputRequired("which?")],
        vec![Step::Artifact("a", "x"), Step::Sleep(secs(1)), Step::InputRequired("sure?")],
        vec![Step::Sleep(secs(1)), Step::Working],
    ];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    let stream = harness.stream(Say::to(&task, "blue")).await.unwrap();
    let seen = lines(stream).await;
    assert!(seen[0].contains("task input-required"), "{seen:?}");
    assert_eq!(seen.last().unwrap(), "5 status input-required \"sure?\"", "{seen:?}");
    let stream = harness.stream(Say::to(&task, "yes")).await.unwrap();
    assert_eq!(lines(stream).await[1..], ["7 status working", "8 status completed"]);
}

#[tokio::test(start_paused = true)]
async fn subscribers_of_a_waiting_task_see_the_next_turn() {
    let turns = [
        vec![Step::InputRequired("which?")],
        vec![Step::Working, Step::Sleep(secs(1)), Step::Artifact("a", "x")],
    ];
    let harness = Harness::new(ScriptedExecutor::turns(turns));
    let task = harness.task("hi").await.unwrap();
    let (one, two) = (harness.subscribe(&task.id).await.unwrap(), harness.subscribe(&task.id).await.unwrap());
    let sent = harness.stream(Say::to(&task, "blue")).await.unwrap();
    let (one, two, sent) = tokio::join!(lines(one), lines(two), lines(sent));
    assert_eq!(
        one,
        [
            "2 task input-required \"which?\"",
            "4 status working",
            "5 artifact a \"x\" last",
            "6 status completed"
        ],
        "what a caller says is no event, but has its number"
    );
    assert_eq!(one, two, "REQ-140");
    assert_eq!(sent.last(), one.last());
    settle().await;
    assert_eq!(harness.runtime.live_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_subscribe() {
    // REQ-132, REQ-144, REQ-145
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let task = harness.task("hi").await.unwrap();
    assert_eq!(refused(harness.subscribe(&task.id).await), ErrorKind::UnsupportedOperation);
    assert_eq!(refused(harness.subscribe(&"t-unknown".into()).await), ErrorKind::TaskNotFound);
    let mut quiet = card();
    quiet.capabilities.streaming = None;
    let harness = Harness::of(
        quiet,
        MemoryStore::default(),
        ScriptedExecutor::steps([Step::Working, Step::Hang]),
        |builder| builder,
    );
    let task = harness.begin("hi").await.unwrap();
    assert_eq!(refused(harness.stream("hi").await), ErrorKind::UnsupportedOperation);
    assert_eq!(refused(harness.subscribe(&task.id).await), ErrorKind::UnsupportedOperation);
}

/// Emits so many pieces of one artifact.
fn chatty(pieces: usize) -> ScriptedExecutor {
    ScriptedExecutor::new(move |_, out| async move {
        for i in 0..pieces {
            out.chunk(Artifact::new("a", Part::text(i.to_string())), true, false).await?;
            if i % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn a_stalled_subscriber_costs_only_itself_and_misses_nothing() {
    // Invariant 8: longer than the ring of recent events, so it reads on from the store.
    const PIECES: usize = 2_000;
    let harness = Harness::new(chatty(PIECES));
    let stalled = harness.stream("hi").await.unwrap();
    let id = list(&harness).await[0].id.clone();
    let quick = harness.subscribe(&id).await.unwrap();
    let quick = lines(quick).await;
    assert_eq!(quick.last().unwrap(), &format!("{} status completed", PIECES + 2));
    assert_eq!(
        harness.get(&id).await.unwrap().status.state,
        TaskState::Completed,
        "nobody waited for the stalled one"
    );
    let reads = harness.store.reads();
    let stalled = lines(stalled).await;
    assert_eq!(stalled.len(), PIECES + 2);
    assert_eq!(
        stalled[1..stalled.len() - 1].iter().map(|line| number(line)).collect::<Vec<_>>(),
        (2..PIECES as u64 + 2).collect::<Vec<_>>()
    );
    assert!(harness.store.reads() > reads, "from the store");
}

fn number(line: &str) -> u64 {
    line.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_lags_behind_a_forgotten_task_is_told() {
    // It waited for ever for events that nobody had any more.
    let harness = Harness::of(card(), MemoryStore::new(0), chatty(2_000), |builder| builder);
    let stalled = harness.stream("hi").await.unwrap();
    let id = list(&harness).await[0].id.clone();
    lines(harness.subscribe(&id).await.unwrap()).await;
    assert_eq!(lines(stalled).await.last().unwrap(), "error TaskNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_stops_nothing() {
    // Invariant 7, REQ-141
    let harness = Harness::new(ScriptedExecutor::steps([
        Step::Working,
        Step::Sleep(secs(5)),
        Step::Artifact("a", "x"),
    ]));
    let mut leaving = harness.stream("hi").await.unwrap();
    assert_eq!(next_line(&mut leaving).await, "1 task submitted");
    let id = list(&harness).await[0].id.clone();
    let staying = harness.subscribe(&id).await.unwrap();
    drop(leaving);
    assert_eq!(lines(staying).await[1..], ["3 artifact a \"x\" last", "4 status completed"]);

    let waiting = harness.clone();
    let unary = tokio::spawn(async move { waiting.task("hi").await });
    tokio::time::sleep(secs(1)).await;
    unary.abort();
    let task = list(&harness).await.into_iter().find(|task| task.status.state == TaskState::Working).unwrap();
    let done = harness.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(summary(&done), "completed | user: hi | a \"x\"");
    settle().await;
    assert_eq!((harness.runtime.live_tasks(), harness.runtime.running()), (0, 0));
}

/// Folds a stream that begins with the task, and holds every number to be the next.
async fn follow(mut stream: EventStream) -> Task {
    let first = stream.next().await.unwrap().unwrap();
    let (Event::Task(task), mut seq) = (&**first.event(), first.seq().unwrap()) else {
        panic!("no task first")
    };
    let mut task = task.clone();
    while let Some(item) = stream.next().await {
        let item = item.unwrap();
        assert_eq!(item.seq(), Some(seq.next()), "exactly once, in order");
        seq = seq.next();
        fold(&mut task, item.event(), Timestamp::EPOCH).unwrap();
    }
    task
}

/// Many subscribers come at any moment of a busy task; each rebuilds the same task.
async fn check_no_event_is_lost_or_doubled() {
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        out.working().await?;
        // Parts of an agent emit at the same time.
        let parts = (0..4).map(|part| {
            let out = out.clone();
            tokio::spawn(async move {
                for i in 0..300 {
                    let artifact = Artifact::new(format!("a-{part}"), Part::text(i.to_string()));
                    out.chunk(artifact, true, false).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        });
        join_all(parts).await;
        Ok(())
    }));
    let task = harness.begin("hi").await.unwrap();
    let subscribers = (0..32).map(|i| {
        let (harness, id) = (harness.clone(), task.id.clone());
        tokio::spawn(async move {
            for _ in 0..i * 5 {
                tokio::task::yield_now().await;
            }
            match harness.subscribe(&id).await {
                Ok(stream) => Some(follow(stream).await),
                // Too late: it has ended.
                Err(error) if error.kind() == ErrorKind::UnsupportedOperation => None,
                Err(error) => panic!("{error}"),
            }
        })
    });
    let rebuilt = join_all(subscribers).await;
    let done = harness.get(&task.id).await.unwrap();
    assert_eq!(done.artifacts.iter().map(|artifact| artifact.parts.len()).sum::<usize>(), 1200);
    for task in rebuilt.into_iter().filter_map(Result::unwrap) {
        assert_eq!(task, done);
    }
}

#[tokio::test(start_paused = true)]
async fn no_event_is_lost_or_doubled_between_snapshot_and_stream() {
    // REQ-143
    check_no_event_is_lost_or_doubled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_event_is_lost_or_doubled_on_several_threads() {
    // REQ-143, invariant 5
    for _ in 0..5 {
        check_no_event_is_lost_or_doubled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocking_send_never_misses_the_end_among_concurrent_emits() {
    // Two emits left the lock in one order and announced in the other: the end was overwritten by
    // what came before it, and the caller waited for the ceiling.
    let harness = Harness::new(ScriptedExecutor::new(|_, out| async move {
        let gate = Arc::new(Semaphore::new(0));
        let emits = (0..4).map(|i| {
            let (out, gate) = (out.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                gate.acquire().await.unwrap().forget();
                // Those that come after the end are refused, which is as it should be.
                drop(if i == 3 { out.completed().await } else { out.working().await });
            })
        });
        let emits: Vec<_> = emits.collect();
        gate.add_permits(4);
        join_all(emits).await;
        Ok(())
    }));
    for _ in 0..500 {
        let answer = tokio::time::timeout(secs(20), harness.task("hi")).await.expect("an answer");
        assert_eq!(answer.unwrap().status.state, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn ids_are_the_numbers_of_the_log() {
    // protocol-notes.md, v1.0: ids of server-sent events
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working]));
    let stream = harness.stream("hi").await.unwrap();
    let seqs: Vec<Option<Seq>> = stream.map(|item| item.unwrap().seq()).collect().await;
    assert_eq!(seqs, [1, 2, 3].map(|seq| Some(Seq(seq))));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_follow_up_shows_every_event_however_quick_the_agent_is() {
    // Trap T-33
    let harness = Harness::new(ScriptedExecutor::turns([
        vec![Step::InputRequired("which?")],
        vec![Step::Working, Step::Artifact("a", "x"), Step::Completed],
    ]));
    let task = harness.task("begin").await.unwrap();
    let seen = lines(harness.stream(Say::to(&task, "blue")).await.unwrap()).await;
    let kinds: Vec<&str> = seen.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(kinds, ["task input-required", "status working", "artifact a \"x\" last", "status completed"]);
}

#[tokio::test(start_paused = true)]
async fn return_immediately_means_nothing_to_a_stream() {
    // Spec 3.2.2: it made a task for an agent that only replies.
    let harness = Harness::new(ScriptedExecutor::steps([Step::Reply("hello")]));
    let seen = lines(harness.stream(Say::from("hi").immediately()).await.unwrap()).await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].contains("message"), "{seen:?}");
}
