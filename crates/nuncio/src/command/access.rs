//! `nuncio access …`: the callers of agents that ask for consent. Operators decide by the admin API, an agent by the key
//! of its mailbox.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_client::worker::{AgentCaller, CallerDecision, Worker, WorkerError};
use nuncio_hub::admin::api::{
    AcceptAccess, AccessCaller as Caller, AccessFilter, BlockAccess, CallerAccess, DeclineAccess, ListAccess,
    RevokeAccess,
};
use serde_json::json;

use super::{
    connect::key,
    pages::{self, Table, columns, word},
    target::egress,
};
use crate::{
    args::{AccessCaller, AccessCommand, OwnMailbox},
    exit,
    output::{self, Format},
};

/// The columns of a list of callers.
const HEADER: &[&str] = &["AGENT", "CALLER", "STATE", "SINCE", "DETAILS"];

pub(super) async fn run(command: AccessCommand, format: Format) -> Result<ExitCode> {
    match command {
        AccessCommand::List { hub, own, agent, state, limit } => {
            let state = state.map(Into::into);
            if own.hub.is_some() {
                let agent =
                    agent.ok_or_else(|| exit::usage("--agent: with --hub, name the mailbox of the agent"))?;
                let state = state.map(word);
                let callers = worker(&own, &agent)?.callers(state.as_deref(), limit).await;
                return list_own(&agent, &callers.map_err(refused)?, format);
            }
            let filter = AccessFilter { agent, state, ..AccessFilter::default() };
            let table = Table { header: HEADER, nouns: ("caller", "callers") };
            pages::show(&hub, ListAccess { filter }, limit, table, format, row).await?;
        }
        AccessCommand::Accept(caller) => decide(caller, CallerDecision::Accept, format).await?,
        AccessCommand::Decline(caller) => decide(caller, CallerDecision::Decline, format).await?,
        AccessCommand::Block(caller) => decide(caller, CallerDecision::Block, format).await?,
        AccessCommand::Revoke(caller) => decide(caller, CallerDecision::Revoke, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(caller: AccessCaller, decision: CallerDecision, format: Format) -> Result<()> {
    let AccessCaller { hub, own, agent, principal, tenant } = caller;
    if own.hub.is_some() {
        let decided = worker(&own, &agent)?.decide(decision, &principal, tenant.as_deref()).await;
        let decided = decided.map_err(refused)?;
        match format {
            Format::Json => output::json(&document(&agent, &decided))?,
            Format::Human => {
                output::note(&format!("{principal} at {agent} {}", outcome(decision, decided.messages)));
            }
        }
        return Ok(());
    }
    let caller = Caller { agent, principal, tenant };
    let access = match decision {
        CallerDecision::Accept => hub.call(&AcceptAccess { caller }).await?,
        CallerDecision::Decline => hub.call(&DeclineAccess { caller }).await?,
        CallerDecision::Block => hub.call(&BlockAccess { caller }).await?,
        CallerDecision::Revoke => hub.call(&RevokeAccess { caller }).await?,
    };
    told(&access, &outcome(decision, access.messages), format)
}

/// The outcome of a decision about a caller with so many held messages.
fn outcome(decision: CallerDecision, held: usize) -> String {
    match (decision, held) {
        (CallerDecision::Accept, 0) => "is accepted; no message is waiting".to_owned(),
        (CallerDecision::Accept, _) => {
            format!("is accepted; {} now", output::count(held, "held message runs", "held messages run"))
        }
        (CallerDecision::Decline, _) => "is declined; its tasks are rejected".to_owned(),
        (CallerDecision::Block, _) => "is blocked; its messages are rejected".to_owned(),
        (CallerDecision::Revoke, _) => "has to ask again".to_owned(),
    }
}

/// The mailbox of the agent, opened by its key.
fn worker(own: &OwnMailbox, agent: &str) -> Result<Worker> {
    let hub = own.hub.as_ref().map(url::Url::as_str).unwrap_or_default();
    let mut builder = Worker::builder(hub, agent).egress(egress(&own.authorities)?);
    if let Some(key) = key(own.key_file.as_deref())? {
        builder = builder.key(key);
    }
    builder.build().map_err(|error| exit::usage(format!("--hub {error}")))
}

fn refused(error: WorkerError) -> anyhow::Error {
    nuncio_protocol::Error::from(error).into()
}

fn list_own(agent: &str, callers: &[AgentCaller], format: Format) -> Result<ExitCode> {
    let documents = callers.iter().map(|caller| document(agent, caller));
    if format == Format::Json {
        documents.into_iter().try_for_each(|document| output::json(&document))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = documents.map(|document| Ok(row(&serde_json::from_value(document)?)));
    columns(HEADER, &rows.collect::<Result<Vec<_>>>()?)?;
    output::note(&output::count(callers.len(), "caller", "callers"));
    Ok(ExitCode::SUCCESS)
}

/// A caller in the shape that the admin API has.
fn document(agent: &str, caller: &AgentCaller) -> serde_json::Value {
    let mut document = json!({
        "agent": agent, "principal": caller.principal, "state": caller.state, "since": caller.since,
        "messages": caller.messages, "tasks": caller.tasks,
    });
    for (name, value) in [("tenant", &caller.tenant), ("expires", &caller.expires)] {
        if let Some(value) = value {
            document[name] = value.as_str().into();
        }
    }
    document
}

fn told(access: &CallerAccess, outcome: &str, format: Format) -> Result<()> {
    match format {
        Format::Json => output::json(access)?,
        Format::Human => output::note(&format!("{} at {} {outcome}", access.principal, access.agent)),
    }
    Ok(())
}

fn row(access: &CallerAccess) -> Vec<String> {
    let details = [
        access.tenant.as_ref().map(|tenant| format!("tenant {tenant}")),
        access.expires.map(|expires| format!("until {expires}")),
        (!access.tasks.is_empty()).then(|| format!("tasks {}", access.tasks.join(","))),
    ];
    vec![
        access.agent.clone(),
        access.principal.clone(),
        word(access.state),
        format!("since {}", access.since),
        details.into_iter().flatten().collect::<Vec<_>>().join("  "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_without_messages_is_accepted_for_later() {
        assert_eq!(
            [0, 1, 2].map(|held| outcome(CallerDecision::Accept, held)),
            [
                "is accepted; no message is waiting",
                "is accepted; 1 held message runs now",
                "is accepted; 2 held messages run now",
            ]
        );
    }
}
