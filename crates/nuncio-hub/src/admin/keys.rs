//! API keys: created, shown, rotated, revoked.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;

use super::{
    AdminState,
    api::{
        self, CreateKey, DeleteKey, Key, KeyLimits, KeyWithSecret, Keys, ListKeys, RevokeKey, RotateKey,
        ShowKey,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::identity::{self, KeyText, KeyringError, key_prefix};

/// Default time for which the previous secret stays valid after a rotation.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) async fn list(state: Arc<AdminState>, _: ListKeys) -> Result<Reply<Keys>, AdminProblem> {
    let keys = state.identity.keyring().list();
    let keys = keys.into_iter().map(|(key, used)| shown(key, used)).collect();
    Ok(Reply::new(Keys { keys, volatile: state.is_volatile }))
}

pub(super) async fn show(state: Arc<AdminState>, request: ShowKey) -> Result<Reply<Key>, AdminProblem> {
    let id = &request.id;
    let (key, used) = state.identity.keyring().show(id).ok_or_else(|| missing(id))?;
    Ok(Reply::new(shown(key, used)))
}

pub(super) async fn create(
    state: Arc<AdminState>,
    request: CreateKey,
) -> Result<Reply<KeyWithSecret>, AdminProblem> {
    let api::NewKey { name, principal, tenant, agents, operations, expires, limits } = request.key;
    let KeyLimits { per_second, burst, tasks, streams } = limits;
    let limits = identity::ApiKeyLimits { per_second, burst, tasks, streams };
    let new =
        identity::NewApiKey { name: name.clone(), principal, tenant, agents, operations, expires, limits };
    let created = state.identity.keyring().create(new).await.map_err(|error| problem(&name, error))?;
    Ok(with_secret(&state, created))
}

pub(super) async fn rotate(
    state: Arc<AdminState>,
    request: RotateKey,
) -> Result<Reply<KeyWithSecret>, AdminProblem> {
    let RotateKey { id, rotation } = request;
    let overlap = rotation.overlap_seconds.map_or(DEFAULT_OVERLAP, Duration::from_secs);
    let rotated = state.identity.keyring().rotate(&id, overlap).await;
    Ok(with_secret(&state, rotated.map_err(|error| problem(&id, error))?))
}

pub(super) async fn revoke(state: Arc<AdminState>, request: RevokeKey) -> Result<Reply<Key>, AdminProblem> {
    let revoked = state.identity.keyring().revoke(&request.id).await;
    let key = revoked.map_err(|error| problem(&request.id, error))?;
    let subject = key.id.clone();
    Ok(Reply::new(shown(key, None)).subject(subject))
}

pub(super) async fn delete(state: Arc<AdminState>, request: DeleteKey) -> Result<Reply<()>, AdminProblem> {
    let deleted = state.identity.keyring().delete(&request.id).await;
    let key = deleted.map_err(|error| problem(&request.id, error))?;
    Ok(Reply::new(()).subject(key.id))
}

fn with_secret(state: &AdminState, (key, text): (identity::ApiKey, KeyText)) -> Reply<KeyWithSecret> {
    let subject = key.id.clone();
    let (secret, volatile) = (text.reveal().to_owned(), state.is_volatile);
    Reply::new(KeyWithSecret { key: shown(key, None), secret, volatile }).subject(subject)
}

fn shown(key: identity::ApiKey, last_used: Option<Timestamp>) -> Key {
    let identity::ApiKeyLimits { per_second, burst, tasks, streams } = key.limits;
    Key {
        prefix: key_prefix(&key.id),
        limits: (!key.limits.is_empty()).then_some(KeyLimits { per_second, burst, tasks, streams }),
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

fn missing(name: &str) -> AdminProblem {
    AdminProblem::not_found(format!("there is no key {name}; GET /api/v1/keys lists them"))
}

pub(super) fn problem(name: &str, error: KeyringError) -> AdminProblem {
    match error {
        KeyringError::NotFound => missing(name),
        KeyringError::Taken => AdminProblem::conflict(format!("{name}: {error}")),
        KeyringError::Invalid(why) => AdminProblem::invalid(why),
        KeyringError::Failed(error) => {
            tracing::error!(error = %format!("{error:#}"), "an API key could not be created or changed");
            AdminProblem::unavailable("the key could not be stored; see the hub's log")
        }
    }
}
