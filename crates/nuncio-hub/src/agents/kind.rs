//! The trait of a kind of agent, and the types that a kind returns to the hub.
//!
//! ```text
//! settings ──► Kind::prepare ──► Prepared ──► AgentFactory::activate ──► fleet::ServedAgent
//!              may fail, may wait             cannot wait; the agent is served
//! ```

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use async_trait::async_trait;
use http::HeaderName;
use nuncio_server::RuntimeBuilder;

use super::{AgentFactory, KindRoute};
use crate::{
    config,
    fleet::{Backend, ServedAgent, UpstreamStatus},
};

/// A kind of agent, implemented by the type of its settings.
///
/// A new kind is a folder with this implementation, a line in the table of `agents/mod.rs`, and its
/// settings in `config`. No other part of the hub names a kind.
#[async_trait]
pub(crate) trait Kind: Send + Sync {
    /// The name shown to operators.
    fn name() -> &'static str
    where
        Self: Sized;

    /// The extra routes of this kind below the path of its agents, beside the operations.
    fn routes() -> Vec<KindRoute>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// Prepares an agent from these settings.
    ///
    /// Every step that can fail or has to wait happens here. The agent is not served yet, and may never be:
    /// another agent of the same change may fail. Background work starts in [`Prepared::on_activate`].
    ///
    /// # Errors
    /// The agent cannot be served with these settings. The agents that are served now stay as they are.
    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared>;

    /// The agents that these settings stand for, if they are those of a provider of many.
    ///
    /// # Errors
    /// The provider does not list them.
    async fn expand(&self, desired: &config::Agent) -> Result<Vec<config::Agent>> {
        Ok(vec![desired.clone()])
    }

    /// Identifies the settings that a runtime cannot change once it is built. After a change of settings,
    /// the agent keeps its runtime and running tasks if the key is the same; otherwise the tasks are
    /// drained.
    fn runtime_key(&self) -> String;

    /// Checks the files, folders and programs that the settings name.
    fn check_files(&self) -> Vec<TargetProblem> {
        Vec::new()
    }

    /// The time that programs need to start before [`Self::check_reachable`] can reach them.
    fn start_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Checks that a remote agent can be reached at its `url`. The caller sets the timeout.
    ///
    /// # Errors
    /// The agent does not answer, or its answer cannot be used.
    async fn check_reachable(&self, _name: &str) -> Result<()> {
        Ok(())
    }
}

/// A problem with the target of a key: a file, a folder or a program.
pub(crate) struct TargetProblem {
    /// The key, below `agents.NAME`.
    pub(crate) key: &'static str,
    pub(crate) error: anyhow::Error,
}

/// An agent that its kind has prepared.
pub(crate) struct Prepared {
    pub(crate) backend: PreparedBackend,
    /// Request headers that are passed to the agent.
    pub(crate) keep_headers: Vec<HeaderName>,
    /// An example message to try the agent with.
    pub(crate) example: &'static str,
    /// The status of the upstream, for a remote agent.
    pub(crate) upstream: Option<Arc<dyn UpstreamStatus>>,
    pub(crate) on_activate: Option<OnActivate>,
}

/// Starts the background work of an agent once it is served.
pub(crate) type OnActivate = Box<dyn FnOnce(&Arc<ServedAgent>) + Send>;

/// The backend that will serve the calls.
pub(crate) enum PreparedBackend {
    /// A runtime. It is built on activation, unless the agent keeps the one it has.
    Runtime(Box<RuntimeSpec>),
    /// Any other service.
    Ready(Backend),
}

/// The settings of a runtime, as its kind needs them.
pub(crate) struct RuntimeSpec {
    pub(crate) builder: RuntimeBuilder,
    /// Callers may register webhooks.
    pub(crate) pushes: bool,
    /// Notify webhooks of artifacts that are not marked as complete, because the agent may never mark one.
    pub(crate) unmarked_artifacts: bool,
}

impl RuntimeSpec {
    /// A runtime with webhooks.
    pub(crate) fn new(builder: RuntimeBuilder) -> Self {
        Self { builder, pushes: true, unmarked_artifacts: false }
    }
}

impl Prepared {
    /// An agent with tasks in the hub's store.
    pub(crate) fn durable(spec: RuntimeSpec) -> Self {
        Self::new(PreparedBackend::Runtime(Box::new(spec)))
    }

    /// An agent with a service of its own.
    pub(crate) fn service(backend: Backend) -> Self {
        Self::new(PreparedBackend::Ready(backend))
    }

    fn new(backend: PreparedBackend) -> Self {
        Self { backend, keep_headers: Vec::new(), example: "hello", upstream: None, on_activate: None }
    }
}
