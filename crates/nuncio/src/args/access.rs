//! The arguments of `nuncio access`.

use clap::{Args as ClapArgs, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use nuncio_hub::admin::api::AccessState;

use super::Admin;

#[derive(Debug, Subcommand)]
pub(crate) enum AccessCommand {
    /// List the callers that wait for consent, are accepted, or are blocked.
    List {
        #[command(flatten)]
        hub: Admin,
        /// Only callers of this agent.
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
pub(crate) struct AccessCaller {
    #[command(flatten)]
    pub(crate) hub: Admin,
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
