//! The view of a mailbox for operators, and their changes to it.

use std::sync::Arc;

use nuncio_protocol::{
    A2aService as _, CallContext, Error, ErrorKind, Message, Result, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, TaskId, Timestamp,
};
use nuncio_server::store::{ErasureTarget, StoreError};

use super::registry::{Mailbox, Mailboxes};
use crate::agents::{
    hex::random_hex,
    lease::{Kept, Owner, PAGE, Poison, Stage},
};

/// Turns and poison tasks that are listed.
const MAX_LISTED: usize = 200;

/// A mailbox, for its operator.
pub(crate) struct Overview {
    pub(crate) waiting: usize,
    pub(crate) leased: usize,
    /// The first turns, oldest first.
    pub(crate) turns: Vec<TurnView>,
    pub(crate) poison: Vec<PoisonView>,
    /// The workers that have called this hub since its start, with the time of their last call.
    pub(crate) workers: Vec<(String, Timestamp)>,
    /// The webhook to which it is delivered, without its path.
    pub(crate) webhook: Option<String>,
    /// The time since which nothing is delivered, because the webhook is gone.
    pub(crate) disabled: Option<Timestamp>,
}

/// A turn.
pub(crate) struct TurnView {
    pub(crate) task: TaskId,
    /// The lease of a turn that a worker has.
    pub(crate) lease: Option<LeaseView>,
    pub(crate) arrived: Timestamp,
    /// The end of its wait.
    pub(crate) deadline: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) principal: Option<Arc<str>>,
}

/// A lease.
pub(crate) struct LeaseView {
    pub(crate) id: String,
    pub(crate) worker: String,
    pub(crate) expires: Timestamp,
    pub(crate) has_begun: bool,
}

/// A task that failed because it was offered too often.
pub(crate) struct PoisonView {
    pub(crate) task: TaskId,
    pub(crate) at: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) worker: Option<String>,
}

impl Mailboxes {
    /// The names of the mailboxes that this hub serves, sorted.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.all().iter().map(|mailbox| Arc::clone(&mailbox.name)).collect();
        names.sort();
        names
    }

    /// A mailbox; `None` if this hub serves none of this name.
    pub(crate) async fn overview(&self, name: &str) -> std::result::Result<Option<Overview>, StoreError> {
        let Some(mailbox) = self.find(name) else { return Ok(None) };
        let (mut waiting, mut leased, mut turns) = (0, 0, Vec::new());
        self.each(&mailbox, |kept| {
            match kept.row.stage {
                Stage::Waiting => waiting += 1,
                Stage::Offered | Stage::Begun => leased += 1,
            }
            if turns.len() < MAX_LISTED {
                turns.push(TurnView::of(kept));
            }
        })
        .await?;
        let poison = self.book.poison(name, MAX_LISTED).await?.into_iter().map(|(_, at, poison)| {
            let Poison { task, attempts, holder, .. } = poison;
            PoisonView { task, at, attempts, worker: holder }
        });
        let (poison, workers) = (poison.collect(), mailbox.workers());
        let webhook = mailbox.webhook.as_ref().map(|webhook| webhook.origin());
        let disabled = self.gone_since(&mailbox).await?;
        Ok(Some(Overview { waiting, leased, turns, poison, workers, webhook, disabled }))
    }

    async fn each(
        &self,
        mailbox: &Mailbox,
        mut see: impl FnMut(Kept),
    ) -> std::result::Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.book.page(&mailbox.name, after, PAGE).await?;
            after = page.next;
            page.turns.into_iter().for_each(&mut see);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Ends leases as if they had expired: that of a task, those of a worker, or all. Returns their number.
    pub(crate) async fn take_over_leases(
        self: &Arc<Self>,
        name: &str,
        worker: Option<&str>,
        task: Option<&str>,
    ) -> std::result::Result<Option<usize>, StoreError> {
        let Some(mailbox) = self.find(name) else { return Ok(None) };
        let mut held = Vec::new();
        self.each(&mailbox, |kept| {
            let is_meant = kept.row.stage != Stage::Waiting
                && worker.is_none_or(|worker| kept.row.holder.as_deref() == Some(worker))
                && task.is_none_or(|task| kept.row.task.as_str() == task);
            if is_meant {
                held.push(kept);
            }
        })
        .await?;
        let mut ended = 0;
        for kept in held {
            ended += usize::from(self.end_lease(&mailbox, &kept).await?);
        }
        Ok(Some(ended))
    }

    /// Offers poison tasks anew, each as a new task of its caller, because a task that has failed stays so. Returns the
    /// new tasks; `None` without such a mailbox.
    ///
    /// # Errors
    /// A message could not be sent again, for example because the mailbox is full.
    pub(crate) async fn retry_poison(&self, name: &str, task: Option<&str>) -> Result<Option<Vec<TaskId>>> {
        let Some(mailbox) = self.find(name) else { return Ok(None) };
        let mut begun = Vec::new();
        for (turn, _, poison) in self.book.poison(name, MAX_LISTED).await? {
            if task.is_some_and(|task| task != poison.task.as_str()) {
                continue;
            }
            begun.extend(self.send_again(&mailbox, &turn.to_string(), &poison).await?);
            self.book.forget_poison(name, turn).await?;
        }
        Ok(Some(begun))
    }

    /// Sends the last message of a task again, on behalf of its caller.
    async fn send_again(&self, mailbox: &Mailbox, turn: &str, poison: &Poison) -> Result<Option<TaskId>> {
        let scope = poison.owner.scope(&mailbox.name);
        let Some(stored) = self.book.store().task(&scope, &poison.task).await? else { return Ok(None) };
        let said = stored.task.history.iter().rev().find(|message| message.role == Role::User);
        let Some(said) = said else { return Ok(None) };
        let runtime = mailbox.runtime().ok_or_else(|| Error::from(ErrorKind::Unavailable))?;
        let mut message = Message {
            message_id: random_hex::<16>().into(),
            task_id: None,
            context_id: Some(stored.task.context_id.clone()),
            ..Message::clone(said)
        };
        message.reference_task_ids.push(poison.task.clone());
        let configuration =
            SendMessageConfiguration { return_immediately: true, ..SendMessageConfiguration::default() };
        let request = SendMessageRequest {
            message,
            configuration: Some(configuration),
            ..SendMessageRequest::default()
        };
        let card = runtime.card();
        let required = card.capabilities.extensions.iter().filter(|extension| extension.required);
        let cx = CallContext {
            caller: poison.owner.caller(),
            tenant: poison.owner.tenant.as_deref().map(str::to_owned),
            extensions: required.map(|extension| extension.uri.clone()).collect(),
            // A retry that was cut off is repeated without a second task.
            idempotency_key: Some(format!("retry-{turn}")),
            ..CallContext::default()
        };
        match runtime.send_message(&cx, request).await? {
            SendMessageResponse::Task(task) => Ok(Some(task.id)),
            SendMessageResponse::Message(_) => Ok(None),
        }
    }

    /// Takes the turns of an erased caller out of all mailboxes, or out of one. Their tasks are gone already.
    pub(crate) async fn erase(&self, whose: &ErasureTarget) -> std::result::Result<(), StoreError> {
        for mailbox in self.all() {
            let is_meant = |owner: &Owner| whose.is(&owner.scope(&mailbox.name));
            let mut theirs = Vec::new();
            self.each(&mailbox, |kept| {
                if is_meant(&kept.row.owner) {
                    theirs.push(kept);
                }
            })
            .await?;
            for kept in &theirs {
                self.drop_row(&mailbox, kept).await?;
            }
            for (turn, _, poison) in self.book.poison(&mailbox.name, usize::MAX >> 1).await? {
                if is_meant(&poison.owner) {
                    self.book.forget_poison(&mailbox.name, turn).await?;
                }
            }
        }
        Ok(())
    }
}

impl TurnView {
    fn of(kept: Kept) -> Self {
        let time = |millis| Timestamp::from_millis(millis).unwrap_or(Timestamp::MAX);
        let lease = kept.lease().to_string();
        let row = kept.row;
        let lease = (row.stage != Stage::Waiting).then(|| LeaseView {
            id: lease,
            worker: row.holder.unwrap_or_default(),
            expires: time(row.expires),
            has_begun: row.stage == Stage::Begun,
        });
        Self {
            task: row.task,
            lease,
            arrived: time(row.arrived),
            deadline: time(row.deadline),
            attempt: row.attempt,
            principal: row.owner.principal,
        }
    }
}
