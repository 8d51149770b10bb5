//! Authentication of callers.

use nuncio_protocol::op::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    AgentName,
    form::{Form, HttpUrl, IssuerUrl, OpName, Opt, ValueList},
};

/// Authentication of callers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Callers that need no credentials.
    pub anonymous: Anonymous,
    /// Access to the cards of visible agents that have no cards setting of their own.
    pub cards: Cards,
    /// Trusted issuers of tokens (JWT).
    pub jwt: Vec<Issuer>,
}

/// Callers that need no credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Programs on this machine, as long as there is neither an API key nor an issuer.
    #[default]
    Loopback,
    /// Anybody.
    Always,
    /// Nobody.
    Never,
}

/// Access to a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cards {
    /// Anybody, without credentials.
    #[default]
    Public,
    /// Callers that may call the agent.
    Protected,
}

/// An issuer of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Its address, exactly as its tokens contain it (iss).
    #[serde(with = "IssuerUrl")]
    #[schemars(example = "https://login.example.com")]
    pub issuer: String,
    /// Accepted audiences (aud): a token must have one of them.
    #[schemars(example = ["nuncio"], length(min = 1))]
    pub audience: Vec<String>,
    /// Address of its keys; default: found by the issuer's /.well-known/openid-configuration.
    #[serde(default, with = "Opt::<HttpUrl>")]
    #[schemars(example = "https://login.example.com/keys")]
    pub jwks_url: Option<Url>,
    /// Accepted signature algorithms.
    #[serde(default = "default_algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// The claim with the name of the caller.
    #[serde(default = "default_principal_claim")]
    pub principal_claim: String,
    /// The claim with the tenant of the caller; default: no tenant.
    #[schemars(example = &"org")]
    pub tenant_claim: Option<String>,
    /// The agents that its callers may see and call; default: all.
    #[schemars(example = ["billing"])]
    pub allow: Option<Vec<AgentName>>,
    /// The operations that its callers may call, such as SendMessage; default: all.
    #[serde(default, with = "Opt::<ValueList<OpName>>")]
    #[schemars(example = ["SendMessage", "GetTask"])]
    pub operations: Option<Vec<Op>>,
    /// The claim with the agents that the caller may see and call, among those allowed: a list, or names
    /// separated by spaces, or * for all; a token without it may see none. Default: all that are allowed.
    #[schemars(example = &"agents")]
    pub agents_claim: Option<String>,
    /// The claim with the operations that the caller may call, in the same format; other words in it are
    /// ignored. Default: all that are allowed.
    #[schemars(example = &"scope")]
    pub operations_claim: Option<String>,
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn default_principal_claim() -> String {
    "sub".to_owned()
}

/// A signature algorithm with a public key. Shared secrets are excluded: the hub could forge such tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}
