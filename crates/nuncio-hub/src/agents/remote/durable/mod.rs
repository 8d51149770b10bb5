//! Durable mode: the hub owns the tasks of a remote agent, with its own ids and logs, independent of the
//! agent's capabilities.
//!
//! Reading order: this file (the executor), `turn` (one message), `send_once` (prevents a second send),
//! `outage` (messages that wait for an agent that is down),
//! `pending_cancels` (cancels that the agent has not received yet), `contexts` (context ids) and
//! `task_owners`.

mod contexts;
pub(super) mod outage;
pub(super) mod pending_cancels;
pub(super) mod send_once;
mod task_owners;
mod turn;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_protocol::{AgentCard, CallContext};
use nuncio_server::{Emitter, ExecContext, Executor, store::Store};
use tokio::time::Instant;

use self::{
    contexts::Contexts,
    outage::{Outage, Waited, remote_memo},
    pending_cancels::PendingCancels,
    task_owners::TaskOwners,
    turn::{RemoteTurn, TurnEnd},
};
use super::{
    RemoteParts,
    link::{self, Link, card, refusal},
};
use crate::{
    agent_urls::AgentUrls,
    agents::{
        AgentFactory, Label,
        delegation::{Hop, refuse},
    },
    config::WhenDown,
    telemetry::HubTelemetry,
};

/// The pause between two attempts to connect to the agent of a resumed task.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The kinds of records that expire.
pub(super) const RECORD_KINDS: [&str; 4] =
    [contexts::KIND, send_once::KIND, task_owners::KIND, pending_cancels::KIND];

/// A remote agent in durable mode.
pub(super) struct Durable {
    name: Arc<str>,
    hop: Hop,
    urls: AgentUrls,
    label: Arc<ArcSwap<Label>>,
    store: Arc<dyn Store>,
    contexts: Contexts,
    task_owners: TaskOwners,
    pending_cancels: PendingCancels,
    telemetry: HubTelemetry,
    /// The link of the current settings. Each attempt to send loads it anew; a turn, and the wait for an agent that is
    /// down, keep theirs.
    link: Arc<ArcSwap<Link>>,
}

impl Durable {
    pub(super) async fn new(parts: &RemoteParts, factory: &AgentFactory) -> Self {
        let RemoteParts { name, hub, urls, label, store, telemetry, link } = parts.clone();
        let contexts = Contexts::new(&store, &name, &factory.contexts);
        contexts.prepare().await;
        let identity = Arc::clone(&factory.identity);
        Self {
            hop: Hop::new(&hub, &name),
            contexts,
            task_owners: TaskOwners::new(&store, &name, move || identity.has_any()),
            pending_cancels: PendingCancels::new(&store, &name),
            name,
            urls,
            label,
            store,
            telemetry,
            link,
        }
    }

    /// Builds our card of the agent from the agent's own card.
    pub(super) fn shown_card(&self, theirs: &AgentCard) -> AgentCard {
        let mut card = card::present(&self.name, theirs, &self.label.load(), &self.urls);
        let has_more = theirs.capabilities.extended_agent_card == Some(true);
        card.capabilities.extended_agent_card =
            Some(true).filter(|_| has_more && self.link.load().settings.extended_card);
        card
    }
}

/// Delegates messages to the agent.
pub(super) struct RemoteExecutor(pub(super) Arc<Durable>);

#[async_trait]
impl Executor for RemoteExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> nuncio_protocol::Result<()> {
        let durable = &self.0;
        let passage = match durable.hop.pass(&cx.call.hops) {
            Ok(passage) => passage,
            Err(error) => return refuse(&cx, &out, error).await,
        };
        let outage = Outage::new(durable, &cx, &out);
        loop {
            let seen = durable.link.load().probe.answers();
            let (link, error) = match self.connected(&cx, &outage).await {
                None => {
                    let link = durable.link.load_full();
                    let error = link.out_of_reach();
                    (link, error)
                }
                Some((link, connected)) => {
                    let turn = RemoteTurn::new(durable, &link, &connected, &cx, &out, &passage, &outage);
                    match Box::pin(turn.run()).await? {
                        TurnEnd::Done => return Ok(()),
                        TurnEnd::NotSent(error) => (link, error),
                    }
                }
            };
            let is_stopped = cx.cancellation.is_cancelled();
            if link.settings.when_down == WhenDown::Fail || is_stopped && !outage.waits() {
                self.note_cancel(&cx, &out).await;
                return refuse(&cx, &out, error).await;
            }
            // Boxed to keep this future small: few messages wait.
            match Box::pin(outage.wait(&link, seen, &error)).await? {
                Waited::Back => {}
                Waited::Over(error) => return refuse(&cx, &out, error).await,
                Waited::Stopped => {
                    self.note_cancel(&cx, &out).await;
                    return Ok(());
                }
            }
        }
    }

    /// Cancels a task without a running execution. A running one cancels the remote task itself.
    async fn cancel(&self, cx: ExecContext) -> nuncio_protocol::Result<()> {
        if let Some(memo) = remote_memo(cx.memo.as_deref()).filter(|_| !cx.cancellation.is_cancelled()) {
            self.0.cancel_or_note(&memo.task).await;
        }
        Ok(())
    }

    /// The extended card of the agent, fetched with the hub's credentials, for authenticated callers.
    async fn extended_card(&self, _cx: &CallContext) -> nuncio_protocol::Result<Option<AgentCard>> {
        let link = self.0.link.load_full();
        let Some(connected) = link.connected() else {
            return Err(link.out_of_reach());
        };
        match connected.extended_card(link.settings.timeout).await {
            Ok(theirs) => Ok(Some(self.0.shown_card(&theirs))),
            Err(error) => {
                tracing::info!(agent = &*self.0.name, %error, "no extended card");
                Err(refusal::shown(&error, false))
            }
        }
    }
}

impl RemoteExecutor {
    /// Notes the cancel of a task whose agent is out of reach.
    async fn note_cancel(&self, cx: &ExecContext, out: &Emitter) {
        if let Some(memo) = remote_memo(cx.memo.as_deref()).filter(|_| out.is_canceled()) {
            self.0.pending_cancels.note(&memo.task).await;
        }
    }

    /// The connection to the agent. A resumed task waits for an agent that is not available yet: its remote
    /// task exists, and may be done. A message that was not sent waits elsewhere, with its own deadline.
    async fn connected(
        &self,
        cx: &ExecContext,
        outage: &Outage<'_>,
    ) -> Option<(Arc<Link>, Arc<link::Connected>)> {
        let begun = Instant::now();
        loop {
            let link = self.0.link.load_full();
            if let Some(connected) = link.connected() {
                return Some((link, connected));
            }
            if !cx.resumed || cx.memo.is_none() || outage.waits() || begun.elapsed() >= link.settings.give_up
            {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
                () = cx.cancellation.cancelled() => return None,
            }
        }
    }
}
