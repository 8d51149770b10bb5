//! The agents that are served, by name. What a request finds is a snapshot: agents come, go and change while
//! calls are under way, and no call notices.
//!
//! Reading order: this file has the snapshot, `agent` one agent in it, `upstream_status` the status of one whose work
//! is done elsewhere.

mod agent;
mod upstream_status;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use nuncio_protocol::Result;
use nuncio_server::bind::{self, Directory};

pub(crate) use self::{
    agent::{Agent, AgentInfo, Backend, Middleware},
    upstream_status::{Condition, Health, UpstreamStatus},
};
use crate::identity::{Access, Unjudged};

type Agents = BTreeMap<Arc<str>, Arc<Agent>>;

/// All agents of the hub.
pub(crate) struct Fleet {
    agents: ArcSwap<Agents>,
    /// The one that also answers without a name. Whether it is there is another question.
    default: ArcSwap<Option<Arc<str>>>,
    /// Held while a new snapshot is made of the old one.
    changing: Mutex<()>,
    /// Nothing new is begun.
    draining: AtomicBool,
    /// What was last seen of the store.
    store_is_well: AtomicBool,
}

impl Fleet {
    /// Without agents; this one answers without a name, when it comes.
    pub(crate) fn new(default: Option<&str>) -> Self {
        Self {
            agents: ArcSwap::default(),
            default: ArcSwap::from_pointee(default.map(Into::into)),
            changing: Mutex::default(),
            draining: AtomicBool::new(false),
            store_is_well: AtomicBool::new(true),
        }
    }

    /// All agents, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Agent>> {
        self.agents.load().values().cloned().collect()
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Agent>> {
        self.agents.load().get(name).cloned()
    }

    /// The agent of this name, if whoever has this access may know of it.
    pub(crate) fn visible(&self, name: &str, access: Option<&Access>) -> Option<Arc<Agent>> {
        self.get(name).filter(|_| access.is_some_and(|access| access.admits(name)))
    }

    /// The agent of this name, or the default one.
    pub(crate) fn named_or_default(&self, name: Option<&str>) -> Option<Arc<Agent>> {
        let default = self.default.load();
        self.get(name.or(default.as_deref())?)
    }

    /// The agent of this name, or the default one, if anybody may read its card.
    pub(crate) fn with_public_card(&self, name: Option<&str>) -> Option<Arc<Agent>> {
        self.named_or_default(name).filter(|agent| agent.has_public_card())
    }

    /// True if the agent of this name, or the default one, receives the credentials that nobody has judged yet.
    fn judges(&self, name: Option<&str>, unjudged: &Unjudged) -> bool {
        self.named_or_default(name).is_some_and(|agent| agent.receives(unjudged.headers()))
    }

    /// The agent that answers without a name, if whoever has this access may know of it.
    pub(crate) fn default_for(&self, access: Option<&Access>) -> Option<Arc<Agent>> {
        let default = self.default.load();
        self.visible(default.as_deref()?, access)
    }

    /// Another agent answers without a name from now on.
    pub(crate) fn set_default(&self, name: Option<&str>) {
        self.default.store(Arc::new(name.map(Into::into)));
    }

    /// Serves this agent from now on, in place of the one of its name, which is given back.
    pub(crate) fn put(&self, agent: Arc<Agent>) -> Option<Arc<Agent>> {
        self.change(|agents| agents.insert(Arc::clone(agent.name()), agent))
    }

    /// Serves these from now on, and those of these names no more, in one step. Gives back those that nobody goes on
    /// with; whoever has one does.
    pub(crate) fn swap<'a>(
        &self,
        come: Vec<Arc<Agent>>,
        gone: impl Iterator<Item = &'a str>,
    ) -> Vec<Arc<Agent>> {
        self.change(|agents| {
            let mut left: Vec<_> = gone.filter_map(|name| agents.remove(name)).collect();
            for agent in come {
                let before = agents.insert(Arc::clone(agent.name()), Arc::clone(&agent));
                left.extend(before.filter(|before| !agent.continues(before)));
            }
            left
        })
    }

    /// Shows all agents anew: what callers have to show has changed.
    pub(crate) fn show_again(&self) {
        for agent in self.all() {
            if let Err(error) = agent.show_again() {
                tracing::error!(agent = %agent.name(), error = format!("{error:#}"), "a card could not be made anew");
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Agents) -> T) -> T {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut agents = Agents::clone(&self.agents.load());
        let outcome = change(&mut agents);
        self.agents.store(Arc::new(agents));
        outcome
    }

    /// What keeps calls from coming here.
    pub(crate) fn why_not_ready(&self) -> Vec<&'static str> {
        let draining = self.draining.load(Ordering::Relaxed).then_some("draining");
        let ill = (!self.store_is_well.load(Ordering::Relaxed)).then_some("the task store does not answer");
        draining.into_iter().chain(ill).collect()
    }

    /// What was seen of the store; true if it was otherwise before.
    pub(crate) fn store_is(&self, well: bool) -> bool {
        self.store_is_well.swap(well, Ordering::Relaxed) != well
    }

    /// False if what agents record finds no way to the store.
    pub(crate) fn is_recording(&self) -> bool {
        self.agents.load().values().filter_map(|agent| agent.runtime()).all(|runtime| runtime.is_recording())
    }

    /// Whoever looks sees from now on that all of it ends. Said before [`Self::drain`].
    pub(crate) fn begin_to_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Ends all tasks in good order: they have this long.
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
        let default = self.default.load();
        let name = name.or(default.as_deref())?;
        extensions.get::<Access>().filter(|access| access.may_call(name))?;
        if extensions.get::<Unjudged>().is_some_and(|unjudged| !self.judges(Some(name), unjudged)) {
            return None;
        }
        self.get(name).map(|agent| agent.shown().bound.clone())
    }
}
