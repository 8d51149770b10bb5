//! One agent of the fleet: what serves its calls, and how it is shown.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use http::HeaderName;
use nuncio_protocol::{A2aService, AgentCard};
use nuncio_server::{
    Runtime,
    bind::{self, BindOptions, OnDenied, Relay},
};

use super::UpstreamStatus;
use crate::{
    config::Cards,
    dispatch::{Dispatch, Layers},
    identity::Identity,
    limits::Gate,
    telemetry::Telemetry,
    trail::{Row, Trail, What},
};

/// The service behind an agent, as its kind gives it.
pub(crate) enum Backend {
    /// A runtime: the hub stores its tasks.
    Runtime(Runtime),
    /// A service of the kind's own: the hub stores nothing of its tasks.
    Service {
        service: Arc<dyn A2aService>,
        card: Arc<AgentCard>,
        /// Takes calls as bytes, for those that need no decoding.
        relay: Option<RelayLayer>,
    },
}

/// Puts the limits and the telemetry of an agent around its relay.
pub(crate) type RelayLayer = Box<dyn FnOnce(Layers) -> Arc<dyn Relay> + Send>;

/// Properties of an agent that its service knows nothing about.
pub(crate) struct AgentInfo {
    /// The kind, as operators know it.
    pub(crate) kind: &'static str,
    /// Agents with the same key can take over each other's tasks.
    pub(crate) runtime_key: String,
    /// The directory lists it.
    pub(crate) is_listed: bool,
    /// Access to its card; `None`: as for all agents.
    pub(crate) cards: Option<Cards>,
    /// A word to try it with.
    pub(crate) example: &'static str,
}

/// An agent that is served.
pub(crate) struct Agent {
    name: Arc<str>,
    runtime: Option<Runtime>,
    relay: Option<Arc<dyn Relay>>,
    /// The backend with all middleware around it.
    service: Arc<dyn A2aService>,
    identity: Arc<Identity>,
    /// Its own card, without what the hub says about who may call.
    card: ArcSwap<AgentCard>,
    options: BindOptions,
    shown: ArcSwap<Shown>,
    upstream: Option<Arc<dyn UpstreamStatus>>,
    info: AgentInfo,
}

/// An agent as callers see it.
pub(crate) struct Shown {
    pub(crate) card: Arc<AgentCard>,
    pub(crate) bound: bind::Agent,
}

impl Agent {
    pub(crate) fn new(
        name: &str,
        backend: Backend,
        info: AgentInfo,
        middleware: Middleware,
        mut options: BindOptions,
    ) -> Result<Self> {
        let (runtime, relay, service, card): (_, _, Arc<dyn A2aService>, _) = match backend {
            Backend::Runtime(runtime) => {
                let card = runtime.card();
                (Some(runtime.clone()), None, Arc::new(runtime), card)
            }
            Backend::Service { service, card, relay } => (None, relay, service, card),
        };
        let Middleware { identity, gate, telemetry } = middleware;
        options.on_denied = Some(denied(name, identity.trail()));
        let name: Arc<str> = name.into();
        options.agent_name = Some(Arc::clone(&name));
        let calls = telemetry.calls(&name);
        let layers = Layers { calls, gate, identity: Arc::clone(&identity) };
        let relay = relay.map(|layer| layer(layers.clone()));
        let service: Arc<dyn A2aService> = Arc::new(Dispatch::new(layers, service));
        let shown = show(&name, &service, relay.as_ref(), &card, &identity, &options)?;
        let (card, shown) = (ArcSwap::new(card), ArcSwap::from_pointee(shown));
        Ok(Self { name, runtime, relay, service, identity, card, options, shown, upstream: None, info })
    }

    /// Has its work done by an agent elsewhere, whose status this is.
    pub(crate) fn set_upstream(&mut self, upstream: Arc<dyn UpstreamStatus>) {
        self.upstream = Some(upstream);
    }

    /// The status of the agent that does its work, if one elsewhere does.
    pub(crate) fn upstream(&self) -> Option<&Arc<dyn UpstreamStatus>> {
        self.upstream.as_ref()
    }

    /// The kind, as operators know it.
    pub(crate) fn kind(&self) -> &'static str {
        self.info.kind
    }

    /// A word to try it with.
    pub(crate) fn example(&self) -> &'static str {
        self.info.example
    }

    /// Agents with the same key can take over each other's tasks.
    pub(crate) fn runtime_key(&self) -> &str {
        &self.info.runtime_key
    }

    /// True if the agent receives all these headers of its callers.
    pub(crate) fn receives(&self, headers: &[HeaderName]) -> bool {
        headers.iter().all(|name| self.options.keep_headers.contains(name))
    }

    /// True if the directory lists it.
    pub(crate) fn is_listed(&self) -> bool {
        self.info.is_listed
    }

    /// True if anybody may read its card, also a caller who may not call it.
    pub(crate) fn has_public_card(&self) -> bool {
        let default = if self.is_listed() { self.identity.cards() } else { Cards::Protected };
        self.info.cards.unwrap_or(default) == Cards::Public
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The runtime that stores its tasks, if the hub does.
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

/// The layers around the service of every agent.
pub(crate) struct Middleware {
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
