//! A message is executed once: the store knows that it begins before its executor does.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use nuncio_server::{
    Emitter, ExecContext, Executor, Retention, RuntimeBuilder,
    protocol::{
        A2aService as _, Caller, Error, ErrorKind, ListTasksRequest, Result, SendMessageRequest,
        SendMessageResponse, Task, TaskId, TaskState,
    },
    store::{MemoryStore, OperatorQueries as _, TaskLog as _},
    testing::{FailingStore, Harness, Say, ScriptedExecutor, Step, card, lines, summary},
};

use crate::{refused, secs, settle};

/// The declaration of an executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Declares {
    Nothing,
    Idempotent,
    AlwaysLeavesTask,
}

/// An agent that counts how often it is asked, over all servers.
struct Counted {
    inner: ScriptedExecutor,
    declares: Declares,
    runs: Runs,
}

/// The tasks of the executions that were begun.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<TaskId>>>);

impl Runs {
    fn number(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn last(&self) -> TaskId {
        self.0.lock().unwrap().last().unwrap().clone()
    }
}

#[async_trait]
impl Executor for Counted {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        self.runs.0.lock().unwrap().push(cx.task_id.clone());
        self.inner.execute(cx, out).await
    }

    fn is_idempotent(&self) -> bool {
        self.declares == Declares::Idempotent
    }

    fn always_leaves_task(&self) -> bool {
        self.declares == Declares::AlwaysLeavesTask
    }
}

/// Servers on the same data, all with this agent.
#[derive(Clone)]
struct World {
    data: Arc<MemoryStore>,
    runs: Runs,
    declares: Declares,
    steps: Vec<Vec<Step>>,
}

impl World {
    fn new(steps: &[Step]) -> Self {
        Self::turns(&[steps])
    }

    fn turns(turns: &[&[Step]]) -> Self {
        Self {
            data: Arc::default(),
            runs: Runs::default(),
            declares: Declares::Nothing,
            steps: turns.iter().map(|steps| steps.to_vec()).collect(),
        }
    }

    /// Another server, whose callers use a key.
    fn server(&self) -> Harness {
        self.server_with(|builder| builder)
    }

    fn server_with(&self, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Harness {
        let inner = ScriptedExecutor::turns(self.steps.clone());
        let executor = Counted { inner, declares: self.declares, runs: self.runs.clone() };
        let harness = Harness::of(card(), FailingStore::waiting(self.data.another()), executor, build);
        harness.calling(|cx| cx.idempotency_key = Some("k".to_owned()))
    }
}

/// The same request each time.
fn request() -> SendMessageRequest {
    Say::from("hi").change(|request| request.message.message_id = "m".into()).into_request()
}

/// Sends without waiting for the answer, and lets the executor begin.
async fn begin(server: &Harness) -> tokio::task::JoinHandle<Result<SendMessageResponse>> {
    let sender = server.clone();
    let sent = tokio::spawn(async move { sender.send(request()).await });
    settle().await;
    sent
}

/// Ends a server as a crash would: nothing more of it reaches the store.
fn crash(server: &Harness) {
    server.store.take_down(true);
    server.store.retire();
}

async fn all(server: &Harness) -> Vec<Task> {
    server.runtime.list_tasks(&server.cx, ListTasksRequest::default()).await.unwrap().tasks
}

const CUT_OFF: &str = "failed \"the server stopped while the agent was at work on this task; it was not run \
                       again, because the agent is not marked as idempotent\" | user: hi | ";

#[tokio::test(start_paused = true)]
async fn recovery_and_a_repeat_end_an_abandoned_message_at_the_same_time() {
    // Both make its task. The store takes one, and the repeat is answered with that.
    let world = World::new(&[Step::Hang]);
    let first = world.server();
    let _lost = begin(&first).await;
    let task = world.runs.last();
    crash(&first);
    let second = world.server();
    second.store.hold_writes(true);
    let repeats = [begin(&second).await, begin(&second).await];
    assert_eq!(all(&second).await, [], "both are under way");
    second.store.hold_writes(false);
    for repeat in repeats {
        let SendMessageResponse::Task(found) = repeat.await.unwrap().unwrap() else { panic!("a message") };
        assert_eq!((found.id.clone(), summary(&found).as_str()), (task.clone(), CUT_OFF));
    }
    assert_eq!(all(&second).await.len(), 1);
    assert_eq!(world.runs.number(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_after_a_crash_finds_the_task_as_failed() {
    // It was run again, and the first run had left nothing.
    for (streams, looks_first) in [(false, false), (true, false), (false, true)] {
        let world = World::new(&[Step::Hang]);
        let first = world.server();
        let _lost = begin(&first).await;
        assert_eq!(world.runs.number(), 1);
        crash(&first);
        let second = world.server();
        if looks_first {
            // Nobody repeats it for now: the task is there all the same.
            tokio::time::sleep(secs(10)).await;
            assert_eq!(second.get(&world.runs.last()).await.unwrap().status.state, TaskState::Failed);
        }
        if streams {
            let told = lines(second.stream(request()).await.unwrap()).await;
            assert!(told.len() == 1 && told[0].starts_with("2 task failed"), "{told:?}");
        }
        let task = second.task(request()).await.unwrap();
        assert_eq!((summary(&task).as_str(), &task.id), (CUT_OFF, &world.runs.last()));
        assert_eq!(second.task(request()).await.unwrap(), task, "however often");
        assert_eq!((world.runs.number(), all(&second).await.len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_not_executed_before_the_store_knows_of_it() {
    for (declares, keyed, ahead) in [
        (Declares::Nothing, true, true),
        (Declares::Nothing, false, false),
        (Declares::Idempotent, true, false),
        (Declares::AlwaysLeavesTask, true, true),
        (Declares::AlwaysLeavesTask, false, true),
    ] {
        let mut world = World::turns(&[&[Step::InputRequired("which?")], &[Step::Completed]]);
        world.declares = declares;
        let server = world.server().calling(|cx| cx.idempotency_key = keyed.then(|| "k".to_owned()));
        server.store.hold_writes(true);
        let sent = begin(&server).await;
        assert_eq!(world.runs.number(), usize::from(!ahead), "{declares:?}, keyed: {keyed}");
        server.store.hold_writes(false);
        let SendMessageResponse::Task(task) = sent.await.unwrap().unwrap() else { panic!("no task") };
        assert_eq!(task.id, world.runs.last(), "under the id that was reserved");
        assert_eq!(server.store.reservations(), usize::from(ahead), "{declares:?}, keyed: {keyed}");

        // A message to the task needs no reservation: it is an entry of the log.
        server.store.hold_writes(true);
        let sender = server.calling(|cx| cx.idempotency_key = keyed.then(|| "k-2".to_owned()));
        let answered = tokio::spawn(async move { sender.task(Say::to(&task, "blue")).await });
        settle().await;
        assert_eq!(world.runs.number(), 1, "another server may get one too; {declares:?}, keyed: {keyed}");
        server.store.hold_writes(false);
        assert_eq!(answered.await.unwrap().unwrap().status.state, TaskState::Completed);
        assert_eq!(server.store.reservations(), usize::from(ahead), "{declares:?}, keyed: {keyed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_builder_says_holds_for_any_executor() {
    let world = World::new(&[]);
    let server = world.server_with(|builder| builder.idempotent(true));
    server.task(request()).await.unwrap();
    assert_eq!(server.store.reservations(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_task_is_not_there_before_its_first_event() {
    let world = World::new(&[Step::Sleep(secs(60)), Step::Working]);
    let server = world.server();
    let sent = begin(&server).await;
    let id = world.runs.last();
    for server in [&server, &world.server()] {
        assert_eq!(all(server).await, []);
        assert_eq!(refused(server.get(&id).await), ErrorKind::TaskNotFound);
        assert_eq!(refused(server.subscribe(&id).await), ErrorKind::TaskNotFound);
        assert_eq!(refused(server.cancel(&id).await), ErrorKind::TaskNotFound);
        assert!(server.store.find_task(&id).await.unwrap().is_none());
        assert_eq!(server.store.count_tasks().await.unwrap(), []);
    }
    assert!(sent.await.unwrap().is_ok());
    assert_eq!(server.get(&id).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_stays_one() {
    for declares in [Declares::Nothing, Declares::AlwaysLeavesTask] {
        let world = World { declares, ..World::new(&[Step::Sleep(secs(1)), Step::Reply("hello")]) };
        for key in [Some("k"), None] {
            let first = world.server().calling(|cx| cx.idempotency_key = key.map(str::to_owned));
            let reply = first.send(request()).await.unwrap();
            assert!(matches!(&reply, SendMessageResponse::Message(reply) if reply.text() == "hello"));
            crash(&first);
            let second = world.server();
            if key.is_some() {
                assert_eq!(second.send(request()).await.unwrap(), reply, "a repeat finds it");
                assert_eq!(world.runs.number(), 1, "{declares:?}");
            }
            tokio::time::sleep(secs(60)).await;
            assert_eq!(all(&second).await, [], "and there is no task, now or later");
            second.runtime.erase(None, &Caller::anonymous()).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_servers_one_executes_and_the_other_answers_the_same() {
    // Both executed it; one of them in vain.
    for steps in [
        &[Step::Sleep(secs(5)), Step::Artifact("a", "x")][..],
        &[Step::Working, Step::Sleep(secs(5))],
        &[Step::Sleep(secs(5)), Step::InputRequired("which?")],
        &[Step::Sleep(secs(5)), Step::Reply("hello")],
        &[Step::Sleep(secs(5)), Step::Fail("no")],
        &[],
    ] {
        let world = World::new(steps);
        let (one, two) = (world.server(), world.server());
        let (first, second) = tokio::join!(one.send(request()), two.send(request()));
        assert_eq!(first.unwrap(), second.unwrap(), "{steps:?}");
        assert_eq!(world.runs.number(), 1, "{steps:?}");

        let immediately = || Say::from(request()).immediately();
        let (one, two) = (
            one.calling(|cx| cx.idempotency_key = Some("l".to_owned())),
            two.calling(|cx| cx.idempotency_key = Some("l".to_owned())),
        );
        let (first, second) = tokio::join!(one.task(immediately()), two.task(immediately()));
        assert_eq!(first.unwrap().id, second.unwrap().id, "{steps:?}");
        tokio::time::sleep(secs(60)).await;
        assert_eq!(world.runs.number(), 2, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_task_is_executed_by_one_of_two_servers() {
    let world = World::turns(&[&[Step::InputRequired("which?")], &[Step::Sleep(secs(5))]]);
    let one = world.server();
    let task = one.task(request()).await.unwrap();
    // The second server's agent has the same script, and this is the first that it is asked.
    let two = World { steps: vec![vec![Step::Sleep(secs(5))]], ..world.clone() }.server();
    let reply = Say::to(&task, "blue").change(|request| request.message.message_id = "m-2".into());
    let keyed = |server: &Harness| server.calling(|cx| cx.idempotency_key = Some("l".to_owned()));
    let (one, two) = (keyed(&one), keyed(&two));
    let (first, second) = tokio::join!(one.task(reply.clone()), two.task(reply));
    assert_eq!((first.unwrap().id, second.unwrap().id), (task.id.clone(), task.id.clone()));
    assert_eq!(world.runs.number(), 2);
    let done = one.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(done.history.iter().filter(|message| message.text() == "blue").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_other_server_learns_that_the_first_has_gone() {
    let world = World::new(&[Step::Hang]);
    let (one, two) = (world.server(), world.server());
    let _lost = begin(&one).await;
    let waits = begin(&two).await;
    crash(&one);
    let SendMessageResponse::Task(task) = waits.await.unwrap().unwrap() else { panic!("no task") };
    assert_eq!((summary(&task).as_str(), world.runs.number()), (CUT_OFF, 1));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_only_slow_does_not_answer_for_what_was_given_up() {
    let world = World::new(&[Step::Sleep(secs(30)), Step::Artifact("a", "late")]);
    let (one, two) = (world.server(), world.server());
    let late = begin(&one).await;
    one.store.retire();
    let task = two.task(request()).await.unwrap();
    assert_eq!(summary(&task), CUT_OFF);
    let SendMessageResponse::Task(late) = late.await.unwrap().unwrap() else { panic!("no task") };
    assert_eq!((&late, &one.task(request()).await.unwrap()), (&task, &task), "what stands is told");
    assert_eq!((world.runs.number(), all(&one).await.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_after_the_reservation_leaves_a_task_that_failed() {
    let world = World::new(&[Step::Working]);
    let first = world.server();
    first.store.take_down_after_reservation();
    let _lost = begin(&first).await;
    assert_eq!(world.runs.number(), 1, "it was reserved, so it began");
    first.store.retire();
    let second = world.server();
    let task = second.task(request()).await.unwrap();
    assert_eq!((summary(&task).as_str(), world.runs.number()), (CUT_OFF, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_answer_is_lost_is_given_back() {
    let world = World::new(&[Step::Working]);
    let server = world.server();
    server.store.lose_next_reservation();
    assert_eq!(refused(server.send(request()).await), ErrorKind::Unavailable);
    assert_eq!(world.runs.number(), 0, "who knows whether it is reserved");
    assert_eq!(server.task(request()).await.unwrap().status.state, TaskState::Completed);
    assert_eq!(world.runs.number(), 1);

    // And by the next server, where the store did not come back in time.
    let world = World::new(&[Step::Working]);
    let server = world.server();
    server.store.lose_next_reservation();
    let lost = begin(&server).await;
    crash(&server);
    assert_eq!(refused(lost.await.unwrap()), ErrorKind::Unavailable);
    let next = world.server();
    assert!(next.task(request()).await.unwrap().status.state.is_terminal(), "it is not stuck");
    assert!(world.runs.number() <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_keep_the_task_is_told_that_it_failed() {
    // The reservation would be in nobody's hands, and every repeat would wait for it.
    let world = World::new(&[Step::Sleep(secs(5)), Step::Working]);
    let server = world.server();
    let lost = begin(&server).await;
    server.store.refuse_next(nuncio_server::store::Refused::Full);
    let SendMessageResponse::Task(task) = lost.await.unwrap().unwrap() else { panic!("no task") };
    assert_eq!((summary(&task).as_str(), world.runs.number()), (CUT_OFF, 1));
    assert_eq!(server.task(request()).await.unwrap(), task);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_its_message_is_reserved_stops_nothing() {
    let world = World::new(&[Step::Artifact("a", "x")]);
    let server = world.server();
    server.store.hold_writes(true);
    let sent = begin(&server).await;
    sent.abort();
    settle().await;
    server.store.hold_writes(false);
    let again = server.task(request()).await.unwrap();
    assert_eq!((summary(&again).as_str(), world.runs.number()), ("completed | user: hi | a \"x\"", 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_frees_its_key() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let executor = ScriptedExecutor::new(move |_, out| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                return out.refuse(Error::new(ErrorKind::ResourceExhausted, "not now"));
            }
            out.completed().await.map(drop)
        }
    });
    let data = MemoryStore::default();
    let server = Harness::of(card(), FailingStore::waiting(data.another()), executor, |builder| builder);
    let server = server.calling(|cx| cx.idempotency_key = Some("k".to_owned()));
    assert_eq!(refused(server.send(request()).await), ErrorKind::ResourceExhausted);
    settle().await;
    assert_eq!(server.task(request()).await.unwrap().status.state, TaskState::Completed);
    assert_eq!((asked.load(Ordering::SeqCst), all(&server).await.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_always_leaves_a_task_leaves_one_without_a_key() {
    for (declares, left) in [(Declares::AlwaysLeavesTask, 1), (Declares::Nothing, 0)] {
        let world = World { declares, ..World::new(&[Step::Hang]) };
        let first = world.server().calling(|cx| cx.idempotency_key = None);
        let _lost = begin(&first).await;
        crash(&first);
        let second = world.server();
        tokio::time::sleep(secs(60)).await;
        let tasks = all(&second).await;
        assert_eq!(tasks.len(), left, "{declares:?}");
        assert!(tasks.iter().all(|task| summary(task) == CUT_OFF), "{tasks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_erased_leaves_no_reservation() {
    for crashes in [false, true] {
        let world = World::new(&[Step::Hang]);
        let first = world.server();
        let ann = first.as_caller("ann");
        let lost = begin(&ann).await;
        let second = world.server();
        let server = if crashes { &second } else { &first };
        if crashes {
            crash(&first);
        }
        assert_eq!(server.runtime.erase(None, &Caller::authenticated("ann")).await.unwrap(), 1);
        tokio::time::sleep(secs(60)).await;
        assert_eq!(all(&second.as_caller("ann")).await, [], "crashes: {crashes}");
        assert!(second.store.idempotent_outcome(&scope(Some("ann")), "k").await.unwrap().is_none());
        assert_eq!(world.runs.number(), 1);
        lost.abort();
    }
}

fn scope(owner: Option<&str>) -> nuncio_server::store::Scope {
    nuncio_server::store::Scope { agent: "scripted".into(), tenant: None, owner: owner.map(Into::into) }
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_off_is_forgotten_in_its_time_with_its_key() {
    let world = World::new(&[Step::Hang]);
    let first = world.server();
    let _lost = begin(&first).await;
    crash(&first);
    let second = world.server_with(|builder| builder.retention(Retention::finished(secs(0))));
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(all(&second).await, []);
    assert!(second.store.idempotent_outcome(&scope(None), "k").await.unwrap().is_none());
    assert!(second.store.abandoned("scripted", 9).await.unwrap().is_empty());
}
