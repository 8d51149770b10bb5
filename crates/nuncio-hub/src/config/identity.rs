//! Who may call, as the operator wants it.

use nuncio_protocol::op::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::AgentName;

/// Who may call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Identity {
    /// Who may call without credentials.
    pub anonymous: Anonymous,
    /// Who may read the cards of visible agents.
    pub cards: Cards,
    /// Whose tokens are believed.
    pub jwt: Vec<Issuer>,
}

/// Who may call without credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Anonymous {
    /// Programs on this machine, as long as there is neither a key nor an issuer.
    #[default]
    Loopback,
    /// Anybody.
    Always,
    /// Nobody.
    Never,
}

/// Who may read a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cards {
    /// Anybody, without credentials.
    #[default]
    Public,
    /// Callers who may call the agent.
    Protected,
}

/// An issuer of tokens (JWT), and what its callers may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issuer {
    /// Exactly as its tokens say it.
    pub issuer: String,
    /// Tokens must be for one of these.
    pub audience: Vec<String>,
    /// Where its keys are; `None`: the issuer says it (OpenID Connect Discovery).
    pub jwks_url: Option<Url>,
    /// Signatures that count.
    pub algorithms: Vec<Algorithm>,
    /// The claim that says who calls.
    pub principal_claim: String,
    /// The claim that says for which tenant.
    pub tenant_claim: Option<String>,
    /// The agents that its callers may see and call; `None`: all.
    pub allow: Option<Vec<AgentName>>,
    /// The operations that they may call; `None`: all.
    pub operations: Option<Vec<Op>>,
    /// The claim that names those of these agents that the caller may see and call; `None`: all of them.
    pub agents_claim: Option<String>,
    /// The claim that names those of these operations that the caller may call; `None`: all of them.
    pub operations_claim: Option<String>,
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
