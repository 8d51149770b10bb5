//! The mailboxes.

use askama::Template;

use super::{
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{ListMailboxes, Mailbox},
    mailboxes,
};

/// A mailbox as a row.
pub(super) struct MailboxRow {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) key: Option<String>,
    pub(super) last_used: Option<String>,
    pub(super) waiting: usize,
    pub(super) leased: usize,
    pub(super) oldest: Option<String>,
    pub(super) poison: usize,
}

impl From<Mailbox> for MailboxRow {
    fn from(mailbox: Mailbox) -> Self {
        Self {
            path: format!("/ui/mailboxes/{}", show::segment(&mailbox.name)),
            name: mailbox.name,
            key: mailbox.key_prefix,
            last_used: mailbox.last_used.map(|used| used.to_string()),
            waiting: mailbox.waiting,
            leased: mailbox.leased,
            oldest: mailbox.oldest.map(|oldest| oldest.to_string()),
            poison: mailbox.poison,
        }
    }
}

#[derive(Template)]
#[template(path = "ui/mailboxes.html")]
struct MailboxesPage {
    shell: Shell,
    rows: Vec<MailboxRow>,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Mailboxes", Area::Mailboxes);
    let shell = shell.with_route(&ListMailboxes {}, Some("mailbox list".to_owned()))?;
    let list = visit.call(mailboxes::list, ListMailboxes {}).await?;
    render(&MailboxesPage { shell, rows: list.mailboxes.into_iter().map(MailboxRow::from).collect() })
}
