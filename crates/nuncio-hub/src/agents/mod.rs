//! The kinds of agents, a file each.

mod conformance;
mod echo;
mod slow;

use std::sync::Arc;

use nuncio_protocol::{AgentCard, AgentProvider, AgentSkill};
use nuncio_server::{Retention, Runtime, RuntimeBuilder, store::Store};

pub use self::conformance::Profile;
use crate::{place::Place, push::Pushing};

/// An agent that is ready to be served.
pub(crate) struct Agent {
    pub(crate) name: &'static str,
    pub(crate) runtime: Runtime,
    /// A word to try it with.
    pub(crate) example: &'static str,
}

/// The names of the demo agents.
#[must_use]
pub fn demo_names() -> Vec<&'static str> {
    vec![echo::NAME, slow::NAME, conformance::NAME]
}

/// The demo agents.
pub(crate) fn demo(
    profile: Option<Profile>,
    place: &Place,
    store: &Arc<dyn Store>,
    retention: &Retention,
    pushing: Option<&Pushing>,
) -> Vec<Agent> {
    let build = |name: &'static str, mut builder: RuntimeBuilder, example: &'static str| {
        builder = builder.agent(name).store(Arc::clone(store)).retention(retention.clone());
        let mute = name == conformance::NAME && profile == Some(Profile::Minimal);
        if let Some(Pushing { push, options }) = pushing.filter(|_| !mute) {
            builder = builder.push(push, options.clone());
        }
        Agent { name, runtime: builder.build(), example }
    };
    vec![
        build(echo::NAME, echo::agent(card(place, echo::NAME)), "hello"),
        build(slow::NAME, slow::agent(card(place, slow::NAME)), "5"),
        build(conformance::NAME, conformance::agent(card(place, conformance::NAME), profile), "chunks 5"),
    ]
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
