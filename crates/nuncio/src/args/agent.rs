//! The commands of agents.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;

use super::Admin;

/// What is not an option, and why.
const ADD_HELP: &str = "\
A bearer token for the agent is taken from the environment variable NUNCIO_AGENT_BEARER. Whatever else nuncio.toml
may say about an agent can stand in the JSON document of --settings, credentials too: the hub keeps them sealed and
shows them to nobody.";

/// How values are read.
const SET_HELP: &str = "\
A value is read as JSON where it is JSON, else as a text: timeout_seconds=7 tags='[\"finance\"]' title=Billing
limits.tasks=null. Others on this machine can see the command line: say credentials by --settings.";

/// A setting, and what it is to be.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    /// From the outside in.
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
    /// List the agents that a hub serves, and how they are.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Show an agent: who named it, how it is, what it speaks.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The agent.
        name: String,
    },
    /// Have a hub serve an agent that speaks A2A already, also after a restart.
    #[command(after_help = ADD_HELP)]
    Add {
        #[command(flatten)]
        hub: Admin,
        /// How callers call it: a to z, 0 to 9 and -.
        name: String,
        /// Its address, or that of its card.
        url: String,
        /// Whose the tasks are; durable when absent.
        #[arg(long, value_enum)]
        mode: Option<Mode>,
        /// What its card calls it, instead of its own words.
        #[arg(long)]
        title: Option<String>,
        /// What its card says it does, instead of its own words.
        #[arg(long)]
        description: Option<String>,
        /// A word by which it is found; may be repeated.
        #[arg(long = "tag", value_name = "WORD")]
        tags: Vec<String>,
        /// Further settings: a JSON document in this file, or on stdin if it is -.
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
    },
    /// Change what was said of an agent when it was added.
    #[command(after_help = SET_HELP)]
    Set {
        #[command(flatten)]
        hub: Admin,
        /// The agent.
        name: String,
        /// What is to be otherwise, by the names of nuncio.toml; null takes a setting away.
        #[arg(value_name = "KEY=VALUE", value_parser = change)]
        changes: Vec<Change>,
        /// Further changes: a JSON document in this file, or on stdin if it is -.
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
    },
    /// Have a hub serve an agent no more that was added.
    Remove {
        #[command(flatten)]
        hub: Admin,
        /// The agent.
        name: String,
    },
    /// Have a hub look for an agent's card now.
    Refresh {
        #[command(flatten)]
        hub: Admin,
        /// The agent.
        name: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// The hub's: own ids, own logs, own webhooks.
    Durable,
    /// The agent's: calls are passed on.
    Proxy,
}

impl Mode {
    /// As the hub has it.
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
