//! `nuncio mailbox …`: mailboxes of a hub.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{
    AgentSettings, CreateMailbox, EnableMailbox, ListMailboxes, Mailbox, MailboxDetails, MailboxRetry,
    MailboxRotation, MailboxTurn, MailboxWithSecret, NewMailbox, RemoveMailbox, RetryMailbox, RotateMailbox,
    ShowMailbox, TakeOver, TakeOverLeases,
};
use serde_json::{Map, Value, json};

use super::{
    delivery::ago,
    key::without_secret,
    key_file::KeyFile,
    pages::{columns, fields},
};
use crate::{
    args::{Admin, MailboxCommand},
    output::{self, Format},
};

pub(super) async fn run(command: MailboxCommand, format: Format) -> Result<ExitCode> {
    match command {
        MailboxCommand::Create { hub, name, deliver_to, settings, key_file } => {
            let file = key_file.as_deref().map(KeyFile::create).transpose()?;
            let deliver_to = deliver_to.map(|url| ("deliver_to".to_owned(), Value::String(url.into())));
            let own: Map<String, Value> =
                settings.into_iter().map(|(key, value)| (key, typed(value))).chain(deliver_to).collect();
            let settings = AgentSettings(Map::from_iter([("mailbox".to_owned(), Value::Object(own))]));
            let mailbox = NewMailbox { name, settings };
            secret(&hub.call(&CreateMailbox { mailbox }).await?, file, format)?;
        }
        MailboxCommand::List { hub } => list(&hub, format).await?,
        MailboxCommand::Show { hub, name } => show(&hub.call(&ShowMailbox { name }).await?, format)?,
        MailboxCommand::Rotate { hub, name, overlap, key_file } => {
            let file = key_file.as_deref().map(KeyFile::replace).transpose()?;
            let rotation = MailboxRotation { overlap_seconds: overlap.map(|overlap| overlap.as_secs()) };
            secret(&hub.call(&RotateMailbox { name, rotation }).await?, file, format)?;
        }
        MailboxCommand::Remove { hub, name } => {
            hub.call(&RemoveMailbox { name: name.clone() }).await?;
            match format {
                Format::Json => output::json(&json!({ "removed": name }))?,
                Format::Human => output::note(&format!("Mailbox {name} and its key are removed.")),
            }
        }
        MailboxCommand::Retry { hub, name, task } => {
            let retried = hub.call(&RetryMailbox { name, retry: MailboxRetry { task } }).await?;
            match format {
                Format::Json => output::json(&retried)?,
                Format::Human => {
                    retried.tasks.iter().try_for_each(|task| output::line(task))?;
                    let count = output::count(retried.tasks.len(), "task", "tasks");
                    output::note(&format!("{count} begun in place of poison tasks"));
                }
            }
        }
        MailboxCommand::Enable { hub, name } => {
            let mailbox = hub.call(&EnableMailbox { name }).await?;
            match format {
                Format::Json => output::json(&mailbox)?,
                Format::Human => {
                    let waiting = output::count(mailbox.waiting, "message", "messages");
                    output::note(&format!("Mailbox {} is delivered again; {waiting} waiting.", mailbox.name));
                }
            }
        }
        MailboxCommand::TakeOver { hub, name, worker, task } => {
            let take_over = TakeOver { worker, task };
            let taken = hub.call(&TakeOverLeases { name, take_over }).await?;
            match format {
                Format::Json => output::json(&taken)?,
                Format::Human => {
                    output::note(&format!("{} ended", output::count(taken.leases, "lease", "leases")));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A value as a configuration file has it: a number, true or false, or text.
fn typed(value: String) -> Value {
    match serde_json::from_str(&value) {
        Ok(typed @ (Value::Number(_) | Value::Bool(_))) => typed,
        _ => Value::String(value),
    }
}

/// Writes the key to its file, or prints it alone on stdout, so that it can be piped to where it belongs.
fn secret(made: &MailboxWithSecret, file: Option<KeyFile>, format: Format) -> Result<()> {
    let MailboxWithSecret { mailbox, secret, volatile } = made;
    let path = file.map(|file| file.write(secret)).transpose()?;
    match (&path, format) {
        (None, Format::Json) => return output::json(made),
        (Some(_), Format::Json) => return output::json(&without_secret(made)?),
        (None, Format::Human) => {
            output::line(secret)?;
            output::note(&format!(
                "the key of mailbox {}; it is not shown again; workers send it as 'Authorization: Bearer KEY', nuncio reads \
                 it from NUNCIO_KEY",
                mailbox.name
            ));
        }
        (Some(path), Format::Human) => {
            output::note(&format!("the key of mailbox {} is in {path}; it is not shown again", mailbox.name));
        }
    }
    if *volatile {
        output::note(
            "warning: the hub keeps its data in memory: its next restart loses the mailbox and its key",
        );
    }
    Ok(())
}

async fn list(hub: &Admin, format: Format) -> Result<()> {
    let mailboxes = hub.call(&ListMailboxes {}).await?.mailboxes;
    if format == Format::Json {
        return mailboxes.iter().try_for_each(output::json);
    }
    let row = |mailbox: &Mailbox| {
        vec![
            mailbox.name.clone(),
            mailbox.key_prefix.clone().unwrap_or_else(|| "no key".to_owned()),
            workers(mailbox.workers_present),
            format!("{} waiting", mailbox.waiting),
            format!("{} leased", mailbox.leased),
            format!("{} poison", mailbox.poison),
            mailbox.oldest.map_or_else(String::new, |oldest| format!("oldest {oldest}")),
            webhook(mailbox),
        ]
    };
    columns(
        &["NAME", "KEY", "WORKERS", "WAITING", "LEASED", "POISON", "OLDEST", "WEBHOOK"],
        &mailboxes.iter().map(row).collect::<Vec<_>>(),
    )?;
    output::note(&output::count(mailboxes.len(), "mailbox", "mailboxes"));
    Ok(())
}

/// The webhook of a mailbox, and whether it is used.
fn webhook(mailbox: &Mailbox) -> String {
    match (&mailbox.deliver_to, mailbox.disabled) {
        (None, _) => String::new(),
        (Some(to), None) => format!("to {to}"),
        (Some(to), Some(since)) => format!("to {to}, disabled since {since} (410)"),
    }
}

/// The number of workers of a mailbox.
pub(super) fn workers(count: usize) -> String {
    if count == 0 { "no worker".to_owned() } else { output::count(count, "worker", "workers") }
}

fn show(details: &MailboxDetails, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(details);
    }
    let MailboxDetails { mailbox, turns, poison_tasks, workers: seen } = details;
    fields(&[
        ("mailbox", Some(mailbox.name.clone())),
        ("served by", Some(workers(mailbox.workers_present))),
        ("key", mailbox.key_prefix.clone()),
        ("key used", mailbox.last_used.map(|used| used.to_string())),
        ("webhook", Some(webhook(mailbox)).filter(|webhook| !webhook.is_empty())),
        ("waiting", Some(mailbox.waiting.to_string())),
        ("leased", Some(mailbox.leased.to_string())),
        ("poison", Some(mailbox.poison.to_string())),
    ])?;
    columns(&["TASK", "STATE", "ARRIVED", "OFFERS"], &turns.iter().map(turn_row).collect::<Vec<_>>())?;
    let poison = poison_tasks.iter().map(|poison| {
        let worker = poison.worker.clone().unwrap_or_default();
        vec![
            poison.task.clone(),
            format!("failed {}", poison.at),
            format!("{} attempts", poison.attempts),
            worker,
        ]
    });
    columns(&["TASK", "FAILED", "ATTEMPTS", "WORKER"], &poison.collect::<Vec<_>>())?;
    let workers =
        seen.iter().map(|worker| vec![worker.name.clone(), format!("last seen {}", ago(worker.seen))]);
    columns(&["WORKER", "SEEN"], &workers.collect::<Vec<_>>())
}

fn turn_row(turn: &MailboxTurn) -> Vec<String> {
    let state = match &turn.lease {
        None => format!("waits until {}", turn.deadline),
        Some(lease) => {
            let word = if lease.begun { "runs" } else { "offered" };
            format!("{word} at {} until {}", lease.worker, lease.expires)
        }
    };
    vec![turn.task.clone(), state, format!("arrived {}", turn.arrived), format!("{} offers", turn.attempt)]
}
