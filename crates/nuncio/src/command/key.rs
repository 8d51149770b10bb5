//! `nuncio key …`: who may call a hub, by API keys.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    delivery::now,
    pages::{columns, members, plain, segment, text},
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
                check_kept(&hub).await?;
            }
            let mut body = json!({ "name": name });
            let given = [
                ("agents", (!allow.is_empty()).then(|| allow.into())),
                ("operations", (!operations.is_empty()).then(|| operations.into())),
                ("expires", expires.map(|expires| after(expires).into())),
                ("principal", principal.map(Value::from)),
                ("tenant", tenant.map(Value::from)),
            ];
            for (key, value) in given {
                if let Some(value) = value {
                    body[key] = value;
                }
            }
            secret(&hub.post("keys", &body).await?, format)?;
        }
        KeyCommand::List { hub } => list(&hub, format).await?,
        KeyCommand::Show { hub, key } => show(&hub.get(&at(&key), &[]).await?, format)?,
        KeyCommand::Rotate { hub, key, overlap } => {
            let mut body = json!({});
            if let Some(overlap) = overlap {
                body["overlapSeconds"] = overlap.as_secs().into();
            }
            secret(&hub.post(&format!("{}:rotate", at(&key)), &body).await?, format)?;
        }
        KeyCommand::Revoke { hub, key } => {
            let revoked = hub.post(&format!("{}:revoke", at(&key)), &json!({})).await?;
            match format {
                Format::Json => output::json(&revoked)?,
                Format::Human => output::note(&format!("{key} is worth nothing from now on")),
            }
        }
        KeyCommand::Delete { hub, key } => {
            hub.delete(&at(&key)).await?;
            match format {
                Format::Json => output::json(&json!({ "deleted": key }))?,
                Format::Human => output::note(&format!("{key} is worth nothing from now on, and forgotten")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to make a key that somebody may take for lasting.
async fn check_kept(hub: &Admin) -> Result<()> {
    if hub.get("keys", &[]).await?["volatile"] != true {
        return Ok(());
    }
    Err(exit::usage(
        "the hub keeps its data in memory: the key would be gone at its next restart, and the hub open again to \
         callers on its machine, unless its file says identity.anonymous = \"never\"; start it with --data FILE, or \
         say --yes",
    ))
}

fn at(key: &str) -> String {
    format!("keys/{}", segment(key))
}

fn after(expires: Duration) -> String {
    let millis = i64::try_from(expires.as_millis()).unwrap_or(i64::MAX);
    let then = nuncio_protocol::Timestamp::from_millis(now().as_millis().saturating_add(millis));
    then.unwrap_or(nuncio_protocol::Timestamp::MAX).to_string()
}

/// The key is the data: alone on stdout, so that it can be put where it belongs.
fn secret(made: &Value, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(made);
    }
    output::line(text(made, "secret"))?;
    let key = &made["key"];
    output::note(&format!(
        "the key of {} (id {}); it is not shown again; callers send it as 'Authorization: Bearer KEY', nuncio by \
         NUNCIO_KEY",
        text(key, "name"),
        text(key, "id"),
    ));
    if made["volatile"] == true {
        output::note("warning: the hub keeps its data in memory: the key is gone at its next restart");
    }
    if let Some(ends) = key["overlapEnds"].as_str() {
        output::note(&format!("the one before is taken until {ends}"));
    }
    Ok(())
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let answer = hub.get("keys", &[]).await?;
    let keys = answer["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    if format == Format::Json {
        return keys.iter().try_for_each(output::json);
    }
    let row = |key: &Value| {
        let used =
            key["lastUsed"].as_str().map_or_else(|| "never used".to_owned(), |used| format!("used {used}"));
        vec![
            text(key, "name").to_owned(),
            text(key, "prefix").to_owned(),
            standing(key),
            text(key, "principal").to_owned(),
            key["agents"].as_array().map_or_else(
                || "all agents".to_owned(),
                |agents| agents.iter().map(plain).collect::<Vec<_>>().join(","),
            ),
            used,
        ]
    };
    columns(&keys.iter().map(row).collect::<Vec<_>>())?;
    output::note(&format!("{} keys", keys.len()));
    Ok(())
}

fn standing(key: &Value) -> String {
    let expires = key["expires"].as_str();
    let is_over = expires
        .and_then(|expires| nuncio_protocol::Timestamp::parse(expires).ok())
        .is_some_and(|at| at <= now());
    match expires {
        _ if key["revoked"].is_string() => "revoked".to_owned(),
        Some(_) if is_over => "expired".to_owned(),
        Some(expires) => format!("until {expires}"),
        None => "valid".to_owned(),
    }
}

fn show(key: &Value, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(key);
    }
    members(
        key,
        &[
            ("key", "/name"),
            ("id", "/id"),
            ("begins", "/prefix"),
            ("principal", "/principal"),
            ("tenant", "/tenant"),
            ("agents", "/agents"),
            ("operations", "/operations"),
            ("created", "/created"),
            ("expires", "/expires"),
            ("revoked", "/revoked"),
            ("rotated", "/rotated"),
            ("overlap", "/overlapEnds"),
            ("last used", "/lastUsed"),
        ],
    )
}
