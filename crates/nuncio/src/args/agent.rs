//! The arguments of `nuncio agent`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;

use super::Admin;

/// The help on settings that have no option of `agent add`.
const ADD_HELP: &str = "\
A bearer token for the agent is read from the environment variable NUNCIO_AGENT_BEARER. All other settings that
nuncio.toml has for an agent can be given in the JSON document of --settings, credentials too: the hub stores them
encrypted and never shows them.";

/// The help on values of `agent set`.
const SET_HELP: &str = "\
A value is read as JSON if it is valid JSON, else as text: timeout_seconds=7 tags='[\"finance\"]' title=Billing
limits.tasks=null. Others on this machine can see the command line: give credentials by --settings.";

/// A setting and its new value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    /// The keys from the outermost to the innermost.
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
}

fn change(text: &str) -> Result<Change, String> {
    let expected = || "expected KEY=VALUE, such as title=Billing or limits.tasks=10".to_owned();
    let (key, value) = text.split_once('=').ok_or_else(expected)?;
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err(expected());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok(Change { path, value })
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of a hub and their health.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Show an agent: its origin, health and interfaces.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The name of the agent.
        name: String,
    },
    /// Add a remote agent that speaks A2A, or a model. The hub stores it and serves it again after a restart.
    #[command(after_help = ADD_HELP)]
    Add {
        #[command(flatten)]
        hub: Admin,
        /// The name of the agent: a to z, 0 to 9 and -.
        name: String,
        /// The URL of the agent, or of its card.
        #[arg(required_unless_present = "model")]
        url: Option<String>,
        /// A model in place of the URL, such as openai:http://localhost:11434/v1#llama3.
        #[arg(long, conflicts_with_all = ["url", "mode"])]
        model: Option<String>,
        /// The owner of the tasks [default: durable].
        #[arg(long, value_enum)]
        mode: Option<Mode>,
        /// The name on its card [default: the agent's own].
        #[arg(long)]
        title: Option<String>,
        /// The description on its card [default: the agent's own].
        #[arg(long)]
        description: Option<String>,
        /// A tag by which it is found; may be repeated.
        #[arg(long = "tag", value_name = "WORD")]
        tags: Vec<String>,
        /// Further settings: a file with a JSON object, or - for stdin.
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
    },
    /// Change the settings of an agent that was added.
    #[command(after_help = SET_HELP)]
    Set {
        #[command(flatten)]
        hub: Admin,
        /// The name of the agent.
        name: String,
        /// Settings to change, by the keys of nuncio.toml; null removes a setting.
        #[arg(value_name = "KEY=VALUE", value_parser = change)]
        changes: Vec<Change>,
        /// Further changes: a file with a JSON object, or - for stdin.
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
    },
    /// Remove an agent that was added. Its tasks are kept.
    Remove {
        #[command(flatten)]
        hub: Admin,
        /// The name of the agent.
        name: String,
    },
    /// Have the hub fetch the card of an agent now.
    Refresh {
        #[command(flatten)]
        hub: Admin,
        /// The name of the agent.
        name: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// The hub owns them, with its own ids, log and webhooks.
    Durable,
    /// The agent owns them; the hub forwards calls.
    Proxy,
}

impl Mode {
    /// The value in nuncio.toml.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Proxy => "proxy",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_json_where_they_are_json() {
        for (text, expected) in [
            ("title=Billing", Some((vec!["title"], json!("Billing")))),
            ("title=a=b", Some((vec!["title"], json!("a=b")))),
            ("title=\"7\"", Some((vec!["title"], json!("7")))),
            ("title=", Some((vec!["title"], json!("")))),
            ("timeout_seconds=7", Some((vec!["timeout_seconds"], json!(7)))),
            ("limits.tasks=null", Some((vec!["limits", "tasks"], json!(null)))),
            ("tags=[\"a\"]", Some((vec!["tags"], json!(["a"])))),
            ("title", None),
            ("=x", None),
            ("limits.=1", None),
        ] {
            let read = change(text).ok();
            let read = read
                .as_ref()
                .map(|read| (read.path.iter().map(String::as_str).collect(), read.value.clone()));
            assert_eq!(read, expected, "{text}");
        }
    }
}
