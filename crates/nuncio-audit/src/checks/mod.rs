//! The checks: small functions over raw exchanges, one per entry of the catalogue.

mod auth;
mod card;
mod errors;
mod extensions;
mod grpc;
mod http;
mod isolation;
mod list;
mod push;
mod reach;
mod rpc;
mod send;
mod stream;
mod task;
mod undeclared;
mod version;

use futures_util::future::BoxFuture;

use nuncio_protocol::{AgentCard, Binding, Task, Version};

use crate::{
    answer::Answer, card::FoundCard, conversation::Conversation, interface::Interface, observed::Checked,
    probe::Probe, survey::Survey,
};

/// A conversation over one interface, as checks read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) card: &'a AgentCard,
    pub(crate) seen: &'a Conversation,
    /// A task that was made over another interface, read over this one.
    pub(crate) elsewhere: Option<(&'a Task, &'a Answer)>,
}

impl Talk<'_> {
    fn version(&self) -> Version {
        self.interface.version
    }

    fn binding(&self) -> Binding {
        self.interface.binding
    }
}

/// A check over one interface.
pub(crate) type ProbeCheck = for<'a> fn(&'a Probe<'a>) -> BoxFuture<'a, Checked>;

pub(crate) use self::{
    isolation::{Foreign, ForeignCheck},
    push::PushTalk,
};

/// The function of a check, by what it reads.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// The card alone.
    Card(fn(&FoundCard) -> Checked),
    /// The whole agent, once its interfaces are known.
    Agent(fn(&Survey<'_>) -> Checked),
    /// Requests over one interface.
    Probe(ProbeCheck),
    /// A conversation over one interface.
    Sent(fn(&Talk<'_>) -> Checked),
    /// Webhooks over one interface.
    Pushed(fn(&PushTalk<'_>) -> Checked),
    /// The task of another caller.
    Foreign(ForeignCheck),
    /// The answer of the survey.
    Reach,
    /// The list of tasks, which is read last.
    List(ProbeCheck),
}

/// A row of the table: the id of the check, and its function.
pub(crate) type Row = (&'static str, Run);

/// The function of a check.
pub(crate) fn find(id: &str) -> Option<Run> {
    let areas: [&[Row]; 16] = [
        card::CHECKS,
        reach::CHECKS,
        rpc::CHECKS,
        http::CHECKS,
        grpc::CHECKS,
        version::CHECKS,
        errors::CHECKS,
        list::CHECKS,
        undeclared::CHECKS,
        extensions::CHECKS,
        auth::CHECKS,
        send::CHECKS,
        task::CHECKS,
        stream::CHECKS,
        push::CHECKS,
        isolation::CHECKS,
    ];
    areas.iter().flat_map(|area| area.iter()).find(|(name, _)| *name == id).map(|(_, run)| *run)
}
