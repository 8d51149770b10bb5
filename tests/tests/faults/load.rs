//! Callers that insist: each repeats what got no answer, takes up broken streams where they broke, and notes
//! in the ledger what it was told.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture};
use nuncio_client::{Candidate, Credentials, Direct, Egress};
use nuncio_protocol::{
    A2aService, AgentInterface, Binding, CallContext, CancelTaskRequest, Error, ErrorKind, Event,
    EventStream, GetTaskRequest, Message, Part, RESUME_EXTENSION, Result, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Seq, StreamItem, SubscribeToTaskRequest, Task, TaskId,
    TaskState, Version,
};
use nuncio_tests::chance::Chance;
use tokio::task::JoinSet;
use url::Url;

use crate::ledger::Ledger;

/// The demo agents: the first two may be asked again.
pub(crate) const AGENTS: [&str; 3] = ["echo", "slow", "conformance"];

/// The timeout of one attempt.
const ATTEMPT: Duration = Duration::from_secs(20);
/// The time for which a caller retries.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// A hub as callers reach it.
pub(crate) struct Reached {
    services: HashMap<(&'static str, Binding), Arc<dyn A2aService>>,
}

impl Reached {
    /// With the demo agents.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(address, &AGENTS)
    }

    /// With these agents.
    pub(crate) fn of(address: SocketAddr, agents: &[&'static str]) -> Self {
        let mut services: HashMap<_, Arc<dyn A2aService>> = HashMap::new();
        let home = Url::parse(&format!("http://{address}/")).unwrap();
        let egress = Egress::operator().unwrap();
        for &agent in agents {
            for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
                let is_grpc = binding == Binding::Grpc;
                let interface = AgentInterface {
                    url: if is_grpc { address.to_string() } else { format!("{home}agents/{agent}") },
                    protocol_binding: binding.as_str().to_owned(),
                    tenant: is_grpc.then(|| agent.to_owned()),
                    protocol_version: Version::V1_0.as_str().to_owned(),
                };
                let candidate = Candidate { interface, version: Version::V1_0, binding };
                let direct = Direct::new(&egress, &candidate, &Credentials::none(), &home).unwrap();
                services.insert((agent, binding), Arc::new(direct));
            }
        }
        Self { services }
    }

    /// An agent by JSON-RPC.
    pub(crate) fn agent(&self, agent: &'static str) -> &Arc<dyn A2aService> {
        self.by(agent, Binding::JsonRpc)
    }

    pub(crate) fn by(&self, agent: &'static str, binding: Binding) -> &Arc<dyn A2aService> {
        &self.services[&(agent, binding)]
    }
}

/// The context of a call.
pub(crate) fn cx() -> CallContext {
    CallContext {
        extensions: vec![RESUME_EXTENSION.to_owned()],
        deadline: Some(Instant::now() + ATTEMPT),
        ..CallContext::default()
    }
}

/// Words to an agent, under a name that is used once.
pub(crate) fn say(words: &str, immediately: bool) -> SendMessageRequest {
    static SAID: AtomicU64 = AtomicU64::new(1);
    let id = format!("m-{}", SAID.fetch_add(1, Ordering::Relaxed));
    let configuration =
        SendMessageConfiguration { return_immediately: immediately, ..SendMessageConfiguration::default() };
    SendMessageRequest {
        message: Message::user(id, Part::text(words)),
        configuration: Some(configuration),
        ..SendMessageRequest::default()
    }
}

/// A crowd of callers.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    /// Lets so many callers loose. Each comes to the hub at one of these addresses, in turn.
    pub(crate) fn start(callers: u64, hubs: &[Arc<Reached>], ledger: &Arc<Ledger>, seed: u64) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let mut set = JoinSet::new();
        for number in 0..callers {
            let mut caller = Caller {
                hub: Arc::clone(&hubs[usize::try_from(number).unwrap() % hubs.len()]),
                binding: match number % 8 {
                    3 => Binding::HttpJson,
                    5 => Binding::Grpc,
                    _ => Binding::JsonRpc,
                },
                ledger: Arc::clone(ledger),
                chance: Chance::new(seed.wrapping_add(number + 1)),
            };
            let stop = Arc::clone(&stop);
            set.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    caller.act().await;
                    tokio::time::sleep(caller.chance.millis(0..=20)).await;
                }
            });
        }
        Self { stop, callers: set }
    }

    /// Lets them end what they have begun.
    pub(crate) async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("no caller gives up");
        }
    }

    /// Fails as soon as a caller has.
    pub(crate) fn check(&mut self) {
        while let Some(ended) = self.callers.try_join_next() {
            ended.expect("no caller gives up");
        }
    }
}

struct Caller {
    hub: Arc<Reached>,
    binding: Binding,
    ledger: Arc<Ledger>,
    chance: Chance,
}

impl Caller {
    async fn act(&mut self) {
        let steps = self.chance.of(1..=40);
        // Short enough to be done between two kills: it is begun again after each.
        let pace = self.chance.of(0..=200 / steps);
        match self.chance.of(0..=10) {
            0 | 1 => drop(self.send("echo", say("hello", false)).await),
            2 => drop(self.send("slow", say(&format!("{steps} {pace}ms"), false)).await),
            3 => self.start_and_watch(&format!("{steps} {pace}ms")).await,
            4 | 5 => drop(self.stream("slow", say(&format!("{steps} {pace}ms"), false)).await),
            6 => drop(self.stream("conformance", say(&format!("chunks {steps}"), false)).await),
            7 => self.ask_and_answer().await,
            8 => self.hold_and_cancel().await,
            9 => drop(self.stream("conformance", say("sleep 1", false)).await),
            _ => self.direct_reply().await,
        }
    }

    fn service(&self, agent: &'static str) -> &Arc<dyn A2aService> {
        self.hub.by(agent, self.binding)
    }

    /// Sends under a key until there is an answer.
    async fn send_keyed(&self, agent: &'static str, req: &SendMessageRequest) -> Result<SendMessageResponse> {
        let service = &**self.service(agent);
        let attempt = || {
            let (cx, req) = (keyed(req), req.clone());
            async move { service.send_message(&cx, req).await }
        };
        insist(&self.ledger, agent, attempt).await
    }

    /// Sends what is answered with a task; now and then once more, which is the same task.
    async fn send(&mut self, agent: &'static str, req: SendMessageRequest) -> Task {
        let task = self.send_keyed(agent, &req).await.map(a_task);
        let task = task.unwrap_or_else(|error| panic!("{agent}: {req:?}: {error:?}"));
        self.ledger.answered(agent, &task);
        self.ledger.heard(agent, &task.id, req.message.message_id.as_str());
        if self.chance.once_in(4) {
            let again = self.send_keyed(agent, &req).await.map(a_task).expect("a repeat is answered");
            assert_eq!(again.id, task.id, "a repeat under the same key is the same task");
            self.ledger.answered(agent, &again);
        }
        task
    }

    async fn get(&self, agent: &'static str, id: &TaskId) -> Task {
        let service = &**self.service(agent);
        let attempt = || async move {
            let req = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
            service.get_task(&cx(), req).await
        };
        let task = insist(&self.ledger, agent, attempt).await;
        let task = task.unwrap_or_else(|error| panic!("{agent} {id} was acknowledged: {error:?}"));
        self.ledger.answered(agent, &task);
        task
    }

    /// A task that is begun without waiting, then watched, or looked at until it is done.
    async fn start_and_watch(&mut self, words: &str) {
        let task = self.send("slow", say(words, true)).await;
        if self.chance.once_in(2) {
            self.watch("slow", &task.id).await;
            return;
        }
        let begun = Instant::now();
        while !self.get("slow", &task.id).await.status.state.is_settled() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{} is stuck", task.id);
            tokio::time::sleep(self.chance.millis(10..=80)).await;
        }
    }

    /// A question, and in most cases its answer.
    async fn ask_and_answer(&mut self) {
        let asked = self.send("conformance", say("ask", false)).await;
        if asked.status.state != TaskState::InputRequired || self.chance.once_in(5) {
            return;
        }
        let mut req = say("tea", self.chance.once_in(3));
        req.message.task_id = Some(asked.id.clone());
        match self.send_keyed("conformance", &req).await {
            Ok(answer) => {
                let task = a_task(answer);
                assert_eq!(task.id, asked.id);
                self.ledger.answered("conformance", &task);
                self.ledger.heard("conformance", &asked.id, req.message.message_id.as_str());
            }
            // It was cut off while the agent worked on the answer, and that answer was never recorded.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error:?}");
                let task = self.get("conformance", &asked.id).await;
                assert!(task.status.state.is_terminal(), "{task:?}");
            }
        }
    }

    async fn hold_and_cancel(&mut self) {
        let held = self.send("echo", say("hold", true)).await;
        tokio::time::sleep(self.chance.millis(0..=200)).await;
        let (service, id) = (&**self.service("echo"), &held.id);
        let attempt = || async move {
            let req = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
            service.cancel_task(&cx(), req).await
        };
        match insist(&self.ledger, "echo", attempt).await {
            Ok(task) => {
                assert_eq!(task.status.state, TaskState::Canceled);
                self.ledger.answered("echo", &task);
            }
            // An earlier attempt got through, and its answer did not.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TaskNotCancelable, "{error:?}");
                let task = self.get("echo", &held.id).await;
                assert_eq!(task.status.state, TaskState::Canceled);
            }
        }
    }

    /// No task at all; yet the same words, however often it is asked. If the hub was killed while the agent was at
    /// work, a task that says so, and the same as often.
    async fn direct_reply(&mut self) {
        let req = say("message", false);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let answer = self.send_keyed("conformance", &req).await.expect("an answer");
            if let SendMessageResponse::Task(task) = &answer {
                assert!(was_cut_off(task), "expected a direct reply, got {task:?}");
                self.ledger.answered("conformance", task);
            }
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1], "an answer that was given is kept");
    }

    /// Sends and follows to the end.
    async fn stream(&mut self, agent: &'static str, req: SendMessageRequest) -> TaskId {
        let service = &**self.service(agent);
        let open = || {
            let (cx, req) = (keyed(&req), req.clone());
            async move { service.send_streaming_message(&cx, req).await }.boxed()
        };
        self.follow(agent, None, open).await
    }

    async fn watch(&mut self, agent: &'static str, id: &TaskId) {
        let service = &**self.service(agent);
        let open = || subscribe(service, id, None).boxed();
        self.follow(agent, Some(id.clone()), open).await;
    }

    /// Follows a task to its end, over as many connections as it takes. What `open` opens is opened until the
    /// first event has come; from then on the stream is taken up after the last one.
    async fn follow<'a>(
        &self,
        agent: &'static str,
        mut id: Option<TaskId>,
        open: impl Fn() -> BoxFuture<'a, Result<EventStream>>,
    ) -> TaskId {
        let service = &**self.service(agent);
        let mut seen: Vec<StreamItem> = Vec::new();
        loop {
            let last = seen.last().map(|item| item.seq().expect("every event has its number"));
            let opened = match (&id, last) {
                (Some(id), Some(last)) => {
                    insist(&self.ledger, agent, || subscribe(service, id, Some(last))).await
                }
                _ => insist(&self.ledger, agent, &open).await,
            };
            let stream = match opened {
                Ok(stream) => stream,
                // A subscription without a last event, to a task that has ended (REQ-144).
                Err(error) if error.kind() == ErrorKind::UnsupportedOperation && last.is_none() => {
                    let id = id.expect("only a subscription is refused so");
                    assert!(self.get(agent, &id).await.status.state.is_terminal());
                    return id;
                }
                Err(error) => panic!("{agent} {id:?} after {last:?}: {error:?}"),
            };
            let done = read(stream, &mut seen).await;
            id = id.or_else(|| seen.first().and_then(|item| item.event().task_id().cloned()));
            if done {
                let id = id.expect("a stream that is done has shown its task");
                self.ledger.watched(agent, &id, seen);
                return id;
            }
            self.ledger.repeated(false);
        }
    }
}

async fn subscribe(service: &dyn A2aService, id: &TaskId, after: Option<Seq>) -> Result<EventStream> {
    let cx = CallContext { last_event_id: after, ..cx() };
    service.subscribe_to_task(&cx, SubscribeToTaskRequest { id: id.clone(), tenant: None }).await
}

/// The context of a send that may be repeated.
pub(crate) fn keyed(req: &SendMessageRequest) -> CallContext {
    CallContext { idempotency_key: Some(req.message.message_id.as_str().to_owned()), ..cx() }
}

/// Reads until the task has ended (true), or the stream has.
async fn read(mut stream: EventStream, seen: &mut Vec<StreamItem>) -> bool {
    loop {
        let next = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("a stream ends or goes on");
        match next {
            Some(Ok(item)) => {
                let done = item.event().status().is_some_and(|status| status.state.is_settled());
                seen.push(item);
                if done {
                    return true;
                }
            }
            Some(Err(error)) => {
                assert!(passes(&error), "{error:?} after {seen:?}");
                return false;
            }
            None => return false,
        }
    }
}

/// True if it may be otherwise the next time.
fn passes(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded | ErrorKind::ResourceExhausted
    )
}

/// Tries until there is an answer that will not change.
pub(crate) async fn insist<T, F: Future<Output = Result<T>>>(
    ledger: &Ledger,
    what: &str,
    attempt: impl Fn() -> F,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        // Bound beyond the deadline that the call itself keeps.
        let answer = tokio::time::timeout(ATTEMPT * 2, attempt()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{what}: no answer, and no refusal either"));
        match answer {
            Err(error) if passes(&error) => {
                assert!(begun.elapsed() < TEST_TIMEOUT, "{what}: still refused: {error:?}");
                ledger.repeated(error.retry_after().is_some());
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            answer => return answer,
        }
    }
}

/// True if the hub was stopped while an agent was at work that is not to be asked again.
pub(crate) fn was_cut_off(task: &Task) -> bool {
    let said = task.status.message.as_ref().map(|message| message.text().into_owned()).unwrap_or_default();
    task.status.state == TaskState::Failed && said.contains("not marked as idempotent")
}

pub(crate) fn a_task(answer: SendMessageResponse) -> Task {
    match answer {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

/// All events after this one, of a task that has ended or rests.
pub(crate) async fn log_after(service: &dyn A2aService, task: &Task, after: Seq) -> Vec<StreamItem> {
    let cx = CallContext { last_event_id: Some(after), ..cx() };
    let req = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let mut stream =
        service.subscribe_to_task(&cx, req).await.unwrap_or_else(|error| panic!("{}: {error:?}", task.id));
    let mut items: Vec<StreamItem> = Vec::new();
    let is_last = |event: &Event| {
        !task.status.state.is_terminal()
            && event.status().is_some_and(|status| {
                status.timestamp == task.status.timestamp && status.state == task.status.state
            })
    };
    loop {
        let next = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await;
        let Some(item) = next.unwrap_or_else(|_| panic!("{}: the log does not end", task.id)) else {
            return items;
        };
        let item = item.unwrap_or_else(|error| panic!("{}: {error:?}", task.id));
        let last = is_last(item.event());
        items.push(item);
        if last {
            return items;
        }
    }
}
