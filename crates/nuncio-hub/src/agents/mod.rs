//! The kinds of agents, a file each.

mod command;
mod conformance;
mod context_key;
mod echo;
mod lapse;
mod proxy;
mod slow;
pub(crate) mod upstream;

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use nuncio_protocol::{AgentCard, AgentProvider, AgentSkill};
use nuncio_server::CallerShare;

pub(crate) use self::context_key::ContextKey;
pub(crate) use self::proxy::{Answered, Opened, Proxy, Taken};
use self::upstream::Label;
pub(crate) use self::upstream::hub_id;
use crate::{
    config::{self, AgentKind, Demo, Profile},
    fleet::{Agent, Durable, Workshop},
    place::Place,
    registry::{Enter, Maker},
};

/// Keeps the callers of an agent apart.
#[derive(Clone)]
pub(crate) struct Isolation {
    /// Names their conversations.
    pub(crate) contexts: ContextKey,
    /// The share of the agent's capacity that one caller may hold.
    pub(crate) share: CallerShare,
}

/// The demo agents.
pub(crate) fn demo(workshop: &Workshop) -> Result<Vec<Agent>> {
    Demo::ALL
        .into_iter()
        .map(|demo| workshop.durable(of_demo(workshop, demo.name(), demo, &Label::default())))
        .collect()
}

fn of_demo<'a>(workshop: &Workshop, name: &'a str, demo: Demo, label: &Label) -> Durable<'a> {
    let mut card = card(&workshop.place, name);
    // Now, too: the extended card is made of this one.
    label.put_on(&mut card);
    match demo {
        Demo::Echo => Durable::new(name, echo::agent(card), "hello"),
        Demo::Slow => Durable::new(name, slow::agent(card), "5"),
        Demo::Conformance => {
            let pushes = workshop.profile != Some(Profile::Minimal);
            let durable = Durable::new(name, conformance::agent(card, workshop.profile), "chunks 5");
            Durable { pushes, ..durable }
        }
    }
}

#[async_trait]
impl Maker for Workshop {
    async fn make(self: Arc<Self>, wanted: config::Agent, before: Option<Arc<Agent>>) -> Result<Enter> {
        // Tasks go on where the kind stays the same: what a runtime is built with besides is for good.
        let before = before.filter(|before| before.is_made_as(&wanted));
        if let AgentKind::Upstream(settings) = &wanted.kind {
            let prepared = upstream::prepare(&wanted, settings, &self).await?;
            return Ok(Box::new(move || prepared.enter(&wanted, before.as_deref(), &self)));
        }
        Ok(Box::new(move || {
            let name = &*wanted.name;
            let durable = match &wanted.kind {
                AgentKind::Demo(demo) => of_demo(&self, name, *demo, &Label::of(&wanted)),
                AgentKind::Command(command) => {
                    Durable::new(name, command::agent(&self.place, name, command, &self.isolation()), "hello")
                }
                AgentKind::Upstream(_) => unreachable!("made above"),
            };
            let before = before.and_then(|before| before.runtime().cloned());
            let builder = durable.builder.card(|card| Label::of(&wanted).put_on(card));
            let agent = self.durable(Durable { builder, wanted: Some(&wanted), before, ..durable })?;
            Ok(Arc::new(agent.made_as(&wanted)))
        }))
    }
}

/// A card with what all agents of the hub have in common.
fn card(place: &Place, name: &str) -> AgentCard {
    let mut card = AgentCard::new(name, "").with_streaming();
    card.supported_interfaces = place.interfaces(name);
    card.provider = Some(AgentProvider { url: place.base().to_owned(), organization: "Nuncio".to_owned() });
    env!("CARGO_PKG_VERSION").clone_into(&mut card.version);
    card.capabilities.push_notifications = Some(false);
    card.default_input_modes = vec!["*/*".to_owned()];
    card
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
