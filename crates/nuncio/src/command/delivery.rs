//! `nuncio delivery …`: what webhooks are owed, asked of the hub that owes it.

use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use nuncio_protocol::Timestamp;
use serde_json::{Value, json};

use super::{
    hint::program,
    pages::{self, List, filters, segment, text},
};
use crate::{
    args::{DeliveryCommand, Since},
    output::{self, Format},
};

pub(super) async fn run(command: DeliveryCommand, format: Format) -> Result<ExitCode> {
    match command {
        DeliveryCommand::List { hub, agent, task, state, since, limit } => {
            let state = state.map(|state| state.as_str().to_owned());
            let since = since.map(moment);
            let given = [("agent", agent), ("task", task), ("state", state), ("since", since)];
            let list = List { path: "deliveries", member: "deliveries", filters: filters(given), limit };
            pages::show(&hub, list, format, row).await?;
        }
        DeliveryCommand::Show { hub, id } => {
            let delivery = hub.get(&format!("deliveries/{}", segment(&id)), &[]).await?;
            show(&delivery, format)?;
        }
        DeliveryCommand::Replay { hub, id } => {
            let path = format!("deliveries/{}:replay", segment(&id));
            let delivery = hub.post(&path, &json!({})).await?;
            match format {
                Format::Json => output::json(&delivery)?,
                Format::Human => {
                    output::note(&format!("{id} is tried again; see: {} delivery show {id}", program()))
                }
            }
        }
        DeliveryCommand::Redrive { hub, since, agent } => {
            let since = moment(since);
            let mut body = json!({ "since": since });
            if let Some(agent) = agent {
                body["agent"] = agent.into();
            }
            let redriven = hub.post("deliveries:redrive", &body).await?;
            match format {
                Format::Json => output::json(&redriven)?,
                Format::Human => output::note(&format!(
                    "{} that were given up since {since} are tried again",
                    redriven["redriven"]
                )),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The columns: which, where it stands, to whom, of what.
fn row(delivery: &Value) -> Result<()> {
    output::row(&format!(
        "{}  {:<9}  {:>3}  {}  {}  {} {}",
        text(delivery, "id"),
        text(delivery, "state"),
        delivery["attemptCount"],
        text(delivery, "since"),
        text(delivery, "url"),
        text(delivery, "agent"),
        text(delivery, "taskId"),
    ))
}

fn show(delivery: &Value, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(delivery);
    }
    for (name, member) in [
        ("delivery", "id"),
        ("state", "state"),
        ("to", "url"),
        ("webhook", "webhook"),
        ("agent", "agent"),
        ("tenant", "tenant"),
        ("task", "taskId"),
        ("since", "since"),
        ("next", "nextAttempt"),
    ] {
        if let Some(value) = delivery[member].as_str() {
            output::row(&format!("{name:<9} {value}"))?;
        }
    }
    output::row(&format!("{:<9} {}", "event", delivery["eventId"]))?;
    let attempts = delivery["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let untold = delivery["attemptCount"].as_u64().unwrap_or(0).saturating_sub(attempts.len() as u64);
    if untold > 0 {
        output::row(&format!("{:<9} and {untold} before these", "attempts"))?;
    }
    for attempt in attempts {
        let code = attempt["code"].as_u64().map_or_else(|| "no answer".to_owned(), |code| code.to_string());
        output::row(&format!(
            "{:<9} {}  {code}  {} ms  {}",
            "attempt",
            text(attempt, "time"),
            attempt["durationMs"],
            text(attempt, "error"),
        ))?;
    }
    Ok(())
}

/// A moment, as a hub takes it.
pub(super) fn moment(since: Since) -> String {
    since.before(now()).to_string()
}

pub(super) fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(millis).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
}
