//! `nuncio key …`: API keys of a hub.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use nuncio_hub::admin::api::{
    CreateKey, DeleteKey, Key, KeyRotation, KeyWithSecret, ListKeys, NewKey, RevokeKey, RotateKey, ShowKey,
};
use nuncio_protocol::Timestamp;
use serde_json::json;

use super::{
    delivery::now,
    pages::{columns, fields},
};
use crate::{
    args::{Admin, KeyCommand},
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: KeyCommand, format: Format) -> Result<ExitCode> {
    match command {
        KeyCommand::Create { hub, name, allow, operations, expires, principal, tenant, yes } => {
            if !yes {
                check_durable(&hub).await?;
            }
            let key = NewKey {
                name,
                principal,
                tenant,
                agents: (!allow.is_empty()).then_some(allow),
                operations: (!operations.is_empty()).then_some(operations),
                expires: expires.map(in_time),
                ..NewKey::default()
            };
            secret(&hub.call(&CreateKey { key }).await?, format)?;
        }
        KeyCommand::List { hub } => list(&hub, format).await?,
        KeyCommand::Show { hub, key } => show(&hub.call(&ShowKey { id: key }).await?, format)?,
        KeyCommand::Rotate { hub, key, overlap } => {
            let rotation = KeyRotation { overlap_seconds: overlap.map(|overlap| overlap.as_secs()) };
            secret(&hub.call(&RotateKey { id: key, rotation }).await?, format)?;
        }
        KeyCommand::Revoke { hub, key } => {
            let revoked = hub.call(&RevokeKey { id: key.clone() }).await?;
            match format {
                Format::Json => output::json(&revoked)?,
                Format::Human => output::note(&format!("Key {key} is revoked.")),
            }
        }
        KeyCommand::Delete { hub, key } => {
            hub.call(&DeleteKey { id: key.clone() }).await?;
            match format {
                Format::Json => output::json(&json!({ "deleted": key }))?,
                Format::Human => output::note(&format!("Key {key} is revoked and deleted.")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to create a key that a restart of the hub would lose.
async fn check_durable(hub: &Admin) -> Result<()> {
    if !hub.call(&ListKeys {}).await?.volatile {
        return Ok(());
    }
    Err(exit::usage(
        "the hub keeps its data in memory: its next restart would lose the key and, unless identity.anonymous is \
         \"never\", open the hub again to callers on its machine; start it with --data FILE, or add --yes",
    ))
}

pub(super) fn in_time(duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now().as_millis().saturating_add(millis)).unwrap_or(Timestamp::MAX)
}

/// Prints the secret alone on stdout, so that it can be piped to where it belongs.
fn secret(made: &KeyWithSecret, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(made);
    }
    let KeyWithSecret { key, secret, volatile } = made;
    output::line(secret)?;
    output::note(&format!(
        "the secret of key {} (id {}); it is not shown again; callers send it as 'Authorization: Bearer SECRET', nuncio \
         reads it from NUNCIO_KEY",
        key.name, key.id,
    ));
    if *volatile {
        output::note("warning: the hub keeps its data in memory: its next restart loses the key");
    }
    if let Some(ends) = key.overlap_ends {
        output::note(&format!("the old secret is accepted until {ends}"));
    }
    Ok(())
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let keys = hub.call(&ListKeys {}).await?.keys;
    if format == Format::Json {
        return keys.iter().try_for_each(output::json);
    }
    let row = |key: &Key| {
        vec![
            key.name.clone(),
            key.prefix.clone(),
            validity(key),
            key.principal.clone(),
            key.agents.as_ref().map_or_else(|| "all agents".to_owned(), |agents| agents.join(",")),
            key.last_used.map_or_else(|| "never used".to_owned(), |used| format!("used {used}")),
        ]
    };
    columns(&keys.iter().map(row).collect::<Vec<_>>())?;
    output::note(&output::count(keys.len(), "key", "keys"));
    Ok(())
}

fn validity(key: &Key) -> String {
    match key.expires {
        _ if key.revoked.is_some() => "revoked".to_owned(),
        Some(expires) if expires <= now() => "expired".to_owned(),
        Some(expires) => format!("until {expires}"),
        None => "valid".to_owned(),
    }
}

fn show(key: &Key, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(key);
    }
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    fields(&[
        ("key", Some(key.name.clone())),
        ("id", Some(key.id.clone())),
        ("prefix", Some(key.prefix.clone())),
        ("principal", Some(key.principal.clone())),
        ("tenant", key.tenant.clone()),
        ("agents", key.agents.as_ref().map(|agents| agents.join(", "))),
        ("operations", key.operations.as_ref().map(|operations| operations.join(", "))),
        ("created", time(Some(key.created))),
        ("expires", time(key.expires)),
        ("revoked", time(key.revoked)),
        ("rotated", time(key.rotated)),
        ("overlap", time(key.overlap_ends)),
        ("last used", time(key.last_used)),
    ])
}
