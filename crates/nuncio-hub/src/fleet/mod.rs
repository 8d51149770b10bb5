//! The agents that are served, by name. Requests read a snapshot: agents are added, removed and changed
//! without an effect on running calls.
//!
//! Reading order: this file has the snapshot, `agent` one agent, `upstream_status` the status of a remote
//! agent.

mod agent;
mod upstream_status;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use nuncio_protocol::Result;
use nuncio_server::bind::{self, Directory};
use parking_lot::Mutex;

pub(crate) use self::{
    agent::{AgentInfo, Backend, ServedAgent},
    upstream_status::{Condition, Health, UpstreamAccess, UpstreamStatus},
};
use crate::{
    agent_urls::AgentUrls,
    identity::{Access, Unjudged},
};

type AgentMap = BTreeMap<Arc<str>, Arc<ServedAgent>>;

/// All agents of the hub.
pub(crate) struct Fleet {
    agents: ArcSwap<AgentMap>,
    /// Has the agent that also answers without a name.
    urls: AgentUrls,
    /// The one that the operator has named for that; `None`: the only one there is.
    named_default: ArcSwap<Option<Arc<str>>>,
    /// Held while a new snapshot is made from the old one.
    changing: Mutex<()>,
    /// The hub shuts down: no new work is accepted.
    draining: AtomicBool,
    /// The last known state of the store.
    store_is_well: AtomicBool,
}

impl Fleet {
    /// Without agents; the default one of these addresses answers without a name, when it comes.
    pub(crate) fn new(urls: &AgentUrls) -> Self {
        Self {
            agents: ArcSwap::default(),
            urls: urls.clone(),
            named_default: ArcSwap::from_pointee(urls.default_agent()),
            changing: Mutex::default(),
            draining: AtomicBool::new(false),
            store_is_well: AtomicBool::new(true),
        }
    }

    /// All agents, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<ServedAgent>> {
        self.agents.load().values().cloned().collect()
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<ServedAgent>> {
        self.agents.load().get(name).cloned()
    }

    /// The agent of this name, if the access allows to see it.
    pub(crate) fn visible(&self, name: &str, access: Option<&Access>) -> Option<Arc<ServedAgent>> {
        self.get(name).filter(|_| access.is_some_and(|access| access.admits(name)))
    }

    /// The agent of this name, or the default one.
    pub(crate) fn named_or_default(&self, name: Option<&str>) -> Option<Arc<ServedAgent>> {
        let default = self.urls.default_agent();
        self.get(name.or(default.as_deref())?)
    }

    /// The agent of this name, or the default one, if its card is public.
    pub(crate) fn with_public_card(&self, name: Option<&str>) -> Option<Arc<ServedAgent>> {
        self.named_or_default(name).filter(|agent| agent.has_public_card())
    }

    /// True if the agent of this name, or the default one, receives the credentials that nobody has judged yet.
    fn judges(&self, name: Option<&str>, unjudged: &Unjudged) -> bool {
        self.named_or_default(name).is_some_and(|agent| agent.receives(unjudged.headers()))
    }

    /// The default agent, if the access allows to see it.
    pub(crate) fn default_for(&self, access: Option<&Access>) -> Option<Arc<ServedAgent>> {
        self.visible(&self.urls.default_agent()?, access)
    }

    /// The agent that answers without a name, if it is there.
    pub(crate) fn default_agent(&self) -> Option<Arc<ServedAgent>> {
        self.get(&self.urls.default_agent()?)
    }

    /// The name of the agent that answered without a name, if none does any more. The log tells, too.
    pub(crate) fn check_root(&self, before: Option<&Arc<ServedAgent>>) -> Option<Arc<str>> {
        let lost = before.filter(|_| self.default_agent().is_none() && !self.agents.load().is_empty())?;
        let agent = lost.name();
        tracing::warn!(
            %agent,
            "no agent answers at the root any more: this one did; set default_agent, or --default, to the one that should"
        );
        Some(Arc::clone(agent))
    }

    /// This agent answers without a name from now on; `None`: the only one there is, if there is only one.
    pub(crate) fn set_default(&self, name: Option<&str>) {
        let _alone = self.changing.lock();
        self.named_default.store(Arc::new(name.map(Into::into)));
        self.choose_default();
    }

    /// Selects the default agent again, and updates the cards of the old and the new one.
    fn choose_default(&self) {
        let (named, agents) = (self.named_default.load(), self.agents.load());
        let only = || agents.keys().next().filter(|_| agents.len() == 1);
        let now = Option::as_ref(&named).or_else(only).map(|name| &**name);
        let before = self.urls.default_agent();
        if now == before.as_deref() {
            return;
        }
        self.urls.set_default_agent(now);
        for agent in [before.as_deref(), now].into_iter().flatten().filter_map(|name| agents.get(name)) {
            show_again(agent);
        }
    }

    /// Serves these agents from now on, in place of those of their names.
    pub(crate) fn put(&self, come: impl IntoIterator<Item = Arc<ServedAgent>>) {
        self.change(|agents| agents.extend(come.into_iter().map(|agent| (Arc::clone(agent.name()), agent))));
    }

    /// Adds and removes agents in one step. Returns the agents whose tasks are not continued; calls that
    /// already have an agent keep it.
    pub(crate) fn swap<'a>(
        &self,
        come: Vec<Arc<ServedAgent>>,
        gone: impl Iterator<Item = &'a str>,
    ) -> Vec<Arc<ServedAgent>> {
        self.change(|agents| {
            let mut left: Vec<_> = gone.filter_map(|name| agents.remove(name)).collect();
            for agent in come {
                let before = agents.insert(Arc::clone(agent.name()), Arc::clone(&agent));
                left.extend(before.filter(|before| !agent.continues(before)));
            }
            left
        })
    }

    /// Rebuilds the cards of all agents, after a change of the authentication.
    pub(crate) fn show_again(&self) {
        self.all().iter().for_each(show_again);
    }

    fn change<T>(&self, change: impl FnOnce(&mut AgentMap) -> T) -> T {
        let _alone = self.changing.lock();
        let mut agents = AgentMap::clone(&self.agents.load());
        let outcome = change(&mut agents);
        self.agents.store(Arc::new(agents));
        self.choose_default();
        outcome
    }

    /// The reasons why the hub is not ready for calls.
    pub(crate) fn why_not_ready(&self) -> Vec<&'static str> {
        let draining = self.draining.load(Ordering::Relaxed).then_some("draining");
        let ill = (!self.store_is_well.load(Ordering::Relaxed)).then_some("the task store does not answer");
        draining.into_iter().chain(ill).collect()
    }

    /// Stores the state of the store; true if it has changed.
    pub(crate) fn store_is(&self, well: bool) -> bool {
        self.store_is_well.swap(well, Ordering::Relaxed) != well
    }

    /// False if a runtime cannot write to the store.
    pub(crate) fn is_recording(&self) -> bool {
        self.agents.load().values().filter_map(|agent| agent.runtime()).all(|runtime| runtime.is_recording())
    }

    /// Marks the fleet as draining, which readiness shows. Call it before [`Self::drain`].
    pub(crate) fn begin_to_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Drains all runtimes: running tasks have `grace` to end.
    pub(crate) async fn drain(&self, grace: Duration) {
        let agents = self.all();
        let running: usize =
            agents.iter().filter_map(|agent| agent.runtime()).map(|runtime| runtime.running()).sum();
        if running > 0 {
            tracing::info!(running, "waiting for running tasks; a second Ctrl-C ends at once");
        }
        let mut drains = tokio::task::JoinSet::new();
        for runtime in agents.iter().filter_map(|agent| agent.runtime().cloned()) {
            drains.spawn(async move { runtime.drain(grace).await });
        }
        drains.join_all().await;
    }
}

fn show_again(agent: &Arc<ServedAgent>) {
    if let Err(error) = agent.show_again() {
        tracing::error!(agent = %agent.name(), error = format!("{error:#}"), "a card could not be made anew");
    }
}

impl Directory for Fleet {
    fn permit(&self, name: Option<&str>, extensions: &http::Extensions) -> Result<()> {
        match extensions.get::<Unjudged>() {
            Some(unjudged) if !self.judges(name, unjudged) => Err(unjudged.refuse()),
            _ => Ok(()),
        }
    }

    fn find(&self, name: Option<&str>, extensions: &http::Extensions) -> Option<bind::Agent> {
        let access = extensions.get::<Access>();
        let agent = match name {
            Some(name) => self.visible(name, access),
            None => self.default_for(access),
        };
        agent.map(|agent| agent.shown().bound.clone())
    }

    fn names(&self, extensions: &http::Extensions) -> Vec<String> {
        let Some(access) = extensions.get::<Access>() else { return Vec::new() };
        let agents =
            self.all().into_iter().filter(|agent| agent.is_listed() && access.may_call(agent.name()));
        agents.map(|agent| agent.name().to_string()).collect()
    }

    fn look_ahead(&self, name: Option<&str>, extensions: &http::Extensions) -> Option<bind::Agent> {
        let default = self.urls.default_agent();
        let name = name.or(default.as_deref())?;
        extensions.get::<Access>().filter(|access| access.may_call(name))?;
        if extensions.get::<Unjudged>().is_some_and(|unjudged| !self.judges(Some(name), unjudged)) {
            return None;
        }
        self.get(name).map(|agent| agent.shown().bound.clone())
    }
}
