//! A correct agent, in both versions and all bindings, behind a layer that may break it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::Response,
};
use bytes::Bytes;
use nuncio_protocol::{AgentCard, Artifact, Caller, Error, ErrorKind, Part, Result};
use nuncio_server::{
    Emitter, ExecContext, Executor, Runtime,
    bind::{self, BindOptions},
    push::{Push, PushOptions, RootKey},
    store::{MemoryStore, Store},
};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    breaker::{self, Breaker},
    courier::{self, Notify},
};

/// The header by which a caller says who it is.
pub(crate) const CALLER: &str = "x-caller";

/// The behaviour of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The time between the first event and the last.
    pub(crate) pace: Duration,
    /// Answers with a message instead of a task.
    pub(crate) message_only: bool,
    /// Callers without a name are refused.
    pub(crate) needs_caller: bool,
    /// Webhooks are delivered, also to this machine.
    pub(crate) pushes: bool,
    /// Webhooks may be anywhere.
    pub(crate) private_webhooks: bool,
    /// Changes notifications on their way; `None` loses them.
    pub(crate) notify: Option<Notify>,
    /// Changes the card.
    pub(crate) card: fn(&mut AgentCard),
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            pace: Duration::from_millis(300),
            message_only: false,
            needs_caller: false,
            pushes: false,
            private_webhooks: false,
            notify: Some(|headers, body, _| Some((headers, body))),
            card: |_| {},
        }
    }
}

/// An agent on a free port.
pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    /// The number of messages that the agent worked on.
    pub(crate) executed: Arc<AtomicUsize>,
    /// The tasks of the agent.
    store: Arc<dyn Store>,
    serving: JoinHandle<()>,
}

impl Agent {
    /// The number of tasks that are neither terminal nor wait for their caller.
    pub(crate) async fn running(&self) -> usize {
        let counts = self.store.count_tasks().await.unwrap();
        let running =
            counts.iter().filter(|count| !count.state.is_terminal() && !count.state.is_interrupted());
        running.map(|count| usize::try_from(count.tasks).unwrap()).sum()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Worker {
    behaviour: Behaviour,
    executed: Arc<AtomicUsize>,
}

#[async_trait]
impl Executor for Worker {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        self.executed.fetch_add(1, Ordering::SeqCst);
        if self.behaviour.message_only {
            return out.message(Part::text("hello")).await;
        }
        out.working().await?;
        tokio::select! {
            () = tokio::time::sleep(self.behaviour.pace) => {}
            () = cx.cancellation.cancelled() => return Ok(()),
        }
        out.chunk(Artifact::new("text", Part::text("one ")), false, false).await?;
        out.chunk(Artifact::new("text", Part::text("two")), true, true).await?;
        let file = Part::raw(Bytes::from_static(b"file?>")).with_media_type("text/plain");
        out.artifact(Artifact::new("file", file)).await?;
        Ok(())
    }
}

/// Starts an agent.
pub(crate) async fn start(behaviour: Behaviour, breaker: Breaker) -> Agent {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut card = AgentCard::new("zoo", "Works for a moment.").with_streaming();
    card = card.served_at(&format!("http://{address}"));
    card.capabilities.push_notifications = Some(behaviour.pushes);
    (behaviour.card)(&mut card);
    let executed = Arc::new(AtomicUsize::new(0));
    let worker = Worker { behaviour: behaviour.clone(), executed: Arc::clone(&executed) };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let kept = Arc::clone(&store);
    let mut builder = Runtime::builder(card.clone(), worker).store(Arc::clone(&store));
    if card.capabilities.extended_agent_card == Some(true) {
        builder = builder.extended_card(card.clone());
    }
    if behaviour.pushes {
        let allow = vec!["127.0.0.0/8".parse().unwrap()];
        let policy =
            nuncio_client::Policy { allow_private: behaviour.private_webhooks, allow, ..Default::default() };
        let egress = nuncio_client::Egress::guarded(policy).unwrap();
        let courier = courier::Odd { egress, notify: behaviour.notify, sent: AtomicUsize::new(0) };
        let push = Push::builder(store, courier, RootKey::new([7; 32])).build().unwrap();
        builder = builder.push(&push, PushOptions::default());
    }
    let runtime = builder.build();
    let agent = bind::Agent::new(Arc::new(runtime.clone()), &runtime.card(), BindOptions::default()).unwrap();
    let needs_caller = behaviour.needs_caller;
    let router: Router = bind::router(&agent)
        .layer(middleware::from_fn(move |request: Request, next: Next| identify(needs_caller, request, next)))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            breaker::pass(breaker, request, next)
        }));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Agent { address, executed, store: kept, serving }
}

/// Takes the caller's word for its name; cards are open to all.
async fn identify(needs_caller: bool, mut request: Request, next: Next) -> Response {
    let name = request.headers().get(CALLER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    match name {
        Some(name) => {
            request.extensions_mut().insert(Caller::authenticated(name));
        }
        None if needs_caller && !request.uri().path().starts_with("/.well-known") => {
            return bind::refuse("", &request, Error::from(ErrorKind::Unauthenticated));
        }
        None => {}
    }
    next.run(request).await
}
