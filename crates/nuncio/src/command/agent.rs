//! `nuncio agent …`: the agents of a hub.

use std::{collections::HashMap, path::Path, process::ExitCode, time::Duration};

use anyhow::Result;
use nuncio_audit::report::Grade;
use nuncio_hub::admin::api::{
    AddAgent, AddedAgent, Agent, AgentAudit, AgentDetails, AgentHealth, AgentSettings, AuditAgent,
    AuditRequest, AuditSummary, ChangeAgent, Interface, ListAgents, ListMailboxes, NewAgent,
    ObservedCapability, RefreshAgent, RemoveAgent, ShowAgent, ShowAudit, TaskMode,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    audit::Reports,
    pages::{columns, fields, word},
    target::setting,
};
use crate::{
    args::{Admin, AgentCommand, Change},
    exit,
    output::{self, Format},
};

/// The variable with the bearer token for an agent. It has no option: others can see the command line.
const BEARER: &str = "NUNCIO_AGENT_BEARER";
/// The kind of an agent whose workers fetch its messages.
const MAILBOX: &str = "mailbox";

pub(super) async fn run(command: AgentCommand, format: Format) -> Result<ExitCode> {
    match command {
        AgentCommand::List { hub } => list(&hub, format).await?,
        AgentCommand::Show { hub, name } => {
            show(&hub.call(&ShowAgent { name }).await?, format)?;
        }
        AgentCommand::Add { hub, name, url, model, mode, title, description, tags, settings } => {
            let mut keys = settings.as_deref().map(read).transpose()?.unwrap_or_default();
            let given = [
                ("url", url.map(Value::from)),
                ("model", model.map(Value::from)),
                ("mode", mode.map(|mode| mode.as_str().into())),
                ("title", title.map(Value::from)),
                ("description", description.map(Value::from)),
                ("tags", (!tags.is_empty()).then(|| tags.into())),
            ];
            keys.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
            if let Some(bearer) = setting(BEARER) {
                keys.insert("auth".to_owned(), json!({ "bearer": bearer }));
            }
            let agent = NewAgent { name, settings: AgentSettings(keys) };
            added(&hub.call(&AddAgent { agent }).await?, format)?;
        }
        AgentCommand::Set { hub, name, changes, settings } => {
            let mut keys = settings.as_deref().map(read).transpose()?.unwrap_or_default();
            for change in changes {
                put(&mut keys, change);
            }
            if keys.is_empty() {
                return Err(exit::usage("nothing to change; give KEY=VALUE, or --settings FILE"));
            }
            let settings = AgentSettings(keys);
            let agent = hub.call(&ChangeAgent { name: name.clone(), settings, version: None }).await?;
            done(format, &agent, &kept(&agent, "changed"))?;
        }
        AgentCommand::Remove { hub, name } => {
            hub.call(&RemoveAgent { name: name.clone(), version: None }).await?;
            done(format, &json!({ "removed": name }), &format!("{name} is removed; its tasks are kept"))?;
        }
        AgentCommand::Refresh { hub, name } => {
            let agent = hub.call(&RefreshAgent { name: name.clone() }).await?;
            done(format, &agent, &format!("{name}: the card is up to date"))?;
        }
        AgentCommand::Audit { hub, name, send, key, deadline, latest, reports } => {
            let reports = Reports::new(&reports)?;
            let audit = if latest {
                hub.call(&ShowAudit { name }).await?
            } else {
                let key = key.as_deref().map(audit_key).transpose()?;
                let time = deadline.unwrap_or(AUDIT_DEADLINE);
                let options = AuditRequest { send, key, deadline_seconds: Some(time.as_secs().max(1)) };
                hub.call_within(&AuditAgent { name, options }, time + AUDIT_GRACE).await?
            };
            return published(&audit, &reports, format);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The time for an audit, by default.
const AUDIT_DEADLINE: Duration = Duration::from_secs(60);
/// The time for the answer of the hub after the deadline of an audit.
const AUDIT_GRACE: Duration = Duration::from_secs(30);

/// Sets a value, and makes the tables around it.
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

fn done(format: Format, document: &impl Serialize, note: &str) -> Result<()> {
    match format {
        Format::Json => output::json(document),
        Format::Human => {
            output::note(note);
            Ok(())
        }
    }
}

fn added(added: &AddedAgent, format: Format) -> Result<()> {
    match format {
        Format::Json => output::json(added),
        Format::Human => {
            output::row(&added.details.agent.card_url)?;
            output::note(&kept(&added.details, "added"));
            added.root_lost.as_deref().map(root_lost).iter().for_each(|note| output::note(note));
            Ok(())
        }
    }
}

/// A note on the agent that answered at the root as long as it was the only one.
pub(super) fn root_lost(name: &str) -> String {
    format!(
        "no agent answers at the root any more: {name} did, and is not the only one now; set default_agent = \"{name}\" \
         in nuncio.toml, or start the hub with --default {name}"
    )
}

/// Says what happened to an agent, and whether that outlasts the hub.
fn kept(details: &AgentDetails, done: &str) -> String {
    let Agent { name, health: state, .. } = &details.agent;
    let until = if details.volatile {
        "until the hub stops: it keeps its data in memory; start it with --data FILE to keep agents"
    } else {
        "and stays so after a restart"
    };
    format!("{name} is {done}, {until}; it is {}", health(state))
}

/// Reads a JSON object from a file or from stdin.
fn read(path: &Path) -> Result<Map<String, Value>> {
    let shown = path.display();
    let wrong = |why: String| exit::usage(format!("--settings {shown}: {why}"));
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    // The error of a value would show it, and it may be a credential.
    serde_json::from_str(&text).map_err(|error| {
        wrong(format!("expected a JSON object, see line {} column {}", error.line(), error.column()))
    })
}

/// The key of a caller.
fn audit_key(variable: &str) -> Result<String> {
    setting(variable).ok_or_else(|| {
        exit::usage(format!("--key {variable}: set this environment variable to an API key or a token"))
    })
}

fn published(audit: &AgentAudit, reports: &Reports<'_>, format: Format) -> Result<ExitCode> {
    let report = audit.report.as_deref().ok_or_else(|| {
        exit::usage("--latest: the hub has not stored this report, because it is too large; audit again")
    })?;
    reports.publish(&report.result, report.changes.as_ref(), format)
}

/// An audit in one line.
fn audited(audit: &AuditSummary) -> String {
    let AuditSummary { at, grade, score, coverage, failed, loose, .. } = audit;
    let percent = |value: &Option<u8>| value.map_or_else(|| "-".to_owned(), |value| format!("{value} %"));
    let grade = grade.map_or("none", Grade::as_str);
    let (score, coverage) = (percent(score), percent(coverage));
    format!("{at}: grade {grade}, score {score}, coverage {coverage}, {failed} failed, {loose} loose")
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let agents = hub.call(&ListAgents {}).await?.agents;
    if format == Format::Json {
        return agents.iter().try_for_each(output::json);
    }
    let mut workers = HashMap::new();
    if agents.iter().any(|agent| agent.kind == MAILBOX) {
        let mailboxes = hub.call(&ListMailboxes {}).await?.mailboxes;
        workers.extend(mailboxes.into_iter().map(|mailbox| (mailbox.name, mailbox.workers_present)));
    }
    let row = |agent: &Agent| {
        // A mailbox takes messages at any time; the question is whether a worker fetches them.
        let health = match workers.get(&agent.name) {
            Some(&count) if agent.kind == MAILBOX => super::mailbox::workers(count),
            _ => word(agent.health.state),
        };
        let kind = match agent.mode {
            TaskMode::Proxy => word(agent.mode),
            TaskMode::Durable => agent.kind.clone(),
        };
        // Last, because it may be long.
        let reason = agent.health.reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
        vec![
            agent.name.clone(),
            kind,
            word(agent.origin),
            health,
            format!("{} running", agent.tasks_in_flight),
            format!("{}{reason}", agent.url.as_deref().unwrap_or("-")),
        ]
    };
    columns(
        &["NAME", "KIND", "ORIGIN", "HEALTH", "RUNNING", "URL"],
        &agents.iter().map(row).collect::<Vec<_>>(),
    )?;
    output::note(&output::count(agents.len(), "agent", "agents"));
    Ok(())
}

/// The state of an agent, and the reason if there is one.
fn health(health: &AgentHealth) -> String {
    let state = word(health.state);
    health.reason.as_ref().map(|reason| format!("{state} ({reason})")).unwrap_or(state)
}

fn show(details: &AgentDetails, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(details);
    }
    let agent = &details.agent;
    let health = &agent.health;
    fields(&[
        ("agent", Some(agent.name.clone())),
        ("kind", Some(agent.kind.clone())),
        ("mode", Some(word(agent.mode))),
        ("origin", Some(word(agent.origin))),
        ("url", agent.url.clone()),
        ("health", Some(word(health.state))),
        ("since", health.since.map(|since| since.to_string())),
        ("reason", health.reason.clone()),
        ("running", Some(agent.tasks_in_flight.to_string())),
        ("card", Some(agent.card_url.clone())),
        ("description", Some(agent.description.clone())),
        ("called by", agent.speaks.as_ref().map(interface)),
        ("interfaces", Some(agent.interfaces.iter().map(interface).collect::<Vec<_>>().join(", "))),
        ("audited", details.audits.first().map(audited)),
    ])?;
    details.observed.iter().try_for_each(|capability| output::row(&observed(capability)))
}

/// A capability as the card declares it and as the agent's answers show it.
fn observed(capability: &ObservedCapability) -> String {
    let declared = match capability.declared {
        Some(true) => "declared, ",
        Some(false) => "not declared, ",
        None => "",
    };
    format!(
        "{:<17}  {declared}observed: {} ({} answered, {} refused, {} failed)",
        word(capability.capability),
        word(capability.observed),
        capability.answered,
        capability.refused,
        capability.failed
    )
}

fn interface(interface: &Interface) -> String {
    format!("{} {}", interface.binding, interface.version)
}
