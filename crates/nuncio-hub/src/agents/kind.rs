//! The trait of a kind of agent, and what a kind gives the hub.
//!
//! ```text
//! settings ──► Kind::prepare ──► Prepared ──► AgentFactory::activate ──► fleet::Agent
//!              may fail, may wait             cannot wait; the agent is served
//! ```

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use http::HeaderName;
use nuncio_server::RuntimeBuilder;

use super::{AgentFactory, KindRoute};
use crate::{
    config,
    fleet::{Agent, Backend, UpstreamStatus},
};

/// A kind of agent, implemented by the type of its settings.
///
/// A new kind is a folder with this implementation, a line in the table of `agents/mod.rs`, and its settings in
/// `config`. Nothing else of the hub names a kind.
#[async_trait]
pub(crate) trait Kind: Send + Sync {
    /// The name by which operators know it.
    fn name() -> &'static str
    where
        Self: Sized;

    /// The routes that it wants below the path of its agents, beside the operations.
    fn routes() -> Vec<KindRoute>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// Prepares an agent of these settings.
    ///
    /// All that can fail or has to wait happens here. The agent is not served yet, and may never be: another one of the
    /// same change may fail. Background work begins with [`Prepared::on_activate`].
    ///
    /// # Errors
    /// The agent cannot be served by these settings; what is served stays.
    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared>;

    /// Identifies what a runtime cannot change once it is built. An agent whose settings change goes on with the
    /// runtime that it has if the key stays the same, and its running tasks with it; else they are drained.
    fn runtime_key(&self) -> String;

    /// Checks the files, folders and programs that the settings name.
    fn check_files(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// Checks that the agent can be reached at its `url`, where it is elsewhere. The caller sets the timeout.
    ///
    /// # Errors
    /// It does not answer, or with what cannot be used.
    async fn check_reachable(&self, _name: &str) -> Result<()> {
        Ok(())
    }
}

/// A problem with what a key of an agent's settings refers to.
pub(crate) struct Problem {
    /// Below `agents.NAME`.
    pub(crate) key: &'static str,
    pub(crate) error: anyhow::Error,
}

/// An agent that its kind has prepared.
pub(crate) struct Prepared {
    pub(crate) backend: PreparedBackend,
    /// Headers of callers that the agent gets to see.
    pub(crate) keep_headers: Vec<HeaderName>,
    /// A word to try it with.
    pub(crate) example: &'static str,
    /// The status of the agent that does the work, if one elsewhere does.
    pub(crate) upstream: Option<Arc<dyn UpstreamStatus>>,
    pub(crate) on_activate: Option<OnActivate>,
}

/// Begins the background work of an agent, now that it is served.
pub(crate) type OnActivate = Box<dyn FnOnce(&Arc<Agent>) + Send>;

/// The backend that will serve the calls.
pub(crate) enum PreparedBackend {
    /// A runtime, built when the agent is activated, or the one of the agent before.
    Runtime(Box<RuntimeSpec>),
    /// Anything else.
    Ready(Backend),
}

/// A runtime as its kind wants it.
pub(crate) struct RuntimeSpec {
    pub(crate) builder: RuntimeBuilder,
    /// Callers may register webhooks.
    pub(crate) pushes: bool,
    /// The agent may never mark an artifact as complete, so that webhooks are told of the unmarked ones, too.
    pub(crate) unmarked_artifacts: bool,
}

impl RuntimeSpec {
    /// A runtime with webhooks.
    pub(crate) fn new(builder: RuntimeBuilder) -> Self {
        Self { builder, pushes: true, unmarked_artifacts: false }
    }
}

impl Prepared {
    /// An agent whose tasks the hub stores.
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
