//! The agent card. Presence is preserved, because signatures cover it.

use super::{convert, required};
use crate::pb::generated as pb;

convert! {
    AgentCard => pb::AgentCard {
        name, description, supported_interfaces, provider, version, documentation_url, capabilities,
        security_schemes, security_requirements, default_input_modes, default_output_modes, skills, signatures,
        icon_url,
    }
    AgentInterface => pb::AgentInterface { url, protocol_binding, tenant, protocol_version }
    AgentProvider => pb::AgentProvider { url, organization }
    AgentCapabilities => pb::AgentCapabilities { streaming, push_notifications, extensions, extended_agent_card }
    AgentExtension => pb::AgentExtension { uri, description, required, params }
    AgentSkill => pb::AgentSkill {
        id, name, description, tags, examples, input_modes, output_modes, security_requirements,
    }
    AgentCardSignature => pb::AgentCardSignature { protected, signature, header }
}

required! {
    AgentCapabilities => pb::AgentCapabilities;
}
