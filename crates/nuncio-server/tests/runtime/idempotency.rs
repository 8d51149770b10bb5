//! `Idempotency-Key`: a send that is repeated is answered once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_server::{
    Limits,
    protocol::{ErrorKind, SendMessageRequest, SendMessageResponse, Seq, TaskState},
    testing::{Harness, Say, ScriptedExecutor, Step, lines, summary},
};

use crate::{refused, secs, settle};

/// An agent that counts how often it is asked.
struct Counted {
    harness: Harness,
    executions: Arc<AtomicUsize>,
}

impl Counted {
    fn new(steps: impl Into<Vec<Step>>) -> Self {
        Self::with(steps, Limits::default())
    }

    fn with(steps: impl Into<Vec<Step>>, limits: Limits) -> Self {
        let (executions, steps) = (Arc::new(AtomicUsize::new(0)), Arc::new(steps.into()));
        let count = Arc::clone(&executions);
        let inner = ScriptedExecutor::steps((*steps).clone());
        let inner = Arc::new(inner);
        let executor = ScriptedExecutor::new(move |cx, out| {
            count.fetch_add(1, Ordering::SeqCst);
            let inner = Arc::clone(&inner);
            async move { nuncio_server::Executor::execute(&*inner, cx, out).await }
        });
        let harness = Harness::with(executor, |builder| builder.limits(limits).dedupe_message_id(true));
        Self { harness: harness.calling(|cx| cx.idempotency_key = Some("k-1".to_owned())), executions }
    }

    fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }
}

/// The same request each time.
fn request(text: &str) -> SendMessageRequest {
    Say::from(text).change(|request| request.message.message_id = "m-1".into()).into_request()
}

#[tokio::test(start_paused = true)]
async fn a_repeat_finds_the_task_of_the_first_send() {
    // protocol-notes.md, v1.0: a repeated send
    let counted = Counted::new([Step::Working, Step::Artifact("a", "x")]);
    let first = counted.harness.task(request("hi")).await.unwrap();
    let again = counted.harness.task(request("hi")).await.unwrap();
    assert_eq!((again, counted.executions()), (first.clone(), 1));

    let other_key = counted.harness.calling(|cx| cx.idempotency_key = Some("k-2".to_owned()));
    assert_ne!(other_key.task(request("hi")).await.unwrap().id, first.id, "another key is another send");
    let nobody = counted.harness.calling(|cx| cx.idempotency_key = None);
    assert_ne!(nobody.task(request("hi")).await.unwrap().id, first.id, "the message id alone says nothing");
    let other_caller = counted.harness.as_caller("bob");
    assert_ne!(other_caller.task(request("hi")).await.unwrap().id, first.id, "keys are the caller's own");
    assert_eq!(counted.executions(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_good_for_one_request_only() {
    let counted = Counted::new([]);
    counted.harness.task(request("hi")).await.unwrap();
    assert_eq!(refused(counted.harness.task(request("bye")).await), ErrorKind::InvalidParams);
    for key in [String::new(), "x".repeat(257)] {
        let harness = counted.harness.calling(|cx| cx.idempotency_key = Some(key));
        assert_eq!(refused(harness.task(request("hi")).await), ErrorKind::InvalidParams);
    }
    assert_eq!(counted.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_while_the_first_runs_joins_it() {
    for steps in [
        vec![Step::Working, Step::Sleep(secs(5))],
        vec![Step::Sleep(secs(5))],
        vec![Step::InputRequired("q")],
    ] {
        let counted = Counted::new(steps.clone());
        let sends = std::array::from_fn::<_, 4, _>(|_| counted.harness.task(request("hi")));
        let tasks = futures_util::future::join_all(sends).await;
        let first = tasks[0].as_ref().unwrap();
        for task in &tasks {
            assert_eq!(task.as_ref().unwrap(), first, "{steps:?}");
        }
        assert_eq!(counted.executions(), 1, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_request_under_a_key_that_is_in_use_is_refused() {
    let counted = Counted::new([Step::Sleep(secs(5))]);
    let (one, two) = tokio::join!(counted.harness.task(request("hi")), counted.harness.task(request("bye")));
    assert!(one.is_ok());
    assert_eq!(refused(two), ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn repeats_that_meet_while_the_store_is_asked_all_get_the_answer() {
    // The second joined a first that turned out to be a repeat itself, and waited for a task that
    // nobody had begun.
    let counted = Counted::new([Step::Working]);
    for (round, known) in [(1, false), (2, true)] {
        counted.harness.store.hold_reads(true);
        let sends = std::array::from_fn::<_, 3, _>(|_| {
            let harness = counted.harness.clone();
            tokio::spawn(async move { harness.task(request("hi")).await })
        });
        settle().await;
        counted.harness.store.hold_reads(false);
        for send in sends {
            let task = tokio::time::timeout(secs(5), send).await.expect("an answer").unwrap().unwrap();
            assert_eq!(summary(&task), "completed | user: hi | ", "round {round}, known: {known}");
        }
        assert_eq!(counted.executions(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_send_that_came_to_nothing_is_a_send_of_its_own() {
    let counted = Counted::with([Step::Working], Limits { tasks: 0, ..Limits::default() });
    counted.harness.store.hold_reads(true);
    let sends = std::array::from_fn::<_, 2, _>(|_| {
        let harness = counted.harness.clone();
        tokio::spawn(async move { harness.task(request("hi")).await })
    });
    settle().await;
    counted.harness.store.hold_reads(false);
    for send in sends {
        let answer = tokio::time::timeout(secs(5), send).await.expect("an answer").unwrap();
        assert_eq!(refused(answer), ErrorKind::ResourceExhausted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_is_kept_for_the_repeat() {
    let counted = Counted::new([Step::Sleep(secs(1)), Step::Reply("hello")]);
    let (one, two) = tokio::join!(counted.harness.send(request("hi")), counted.harness.send(request("hi")));
    let three = counted.harness.send(request("hi")).await.unwrap();
    assert!(matches!(&three, SendMessageResponse::Message(reply) if reply.text() == "hello"));
    assert_eq!((one.unwrap(), two.unwrap()), (three.clone(), three));
    let stream = counted.harness.stream(request("hi")).await.unwrap();
    assert_eq!(lines(stream).await, ["- message \"hello\""]);
    assert_eq!(counted.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_goes_on_after_the_last_event() {
    // Product table, resume
    let counted = Counted::new([Step::Working, Step::Sleep(secs(5)), Step::Artifact("a", "x")]);
    let at = |seq: Option<u64>| counted.harness.calling(|cx| cx.last_event_id = seq.map(Seq));
    let first = counted.harness.stream(request("hi")).await.unwrap();
    let all = ["1 task submitted", "2 status working", "3 artifact a \"x\" last", "4 status completed"];
    let joined = at(None).stream(request("hi")).await.unwrap();
    let resumed = at(Some(2)).stream(request("hi")).await.unwrap();
    assert_eq!(
        refused(at(Some(99)).stream(request("hi")).await),
        ErrorKind::InvalidParams,
        "beyond, while it runs"
    );
    let (first, joined, resumed) = tokio::join!(lines(first), lines(joined), lines(resumed));
    assert_eq!((&*first, &*resumed), (&all.map(str::to_owned)[..], &first[2..]));
    assert_eq!(
        (&*joined[0], &joined[1..]),
        ("2 task working", &first[2..]),
        "without a place: how it stands"
    );

    settle().await;
    for (seq, expected) in [(0, &all[..]), (2, &all[2..]), (4, &[])] {
        let stream = at(Some(seq)).stream(request("hi")).await.unwrap();
        assert_eq!(lines(stream).await, expected, "after the end, after {seq}");
    }
    assert_eq!(
        refused(at(Some(99)).stream(request("hi")).await),
        ErrorKind::InvalidParams,
        "beyond, after the end"
    );
    let stream = at(None).stream(request("hi")).await.unwrap();
    assert_eq!(lines(stream).await, ["4 task completed"], "without a place: how it stands");
    assert_eq!(counted.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_ends_where_the_first_one_did() {
    // It stayed open when the client had seen the question already.
    let counted = Counted::new([Step::InputRequired("which?")]);
    let first = lines(counted.harness.stream(request("hi")).await.unwrap()).await;
    assert_eq!(first, ["1 task submitted", "2 status input-required \"which?\""]);
    settle().await;
    for (seq, expected) in [(Some(0), &first[..]), (Some(1), &first[1..]), (Some(2), &[])] {
        let again = counted.harness.calling(|cx| cx.last_event_id = seq.map(Seq));
        let stream = again.stream(request("hi")).await.unwrap();
        let seen = tokio::time::timeout(secs(60), lines(stream)).await.expect("an end");
        assert_eq!(seen, expected, "{seq:?}");
    }
    let stream = counted.harness.stream(request("hi")).await.unwrap();
    assert_eq!(lines(stream).await, ["2 task input-required \"which?\""]);
}

#[tokio::test(start_paused = true)]
async fn a_new_stream_is_told_from_the_beginning_whatever_the_client_remembers() {
    // The id of another server's life hid the task from its own stream.
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working]));
    let stale = harness.calling(|cx| cx.last_event_id = Some(Seq(7)));
    let seen = lines(stale.stream("hi").await.unwrap()).await;
    assert_eq!(seen, ["1 task submitted", "2 status working", "3 status completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_honours_history_length_and_return_immediately() {
    let counted = Counted::new([Step::Working, Step::Sleep(secs(60))]);
    let immediately = || Say::from(request("hi")).immediately().history(0);
    let first = counted.harness.task(immediately()).await.unwrap();
    assert_eq!(summary(&first), "working |  | ", "the agent's first event");
    settle().await;
    let again = counted.harness.task(immediately()).await.unwrap();
    assert_eq!((summary(&again).as_str(), again.id), ("working |  | ", first.id.clone()));
    counted.harness.until(&first.id, TaskState::Completed).await.unwrap();
    settle().await;
    let stream = counted.harness.stream(immediately()).await.unwrap();
    let first = futures_util::StreamExt::collect::<Vec<_>>(stream).await.remove(0).unwrap();
    let nuncio_server::protocol::Event::Task(task) = &**first.event() else { panic!("no task") };
    assert_eq!(summary(task), "completed |  | ");
}

/// A task that has asked a question, and what answers it under the key `k-1`.
async fn asked(steps: &[&[Step]]) -> (Counted, SendMessageRequest) {
    let turns: Vec<Vec<Step>> = steps.iter().map(|steps| steps.to_vec()).collect();
    let executions = Arc::new(AtomicUsize::new(0));
    let (count, inner) = (Arc::clone(&executions), Arc::new(ScriptedExecutor::turns(turns)));
    let executor = ScriptedExecutor::new(move |cx, out| {
        count.fetch_add(1, Ordering::SeqCst);
        let inner = Arc::clone(&inner);
        async move { nuncio_server::Executor::execute(&*inner, cx, out).await }
    });
    let harness = Harness::new(executor);
    let id = harness.task(request("begin")).await.unwrap().id;
    let counted =
        Counted { harness: harness.calling(|cx| cx.idempotency_key = Some("k-1".to_owned())), executions };
    let reply = Say::from("blue")
        .change(|request| {
            request.message.message_id = "m-2".into();
            request.message.task_id = Some(id);
        })
        .into_request();
    (counted, reply)
}

#[tokio::test(start_paused = true)]
async fn a_repeated_follow_up_is_handled_once() {
    // Also when the first one has ended the task: the repeat is no message to an ended task.
    let (counted, reply) = asked(&[&[Step::InputRequired("which?")], &[Step::Artifact("a", "x")]]).await;
    let first = counted.harness.task(reply.clone()).await.unwrap();
    let again = counted.harness.task(reply.clone()).await.unwrap();
    assert_eq!((again, counted.executions()), (first.clone(), 2));
    assert_eq!(first.history.iter().filter(|message| message.text() == "blue").count(), 1);

    let mut other = reply;
    other.message.parts = vec!["red".into()];
    assert_eq!(refused(counted.harness.task(other).await), ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_is_repeated_while_it_runs_is_joined() {
    let (counted, reply) =
        asked(&[&[Step::InputRequired("which?")], &[Step::Working, Step::Sleep(secs(5))]]).await;
    let (first, again) = tokio::join!(counted.harness.task(reply.clone()), counted.harness.task(reply));
    assert_eq!(first.unwrap(), again.unwrap());
    assert_eq!(counted.executions(), 2);
}

/// For agents with this option; a key of the caller comes first.
#[tokio::test(start_paused = true)]
async fn a_message_id_stands_for_a_key() {
    let counted = Counted::new([Step::Working, Step::Artifact("a", "x")]);
    let harness = counted.harness.calling(|cx| cx.idempotency_key = None);
    let first = harness.task(request("hi")).await.unwrap();
    let again = Say::from("hi").change(|request| request.message.message_id = "m-1".into()).history(0);
    let repeated = harness.task(again).await.unwrap();
    assert_eq!((&repeated.id, counted.executions()), (&first.id, 1), "however its caller waits");
    let error = harness.task(request("something else")).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "message.messageId");
    let other = Say::from("hi").change(|request| request.message.message_id = "m-2".into());
    assert_ne!(harness.task(other).await.unwrap().id, first.id, "another id is another message");
    assert_ne!(harness.as_caller("ann").task(request("hi")).await.unwrap().id, first.id, "of somebody else");
    let keyed = counted.harness.task(request("hi")).await.unwrap();
    assert_ne!(keyed.id, first.id, "a key is no message id");
    assert_eq!(counted.executions(), 4);
    // Nobody can ask for it by a key.
    let forged = harness.calling(|cx| cx.idempotency_key = Some("messageId:m-1".to_owned()));
    assert_ne!(forged.task(request("hi")).await.unwrap().id, first.id);
}

#[tokio::test(start_paused = true)]
async fn a_message_id_may_be_reused_unless_the_agent_says_otherwise() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Completed]));
    let first = harness.task(request("hi")).await.unwrap();
    assert_ne!(harness.task(request("hi")).await.unwrap().id, first.id);
}
