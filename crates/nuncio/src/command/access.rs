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
    pages::{self, word},
    target::egress,
};
use crate::{
    args::{AccessCaller, AccessCommand, OwnMailbox},
    exit,
    output::{self, Format},
};

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
            pages::show(&hub, ListAccess { filter }, limit, ("caller", "callers"), format, row).await?;
        }
        AccessCommand::Accept(caller) => decide(caller, CallerDecision::Accept, format).await?,
        AccessCommand::Decline(caller) => decide(caller, CallerDecision::Decline, format).await?,
        AccessCommand::Block(caller) => decide(caller, CallerDecision::Block, format).await?,
        AccessCommand::Revoke(caller) => decide(caller, CallerDecision::Revoke, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(caller: AccessCaller, decision: CallerDecision, format: Format) -> Result<()> {
    let outcome = match decision {
        CallerDecision::Accept => "is accepted; held messages run now",
        CallerDecision::Decline => "is declined; its tasks are rejected",
        CallerDecision::Block => "is blocked; its messages are rejected",
        CallerDecision::Revoke => "has to ask again",
    };
    let AccessCaller { hub, own, agent, principal, tenant } = caller;
    if own.hub.is_some() {
        let decided = worker(&own, &agent)?.decide(decision, &principal, tenant.as_deref()).await;
        let decided = decided.map_err(refused)?;
        match format {
            Format::Json => output::json(&document(&agent, &decided))?,
            Format::Human => output::note(&format!("{principal} at {agent} {outcome}")),
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
    told(&access, outcome, format)
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
    for caller in callers {
        let document = document(agent, caller);
        match format {
            Format::Json => output::json(&document)?,
            Format::Human => row(&serde_json::from_value(document)?)?,
        }
    }
    if format == Format::Human {
        output::note(&output::count(callers.len(), "caller", "callers"));
    }
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

fn row(access: &CallerAccess) -> Result<()> {
    let mut line =
        format!("{}  {}  {}  since {}", access.agent, access.principal, word(access.state), access.since);
    if let Some(tenant) = &access.tenant {
        line.push_str(&format!("  tenant {tenant}"));
    }
    if let Some(expires) = access.expires {
        line.push_str(&format!("  until {expires}"));
    }
    if !access.tasks.is_empty() {
        line.push_str(&format!("  tasks {}", access.tasks.join(",")));
    }
    output::row(&line)
}
