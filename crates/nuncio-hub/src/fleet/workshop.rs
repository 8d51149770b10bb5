//! How agents are made: what all of them have in common, around what is special to their kind.

use std::sync::Arc;

use anyhow::Result;
use arc_swap::ArcSwap;
use http::HeaderName;
use nuncio_protocol::AgentCard;
use nuncio_server::{Retention, Runtime, RuntimeBuilder, bind::BindOptions, store::Store};

use super::{Agent, Made, agent::Around};
use crate::{
    agents::{ContextKey, Isolation, Proxy},
    config::{self, AgentLimits, Profile},
    identity::Identity,
    limits::{Callers, Gate},
    place::Place,
    push::Pushing,
    telemetry::Telemetry,
};

/// What all agents are made with.
pub(crate) struct Workshop {
    pub(crate) place: Place,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) retention: Retention,
    pub(crate) pushing: Option<Pushing>,
    pub(crate) options: BindOptions,
    pub(crate) telemetry: Telemetry,
    pub(crate) identity: Arc<Identity>,
    pub(crate) callers: Arc<Callers>,
    /// What each caller may ask for.
    pub(crate) limits: Arc<ArcSwap<config::Limits>>,
    /// This hub among all, for the hops of calls.
    pub(crate) hub: Arc<str>,
    /// Names the conversations of callers for agents.
    pub(crate) contexts: ContextKey,
    /// How the demo's conformance agent behaves.
    pub(crate) profile: Option<Profile>,
}

/// What is special to an agent whose tasks the hub keeps.
pub(crate) struct Durable<'a> {
    pub(crate) name: &'a str,
    pub(crate) builder: RuntimeBuilder,
    /// What it is by the configuration; `None`: nothing is said about it.
    pub(crate) wanted: Option<&'a config::Agent>,
    /// It may have webhooks.
    pub(crate) pushes: bool,
    /// The headers of callers that it gets to see.
    pub(crate) keep_headers: Vec<HeaderName>,
    /// A word to try it with.
    pub(crate) example: &'static str,
    /// What keeps its tasks already: those that run go on.
    pub(crate) before: Option<Runtime>,
}

impl<'a> Durable<'a> {
    /// With webhooks and nothing else.
    pub(crate) fn new(name: &'a str, builder: RuntimeBuilder, example: &'static str) -> Self {
        let (wanted, keep_headers, before) = (None, Vec::new(), None);
        Self { name, builder, wanted, pushes: true, keep_headers, example, before }
    }
}

impl Workshop {
    /// What keeps the callers of an agent apart.
    pub(crate) fn isolation(&self) -> Isolation {
        Isolation { contexts: self.contexts.clone(), share: self.callers.share().clone() }
    }

    /// An agent whose tasks the hub keeps.
    pub(crate) fn durable(&self, durable: Durable<'_>) -> Result<Agent> {
        let Durable { name, builder, wanted, pushes, keep_headers, example, before } = durable;
        let limits = wanted.map(|wanted| wanted.limits.clone()).unwrap_or_default();
        let usual = self.limits.load();
        let builder = builder
            .parts(limits.parts.unwrap_or(usual.parts))
            .max_task_bytes(limits.max_task_bytes.unwrap_or(usual.max_task_bytes));
        let runtime = match before {
            Some(runtime) => {
                builder.give_to(&runtime);
                runtime
            }
            None => self.build(name, builder, wanted.filter(|_| pushes), pushes)?,
        };
        let options = BindOptions { keep_headers, ..self.options.clone() };
        self.finish(name, Made::Durable(runtime), options, example, &limits)
    }

    /// An agent that keeps its own tasks, and gets to see these headers of its callers.
    pub(crate) fn relayed(
        &self,
        proxy: &Arc<Proxy>,
        card: AgentCard,
        wanted: &config::Agent,
        keep_headers: Vec<HeaderName>,
    ) -> Result<Agent> {
        let made = Made::Relayed { proxy: Arc::clone(proxy), card: Arc::new(card) };
        let options = BindOptions { keep_headers, ..self.options.clone() };
        self.finish(&wanted.name, made, options, "hello", &wanted.limits)
    }

    fn build(
        &self,
        name: &str,
        mut builder: RuntimeBuilder,
        wanted: Option<&config::Agent>,
        pushes: bool,
    ) -> Result<Runtime> {
        builder = builder
            .agent(name)
            .store(Arc::clone(&self.store))
            .retention(self.retention.clone())
            .memory(self.options.memory.clone())
            .caller_share(self.callers.share().clone())
            .task_quota(self.callers.quota().clone());
        if let Some(pushing) = self.pushing.as_ref().filter(|_| pushes) {
            builder = builder.push(&pushing.push, pushing.options_of(wanted)?);
        }
        Ok(builder.build())
    }

    /// An agent with all that stands around every agent.
    pub(crate) fn finish(
        &self,
        name: &str,
        made: Made,
        options: BindOptions,
        example: &'static str,
        limits: &AgentLimits,
    ) -> Result<Agent> {
        let around = Around {
            identity: Arc::clone(&self.identity),
            gate: Arc::new(Gate::new(&self.callers, limits)),
            telemetry: self.telemetry.clone(),
        };
        let body_bytes = limits.body_bytes.unwrap_or(self.limits.load().body_bytes);
        Agent::new(name, made, around, BindOptions { body_bytes, ..options }, example)
    }
}
