//! The operator's settings for the card of an agent: title, description, tags, versions.

use nuncio_protocol::{
    AgentCard, AgentExtension, AgentProvider, AgentSkill, Metadata, SKILL_SCHEMAS_EXTENSION, Version,
};
use serde_json::{Map, Value, json};

use crate::config;

/// The operator's settings for a card; they replace the agent's own values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Label {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    /// Added to the tags of each skill.
    pub(crate) tags: Vec<String>,
    pub(crate) icon: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) provider: Option<AgentProvider>,
    /// In place of its own, if there are any.
    pub(crate) skills: Vec<AgentSkill>,
    /// Besides its own.
    pub(crate) extensions: Vec<AgentExtension>,
    /// The versions that callers can use.
    pub(crate) versions: Vec<Version>,
}

impl Default for Label {
    fn default() -> Self {
        Self {
            title: None,
            description: None,
            tags: Vec::new(),
            icon: None,
            documentation: None,
            provider: None,
            skills: Vec::new(),
            extensions: Vec::new(),
            versions: Version::ALL.to_vec(),
        }
    }
}

impl Label {
    pub(crate) fn of(desired: &config::Agent) -> Self {
        Self {
            title: desired.title.clone(),
            description: desired.description.clone(),
            tags: desired.tags.clone(),
            icon: desired.icon.as_ref().map(ToString::to_string),
            documentation: desired.documentation.as_ref().map(ToString::to_string),
            provider: desired.provider.as_ref().map(provider),
            skills: desired.skills.iter().map(skill).collect(),
            extensions: desired.extensions.iter().map(extension).chain(schemas(&desired.skills)).collect(),
            versions: desired.versions.clone(),
        }
    }

    /// Applies these settings to a card.
    pub(crate) fn put_on(&self, card: &mut AgentCard) {
        if let Some(title) = &self.title {
            card.name.clone_from(title);
        }
        if let Some(description) = &self.description {
            card.description.clone_from(description);
        }
        let given = |own: &mut Option<String>, given: &Option<String>| {
            if given.is_some() {
                own.clone_from(given);
            }
        };
        given(&mut card.icon_url, &self.icon);
        given(&mut card.documentation_url, &self.documentation);
        if self.provider.is_some() {
            card.provider.clone_from(&self.provider);
        }
        let extensions = &mut card.capabilities.extensions;
        if !self.skills.is_empty() {
            card.skills.clone_from(&self.skills);
            // They are those of the skills that were there.
            extensions.retain(|extension| extension.uri != SKILL_SCHEMAS_EXTENSION);
        }
        for given in &self.extensions {
            match extensions.iter_mut().find(|own| own.uri == given.uri) {
                Some(own) => own.clone_from(given),
                None => extensions.push(given.clone()),
            }
        }
        for skill in &mut card.skills {
            let new: Vec<_> = self.tags.iter().filter(|tag| !skill.tags.contains(tag)).cloned().collect();
            skill.tags.extend(new);
        }
        let is_spoken = |version: Version| self.versions.contains(&version);
        card.supported_interfaces.retain(|interface| interface.version().is_some_and(is_spoken));
    }
}

fn provider(provider: &config::Provider) -> AgentProvider {
    AgentProvider { url: provider.url.to_string(), organization: provider.organization.clone() }
}

fn skill(skill: &config::Skill) -> AgentSkill {
    AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        input_modes: skill.input_modes.clone(),
        output_modes: skill.output_modes.clone(),
        security_requirements: Vec::new(),
    }
}

fn extension(extension: &config::Extension) -> AgentExtension {
    AgentExtension {
        uri: extension.uri.clone(),
        description: extension.description.clone(),
        required: extension.required,
        params: extension.params.clone().into_iter().collect(),
    }
}

/// The schemas of skills, which have no place of their own on a card (contradiction C-56).
fn schemas(skills: &[config::Skill]) -> Option<AgentExtension> {
    let described = skills.iter().filter(|skill| !skill.input_schema.is_empty());
    let schemas: Map<String, Value> =
        described.map(|skill| (skill.id.clone(), json!({ "inputSchema": skill.input_schema }))).collect();
    (!schemas.is_empty()).then(|| AgentExtension {
        uri: SKILL_SCHEMAS_EXTENSION.to_owned(),
        description: "The JSON Schemas of the data that skills take.".to_owned(),
        required: false,
        params: Metadata::from_iter([("skills", Value::Object(schemas))]),
    })
}
