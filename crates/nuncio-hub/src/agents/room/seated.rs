//! The agents in the seats of rooms: agents of the hub by their names, and agents that have only an address. Those are
//! served to nobody but the room.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use nuncio_protocol::A2aService;
use parking_lot::Mutex;

use crate::{
    agents::{AgentFactory, kind_of},
    config::{self, AgentName, Party},
    fleet::ServedAgent,
};

/// The agents that only rooms call.
#[derive(Default)]
pub(crate) struct SeatedAgents {
    agents: Mutex<BTreeMap<AgentName, Arc<ServedAgent>>>,
}

/// Serves a prepared agent.
pub(super) type Serve = Box<dyn FnOnce() + Send>;

impl SeatedAgents {
    /// Prepares the agent of a seat that has only an address; it is served when the result is called.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        room: &config::Room,
        second: bool,
        factory: &AgentFactory,
    ) -> Result<Serve> {
        let (name, this) = (room.name.seated_agent(second), Arc::clone(self));
        let Some(desired) = room.seated_agent(second) else {
            return Ok(Box::new(move || drop(this.agents.lock().remove(&name))));
        };
        let kind = kind_of(&desired.kind);
        let runtime_key = kind.runtime_key();
        let before = self.agents.lock().get(&name).and_then(|before| before.runtime().cloned());
        let prepared = kind.prepare(&desired, factory).await?;
        let agent = factory.activate(prepared, &desired, runtime_key, before)?;
        Ok(Box::new(move || drop(this.agents.lock().insert(name, agent))))
    }

    /// The agent in a seat, if there is one now.
    pub(super) fn find(
        &self,
        room: &config::Room,
        second: bool,
        factory: &AgentFactory,
    ) -> Option<Arc<dyn A2aService>> {
        match room.party(second) {
            Party::Caller | Party::Person => None,
            Party::Agent(name) => factory.fleet.get(&name).map(|agent| agent.service()),
            Party::Remote(_) => {
                self.agents.lock().get(&room.name.seated_agent(second)).map(|agent| agent.service())
            }
        }
    }

    /// Drains the runtimes of these agents: running tasks have `grace` to end.
    pub(crate) async fn drain(&self, grace: Duration) {
        let agents: Vec<_> = self.agents.lock().values().cloned().collect();
        let drains = agents.iter().filter_map(|agent| agent.runtime()).map(|runtime| runtime.drain(grace));
        futures_util::future::join_all(drains).await;
    }
}
