//! The arguments of `nuncio erase`.

use clap::{Args as ClapArgs, builder::NonEmptyStringValueParser};

use super::Admin;

#[derive(Debug, ClapArgs)]
pub(crate) struct Erase {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// The principal to erase, as `nuncio task list` and `nuncio key list` show it.
    #[arg(required_unless_present = "anonymous", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) principal: Option<String>,
    /// Erase the data of all callers without credentials.
    #[arg(long, conflicts_with = "principal")]
    pub(crate) anonymous: bool,
    /// Only data in this tenant.
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Only data at this agent.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Confirm: this cannot be undone.
    #[arg(long)]
    pub(crate) yes: bool,
}
