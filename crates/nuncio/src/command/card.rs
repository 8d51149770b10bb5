//! `nuncio card …`: shows, verifies and signs agent cards.

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use nuncio_client::{KeyError, SigningKey, TrustedKeys, sign_card, verify_card};
use serde_json::Value;

use crate::{
    args::{CardCommand, Connection, Target},
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: CardCommand, format: Format) -> Result<ExitCode> {
    match command {
        CardCommand::Get { target } => get(&target, format).await,
        CardCommand::Verify { card, keys, connection } => {
            let mut trusted = TrustedKeys::new();
            for path in &keys {
                trusted.extend(read_key(path, TrustedKeys::parse)?);
            }
            verify(&load(&card, &connection).await?, &trusted, format)
        }
        CardCommand::Sign { card, key, kid, jku } => {
            let mut signing = read_key(&key, |pem| SigningKey::from_pem(pem, &kid))?;
            if let Some(jku) = jku {
                signing = signing.with_jku(jku);
            }
            let mut document = parse(&card)?;
            sign_card(&mut document, std::slice::from_ref(&signing))?;
            output::pretty(&document)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn get(target: &Target, format: Format) -> Result<ExitCode> {
    let client = target.connect().await?;
    match format {
        Format::Json => output::json(client.card_json())?,
        Format::Human => output::pretty(client.card_json())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(card: &Value, keys: &TrustedKeys, format: Format) -> Result<ExitCode> {
    match verify_card(card, keys) {
        Ok(verified) => {
            let uncovered = verified.uncovered(card);
            if format == Format::Json {
                output::json(&serde_json::json!({
                    "verified": true,
                    "kid": verified.kid,
                    "algorithm": verified.algorithm,
                    "over": verified.over.to_string(),
                    "uncovered": uncovered,
                }))?;
                return Ok(ExitCode::SUCCESS);
            }
            output::row(&format!(
                "verified: key {}, {}, over {}",
                verified.kid, verified.algorithm, verified.over
            ))?;
            if !uncovered.is_empty() {
                output::note(&format!(
                    "warning: the signature does not cover {}: anybody may have changed them, and older clients \
                     use them",
                    uncovered.join(", ")
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if format == Format::Json {
                output::json(&serde_json::json!({ "verified": false, "reason": error.to_string() }))?;
            } else {
                output::note(&format!("not verified: {error}"));
            }
            Ok(ExitCode::from(exit::REFUSED))
        }
    }
}

/// Loads a card from a file or from the agent at a URL.
async fn load(card: &str, connection: &Connection) -> Result<Value> {
    if Path::new(card).exists() {
        return parse(Path::new(card));
    }
    let client = connection.connect(card).await;
    // A URL was not meant as a file.
    let client = if card.contains("://") {
        client?
    } else {
        client.with_context(|| format!("{card} is neither a file nor the URL of an agent"))?
    };
    Ok(client.card_json().clone())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| exit::usage(format!("{}: cannot be read: {error}", path.display())))
}

pub(super) fn read_key<K>(path: &Path, parse: impl FnOnce(&str) -> Result<K, KeyError>) -> Result<K> {
    let wrong = |error: &dyn std::fmt::Display| exit::usage(format!("--key {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    parse(&text).map_err(|error| wrong(&error))
}

fn parse(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{} is not JSON", path.display()))
}
