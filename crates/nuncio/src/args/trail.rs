//! The arguments of `nuncio trail`.

use clap::Args as ClapArgs;
use nuncio_hub::admin::api::What;
use serde::{Deserialize as _, de::IntoDeserializer as _};

use super::{Admin, Since};

#[derive(Debug, ClapArgs)]
pub(crate) struct Trail {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// Only rows of this kind, such as credentials-refused, agent-denied or key-created.
    #[arg(long, value_name = "KIND", value_parser = what)]
    pub(crate) what: Option<What>,
    /// Only rows of this principal.
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,
    /// Only rows of this agent.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only rows since this time: an age (90s, 30m, 2h, 7d) or a timestamp (2026-11-15T12:00:00Z).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Since>,
    /// Maximum number of rows to list.
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
}

fn what(text: &str) -> Result<What, serde::de::value::Error> {
    What::deserialize(text.into_deserializer())
}
