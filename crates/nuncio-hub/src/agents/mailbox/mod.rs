//! Mailboxes: agents without an address. Messages wait as rows until workers fetch them.
//!
//! ```text
//! caller ──► executor ──► row, task parked ──► claim ──► worker
//!   ▲                                                      │ lines, heartbeats
//!   └──────────── log of the task ◄── update ◄─────────────┘
//! ```
//! Reading order: this file prepares an agent; `executor` makes a row of a message; `pull` is the API of workers with
//! `problem` for refusals; `claim` hands turns out, `update` takes their lines (`lines`), `ends` ends waits and leases;
//! `registry` has the mailboxes that are served, `memo` the memo of a task, `card` the card;
//! `access` lets the agent decide on its callers; `webhook` posts messages to agents that have an address for them;
//! `open` makes a mailbox and its key, `register` does so for one who was invited; `operate` is for operators.
//!
//! **Invariant:** a lease that is over writes nothing; nothing that has begun is handed out again unless its worker left
//! a memo or the operator allows it (`redeliver`). A worker is as untrusted as any peer.

mod access;
mod card;
mod claim;
mod ends;
mod executor;
mod lines;
mod memo;
mod open;
mod operate;
mod problem;
mod pull;
mod register;
mod registry;
#[cfg(test)]
mod tests;
mod update;
mod webhook;

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use nuncio_server::{Limits, Runtime};

use self::{
    executor::{CANCEL_GRACE, MailboxExecutor},
    registry::Mailbox,
    webhook::Webhook,
};
pub(crate) use self::{
    open::{OpenRefusal, Opening},
    operate::{LeaseView, Overview as MailboxOverview, PoisonView, TurnView},
    pull::PullApi,
    register::RegisterApi,
    registry::Mailboxes,
};
use super::{AgentFactory, Kind, Label, Prepared, WAITS_FOR, kind::RuntimeSpec};
use crate::config;

/// The member of a task's metadata with the worker that has it.
const WORKER: &str = "nuncio.worker";

#[async_trait]
impl Kind for config::Mailbox {
    fn name() -> &'static str {
        "mailbox"
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        let mailboxes = Arc::clone(&factory.mailboxes);
        let webhook = Webhook::of(desired, self, factory)?.map(Arc::new);
        let mailbox = Arc::new(Mailbox::new(&desired.name, self, Label::of(desired), webhook, factory));
        let stored = card::stored(&*factory.store, &desired.name).await?;
        let executor = MailboxExecutor { mailbox: Arc::clone(&mailbox), mailboxes: Arc::clone(&mailboxes) };
        let builder = Runtime::builder(card::shown(&mailbox, stored.as_ref()), executor)
            .limits(Limits { cancel_grace: CANCEL_GRACE, ..Limits::default() });
        Ok(Prepared {
            on_activate: Some(Box::new(move |agent| mailboxes.serve(&mailbox, agent))),
            ..Prepared::durable(RuntimeSpec::new(builder))
        })
    }

    fn runtime_key(&self) -> String {
        "mailbox".to_owned()
    }
}
