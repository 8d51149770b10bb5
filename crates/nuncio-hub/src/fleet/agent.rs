//! One agent of the fleet: what carries calls out, and how it is shown.

use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use nuncio_protocol::{A2aService, AgentCard};
use nuncio_server::{
    Runtime,
    bind::{self, BindOptions, OnDenied, Relay},
};

use super::Behind;
use crate::{
    agents::Proxy,
    config::{self, AgentKind, Cards},
    dispatch::{Dispatch, Layers},
    identity::Identity,
    limits::Gate,
    telemetry::Telemetry,
    trail::{Row, Trail, What},
};

/// What a kind of agent is made of.
pub(crate) enum Made {
    /// The hub keeps its tasks.
    Durable(Runtime),
    /// Somebody else keeps its tasks.
    Relayed { proxy: Arc<Proxy>, card: Arc<AgentCard> },
}

/// An agent that is served.
pub(crate) struct Agent {
    name: Arc<str>,
    runtime: Option<Runtime>,
    proxy: Option<Arc<Proxy>>,
    relay: Option<Arc<dyn Relay>>,
    /// What carries calls out, with all that stands around it.
    service: Arc<dyn A2aService>,
    identity: Arc<Identity>,
    /// Its own card, without what the hub says about who may call.
    card: ArcSwap<AgentCard>,
    options: BindOptions,
    shown: ArcSwap<Shown>,
    /// Who does its work, if somebody else does.
    behind: OnceLock<Arc<dyn Behind>>,
    /// The directory shows it.
    is_listed: bool,
    /// Access to its card, if not as for all agents.
    cards: Option<Cards>,
    /// What it was made of, if a configuration or the API has named it.
    kind: Option<AgentKind>,
    /// A word to try it with.
    pub(crate) example: &'static str,
}

/// An agent as callers see it.
pub(crate) struct Shown {
    pub(crate) card: Arc<AgentCard>,
    pub(crate) bound: bind::Agent,
}

impl Agent {
    pub(crate) fn new(
        name: &str,
        made: Made,
        around: Around,
        mut options: BindOptions,
        example: &'static str,
    ) -> Result<Self> {
        let (runtime, proxy, service, card): (_, _, Arc<dyn A2aService>, _) = match made {
            Made::Durable(runtime) => {
                let card = runtime.card();
                (Some(runtime.clone()), None, Arc::new(runtime), card)
            }
            Made::Relayed { proxy, card } => (None, Some(Arc::clone(&proxy)), proxy, card),
        };
        let Around { identity, gate, telemetry } = around;
        options.on_denied = Some(denied(name, identity.trail()));
        let name: Arc<str> = name.into();
        options.agent_name = Some(Arc::clone(&name));
        let calls = telemetry.calls(&name);
        let layers = Layers { calls, gate, identity: Arc::clone(&identity) };
        let relay = |proxy| Arc::new(Dispatch::new(layers.clone(), proxy)) as Arc<dyn Relay>;
        let relay = proxy.clone().map(relay);
        let service: Arc<dyn A2aService> = Arc::new(Dispatch::new(layers, service));
        let shown = show(&name, &service, relay.as_ref(), &card, &identity, &options)?;
        let shown = ArcSwap::from_pointee(shown);
        let card = ArcSwap::new(card);
        let (behind, is_listed, cards, kind) = (OnceLock::new(), true, None, None);
        Ok(Self {
            name,
            runtime,
            proxy,
            relay,
            service,
            identity,
            card,
            options,
            shown,
            behind,
            is_listed,
            cards,
            kind,
            example,
        })
    }

    /// One that was made of this.
    #[must_use]
    pub(crate) fn made_as(self, wanted: &config::Agent) -> Self {
        let (is_listed, cards) = (wanted.visible, wanted.cards);
        Self { kind: Some(wanted.kind.clone()), is_listed, cards, ..self }
    }

    /// True if it is of the same kind, so that what keeps its tasks can go on with this one.
    pub(crate) fn is_made_as(&self, wanted: &config::Agent) -> bool {
        match (&self.kind, &wanted.kind) {
            (Some(AgentKind::Upstream(before)), AgentKind::Upstream(now)) => before.mode == now.mode,
            (Some(AgentKind::Command(before)), AgentKind::Command(now)) => before.grace == now.grace,
            (Some(AgentKind::Demo(before)), AgentKind::Demo(now)) => before == now,
            _ => false,
        }
    }

    /// True if the directory shows it.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// True if anybody may read its card, also who may not call it.
    pub(crate) fn has_public_card(&self) -> bool {
        let usual = if self.is_listed { self.identity.cards() } else { Cards::Protected };
        self.cards.unwrap_or(usual) == Cards::Public
    }

    /// Its work is done by this one. Said once.
    pub(crate) fn stand_behind(&self, behind: Arc<dyn Behind>) {
        let _ = self.behind.set(behind);
    }

    /// Who does its work, if somebody else does.
    pub(crate) fn behind(&self) -> Option<&Arc<dyn Behind>> {
        self.behind.get()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What keeps its tasks, if the hub does.
    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// True if the tasks of that one go on here.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        match (&self.runtime, &before.runtime) {
            (Some(runtime), Some(before)) => runtime.is(before),
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    /// What hands its calls on, if somebody else keeps its tasks.
    pub(crate) fn proxy(&self) -> Option<&Arc<Proxy>> {
        self.proxy.as_ref()
    }

    /// As callers see it now.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        self.shown.load_full()
    }

    /// Shows this card from now on.
    pub(crate) fn show(&self, card: AgentCard) -> Result<()> {
        self.card.store(Arc::new(card));
        self.show_again()
    }

    /// Shows its card with what the hub says now about who may call.
    pub(crate) fn show_again(&self) -> Result<()> {
        let shown = show(
            &self.name,
            &self.service,
            self.relay.as_ref(),
            &self.card.load(),
            &self.identity,
            &self.options,
        )?;
        self.shown.store(Arc::new(shown));
        Ok(())
    }
}

/// What stands around every agent.
pub(crate) struct Around {
    pub(crate) identity: Arc<Identity>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) telemetry: Telemetry,
}

fn denied(agent: &str, trail: &Trail) -> OnDenied {
    let (agent, trail) = (agent.to_owned(), trail.clone());
    OnDenied::new(move |cx, op| {
        trail.note(Row {
            principal: cx.caller.principal().map(ToString::to_string),
            agent: Some(agent.clone()),
            operation: Some(op.name().to_owned()),
            ..Row::of(What::OperationDenied)
        });
    })
}

fn show(
    name: &str,
    service: &Arc<dyn A2aService>,
    relay: Option<&Arc<dyn Relay>>,
    card: &AgentCard,
    identity: &Identity,
    options: &BindOptions,
) -> Result<Shown> {
    let mut card = card.clone();
    identity.declare(&mut card);
    let (service, options) = (Arc::clone(service), options.clone());
    let bound = match relay {
        Some(relay) => bind::Agent::relayed(service, Arc::clone(relay), &card, options),
        None => bind::Agent::new(service, &card, options),
    };
    let bound = bound.with_context(|| format!("the card of {name} is wrong"))?;
    Ok(Shown { card: Arc::new(card), bound })
}
