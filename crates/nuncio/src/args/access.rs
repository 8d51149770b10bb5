//! The arguments of `nuncio access`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use nuncio_hub::admin::api::AccessState;
use url::Url;

use super::Admin;

/// The help on the two who may decide.
pub(crate) const WHO_DECIDES: &str = "\
Operators decide by the admin API. With --hub an agent decides on its own callers: it needs the key of its mailbox, in the
environment variable NUNCIO_KEY or in --key-file.";

/// The hub at which an agent decides on its own callers.
#[derive(Debug, ClapArgs)]
pub(crate) struct OwnMailbox {
    /// The address of the hub at which an agent decides on its own callers, with the key of its mailbox.
    #[arg(id = "own_hub", long = "hub", value_name = "URL")]
    pub(crate) hub: Option<Url>,

    /// The file with the key of the mailbox.
    #[arg(long, value_name = "FILE", requires = "own_hub")]
    pub(crate) key_file: Option<PathBuf>,

    /// Also trust the certificate authorities in this PEM file for the hub; may be repeated.
    #[arg(long = "ca", value_name = "FILE", requires = "own_hub")]
    pub(crate) authorities: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessCommand {
    /// List the callers that wait for consent, are accepted, or are blocked.
    #[command(after_help = WHO_DECIDES)]
    List {
        #[command(flatten)]
        hub: Admin,
        #[command(flatten)]
        own: OwnMailbox,
        /// Only callers of this agent; needed with --hub.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Only callers in this state.
        #[arg(long, value_enum)]
        state: Option<Standing>,
        /// Maximum number of callers to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Accept a caller: its held messages are executed, and so are all that follow.
    Accept(AccessCaller),
    /// Decline a request: its tasks are rejected. The caller's next message is a new request.
    Decline(AccessCaller),
    /// Block a caller: its tasks and all further messages are rejected, as if they were declined.
    Block(AccessCaller),
    /// Revoke a grant or a block: the caller's next message is a new request.
    Revoke(AccessCaller),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = WHO_DECIDES)]
pub(crate) struct AccessCaller {
    #[command(flatten)]
    pub(crate) hub: Admin,
    #[command(flatten)]
    pub(crate) own: OwnMailbox,
    /// The agent that asks for consent.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) agent: String,
    /// The principal of the caller, as `nuncio access list` shows it.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) principal: String,
    /// The tenant of the caller's credential, if that has one.
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
}

/// The states that last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Standing {
    /// Its messages wait for a decision.
    Waiting,
    /// Its messages are executed.
    Accepted,
    /// Its messages are rejected.
    Blocked,
}

impl From<Standing> for AccessState {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Waiting => Self::Waiting,
            Standing::Accepted => Self::Accepted,
            Standing::Blocked => Self::Blocked,
        }
    }
}
