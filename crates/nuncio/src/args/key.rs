//! The commands of API keys.

use std::time::Duration;

use clap::Subcommand;

use super::{Admin, delivery::duration};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key. It is printed this once.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// What people call it; no two keys have the same.
        name: String,
        /// It is for these agents only.
        #[arg(long, value_name = "AGENT,…", value_delimiter = ',')]
        allow: Vec<String>,
        /// It is for these operations only, such as SendMessage,GetTask.
        #[arg(long, value_name = "OPERATION,…", value_delimiter = ',')]
        operations: Vec<String>,
        /// It is worth nothing after so long: 12h, 90d.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        /// Whose tasks its holder has; its name when absent. Keys of one principal share them.
        #[arg(long, value_name = "NAME")]
        principal: Option<String>,
        /// Keep the tasks apart from those of the same principal in other tenants.
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Make it also in a hub that keeps its data in memory, where it is gone at the next restart.
        #[arg(long)]
        yes: bool,
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
    /// Give a key a new secret. It is printed this once.
    Rotate {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
        /// For how long the secret before is taken as well: 0s, 2h, 7d; a day when absent.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        overlap: Option<Duration>,
    },
    /// Take a key back at once; its streams end.
    Revoke {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
    },
    /// Revoke a key and forget it.
    Delete {
        #[command(flatten)]
        hub: Admin,
        /// The key's name or id.
        key: String,
    },
}
