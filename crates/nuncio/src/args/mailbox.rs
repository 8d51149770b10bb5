//! The arguments of `nuncio mailbox`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;
use url::Url;

use super::{Admin, delivery::duration};

#[derive(Debug, Subcommand)]
pub(crate) enum MailboxCommand {
    /// Create a mailbox and print its key, this once. A mailbox of the configuration gets a key.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox: a to z, 0 to 9 and -.
        name: String,
        /// The webhook of the agent: the hub posts each message to this address.
        #[arg(long, value_name = "URL")]
        deliver_to: Option<Url>,
        /// A setting of the mailbox, such as wait_hours=48; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
        /// Write the key to this file, which must not exist, instead of printing it.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// List the mailboxes of a hub.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Show a mailbox: its messages, leases, workers and poison tasks.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
    },
    /// Give a mailbox a new key and print it, this once.
    Rotate {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
        /// Time for which the old key stays valid, such as 0s, 2h or 7d [default: 1d].
        #[arg(long, value_name = "TIME", value_parser = duration)]
        overlap: Option<Duration>,
        /// Write the key to this file, in place of the old one, instead of printing it.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Remove a mailbox and its key. Its tasks are kept.
    Remove {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
    },
    /// Offer tasks anew that failed because they were offered too often, each as a new task of its caller.
    Retry {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
        /// Only this task [default: all poison tasks].
        #[arg(long, value_name = "ID")]
        task: Option<String>,
    },
    /// Post again to a webhook that was gone (410).
    Enable {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
    },
    /// End leases of workers as if they had expired.
    TakeOver {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox.
        name: String,
        /// Only the leases of this worker [default: all].
        #[arg(long, value_name = "NAME")]
        worker: Option<String>,
        /// Only the lease of this task [default: all].
        #[arg(long, value_name = "ID")]
        task: Option<String>,
    },
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as wait_hours=48".to_owned()),
    }
}
