//! The arguments of `nuncio invite` and `nuncio register`.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Subcommand};
use url::Url;

use super::{Admin, Hidden, delivery::duration};

#[derive(Debug, Subcommand)]
pub(crate) enum InviteCommand {
    /// Invite a worker to a new mailbox and print the code, which is good once.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// The name of the mailbox: a to z, 0 to 9 and -.
        #[arg(long, value_name = "NAME")]
        mailbox: String,
        /// The time for which the code is good, such as 12h or 7d; 30d at most [default: 1d].
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
    },
    /// List the invitations that were not redeemed.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Revoke an invitation.
    Revoke {
        #[command(flatten)]
        hub: Admin,
        /// The name of its mailbox.
        mailbox: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Register {
    /// The address of the hub.
    pub(crate) hub: Url,

    /// The code of the invitation. Others can see the command line: prefer the environment variable.
    #[arg(long, value_name = "CODE", env = "NUNCIO_INVITE", hide_env_values = true)]
    pub(crate) invite: Hidden,

    /// The card that callers of the mailbox see: a file with an agent card in JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) card: Option<PathBuf>,

    /// The webhook of the agent: the hub posts each message to this address, and no worker is needed.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<Url>,

    /// Write the key to this file, which must not exist, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Also trust the certificate authorities in this PEM file; may be repeated.
    #[arg(long = "ca", value_name = "FILE")]
    pub(crate) authorities: Vec<PathBuf>,
}
