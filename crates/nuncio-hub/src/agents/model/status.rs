//! The health of a model: by its answers, and by the provider's list of models now and then.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{Binding, Version};
use serde_json::Value;
use tokio_util::sync::DropGuard;

use super::provider::{Fault, Provider};
use crate::{
    agents::probe::Probe,
    fleet::{Condition, Health, ServedAgent, UpstreamStatus},
};

/// The timeout of the list of models.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The status of a model. Its background work stops when this is dropped.
pub(super) struct ModelStatus {
    watch: Watch,
    _stop: DropGuard,
}

/// Looks at the provider's list of models.
#[derive(Clone)]
pub(super) struct Watch {
    providers: Arc<Vec<Provider>>,
    probe: Arc<Probe>,
    name: Arc<str>,
}

impl ModelStatus {
    pub(super) fn new(
        providers: Arc<Vec<Provider>>,
        probe: Arc<Probe>,
        name: &Arc<str>,
        stop: DropGuard,
    ) -> Self {
        Self { watch: Watch { providers, probe, name: Arc::clone(name) }, _stop: stop }
    }

    pub(super) fn watch(&self) -> Watch {
        self.watch.clone()
    }
}

impl Watch {
    /// Looks at once, and then at intervals.
    pub(super) async fn run(self, every: Duration) {
        loop {
            self.look().await;
            tokio::time::sleep(every).await;
        }
    }

    async fn look(&self) {
        let Some(provider) = self.providers.first() else { return };
        saw(&self.probe, &self.name, &listed(provider).await);
    }
}

/// Notes the observed condition, and logs a change of it.
pub(super) fn saw(probe: &Probe, agent: &str, condition: &Condition) {
    if probe.saw(condition.clone()) {
        match condition.reason() {
            None => tracing::info!(agent, condition = condition.word(), "the model of an agent can be used"),
            Some(reason) => {
                tracing::warn!(
                    agent,
                    condition = condition.word(),
                    reason,
                    "the model of an agent cannot be used"
                );
            }
        }
    }
}

/// The condition of the agent after this fault.
pub(super) fn condition_after(fault: &Fault) -> Condition {
    match fault {
        Fault::Unauthorized(why) => {
            Condition::Degraded(format!("the provider refuses the credentials: {why}"))
        }
        Fault::Refused(_) => Condition::Up,
        Fault::Busy { why, .. } | Fault::Undecodable(why) => Condition::Degraded(why.clone()),
        Fault::Unreachable(why) | Fault::Broken(why) => Condition::Down(why.clone()),
        Fault::Silent(limit) => Condition::Degraded(format!("silent for {} s", limit.as_secs())),
    }
}

/// The condition that the provider's list of models shows.
pub(super) async fn listed(provider: &Provider) -> Condition {
    match tokio::time::timeout(LIST_TIMEOUT, provider.models()).await {
        Err(_) => Condition::Down(format!("no list of models within {} s", LIST_TIMEOUT.as_secs())),
        // A server without a list: only answers can show its health.
        Ok(Err(Fault::Refused(_))) => Condition::Up,
        Ok(Err(fault)) => condition_after(&fault),
        Ok(Ok(models)) if has(&models, &provider.target.name) => Condition::Up,
        Ok(Ok(_)) => Condition::Degraded(format!("the provider lists no model {}", provider.target.name)),
    }
}

/// True if the list has the model. Ollama lists `llama3:latest` for `llama3`, and some servers prefix a path.
pub(super) fn has(models: &[String], name: &str) -> bool {
    models.iter().any(|model| {
        let rest = |of: &str| of.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest == ":latest");
        rest(model) || model.rsplit_once('/').is_some_and(|(_, last)| rest(last))
    })
}

#[async_trait]
impl UpstreamStatus for ModelStatus {
    fn health(&self) -> Arc<Health> {
        self.watch.probe.health()
    }

    fn url(&self) -> String {
        self.watch.providers.first().map(Provider::shown_url).unwrap_or_default()
    }

    fn card(&self) -> Option<Value> {
        None
    }

    fn speaks(&self) -> Option<(Version, Binding)> {
        None
    }

    async fn refresh(&self, _: &ServedAgent) -> Result<(), String> {
        self.watch.look().await;
        match &self.watch.probe.health().condition {
            Condition::Up => Ok(()),
            other => Err(other.reason().unwrap_or("it has not been contacted yet").to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_under_the_names_that_servers_give_it() {
        let listed = ["llama3:latest", "qwen:7b", "/models/tiny.gguf"].map(str::to_owned);
        for (name, expected) in [
            ("llama3", true),
            ("llama3:latest", true),
            ("qwen", false),
            ("qwen:7b", true),
            ("tiny.gguf", true),
            ("x", false),
        ] {
            assert_eq!(has(&listed, name), expected, "{name}");
        }
    }
}
