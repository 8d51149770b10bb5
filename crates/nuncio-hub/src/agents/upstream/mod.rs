//! An agent that speaks A2A already, somewhere else, with everything that a caller of the hub expects: its tasks are
//! ours, with their own ids and logs, whatever the agent itself can do.
//!
//! Reading order: this file (an agent is started and looked after), `executor` (a message goes out), `ask` (what is said), `claim` (once),
//! `follow` (what becomes of it), `withdraw` (what nobody wants any more), `difference` and `translate` (what that is
//! in our terms), `refusal` (what callers are told when it goes wrong); `link` (connections and bounds), `card`,
//! `contexts`, `task_owners`, `probe`, `hops`; `behind` (what administration sees of it).

mod ask;
pub(crate) mod card;
mod claim;
mod contexts;
mod difference;
mod executor;
mod follow;
pub(crate) mod hops;
pub(crate) mod link;
pub(crate) mod probe;
pub(crate) mod refusal;
mod task_owners;
mod translate;
mod withdraw;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_client::FetchedCard;
use nuncio_protocol::{AgentCard, Binding, CallContext, Version, retry::Backoff};
use nuncio_server::{
    Emitter, ExecContext, Executor, Runtime,
    store::{Expect, PutRecord, Store},
};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::card::Label;
use self::{
    contexts::Contexts,
    executor::{Memo, Turn, turn_away},
    hops::Hop,
    link::Link,
    probe::{Condition, Health, Probe},
    task_owners::TaskOwners,
    withdraw::Withdrawals,
};
use super::{
    lapse,
    proxy::{self, Proxy},
};
use crate::{
    clock,
    config::{self, Mode, Upstream},
    fleet::{Agent, Behind, Durable, Workshop},
    place::Place,
    telemetry::Telemetry,
};

/// How long the start of an agent waits for its card.
const START: Duration = Duration::from_secs(5);

/// The pauses between attempts to get a card that cannot be had.
const PAUSES: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// How often records are looked for that nobody uses any more.
const FORGET_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// All kinds of records that are of no use when nobody uses them.
pub(super) const KINDS: [&str; 3] = [contexts::KIND, claim::KIND, withdraw::KIND];

/// What all parts of an upstream agent share.
struct Shared {
    name: Arc<str>,
    hop: Hop,
    place: Place,
    label: Arc<ArcSwap<Label>>,
    store: Arc<dyn Store>,
    contexts: Contexts,
    task_owners: TaskOwners,
    withdrawals: Withdrawals,
    telemetry: Telemetry,
    probe: Arc<Probe>,
    /// By the settings of the present; an execution keeps the one it began with.
    link: Arc<ArcSwap<Link>>,
    /// What hands calls on, if the agent keeps its own tasks.
    proxy: Option<Arc<Proxy>>,
}

/// An upstream agent that is looked after until this is dropped.
pub(crate) struct Watched {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

#[async_trait]
impl Behind for Watched {
    fn health(&self) -> Arc<Health> {
        self.shared.probe.health()
    }

    fn card(&self) -> Option<Value> {
        self.shared.link.load().connected().map(|connected| connected.card.json.clone())
    }

    fn speaks(&self) -> Option<(Version, Binding)> {
        let connected = self.shared.link.load().connected()?;
        connected.client.candidates().first().map(|candidate| (candidate.version, candidate.binding))
    }

    async fn refresh(&self, before: &Agent) -> Result<(), String> {
        if self.shared.refresh().await {
            self.shared.show(before);
        }
        match &self.shared.probe.health().condition {
            Condition::Up => Ok(()),
            other => Err(other.reason().unwrap_or("it has not been heard of yet").to_owned()),
        }
    }
}

/// An agent that is ready to be served.
pub(crate) struct Prepared(Arc<Shared>);

/// Prepares an agent, in the mode of its settings. One that cannot be reached is served all the same, by its last good
/// card or by one that says so, until it comes.
///
/// # Errors
/// A file of the settings cannot be read, or a setting is wrong.
pub(crate) async fn prepare(
    wanted: &config::Agent,
    settings: &Upstream,
    workshop: &Workshop,
) -> Result<Prepared> {
    let name: Arc<str> = (&*wanted.name).into();
    let probe = Arc::new(Probe::default());
    let link = Link::open(&name, settings.clone(), Arc::clone(&probe), workshop.callers.share().clone())?;
    let link = Arc::new(ArcSwap::from_pointee(link));
    let label = Arc::new(ArcSwap::from_pointee(Label::of(wanted)));
    let identity = Arc::clone(&workshop.identity);
    let parts = || proxy::Parts {
        name: Arc::clone(&name),
        hub: Arc::clone(&workshop.hub),
        place: workshop.place.clone(),
        label: Arc::clone(&label),
        store: Arc::clone(&workshop.store),
        pushing: workshop.pushing.clone(),
        apart: Box::new(move || identity.has_any()),
        telemetry: workshop.telemetry.clone(),
    };
    let proxy = (settings.mode == Mode::Proxy).then(|| Arc::new(Proxy::new(parts(), Arc::clone(&link))));
    let shared = Arc::new(Shared {
        proxy,
        hop: Hop::new(&workshop.hub, &name),
        place: workshop.place.clone(),
        label,
        store: Arc::clone(&workshop.store),
        contexts: Contexts::new(&workshop.store, &name, &workshop.contexts),
        task_owners: TaskOwners::default(),
        withdrawals: Withdrawals::new(&workshop.store, &name),
        telemetry: workshop.telemetry.clone(),
        probe,
        link,
        name,
    });
    shared.contexts.prepare().await;
    let _ = tokio::time::timeout(START, shared.refresh()).await;
    if shared.link.load().connected().is_none() {
        shared.recall().await;
    }
    Ok(Prepared(shared))
}

impl Prepared {
    /// Serves it from now on, in place of this one, whose running tasks go on as they began.
    ///
    /// # Errors
    /// Its card cannot be shown.
    pub(crate) fn enter(
        self,
        wanted: &config::Agent,
        before: Option<&Agent>,
        workshop: &Workshop,
    ) -> Result<Arc<Agent>> {
        let Self(shared) = self;
        let keep_headers = shared.link.load().settings.forward_headers.clone();
        let agent = match &shared.proxy {
            Some(proxy) => workshop.relayed(proxy, shared.card(), wanted, keep_headers)?,
            None => {
                let executor = UpstreamExecutor(Arc::clone(&shared));
                let builder = Runtime::builder(shared.card(), executor).idempotent(true);
                let before = before.and_then(|before| before.runtime().cloned());
                let durable = Durable::new(&shared.name, builder, "hello");
                workshop.durable(Durable { wanted: Some(wanted), keep_headers, before, ..durable })?
            }
        };
        let agent = Arc::new(agent.made_as(wanted));
        let stop = CancellationToken::new();
        let watching = Arc::clone(&shared).watch(Arc::downgrade(&agent));
        tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
        if shared.proxy.is_none() {
            tokio::spawn(stop.clone().run_until_cancelled_owned(Arc::clone(&shared).tell()));
        }
        agent.stand_behind(Arc::new(Watched { shared, _stop: stop.drop_guard() }));
        Ok(agent)
    }
}

/// The name of this hub among all, made once and kept.
///
/// # Errors
/// The store is not there.
pub(crate) async fn hub_id(store: &dyn Store) -> Result<Arc<str>> {
    let fresh = hops::random::<8>();
    let put = PutRecord {
        kind: "hub".into(),
        key: "id".into(),
        value: fresh.into(),
        at: clock::now(),
        expect: Expect::Absent,
    };
    // Whoever was first has named it.
    store.put_records(vec![put]).await?;
    let record = store.record("hub", "id").await?;
    let id = record.map(|record| String::from_utf8_lossy(&record.value).into_owned());
    Ok(id.unwrap_or_default().into())
}

impl Shared {
    /// Gets the card and uses it; true if it is another one than before.
    async fn refresh(&self) -> bool {
        let link = self.link.load_full();
        let fetched = card::fetch(&link).await;
        link.learn_by_card(&fetched);
        let connected = fetched.and_then(|card| Ok((link.connect(Arc::clone(&card))?, card)));
        match connected {
            Ok((false, _)) => false,
            Ok((true, card)) => {
                self.keep(&card).await;
                true
            }
            Err(error) => {
                if self.probe.health().condition == Condition::Up {
                    // It answers, but with what we cannot use.
                    link.saw(Condition::Degraded(error.message().to_owned()));
                }
                tracing::debug!(agent = &*self.name, %error, "no card");
                false
            }
        }
    }

    async fn keep(&self, card: &FetchedCard) {
        if let Err(error) = card::keep(&*self.store, &self.name, card).await {
            tracing::warn!(agent = &*self.name, %error, "the card of an agent cannot be kept");
        }
    }

    /// Uses the last good card.
    async fn recall(&self) {
        let link = self.link.load_full();
        let recalled = match card::kept(&*self.store, &self.name).await {
            Ok(Some(card)) => link.connect(card).map(drop).map_err(anyhow::Error::from),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = recalled {
            tracing::warn!(agent = &*self.name, %error, "the last good card of an agent cannot be used");
        }
    }

    /// The agent as we show it.
    fn card(&self) -> AgentCard {
        match (self.link.load().connected(), &self.proxy) {
            (Some(connected), Some(proxy)) => proxy.shown_card(connected.client.card()),
            (Some(connected), None) => self.present(connected.client.card()),
            (None, _) => card::provisional(&self.name, &self.label.load(), &self.place),
        }
    }

    /// Our card out of one of its own, of an agent whose tasks are ours.
    fn present(&self, theirs: &AgentCard) -> AgentCard {
        let mut card = card::present(&self.name, theirs, &self.label.load(), &self.place);
        let has_more = theirs.capabilities.extended_agent_card == Some(true);
        card.capabilities.extended_agent_card =
            Some(true).filter(|_| has_more && self.link.load().settings.extended_card);
        card
    }

    /// Looks for the card from time to time: often while there is none, as the settings say when all is well.
    async fn watch(self: Arc<Self>, agent: std::sync::Weak<Agent>) {
        let (mut pause, mut forgotten) = (PAUSES.base, None::<Instant>);
        loop {
            if forgotten.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
                lapse::forget(&*self.store).await;
                forgotten = Some(Instant::now());
            }
            let every = self.link.load().settings.card_refresh;
            let wait = if self.probe.is_up() { every } else { pause.min(every) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Not at once: whatever it is, it is not over yet.
                () = self.probe.fell() => continue,
            }
            let changed = self.refresh().await;
            pause = if self.probe.is_up() { PAUSES.base } else { PAUSES.after(pause) };
            let Some(agent) = agent.upgrade() else { return };
            if changed {
                self.show(&agent);
            }
        }
    }

    fn show(self: &Arc<Self>, agent: &Agent) {
        let card = match agent.runtime() {
            Some(runtime) => {
                runtime.replace(self.card(), Arc::new(UpstreamExecutor(Arc::clone(self))));
                AgentCard::clone(&runtime.card())
            }
            None => self.card(),
        };
        match agent.show(card) {
            Ok(()) => tracing::info!(agent = &*self.name, "the card of an agent has changed"),
            Err(error) => {
                tracing::warn!(agent = &*self.name, %error, "the new card of an agent cannot be shown")
            }
        }
    }
}

/// Carries messages to the agent.
struct UpstreamExecutor(Arc<Shared>);

#[async_trait]
impl Executor for UpstreamExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> nuncio_protocol::Result<()> {
        let shared = &self.0;
        let hops = match shared.hop.next(&cx.call.hops) {
            Ok(hops) => hops,
            Err(error) => return turn_away(&cx, &out, error).await,
        };
        let Some((link, connected)) = self.connected(&cx).await else {
            if let Some(memo) = Memo::read(cx.memo.as_deref()).filter(|_| out.is_canceled()) {
                shared.withdrawals.note(&memo.task).await;
            }
            return turn_away(&cx, &out, shared.link.load().out_of_reach()).await;
        };
        Box::pin(Turn::new(shared, &link, &connected, &cx, &out, hops).run()).await
    }

    /// Of a task that runs, its execution tells the agent.
    async fn cancel(&self, cx: ExecContext) -> nuncio_protocol::Result<()> {
        if let Some(memo) = Memo::read(cx.memo.as_deref()).filter(|_| !cx.cancellation.is_cancelled()) {
            self.0.withdraw(&memo.task).await;
        }
        Ok(())
    }

    /// What the agent shows to the hub, for whoever is known here.
    async fn extended_card(&self, _cx: &CallContext) -> nuncio_protocol::Result<Option<AgentCard>> {
        let link = self.0.link.load_full();
        let Some(connected) = link.connected() else {
            return Err(link.out_of_reach());
        };
        match connected.extended_card(link.settings.timeout).await {
            Ok(theirs) => Ok(Some(self.0.present(&theirs))),
            Err(error) => {
                tracing::info!(agent = &*self.0.name, %error, "no extended card");
                Err(refusal::shown(&error, false))
            }
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }
}

impl UpstreamExecutor {
    /// The agent. A task that was left behind waits for an agent that has not come back yet: it was begun, and may
    /// well be done.
    async fn connected(&self, cx: &ExecContext) -> Option<(Arc<Link>, Arc<link::Connected>)> {
        let begun = Instant::now();
        loop {
            let link = self.0.link.load_full();
            if let Some(connected) = link.connected() {
                return Some((link, connected));
            }
            if !cx.again || cx.memo.is_none() || begun.elapsed() >= link.settings.give_up {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSES.base) => {}
                () = cx.cancellation.cancelled() => return None,
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
