//! Who may call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{self, Algorithm};

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Identity {
    /// Who may call without credentials.
    pub(crate) anonymous: Anonymous,
    /// Who may read the cards of agents that are visible and have no cards of their own.
    pub(crate) cards: Cards,
    /// Issuers of tokens (JWT) that callers may show.
    pub(crate) jwt: Vec<Issuer>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Anonymous {
    /// Programs on this machine, as long as there is neither a key nor an issuer.
    #[default]
    Loopback,
    /// Anybody.
    Always,
    /// Nobody.
    Never,
}

impl From<Anonymous> for config::Anonymous {
    fn from(anonymous: Anonymous) -> Self {
        match anonymous {
            Anonymous::Loopback => Self::Loopback,
            Anonymous::Always => Self::Always,
            Anonymous::Never => Self::Never,
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cards {
    /// Anybody, without credentials.
    #[default]
    Public,
    /// Callers who may call the agent.
    Protected,
}

impl From<Cards> for config::Cards {
    fn from(cards: Cards) -> Self {
        match cards {
            Cards::Public => Self::Public,
            Cards::Protected => Self::Protected,
        }
    }
}

/// An issuer of tokens.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Issuer {
    /// Its address, exactly as its tokens say it (iss).
    #[schemars(example = "https://login.example.com")]
    pub(crate) issuer: String,
    /// Tokens must be for one of these (aud).
    #[schemars(example = ["nuncio"], length(min = 1))]
    pub(crate) audience: Vec<String>,
    /// Where its keys are; found by the issuer's /.well-known/openid-configuration when absent.
    #[schemars(example = "https://login.example.com/keys")]
    pub(crate) jwks_url: Option<String>,
    /// Signatures that count.
    #[serde(default = "usual_algorithms")]
    #[schemars(length(min = 1))]
    pub(crate) algorithms: Vec<Algorithm>,
    /// The claim that says who calls.
    #[serde(default = "usual_principal")]
    pub(crate) principal_claim: String,
    /// The claim that says for which tenant; none when absent.
    #[schemars(example = &"org")]
    pub(crate) tenant_claim: Option<String>,
    /// The agents that its callers may see and call; all when absent.
    #[schemars(example = ["billing"])]
    pub(crate) allow: Option<Vec<String>>,
    /// The operations that they may call, such as SendMessage; all when absent.
    #[schemars(example = ["SendMessage", "GetTask"])]
    pub(crate) operations: Option<Vec<String>>,
    /// The claim that names the agents that the caller may see and call, among those allowed: a list, or names with
    /// spaces between them, or * for all; a token without it may see none. All that are allowed when absent.
    #[schemars(example = &"agents")]
    pub(crate) agents_claim: Option<String>,
    /// The claim that names the operations that the caller may call, in the same way; other words in it are passed
    /// over. All that are allowed when absent.
    #[schemars(example = &"scope")]
    pub(crate) operations_claim: Option<String>,
}

fn usual_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn usual_principal() -> String {
    "sub".to_owned()
}
