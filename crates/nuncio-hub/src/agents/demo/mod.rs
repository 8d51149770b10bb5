//! The demo agents that come with the hub, a file each.

mod conformance;
pub(super) mod echo;
pub(super) mod slow;

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use nuncio_protocol::AgentSkill;

use super::{AgentFactory, Kind, Label, Prepared, kind::RuntimeSpec};
use crate::{
    config::{self, AgentOrigin, Demo, Profile},
    fleet::ServedAgent,
    registry::PrepareAgent as _,
};

/// The demo agents, each under its own name.
///
/// # Errors
/// One of them cannot be served.
pub(crate) async fn demo_agents(factory: &Arc<AgentFactory>) -> Result<Vec<Arc<ServedAgent>>> {
    let mut agents = Vec::new();
    for demo in Demo::ALL {
        let name = demo.name().parse().map_err(anyhow::Error::msg)?;
        let desired = config::Agent::new(name, demo.into(), AgentOrigin::Flag);
        let activate = Arc::clone(factory).prepare(desired, None).await?;
        agents.push(activate()?);
    }
    Ok(agents)
}

#[async_trait]
impl Kind for Demo {
    fn name() -> &'static str {
        "demo"
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        let (mut card, label) = (super::card(&factory.urls, &desired.name), Label::of(desired));
        // Applied here as well, because the extended card is made from this one.
        label.put_on(&mut card);
        let (builder, example) = match self {
            Self::Echo => (echo::agent(card), "hello"),
            Self::Slow => (slow::agent(card), "5"),
            Self::Conformance => (conformance::agent(card, factory.profile), "chunks 5"),
        };
        let pushes = *self != Self::Conformance || factory.profile != Some(Profile::Minimal);
        let spec = RuntimeSpec { pushes, ..RuntimeSpec::new(builder.card(|card| label.put_on(card))) };
        Ok(Prepared { example, ..Prepared::durable(spec) })
    }

    fn runtime_key(&self) -> String {
        format!("demo {self:?}")
    }
}

fn skill(id: &str, name: &str, description: &str, examples: &[&str]) -> AgentSkill {
    AgentSkill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        tags: vec!["demo".to_owned()],
        examples: examples.iter().map(|&example| example.to_owned()).collect(),
        ..AgentSkill::default()
    }
}
