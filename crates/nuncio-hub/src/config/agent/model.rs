//! Models behind an API of their provider: `model`.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use nuncio_server::EarlierLimit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use url::Url;

use super::{
    Agent, AgentKind,
    auth::{self, Auth},
    kinds::{Example, KindKeys, TableKeys},
};
use crate::config::{
    NamedTools,
    form::{FilePath, Form, Millis, Opt, Seconds, SecondsOrNever, form, http_url},
};

/// The longest silence of a provider in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(120);

/// The time within which attempts are repeated, pauses included.
const RETRY_WINDOW: Duration = Duration::from_secs(60);

/// The rounds of tools of one message.
const MAX_ROUNDS: u32 = 16;

/// The time of the rounds of tools of one message.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A model: its provider, its instructions, and its limits.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default = "Model::nothing", deny_unknown_fields)]
pub struct Model {
    /// A model: openai:URL#NAME for any server that speaks OpenAI chat completions, or anthropic:URL#NAME for
    /// Anthropic Messages. Without URL: the provider itself.
    #[serde(rename = "model", with = "ModelText")]
    #[schemars(example = "openai:http://localhost:11434/v1#llama3")]
    pub target: ModelTarget,
    /// In place of a model, its provider without a #NAME: each model that it lists is an agent, named after this one
    /// and the model. The list is read again every check_seconds.
    #[serde(rename = "models", with = "Opt::<ProviderText>")]
    #[schemars(example = "openai:http://localhost:11434/v1")]
    pub provider: Option<ModelTarget>,
    /// Instructions for the model, before every conversation.
    #[schemars(example = "You write short texts.")]
    pub instructions: Option<String>,
    /// A file with the instructions.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = "writer.md")]
    pub instructions_file: Option<PathBuf>,
    /// Members of the request to the provider, handed on as they are.
    #[schemars(example = json!({ "temperature": 0.2 }))]
    pub parameters: Map<String, Json>,
    /// Maximum number of tokens of an answer; default: as the provider has it.
    #[schemars(example = 2000, range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Maximum number of earlier turns of the conversation in the prompt; 0: none.
    #[schemars(with = "u32", range(max = 1000))]
    pub history_turns: usize,
    /// Maximum size of these turns, in bytes.
    #[schemars(with = "u32", range(min = 1, max = 8388608))]
    pub history_bytes: usize,
    /// hide: the reasoning of the model is dropped. artifact: it is an artifact of its own.
    pub reasoning: Reasoning,
    /// Models to ask in place of it, in this order, if it cannot be reached or is overloaded.
    #[serde(with = "crate::config::form::ValueList::<ModelText>")]
    #[schemars(example = ["anthropic:#claude-sonnet-4-5"])]
    pub fallback: Vec<ModelTarget>,
    /// Ask again if the hub stopped in the middle of an answer; false: such a task fails.
    pub rerun: bool,
    /// Seconds between two looks at the provider's list of models, which show whether it can be reached.
    #[serde(rename = "check_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub check_every: Duration,
    /// Minimum time between two pieces of streamed text, in milliseconds; default: 100.
    #[serde(rename = "pace_ms", with = "Millis")]
    #[schemars(example = 100, range(min = 20, max = 1000))]
    pub pace: Duration,
    /// Maximum number at a time: calls of a remote agent, or runs of a program.
    #[schemars(with = "Option<u32>", example = 64, range(min = 1))]
    pub max_concurrent: Option<usize>,
    /// Servers of tools that the model may call: names of tables [tools.NAME].
    #[schemars(example = ["files"])]
    pub tools: Vec<String>,
    /// Other agents of the hub that the model may call as tools.
    #[schemars(example = ["search"])]
    pub agents: Vec<String>,
    /// Tools that run only if the caller allows the call; a star stands for any characters. Agents of the hub are
    /// agents.NAME.
    #[schemars(example = ["files.write_*"])]
    pub approve: Vec<String>,
    /// Maximum number of rounds of tools for one message. After that the model answers without tools.
    #[schemars(range(min = 1, max = 1000))]
    pub max_rounds: u32,
    /// Maximum number of tokens of one message, over all its rounds of tools. After that the model answers without tools.
    #[schemars(example = 100000, range(min = 1))]
    pub max_total_tokens: Option<u64>,
    /// Maximum time of the rounds of tools in seconds; 0: no limit. After that the model answers without tools.
    #[serde(rename = "time_limit_seconds", with = "SecondsOrNever")]
    pub time_limit: Option<Duration>,
    /// The hub's credentials for the provider.
    pub auth: Auth,
    /// The servers that `tools` names.
    #[serde(skip)]
    pub tool_servers: Vec<NamedTools>,
    /// The longest silence of the provider in the middle of an answer.
    #[serde(skip)]
    pub silence: Duration,
    /// The time within which attempts are repeated.
    #[serde(skip)]
    pub retry_window: Duration,
}

/// A model of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelTarget {
    /// The dialect of the provider.
    pub dialect: ModelDialect,
    /// The address of the API, to which paths are appended; `None`: the provider that the dialect is named after.
    pub url: Option<Url>,
    /// The name of the model; empty for all models of the provider.
    pub name: String,
}

/// The dialect of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelDialect {
    /// OpenAI chat completions.
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
}

impl ModelDialect {
    /// The word before the address.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// The address of the provider that it is named after.
    fn provider(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
        }
    }

    /// The environment variable with the key for that provider.
    #[must_use]
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::OpenAi, Self::Anthropic].into_iter().find(|dialect| dialect.word() == word)
    }
}

impl ModelTarget {
    /// The address of the API.
    #[must_use]
    pub fn base(&self) -> Url {
        let provider = || Url::parse(self.dialect.provider()).unwrap_or_else(|_| unreachable!("a constant"));
        self.url.clone().unwrap_or_else(provider)
    }
}

impl ModelTarget {
    /// A provider without a model: `openai:URL`.
    fn provider_of(text: &str) -> Result<Self, String> {
        if text.contains('#') {
            return Err("the name of a model belongs into model; expected a provider such as openai:http://localhost:11434/v1"
                .to_owned());
        }
        let target: Self = format!("{text}#any").parse()?;
        Ok(Self { name: String::new(), ..target })
    }
}

impl FromStr for ModelTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            "expected openai:URL#NAME or anthropic:URL#NAME, such as openai:http://localhost:11434/v1#llama3";
        let (word, rest) = text.split_once(':').ok_or(expected)?;
        let dialect = ModelDialect::of(word).ok_or(expected)?;
        let (url, name) =
            rest.split_once('#').ok_or_else(|| format!("the name of the model is missing; {expected}"))?;
        if name.trim().is_empty() {
            return Err(format!("the name of the model is missing; {expected}"));
        }
        let url = if url.is_empty() { None } else { Some(http_url(url)?) };
        if url.as_ref().is_some_and(|url| url.query().is_some()) {
            return Err("the address has a query; a key belongs into auth".to_owned());
        }
        Ok(Self { dialect, url, name: name.to_owned() })
    }
}

impl fmt::Display for ModelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_ref().map(Url::as_str).unwrap_or_default();
        match self.name.as_str() {
            "" => write!(f, "{}:{url}", self.dialect.word()),
            name => write!(f, "{}:{url}#{name}", self.dialect.word()),
        }
    }
}

form! {
    /// A model of a provider, as text.
    ModelText: String => ModelTarget, |text| text.parse(), ToString::to_string
}

form! {
    /// A provider of models, as text.
    ProviderText: String => ModelTarget, |text| ModelTarget::provider_of(&text), ToString::to_string
}

/// The use of a model's reasoning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reasoning {
    // Dropped.
    #[default]
    Hide,
    // An artifact of its own.
    Artifact,
}

impl Model {
    /// Defaults of every key for the schema and for serde. The model itself is always set: it determines the kind.
    fn nothing() -> Self {
        Self::new(ModelTarget { dialect: ModelDialect::OpenAi, url: None, name: String::new() })
    }

    /// This model, with the defaults of every other key.
    #[must_use]
    pub fn new(target: ModelTarget) -> Self {
        Self {
            target,
            provider: None,
            instructions: None,
            instructions_file: None,
            parameters: Map::new(),
            max_tokens: None,
            history_turns: EarlierLimit::default().turns,
            history_bytes: EarlierLimit::default().bytes,
            reasoning: Reasoning::default(),
            fallback: Vec::new(),
            rerun: true,
            check_every: Duration::from_secs(300),
            pace: nuncio_server::DEFAULT_PACE,
            max_concurrent: None,
            tools: Vec::new(),
            agents: Vec::new(),
            approve: Vec::new(),
            max_rounds: MAX_ROUNDS,
            max_total_tokens: None,
            time_limit: Some(TIME_LIMIT),
            auth: Auth::default(),
            tool_servers: Vec::new(),
            silence: SILENCE,
            retry_window: RETRY_WINDOW,
        }
    }
}

impl KindKeys for Model {
    const KEY: &'static str = "model";
    const EXAMPLE: &'static str = "writer";
    const OTHER_KEY: Option<&'static str> = Some("models");
    const ALTERNATIVES: &'static [Example] =
        &[("critic", &["model", "instructions"]), ("local", &["models"])];

    fn check(table: &mut TableKeys<'_>) {
        table.not_both(&[], "instructions", "instructions_file");
        auth::check(table);
    }

    fn into_kind(mut self, _: &Agent) -> Result<AgentKind, String> {
        if let Some(provider) = self.provider.take() {
            self.target = provider;
        }
        Ok(AgentKind::Model(Box::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_dialect_address_and_name() {
        for (text, base, name) in [
            ("openai:http://localhost:11434/v1#llama3", "http://localhost:11434/v1", "llama3"),
            ("openai:#gpt-5", "https://api.openai.com/v1", "gpt-5"),
            ("anthropic:#claude-x", "https://api.anthropic.com/v1", "claude-x"),
            ("openai:http://h/v1#a/b:c#d", "http://h/v1", "a/b:c#d"),
        ] {
            let target: ModelTarget = text.parse().unwrap();
            assert_eq!((target.base().as_str(), target.name.as_str()), (base, name), "{text}");
            assert_eq!(target.to_string(), text);
        }
        for (text, base) in [
            ("openai:http://localhost:11434/v1", "http://localhost:11434/v1"),
            ("anthropic:", "https://api.anthropic.com/v1"),
        ] {
            let provider = ModelTarget::provider_of(text).unwrap();
            assert_eq!((provider.base().as_str(), provider.name.as_str()), (base, ""), "{text}");
            assert_eq!(provider.to_string(), text);
        }
        assert!(ModelTarget::provider_of("openai:#gpt-5").unwrap_err().contains("belongs into model"));
        for (text, expected) in [
            ("openai:http://localhost/v1", "the name of the model is missing"),
            ("openai:#", "the name of the model is missing"),
            ("mistral:#x", "expected openai:URL#NAME"),
            ("llama3", "expected openai:URL#NAME"),
            ("openai:localhost#x", "http"),
            ("openai:http://h/v1?key=s3cret#x", "belongs into auth"),
        ] {
            let error = text.parse::<ModelTarget>().unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
