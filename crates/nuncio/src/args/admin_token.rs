//! The arguments of `nuncio admin-token`.

use clap::{Subcommand, ValueEnum};
use nuncio_hub::admin::api;

use super::Admin;

#[derive(Debug, Subcommand)]
pub(crate) enum AdminTokenCommand {
    /// Create a token and print it, this once.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// The name of the token, which rows of the trail have; must be unique.
        name: String,
        /// The right of the token.
        #[arg(long, value_enum)]
        role: Role,
    },
    /// List the tokens, without their text.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Revoke a token.
    Revoke {
        #[command(flatten)]
        hub: Admin,
        /// The name or id of the token.
        token: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Role {
    /// Read everything but the content of tasks.
    Viewer,
    /// Read and change everything.
    Operator,
}

impl From<Role> for api::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
        }
    }
}
