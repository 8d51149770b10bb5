//! Tokens for this API, besides the one in the token's file.

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{route::routes, schema::Time};

routes! {
    /// Lists the tokens for administration, without their secrets. The token in the hub's file is not among them.
    ListAdminTokens: GET "/admin-tokens", "admin-tokens.list" {} -> AdminTokenList;

    /// Creates a token for administration. Its text is returned once.
    CreateAdminToken: POST "/admin-tokens", "admin-tokens.create" { body token: NewAdminToken, } -> AdminTokenWithText,
        status CREATED, trail AdminTokenCreated;

    /// Revokes a token for administration. Streams that it has opened end.
    RevokeAdminToken: DELETE "/admin-tokens/{id}", "admin-tokens.revoke" { path id, } -> (),
        status NO_CONTENT, trail AdminTokenRevoked;
}

/// The right of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything but the content of tasks, and changes nothing.
    Viewer,
    /// Reads and changes everything.
    Operator,
}

/// A token to create.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAdminToken {
    /// A name for people, which rows of the trail have: 1 to 64 characters, unique.
    pub name: String,
    pub role: Role,
}

/// All tokens, sorted by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdminTokenList {
    pub tokens: Vec<AdminToken>,
    /// The hub keeps its data in memory: its next restart loses the tokens.
    pub volatile: bool,
}

/// A token, without its text.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdminToken {
    pub id: String,
    pub name: String,
    pub role: Role,
    #[schemars(with = "Time")]
    pub created: Timestamp,
}

/// A new token with its text.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct AdminTokenWithText {
    #[serde(flatten)]
    pub token: AdminToken,
    /// The text to send as a bearer token. It cannot be retrieved again.
    pub text: String,
    /// The hub keeps its data in memory: its next restart loses the token.
    pub volatile: bool,
}

/// Without the text, which is a secret.
impl std::fmt::Debug for AdminTokenWithText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminTokenWithText").field("token", &self.token).finish_non_exhaustive()
    }
}
