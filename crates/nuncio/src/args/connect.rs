//! The arguments of `nuncio connect`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, builder::NonEmptyStringValueParser};
use nuncio_hub::config::AgentName;
use url::Url;

/// The address of a hub on this machine.
const DEFAULT_HUB: &str = "http://127.0.0.1:2602";

/// The help on credentials, which have no option because others can see the command line.
const KEY_HELP: &str = "\
The key of the mailbox is read from the environment variable NUNCIO_KEY, or from --key-file. A bearer token for the
agent on this machine is read from NUNCIO_AGENT_BEARER.

All connections go out. The first Ctrl-C finishes what runs and hands back the rest; the second stops at once.";

#[derive(Debug, ClapArgs)]
#[command(after_help = KEY_HELP)]
pub(crate) struct Connect {
    /// The name of the mailbox.
    pub(crate) name: AgentName,

    /// The address of the hub.
    #[arg(long, value_name = "URL", default_value = DEFAULT_HUB)]
    pub(crate) hub: Url,

    /// The agent on this machine: http://… or https://… for an agent that speaks A2A; cmd:PROGRAM or cmd+json:PROGRAM for a
    /// program; openai:URL#MODEL or anthropic:URL#MODEL for a model.
    #[arg(long, value_name = "AGENT", conflicts_with = "config")]
    pub(crate) to: Option<String>,

    /// A nuncio.toml whose table [agents.NAME] has the settings of the agent.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Maximum number of tasks at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,

    /// The name of this worker, which operators of the hub see [default: the name of this machine].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) worker: Option<String>,

    /// End the leases that an earlier worker of this name still holds, instead of waiting until they expire.
    #[arg(long)]
    pub(crate) take_over: bool,

    /// The file with the key of the mailbox.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Also trust the certificate authorities in this PEM file for the hub; may be repeated.
    #[arg(long = "ca", value_name = "FILE")]
    pub(crate) authorities: Vec<PathBuf>,
}
