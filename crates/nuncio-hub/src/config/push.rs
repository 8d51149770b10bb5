//! Webhooks, as the operator wants them.

use std::time::Duration;

pub use nuncio_server::push::Dialect;

use super::{Network, Secret};

/// Where notifications may go, how long they are tried, and what they look like.
#[derive(Clone, PartialEq, Debug)]
pub struct Push {
    /// Also to this machine and to private networks.
    pub allow_private: bool,
    /// Also to these networks, whatever they are.
    pub allow: Vec<Network>,
    /// Never to these networks, whatever else is said: public addresses that are inside of the house.
    pub deny: Vec<Network>,
    /// Only by https.
    pub https_only: bool,
    /// A delivery that is this old when it fails is given up.
    pub give_up: Duration,
    /// Artifacts are sent piece by piece.
    pub chunks: bool,
    /// What receivers of the old version get.
    pub dialect: Dialect,
    /// Notifications are signed with these as well, for receivers that know them: `whsec_` and base64.
    pub secrets: Vec<Secret>,
}

impl Default for Push {
    fn default() -> Self {
        Self {
            allow_private: false,
            allow: Vec::new(),
            deny: Vec::new(),
            https_only: false,
            give_up: Duration::from_secs(24 * 60 * 60),
            chunks: false,
            dialect: Dialect::default(),
            secrets: Vec::new(),
        }
    }
}
