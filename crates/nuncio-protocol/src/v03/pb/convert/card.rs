//! The agent card (decision 0005), by the rules of the JSON card. Signatures do not survive a rewrite
//! (REQ-208), so they are neither encoded nor decoded.

use super::{super::generated as pb, security::is_known};
use crate::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Binding, Version,
    pb::convert::{Convert, InField as _, Mismatch, convert},
    v03::card::interfaces_for_v03,
};

/// The protocol version in v0.3 cards.
const PROTOCOL_VERSION: &str = "0.3.0";

convert! {
    AgentProvider => pb::AgentProvider { url, organization }
    AgentExtension => pb::AgentExtension { uri, description, required, params }
}

impl Convert<pb::AgentCard> for AgentCard {
    fn to_pb(&self) -> Result<pb::AgentCard, Mismatch> {
        let main = interfaces_for_v03(self).next().map(downgrade_interface).unwrap_or_default();
        let capabilities = &self.capabilities;
        Ok(pb::AgentCard {
            name: self.name.clone(),
            description: self.description.clone(),
            url: main.url,
            provider: self.provider.to_pb()?,
            version: self.version.clone(),
            documentation_url: Convert::<String>::to_pb(&self.documentation_url)?,
            capabilities: Some(capabilities.to_pb().at("capabilities")?),
            security_schemes: self.security_schemes.to_pb()?,
            security: self.security_requirements.to_pb()?,
            default_input_modes: self.default_input_modes.clone(),
            default_output_modes: self.default_output_modes.clone(),
            skills: self.skills.to_pb()?,
            supports_authenticated_extended_card: capabilities.extended_agent_card == Some(true),
            preferred_transport: main.transport,
            // The main interface is repeated among the additional ones (03 section 5.6.2, SHOULD).
            additional_interfaces: interfaces_for_v03(self).map(downgrade_interface).collect(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            signatures: Vec::new(),
            icon_url: Convert::<String>::to_pb(&self.icon_url)?,
        })
    }

    fn from_pb(mut pb: pb::AgentCard) -> Result<Self, Mismatch> {
        pb.security_schemes.retain(|_, scheme| is_known(scheme));
        let supported_interfaces =
            upgrade_interfaces(pb.url, pb.preferred_transport, pb.additional_interfaces);
        if supported_interfaces.is_empty() {
            return Err(Mismatch::new("required")).at("url");
        }
        let capabilities = pb.capabilities.unwrap_or_default();
        let mut capabilities = AgentCapabilities::from_pb(capabilities).at("capabilities")?;
        capabilities.extended_agent_card = set(pb.supports_authenticated_extended_card);
        Ok(Self {
            name: pb.name,
            description: pb.description,
            supported_interfaces,
            provider: Convert::from_pb(pb.provider)?,
            version: pb.version,
            documentation_url: Convert::from_pb(pb.documentation_url)?,
            capabilities,
            security_schemes: Convert::from_pb(pb.security_schemes).at("security_schemes")?,
            security_requirements: Convert::from_pb(pb.security)?,
            default_input_modes: pb.default_input_modes,
            default_output_modes: pb.default_output_modes,
            skills: Convert::from_pb(pb.skills)?,
            signatures: Vec::new(),
            icon_url: Convert::from_pb(pb.icon_url)?,
        })
    }
}

fn downgrade_interface(interface: &AgentInterface) -> pb::AgentInterface {
    pb::AgentInterface { url: interface.url.clone(), transport: interface.protocol_binding.clone() }
}

/// The main interface first, then the additional ones without duplicates.
fn upgrade_interfaces(
    url: String,
    transport: String,
    additional: Vec<pb::AgentInterface>,
) -> Vec<AgentInterface> {
    let main = pb::AgentInterface { url, transport };
    let mut found = Vec::with_capacity(1 + additional.len());
    for pb::AgentInterface { url, transport } in [main].into_iter().chain(additional) {
        let interface = AgentInterface {
            url,
            // REQUIRED by 03 section 5.6.1, optional in the schema.
            protocol_binding: if transport.is_empty() {
                Binding::JsonRpc.as_str().to_owned()
            } else {
                transport
            },
            tenant: None,
            protocol_version: Version::V0_3.as_str().to_owned(),
        };
        if !interface.url.is_empty() && !found.contains(&interface) {
            found.push(interface);
        }
    }
    found
}

/// A flag without presence: `false` is the same as absent.
fn set(flag: bool) -> Option<bool> {
    flag.then_some(true)
}

impl Convert<pb::AgentCapabilities> for AgentCapabilities {
    fn to_pb(&self) -> Result<pb::AgentCapabilities, Mismatch> {
        Ok(pb::AgentCapabilities {
            streaming: self.streaming == Some(true),
            push_notifications: self.push_notifications == Some(true),
            extensions: self.extensions.to_pb().at("extensions")?,
        })
    }

    fn from_pb(pb: pb::AgentCapabilities) -> Result<Self, Mismatch> {
        Ok(Self {
            streaming: set(pb.streaming),
            push_notifications: set(pb.push_notifications),
            extensions: Convert::from_pb(pb.extensions).at("extensions")?,
            extended_agent_card: None,
            // The proto of v0.3 does not have it.
            state_transition_history: None,
        })
    }
}

impl Convert<pb::AgentSkill> for AgentSkill {
    fn to_pb(&self) -> Result<pb::AgentSkill, Mismatch> {
        Ok(pb::AgentSkill {
            id: self.id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            tags: self.tags.clone(),
            examples: self.examples.clone(),
            input_modes: self.input_modes.clone(),
            output_modes: self.output_modes.clone(),
            security: self.security_requirements.to_pb()?,
        })
    }

    fn from_pb(pb: pb::AgentSkill) -> Result<Self, Mismatch> {
        Ok(Self {
            id: pb.id,
            name: pb.name,
            description: pb.description,
            tags: pb.tags,
            examples: pb.examples,
            input_modes: pb.input_modes,
            output_modes: pb.output_modes,
            security_requirements: Convert::from_pb(pb.security)?,
        })
    }
}
