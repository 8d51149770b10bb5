//! The interface that a trial calls: the first one of the card with the version and the binding that were asked for.

use nuncio_audit::exchange::CallInterface;
use nuncio_client::{Credentials, discover};
use nuncio_protocol::{AgentCard, AgentInterface, Binding, Version};
use url::Url;

use super::{TrialRefusal, TrialTarget, exchange::Exchange};
use crate::fleet::Fleet;

/// An interface with what a call of it needs.
pub(super) struct Found {
    pub(super) interface: CallInterface,
    /// The address of the card, to whose origin credentials are bound; `None`: the agent is one of the hub.
    pub(super) home: Option<Url>,
    pub(super) credentials: Credentials,
}

pub(super) async fn find(
    fleet: &Fleet,
    exchange: &Exchange,
    target: &TrialTarget,
    version: Option<Version>,
    binding: Option<Binding>,
    extensions: &[String],
    credentials: Credentials,
) -> Result<Found, TrialRefusal> {
    match target {
        TrialTarget::Agent(name) => {
            let agent = fleet.get(name).ok_or_else(|| TrialRefusal::NoAgent(name.clone()))?;
            let card = agent.shown().card.clone();
            let interface = choose(&card, exchange.base(), version, binding, extensions)?;
            Ok(Found { interface, home: None, credentials: Credentials::none() })
        }
        TrialTarget::Card(url) => {
            let card = discover(exchange.egress(), url, &credentials).await;
            let card = card.map_err(|error| TrialRefusal::Unavailable(error.message().to_owned()))?;
            let interface = choose(&card.card, &card.url, version, binding, extensions)?;
            Ok(Found { interface, home: Some(card.url.clone()), credentials })
        }
    }
}

fn choose(
    card: &AgentCard,
    home: &Url,
    version: Option<Version>,
    binding: Option<Binding>,
    extensions: &[String],
) -> Result<CallInterface, TrialRefusal> {
    let is_asked = |listed: &&AgentInterface| {
        version.is_none_or(|version| listed.version() == Some(version))
            && binding.is_none_or(|binding| listed.binding() == Some(binding))
    };
    let mut why = None;
    for listed in card.supported_interfaces.iter().filter(is_asked) {
        match CallInterface::read(listed, home, card, extensions) {
            Ok(interface) => return Ok(interface),
            Err(refused) => why = Some(refused),
        }
    }
    let offered = card.supported_interfaces.iter();
    let offered: Vec<_> =
        offered.map(|listed| format!("{} {}", listed.protocol_binding, listed.protocol_version)).collect();
    Err(TrialRefusal::Invalid(why.unwrap_or_else(|| {
        let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
        format!("the card has no interface of this version and binding; it lists {offered}")
    })))
}
