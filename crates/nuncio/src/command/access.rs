//! `nuncio access …`: the callers of agents that ask for consent.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{
    AcceptAccess, AccessCaller as Caller, AccessFilter, BlockAccess, CallerAccess, DeclineAccess, ListAccess,
    RevokeAccess,
};

use super::pages::{self, word};
use crate::{
    args::{AccessCaller, AccessCommand, Admin},
    output::{self, Format},
};

pub(super) async fn run(command: AccessCommand, format: Format) -> Result<ExitCode> {
    match command {
        AccessCommand::List { hub, agent, state, limit } => {
            let filter = AccessFilter { agent, state: state.map(Into::into), ..AccessFilter::default() };
            pages::show(&hub, ListAccess { filter }, limit, ("caller", "callers"), format, row).await?;
        }
        AccessCommand::Accept(caller) => {
            let (hub, caller) = parts(caller);
            told(&hub.call(&AcceptAccess { caller }).await?, "is accepted; held messages run now", format)?;
        }
        AccessCommand::Decline(caller) => {
            let (hub, caller) = parts(caller);
            told(&hub.call(&DeclineAccess { caller }).await?, "is declined; its tasks are rejected", format)?;
        }
        AccessCommand::Block(caller) => {
            let (hub, caller) = parts(caller);
            told(&hub.call(&BlockAccess { caller }).await?, "is blocked; its messages are rejected", format)?;
        }
        AccessCommand::Revoke(caller) => {
            let (hub, caller) = parts(caller);
            told(&hub.call(&RevokeAccess { caller }).await?, "has to ask again", format)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parts(caller: AccessCaller) -> (Admin, Caller) {
    let AccessCaller { hub, agent, principal, tenant } = caller;
    (hub, Caller { agent, principal, tenant })
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
