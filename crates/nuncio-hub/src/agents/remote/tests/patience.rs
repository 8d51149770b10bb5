//! Agents that take long, wait for somebody, or are gone.

use super::*;

#[tokio::test]
async fn a_task_that_waits_for_an_authorisation_goes_on_by_itself() {
    for manners in [
        Manners::good(),
        Manners::default(),
        Manners { cuts_at: Some(1), ..Manners::good() },
        Manners { cuts_at: Some(2), ..Manners::good() },
    ] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let asked = hub.harness.task("auth").await.unwrap();
        assert_eq!(summary(&asked), "auth-required \"log in\" | user: auth | ");
        peer.state.gate.notify_one();
        let done = hub.harness.until(&asked.id, TaskState::Completed).await.unwrap();
        assert_eq!(summary(&done), "completed | user: auth; agent: log in | a \"let in\"");
        assert_eq!(peer.sends(), 1);

        // Trap T-02: its stream stays open meanwhile.
        let mut told = hub.harness.stream("auth").await.unwrap();
        while !next_line(&mut told).await.contains("auth-required") {}
        peer.state.gate.notify_one();
        let rest = lines(told).await;
        assert!(rest.last().unwrap().contains("completed"), "{rest:?}");
    }
}

#[tokio::test]
async fn a_task_that_waits_for_an_authorisation_can_be_told_and_canceled() {
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let asked = hub.harness.task("auth").await.unwrap();
        let done = hub.harness.task(Say::to(&asked, "two")).await.unwrap();
        assert_eq!(summary(&done), "completed | user: auth; agent: log in; user: two | a \"xy\"");
        assert_eq!(peer.sends(), 2, "the second one went to the same task");
        assert!(sent(&peer)[1].task_id.is_some());

        let asked = hub.harness.task("auth").await.unwrap();
        assert_eq!(hub.harness.cancel(&asked.id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(peer.count(&[Op::CancelTask]), 1);
    }
}

/// An agent that cannot stream answers before it is done, and is done soon. The first poll does not wait for
/// `poll_seconds`.
#[tokio::test]
async fn a_task_of_an_agent_that_cannot_stream_is_seen_as_soon_as_it_is_done() {
    let poll_every = Duration::from_secs(20);
    for follow in [Follow::Auto, Follow::Poll] {
        let peer = Peer::start(Manners::default()).await;
        let hub = hub(Upstream { poll_every, follow, ..settings(&peer.url) }).await;
        let begun = Instant::now();
        assert_eq!(summary(&hub.harness.task("two").await.unwrap()), "completed | user: two | a \"xy\"");
        let asked = hub.harness.task("ask").await.unwrap();
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let done = hub.harness.task(Say::to(&asked, "two")).await.unwrap();
        assert_eq!(summary(&done), "completed | user: ask; agent: which?; user: two | a \"xy\"");
        assert!(begun.elapsed() < poll_every, "{:?}", begun.elapsed());
        let is_immediate = |seen: &peer::Seen| match &seen.call {
            Call::SendMessage(req) => {
                req.configuration.as_ref().is_some_and(|wanted| wanted.return_immediately)
            }
            _ => false,
        };
        assert_eq!(peer.seen().into_iter().filter(|seen| is_immediate(seen)).count(), 3);
    }
}

/// An answer that is final, or a reply, needs no poll.
#[tokio::test]
async fn an_answer_that_is_final_is_the_end() {
    let peer = Peer::start(Manners { blocks: true, lacks: vec![Op::GetTask], ..Manners::default() }).await;
    let hub = hub(settings(&peer.url)).await;
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), "completed | user: two | a \"xy\"");
    let answer = hub.harness.send("reply").await.unwrap();
    assert!(matches!(answer, SendMessageResponse::Message(_)), "{answer:?}");
    assert_eq!(peer.count(&[Op::GetTask]), 0);
}

#[tokio::test]
async fn a_task_that_nobody_authorises_is_left_as_it_is_and_takes_no_place() {
    let peer = Peer::start(Manners::good()).await;
    let give_up = Duration::from_millis(20);
    let hub = hub(Upstream { max_concurrent: Some(1), give_up, ..settings(&peer.url) }).await;
    let asked = hub.harness.task("auth").await.unwrap();
    assert_eq!(hub.harness.task("two").await.unwrap().status.state, TaskState::Completed);
    eventually("rest", || hub.harness.runtime.running() == 0).await;
    let still = hub.harness.get(&asked.id).await.unwrap();
    assert_eq!(still.status.state, TaskState::AuthRequired);
    let done = hub.harness.task(Say::to(&asked, "two")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_cancel_that_comes_too_late_shows_the_end_that_there_was() {
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let mut told = hub.harness.stream("finish").await.unwrap();
        while !next_line(&mut told).await.contains("working") {}
        let id = tasks(&hub).await[0].id.clone();
        // Either it has ended when it is to be stopped, or that is what stopping it comes to.
        match hub.harness.cancel(&id).await {
            Ok(task) => assert_eq!(task.status.state, TaskState::Completed),
            Err(error) => assert_eq!(error.kind(), ErrorKind::TaskNotCancelable, "{error}"),
        }
        assert_eq!(peer.count(&[Op::CancelTask]), 1, "the agent was told");
        let ended = hub.harness.until(&id, TaskState::Completed).await.unwrap();
        assert_eq!(summary(&ended), "completed | user: finish | ");
    }
}

#[tokio::test]
async fn an_agent_that_is_too_slow_to_answer_is_not_asked_again() {
    let send_timeout = Duration::from_millis(50);
    for manners in [Manners::good(), Manners { blocks: true, ..Manners::default() }] {
        let peer = Peer::start(manners).await;
        let hub = hub(Upstream { send_timeout, ..settings(&peer.url) }).await;
        let words = summary(&hub.harness.task("mute").await.unwrap());
        assert!(words.starts_with("failed \"the agent took too long to answer"), "{words}");
        assert!(words.contains("it is not sent again"), "{words}");
        assert_eq!(peer.sends(), 1);
        assert!(matches!(hub.health().condition, Condition::Degraded(_)), "{:?}", hub.health());
    }
}

#[tokio::test]
async fn an_agent_that_stays_away_is_given_up() {
    let peer = Peer::start(Manners::good()).await;
    let hub = hub(Upstream { give_up: Duration::from_millis(50), ..settings(&peer.url) }).await;
    let mut told = hub.harness.stream("gate").await.unwrap();
    while !next_line(&mut told).await.contains("working") {}
    peer.go_down();
    let rest = lines(told).await;
    let last = rest.last().unwrap();
    assert!(last.contains("failed") && last.contains("given up"), "{rest:?}");
    assert_eq!(peer.sends(), 1);
}

/// Its card is known, and nobody is there: the circuit opens, and the next message does not even try.
#[tokio::test]
async fn an_agent_that_is_not_reached_again_and_again_is_left_alone_for_a_while() {
    let place = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let folder = Folder::new();
    let model = Peer::start(Manners { base: Some(format!("http://{address}")), ..Manners::good() }).await;
    let card = hub(settings(&model.url)).await.agent.upstream().unwrap().card().unwrap();
    let file = folder.0.join("card.json");
    std::fs::write(&file, card.to_string()).unwrap();
    let hub = hub(Upstream { card: Some(CardSource::File(file)), ..settings(&model.url) }).await;
    let calls = (0..12).map(|_| hub.harness.task("two"));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(matches!(hub.health().condition, Condition::Down(_)), "{:?}", hub.health());
    let back = Peer::on(TcpListener::bind(address).await.unwrap(), Manners::good());
    let error = hub.harness.task("two").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after().is_some()), (ErrorKind::Unavailable, true));
    assert_eq!(back.seen().len(), 0, "nobody has tried");
}
