//! The kinds of agents, a folder each, and their shared parts.
//!
//! Reading order: this file has the table of kinds; `kind` the trait that each kind implements; `factory`
//! builds agents, and puts `consent` before those that ask first; `demo`, `command`, `remote`, `model`, `mailbox` and
//! `room` (a seat) are the kinds; `delegation` gives a task to another agent and follows it; `lease` hands work to
//! workers that fetch it; `json_lines` is the wire of programs and workers; `context_key`, `expiry`, `label`, `probe`,
//! `routes` and `upstream_auth` are used by several kinds.

mod command;
mod consent;
mod context_key;
mod delegation;
mod demo;
mod expiry;
mod factory;
mod hex;
mod json_lines;
mod kind;
mod label;
mod lease;
mod mailbox;
mod model;
mod probe;
mod remote;
mod room;
mod routes;
#[cfg(test)]
mod toy;
mod upstream_auth;

use nuncio_protocol::{AgentCard, AgentProvider};

use self::label::Label;
#[doc(hidden)]
pub use self::model::fuzz_model_answer;
#[cfg(test)]
pub(crate) use self::toy::Toy;
pub(crate) use self::{
    consent::{
        Backlog, CallerAccess, CallerKey, Consents, Decision, DecisionError, REQUEST_LIFETIME, Standing,
    },
    context_key::ContextKey,
    delegation::hub_id,
    demo::demo_agents,
    factory::{AgentFactory, Isolation},
    kind::{Kind, Prepared},
    mailbox::{
        LeaseView, MailboxOverview, Mailboxes, OpenRefusal, Opening, PoisonView, PullApi, RegisterApi,
        TurnView,
    },
    model::forget_orphaned_rounds,
    room::{RoomDriver, SeatedAgents},
    routes::{KindRoute, RouteCall},
};
use crate::{
    agent_urls::AgentUrls,
    config::{self, AgentKind},
};

/// The member of a task's metadata with the name of the agent and the end of the wait.
const WAITS_FOR: &str = "nuncio.waitsFor";

/// Writes the functions that depend on the kind of an agent, from one line for each.
macro_rules! kinds {
    ($($(#[$attribute:meta])* $variant:ident($settings:ty),)*) => {
        /// The kind of these settings.
        pub(crate) fn kind_of(settings: &AgentKind) -> &dyn Kind {
            match settings {
                $($(#[$attribute])* AgentKind::$variant(own) => std::borrow::Borrow::<$settings>::borrow(own),)*
            }
        }

        /// The name of the kind of these settings.
        pub(crate) fn name_of(settings: &AgentKind) -> &'static str {
            match settings {
                $($(#[$attribute])* AgentKind::$variant(_) => <$settings as Kind>::name(),)*
            }
        }

        /// The routes of all kinds.
        pub(crate) fn routes() -> Vec<KindRoute> {
            [$($(#[$attribute])* <$settings as Kind>::routes(),)*].into_iter().flatten().collect()
        }
    };
}

// The only place that distinguishes kinds (`cargo xtask tidy` checks it): a variant of the settings, its
// type.
kinds! {
    Demo(config::Demo),
    Upstream(config::Upstream),
    Command(config::Command),
    Model(config::Model),
    Mailbox(config::Mailbox),
    Seat(config::Seat),
    #[cfg(test)]
    Toy(Toy),
}

/// A card with the members that all agents of the hub have in common.
fn card(urls: &AgentUrls, name: &str) -> AgentCard {
    let mut card = AgentCard::new(name, "").with_streaming();
    card.supported_interfaces = urls.interfaces(name);
    card.provider = Some(AgentProvider { url: urls.base().to_owned(), organization: "Nuncio".to_owned() });
    env!("CARGO_PKG_VERSION").clone_into(&mut card.version);
    card.capabilities.push_notifications = Some(false);
    card.default_input_modes = vec!["*/*".to_owned()];
    card
}
