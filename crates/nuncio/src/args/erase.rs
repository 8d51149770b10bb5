//! Whose tasks are to be forgotten.

use clap::{Args as ClapArgs, builder::NonEmptyStringValueParser};

use super::Admin;

#[derive(Debug, ClapArgs)]
pub(crate) struct Erase {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// Whose: the principal, as `nuncio task list` and `nuncio key list` show it.
    #[arg(required_unless_present = "anonymous", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) principal: Option<String>,
    /// Those of all callers without credentials.
    #[arg(long, conflicts_with = "principal")]
    pub(crate) anonymous: bool,
    /// Only in this tenant.
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Only at this agent.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Do it: there is no way back.
    #[arg(long)]
    pub(crate) yes: bool,
}
