//! The agents that are desired, from all who may name them, and the fleet as it follows from that.
//!
//! | who names an agent | kept | wins |
//! |---|---|---|
//! | the command line, the file | there | over the API: it is what the operator sees when looking at the machine |
//! | the admin API | as a record of the store, sealed | if nobody else has the name |
//!
//! Reading order: this file holds what is desired and makes it so, `agent_records` stores what the API was given,
//! `settings` reads it.

mod agent_records;
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
    fleet::{Agent, Fleet},
};

/// How long tasks of an agent that is taken away may go on.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// How often a hub looks for what others have been told.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Activates an agent that was prepared.
pub(crate) type Activate = Box<dyn FnOnce() -> Result<Arc<Agent>> + Send>;

/// Prepares agents.
#[async_trait]
pub(crate) trait PrepareAgent: Send + Sync {
    /// Prepares an agent, in place of the one before, whose running tasks go on. All that can fail fails here, and
    /// nothing has changed until the agent is activated.
    async fn prepare(self: Arc<Self>, desired: config::Agent, before: Option<Arc<Agent>>)
    -> Result<Activate>;
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no such agent.
    Missing,
    /// The name is taken by an agent that was named there.
    Taken(config::AgentOrigin),
    /// It was named elsewhere, and is changed there.
    Elsewhere(config::AgentOrigin),
    /// Somebody else was faster; this is its version now.
    Changed(u64),
    /// It is not for the API to say.
    Forbidden(String),
    /// What is said about it is wrong.
    Invalid(String),
    /// It could not be made, or not kept.
    Failed(String),
    Store(StoreError),
}

impl From<StoreError> for Refused {
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

/// An agent that is desired.
#[derive(Clone)]
pub(crate) struct Desired {
    pub(crate) agent: config::Agent,
    /// What the API was given, and the version of it.
    pub(crate) given: Option<(Map<String, Value>, u64)>,
}

/// The agents that each origin desires, and those that are served.
#[derive(Default)]
struct State {
    /// By the command line and the file.
    configured: BTreeMap<AgentName, config::Agent>,
    /// By the API.
    added: BTreeMap<AgentName, Desired>,
    /// As it was made.
    made: BTreeMap<AgentName, config::Agent>,
}

impl State {
    /// Whoever is seen on the machine wins.
    fn desired(&self, name: &str) -> Option<Desired> {
        let configured = self.configured.get(name).map(|agent| Desired { agent: agent.clone(), given: None });
        configured.or_else(|| self.added.get(name).cloned())
    }
}

/// The agents that are desired.
pub(crate) struct Registry {
    fleet: Arc<Fleet>,
    factory: Arc<dyn PrepareAgent>,
    records: AgentRecords,
    /// Changes are one at a time, however long one takes; whoever calls agents does not wait for it.
    state: Mutex<State>,
}

impl Registry {
    pub(crate) fn new(fleet: Arc<Fleet>, factory: Arc<dyn PrepareAgent>, records: AgentRecords) -> Self {
        Self { fleet, factory, records, state: Mutex::default() }
    }

    /// Serves these, and what was added before; all made anew, if what the hub says about all of them has changed. If
    /// one of these cannot be made, says so, and all stays as it was; of what was added before, whatever can be made is
    /// served.
    pub(crate) async fn configure(
        &self,
        agents: Vec<config::Agent>,
        anew: bool,
    ) -> Result<Vec<(AgentName, anyhow::Error)>, StoreError> {
        let mut state = self.state.lock().await;
        let added = self.records.all().await?;
        let configured: BTreeMap<_, _> =
            agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        for name in added.keys().filter(|name| configured.contains_key(*name)) {
            tracing::warn!(%name, "this agent was added by the API, and is named by the configuration, too; that is served");
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
        let mut left = self.activate(&mut state, ready);
        left.extend(self.follow(&mut state, anew).await);
        drain(left).await;
        Ok(Vec::new())
    }

    /// Serves what other hubs of the same store have been told, too.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        state.added = self.records.all().await?;
        drain(self.follow(&mut state, false).await).await;
        Ok(())
    }

    /// Looks now and then, where there are other hubs, for as long as it is polled.
    pub(crate) async fn watch(&self) -> Infallible {
        if !self.records.store.is_shared() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "agents that other hubs have been told of could not be read");
            }
        }
    }

    /// The desired agent of this name, if somebody has named it.
    pub(crate) async fn find(&self, name: &str) -> Option<Desired> {
        self.state.lock().await.desired(name)
    }

    /// Serves one more.
    pub(crate) async fn add(&self, name: &AgentName, given: Map<String, Value>) -> Result<Added, Refused> {
        let agent = settings::read(name, &given)?;
        let mut state = self.state.lock().await;
        if let Some(taken) = state.desired(name) {
            return Err(Refused::Taken(taken.agent.origin));
        }
        if self.fleet.get(name).is_some() {
            return Err(Refused::Taken(config::AgentOrigin::Flag));
        }
        let root = self.fleet.default_agent();
        self.keep(&mut state, agent, given, Expect::Absent).await?;
        Ok(Added { root_lost: self.fleet.check_root(root.as_ref()) })
    }

    /// Changes one: members that are given replace those that were, null takes one away (RFC 7396).
    pub(crate) async fn change(
        &self,
        name: &str,
        patch: Map<String, Value>,
        expect: Expect,
    ) -> Result<u64, Refused> {
        let mut state = self.state.lock().await;
        let (mut given, version) = self.ours(&state, name)?;
        expected(expect, version)?;
        merge(&mut given, patch);
        let name = name.parse().map_err(Refused::Invalid)?;
        let agent = settings::read(&name, &given)?;
        self.keep(&mut state, agent, given, Expect::Version(version)).await
    }

    /// Made first and kept then: what cannot be made is not there after a restart either.
    async fn keep(
        &self,
        state: &mut State,
        agent: config::Agent,
        given: Map<String, Value>,
        expect: Expect,
    ) -> Result<u64, Refused> {
        let name = agent.name.clone();
        let failed = |error: anyhow::Error| Refused::Failed(format!("{error:#}"));
        let activate = self.prepare(&agent).await.map_err(failed)?;
        let version = self.records.put(&name, &given, expect).await?;
        state.added.insert(name, Desired { agent: agent.clone(), given: Some((given, version)) });
        drain(self.activate(state, vec![(agent, activate)])).await;
        Ok(version)
    }

    /// Serves one no more. Its tasks stay where they are kept.
    pub(crate) async fn remove(&self, name: &str, expect: Expect) -> Result<(), Refused> {
        let mut state = self.state.lock().await;
        let (_, version) = self.ours(&state, name)?;
        expected(expect, version)?;
        self.records.drop(name, version).await?;
        state.added.remove(name);
        drain(self.activate(&mut state, Vec::new())).await;
        Ok(())
    }

    /// What the API was given about an agent, which nobody else has named.
    fn ours(&self, state: &State, name: &str) -> Result<(Map<String, Value>, u64), Refused> {
        match state.desired(name) {
            Some(Desired { given: Some(given), .. }) => Ok(given),
            Some(Desired { agent, given: None }) => Err(Refused::Elsewhere(agent.origin)),
            None if self.fleet.get(name).is_some() => Err(Refused::Elsewhere(config::AgentOrigin::Flag)),
            None => Err(Refused::Missing),
        }
    }

    async fn prepare(&self, agent: &config::Agent) -> Result<Activate> {
        Arc::clone(&self.factory).prepare(agent.clone(), self.fleet.get(&agent.name)).await
    }

    /// Serves these and no more what nobody desires, all at once: nobody sees a half of it. Gives back whose work ends
    /// with that.
    fn activate(&self, state: &mut State, ready: Vec<(config::Agent, Activate)>) -> Vec<Arc<Agent>> {
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

    /// Makes what is desired and not there, all that was added by the API if it is to be made anew, and takes away what is
    /// there and not desired.
    async fn follow(&self, state: &mut State, anew: bool) -> Vec<Arc<Agent>> {
        let mut ready = Vec::new();
        let names = state.configured.keys().chain(state.added.keys());
        let names: std::collections::BTreeSet<AgentName> = names.cloned().collect();
        for Desired { agent, given } in names.iter().filter_map(|name| state.desired(name)) {
            let anew = anew && given.is_some();
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

/// Ends what agents that are served no more still do, side by side: nobody waits for them but whoever made the change.
async fn drain(agents: Vec<Arc<Agent>>) {
    let drain_one = |agent: &Arc<Agent>| {
        let (name, runtime) = (Arc::clone(agent.name()), agent.runtime().cloned());
        async move {
            let Some(runtime) = runtime else { return };
            tracing::info!(agent = &*name, running = runtime.running(), "this agent is served no more");
            runtime.drain(DRAIN_GRACE).await;
        }
    };
    futures_util::future::join_all(agents.iter().map(drain_one)).await;
}

fn expected(expect: Expect, version: u64) -> Result<(), Refused> {
    match expect {
        Expect::Version(wanted) if wanted != version => Err(Refused::Changed(version)),
        _ => Ok(()),
    }
}

/// RFC 7396.
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
