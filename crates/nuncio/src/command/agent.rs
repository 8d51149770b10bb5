//! `nuncio agent …`: what a hub serves.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{
    pages::{columns, members, segment, text},
    target::setting,
};
use crate::{
    args::{Admin, AgentCommand, Change},
    exit,
    output::{self, Format},
};

/// Where the token for an agent is taken from: never from the command line, which others can see.
const BEARER: &str = "NUNCIO_AGENT_BEARER";

pub(super) async fn run(command: AgentCommand, format: Format) -> Result<ExitCode> {
    match command {
        AgentCommand::List { hub } => list(&hub, format).await?,
        AgentCommand::Show { hub, name } => {
            show(&hub.get(&format!("agents/{}", segment(&name)), &[]).await?, format)?;
        }
        AgentCommand::Add { hub, name, url, mode, title, description, tags, settings } => {
            let mut body = settings.as_deref().map(read).transpose()?.unwrap_or_default();
            let given = [
                ("name", Some(name.into())),
                ("url", Some(url.into())),
                ("mode", mode.map(|mode| mode.as_str().into())),
                ("title", title.map(Value::from)),
                ("description", description.map(Value::from)),
                ("tags", (!tags.is_empty()).then(|| tags.into())),
            ];
            body.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
            if let Some(bearer) = setting(BEARER) {
                body.insert("auth".to_owned(), json!({ "bearer": bearer }));
            }
            added(&hub.post("agents", &Value::Object(body)).await?, format)?;
        }
        AgentCommand::Set { hub, name, changes, settings } => {
            let mut body = settings.as_deref().map(read).transpose()?.unwrap_or_default();
            for change in changes {
                put(&mut body, change);
            }
            if body.is_empty() {
                return Err(exit::usage("what is to be otherwise? say KEY=VALUE, or --settings FILE"));
            }
            let path = format!("agents/{}", segment(&name));
            let agent = hub.patch(&path, &Value::Object(body)).await?;
            done(format, &agent, &format!("{name} is changed, also after a restart; it is {}", how(&agent)))?;
        }
        AgentCommand::Remove { hub, name } => {
            hub.delete(&format!("agents/{}", segment(&name))).await?;
            done(
                format,
                &json!({ "removed": name }),
                &format!("{name} is served no more; its tasks are kept"),
            )?;
        }
        AgentCommand::Refresh { hub, name } => {
            let agent = hub.post(&format!("agents/{}:refresh", segment(&name)), &json!({})).await?;
            done(format, &agent, &format!("{name}: its card is as it is there now"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a setting where it belongs.
fn put(body: &mut Map<String, Value>, Change { path, value }: Change) {
    let mut place = body;
    let mut path = path.into_iter().peekable();
    while let Some(key) = path.next() {
        if path.peek().is_none() {
            place.insert(key, value);
            return;
        }
        let inner = place.entry(key).or_insert_with(|| Value::Object(Map::new()));
        if !inner.is_object() {
            *inner = Value::Object(Map::new());
        }
        let Value::Object(inner) = inner else { return };
        place = inner;
    }
}

fn done(format: Format, document: &Value, note: &str) -> Result<()> {
    match format {
        Format::Json => output::json(document),
        Format::Human => {
            output::note(note);
            Ok(())
        }
    }
}

fn added(agent: &Value, format: Format) -> Result<()> {
    match format {
        Format::Json => output::json(agent),
        Format::Human => {
            output::row(text(agent, "cardUrl"))?;
            output::note(&format!(
                "{} is served, also after a restart; it is {}",
                text(agent, "name"),
                how(agent)
            ));
            Ok(())
        }
    }
}

/// A JSON document, from a file or from stdin.
fn read(path: &Path) -> Result<Map<String, Value>> {
    let shown = path.display();
    let wrong = |why: String| exit::usage(format!("--settings {shown}: {why}"));
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    // The document may hold credentials, and an error of its values would show them.
    serde_json::from_str(&text).map_err(|error| {
        wrong(format!("expected a JSON object, see line {} column {}", error.line(), error.column()))
    })
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let answer = hub.get("agents", &[]).await?;
    let agents = answer["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    if format == Format::Json {
        return agents.iter().try_for_each(output::json);
    }
    let row = |agent: &Value| {
        let kind = match text(agent, "mode") {
            "proxy" => "proxy",
            _ => text(agent, "kind"),
        };
        // Last, because it may be long.
        let reason = agent["health"]["reason"].as_str().map(|reason| format!("  {reason}"));
        let place = format!("{}{}", agent["url"].as_str().unwrap_or("-"), reason.unwrap_or_default());
        let running = format!("{} running", agent["tasksInFlight"]);
        let state = text(&agent["health"], "state");
        [text(agent, "name"), kind, text(agent, "origin"), state, &running, &place]
            .map(str::to_owned)
            .to_vec()
    };
    columns(&agents.iter().map(row).collect::<Vec<_>>())?;
    output::note(&format!("{} agents", agents.len()));
    Ok(())
}

/// How it is, and why.
fn how(agent: &Value) -> String {
    let health = &agent["health"];
    match health["reason"].as_str() {
        Some(reason) => format!("{} ({reason})", text(health, "state")),
        None => text(health, "state").to_owned(),
    }
}

fn show(agent: &Value, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(agent);
    }
    members(
        agent,
        &[
            ("agent", "/name"),
            ("kind", "/kind"),
            ("mode", "/mode"),
            ("named by", "/origin"),
            ("url", "/url"),
            ("health", "/health/state"),
            ("since", "/health/since"),
            ("reason", "/health/reason"),
            ("running", "/tasksInFlight"),
            ("card", "/cardUrl"),
            ("says", "/description"),
        ],
    )?;
    let speaks = |one: &Value| format!("{} {}", text(one, "binding"), text(one, "version"));
    if agent["speaks"].is_object() {
        output::row(&format!("{:<8}  {}", "spoken", speaks(&agent["speaks"])))?;
    }
    let offered = agent["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let offered: Vec<String> = offered.iter().map(speaks).collect();
    output::row(&format!("{:<8}  {}", "offered", offered.join(", ")))
}
