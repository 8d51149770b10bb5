//! Builds agents: adds the parts that all agents have in common to the backend that their kind has
//! prepared.

use std::sync::Arc;

use anyhow::Result;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_server::{CallerShare, Retention, Runtime, bind::BindOptions, store::Store};

use super::{
    Consents, ContextKey, Mailboxes, Prepared, SeatedAgents,
    consent::AskFirst,
    kind::{PreparedBackend, RuntimeSpec},
    kind_of, name_of,
};
use crate::{
    agent_urls::AgentUrls,
    config::{self, AgentAccess},
    dispatch::Layers,
    fleet::{AgentInfo, Backend, Fleet, ServedAgent},
    identity::Authenticator,
    limits::{Callers, Gate},
    push::Pushing,
    registry::{Activate, PrepareAgent},
    rooms::Rooms,
    telemetry::HubTelemetry,
};

/// Parts of the hub that agents are built with.
pub(crate) struct AgentFactory {
    pub(crate) urls: AgentUrls,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) retention: Retention,
    pub(crate) pushing: Option<Pushing>,
    pub(crate) options: BindOptions,
    pub(crate) telemetry: HubTelemetry,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) callers: Arc<Callers>,
    /// Limits of each caller.
    pub(crate) limits: Arc<ArcSwap<config::Limits>>,
    /// Rules of calls to all agents.
    pub(crate) calls: Arc<ArcSwap<config::Calls>>,
    /// The agents that are served, for agents that call others.
    pub(crate) fleet: Arc<Fleet>,
    /// The id of this hub, for the hops of calls.
    pub(crate) hub: Arc<str>,
    /// The callers of agents that ask first.
    pub(crate) consents: Arc<Consents>,
    /// Derives the context ids that agents see.
    pub(crate) contexts: ContextKey,
    /// The rooms, whose seats are agents.
    pub(crate) rooms: Rooms,
    /// The agents in seats of rooms that nobody else calls.
    pub(crate) seated: Arc<SeatedAgents>,
    /// The behaviour of the conformance agent.
    pub(crate) profile: Option<config::Profile>,
    /// The mailboxes of this hub.
    pub(crate) mailboxes: Arc<Mailboxes>,
}

/// Separates the callers of an agent from each other.
#[derive(Clone)]
pub(crate) struct Isolation {
    /// Derives their context ids.
    pub(crate) contexts: ContextKey,
    /// The share of the agent's capacity that one caller may hold.
    pub(crate) share: CallerShare,
}

#[async_trait]
impl PrepareAgent for AgentFactory {
    async fn prepare(
        self: Arc<Self>,
        desired: config::Agent,
        before: Option<Arc<ServedAgent>>,
    ) -> Result<Activate> {
        let kind = kind_of(&desired.kind);
        let runtime_key = kind.runtime_key();
        let before = before.filter(|before| before.runtime_key() == runtime_key);
        let before = before.and_then(|before| before.runtime().cloned());
        let prepared = kind.prepare(&desired, &self).await?;
        Ok(Box::new(move || self.activate(prepared, &desired, runtime_key, before)))
    }

    async fn expand(&self, template: &config::Agent) -> Result<Vec<config::Agent>> {
        kind_of(&template.kind).expand(template).await
    }
}

impl AgentFactory {
    /// The parts that separate the callers of an agent.
    pub(crate) fn isolation(&self) -> Isolation {
        Isolation { contexts: self.contexts.clone(), share: self.callers.share().clone() }
    }

    /// Builds the agent with the middleware that every agent has. `before` is a runtime to reuse.
    pub(super) fn activate(
        &self,
        prepared: Prepared,
        desired: &config::Agent,
        runtime_key: String,
        before: Option<Runtime>,
    ) -> Result<Arc<ServedAgent>> {
        let Prepared { backend, keep_headers, example, upstream, on_activate } = prepared;
        let calls = desired.calls.over(&self.calls.load());
        let backend = match backend {
            PreparedBackend::Runtime(spec) => Backend::Runtime(self.runtime(*spec, desired, &calls, before)?),
            PreparedBackend::Ready(backend) => {
                anyhow::ensure!(desired.access == AgentAccess::Open, "{}", config::NO_TASK_TO_HOLD);
                backend
            }
        };
        let info = AgentInfo {
            kind: name_of(&desired.kind),
            runtime_key,
            is_listed: desired.visible,
            cards: desired.cards,
            asks: desired.access == AgentAccess::Ask,
            example,
        };
        let config::Calls { lenient_version, batch, .. } = calls;
        let options = BindOptions { keep_headers, lenient_version, batch, ..self.options.clone() };
        let mut agent = self.serve(&desired.name, backend, info, options, &desired.limits)?;
        if let Some(upstream) = upstream {
            agent.set_upstream(upstream);
        }
        let agent = Arc::new(agent);
        if let Some(on_activate) = on_activate {
            on_activate(&agent);
        }
        Ok(agent)
    }

    /// Wraps a backend in limits, identity and telemetry.
    pub(crate) fn serve(
        &self,
        name: &str,
        backend: Backend,
        info: AgentInfo,
        options: BindOptions,
        limits: &config::AgentLimits,
    ) -> Result<ServedAgent> {
        let layers = Layers {
            calls: self.telemetry.calls(name),
            gate: Arc::new(Gate::new(&self.callers, limits)),
            identity: Arc::clone(&self.identity),
            asks: info.asks,
        };
        let body_bytes = limits.body_bytes.unwrap_or(self.limits.load().body_bytes);
        ServedAgent::new(
            name,
            backend,
            info,
            layers,
            self.urls.clone(),
            BindOptions { body_bytes, ..options },
        )
    }

    /// The runtime of an agent: `before`, updated to the new executor and card, or else a new one.
    fn runtime(
        &self,
        spec: RuntimeSpec,
        desired: &config::Agent,
        calls: &config::Calls,
        before: Option<Runtime>,
    ) -> Result<Runtime> {
        let RuntimeSpec { builder, pushes, unmarked_artifacts } = spec;
        let (limits, default) = (&desired.limits, self.limits.load());
        let builder = match desired.access {
            AgentAccess::Open => builder,
            AgentAccess::Ask => {
                builder.wrap_executor(|inner| Arc::new(AskFirst::new(&desired.name, &self.consents, inner)))
            }
        };
        let mut builder = builder
            .parts(limits.parts.unwrap_or(default.parts))
            .max_task_bytes(limits.max_task_bytes.unwrap_or(default.max_task_bytes))
            .blocking_ceiling(calls.blocking_ceiling)
            .silence(calls.watchdog)
            .cancel_on_disconnect(calls.cancel_on_disconnect)
            .dedupe_message_id(calls.dedupe_message_id);
        if let Some(runtime) = before {
            builder.give_to(&runtime);
            return Ok(runtime);
        }
        builder = builder
            .agent(&*desired.name)
            .store(Arc::clone(&self.store))
            .observer(Arc::clone(&self.telemetry.events) as _)
            .retention(self.retention.clone())
            .memory(self.options.memory.clone())
            .caller_share(self.callers.share().clone())
            .task_quota(self.callers.quota().clone());
        if let Some(pushing) = self.pushing.as_ref().filter(|_| pushes) {
            let mut options = pushing.options_of(desired)?;
            options.unmarked_artifacts = unmarked_artifacts;
            builder = builder.push(&pushing.push, options);
        }
        Ok(builder.build())
    }
}
