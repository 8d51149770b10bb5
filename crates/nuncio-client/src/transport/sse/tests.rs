//! Streams over scripted connections, in paused time.

use std::collections::VecDeque;

use async_trait::async_trait;
use futures_util::stream;
use nuncio_protocol::{
    A2aService as _, Message, Part, SendMessageRequest, Task, TaskArtifactUpdateEvent, TaskStatus,
    TaskStatusUpdateEvent, op::Op,
};
use parking_lot::Mutex;

use super::*;
use crate::{RetryPolicy, auth::Granted, retry::OnRetry, transport::Transport};

/// The script of a connection: a letter for each event, then its end.
///
/// `t` task submitted, `w` working, `a` artifact, `i` input required, `u` auth required, `c` completed,
/// `m` message, `q` task that needs input, `Q` the same with another question; `.` ends it, `!` breaks it, `e` is an error in the stream,
/// `?` says late that nobody was reached, `~` hangs. A digit before an
/// event is its number. `refuse`: no connection; `lost`: no answer; otherwise the name of an error.
#[derive(Default)]
struct Script {
    connections: Mutex<VecDeque<&'static str>>,
    /// The state of the task in answers to `GetTask`.
    state: TaskState,
    log: Mutex<Vec<String>>,
    granted: Granted,
}

fn status_of(state: TaskState) -> TaskStatus {
    TaskStatus { state, ..TaskStatus::default() }
}

fn task(state: TaskState) -> Task {
    Task { id: "t".into(), context_id: "c".into(), status: status_of(state), ..Task::default() }
}

/// A task that needs input.
fn question(text: &str) -> Event {
    let mut task = task(TaskState::InputRequired);
    task.status.message = Some(Arc::new(Message::agent(text, Part::text(text))));
    Event::Task(task)
}

fn update(state: TaskState) -> Event {
    let status = status_of(state);
    Event::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t".into(),
        context_id: "c".into(),
        status,
        ..Default::default()
    })
}

fn event(letter: char) -> Event {
    match letter {
        't' => Event::Task(task(TaskState::Submitted)),
        'q' => question("where to?"),
        'Q' => question("when?"),
        'w' => update(TaskState::Working),
        'i' => update(TaskState::InputRequired),
        'u' => update(TaskState::AuthRequired),
        'c' => update(TaskState::Completed),
        'a' => Event::ArtifactUpdate(TaskArtifactUpdateEvent { task_id: "t".into(), ..Default::default() }),
        'm' => Event::Message(Arc::new(Message::agent("m", Part::text("hi")))),
        other => panic!("no event {other}"),
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Unavailable, "broken")
}

fn connection(script: &'static str) -> Result<WireStream, Failure> {
    match script {
        "refuse" => return Err(Failure::nobody(broken())),
        "lost" => return Err(Failure::perhaps(broken())),
        "busy" => return Err(Failure::answered(broken())),
        "unsupported" => return Err(Failure::answered(ErrorKind::UnsupportedOperation.into())),
        _ => {}
    }
    let mut items: Vec<Result<StreamItem, Failure>> = Vec::new();
    let mut seq = None;
    for letter in script.chars() {
        match letter {
            '.' => return Ok(stream::iter(items).boxed()),
            '~' => return Ok(stream::iter(items).chain(stream::pending()).boxed()),
            '!' => items.push(Err(Failure::perhaps(broken()))),
            '?' => items.push(Err(Failure::nobody(broken()))),
            'e' => items.push(Err(Failure::answered(ErrorKind::Internal.into()))),
            digit if digit.is_ascii_digit() => seq = digit.to_digit(10).map(|n| Seq(n.into())),
            letter => items.push(Ok(StreamItem::new(seq.take(), Arc::new(event(letter))))),
        }
    }
    Ok(stream::iter(items).boxed())
}

#[async_trait]
impl Transport for Arc<Script> {
    fn granted(&self) -> &Granted {
        &self.granted
    }

    async fn call(&self, _cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        assert_eq!(call.op(), Op::GetTask);
        self.log.lock().push("get".to_owned());
        Ok(Reply::Task(task(self.state)))
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let what = match call.op() {
            Op::SendStreamingMessage => format!("send {}", cx.idempotency_key.as_deref().unwrap_or("-")),
            _ => format!("subscribe {}", cx.last_event_id.map_or("-".to_owned(), |seq| seq.to_string())),
        };
        self.log.lock().push(what);
        let next = self.connections.lock().pop_front();
        connection(next.unwrap_or("refuse"))
    }
}

/// An agent that resumes, or one that does not.
#[derive(Clone, Copy)]
enum Agent {
    Resuming,
    Plain,
}

/// The calls so far.
#[derive(Clone, Copy)]
enum Asks {
    Send,
    /// A send to the task `t`.
    FollowUp,
    Subscribe,
}

fn route(script: &Arc<Script>, policy: RetryPolicy, resumes: bool, on_retry: OnRetry) -> Route {
    Route::new(vec![Arc::new(Arc::clone(script))], policy, resumes, Vec::new(), on_retry)
}

/// Follows a call over these connections: what the caller sees, and what was asked.
async fn follow(
    agent: Agent,
    asks: Asks,
    state: TaskState,
    connections: &[&'static str],
) -> (String, String) {
    let script =
        Script { connections: Mutex::new(connections.iter().copied().collect()), state, ..Script::default() };
    let script = Arc::new(script);
    let policy = RetryPolicy { retries: 2, ..RetryPolicy::default() };
    let resumes = matches!(agent, Agent::Resuming);
    let route = route(&script, policy, resumes, OnRetry::default());
    let cx = CallContext { idempotency_key: Some("k".to_owned()), ..CallContext::default() };
    let mut req = SendMessageRequest::default();
    let opened = match asks {
        Asks::Send => route.send_streaming_message(&cx, req).await,
        Asks::FollowUp => {
            req.message.task_id = Some("t".into());
            route.send_streaming_message(&cx, req).await
        }
        Asks::Subscribe => {
            route.subscribe_to_task(&cx, SubscribeToTaskRequest { id: "t".into(), tenant: None }).await
        }
    };
    let mut seen = String::new();
    match opened {
        Err(error) => seen = format!("refused: {error}"),
        Ok(mut events) => {
            while let Some(item) = events.next().await {
                match item {
                    Ok(item) => seen.push(letter(item.event())),
                    Err(error) => seen.push_str(&format!(" {:?}", error.kind())),
                }
            }
        }
    }
    let log = script.log.lock().join(", ");
    (seen, log)
}

fn letter(event: &Event) -> char {
    match event {
        Event::Message(_) => 'm',
        Event::ArtifactUpdate(_) => 'a',
        Event::Task(task) if task.status.state.is_terminal() => 'C',
        Event::Task(task) if task.status == question("when?").status().cloned().unwrap() => 'Q',
        Event::Task(task) if task.status.state == TaskState::InputRequired => 'q',
        Event::Task(_) => 't',
        Event::StatusUpdate(update) => match update.status.state {
            TaskState::Working => 'w',
            TaskState::InputRequired => 'i',
            TaskState::AuthRequired => 'u',
            _ => 'c',
        },
    }
}

async fn check(agent: Agent, connections: &[&'static str], seen: &str, asked: &str) {
    check_call(agent, Asks::Send, connections, seen, asked).await;
}

async fn check_call(agent: Agent, asks: Asks, connections: &[&'static str], seen: &str, asked: &str) {
    let (saw, log) = follow(agent, asks, TaskState::Completed, connections).await;
    assert_eq!((&*saw, &*log), (seen, asked), "{connections:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_as_they_should() {
    for (connection, seen) in
        [("twac.", "twac"), ("m.", "m"), ("twi.", "twi"), ("twi!", "twi"), ("tc!", "tc"), ("tw1c.", "twc")]
    {
        check(Agent::Plain, &[connection], seen, "send k").await;
        check(Agent::Resuming, &[connection], seen, "send k").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_closed_after_its_end_is_left() {
    check(Agent::Plain, &["tc~"], "tc", "send k").await;
    check(Agent::Plain, &["m~"], "m", "send k").await;
    check(Agent::Plain, &["tctc."], "tctc", "send k").await;
}

#[tokio::test(start_paused = true)]
async fn a_resuming_agent_goes_on_after_the_last_event() {
    check(Agent::Resuming, &["1t2w!", "3ac."], "twac", "send k, subscribe 2").await;
    // The same if the connection ends as if all were well.
    check(Agent::Resuming, &["1t2w.", "3a4c."], "twac", "send k, subscribe 2").await;
    // An agent that repeats itself is forgiven.
    check(Agent::Resuming, &["1t2w!", "2w3a4c."], "twac", "send k, subscribe 2").await;
    // AUTH_REQUIRED is no end (trap T-02).
    check(Agent::Resuming, &["1t2u.", "3w4c."], "tuwc", "send k, subscribe 2").await;
}

#[tokio::test(start_paused = true)]
async fn any_other_agent_begins_with_a_snapshot() {
    check(Agent::Plain, &["1t2w!", "tac."], "twtac", "send k, subscribe -").await;
    // If the task has ended meanwhile there is nothing to subscribe to: its snapshot is the last event.
    check(Agent::Plain, &["tw!", "unsupported"], "twC", "send k, subscribe -, get").await;
}

#[tokio::test(start_paused = true)]
async fn the_question_that_a_follow_up_answers_does_not_end_its_stream() {
    let (once, twice) = ("send k", "send k, subscribe 1");
    let cases: [(&[&str], &str, &str); 7] = [
        (&["1q2w3c."], "qwc", once),
        // The next question does, whether the stream is closed or cut.
        (&["1q2w3i."], "qwi", once),
        (&["1q2i!"], "qi", once),
        (&["1q2Q!"], "qQ", once),
        (&["1q!", "2w3c."], "qwc", twice),
        // A server that shuts down closes its streams in good order.
        (&["1q.", "2w3i~"], "qwi", twice),
        (&["1qa!", "2c."], "qac", twice),
    ];
    for (connections, seen, asked) in cases {
        check_call(Agent::Resuming, Asks::FollowUp, connections, seen, asked).await;
    }
    let twice = "send k, subscribe -";
    for (connections, seen) in [
        (["q!", "qwc."], "qqwc"),
        // What was asked meanwhile is in the snapshot.
        (["q!", "Q~"], "qQ"),
    ] {
        check_call(Agent::Plain, Asks::FollowUp, &connections, seen, twice).await;
    }
    // Any other send has no old question.
    check(Agent::Resuming, &["1q!"], "q", once).await;
}

#[tokio::test(start_paused = true)]
async fn a_send_that_was_taken_up_again_ends_with_a_question() {
    check(Agent::Resuming, &["1t2w!", "3a4i~"], "twai", "send k, subscribe 2").await;
    check(Agent::Plain, &["tw!", "twi~"], "twtwi", "send k, subscribe -").await;
    check(Agent::Plain, &["tw!", "q~"], "twq", "send k, subscribe -").await;
    // As it does if the agent lets nobody subscribe to a task that waits.
    let (seen, log) =
        follow(Agent::Plain, Asks::FollowUp, TaskState::InputRequired, &["q.", "unsupported"]).await;
    assert_eq!((&*seen, &*log), ("qq", "send k, subscribe -, get"));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_not_sent_twice() {
    check(Agent::Plain, &["!"], " Unavailable", "send k").await;
    check(Agent::Plain, &["."], " Unavailable", "send k").await;
    check(Agent::Plain, &["lost"], "refused: broken", "send k").await;
    // Unless nobody has got it, or the agent knows a repetition when it sees one.
    check(Agent::Plain, &["refuse", "tc."], "tc", "send k, send k").await;
    check(Agent::Plain, &["?", "tc."], "tc", "send k, send k").await;
    check(Agent::Resuming, &["!", "1t2c."], "tc", "send k, send k").await;
    check(Agent::Resuming, &["lost", "1t2c."], "tc", "send k, send k").await;
}

#[tokio::test(start_paused = true)]
async fn patience_is_limited_and_renewed_by_progress() {
    let dead = ["1t!", "refuse", "refuse", "refuse"];
    check(Agent::Resuming, &dead, "t Unavailable", "send k, subscribe 1, subscribe 1").await;
    let slow = ["1t!", "refuse", "2w!", "refuse", "3a!", "busy", "4c."];
    let asked = "send k, subscribe 1, subscribe 1, subscribe 2, subscribe 2, subscribe 3, subscribe 3";
    check(Agent::Resuming, &slow, "twac", asked).await;
    // A snapshot is no progress: an agent that only ever sends one and closes is given up.
    check(Agent::Plain, &["t!", "t.", "t.", "t."], "ttt Unavailable", "send k, subscribe -, subscribe -")
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_is_the_end_of_it() {
    check(Agent::Resuming, &["1t2we"], "tw Internal", "send k").await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_outlives_a_wait_for_input() {
    let (seen, log) = follow(Agent::Resuming, Asks::Subscribe, TaskState::Working, &["1t2i!", "3w4c."]).await;
    assert_eq!((&*seen, &*log), ("tiwc", "subscribe -, subscribe 2"));
    let (seen, log) = follow(Agent::Plain, Asks::Subscribe, TaskState::Working, &["unsupported"]).await;
    assert_eq!((&*seen, &*log), ("refused: this operation is not supported", "subscribe -"));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_stream() {
    let script = Script { connections: Mutex::new(["tw~"].into()), ..Script::default() };
    let route = route(&Arc::new(script), RetryPolicy::default(), false, OnRetry::default());
    let deadline = (Instant::now() + Duration::from_secs(60)).into_std();
    let cx = CallContext { deadline: Some(deadline), ..CallContext::default() };
    let events = route.send_streaming_message(&cx, SendMessageRequest::default()).await.unwrap();
    let items: Vec<_> = events.collect().await;
    let kinds: Vec<_> = items.iter().map(|item| item.as_ref().err().map(Error::kind)).collect();
    assert_eq!(kinds, [None, None, Some(ErrorKind::DeadlineExceeded)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_went_out_once_is_never_said_not_to_have() {
    for (connections, was_not_sent) in [
        (&["refuse", "refuse", "refuse"][..], true),
        (&["lost", "refuse", "refuse"], false),
        (&["refuse", "lost", "refuse"], false),
        (&["!", "refuse", "refuse", "refuse"], false),
    ] {
        let script = Arc::new(Script {
            connections: Mutex::new(connections.iter().copied().collect()),
            ..Script::default()
        });
        let policy = RetryPolicy { retries: 2, ..RetryPolicy::default() };
        let route = route(&script, policy, true, OnRetry::default());
        let opened =
            route.send_streaming_message(&CallContext::default(), SendMessageRequest::default()).await;
        let error = match opened {
            Err(error) => error,
            Ok(mut events) => events.next().await.unwrap().unwrap_err(),
        };
        assert_eq!(crate::was_not_sent(&error), was_not_sent, "{connections:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_retry_is_announced_and_the_last_failure_is_not() {
    let connections = Mutex::new(["refuse", "refuse", "refuse"].into());
    let script = Arc::new(Script { connections, ..Script::default() });
    let policy = RetryPolicy { retries: 2, ..RetryPolicy::default() };
    let retries = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&retries);
    let on_retry = OnRetry::new(move |retry| {
        assert!(crate::was_not_sent(retry.error) && retry.pause > Duration::ZERO);
        seen.lock().push((retry.number, retry.max));
    });
    let route = route(&script, policy, true, on_retry);
    let opened = route.send_streaming_message(&CallContext::default(), SendMessageRequest::default()).await;
    assert!(opened.is_err());
    assert_eq!(*retries.lock(), [(1, 2), (2, 2)]);
}
