//! One agent of the fleet: its service, card and properties.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use http::HeaderName;
use nuncio_protocol::{A2aService, AgentCard, AgentInterface};
use nuncio_server::{
    Runtime,
    bind::{self, BindOptions, OnDenied, Relay},
};

use super::UpstreamStatus;
use crate::{
    agent_urls::AgentUrls,
    config::Cards,
    dispatch::{Dispatch, Layers},
    identity::Authenticator,
    trail::{Row, Trail, What},
};

/// The service of an agent, as its kind provides it.
pub(crate) enum Backend {
    /// A runtime: the hub stores its tasks.
    Runtime(Runtime),
    /// Another service: the hub does not store its tasks.
    Service {
        service: Arc<dyn A2aService>,
        card: Arc<AgentCard>,
        /// Relays calls as bytes, if they need no decoding.
        relay: Option<RelayLayer>,
    },
}

/// Wraps the relay of an agent in its limits and telemetry.
pub(crate) type RelayLayer = Box<dyn FnOnce(Layers) -> Arc<dyn Relay> + Send>;

/// Properties of an agent that its service does not know.
pub(crate) struct AgentInfo {
    /// The kind, as shown to operators.
    pub(crate) kind: &'static str,
    /// Agents with the same key can use the same runtime.
    pub(crate) runtime_key: String,
    /// The agent is listed in the directory.
    pub(crate) is_listed: bool,
    /// Access to its card; `None` for the default of the hub.
    pub(crate) cards: Option<Cards>,
    /// It asks for consent before it gets the messages of a caller.
    pub(crate) asks: bool,
    /// An example message to try the agent with.
    pub(crate) example: &'static str,
}

/// An agent that is served.
pub(crate) struct ServedAgent {
    name: Arc<str>,
    runtime: Option<Runtime>,
    relay: Option<Arc<dyn Relay>>,
    /// The backend with all layers around it.
    service: Arc<dyn A2aService>,
    identity: Arc<Authenticator>,
    urls: AgentUrls,
    /// The card without the hub's security schemes.
    card: ArcSwap<AgentCard>,
    options: BindOptions,
    shown: ArcSwap<VisibleAgent>,
    upstream: Option<Arc<dyn UpstreamStatus>>,
    info: AgentInfo,
}

/// An agent as callers see it.
pub(crate) struct VisibleAgent {
    pub(crate) card: Arc<AgentCard>,
    pub(crate) bound: bind::Agent,
}

impl ServedAgent {
    pub(crate) fn new(
        name: &str,
        backend: Backend,
        info: AgentInfo,
        layers: Layers,
        urls: AgentUrls,
        mut options: BindOptions,
    ) -> Result<Self> {
        let (runtime, relay, service, card): (_, _, Arc<dyn A2aService>, _) = match backend {
            Backend::Runtime(runtime) => {
                let card = runtime.card();
                (Some(runtime.clone()), None, Arc::new(runtime), card)
            }
            Backend::Service { service, card, relay } => (None, relay, service, card),
        };
        let identity = Arc::clone(&layers.identity);
        options.on_denied = Some(denied(name, identity.trail()));
        let name: Arc<str> = name.into();
        options.agent_name = Some(Arc::clone(&name));
        let relay = relay.map(|layer| layer(layers.clone()));
        let service: Arc<dyn A2aService> = Arc::new(Dispatch::new(layers, service));
        let shown = show(&name, &service, relay.as_ref(), &card, (&identity, info.asks), &urls, &options)?;
        let (card, shown) = (ArcSwap::new(card), ArcSwap::from_pointee(shown));
        Ok(Self { name, runtime, relay, service, identity, urls, card, options, shown, upstream: None, info })
    }

    /// Sets the upstream, for a remote agent.
    pub(crate) fn set_upstream(&mut self, upstream: Arc<dyn UpstreamStatus>) {
        self.upstream = Some(upstream);
    }

    /// The status of the upstream, for a remote agent.
    pub(crate) fn upstream(&self) -> Option<&Arc<dyn UpstreamStatus>> {
        self.upstream.as_ref()
    }

    /// The kind, as shown to operators.
    pub(crate) fn kind(&self) -> &'static str {
        self.info.kind
    }

    /// An example message to try the agent with.
    pub(crate) fn example(&self) -> &'static str {
        self.info.example
    }

    /// True if it asks for consent before it gets the messages of a caller.
    pub(crate) fn asks(&self) -> bool {
        self.info.asks
    }

    /// Agents with the same key can use the same runtime.
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

    /// True if its card can be read by everyone, also by callers that may not call the agent.
    pub(crate) fn has_public_card(&self) -> bool {
        let default = if self.is_listed() { self.identity.cards() } else { Cards::Protected };
        self.info.cards.unwrap_or(default) == Cards::Public
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The agent as a service, with its limits and telemetry. For calls within the hub.
    pub(crate) fn service(&self) -> Arc<dyn A2aService> {
        Arc::clone(&self.service)
    }

    /// The runtime, if the hub stores the tasks.
    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// True if this agent continues the tasks of `before`.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        match (&self.runtime, &before.runtime) {
            (Some(runtime), Some(before)) => runtime.is(before),
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    /// The agent as callers see it now.
    pub(crate) fn shown(&self) -> Arc<VisibleAgent> {
        self.shown.load_full()
    }

    /// Shows this card from now on.
    pub(crate) fn show(&self, card: AgentCard) -> Result<()> {
        self.card.store(Arc::new(card));
        self.show_again()
    }

    /// Shows its card with the hub's current security schemes and addresses.
    pub(crate) fn show_again(&self) -> Result<()> {
        let shown = show(
            &self.name,
            &self.service,
            self.relay.as_ref(),
            &self.card.load(),
            (&self.identity, self.info.asks),
            &self.urls,
            &self.options,
        )?;
        self.shown.store(Arc::new(shown));
        Ok(())
    }
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
    (identity, asks): (&Authenticator, bool),
    urls: &AgentUrls,
    options: &BindOptions,
) -> Result<VisibleAgent> {
    let mut card = card.clone();
    identity.declare(&mut card, asks);
    // Which of them there are follows from the default agent, which may be another one now.
    let versions: Vec<_> = card.supported_interfaces.iter().map(AgentInterface::version).collect();
    card.supported_interfaces = urls.interfaces(name);
    card.supported_interfaces.retain(|interface| versions.contains(&interface.version()));
    let (service, options) = (Arc::clone(service), options.clone());
    let bound = match relay {
        Some(relay) => bind::Agent::relayed(service, Arc::clone(relay), &card, options),
        None => bind::Agent::new(service, &card, options),
    };
    let bound = bound.with_context(|| format!("the card of {name} is wrong"))?;
    Ok(VisibleAgent { card: Arc::new(card), bound })
}
