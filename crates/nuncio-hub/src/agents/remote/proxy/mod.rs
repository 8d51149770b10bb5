//! An agent that speaks A2A already and keeps its own tasks: calls are handed on, ids and all. The hub keeps who owns
//! which task and which webhook stands behind which, and nothing of what is said.
//!
//! ```text
//!              same version and binding        relay: the bytes that came ─► the bytes that come back
//! call ─► bind ─┤                                                              │ owners: whose is it?
//!              anything else                   carry: decoded ─► one exchange ─► encoded
//! ```
//! Reading order: this file (what both ways share), `relay`, `headers`, `passing` and `progress` (the way of bytes), `carry` and
//! `list` (the way of types), `owner` and `owners`, `push`.

mod carry;
mod headers;
mod list;
mod owner;
mod owners;
mod passing;
mod progress;
mod push;
mod relay;

use std::{sync::Arc, time::Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use nuncio_client::{Candidate, Direct, Forward};
use nuncio_protocol::{
    AgentCard, Binding, CallContext, Error, ErrorKind, RESUME_EXTENSION, Result, TraceContext, Version,
    op::Op,
};
use nuncio_server::store::Store;

use self::owner::Owner;
pub(crate) use self::owners::Owners;
pub(super) use self::push::Opened;
use super::{
    Parts,
    link::{Connected, Link, card},
};
use crate::{
    agent_urls::AgentUrls,
    agents::{AgentFactory, Label, delegation::Hop},
    push::Pushing,
    telemetry::{Telemetry, Translations},
};

/// The kinds of records that expire.
pub(super) fn record_kinds() -> impl Iterator<Item = &'static str> {
    owners::KINDS.into_iter().chain(push::KINDS)
}

/// True if callers are told apart now; as long as they are not, all that there is belongs to all, and nothing is
/// recorded.
type CallersIsolated = Box<dyn Fn() -> bool + Send + Sync>;

/// An agent that keeps its own tasks.
pub(crate) struct Proxy {
    name: Arc<str>,
    hop: Hop,
    urls: AgentUrls,
    label: Arc<ArcSwap<Label>>,
    store: Arc<dyn Store>,
    /// The way out to callers' webhooks; `None`: there are none.
    pushing: Option<Pushing>,
    owners: Arc<Owners>,
    callers_isolated: CallersIsolated,
    telemetry: Telemetry,
    /// By the settings of the present.
    link: Arc<ArcSwap<Link>>,
    /// The ways to the agent that its card shows, made when they are first needed.
    ways: ArcSwapOption<Ways>,
}

/// The interfaces of the agent.
struct Ways {
    link: Arc<Link>,
    /// The card that they are of.
    connected: Arc<Connected>,
    raw: Vec<Forward>,
    typed: Arc<Direct>,
    /// Counts what goes the way of types.
    translations: Translations,
}

impl Proxy {
    pub(super) fn new(parts: &Parts, factory: &AgentFactory) -> Self {
        let Parts { name, hub, urls, label, store, telemetry, link } = parts.clone();
        let (pushing, identity) = (factory.pushing.clone(), Arc::clone(&factory.identity));
        let callers_isolated = Box::new(move || identity.has_any());
        let owners = Arc::new(Owners::new(Arc::clone(&store), &name));
        let (ways, hop) = (ArcSwapOption::empty(), Hop::new(&hub, &name));
        Self { name, hop, urls, label, store, pushing, owners, callers_isolated, telemetry, link, ways }
    }

    /// Who knows whose tasks are, where that matters.
    fn owners(&self) -> Option<&Arc<Owners>> {
        (self.callers_isolated)().then_some(&self.owners)
    }

    /// The key by which the agent may know a message again. All callers are one to the agent, so that a key says
    /// whose it is: one caller would be given the answer to another, who happens to count from 1 as well.
    fn idempotency_key(&self, cx: &CallContext) -> Option<String> {
        let key = cx.idempotency_key.as_deref()?;
        Some(match self.owners() {
            Some(_) => Owner::of(&cx.caller).own(key),
            None => key.to_owned(),
        })
    }

    /// The ways to the agent, by the card that is known now.
    fn ways(&self) -> Result<Arc<Ways>> {
        let link = self.link.load();
        let connected = link.connected().ok_or_else(|| link.out_of_reach())?;
        let ways = self.ways.load();
        if let Some(ways) = &*ways
            && Arc::ptr_eq(&ways.connected, &connected)
            && Arc::ptr_eq(&ways.link, &link)
        {
            return Ok(Arc::clone(ways));
        }
        let ways = Arc::new(self.ways_by(Arc::clone(&link), connected)?);
        self.ways.store(Some(Arc::clone(&ways)));
        Ok(ways)
    }

    /// The trace as it goes out.
    fn trace(&self, cx: &CallContext, hops: &[String]) -> TraceContext {
        self.hop.trace(cx.trace.as_ref(), hops)
    }

    /// Through which hubs the call will have come.
    fn hops(&self, cx: &CallContext) -> Result<Vec<String>> {
        self.hop.next(&cx.hops)
    }

    /// Our card of the agent, out of one of its own. It can do what it can do, and no more.
    pub(crate) fn shown_card(&self, theirs: &AgentCard) -> AgentCard {
        let mut card = card::present(&self.name, theirs, &self.label.load(), &self.urls);
        let (ours, theirs) = (&mut card.capabilities, &theirs.capabilities);
        ours.streaming = theirs.streaming;
        ours.push_notifications = Some(theirs.push_notifications == Some(true) && self.pushing.is_some());
        ours.extended_agent_card =
            theirs.extended_agent_card.filter(|_| self.link.load().settings.extended_card);
        // What the agent says of its streams holds for what is handed on.
        let resumes = theirs.extensions.iter().find(|extension| extension.uri == RESUME_EXTENSION);
        ours.extensions.extend(resumes.cloned());
        card
    }

    /// True if the agent tells webhooks, and we can hand on what it tells.
    fn pushes(&self, ways: &Ways) -> bool {
        self.pushing.is_some() && ways.card().capabilities.push_notifications == Some(true)
    }
}

impl Proxy {
    fn ways_by(&self, link: Arc<Link>, connected: Arc<Connected>) -> Result<Ways> {
        // Those of the settings' version and binding, at hosts where the agent may be called.
        let candidates = connected.client.candidates();
        let first = candidates.first().ok_or_else(|| link.out_of_reach())?;
        let home = &connected.card.url;
        let files = link.settings.file_bytes;
        let typed = Direct::with_file_bytes(&link.egress, first, &link.credentials, home, files)?;
        let raw = candidates.iter().map(|way| Forward::new(&link.egress, way, &link.credentials, home));
        let raw = raw.collect::<Result<_>>()?;
        let translations = self.telemetry.metrics.translations(&self.name, (first.version, first.binding));
        Ok(Ways { link, connected, raw, typed: Arc::new(typed), translations })
    }
}

impl Ways {
    fn card(&self) -> &AgentCard {
        self.connected.client.card()
    }

    /// The interface that a call can be handed on to as it came.
    fn same(&self, binding: Binding, version: Version) -> Option<usize> {
        let is_same = |way: &Candidate| way.binding == binding && way.version == version;
        self.raw.iter().position(|way| is_same(way.candidate()))
    }

    /// How long the agent may take to answer.
    fn patience(&self, op: Op) -> std::time::Duration {
        match op {
            Op::SendMessage | Op::SendStreamingMessage => self.link.settings.send_timeout,
            _ => self.link.settings.timeout,
        }
    }

    /// When the caller, or our patience, is at its end; `None` for what may go on for ever.
    fn deadline(&self, cx: &CallContext, op: Op) -> Option<Instant> {
        if op.row().streaming {
            return cx.deadline;
        }
        let ours = Instant::now().checked_add(self.patience(op));
        [cx.deadline, ours].into_iter().flatten().min()
    }
}

fn late() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the agent took too long to answer")
}

#[cfg(test)]
mod tests;
