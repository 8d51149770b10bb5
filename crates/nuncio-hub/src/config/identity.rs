//! Callers: who may call.

use nuncio_protocol::op::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    AgentName,
    form::{Form, HttpUrl, IssuerUrl, List, OpName, Opt},
};

/// Who may call.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Who may call without credentials.
    pub anonymous: Anonymous,
    /// Access to the cards of visible agents that have no cards setting of their own.
    pub cards: Cards,
    /// Issuers of tokens (JWT) that callers may show.
    pub jwt: Vec<Issuer>,
}

/// Callers that need no credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Programs on this machine, as long as there is neither a key nor an issuer.
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
    /// Callers who may call the agent.
    Protected,
}

/// An issuer of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Its address, exactly as its tokens say it (iss).
    #[serde(with = "IssuerUrl")]
    #[schemars(example = "https://login.example.com")]
    pub issuer: String,
    /// Tokens must be for one of these (aud).
    #[schemars(example = ["nuncio"], length(min = 1))]
    pub audience: Vec<String>,
    /// Where its keys are; found by the issuer's /.well-known/openid-configuration when absent.
    #[serde(default, with = "Opt::<HttpUrl>")]
    #[schemars(example = "https://login.example.com/keys")]
    pub jwks_url: Option<Url>,
    /// Signatures that count.
    #[serde(default = "default_algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// The claim that says who calls.
    #[serde(default = "default_principal_claim")]
    pub principal_claim: String,
    /// The claim that says for which tenant; none when absent.
    #[schemars(example = &"org")]
    pub tenant_claim: Option<String>,
    /// The agents that its callers may see and call; all when absent.
    #[schemars(example = ["billing"])]
    pub allow: Option<Vec<AgentName>>,
    /// The operations that they may call, such as SendMessage; all when absent.
    #[serde(default, with = "Opt::<List<OpName>>")]
    #[schemars(example = ["SendMessage", "GetTask"])]
    pub operations: Option<Vec<Op>>,
    /// The claim that names the agents that the caller may see and call, among those allowed: a list, or names with
    /// spaces between them, or * for all; a token without it may see none. All that are allowed when absent.
    #[schemars(example = &"agents")]
    pub agents_claim: Option<String>,
    /// The claim that names the operations that the caller may call, in the same way; other words in it are passed
    /// over. All that are allowed when absent.
    #[schemars(example = &"scope")]
    pub operations_claim: Option<String>,
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn default_principal_claim() -> String {
    "sub".to_owned()
}

/// A signature by a private key. Those by a shared secret are not for tokens of others.
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
