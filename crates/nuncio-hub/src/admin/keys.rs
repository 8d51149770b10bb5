//! API keys: made, looked at, replaced, taken back. The key itself is told once, when it is made.

use std::{sync::Arc, time::Duration};

use http::Method;
use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Desk,
    answer::Problem,
    openapi::Time,
    route::{Call, Reply, Route, route},
};
use crate::{
    identity::{self, KeyText, KeyringError, NewKey, key_prefix},
    trail::What,
};

/// For how long the secret before is taken, if nobody says for how long.
const OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn routes() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    vec![
        route(get.clone(), "/keys", "keys.list", "All API keys, without their secrets.", list),
        route(post.clone(), "/keys", "keys.create", "Makes a key, and tells it this once.", create)
            .creates()
            .noted(What::KeyCreated),
        route(get, "/keys/{id}", "keys.show", "One key, by its id or its name.", show),
        route(
            post.clone(),
            "/keys/{id}:rotate",
            "keys.rotate",
            "Gives it a new secret, told this once.",
            rotate,
        )
        .noted(What::KeyRotated),
        route(post, "/keys/{id}:revoke", "keys.revoke", "Takes it back at once; its streams end.", revoke)
            .noted(What::KeyRevoked),
        route(Method::DELETE, "/keys/{id}", "keys.delete", "Revokes it, and forgets it.", delete)
            .noted(What::KeyDeleted),
    ]
}

/// All keys.
#[derive(Serialize, JsonSchema)]
struct Keys {
    keys: Vec<Key>,
    /// The hub keeps its data in memory: all keys are gone at its next restart, and a hub whose `identity.anonymous`
    /// is `loopback` is then open again to callers on its machine.
    volatile: bool,
}

/// A key, without its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Key {
    id: String,
    /// How its text begins.
    prefix: String,
    name: String,
    /// Whose tasks its holder has.
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The agents that it is for; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<String>>,
    /// The operations that it is for; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    #[schemars(with = "Time")]
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    revoked: Option<Timestamp>,
    /// When its secret was last replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    rotated: Option<Timestamp>,
    /// Until when the secret before is taken as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    overlap_ends: Option<Timestamp>,
    /// A minute late at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    last_used: Option<Timestamp>,
}

/// What its holder may ask for, in place of what every caller may.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Limits {
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    /// Requests at once after a rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    /// Sends in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<u32>,
    /// Open streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<u32>,
}

/// A key, and the text that its holder shows.
#[derive(Serialize, JsonSchema)]
struct Secret {
    key: Key,
    /// Not to be had again.
    secret: String,
    /// The hub keeps its data in memory: the key is gone at its next restart.
    volatile: bool,
}

/// A key to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct New {
    /// What people call it; no two keys have the same.
    name: String,
    /// Whose tasks its holder has; its name when absent.
    principal: Option<String>,
    tenant: Option<String>,
    /// The agents that it is for; all when absent. They need not be there yet.
    agents: Option<Vec<String>>,
    /// The operations that it is for, such as SendMessage; all when absent.
    operations: Option<Vec<String>>,
    /// From when on it is worth nothing; never when absent.
    #[schemars(with = "Option<Time>")]
    expires: Option<Timestamp>,
    #[serde(default)]
    limits: Limits,
}

/// How its secret is replaced.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Rotate {
    /// For how many seconds the secret before is taken as well; a day when absent.
    overlap_seconds: Option<u64>,
}

async fn list(desk: Arc<Desk>, _: Call) -> Result<Reply<Keys>, Problem> {
    let keys = desk.identity.keyring().list();
    let keys = keys.into_iter().map(|(key, used)| told(key, used)).collect();
    Ok(Reply::new(Keys { keys, volatile: desk.is_volatile }))
}

async fn show(desk: Arc<Desk>, call: Call) -> Result<Reply<Key>, Problem> {
    let (key, used) = desk.identity.keyring().show(call.name()).ok_or_else(|| missing(call.name()))?;
    Ok(Reply::new(told(key, used)))
}

async fn create(desk: Arc<Desk>, call: Call<(), New>) -> Result<Reply<Secret>, Problem> {
    let New { name, principal, tenant, agents, operations, expires, limits } = call.body;
    let Limits { per_second, burst, tasks, streams } = limits;
    let limits = identity::KeyLimits { per_second, burst, tasks, streams };
    let new = NewKey { name: name.clone(), principal, tenant, agents, operations, expires, limits };
    let made = desk.identity.keyring().create(new).await.map_err(|error| problem(&name, error))?;
    Ok(secret(&desk, made))
}

async fn rotate(desk: Arc<Desk>, call: Call<(), Rotate>) -> Result<Reply<Secret>, Problem> {
    let overlap = call.body.overlap_seconds.map_or(OVERLAP, Duration::from_secs);
    let made = desk.identity.keyring().rotate(call.name(), overlap).await;
    Ok(secret(&desk, made.map_err(|error| problem(call.name(), error))?))
}

async fn revoke(desk: Arc<Desk>, call: Call) -> Result<Reply<Key>, Problem> {
    let revoked = desk.identity.keyring().revoke(call.name()).await;
    let key = revoked.map_err(|error| problem(call.name(), error))?;
    let about = key.id.clone();
    Ok(Reply::new(told(key, None)).about(about))
}

async fn delete(desk: Arc<Desk>, call: Call) -> Result<Reply<()>, Problem> {
    let deleted = desk.identity.keyring().delete(call.name()).await;
    let key = deleted.map_err(|error| problem(call.name(), error))?;
    Ok(Reply::new(()).about(key.id))
}

fn secret(desk: &Desk, (key, text): (identity::Key, KeyText)) -> Reply<Secret> {
    let about = key.id.clone();
    let (secret, volatile) = (text.reveal().to_owned(), desk.is_volatile);
    Reply::new(Secret { key: told(key, None), secret, volatile }).about(about)
}

fn told(key: identity::Key, last_used: Option<Timestamp>) -> Key {
    let identity::KeyLimits { per_second, burst, tasks, streams } = key.limits;
    Key {
        prefix: key_prefix(&key.id),
        limits: (!key.limits.is_empty()).then_some(Limits { per_second, burst, tasks, streams }),
        id: key.id,
        name: key.name,
        principal: key.principal,
        tenant: key.tenant,
        agents: key.agents,
        operations: key.operations,
        created: key.created,
        expires: key.expires,
        revoked: key.revoked,
        rotated: key.rotated,
        overlap_ends: key.overlap_ends,
        last_used,
    }
}

fn missing(name: &str) -> Problem {
    Problem::not_found(format!("there is no key {name}; GET /api/v1/keys lists them"))
}

fn problem(name: &str, error: KeyringError) -> Problem {
    match error {
        KeyringError::NotFound => missing(name),
        KeyringError::Taken => Problem::conflict(format!("{name}: {error}")),
        KeyringError::Invalid(why) => Problem::invalid(why),
        KeyringError::Failed(error) => {
            tracing::error!(error = %format!("{error:#}"), "a key could not be made or changed");
            Problem::unavailable("the key could not be kept; the hub's log says why")
        }
    }
}
