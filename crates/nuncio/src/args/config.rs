//! The commands that serve by a configuration, and those that look at one.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::{Admin, Options};

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Init {
    /// The file to write; nuncio.schema.json goes beside it.
    #[arg(default_value = "nuncio.toml")]
    pub(crate) file: PathBuf,

    /// Write over what is there.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {
    /// The file; nuncio.toml when absent.
    pub(crate) file: Option<PathBuf>,

    /// Call nobody: do not look whether agents and issuers can be reached.
    #[arg(long)]
    pub(crate) offline: bool,

    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what is in force, as nuncio.toml would say it, without secrets.
    Show {
        /// Say where each value comes from: a flag, a variable, a line of a file, or the default.
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Print the JSON Schema of nuncio.toml.
    Schema,
    /// Have a hub read it again: what has changed is in force at once, tasks and connections go on. What is wrong
    /// changes nothing.
    Reload {
        #[command(flatten)]
        hub: Admin,
        /// Take it also if it was emptied, or has lost its identity or all agents.
        #[arg(long)]
        force: bool,
    },
}
