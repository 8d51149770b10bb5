//! The agent card (spec 4.4). Presence follows the proto exactly, because signatures cover it (spec 8.4.1):
//! `Option` for `optional` fields, REQUIRED fields are always written, and all others are left out when
//! empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Metadata, SecurityRequirement, SecurityScheme, Version,
    lenient::{none_if_empty, null_default},
    metadata::metadata,
};

/// The card of an agent: its identity, skills, interfaces and security.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCard {
    /// The agent's name.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// The purpose of the agent.
    #[serde(deserialize_with = "null_default")]
    pub description: String,
    /// The interfaces, in the agent's order of preference.
    #[serde(alias = "supported_interfaces", deserialize_with = "null_default")]
    pub supported_interfaces: Vec<AgentInterface>,
    /// The organisation that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    /// The agent's own version.
    #[serde(deserialize_with = "null_default")]
    pub version: String,
    /// The URL of its documentation.
    #[serde(alias = "documentation_url", skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// The optional parts of the protocol that it supports.
    #[serde(deserialize_with = "null_default")]
    pub capabilities: AgentCapabilities,
    /// The ways to authenticate, by name.
    #[serde(
        alias = "security_schemes",
        deserialize_with = "null_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// The credentials that a caller must present: any one of these.
    #[serde(
        alias = "security_requirements",
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Accepted media types.
    #[serde(alias = "default_input_modes", deserialize_with = "null_default")]
    pub default_input_modes: Vec<String>,
    /// Produced media types.
    #[serde(alias = "default_output_modes", deserialize_with = "null_default")]
    pub default_output_modes: Vec<String>,
    /// The skills of the agent.
    #[serde(deserialize_with = "null_default")]
    pub skills: Vec<AgentSkill>,
    /// Signatures over the card without this member.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<AgentCardSignature>,
    /// The URL of an icon.
    #[serde(alias = "icon_url", skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

impl AgentCard {
    /// A card with all required members: text in, text out, one skill named like the agent. It has no
    /// interfaces yet.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let (name, description) = (name.into(), description.into());
        let skill = AgentSkill {
            id: name.clone(),
            name: name.clone(),
            description: description.clone(),
            tags: vec![name.clone()],
            ..AgentSkill::default()
        };
        Self {
            name,
            description,
            version: "1.0.0".to_owned(),
            default_input_modes: vec!["text/plain".to_owned()],
            default_output_modes: vec!["text/plain".to_owned()],
            skills: vec![skill],
            ..Self::default()
        }
    }

    /// Adds an interface in every version, the newest first.
    #[must_use]
    pub fn reached_at(mut self, binding: Binding, url: &str) -> Self {
        self.supported_interfaces.extend(Version::ALL.iter().map(|version| AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.as_str().to_owned(),
            tenant: None,
            protocol_version: version.as_str().to_owned(),
        }));
        self
    }

    /// Adds every binding in every version, the newest first, for an agent at the root of a base URL such
    /// as `http://127.0.0.1:2650`. gRPC is listed as host and port, because the SDKs accept no other form.
    #[must_use]
    pub fn served_at(mut self, base: &str) -> Self {
        let base = base.trim_end_matches('/');
        for version in Version::ALL {
            for binding in Binding::ALL {
                let url = if *binding == Binding::Grpc { grpc_target(base) } else { base.to_owned() };
                self.supported_interfaces.push(AgentInterface {
                    url,
                    protocol_binding: binding.as_str().to_owned(),
                    tenant: None,
                    protocol_version: version.as_str().to_owned(),
                });
            }
        }
        self
    }

    /// Declares that the agent streams.
    #[must_use]
    pub fn with_streaming(mut self) -> Self {
        self.capabilities.streaming = Some(true);
        self
    }

    /// The extension of this URI, if the agent declares it.
    #[must_use]
    pub fn extension(&self, uri: &str) -> Option<&AgentExtension> {
        self.capabilities.extensions.iter().find(|extension| extension.uri == uri)
    }

    /// True if the media type may be sent in a part: no modes are declared, or a type or wildcard matches.
    #[must_use]
    pub fn accepts_input(&self, media_type: &str) -> bool {
        let skills = self.skills.iter().flat_map(|skill| &skill.input_modes);
        let mut modes = self.default_input_modes.iter().chain(skills).peekable();
        modes.peek().is_none() || modes.any(|mode| mode_matches(mode, media_type))
    }
}

/// Matches `*/*`, `text/*` or the type itself; parameters such as a charset are ignored. Cards of 0.3 also
/// have the words `text`, `image`, … for a family, `data` for JSON and `file` for anything.
fn mode_matches(mode: &str, media_type: &str) -> bool {
    let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (mode, media_type) = (essence(mode), essence(media_type));
    match mode.strip_suffix("/*") {
        Some("*") => true,
        Some(family) => media_type.split('/').next() == Some(family),
        None if mode.contains('/') => mode == media_type,
        None => match &*mode {
            "file" => true,
            "data" => media_type == "application/json",
            family => media_type.split('/').next() == Some(family),
        },
    }
}

/// An interface of an agent: a URL with one binding and one version.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentInterface {
    /// The URL.
    #[serde(deserialize_with = "null_default")]
    pub url: String,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or a URI.
    #[serde(alias = "protocol_binding", deserialize_with = "null_default")]
    pub protocol_binding: String,
    /// Sent back in every request.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `Major.Minor`.
    #[serde(alias = "protocol_version", deserialize_with = "null_default")]
    pub protocol_version: String,
}

impl AgentInterface {
    /// The binding, if it is one of the three of the specification.
    #[must_use]
    pub fn binding(&self) -> Option<Binding> {
        Binding::from_name(&self.protocol_binding)
    }

    /// The version, if it is supported.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        Version::parse(&self.protocol_version)
    }
}

/// Host and port of a URL, the form of gRPC interfaces; the default port is that of the scheme.
#[must_use]
pub fn grpc_target(base: &str) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match scheme {
        _ if has_port => authority.to_owned(),
        "https" => format!("{authority}:443"),
        _ => format!("{authority}:80"),
    }
}

/// A binding of the protocol: the transport of calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// gRPC.
    Grpc,
    /// HTTP+JSON: methods, paths and JSON bodies.
    HttpJson,
}

impl Binding {
    /// Every binding.
    pub const ALL: &[Self] = &[Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// The name in a card.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::Grpc => "GRPC",
            Self::HttpJson => "HTTP+JSON",
        }
    }

    /// Finds a binding by its name in a card, in any case (contradiction C-54: some cards have `gRPC`).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::JsonRpc, Self::Grpc, Self::HttpJson]
            .into_iter()
            .find(|binding| binding.as_str().eq_ignore_ascii_case(name))
    }
}

/// The organisation that runs an agent.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentProvider {
    /// Its web site.
    #[serde(deserialize_with = "null_default")]
    pub url: String,
    /// Its name.
    #[serde(deserialize_with = "null_default")]
    pub organization: String,
}

/// The optional parts of the protocol that an agent supports; absent means no.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Streaming.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Push notifications.
    #[serde(alias = "push_notifications", skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Supported extensions.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<AgentExtension>,
    /// An extended card for authenticated clients.
    #[serde(alias = "extended_agent_card", skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
    /// A history of the states of a task. Only cards of version 0.3 say it: it is read from any card, and written into
    /// those that clients of 0.3 read.
    #[serde(alias = "state_transition_history", skip_serializing)]
    pub state_transition_history: Option<bool>,
}

/// An extension of the protocol.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentExtension {
    /// Identifies the extension, version included.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub uri: String,
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Clients have to declare it.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Parameters that the extension defines.
    #[serde(deserialize_with = "metadata::<_, 4>", skip_serializing_if = "Metadata::is_empty")]
    pub params: Metadata,
}

/// The extension by which a card says what the messages of its skills look like. Its parameters are
/// `{"skills": {ID: {"inputSchema": SCHEMA}}}`, with a JSON Schema for each skill that has one.
pub const SKILL_SCHEMAS_EXTENSION: &str = "https://nuncio.dev/a2a/skill-schemas/v1";

/// A skill of an agent.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentSkill {
    /// Unique within the card.
    #[serde(deserialize_with = "null_default")]
    pub id: String,
    /// For humans.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// For humans and planners.
    #[serde(deserialize_with = "null_default")]
    pub description: String,
    /// For search.
    #[serde(deserialize_with = "null_default")]
    pub tags: Vec<String>,
    /// Examples of requests.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Accepted media types, if different from the card's.
    #[serde(alias = "input_modes", deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Produced media types, if different from the card's.
    #[serde(
        alias = "output_modes",
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_modes: Vec<String>,
    /// The security requirements beyond those of the card.
    #[serde(
        alias = "security_requirements",
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
}

/// A JWS over the card, payload detached (RFC 7515).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentCardSignature {
    /// The protected header, base64url.
    #[serde(deserialize_with = "null_default")]
    pub protected: String,
    /// The signature, base64url.
    #[serde(deserialize_with = "null_default")]
    pub signature: String,
    /// The unprotected header.
    #[serde(deserialize_with = "metadata::<_, 3>", skip_serializing_if = "Metadata::is_empty")]
    pub header: Metadata,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_with_a_port_of_its_own_has_every_interface() {
        for (base, target) in [
            ("http://127.0.0.1:2650", "127.0.0.1:2650"),
            ("http://[::1]:2650/", "[::1]:2650"),
            ("https://agent.example", "agent.example:443"),
            ("http://[::1]", "[::1]:80"),
        ] {
            let card = AgentCard::default().served_at(base);
            let listed: Vec<_> = card
                .supported_interfaces
                .iter()
                .map(|i| format!("{} {} {}", i.protocol_binding, i.protocol_version, i.url))
                .collect();
            let base = base.trim_end_matches('/');
            let of = |version: &Version| {
                [
                    format!("JSONRPC {version} {base}"),
                    format!("HTTP+JSON {version} {base}"),
                    format!("GRPC {version} {target}"),
                ]
            };
            assert_eq!(listed, Version::ALL.iter().flat_map(of).collect::<Vec<_>>());
        }
    }
}
