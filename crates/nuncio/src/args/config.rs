//! The arguments of `nuncio serve`, `init`, `check` and `config`.

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
    /// The file to write; nuncio.schema.json is written next to it.
    #[arg(default_value = "nuncio.toml")]
    pub(crate) file: PathBuf,

    /// Overwrite the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {
    /// The file to check [default: nuncio.toml].
    pub(crate) file: Option<PathBuf>,

    /// Do not check whether agents and token issuers can be reached.
    #[arg(long)]
    pub(crate) offline: bool,

    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective configuration in the format of nuncio.toml, without secrets.
    Show {
        /// Show the origin of each value: a flag, an environment variable, a line of a file, or the default.
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Print the JSON Schema of nuncio.toml.
    Schema,
    /// Write configuration files in the usual layout; keys, values and comments stay as they are.
    Fmt {
        /// The files; - formats stdin to stdout.
        #[arg(value_name = "FILE", default_value = "nuncio.toml")]
        files: Vec<PathBuf>,
        /// Change nothing; exit code 1 if a file is in another layout.
        #[arg(long)]
        check: bool,
    },
    /// Have a hub reload its configuration. Changes apply at once; tasks and connections continue. A configuration
    /// with mistakes changes nothing.
    Reload {
        #[command(flatten)]
        hub: Admin,
        /// Apply it even if it is empty, or has lost its [identity] or all agents.
        #[arg(long)]
        force: bool,
    },
}
