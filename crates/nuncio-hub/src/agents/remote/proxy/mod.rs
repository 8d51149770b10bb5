//! Proxy mode: the agent owns its tasks, and calls are forwarded with their ids. The hub stores the owners
//! of tasks and the mapping of webhooks, and no content.
//!
//! ```text
//!              same version and binding        relay: request bytes ─► response bytes
//! call ─► bind ─┤                                                         │ owners: is it the caller's?
//!              anything else                   typed: decoded ─► one call ─► encoded
//! ```
//! Reading order: this file (shared by both paths); `relay`, `headers`, `counted_body`, `relay_stream` and `progress` (the byte
//! path); `typed` and `list` (the typed path); `owner` and `owners`; `push`.

mod counted_body;
mod headers;
mod list;
mod owner;
mod owners;
mod progress;
mod push;
mod relay;
mod relay_stream;
mod typed;

use std::{sync::Arc, time::Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use nuncio_client::{Candidate, Direct, Forward};
use nuncio_protocol::{
    AgentCard, Binding, CallContext, Error, ErrorKind, RESUME_EXTENSION, Result, TraceContext, Version,
    op::Op,
};
use nuncio_server::{MemoryAccount, store::Store};

use self::owner::Owner;
pub(crate) use self::owners::Owners;
pub(super) use self::push::Opened;
use super::{
    RemoteParts,
    link::{Connected, Link, card},
};
use crate::{
    agent_urls::AgentUrls,
    agents::{AgentFactory, Label, delegation::Hop},
    push::Pushing,
    telemetry::{HubTelemetry, Translations},
};

/// The kinds of records that expire.
pub(super) fn record_kinds() -> impl Iterator<Item = &'static str> {
    owners::KINDS.into_iter().chain(push::KINDS)
}

/// True if callers are authenticated. Otherwise all tasks belong to all callers, and no owners are
/// recorded.
type CallersIsolated = Box<dyn Fn() -> bool + Send + Sync>;

/// A remote agent in proxy mode.
pub(crate) struct Proxy {
    name: Arc<str>,
    hop: Hop,
    urls: AgentUrls,
    label: Arc<ArcSwap<Label>>,
    store: Arc<dyn Store>,
    /// The delivery to callers' webhooks; `None` if push notifications are off.
    pushing: Option<Pushing>,
    owners: Arc<Owners>,
    callers_isolated: CallersIsolated,
    telemetry: HubTelemetry,
    memory: MemoryAccount,
    /// The link of the current settings.
    link: Arc<ArcSwap<Link>>,
    /// The interfaces of the current card, opened on first use.
    interfaces: ArcSwapOption<Interfaces>,
}

/// The interfaces of the agent.
struct Interfaces {
    link: Arc<Link>,
    /// The card of the interfaces.
    connected: Arc<Connected>,
    raw: Vec<Forward>,
    typed: Arc<Direct>,
    /// Counts the calls on the typed path.
    translations: Translations,
}

impl Proxy {
    pub(super) fn new(parts: &RemoteParts, factory: &AgentFactory) -> Self {
        let RemoteParts { name, hub, urls, label, store, telemetry, link } = parts.clone();
        let (pushing, identity) = (factory.pushing.clone(), Arc::clone(&factory.identity));
        let memory = factory.options.memory.clone();
        let callers_isolated = Box::new(move || identity.has_any());
        let owners = Arc::new(Owners::new(Arc::clone(&store), &name));
        let (interfaces, hop) = (ArcSwapOption::empty(), Hop::new(&hub, &name));
        Self {
            name,
            hop,
            urls,
            label,
            store,
            pushing,
            owners,
            callers_isolated,
            telemetry,
            memory,
            link,
            interfaces,
        }
    }

    /// The owners of tasks, if callers are isolated.
    fn owners(&self) -> Option<&Arc<Owners>> {
        (self.callers_isolated)().then_some(&self.owners)
    }

    /// The idempotency key for the agent. To the agent all callers are one, so the key is combined with the
    /// owner; otherwise two callers that use the same key would get each other's answers.
    fn idempotency_key(&self, cx: &CallContext) -> Option<String> {
        let key = cx.idempotency_key.as_deref()?;
        Some(match self.owners() {
            Some(_) => Owner::of(&cx.caller).own(key),
            None => key.to_owned(),
        })
    }

    /// The interfaces of the current card.
    fn interfaces(&self) -> Result<Arc<Interfaces>> {
        let link = self.link.load();
        let connected = link.connected().ok_or_else(|| link.out_of_reach())?;
        let interfaces = self.interfaces.load();
        if let Some(interfaces) = &*interfaces
            && Arc::ptr_eq(&interfaces.connected, &connected)
            && Arc::ptr_eq(&interfaces.link, &link)
        {
            return Ok(Arc::clone(interfaces));
        }
        let interfaces = Arc::new(self.ways_by(Arc::clone(&link), connected)?);
        self.interfaces.store(Some(Arc::clone(&interfaces)));
        Ok(interfaces)
    }

    /// The outgoing trace context.
    fn trace(&self, cx: &CallContext, hops: &[String]) -> TraceContext {
        self.hop.trace(cx.trace.as_ref(), hops)
    }

    /// The hops of the outgoing call.
    fn hops(&self, cx: &CallContext) -> Result<Vec<String>> {
        self.hop.next(&cx.hops)
    }

    /// Builds our card of the agent from the agent's own card. It declares only capabilities of the agent.
    pub(crate) fn shown_card(&self, theirs: &AgentCard) -> AgentCard {
        let mut card = card::present(&self.name, theirs, &self.label.load(), &self.urls);
        let (ours, theirs) = (&mut card.capabilities, &theirs.capabilities);
        ours.streaming = theirs.streaming;
        ours.push_notifications = Some(theirs.push_notifications == Some(true) && self.pushing.is_some());
        ours.extended_agent_card =
            theirs.extended_agent_card.filter(|_| self.link.load().settings.extended_card);
        // The agent's streams are relayed, so its declaration of resumable streams stays valid.
        let resumes = theirs.extensions.iter().find(|extension| extension.uri == RESUME_EXTENSION);
        ours.extensions.extend(resumes.cloned());
        card
    }

    /// True if the agent sends push notifications and the hub can deliver them.
    fn pushes(&self, interfaces: &Interfaces) -> bool {
        self.pushing.is_some() && interfaces.card().capabilities.push_notifications == Some(true)
    }
}

impl Proxy {
    fn ways_by(&self, link: Arc<Link>, connected: Arc<Connected>) -> Result<Interfaces> {
        // The candidates have the configured version and binding, on allowed hosts.
        let candidates = connected.client.candidates();
        let first = candidates.first().ok_or_else(|| link.out_of_reach())?;
        let home = &connected.card.url;
        let files = link.settings.file_bytes;
        let typed = Direct::with_file_bytes(&link.egress, first, &link.credentials, home, files)?;
        let raw = candidates.iter().map(|way| Forward::new(&link.egress, way, &link.credentials, home));
        let raw = raw.collect::<Result<_>>()?;
        let translations = self.telemetry.metrics.translations(&self.name, (first.version, first.binding));
        Ok(Interfaces { link, connected, raw, typed: Arc::new(typed), translations })
    }
}

impl Interfaces {
    fn card(&self) -> &AgentCard {
        self.connected.client.card()
    }

    /// The index of the interface with this binding and version.
    fn same(&self, binding: Binding, version: Version) -> Option<usize> {
        let is_same = |way: &Candidate| way.binding == binding && way.version == version;
        self.raw.iter().position(|way| is_same(way.candidate()))
    }

    /// Time for the agent to answer.
    fn patience(&self, op: Op) -> std::time::Duration {
        match op {
            Op::SendMessage | Op::SendStreamingMessage => self.link.settings.send_timeout,
            _ => self.link.settings.timeout,
        }
    }

    /// The deadline of a call: the caller's or the timeout, the earlier one. Streams have only the
    /// caller's.
    fn deadline(&self, cx: &CallContext, op: Op) -> Option<Instant> {
        if op.row().streaming {
            return cx.deadline;
        }
        let ours = Instant::now().checked_add(self.patience(op));
        [cx.deadline, ours].into_iter().flatten().min()
    }
}

/// The error of a reply that does not have the type of its operation.
fn unexpected(op: &str) -> Error {
    Error::internal(format!("the reply to {op} has the type of another operation's reply"))
}

fn late() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the agent took too long to answer")
}

#[cfg(test)]
mod tests;
