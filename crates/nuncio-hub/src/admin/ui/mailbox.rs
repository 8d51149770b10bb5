//! A mailbox: its workers, what waits, what is leased, and the tasks that were offered too often.

use askama::Template;
use axum::extract::Path;

use super::{
    form::Form,
    mailboxes::MailboxRow,
    session::Notice,
    shell::{Area, Shell, Theme, quoted},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{
        MailboxRetry, MailboxRotation, MailboxTurn, PoisonTask, RetryMailbox, RotateMailbox, ShowMailbox,
        TakeOver, TakeOverLeases,
    },
    mailboxes,
};

/// A message that waits or is leased.
struct TurnRow {
    task: String,
    task_path: String,
    principal: String,
    arrived: String,
    deadline: String,
    attempt: u32,
    /// The worker with the end of its lease, and whether it has begun.
    lease: Option<LeaseCell>,
}

struct LeaseCell {
    worker: String,
    expires: String,
    begun: bool,
}

struct WorkerRow {
    name: String,
    seen: String,
    leases: usize,
}

struct PoisonRow {
    task: String,
    task_path: String,
    at: String,
    attempts: u32,
    worker: String,
}

#[derive(Template)]
#[template(path = "ui/mailbox.html")]
struct MailboxPage {
    shell: Shell,
    row: MailboxRow,
    turns: Vec<TurnRow>,
    poison: Vec<PoisonRow>,
    workers: Vec<WorkerRow>,
    more: usize,
}

fn path(name: &str) -> String {
    format!("/ui/mailboxes/{}", show::segment(name))
}

fn task_path(id: &str) -> String {
    format!("/ui/tasks/{}", show::segment(id))
}

pub(super) async fn page(visit: Visit, Path(name): Path<String>) -> Answer {
    let request = ShowMailbox { name: name.clone() };
    let command = format!("mailbox show {}", quoted(&name));
    let title = format!("Mailbox {}", show::cell(&name));
    let shell = visit.shell(title, Area::Mailboxes).with_route(&request, Some(command))?;
    let details = visit.call(mailboxes::show, request).await?;
    let workers = details.workers.iter().map(|worker| {
        let is_its =
            |turn: &&MailboxTurn| turn.lease.as_ref().is_some_and(|lease| lease.worker == worker.name);
        WorkerRow {
            name: worker.name.clone(),
            seen: worker.seen.to_string(),
            leases: details.turns.iter().filter(is_its).count(),
        }
    });
    render(&MailboxPage {
        shell,
        workers: workers.collect(),
        more: (details.mailbox.waiting + details.mailbox.leased).saturating_sub(details.turns.len()),
        row: details.mailbox.into(),
        turns: details.turns.into_iter().map(turn).collect(),
        poison: details.poison_tasks.into_iter().map(poison).collect(),
    })
}

fn turn(turn: MailboxTurn) -> TurnRow {
    TurnRow {
        task_path: task_path(&turn.task),
        task: turn.task,
        principal: show::cell(turn.principal.as_deref().unwrap_or("anonymous")),
        arrived: turn.arrived.to_string(),
        deadline: turn.deadline.to_string(),
        attempt: turn.attempt,
        lease: turn.lease.map(|lease| LeaseCell {
            worker: show::cell(&lease.worker),
            expires: lease.expires.to_string(),
            begun: lease.begun,
        }),
    }
}

fn poison(task: PoisonTask) -> PoisonRow {
    PoisonRow {
        task_path: task_path(&task.task),
        task: task.task,
        at: task.at.to_string(),
        attempts: task.attempts,
        worker: show::cell(task.worker.as_deref().unwrap_or_default()),
    }
}

pub(super) async fn take_over(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let take_over = TakeOver { worker: form.text("worker"), task: form.text("task") };
    let taken = visit.call(mailboxes::take_over, TakeOverLeases { name: name.clone(), take_over }).await?;
    visit.done(&path(&name), format!("Leases that were ended: {}.", taken.leases))
}

pub(super) async fn retry(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let retry = MailboxRetry { task: form.text("task") };
    let retried = visit.call(mailboxes::retry, RetryMailbox { name: name.clone(), retry }).await?;
    visit.done(&path(&name), format!("Tasks that are offered anew: {}.", retried.tasks.len()))
}

pub(super) async fn rotate(visit: Visit, Path(name): Path<String>) -> Answer {
    let rotation = MailboxRotation::default();
    let rotated = visit.call(mailboxes::rotate, RotateMailbox { name: name.clone(), rotation }).await?;
    let text = "The mailbox has a new key; the previous one is valid for one more day. Copy it now: it is not shown again.";
    visit.done_with(&path(&name), Notice { text: text.to_owned(), secret: Some(rotated.secret) })
}
