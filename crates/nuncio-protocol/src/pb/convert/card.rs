//! The agent card. Presence is preserved, because signatures cover it.

use super::{Convert, InField as _, Mismatch, convert, required};
use crate::{AgentCapabilities, pb::generated as pb};

convert! {
    AgentCard => pb::AgentCard {
        name, description, supported_interfaces, provider, version, documentation_url, capabilities,
        security_schemes, security_requirements, default_input_modes, default_output_modes, skills, signatures,
        icon_url,
    }
    AgentInterface => pb::AgentInterface { url, protocol_binding, tenant, protocol_version }
    AgentProvider => pb::AgentProvider { url, organization }
    AgentExtension => pb::AgentExtension { uri, description, required, params }
    AgentSkill => pb::AgentSkill {
        id, name, description, tags, examples, input_modes, output_modes, security_requirements,
    }
    AgentCardSignature => pb::AgentCardSignature { protected, signature, header }
}

/// All but the history of states, which is no member of 1.0.
impl Convert<pb::AgentCapabilities> for AgentCapabilities {
    fn to_pb(&self) -> Result<pb::AgentCapabilities, Mismatch> {
        Ok(pb::AgentCapabilities {
            streaming: self.streaming,
            push_notifications: self.push_notifications,
            extensions: self.extensions.to_pb().at("extensions")?,
            extended_agent_card: self.extended_agent_card,
        })
    }

    fn from_pb(pb: pb::AgentCapabilities) -> Result<Self, Mismatch> {
        Ok(Self {
            streaming: pb.streaming,
            push_notifications: pb.push_notifications,
            extensions: Convert::from_pb(pb.extensions).at("extensions")?,
            extended_agent_card: pb.extended_agent_card,
            state_transition_history: None,
        })
    }
}

required! {
    AgentCapabilities => pb::AgentCapabilities;
}
