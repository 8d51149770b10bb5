//! `nuncio access …`: the callers of agents that ask for consent.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{
    AcceptAccess, AccessCaller as Caller, AccessFilter, BlockAccess, CallerAccess, DeclineAccess, ListAccess,
    RevokeAccess,
};

use super::pages::{self, Table, word};
use crate::{
    args::{AccessCaller, AccessCommand, Admin},
    output::{self, Format},
};

pub(super) async fn run(command: AccessCommand, format: Format) -> Result<ExitCode> {
    match command {
        AccessCommand::List { hub, agent, state, limit } => {
            let filter = AccessFilter { agent, state: state.map(Into::into), ..AccessFilter::default() };
            let table = Table {
                header: &["AGENT", "CALLER", "STATE", "SINCE", "DETAILS"],
                nouns: ("caller", "callers"),
            };
            pages::show(&hub, ListAccess { filter }, limit, table, format, row).await?;
        }
        AccessCommand::Accept(caller) => {
            let (hub, caller) = parts(caller);
            let accepted = hub.call(&AcceptAccess { caller }).await?;
            told(&accepted, &messages(accepted.messages), format)?;
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

/// The outcome of an acceptance for so many held messages.
fn messages(held: usize) -> String {
    match held {
        0 => "is accepted; no message is waiting".to_owned(),
        _ => format!("is accepted; {} now", output::count(held, "held message runs", "held messages run")),
    }
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
            [0, 1, 2].map(messages),
            [
                "is accepted; no message is waiting",
                "is accepted; 1 held message runs now",
                "is accepted; 2 held messages run now",
            ]
        );
    }
}
