//! `nuncio invite …` and `nuncio register`: how a worker gets its mailbox and key without an operator at its side.

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use nuncio_client::worker::{Registration, Worker, register, register_webhook};
use nuncio_hub::admin::api::{
    CreateInvitation, Invitation, InvitationWithCode, ListInvitations, NewInvitation, RevokeInvitation,
};
use nuncio_protocol::AgentCard;
use serde_json::json;

use super::{
    hint::{program, quoted},
    key::in_time,
    key_file::KeyFile,
    pages::columns,
    target::{KEY, egress, read},
};
use crate::{
    args::{Admin, InviteCommand, Register},
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: InviteCommand, format: Format) -> Result<ExitCode> {
    match command {
        InviteCommand::Create { hub, mailbox, expires } => {
            let invitation = NewInvitation { mailbox, expires: expires.map(in_time) };
            code(&hub.call(&CreateInvitation { invitation }).await?, format)?;
        }
        InviteCommand::List { hub } => list(&hub, format).await?,
        InviteCommand::Revoke { hub, mailbox } => {
            hub.call(&RevokeInvitation { mailbox: mailbox.clone() }).await?;
            match format {
                Format::Json => output::json(&json!({ "revoked": mailbox }))?,
                Format::Human => output::note(&format!("The invitation to {mailbox} is revoked.")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the code alone on stdout, so that it can be piped to where it belongs.
fn code(made: &InvitationWithCode, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(made);
    }
    let InvitationWithCode { invitation, code, volatile } = made;
    output::line(code)?;
    output::note(&format!(
        "the invitation to mailbox {}, good once until {}; redeem it with `{} register HUB --invite CODE`",
        invitation.mailbox,
        invitation.expires,
        program()
    ));
    if *volatile {
        output::note("warning: the hub keeps its data in memory: its next restart loses the invitation");
    }
    Ok(())
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let invitations = hub.call(&ListInvitations {}).await?.invitations;
    if format == Format::Json {
        return invitations.iter().try_for_each(output::json);
    }
    let row = |invitation: &Invitation| {
        let until = format!("until {}", invitation.expires);
        vec![invitation.mailbox.clone(), invitation.prefix.clone(), until]
    };
    columns(&["MAILBOX", "CODE", "EXPIRES"], &invitations.iter().map(row).collect::<Vec<_>>())?;
    output::note(&output::count(invitations.len(), "invitation", "invitations"));
    Ok(())
}

pub(super) async fn redeem(args: Register, format: Format) -> Result<ExitCode> {
    // All that can be wrong here comes before the code is spent.
    let card = args.card.as_deref().map(card).transpose()?;
    let egress = egress(&args.authorities)?;
    let file = args.key_file.as_deref().map(KeyFile::create).transpose()?;
    let (at, code) = (args.hub.as_str(), args.invite.reveal());
    let registered = match &args.webhook {
        Some(webhook) => register_webhook(at, code, webhook, &egress).await,
        None => register(at, code, &egress).await,
    };
    let Registration { mailbox, key, .. } = registered.map_err(nuncio_protocol::Error::from)?;
    let path = file.map(|file| file.write(&key)).transpose()?;
    match (&path, format) {
        (_, Format::Json) => {
            let shown = path.is_none().then_some(&key);
            output::json(&json!({ "mailbox": mailbox, "key": shown }))?;
        }
        (path, Format::Human) => {
            let connect = format!("{} connect {mailbox}", program());
            let hub = args.hub.as_str().trim_end_matches('/');
            let (kept, connect) = match path {
                Some(path) => {
                    let option = quoted(path);
                    (
                        format!("its key is in {path}"),
                        format!("{connect} --key-file {option} --hub {hub} --to AGENT"),
                    )
                }
                None => {
                    output::line(&key)?;
                    let connect = format!("{KEY}=KEY {connect} --hub {hub} --to AGENT");
                    ("its key is not shown again".to_owned(), connect)
                }
            };
            let next = match &args.webhook {
                Some(_) => {
                    "its messages are posted to the webhook, signed with the SHA-256 of the key".to_owned()
                }
                None => format!("connect an agent with `{connect}`"),
            };
            output::note(&format!("you have the mailbox {mailbox}; {kept}; {next}"));
        }
    }
    if let Some(card) = card {
        let worker = Worker::builder(args.hub.as_str(), &*mailbox).key(&*key).egress(egress).build();
        let published = match worker {
            Ok(worker) => worker.put_card(&card).await,
            Err(error) => Err(error),
        };
        published.map_err(nuncio_protocol::Error::from).context("the card was not published")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn card(path: &Path) -> Result<AgentCard> {
    let text = read("--card", path)?;
    serde_json::from_slice(&text).map_err(|error| exit::usage(format!("--card {}: {error}", path.display())))
}
