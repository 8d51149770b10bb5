//! One agent for each model that a provider lists.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use tokio::time::timeout;

use super::{providers, status::LIST_TIMEOUT};
use crate::config::{self, AgentName, Model, ModelTarget};

/// The longest name of an agent.
const MAX_NAME_CHARS: usize = 63;

/// The agents: each with the settings of the template, and the name and the title of its model.
///
/// # Errors
/// The provider does not list its models.
pub(super) async fn agents(settings: &Model, template: &config::Agent) -> Result<Vec<config::Agent>> {
    let providers = providers(settings)?;
    let provider = providers.first().context("there is no provider")?;
    let listed = timeout(LIST_TIMEOUT, provider.models())
        .await
        .with_context(|| format!("no list of models within {} s", LIST_TIMEOUT.as_secs()))?;
    let models = listed.map_err(|fault| anyhow!("{}: {}", fault.told(), fault.cause()))?;
    let mut agents = BTreeMap::new();
    for model in models {
        let Some(name) = name_of(&template.name, &model) else {
            tracing::warn!(template = %template.name, model, "a model has no name that an agent can have; it is left out");
            continue;
        };
        let target = ModelTarget { name: model.clone(), ..settings.target.clone() };
        let kind = Model { target, ..settings.clone() }.into();
        let agent = config::Agent { name: name.clone(), kind, title: Some(model), ..template.clone() };
        // Of two that differ in other characters only, the first one.
        agents.entry(name).or_insert(agent);
    }
    Ok(agents.into_values().collect())
}

/// The template and the model, in the characters of agents' names.
fn name_of(template: &str, model: &str) -> Option<AgentName> {
    let model = model.strip_suffix(":latest").unwrap_or(model);
    let plain = model.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return None;
    }
    let name: String = format!("{template}-{}", words.join("-")).chars().take(MAX_NAME_CHARS).collect();
    name.trim_end_matches('-').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_become_names_of_agents() {
        for (model, expected) in [
            ("llama3:latest", Some("local-llama3")),
            ("qwen2.5:7b", Some("local-qwen2-5-7b")),
            ("org/Model_X", Some("local-org-model-x")),
            ("//", None),
        ] {
            assert_eq!(name_of("local", model).as_deref(), expected, "{model}");
        }
        assert_eq!(name_of("local", &"x".repeat(100)).unwrap().len(), MAX_NAME_CHARS);
    }
}
