//! An upstream agent on a socket, with as few manners as a test wants.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use nuncio_client::{SigningKey, sign_card};
use nuncio_protocol::{
    A2aService, AgentCard, AgentExtension, Artifact, Binding, CallContext, Error, ErrorKind, Event,
    Interceptor, Message, Next, Part, RESUME_EXTENSION, Result, SendMessageResponse, StreamItem,
    TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Version,
    op::{Call, Op, Reply},
};
use nuncio_server::{
    Emitter, ExecContext, Runtime,
    bind::{self, BindOptions, CardSigner},
    testing::ScriptedExecutor,
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use url::Url;

/// The features that a peer lacks or refuses.
#[derive(Clone, Default)]
pub(super) struct Manners {
    /// Its card says that it streams.
    pub(super) says_streams: bool,
    /// It does not have these.
    pub(super) lacks: Vec<Op>,
    /// It answers when it is done, whatever it is asked.
    pub(super) blocks: bool,
    /// Streams end after so many events.
    pub(super) cuts_at: Option<usize>,
    /// It has its own names for conversations.
    pub(super) renames: bool,
    /// It speaks this version and this binding only.
    pub(super) only: Option<(Version, Binding)>,
    /// It refuses this version, although its card promises it.
    pub(super) refuses: Option<Version>,
    /// Its card is here and nowhere else.
    pub(super) card_at: Option<&'static str>,
    /// Requests without these headers are refused.
    pub(super) wants: &'static [(&'static str, &'static str)],
    /// Its streams tell of other tasks, go on after the end, and never close.
    pub(super) rambles: bool,
    /// After the end its streams tell of one thing after the other.
    pub(super) drivels: bool,
    /// It says what it has made, and a message, and gives the task no name.
    pub(super) mumbles: bool,
    /// Asked for a task, it tells of another.
    pub(super) confuses: bool,
    /// It answers every message that begins a task with its first task.
    pub(super) repeats_tasks: bool,
    /// Its tasks have so many artifacts.
    pub(super) clutters: usize,
    /// It recognises a message that comes again.
    pub(super) knows_repeats: bool,
    /// Callers must declare this.
    pub(super) demands: Option<&'static str>,
    /// The input modes of its card; none: text.
    pub(super) takes: &'static [&'static str],
    /// It shows more of itself to those who are known.
    pub(super) extended: bool,
    /// It signs its card with the key of this seed.
    pub(super) signs: Option<u8>,
    /// The address on its card, if it differs from its own.
    pub(super) base: Option<String>,
}

/// The key of a seed.
pub(super) fn key(seed: u8) -> SigningKey {
    SigningKey::from_ed25519_seed(&[seed; 32]).unwrap()
}

impl Manners {
    pub(super) fn good() -> Self {
        Self { says_streams: true, ..Self::default() }
    }
}

/// The requests that a peer has received.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) op: Op,
    pub(super) cx: CallContext,
    pub(super) call: Call,
}

pub(super) struct Peer {
    pub(super) url: Url,
    pub(super) state: Arc<Inner>,
}

pub(super) struct Inner {
    manners: Manners,
    base: String,
    pub(super) seen: Mutex<Vec<Seen>>,
    /// The path and the headers of every request, also of those that it refused.
    pub(super) requests: Mutex<Vec<(String, HeaderMap)>>,
    /// The first task that it made.
    first: Mutex<Option<TaskId>>,
    /// Lets the agent go on that waits at it.
    pub(super) gate: Notify,
    /// Its streams are cut when this fires.
    cut: ArcSwap<CancellationToken>,
    /// The card that it serves in place of its own.
    card: ArcSwap<Option<String>>,
    /// `None` while it is down.
    router: ArcSwap<Option<Router>>,
}

impl Peer {
    pub(super) async fn start(manners: Manners) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), manners)
    }

    pub(super) fn on(listener: TcpListener, manners: Manners) -> Self {
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Inner {
            base: manners.base.clone().unwrap_or_else(|| base.clone()),
            manners,
            seen: Mutex::default(),
            requests: Mutex::default(),
            first: Mutex::default(),
            gate: Notify::new(),
            cut: ArcSwap::from_pointee(CancellationToken::new()),
            card: ArcSwap::default(),
            router: ArcSwap::default(),
        });
        let peer = Self { url: Url::parse(&base).unwrap(), state };
        peer.begin_anew();
        let app = Router::new().fallback(serve).with_state(Arc::clone(&peer.state));
        tokio::spawn(async move { axum::serve(listener, app).await });
        peer
    }

    /// As after a restart: it knows of nothing.
    pub(super) fn begin_anew(&self) {
        self.state.router.store(Arc::new(Some(self.state.agent())));
    }

    /// Goes away; gives back what it was, to come back with.
    pub(super) fn go_down(&self) -> Arc<Option<Router>> {
        let before = self.state.router.swap(Arc::new(None));
        self.state.cut.swap(Arc::new(CancellationToken::new())).cancel();
        before
    }

    /// From now on this is what it shows as its card.
    pub(super) fn show(&self, card: impl Into<String>) {
        self.state.card.store(Arc::new(Some(card.into())));
    }

    pub(super) fn come_back(&self, router: Arc<Option<Router>>) {
        self.state.router.store(router);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().clone()
    }

    pub(super) fn count(&self, wanted: &[Op]) -> usize {
        self.seen().iter().filter(|seen| wanted.contains(&seen.op)).count()
    }

    /// The number of messages that were accepted.
    pub(super) fn sends(&self) -> usize {
        let lacks = &self.state.manners.lacks;
        let is_send =
            |op: Op| matches!(op, Op::SendMessage | Op::SendStreamingMessage) && !lacks.contains(&op);
        self.seen().iter().filter(|seen| is_send(seen.op)).count()
    }
}

async fn serve(State(peer): State<Arc<Inner>>, mut request: Request) -> Response {
    let Some(router) = &**peer.router.load() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    peer.requests.lock().push((request.uri().path().to_owned(), request.headers().clone()));
    let is_shown =
        |(name, value): &(&str, &str)| request.headers().get(*name).is_some_and(|shown| shown == value);
    if !peer.manners.wants.iter().all(is_shown) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if let Some(path) = peer.manners.card_at {
        if request.uri().path() == path {
            *request.uri_mut() = "/.well-known/agent-card.json".parse().unwrap();
        } else if request.uri().path().starts_with("/.well-known") {
            return StatusCode::NOT_FOUND.into_response();
        }
    }
    match &**peer.card.load() {
        Some(card) if request.uri().path().starts_with("/.well-known") => {
            ([("cache-control", "no-cache")], card.clone()).into_response()
        }
        _ => router.clone().oneshot(request).await.into_response(),
    }
}

impl Inner {
    fn agent(self: &Arc<Self>) -> Router {
        let mut card = AgentCard::new("peer", "A peer.").served_at(&self.base).with_streaming();
        if let Some((version, binding)) = self.manners.only {
            let fits = |interface: &nuncio_protocol::AgentInterface| {
                interface.version() == Some(version) && interface.binding() == Some(binding)
            };
            card.supported_interfaces.retain(fits);
        }
        if !self.manners.takes.is_empty() {
            card.default_input_modes = self.manners.takes.iter().map(|mode| (*mode).to_owned()).collect();
        }
        if let Some(uri) = self.manners.demands {
            let (uri, required) = (uri.to_owned(), true);
            card.capabilities.extensions.push(AgentExtension { uri, required, ..AgentExtension::default() });
        }
        let peer = Arc::clone(self);
        let executor = ScriptedExecutor::new(move |cx, out| act(Arc::clone(&peer), cx, out));
        let mut builder = Runtime::builder(card.clone(), executor).interceptor(Watching(Arc::clone(self)));
        if self.manners.extended {
            card.capabilities.extended_agent_card = Some(true);
            let more = AgentCard { description: "A peer, and more.".to_owned(), ..card.clone() };
            builder = Runtime::builder(card.clone(), ScriptedExecutor::steps([]))
                .interceptor(Watching(Arc::clone(self)))
                .extended_card(more)
                .open_extended_card();
        }
        let runtime = builder.build();
        card.capabilities.streaming = Some(self.manners.says_streams);
        if self.manners.knows_repeats {
            let uri = RESUME_EXTENSION.to_owned();
            card.capabilities.extensions.push(AgentExtension { uri, ..AgentExtension::default() });
        }
        let keep_headers = vec![http::HeaderName::from_static("x-team")];
        let signer = |seed| CardSigner::new(move |card, _| sign_card(card, &[key(seed)]));
        let card_signer = self.manners.signs.map(signer);
        let options = BindOptions { keep_headers, card_signer, ..BindOptions::default() };
        let agent = bind::Agent::new(Arc::new(runtime) as Arc<dyn A2aService>, &card, options).unwrap();
        bind::router(&agent)
    }
}

impl Inner {
    /// The answer as one about the first task that there was.
    async fn first_for_all(&self, reply: Reply) -> Result<Reply> {
        let rename = |id: &TaskId| {
            let mut first = self.first.lock();
            first.get_or_insert_with(|| id.clone()).clone()
        };
        Ok(match reply {
            Reply::Sent(SendMessageResponse::Task(mut task)) => {
                task.id = rename(&task.id);
                Reply::Sent(SendMessageResponse::Task(task))
            }
            Reply::Stream(events) => {
                let mut renamed = Vec::new();
                for item in events.collect::<Vec<_>>().await {
                    let mut event = Event::clone(item?.event());
                    match &mut event {
                        Event::Task(task) => task.id = rename(&task.id),
                        Event::StatusUpdate(update) => update.task_id = rename(&update.task_id),
                        Event::ArtifactUpdate(update) => update.task_id = rename(&update.task_id),
                        Event::Message(_) => {}
                    }
                    renamed.push(Ok(StreamItem::new(None, Arc::new(event))));
                }
                Reply::Stream(Box::pin(stream::iter(renamed)))
            }
            reply => reply,
        })
    }
}

/// Handles a message by its first word.
async fn act(peer: Arc<Inner>, cx: ExecContext, out: Emitter) -> Result<()> {
    let text = cx.text().into_owned();
    let piece = |text: &str| Artifact::new("a", Part::text(text));
    match text.split(' ').next().unwrap_or_default() {
        "reply" => out.message(Part::text("hello")).await,
        "ask" => out.input_required("which?").await.map(drop),
        "auth" => {
            out.auth_required("log in").await?;
            tokio::select! {
                () = peer.gate.notified() => {}
                () = out.until_follow_up() => return Ok(()),
                () = cx.cancellation.cancelled() => return Ok(()),
            }
            out.working().await?;
            out.artifact(piece("let in")).await?;
            out.completed().await.map(drop)
        }
        // A cancel comes too late for it.
        "finish" => {
            out.working().await?;
            cx.cancellation.cancelled().await;
            out.completed().await.map(drop)
        }
        // It has no end.
        "forever" => loop {
            out.chunk(piece(&"x".repeat(1_000)), true, false).await?;
            tokio::task::yield_now().await;
        },
        "mute" => {
            peer.gate.notified().await;
            out.completed().await.map(drop)
        }
        "gate" => {
            out.working().await?;
            tokio::select! {
                () = peer.gate.notified() => {}
                () = cx.cancellation.cancelled() => return Ok(()),
            }
            out.artifact(piece("through")).await?;
            out.completed().await.map(drop)
        }
        _ => {
            out.working().await?;
            out.chunk(piece("x"), false, false).await?;
            out.chunk(piece("y"), true, true).await?;
            out.completed().await.map(drop)
        }
    }
}

/// Tells of another task before each event, makes something after the end, and never closes.
fn rambling(
    events: impl Stream<Item = Result<StreamItem>> + Send,
) -> impl Stream<Item = Result<StreamItem>> + Send {
    let item = |event| Ok(StreamItem::new(None, Arc::new(event)));
    let name = Arc::new(Mutex::new(None));
    let known = Arc::clone(&name);
    let before = events.flat_map(move |event| {
        let id = event.as_ref().ok().and_then(|item| item.event().task_id().cloned());
        name.lock().get_or_insert(id);
        let status = TaskStatus { state: TaskState::Failed, message: None, timestamp: None };
        let other =
            TaskStatusUpdateEvent { task_id: "other".into(), status, ..TaskStatusUpdateEvent::default() };
        // A stream begins with its own task.
        let first = event.as_ref().is_ok_and(|item| matches!(**item.event(), Event::Task(_)));
        let other = (!first).then(|| item(Event::StatusUpdate(other)));
        stream::iter(other.into_iter().chain([event]))
    });
    let after = stream::once(async move {
        let task_id = known.lock().clone().flatten().unwrap_or_default();
        let artifact = Arc::new(Artifact::new("late", Part::text("z")));
        item(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id,
            artifact,
            ..TaskArtifactUpdateEvent::default()
        }))
    });
    before.chain(after).chain(stream::pending())
}

/// Has no end.
fn driveling(
    events: impl Stream<Item = Result<StreamItem>> + Send,
) -> impl Stream<Item = Result<StreamItem>> + Send {
    let id = Arc::new(Mutex::new(None));
    let known = Arc::clone(&id);
    let before = events.inspect(move |event| {
        let of = event.as_ref().ok().and_then(|item| item.event().task_id().cloned());
        id.lock().get_or_insert(of);
    });
    let after = stream::unfold(known, |known| async move {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let task_id = known.lock().clone().flatten();
        let artifact = Arc::new(Artifact::new("drivel", Part::text("z")));
        let task_id = task_id.unwrap_or_default();
        let update = TaskArtifactUpdateEvent { task_id, artifact, ..TaskArtifactUpdateEvent::default() };
        Some((Ok(StreamItem::new(None, Arc::new(Event::ArtifactUpdate(update)))), known))
    });
    before.chain(after)
}

/// Sees every call, and has the manners of the peer.
struct Watching(Arc<Inner>);

#[async_trait]
impl Interceptor for Watching {
    async fn intercept(&self, cx: &mut CallContext, mut call: Call, next: Next<'_>) -> Result<Reply> {
        let (peer, op) = (&self.0, call.op());
        if peer.manners.refuses == Some(cx.version) {
            return Err(ErrorKind::VersionNotSupported.into());
        }
        let seen = Seen { op, cx: cx.clone(), call: call.clone() };
        peer.seen.lock().push(seen);
        let manners = &peer.manners;
        if manners.lacks.contains(&op) {
            return Err(ErrorKind::UnsupportedOperation.into());
        }
        if let Call::SendMessage(req) | Call::SendStreamingMessage(req) = &mut call {
            if req.message.text() == "refuse" {
                return Err(Error::invalid_field("message.parts[0]", "no such currency"));
            }
            if req.message.text() == "break" {
                return Err(ErrorKind::InvalidAgentResponse.into());
            }
            if let Some(configuration) = req.configuration.as_mut().filter(|_| manners.blocks) {
                configuration.return_immediately = false;
            }
            let context =
                req.message.context_id.as_ref().filter(|_| manners.renames && req.message.task_id.is_none());
            if let Some(context) = context.filter(|context| !context.as_str().starts_with("up-")) {
                req.message.context_id = Some(format!("up-{context}").into());
            }
        }
        let begins = matches!(&call, Call::SendMessage(req) | Call::SendStreamingMessage(req) if req.message.task_id.is_none());
        let mut reply = next.run(cx, call).await?;
        if manners.repeats_tasks && begins {
            return peer.first_for_all(reply).await;
        }
        if let Reply::Task(task) = &mut reply {
            if manners.confuses {
                task.id = "other".into();
            }
            let more = (0..manners.clutters).map(|n| Artifact::new(n.to_string(), Part::text("x")).into());
            task.artifacts.extend(more);
        }
        let Reply::Stream(events) = reply else { return Ok(reply) };
        let cut = CancellationToken::clone(&peer.cut.load());
        let events = events.take(manners.cuts_at.unwrap_or(usize::MAX));
        if manners.mumbles {
            let artifact = Arc::new(Artifact::new("a", Part::text("x")));
            let piece = TaskArtifactUpdateEvent { artifact, ..TaskArtifactUpdateEvent::default() };
            let words = Message::agent("m", Part::text("done"));
            let said = [Event::ArtifactUpdate(piece), Event::Message(Arc::new(words))];
            let said = said.map(|event| Ok(StreamItem::new(None, Arc::new(event))));
            return Ok(Reply::Stream(Box::pin(stream::iter(said))));
        }
        if manners.drivels {
            return Ok(Reply::Stream(Box::pin(driveling(events))));
        }
        if manners.rambles {
            return Ok(Reply::Stream(Box::pin(rambling(events))));
        }
        Ok(Reply::Stream(Box::pin(events.take_until(cut.cancelled_owned()))))
    }
}
