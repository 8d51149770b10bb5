//! The desired agents of all origins, and the reconciliation of the fleet with them.
//!
//! | origin | stored | priority |
//! |---|---|---|
//! | command line, file | there | over the API, because the operator sees it on the machine |
//! | admin API | as a sealed record in the store | only if no other origin uses the name |
//!
//! Reading order: this file holds the desired agents and applies them, `agent_records` stores the agents of
//! the API, `settings` parses them, and `rooms` adds two of them for a room.

mod agent_records;
mod rooms;
mod settings;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use anyhow::Result;
use async_trait::async_trait;
use nuncio_server::store::{Expect, StoreError};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

pub(crate) use self::{
    agent_records::{AgentRecords, Vault},
    settings::Settings,
};
use crate::{
    config::{self, AgentName},
    fleet::{Fleet, ServedAgent},
};

/// Time for the tasks of a removed agent to end.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// The pause of a hub without providers of models before it looks again.
const NO_PROVIDER_PAUSE: Duration = Duration::from_secs(60);

/// Activates a prepared agent.
pub(crate) type Activate = Box<dyn FnOnce() -> Result<Arc<ServedAgent>> + Send>;

/// Prepares agents.
#[async_trait]
pub(crate) trait PrepareAgent: Send + Sync {
    /// Prepares an agent that replaces `before` and continues its tasks. Every step that can fail happens
    /// here; nothing changes until the agent is activated.
    async fn prepare(
        self: Arc<Self>,
        desired: config::Agent,
        before: Option<Arc<ServedAgent>>,
    ) -> Result<Activate>;

    /// The agents of a provider, as it lists its models now.
    ///
    /// # Errors
    /// The provider has no list, or cannot be reached.
    async fn expand(&self, template: &config::Agent) -> Result<Vec<config::Agent>>;
}

/// The reason why a change was refused.
#[derive(Debug)]
pub(crate) enum ChangeRefusal {
    /// The agent does not exist.
    Missing,
    /// The name is used by an agent of this origin.
    Taken(config::AgentOrigin),
    /// The agent is of this origin and has to be changed there.
    Elsewhere(config::AgentOrigin),
    /// Another change came first; this is the current version.
    Changed(u64),
    /// The API may not set this.
    Forbidden(String),
    /// The settings are wrong.
    Invalid(String),
    /// The agent could not be prepared or stored.
    Failed(String),
    Store(StoreError),
}

impl From<StoreError> for ChangeRefusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// An agent that was added.
#[derive(Debug)]
pub(crate) struct Added {
    /// The agent that answered at the root until now, if none does any more.
    pub(crate) root_lost: Option<Arc<str>>,
}

/// A desired agent.
#[derive(Clone)]
pub(crate) struct Desired {
    pub(crate) agent: config::Agent,
    /// The settings as given to the API, and their version.
    pub(crate) given: Option<(Map<String, Value>, u64)>,
}

/// The desired agents of each origin, and the agents that are served.
#[derive(Default)]
struct RegistryState {
    /// Of the command line and the file.
    configured: BTreeMap<AgentName, config::Agent>,
    /// Of the API.
    added: BTreeMap<AgentName, Desired>,
    /// Providers of the configuration whose models are agents, and these agents as they were listed last.
    providers: BTreeMap<AgentName, (config::Agent, Vec<config::Agent>)>,
    /// Servers of tools of the configuration.
    tools: settings::ToolServers,
    /// Served, with these settings.
    made: BTreeMap<AgentName, config::Agent>,
}

impl RegistryState {
    /// The desired agent of this name; the configuration has priority over the API, and both over what a provider
    /// lists.
    fn desired(&self, name: &str) -> Option<Desired> {
        let own = |agent: &config::Agent| Desired { agent: agent.clone(), given: None };
        let configured = self.configured.get(name).map(own);
        let listed = || self.listed().find(|agent| &*agent.name == name).map(own);
        configured.or_else(|| self.added.get(name).cloned()).or_else(listed)
    }

    /// The agents of all providers.
    fn listed(&self) -> impl Iterator<Item = &config::Agent> {
        self.providers.values().flat_map(|(_, agents)| agents)
    }
}

/// The registry of desired agents.
pub(crate) struct Registry {
    fleet: Arc<Fleet>,
    factory: Arc<dyn PrepareAgent>,
    records: AgentRecords,
    /// Serializes changes, however long one takes. Calls to agents do not wait for it.
    state: Mutex<RegistryState>,
}

impl Registry {
    pub(crate) fn new(fleet: Arc<Fleet>, factory: Arc<dyn PrepareAgent>, records: AgentRecords) -> Self {
        Self { fleet, factory, records, state: Mutex::default() }
    }

    /// Sets the servers of tools that agents of the API may name; returns those before. They count from the next
    /// [`Self::configure`] on.
    pub(crate) async fn set_tools(&self, tools: settings::ToolServers) -> settings::ToolServers {
        std::mem::replace(&mut self.state.lock().await.tools, tools)
    }

    /// Serves these agents, and those added by the API. With `anew`, all agents are rebuilt, because a
    /// setting of the whole hub has changed. If one of these agents cannot be prepared, returns the errors
    /// and changes nothing. An agent of the API that cannot be prepared is left out.
    pub(crate) async fn configure(
        &self,
        agents: Vec<config::Agent>,
        anew: bool,
    ) -> Result<Vec<(AgentName, anyhow::Error)>, StoreError> {
        let mut state = self.state.lock().await;
        let added = self.records.all(&state.tools).await?;
        let (templates, agents): (Vec<_>, Vec<_>) =
            agents.into_iter().partition(|agent| agent.kind.is_template());
        let configured: BTreeMap<_, _> =
            agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        for name in added.keys().filter(|name| configured.contains_key(*name)) {
            tracing::warn!(%name, "this agent is in the configuration and was also added by the API; the configuration is used");
        }
        let mut ready = Vec::new();
        let mut failed = Vec::new();
        let is_made = |agent: &config::Agent| !anew && state.made.get(&agent.name) == Some(agent);
        for agent in configured.values().filter(|agent| !is_made(agent)) {
            match self.prepare(agent).await {
                Ok(activate) => ready.push((agent.clone(), activate)),
                Err(error) => failed.push((agent.name.clone(), error)),
            }
        }
        if !failed.is_empty() {
            return Ok(failed);
        }
        (state.configured, state.added) = (configured, added);
        let mut before = std::mem::take(&mut state.providers);
        let known = |template: config::Agent| {
            let listed = before.remove(&template.name).map(|(_, listed)| listed).unwrap_or_default();
            (template.name.clone(), (template, listed))
        };
        state.providers = templates.into_iter().map(known).collect();
        self.list(&mut state).await;
        let mut left = self.activate(&mut state, ready);
        left.extend(self.follow(&mut state, anew).await);
        drain(left).await;
        Ok(Vec::new())
    }

    /// Serves the agents that were added on other hubs of the same store, too.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        state.added = self.records.all(&state.tools).await?;
        drain(self.follow(&mut state, false).await).await;
        Ok(())
    }

    /// Reads the lists of the providers. One that cannot be read stays as it was.
    async fn list(&self, state: &mut RegistryState) {
        let templates: Vec<config::Agent> =
            state.providers.values().map(|(template, _)| template.clone()).collect();
        for template in templates {
            let listed = match self.factory.expand(&template).await {
                Ok(listed) => listed,
                Err(error) => {
                    let (name, error) = (&template.name, format!("{error:#}"));
                    tracing::warn!(%name, error, "the models of a provider cannot be listed");
                    continue;
                }
            };
            // A demo agent keeps its name.
            let is_free = |agent: &config::Agent| {
                state.made.contains_key(&agent.name) || self.fleet.get(&agent.name).is_none()
            };
            let listed = listed.into_iter().filter(is_free).collect();
            if let Some((_, known)) = state.providers.get_mut(&template.name) {
                *known = listed;
            }
        }
    }

    /// Follows the lists of the providers. Never returns.
    pub(crate) async fn watch_providers(&self) -> Infallible {
        loop {
            let pauses: Vec<Duration> = {
                let state = self.state.lock().await;
                state.providers.values().filter_map(|(template, _)| template.kind.check_every()).collect()
            };
            tokio::time::sleep(pauses.into_iter().min().unwrap_or(NO_PROVIDER_PAUSE)).await;
            self.list_again().await;
        }
    }

    /// Serves the agents that the providers list now.
    async fn list_again(&self) {
        let mut state = self.state.lock().await;
        self.list(&mut state).await;
        let left = self.follow(&mut state, false).await;
        drop(state);
        drain(left).await;
    }

    /// Calls [`Self::look`] when other hubs of a shared store have changed agents. Never returns.
    pub(crate) async fn watch(&self) -> Infallible {
        if !self.records.store.is_shared() {
            return std::future::pending().await;
        }
        let mut signals = self.records.store.signals().subscribe(agent_records::changes());
        loop {
            signals.next().await;
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "agents that were added on other hubs cannot be read");
            }
        }
    }

    /// The desired agent of this name.
    pub(crate) async fn find(&self, name: &str) -> Option<Desired> {
        self.state.lock().await.desired(name)
    }

    /// Adds an agent.
    pub(crate) async fn add(
        &self,
        name: &AgentName,
        given: Map<String, Value>,
    ) -> Result<Added, ChangeRefusal> {
        rooms::check_is_agent(&given)?;
        let mut state = self.state.lock().await;
        let agent = settings::read(name, &given, &state.tools)?;
        if let Some(taken) = state.desired(name) {
            return Err(ChangeRefusal::Taken(taken.agent.origin));
        }
        if self.fleet.get(name).is_some() {
            return Err(ChangeRefusal::Taken(config::AgentOrigin::Flag));
        }
        let root = self.fleet.default_agent();
        self.keep(&mut state, agent, given, Expect::Absent).await?;
        Ok(Added { root_lost: self.fleet.check_root(root.as_ref()) })
    }

    /// Changes an agent: given members replace the stored ones, null removes a member (RFC 7396).
    pub(crate) async fn change(
        &self,
        name: &str,
        patch: Map<String, Value>,
        expect: Expect,
    ) -> Result<u64, ChangeRefusal> {
        let mut state = self.state.lock().await;
        let (mut given, version) = self.ours(&state, name)?;
        expected(expect, version)?;
        merge(&mut given, patch);
        rooms::check_is_agent(&given)?;
        let name = name.parse().map_err(ChangeRefusal::Invalid)?;
        let agent = settings::read(&name, &given, &state.tools)?;
        self.keep(&mut state, agent, given, Expect::Version(version)).await
    }

    /// Prepares the agent before it is stored, so that no record exists that cannot be served after a
    /// restart.
    async fn keep(
        &self,
        state: &mut RegistryState,
        agent: config::Agent,
        given: Map<String, Value>,
        expect: Expect,
    ) -> Result<u64, ChangeRefusal> {
        let name = agent.name.clone();
        let failed = |error: anyhow::Error| ChangeRefusal::Failed(format!("{error:#}"));
        let activate = self.prepare(&agent).await.map_err(failed)?;
        let version = self.records.put(&name, &given, expect).await?;
        state.added.insert(name, Desired { agent: agent.clone(), given: Some((given, version)) });
        drain(self.activate(state, vec![(agent, activate)])).await;
        Ok(version)
    }

    /// Removes an agent. Its tasks stay in the store.
    pub(crate) async fn remove(&self, name: &str, expect: Expect) -> Result<(), ChangeRefusal> {
        let mut state = self.state.lock().await;
        let (given, version) = self.ours(&state, name)?;
        rooms::check_is_agent(&given)?;
        expected(expect, version)?;
        self.records.drop(name, version).await?;
        state.added.remove(name);
        drain(self.activate(&mut state, Vec::new())).await;
        Ok(())
    }

    /// The settings given to the API, if the agent is of that origin.
    fn ours(&self, state: &RegistryState, name: &str) -> Result<(Map<String, Value>, u64), ChangeRefusal> {
        match state.desired(name) {
            Some(Desired { given: Some(given), .. }) => Ok(given),
            Some(Desired { agent, given: None }) => Err(ChangeRefusal::Elsewhere(agent.origin)),
            None if self.fleet.get(name).is_some() => {
                Err(ChangeRefusal::Elsewhere(config::AgentOrigin::Flag))
            }
            None => Err(ChangeRefusal::Missing),
        }
    }

    async fn prepare(&self, agent: &config::Agent) -> Result<Activate> {
        Arc::clone(&self.factory).prepare(agent.clone(), self.fleet.get(&agent.name)).await
    }

    /// Activates these agents and removes those that are not desired any more, in one step. Returns the
    /// agents whose tasks are not continued.
    fn activate(
        &self,
        state: &mut RegistryState,
        ready: Vec<(config::Agent, Activate)>,
    ) -> Vec<Arc<ServedAgent>> {
        let mut come = Vec::new();
        for (desired, activate) in ready {
            match activate() {
                Ok(agent) => {
                    state.made.insert(desired.name.clone(), desired);
                    come.push(agent);
                }
                Err(error) => {
                    let (name, error) = (&desired.name, format!("{error:#}"));
                    tracing::error!(%name, error, "this agent cannot be served");
                }
            }
        }
        let gone: Vec<AgentName> =
            state.made.keys().filter(|name| state.desired(name).is_none()).cloned().collect();
        state.made.retain(|name, _| !gone.contains(name));
        self.fleet.swap(come, gone.iter().map(|name| &**name))
    }

    /// Reconciles the served agents with the desired ones: prepares missing and changed ones (with `anew`,
    /// all of the API), and removes those that are not desired.
    async fn follow(&self, state: &mut RegistryState, anew: bool) -> Vec<Arc<ServedAgent>> {
        let mut ready = Vec::new();
        let names = state.configured.keys().chain(state.added.keys());
        let names = names.chain(state.listed().map(|agent| &agent.name));
        let names: std::collections::BTreeSet<AgentName> = names.cloned().collect();
        for Desired { agent, given: _ } in names.iter().filter_map(|name| state.desired(name)) {
            // Those of the configuration have been prepared already.
            let anew = anew && !state.configured.contains_key(&agent.name);
            if !anew && state.made.get(&agent.name) == Some(&agent) {
                continue;
            }
            match self.prepare(&agent).await {
                Ok(activate) => ready.push((agent, activate)),
                Err(error) => {
                    let (name, error) = (&agent.name, format!("{error:#}"));
                    tracing::error!(%name, error, "this agent cannot be served");
                }
            }
        }
        self.activate(state, ready)
    }
}

/// Drains removed agents concurrently. Only the change that removed them waits for it.
async fn drain(agents: Vec<Arc<ServedAgent>>) {
    let drain_one = |agent: &Arc<ServedAgent>| {
        let (name, runtime) = (Arc::clone(agent.name()), agent.runtime().cloned());
        async move {
            let Some(runtime) = runtime else { return };
            tracing::info!(
                agent = &*name,
                running = runtime.running(),
                "this agent was removed or replaced; draining its tasks"
            );
            runtime.drain(DRAIN_GRACE).await;
        }
    };
    futures_util::future::join_all(agents.iter().map(drain_one)).await;
}

fn expected(expect: Expect, version: u64) -> Result<(), ChangeRefusal> {
    match expect {
        Expect::Version(wanted) if wanted != version => Err(ChangeRefusal::Changed(version)),
        _ => Ok(()),
    }
}

/// Applies a merge patch (RFC 7396).
fn merge(given: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                given.remove(&name);
            }
            Value::Object(patch) => {
                let member = given.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if !member.is_object() {
                    *member = Value::Object(Map::new());
                }
                if let Value::Object(member) = member {
                    merge(member, patch);
                }
            }
            value => {
                given.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
