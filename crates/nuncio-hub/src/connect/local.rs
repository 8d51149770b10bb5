//! The agent of a connector: one of any kind, in a hub without listener and without data.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use nuncio_protocol::AgentCard;
use nuncio_server::{
    Retention, Runtime,
    bind::BindOptions,
    store::{MemoryStore, Store},
};
use url::Url;

use crate::{
    agent_urls::AgentUrls,
    agents::{self, AgentFactory, Consents, ContextKey, Mailboxes},
    config,
    fleet::{Condition, Fleet, ServedAgent},
    identity::Authenticator,
    limits::Callers,
    registry::PrepareAgent as _,
    rooms::Rooms,
    telemetry::HubTelemetry,
    trail::Trail,
};

/// The name of this machine in its network.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// An agent of this machine.
pub(super) struct LocalAgent {
    agent: Arc<ServedAgent>,
    runtime: Runtime,
    /// The settings of a program, which is looked for before each claim.
    program: Option<config::AgentKind>,
}

impl LocalAgent {
    /// Prepares the agent. Its card shows the addresses at the hub.
    pub(super) async fn open(desired: config::Agent, hub: &Url) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        // Nobody calls this hub, so there is nothing to note.
        let (trail, _) = Trail::new(&store);
        let consents = Arc::new(Consents::new(&store, &trail));
        let identity = Authenticator::open(&config::Identity::default(), &store, trail, true).await?;
        let limits = config::Limits::default();
        let contexts = ContextKey::derived_elsewhere();
        let telemetry = HubTelemetry::start(&config::Telemetry::default())?;
        let mailboxes = Mailboxes::new(&store, contexts.clone(), Arc::clone(&telemetry.metrics));
        let urls = AgentUrls::new(hub, None);
        let factory = AgentFactory {
            consents,
            fleet: Arc::new(Fleet::new(&urls)),
            urls,
            retention: Retention::default(),
            pushing: None,
            options: BindOptions::default(),
            rooms: Rooms::new(&store, &telemetry.metrics),
            telemetry,
            mailboxes,
            callers: Arc::new(Callers::new(&limits, &identity.limits())),
            identity,
            limits: Arc::new(ArcSwap::from_pointee(limits)),
            calls: Arc::default(),
            hub: agents::hub_id(&*store).await?,
            contexts,
            profile: None,
            store,
        };
        let program = desired.kind.is_program().then(|| desired.kind.clone());
        let activate = Arc::new(factory).prepare(desired, None).await?;
        let agent = activate()?;
        let runtime = agent.runtime().cloned();
        let runtime = runtime.context("its tasks are its own (mode = \"proxy\"); use mode = \"durable\"")?;
        Ok(Self { agent, runtime, program })
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The card for callers at the hub.
    pub(super) fn card(&self) -> AgentCard {
        AgentCard::clone(&self.runtime.card())
    }

    /// The reason why the agent cannot work now; `None` if it can.
    pub(super) fn outage(&self) -> Option<String> {
        if let Some(program) = &self.program {
            let problem = agents::kind_of(program).check_files().into_iter().next();
            return problem.map(|problem| format!("{}: {:#}", problem.key, problem.error));
        }
        match &self.agent.upstream()?.health().condition {
            Condition::Down(reason) => Some(reason.clone()),
            Condition::Unknown | Condition::Up | Condition::Degraded(_) => None,
        }
    }

    /// True if the agent may get the same message again.
    pub(super) fn may_repeat(&self) -> bool {
        self.agent.upstream().is_some_and(|upstream| upstream.may_repeat())
    }

    /// The agent in words.
    pub(super) fn describe(&self) -> String {
        let Some(upstream) = self.agent.upstream() else { return format!("a {}", self.agent.kind()) };
        match upstream.speaks() {
            Some((version, binding)) => {
                format!("{} (A2A {}, {})", upstream.url(), version.as_str(), binding.as_str())
            }
            None => upstream.url(),
        }
    }
}
