//! The scripted agent, reached in one of several ways, by several callers. A scenario cannot tell the
//! ways apart; that is what it proves.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::Response,
};
use futures_util::StreamExt as _;
use nuncio_client::{Candidate, Client, Credentials, Direct, Egress};
use nuncio_hub::config::Mode;
use nuncio_protocol::{
    A2aService, AgentCard, Artifact, Binding, CallContext, Caller, CancelTaskRequest, Error, EventStream,
    GetTaskRequest, Message, Part, RESUME_EXTENSION, Result, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, Seq, SubscribeToTaskRequest, Task, TaskId, Version,
};
use nuncio_server::{
    Executor, Runtime,
    bind::{self, BindOptions},
    push::{Push, PushOptions, RootKey},
    store::{MemoryStore, Store},
    testing::courier::{Post, Reaction, ScriptedCourier},
};
use tokio::{net::TcpListener, task::JoinHandle};
use url::Url;

use crate::{
    agent::{Gates, Scripted},
    between::{Between, HUB, Relation},
    data::{Data, Kept},
    eventually, within,
};

/// The route to the agent, and the store of its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    wire: Option<(Binding, Version, By)>,
    data: Data,
    hub: Option<Relation>,
}

impl Way {
    /// Not over a wire at all, and in memory.
    pub const BARE: Self = Self { wire: None, data: Data::Memory, hub: None };

    /// Over a wire, on a real socket.
    #[must_use]
    pub const fn wire(binding: Binding, version: Version, by: By) -> Self {
        Self { wire: Some((binding, version, by)), data: Data::Memory, hub: None }
    }

    /// Through a hub, which is spoken to over the first wire and speaks to the agent over the second.
    #[must_use]
    pub const fn through(mode: Mode, caller: (Binding, Version), agent: (Binding, Version)) -> Self {
        let (binding, version) = agent;
        let way = Self::wire(caller.0, caller.1, By::Direct);
        Self { hub: Some(Relation { mode, binding, version }), ..way }
    }

    /// The hub between the callers and the agent, if there is one.
    #[must_use]
    pub const fn hub(self) -> Option<Relation> {
        self.hub
    }

    /// True if a hub keeps the tasks: how it asks the agent is its own affair.
    #[must_use]
    pub fn is_durable(self) -> bool {
        self.hub.is_some_and(|hub| hub.mode == Mode::Durable)
    }

    /// The binding in which the agent is spoken to, if it is over a wire.
    #[must_use]
    pub fn binding(self) -> Option<Binding> {
        self.wire.map(|(binding, ..)| binding)
    }

    /// As whom the agent sees a caller: a hub comes in its own name.
    #[must_use]
    pub const fn seen_as(self, caller: &'static str) -> &'static str {
        if self.hub.is_some() { HUB } else { caller }
    }

    /// The same, with tasks that are kept there.
    #[must_use]
    pub const fn on(self, data: Data) -> Self {
        Self { data, ..self }
    }

    /// The version in which the agent is spoken to.
    #[must_use]
    pub fn version(self) -> Version {
        self.wire.map_or(CallContext::default().version, |(_, version, _)| version)
    }
}

/// By what a wire is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A transport alone: one exchange per call.
    Direct,
    /// A whole client, which finds the agent by its card.
    Client,
}

/// The header by which a caller of the test server says who it is.
pub const CALLER: &str = "x-caller";

/// The media type that the agent does not take.
pub const REFUSED_MEDIA_TYPE: &str = "application/x-unsupported";

/// The number of worlds so far.
static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// The agent and its callers.
#[derive(Debug)]
pub struct World {
    /// Somebody.
    pub alice: Party,
    /// Somebody else.
    pub bob: Party,
    /// A caller without a name.
    pub nobody: Party,
    /// The gate at which the scripts wait.
    pub gates: Gates,
    webhooks: Option<ScriptedCourier>,
    server: Option<Server>,
    _hub: Option<Between>,
    _kept: Kept,
}

impl World {
    /// The agent as it usually is: it streams, takes any media type but one, has an extended card for
    /// those who authenticate, and no webhooks.
    pub async fn open(way: Way) -> Self {
        Self::with(way, |_| {}).await
    }

    /// The agent with another card.
    pub async fn with(way: Way, change: impl FnOnce(&mut AgentCard)) -> Self {
        Self::made(way, None, change).await
    }

    /// The agent with webhooks, whose receivers take all that comes. They are at `http` only.
    pub async fn pushing(way: Way) -> Self {
        let webhooks = ScriptedCourier::new(|_| Reaction::Status(204));
        Self::made(way, Some(webhooks), |_| {}).await
    }

    async fn made(way: Way, webhooks: Option<ScriptedCourier>, change: impl FnOnce(&mut AgentCard)) -> Self {
        let scripted = Scripted::default();
        let gates = scripted.gates.clone();
        let (store, kept) = way.data.open().await;
        match way.wire {
            None => {
                let runtime = runtime(None, scripted, store, webhooks.as_ref(), change);
                let service: Arc<dyn A2aService> = Arc::new(runtime);
                let party = |caller| Party { service: Arc::clone(&service), caller };
                Self {
                    alice: party(Caller::authenticated("alice")),
                    bob: party(Caller::authenticated("bob")),
                    nobody: party(Caller::anonymous()),
                    gates,
                    webhooks,
                    server: None,
                    _hub: None,
                    _kept: kept,
                }
            }
            Some((binding, version, by)) => {
                let options = BindOptions::default();
                let server = Server::made(store, scripted, options, webhooks.as_ref(), change).await;
                let hub = match way.hub {
                    Some(relation) => {
                        Some(Between::start(server.address, relation, webhooks.is_some()).await)
                    }
                    None => None,
                };
                let party = async |name| match &hub {
                    Some(hub) => {
                        let service = hub.reached(binding, version, by, name).await;
                        Party { service, caller: Caller::anonymous() }
                    }
                    None => server.party(binding, version, by, name).await,
                };
                Self {
                    alice: party(Some("alice")).await,
                    bob: party(Some("bob")).await,
                    nobody: party(None).await,
                    gates,
                    webhooks,
                    server: Some(server),
                    _hub: hub,
                    _kept: kept,
                }
            }
        }
    }

    /// Alice, on another way to the same agent.
    ///
    /// # Panics
    /// When it is not reached over a wire.
    pub async fn alice_by(&self, binding: Binding, version: Version) -> Party {
        let server = self.server.as_ref().expect("the agent is on a socket");
        server.party(binding, version, By::Client, Some("alice")).await
    }

    /// The first notifications of the webhooks, once this many have come.
    ///
    /// # Panics
    /// When it is more, or when the agent has no webhooks.
    pub async fn posts(&self, number: usize) -> Vec<Post> {
        let webhooks = self.webhooks.as_ref().expect("the agent has webhooks");
        let enough = async || Some(webhooks.posts()).filter(|posts| posts.len() >= number);
        let posts = eventually("what webhooks are owed", enough).await;
        assert_eq!(posts.len(), number, "{posts:?}");
        posts
    }
}

/// The runtime of an agent; it is reached at `address`, if it is reached over a wire.
fn runtime(
    address: Option<SocketAddr>,
    executor: impl Executor,
    store: Arc<dyn Store>,
    webhooks: Option<&ScriptedCourier>,
    change: impl FnOnce(&mut AgentCard),
) -> Runtime {
    let mut card = AgentCard::new("scripted", "Does what the message says.").with_streaming();
    if let Some(address) = address {
        card = card.served_at(&format!("http://{address}/"));
    }
    card.default_input_modes = vec!["*/*".to_owned()];
    card.capabilities.push_notifications = Some(false);
    card.capabilities.extended_agent_card = Some(true);
    change(&mut card);
    // Not where it is really reached, so that it is the same in every run.
    let mut extended = AgentCard::new("scripted", "For those who authenticate.")
        .reached_at(Binding::JsonRpc, "https://agent.example/a2a")
        .with_streaming();
    extended.capabilities.extended_agent_card = Some(true);
    let mut builder = Runtime::builder(card, executor)
        // Worlds may share a database: each has an agent of its own.
        .agent(format!("scripted-{}", WORLDS.fetch_add(1, Ordering::Relaxed)))
        .store(Arc::clone(&store))
        .extended_card(extended)
        .refuse_media_type(format!("{REFUSED_MEDIA_TYPE}*"));
    if let Some(webhooks) = webhooks {
        let push = Push::builder(store, webhooks.clone(), RootKey::new([7; 32]));
        builder = builder.push(&push.build().expect("a key"), PushOptions::default());
    }
    builder.build()
}

/// An agent on a socket of its own, in every binding and version. Ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    /// Starts it on a free port.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(
        executor: impl Executor,
        options: BindOptions,
        change: impl FnOnce(&mut AgentCard),
    ) -> Self {
        Self::on(Arc::new(MemoryStore::default()), executor, options, change).await
    }

    /// Starts it on a free port, with tasks that are kept there.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn on(
        store: Arc<dyn Store>,
        executor: impl Executor,
        options: BindOptions,
        change: impl FnOnce(&mut AgentCard),
    ) -> Self {
        Self::made(store, executor, options, None, change).await
    }

    async fn made(
        store: Arc<dyn Store>,
        executor: impl Executor,
        options: BindOptions,
        webhooks: Option<&ScriptedCourier>,
        change: impl FnOnce(&mut AgentCard),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let runtime = runtime(Some(address), executor, store, webhooks, change);
        let card = runtime.card();
        let agent = bind::Agent::new(Arc::new(runtime), &card, options).expect("the card is good");
        let router: Router = bind::router(&agent).layer(middleware::from_fn(identify));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serving does not end by itself");
        });
        Self { address, serving }
    }

    async fn party(&self, binding: Binding, version: Version, by: By, name: Option<&str>) -> Party {
        // Over the wire the context's caller means nothing: who calls stands in the header.
        Party { service: self.reached(binding, version, by, name).await, caller: Caller::anonymous() }
    }

    /// The agent as a caller of this name reaches it.
    ///
    /// # Panics
    /// When it is not reached at all.
    pub async fn reached(
        &self,
        binding: Binding,
        version: Version,
        by: By,
        caller: Option<&str>,
    ) -> Arc<dyn A2aService> {
        let base = format!("http://{}/", self.address);
        let credentials = match caller {
            Some(name) => Credentials::none().header(CALLER, name).unwrap(),
            None => Credentials::none(),
        };
        match by {
            By::Client => connect(&base, binding, version, credentials).await.service(),
            By::Direct => {
                let card = AgentCard::default().reached_at(binding, &base);
                let interface = card.supported_interfaces[0].clone();
                direct(&base, &Candidate { interface, version, binding }, &credentials)
            }
        }
    }
}

/// A client that has found an agent by its card.
pub(crate) async fn connect(
    base: &str,
    binding: Binding,
    version: Version,
    credentials: Credentials,
) -> Client {
    let builder = Client::builder().binding(binding).version(version).credentials(credentials);
    builder.connect(base).await.unwrap()
}

/// An interface, without all that a client does.
pub(crate) fn direct(base: &str, candidate: &Candidate, credentials: &Credentials) -> Arc<dyn A2aService> {
    let egress = Egress::operator().expect("the TLS library takes our settings");
    let home = Url::parse(base).unwrap();
    Arc::new(Direct::new(&egress, candidate, credentials, &home).unwrap())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Stands for the authentication that a product would have: takes the caller's word for it.
async fn identify(mut request: Request, next: Next) -> Response {
    let name = request.headers().get(CALLER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(name) = name {
        request.extensions_mut().insert(Caller::authenticated(name));
    }
    next.run(request).await
}

/// A caller.
#[derive(Clone)]
pub struct Party {
    /// The agent as this caller reaches it.
    pub service: Arc<dyn A2aService>,
    caller: Caller,
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Party").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Party {
    /// A context for a call. The version is the wire's affair, so the scenarios leave it as it is.
    #[must_use]
    pub fn cx(&self) -> CallContext {
        // A client declares it by itself; a transport alone does not know the card, where it stands.
        let extensions = vec![RESUME_EXTENSION.to_owned()];
        CallContext { caller: self.caller.clone(), extensions, ..CallContext::default() }
    }

    /// The same, with further extensions declared.
    #[must_use]
    pub fn cx_with(&self, extensions: &[&str]) -> CallContext {
        let mut cx = self.cx();
        cx.extensions.extend(extensions.iter().map(|&uri| uri.to_owned()));
        cx
    }

    /// Sends and waits for the answer.
    ///
    /// # Errors
    /// What the agent answers.
    pub async fn send(&self, req: SendMessageRequest) -> Result<SendMessageResponse> {
        within("the answer", self.service.send_message(&self.cx(), req)).await
    }

    /// Sends what is answered with a task.
    ///
    /// # Panics
    /// When it is not.
    pub async fn task(&self, req: SendMessageRequest) -> Task {
        match self.send(req).await.unwrap() {
            SendMessageResponse::Task(task) => task,
            SendMessageResponse::Message(message) => panic!("expected a task, got {message:?}"),
        }
    }

    /// Sends what is refused.
    ///
    /// # Panics
    /// When it is not.
    pub async fn refused(&self, req: SendMessageRequest) -> Error {
        self.send(req).await.expect_err("this is to be refused")
    }

    /// Sends and follows.
    ///
    /// # Errors
    /// What the agent answers.
    pub async fn stream(&self, req: SendMessageRequest) -> Result<EventStream> {
        within("the stream", self.service.send_streaming_message(&self.cx(), req)).await
    }

    /// The task as it stands.
    ///
    /// # Errors
    /// What the agent answers.
    pub async fn get(&self, id: &TaskId) -> Result<Task> {
        let req = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        within("the task", self.service.get_task(&self.cx(), req)).await
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// What the agent answers.
    pub async fn cancel(&self, id: &TaskId) -> Result<Task> {
        let req = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
        within("the answer to the cancel", self.service.cancel_task(&self.cx(), req)).await
    }

    /// Follows a task, from the beginning of what is to come or from after an event.
    ///
    /// # Errors
    /// What the agent answers.
    pub async fn subscribe(&self, id: &TaskId, after: Option<Seq>) -> Result<EventStream> {
        let cx = CallContext { last_event_id: after, ..self.cx() };
        let req = SubscribeToTaskRequest { id: id.clone(), tenant: None };
        within("the stream", self.service.subscribe_to_task(&cx, req)).await
    }
}

/// Why there is no stream: the call was refused, or, as 0.3 does it, the stream holds nothing but the
/// refusal.
///
/// # Panics
/// When there is a stream.
pub async fn refusal(opened: Result<EventStream>) -> Error {
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    let first = within("the refusal", stream.next()).await.expect("the stream is empty");
    let error = first.expect_err("this is to be refused");
    assert!(within("the end", stream.next()).await.is_none(), "nothing follows a refusal");
    error
}

/// A script to be sent.
pub fn say(id: &str, script: &str) -> SendMessageRequest {
    SendMessageRequest { message: Message::user(id, Part::text(script)), ..SendMessageRequest::default() }
}

/// A script to be sent to a task, by the task's id alone.
pub fn say_to(task: &Task, id: &str, script: &str) -> SendMessageRequest {
    let mut req = say(id, script);
    req.message.task_id = Some(task.id.clone());
    req
}

/// The same, without waiting for more than the task itself.
#[must_use]
pub fn at_once(mut req: SendMessageRequest) -> SendMessageRequest {
    let configuration = req.configuration.get_or_insert_with(SendMessageConfiguration::default);
    configuration.return_immediately = true;
    req
}

/// The same, with at most so much history in the answer.
#[must_use]
pub fn with_history(mut req: SendMessageRequest, length: i32) -> SendMessageRequest {
    let configuration = req.configuration.get_or_insert_with(SendMessageConfiguration::default);
    configuration.history_length = Some(length);
    req
}

/// The artifact of this id.
///
/// # Panics
/// When the task has none.
#[must_use]
pub fn artifact<'a>(task: &'a Task, id: &str) -> &'a Artifact {
    let found = task.artifacts.iter().find(|artifact| artifact.artifact_id.as_str() == id);
    found.unwrap_or_else(|| panic!("no artifact {id} in {task:?}"))
}
