//! The operator's settings for the card of an agent: title, description, tags, versions.

use nuncio_protocol::{AgentCard, Version};

use crate::config;

/// The operator's settings for a card; they replace the agent's own values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Label {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    /// Added to the tags of each skill.
    pub(crate) tags: Vec<String>,
    /// The versions that callers can use.
    pub(crate) versions: Vec<Version>,
}

impl Default for Label {
    fn default() -> Self {
        Self { title: None, description: None, tags: Vec::new(), versions: Version::ALL.to_vec() }
    }
}

impl Label {
    pub(crate) fn of(desired: &config::Agent) -> Self {
        let config::Agent { title, description, tags, versions, .. } = desired;
        Self {
            title: title.clone(),
            description: description.clone(),
            tags: tags.clone(),
            versions: versions.clone(),
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
        for skill in &mut card.skills {
            let new: Vec<_> = self.tags.iter().filter(|tag| !skill.tags.contains(tag)).cloned().collect();
            skill.tags.extend(new);
        }
        let is_spoken = |version: Version| self.versions.contains(&version);
        card.supported_interfaces.retain(|interface| interface.version().is_some_and(is_spoken));
    }
}
