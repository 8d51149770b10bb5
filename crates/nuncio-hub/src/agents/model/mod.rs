//! Models as agents: each message is a prompt with the conversation so far, and the answer is streamed as text.
//!
//! ```text
//! message ──► prompt ──► dialect::encode ──► provider ──► dialect::decode ──► answer ──► artifact, status
//!               ▲                              │ retry, fallback                │
//!          earlier tasks                       ▼                              budget
//! ```
//! Reading order: this file prepares an agent; `executor` answers one message, with `prompt` (messages as turns),
//! `provider` (the connection), `dialect` (requests and answers of providers), `retry` (when to ask again), `progress` and
//! `artifacts` (the answer as it grows) and `budget` (tokens per day); `tool_loop` calls the `tools` of the model in
//! `rounds`, which outlive the hub; `status` is the health, `preflight` checks a
//! configuration, and `fuzz` reads answers of any bytes.
//!
//! **Invariant:** before its first token an answer may be asked for again, here or at another model; after it never,
//! except by a restart of the hub, which replaces the artifact. Nothing of the caller but its message reaches the
//! provider: no header, no credential, no id. A tool that may have run is not called again, unless it says that this does
//! no harm.

mod artifacts;
mod budget;
mod dialect;
mod executor;
mod fuzz;
mod listed;
mod preflight;
mod progress;
mod prompt;
mod provider;
mod retry;
mod rounds;
mod status;
#[cfg(test)]
mod tests;
mod tool_loop;
mod tools;

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use nuncio_protocol::{AgentCard, AgentExtension, AgentSkill};
use nuncio_server::{CallerPool, EarlierLimit, Runtime};
use tokio_util::sync::CancellationToken;

#[doc(hidden)]
pub use self::fuzz::fuzz_model_answer;
pub(crate) use self::rounds::forget_orphans as forget_orphaned_rounds;
use self::{
    budget::Budget, executor::ModelExecutor, provider::Provider, status::ModelStatus, tools::Toolbox,
};
use super::{
    AgentFactory, Kind, Label, Prepared, expiry,
    kind::{RuntimeSpec, TargetProblem},
    probe::Probe,
};
use crate::config::{self, Auth, Model, ModelTarget};

/// The artifact with the answer, and the one with the reasoning.
const ANSWER: &str = "answer";
const REASONING: &str = "reasoning";

/// The extension by which callers get the tokens of an answer and set the JSON Schema of it.
pub(crate) const MODEL_EXTENSION: &str = "https://nuncio.dev/a2a/model/v1";

/// Concurrent answers of one agent, if there is no setting.
const MAX_CONCURRENT: usize = 1000;

#[async_trait]
impl Kind for Model {
    fn name() -> &'static str {
        "model"
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        let name: Arc<str> = (&*desired.name).into();
        let providers = Arc::new(providers(self)?);
        let probe = Arc::new(Probe::default());
        let share = factory.callers.share().clone();
        let executor = ModelExecutor {
            settings: self.clone(),
            instructions: instructions(self)?,
            providers: Arc::clone(&providers),
            probe: Arc::clone(&probe),
            permits: CallerPool::new(self.max_concurrent.unwrap_or(MAX_CONCURRENT), share),
            toolbox: Toolbox::open(&name, self, Some(factory))?,
            store: Arc::clone(&factory.store),
            budget: Budget::new(&name, desired.limits.tokens_per_day, factory),
            telemetry: factory.telemetry.clone(),
            earlier: EarlierLimit { turns: self.history_turns, bytes: self.history_bytes },
            name: Arc::clone(&name),
        };
        let mut card = super::card(&factory.urls, &name);
        describe(&mut card, self);
        let label = Label::of(desired);
        let builder = Runtime::builder(card, executor).any_media_type().card(|card| label.put_on(card));
        let stop = CancellationToken::new();
        let status = Arc::new(ModelStatus::new(providers, probe, &name, stop.clone().drop_guard()));
        let (watching, every) = (status.watch(), self.check_every);
        let store = Arc::clone(&factory.store);
        Ok(Prepared {
            upstream: Some(status),
            on_activate: Some(Box::new(move |_| {
                tokio::spawn(async move {
                    // Of tasks that nobody has answered for half a year.
                    expiry::forget(&*store, std::iter::once(rounds::KIND)).await;
                    if let Err(error) = rounds::forget_orphans(&*store).await {
                        tracing::warn!(%error, "the calls of tools of tasks that are gone cannot be removed");
                    }
                });
                tokio::spawn(stop.run_until_cancelled_owned(watching.run(every)));
            })),
            ..Prepared::durable(RuntimeSpec::new(builder))
        })
    }

    async fn expand(&self, desired: &config::Agent) -> Result<Vec<config::Agent>> {
        listed::agents(self, desired).await
    }

    fn runtime_key(&self) -> String {
        "model".to_owned()
    }

    fn check_files(&self) -> Vec<TargetProblem> {
        preflight::check_files(self)
    }

    /// A server of tools may have to be fetched before it starts.
    fn start_time(&self) -> Duration {
        if self.tool_servers.is_empty() { Duration::ZERO } else { tools::CONNECT_TIMEOUT }
    }

    async fn check_reachable(&self, name: &str) -> Result<()> {
        preflight::check_reachable(name, self).await
    }
}

/// The model and its fallbacks, in the order in which they are asked. The credentials go to the origin of the model
/// only; a fallback at another provider has the key of the environment.
fn providers(settings: &Model) -> Result<Vec<Provider>> {
    let home = settings.target.base().origin();
    let auth_for = |target: &ModelTarget| match target.base().origin() == home {
        true => settings.auth.clone(),
        false => Auth { authorities: settings.auth.authorities.clone(), ..Auth::default() },
    };
    let targets = std::iter::once(&settings.target).chain(&settings.fallback);
    targets.map(|target| Provider::open(target, &auth_for(target))).collect()
}

/// The instructions, from the settings or from their file.
fn instructions(settings: &Model) -> Result<Option<String>> {
    let Some(file) = &settings.instructions_file else { return Ok(settings.instructions.clone()) };
    fs::read_to_string(file).map(Some).context("instructions_file: the file cannot be read as text")
}

/// Puts the facts that the configuration contains on the card. Only the operator knows the purpose of the agent.
fn describe(card: &mut AgentCard, settings: &Model) {
    let model = &settings.target.name;
    card.description = format!("The model {model}, with the memory of the conversation.");
    card.default_input_modes = prompt::input_modes(settings.target.dialect);
    card.default_output_modes = vec!["text/plain".to_owned(), "application/json".to_owned()];
    card.skills = vec![AgentSkill {
        id: "chat".to_owned(),
        name: "Chat".to_owned(),
        description: format!("Answers messages by the model {model}."),
        tags: vec!["model".to_owned(), settings.target.dialect.word().to_owned()],
        examples: vec!["Say hello.".to_owned()],
        ..AgentSkill::default()
    }];
    card.capabilities.extensions.push(AgentExtension {
        uri: MODEL_EXTENSION.to_owned(),
        description: "Tokens of an answer in the metadata of its task; the JSON Schema of the answer in the metadata of the \
                      message, as {\"schema\": …}."
            .to_owned(),
        ..AgentExtension::default()
    });
}
