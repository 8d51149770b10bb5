//! The arguments of `nuncio key`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use super::{Admin, delivery::duration};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key and print its secret, this once.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// The name of the key; must be unique.
        name: String,
        /// The agents that it may call [default: all].
        #[arg(long, value_name = "AGENT,…", value_delimiter = ',')]
        allow: Vec<String>,
        /// The operations that it may call, such as SendMessage,GetTask [default: all].
        #[arg(long, value_name = "OPERATION,…", value_delimiter = ',')]
        operations: Vec<String>,
        /// Expire after this time, such as 12h or 90d [default: never].
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        /// The principal of callers with this key; keys of one principal share its tasks [default: the name].
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
        /// The tenant; tasks of one principal in different tenants are separate.
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Create it even if the hub keeps its data in memory and loses the key at its next restart.
        #[arg(long)]
        yes: bool,
        /// Write the secret to this file, which must not exist, instead of printing it.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// List the keys of a hub.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Show a key, without its secret.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
    },
    /// Give a key a new secret and print it, this once.
    Rotate {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
        /// Time for which the old secret stays valid, such as 0s, 2h or 7d [default: 1d].
        #[arg(long, value_name = "TIME", value_parser = duration)]
        overlap: Option<Duration>,
        /// Write the secret to this file, in place of the old one, instead of printing it.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Revoke a key at once and end its streams.
    Revoke {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
    },
    /// Revoke a key and delete its record.
    Delete {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
    },
}
