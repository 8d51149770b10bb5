//! Agents of one hub that delegate to each other in memory, without a link or a card.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, Artifact, TaskState};
use nuncio_server::{
    Executor, Runtime,
    store::MemoryStore,
    testing::{Harness, Say, lines, summary},
};

use super::*;

/// An agent in memory.
struct Local(Arc<dyn A2aService>, bool);

impl Delegate for Local {
    fn service(&self) -> Arc<dyn A2aService> {
        Arc::clone(&self.0)
    }

    fn streams(&self) -> bool {
        self.1
    }
}

/// Delegates every message to another agent of the hub.
struct Delegating {
    hop: Hop,
    to: OnceLock<Arc<dyn A2aService>>,
    streams: bool,
    executions: AtomicUsize,
}

impl Delegating {
    fn new(agent: &str, streams: bool) -> Arc<Self> {
        let (to, executions) = Default::default();
        Arc::new(Self { hop: Hop::new("hub", agent), to, streams, executions })
    }

    fn to(&self, runtime: &Runtime) {
        assert!(self.to.set(Arc::new(runtime.clone())).is_ok());
    }
}

struct Shared(Arc<Delegating>);

#[async_trait]
impl Executor for Shared {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let Self(agent) = self;
        agent.executions.fetch_add(1, Ordering::Relaxed);
        let passage = match agent.hop.pass(&cx.call.hops) {
            Ok(passage) => passage,
            Err(error) => return refuse(&cx, &out, error).await,
        };
        let pace = Pace {
            follow: Follow::Auto,
            send_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            poll_interval: Duration::from_millis(1),
            give_up: Duration::from_secs(5),
        };
        let to = Local(Arc::clone(agent.to.get().unwrap()), agent.streams);
        let delegation = Delegation::new(passage, &cx, &out, pace, to);
        let ids = RemoteIds { context_id: Some(cx.context_id.clone()), ..RemoteIds::default() };
        match delegation.send(&ids).await {
            Ok(answer) => delegation.follow_answer(answer, None).await,
            Err(error) => refuse(&cx, &out, error).await,
        }
    }
}

/// Makes an artifact of what it is told, in two pieces, and tells whose call it was.
struct Works;

#[async_trait]
impl Executor for Works {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        out.working().await?;
        let who = cx.call.caller.principal().map_or("nobody", |who| &**who).to_owned();
        for (text, is_last) in [(cx.text().into_owned(), false), (format!(" for {who}"), true)] {
            out.chunk(Artifact::new("a", Part::text(text)), is_last, is_last).await?;
        }
        out.completed().await?;
        Ok(())
    }
}

fn runtime(agent: &str, executor: impl Executor) -> Runtime {
    let mut card = AgentCard::new(agent, "").with_streaming();
    card.default_input_modes = vec!["*/*".to_owned()];
    Runtime::builder(card, executor).agent(agent).build()
}

fn harness(runtime: &Runtime) -> Harness {
    let store = Arc::new(MemoryStore::default().into());
    Harness { runtime: runtime.clone(), store, cx: CallContext::default() }
}

#[tokio::test]
async fn a_task_of_any_service_is_followed_by_a_stream_or_by_polls() {
    let works = runtime("works", Works);
    for streams in [true, false] {
        let agent = Delegating::new("room", streams);
        agent.to(&works);
        let hub = harness(&runtime("room", Shared(agent)));
        let hub = hub.calling(|cx| cx.caller = nuncio_protocol::Caller::authenticated("ann"));
        let task = hub.task("two").await.unwrap();
        assert_eq!(summary(&task), "completed | user: two | a \"two for ann\"", "streams: {streams}");
        let told = lines(hub.stream("two").await.unwrap()).await;
        assert_eq!(told.iter().filter(|line| line.contains("completed")).count(), 1, "{told:?}");
    }
}

#[tokio::test]
async fn agents_of_one_hub_that_delegate_to_each_other_do_not_go_round_for_ever() {
    let (one, two) = (Delegating::new("one", true), Delegating::new("two", true));
    let runtimes = [runtime("one", Shared(Arc::clone(&one))), runtime("two", Shared(Arc::clone(&two)))];
    one.to(&runtimes[1]);
    two.to(&runtimes[0]);
    let error = harness(&runtimes[0]).task(Say::from("round")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    assert!(error.message().contains("come through one before"), "{error:?}");
    let executions = [&one, &two].map(|agent| agent.executions.load(Ordering::Relaxed));
    assert_eq!(executions, [2, 1], "one begins, two goes on, and one refuses");
}

#[tokio::test]
async fn an_agent_that_delegates_to_itself_is_stopped_and_a_long_chain_as_well() {
    let own = Delegating::new("own", true);
    let own_runtime = runtime("own", Shared(Arc::clone(&own)));
    own.to(&own_runtime);
    let error = harness(&own_runtime).task("round").await.unwrap_err();
    assert!(error.message().contains("come through own before"), "{error:?}");

    let agents: Vec<_> = (0..6).map(|number| Delegating::new(&number.to_string(), true)).collect();
    let chain: Vec<_> = agents
        .iter()
        .zip(0..)
        .map(|(agent, number)| runtime(&format!("{number}"), Shared(Arc::clone(agent))))
        .collect();
    for (agent, next) in agents.iter().zip(chain.iter().skip(1)) {
        agent.to(next);
    }
    agents[5].to(&runtime("works", Works));
    let error = harness(&chain[0]).task("far").await.unwrap_err();
    assert!(error.message().contains("come through 5 hubs"), "{error:?}");
    let task = harness(&chain[1]).task("near").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
}

/// Hops go on in the trace as well, where a remote agent would hand on nothing else.
#[tokio::test]
async fn a_call_in_memory_has_the_hop_of_the_agent_that_makes_it() {
    struct Seen(Arc<Mutex<Vec<CallContext>>>);
    #[async_trait]
    impl Executor for Seen {
        async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
            self.0.lock().push(CallContext::clone(&cx.call));
            out.message(vec![Part::text("seen")]).await
        }
    }
    let seen = Arc::new(Mutex::default());
    let agent = Delegating::new("room", true);
    agent.to(&runtime("seen", Seen(Arc::clone(&seen))));
    let before = "far/agent".to_owned();
    let hub = harness(&runtime("room", Shared(agent))).calling(|cx| cx.hops = vec![before.clone()]);
    hub.send("hello").await.unwrap();
    let CallContext { hops, trace, .. } = seen.lock().pop().unwrap();
    assert_eq!(hops, [before, "hub/room".to_owned()]);
    assert!(trace.unwrap().state.unwrap().starts_with("nuncio="), "hops are in the trace, too");
}
