//! `nuncio key …`: API keys of a hub.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use nuncio_hub::{
    admin::api::{
        CreateKey, DeleteKey, Key, KeyRotation, KeyWithSecret, ListAgents, ListKeys, NewKey, RevokeKey,
        RotateKey, ShowKey,
    },
    config::did_you_mean,
};
use nuncio_protocol::{Error, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    delivery::now,
    hint::program,
    key_file::KeyFile,
    pages::{columns, fields},
};
use crate::{
    args::{Admin, KeyCommand},
    exit,
    output::{self, Format},
};

/// The words by which the hub refuses a name.
const NAME_TAKEN: &str = "there is a key of this name";

pub(super) async fn run(command: KeyCommand, format: Format) -> Result<ExitCode> {
    match command {
        KeyCommand::Create { hub, name, allow, operations, expires, principal, tenant, yes, key_file } => {
            let file = key_file.as_deref().map(KeyFile::create).transpose()?;
            if !yes {
                check_durable(&hub).await?;
            }
            let agents = allow.clone();
            let key = NewKey {
                name,
                principal,
                tenant,
                agents: (!allow.is_empty()).then_some(allow),
                operations: (!operations.is_empty()).then_some(operations),
                expires: expires.map(in_time),
                ..NewKey::default()
            };
            let name = key.name.clone();
            let made = hub.call(&CreateKey { key }).await.map_err(|error| in_commands(error, &name))?;
            secret(&made, file, format)?;
            if format == Format::Human && !agents.is_empty() {
                note_unknown(&hub, &agents).await?;
            }
        }
        KeyCommand::List { hub } => list(&hub, format).await?,
        KeyCommand::Show { hub, key } => show(&hub.call(&ShowKey { id: key }).await?, format)?,
        KeyCommand::Rotate { hub, key, overlap, key_file } => {
            let file = key_file.as_deref().map(KeyFile::replace).transpose()?;
            let rotation = KeyRotation { overlap_seconds: overlap.map(|overlap| overlap.as_secs()) };
            secret(&hub.call(&RotateKey { id: key, rotation }).await?, file, format)?;
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

/// The refusal of a name that is taken, with the commands that help.
fn in_commands(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(refusal) if refusal.message().contains(NAME_TAKEN) => {
            let program = program();
            let hint = format!("`{program} key rotate {name}`, or `{program} key delete {name}` first");
            Error::new(refusal.kind(), format!("{NAME_TAKEN}; {hint}")).into()
        }
        _ => error,
    }
}

/// Notes the agents that the hub does not have: the key is for a later one, or the name is mistyped.
async fn note_unknown(hub: &Admin, allowed: &[String]) -> Result<()> {
    let agents = hub.call(&ListAgents {}).await?.agents;
    let known: Vec<&str> = agents.iter().map(|agent| &*agent.name).collect();
    for name in allowed.iter().filter(|name| !known.contains(&&***name)) {
        output::note(&format!("there is no agent {name} yet{}", did_you_mean(name, &known)));
    }
    Ok(())
}

/// A document without its secret, which is in a file.
pub(super) fn without_secret(made: &impl Serialize) -> Result<Value> {
    let mut document = serde_json::to_value(made)?;
    if let Some(members) = document.as_object_mut() {
        members.remove("secret");
    }
    Ok(document)
}

/// Writes the secret to its file, or prints it alone on stdout, so that it can be piped to where it belongs.
fn secret(made: &KeyWithSecret, file: Option<KeyFile>, format: Format) -> Result<()> {
    let KeyWithSecret { key, secret, volatile } = made;
    let path = file.map(|file| file.write(secret)).transpose()?;
    match (&path, format) {
        (None, Format::Json) => return output::json(made),
        (Some(_), Format::Json) => return output::json(&without_secret(made)?),
        (None, Format::Human) => {
            output::line(secret)?;
            output::note(&format!(
                "the secret of key {} (id {}); it is not shown again; callers send it as 'Authorization: Bearer SECRET', \
                 nuncio reads it from NUNCIO_KEY",
                key.name, key.id,
            ));
        }
        (Some(path), Format::Human) => output::note(&format!(
            "the secret of key {} (id {}) is in {path}; it is not shown again",
            key.name, key.id
        )),
    }
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
    columns(
        &["NAME", "KEY", "STATE", "PRINCIPAL", "AGENTS", "USED"],
        &keys.iter().map(row).collect::<Vec<_>>(),
    )?;
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
