//! Two hubs on one database: what one leaves behind when it dies, the other takes up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, future::join_all};
use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, EventStream, GetTaskRequest, SendMessageRequest, Seq,
    StreamItem, SubscribeToTaskRequest, Task, TaskId, TaskState,
};
use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    eventually,
    hub::{Hub, free_address},
    next,
};

use crate::{
    address, check_store, kill,
    ledger::{Ledger, Told},
    load::{Load, Reached, a_task, cx, keyed, say},
    stop,
    verify::{look, verify},
};

async fn get(service: &dyn A2aService, id: &TaskId) -> Task {
    let req = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
    service.get_task(&cx(), req).await.unwrap()
}

async fn begin(service: &dyn A2aService, words: &str) -> TaskId {
    a_task(service.send_message(&cx(), say(words, true)).await.unwrap()).id
}

async fn subscribe(service: &dyn A2aService, id: &TaskId, after: Seq) -> EventStream {
    let cx = CallContext { last_event_id: Some(after), ..cx() };
    service.subscribe_to_task(&cx, SubscribeToTaskRequest { id: id.clone(), tenant: None }).await.unwrap()
}

/// The next events, so many of them.
async fn take(stream: &mut EventStream, count: usize) -> Vec<StreamItem> {
    let mut items = Vec::new();
    while items.len() < count {
        items.push(next(stream).await);
    }
    items
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_hub_leaves_is_taken_up_by_the_other() {
    let data = postgres::database().await;
    let args = ["--data", &*data];
    let (mut first, second) = (Hub::start(&args).await, Hub::start(&args).await);
    let (one, two) = (Reached::new(address(&first)), Reached::new(address(&second)));

    // The other hub shows a task while the first works on it, from any event on.
    let slow = begin(&**one.agent("slow"), "100 40ms").await;
    let seen = take(&mut subscribe(&**one.agent("slow"), &slow, Seq::ZERO).await, 10).await;
    let mut elsewhere = subscribe(&**two.agent("slow"), &slow, seen[2].seq().unwrap()).await;
    let shown = take(&mut elsewhere, 12).await;
    for (item, same) in shown.iter().zip(&seen[3..]) {
        assert_eq!((item.seq(), item.event()), (same.seq(), same.event()));
    }
    let stays = begin(&**one.agent("conformance"), "sleep 3600").await;
    let held = begin(&**one.agent("echo"), "hold").await;
    eventually("work", async || {
        let working = [(&one, "conformance", &stays), (&one, "echo", &held)];
        for (hub, agent, id) in working {
            if get(&**hub.agent(agent), id).await.status.state != TaskState::Working {
                return None;
            }
        }
        Some(())
    })
    .await;

    kill(&mut first).await;
    let died = Instant::now();
    let taken = eventually("the task of the dead hub fails", async || {
        let task = get(&**two.agent("conformance"), &stays).await;
        task.status.state.is_terminal().then_some(task)
    })
    .await;
    let waited = died.elapsed();
    assert_eq!(taken.status.state, TaskState::Failed);
    assert!(taken.status.message.unwrap().text().contains("not marked as idempotent"));
    // The stream goes on where it was, at the hub that took the task.
    let rest: Vec<_> = elsewhere.map(Result::unwrap).collect().await;
    let ended = rest.last().unwrap().event().status().unwrap().state;
    assert_eq!(ended, TaskState::Completed);
    eprintln!("failed {waited:.1?}, completed {:.1?} after the hub had died", died.elapsed());
    assert!(waited < Duration::from_secs(30), "{waited:?}");

    let told = Told {
        agent: "slow",
        watched: vec![seen, shown.into_iter().chain(rest).collect()],
        ..Told::default()
    };
    look(&**two.agent("slow"), "slow", &slow, &told).await;
    // What runs again can be canceled.
    let req = CancelTaskRequest { id: held.clone(), ..CancelTaskRequest::default() };
    assert_eq!(two.agent("echo").cancel_task(&cx(), req).await.unwrap().status.state, TaskState::Canceled);
    stop(second).await;
    check_store(&data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_canceled_at_the_hub_that_does_not_run_it() {
    let data = postgres::database().await;
    let args = ["--data", &*data];
    let (first, second) = (Hub::start(&args).await, Hub::start(&args).await);
    let (one, two) = (Reached::new(address(&first)), Reached::new(address(&second)));
    for (agent, words) in [("echo", "hold"), ("slow", "100 40ms"), ("conformance", "sleep 3600")] {
        let id = begin(&**one.agent(agent), words).await;
        let mut stream = subscribe(&**one.agent(agent), &id, Seq::ZERO).await;
        let mut seen = take(&mut stream, 2).await;
        let req = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
        let canceled = two.agent(agent).cancel_task(&cx(), req).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled, "{agent}");
        let at_first = eventually("the end at the other hub", async || {
            let task = get(&**one.agent(agent), &id).await;
            task.status.state.is_terminal().then_some(task)
        });
        assert_eq!(at_first.await, canceled, "{agent}");
        // The stream there shows the end.
        while let Some(item) = stream.next().await {
            seen.push(item.unwrap());
        }
        let ended = seen.last().unwrap().event().status().unwrap().state;
        assert_eq!(ended, TaskState::Canceled, "{agent}");
        let told = Told { agent, watched: vec![seen], answers: vec![canceled], ..Told::default() };
        look(&**two.agent(agent), agent, &id, &told).await;
    }
    stop(first).await;
    stop(second).await;
    check_store(&data).await;
}

/// A message to this task, under a name that is used once.
fn to(id: &TaskId, words: &str, immediately: bool) -> SendMessageRequest {
    let mut req = say(words, immediately);
    req.message.task_id = Some(id.clone());
    req
}

/// The number of times that the task has the message of this request.
fn said(task: &Task, req: &SendMessageRequest) -> usize {
    task.history.iter().filter(|message| message.message_id == req.message.message_id).count()
}

/// The task, once its agent has asked for the next message and none waits: all of these are in it.
async fn until_asked(service: &dyn A2aService, id: &TaskId, sent: &[SendMessageRequest]) -> Task {
    eventually("the last turn", async || {
        let task = get(service, id).await;
        let all = sent.iter().all(|req| said(&task, req) > 0);
        (all && task.status.state == TaskState::InputRequired).then_some(task)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_taken_at_the_hub_that_does_not_work_on_their_task() {
    const TASKS: usize = 10;
    const MESSAGES: usize = 10;
    let data = postgres::database().await;
    let args = ["--data", &*data];
    let (first, second) = (Hub::start(&args).await, Hub::start(&args).await);
    let (one, two) = (Reached::new(address(&first)), Reached::new(address(&second)));
    let begins = (0..TASKS).map(|_| begin(&**one.agent("slow"), "50 20ms ask"));
    let ids = join_all(begins).await;
    let sends: Vec<Vec<SendMessageRequest>> =
        ids.iter().map(|id| (0..MESSAGES).map(|_| to(id, "1 1ms ask", false)).collect()).collect();
    // Some wait, some get a stream, some come back under their key.
    let answers = sends.iter().flatten().enumerate().map(|(number, req)| {
        let agent = Arc::clone(two.agent("slow"));
        async move {
            if number % 3 == 0 {
                let items: Vec<_> = agent.send_streaming_message(&cx(), req.clone()).await?.collect().await;
                let last = items.into_iter().last().unwrap()?;
                return Ok(last.event().status().unwrap().state);
            }
            let cx = if number % 3 == 1 { keyed(req) } else { cx() };
            Ok::<_, nuncio_protocol::Error>(a_task(agent.send_message(&cx, req.clone()).await?).status.state)
        }
    });
    let answers = join_all(answers).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.is_err()).collect();
    assert_eq!(refused.len(), 0, "of {}: {refused:?}", answers.len());
    for (id, sent) in ids.iter().zip(&sends) {
        let task = until_asked(&**one.agent("slow"), id, sent).await;
        assert_eq!(task, get(&**two.agent("slow"), id).await);
        let counts: Vec<_> = sent.iter().map(|req| said(&task, req)).collect();
        assert_eq!(counts, [1; MESSAGES], "each once");
    }
    stop(first).await;
    stop(second).await;
    check_store(&data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_at_a_dead_hub_are_adopted() {
    const TASKS: usize = 4;
    const MESSAGES: usize = 5;
    let data = postgres::database().await;
    let args = ["--data", &*data];
    let (mut first, second) = (Hub::start(&args).await, Hub::start(&args).await);
    let (one, two) = (Reached::new(address(&first)), Reached::new(address(&second)));
    let begins = (0..TASKS).map(|_| begin(&**one.agent("slow"), "100 40ms ask"));
    let ids = join_all(begins).await;
    let mut sends = Vec::new();
    for id in &ids {
        let sent: Vec<_> = (0..MESSAGES).map(|_| to(id, "1 1ms ask", true)).collect();
        for req in &sent {
            two.agent("slow").send_message(&cx(), req.clone()).await.unwrap();
        }
        sends.push(sent);
    }
    kill(&mut first).await;
    for (id, sent) in ids.iter().zip(&sends) {
        let task = until_asked(&**two.agent("slow"), id, sent).await;
        let counts: Vec<_> = sent.iter().map(|req| said(&task, req)).collect();
        assert_eq!(counts, [1; MESSAGES], "none lost, each once");
    }
    stop(second).await;
    check_store(&data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hubs_that_die_in_turn_lose_nothing() {
    let data = postgres::database().await;
    let seed = Chance::seed();
    eprintln!("pair: NUNCIO_SEED={seed}");
    let mut chance = Chance::new(seed);
    let args = ["--data", &*data, "--log-level", "warn"];
    let places = [free_address(), free_address()];
    let mut hubs = Vec::new();
    for place in places {
        hubs.push(Hub::start_at(&place.to_string(), &args).await);
    }
    let reached = places.map(|place| Arc::new(Reached::new(place)));
    let ledger: Arc<Ledger> = Arc::default();
    let mut load = Load::start(16, &reached, &ledger, seed);
    for turn in 0..4 {
        let dies = turn % 2;
        tokio::time::sleep(chance.millis(300..=2500)).await;
        kill(&mut hubs[dies]).await;
        load.check();
        hubs[dies] = Hub::start_at(&places[dies].to_string(), &args).await;
    }
    load.end().await;
    for hub in &reached {
        let ends = verify(hub, &ledger).await;
        eprintln!("pair: {} tasks told of; {ends:?}", ledger.len());
    }
    for hub in hubs {
        stop(hub).await;
    }
    check_store(&data).await;
}
