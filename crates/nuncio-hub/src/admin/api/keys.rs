//! API keys. The secret of a key is returned once, when it is created.

use std::fmt;

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{route::routes, schema::Time};

routes! {
    /// Lists all API keys, without their secrets.
    ListKeys: GET "/keys", "keys.list" {} -> Keys;

    /// Creates a key and shows its secret, this once.
    CreateKey: POST "/keys", "keys.create" { body key: NewKey, } -> KeyWithSecret,
        status CREATED, trail KeyCreated;

    /// Shows a key, by its id or its name.
    ShowKey: GET "/keys/{id}", "keys.show" { path id, } -> Key;

    /// Gives a key a new secret and shows it, this once.
    RotateKey: POST "/keys/{id}:rotate", "keys.rotate" { path id, body rotation: KeyRotation, } -> KeyWithSecret,
        trail KeyRotated;

    /// Revokes a key at once and ends its streams.
    RevokeKey: POST "/keys/{id}:revoke", "keys.revoke" { path id, } -> Key, trail KeyRevoked;

    /// Revokes a key and deletes its record.
    DeleteKey: DELETE "/keys/{id}", "keys.delete" { path id, } -> (), status NO_CONTENT, trail KeyDeleted;
}

/// All keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Keys {
    pub keys: Vec<Key>,
    /// The hub keeps its data in memory: all keys are lost at its next restart. With `identity.anonymous` set
    /// to `loopback`, the hub is then open again to callers on its machine.
    pub volatile: bool,
}

/// A key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub id: String,
    /// The first characters of its secret.
    pub prefix: String,
    pub name: String,
    /// The principal of callers with this key.
    pub principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The agents that it may call; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The operations that it may call; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<KeyLimits>,
    #[schemars(with = "Time")]
    pub created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub revoked: Option<Timestamp>,
    /// Time of the last rotation of its secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub rotated: Option<Timestamp>,
    /// Time until which the previous secret is still valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub overlap_ends: Option<Timestamp>,
    /// Time of the last use, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_used: Option<Timestamp>,
}

/// Limits of a key, which replace those of the configuration.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct KeyLimits {
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Requests at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Sends in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Open streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}

impl KeyLimits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A key with its secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct KeyWithSecret {
    pub key: Key,
    /// The text that callers send. It is not shown again.
    pub secret: String,
    /// The hub keeps its data in memory: the key is lost at its next restart.
    pub volatile: bool,
}

impl fmt::Debug for KeyWithSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWithSecret").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A key to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The name of the key; unique among keys.
    pub name: String,
    /// The principal of callers with this key; the name by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The agents that it may call; all by default. They need not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The operations that it may call, such as SendMessage; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<String>>,
    /// Time of expiry; never by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "KeyLimits::is_empty")]
    pub limits: KeyLimits,
}

/// The rotation of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct KeyRotation {
    /// Seconds for which the previous secret stays valid; a day by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u64>,
}
