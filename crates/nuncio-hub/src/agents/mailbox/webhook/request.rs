//! The post of a turn: the task as the agent sees it, and the headers that say how to answer.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use nuncio_protocol::{Metadata, Role, Task, TraceContext};
use nuncio_server::{
    EarlierLimit,
    store::{Projection, StoreError},
};
use serde::Serialize;
use serde_json::Value;

use super::Webhook;
use crate::agents::{
    lease::{CallData, Kept, TurnRow},
    mailbox::{
        claim::{gone, message},
        memo::TaskMemo,
        problem::Problem,
        registry::{Mailbox, Mailboxes},
    },
};

/// The member of the task's metadata with what a worker that claims reads beside the message.
const LEASE: &str = "nuncio.lease";

/// The same for every delivery of a message.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A turn to be posted.
pub(super) struct Post {
    pub(super) task: Task,
    pub(super) headers: HeaderMap,
    pub(super) trace: Option<TraceContext>,
}

/// The lease, and the data of the call that are not in the task.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseData<'a> {
    lease: String,
    generation: u64,
    attempt: u32,
    /// The time within which this delivery is to be answered.
    ttl_seconds: u64,
    /// The time that a webhook which answers 202 has for each of its lines.
    answer_seconds: u64,
    resumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    memo: Option<Value>,
    repeat_id: &'a str,
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hops: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    /// The conversation so far: the caller's tasks of this context, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Task>,
    /// The caller's tasks that the message refers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<Task>,
}

impl Mailboxes {
    /// The post of a turn; `None` if its task has ended, and then its row is gone as well.
    pub(super) async fn post(
        &self,
        mailbox: &Mailbox,
        webhook: &Webhook,
        kept: &Kept,
    ) -> Result<Option<Post>, Problem> {
        let (name, row, store) = (&*mailbox.name, &kept.row, self.book.store());
        let scope = Arc::new(row.owner.scope(name));
        let stored = store.task(&scope, &row.task).await?;
        let stored = stored.filter(|stored| !stored.task.status.state.is_terminal());
        let asked = stored.as_ref().and_then(|stored| message(&stored.task, row.message)).cloned();
        let (Some(stored), Some(asked)) = (stored, asked) else {
            self.drop_row(mailbox, kept).await?;
            return Ok(None);
        };
        let caller = row.owner.caller();
        let runtime = mailbox.runtime().ok_or_else(|| gone(name))?;
        let earlier = runtime.earlier(&scope, &row.context, &row.task, EarlierLimit::default()).await;
        let earlier = earlier.map_err(|error| Problem::of_write(&error))?;
        let mut references = Vec::new();
        for id in &asked.reference_task_ids {
            references.extend(store.shown(&scope, id, Projection::WHOLE).await?);
        }
        let as_seen =
            |tasks: Vec<Task>| tasks.into_iter().map(|task| self.contexts.task(&caller, task)).collect();
        let (earlier, references) = (as_seen(earlier), as_seen(references));
        let call = self.book.call(name, kept).await?;
        let memo = match &row.memo {
            Some(new) => new.value.clone(),
            None => TaskMemo::read(stored.memo.as_deref()).memo,
        };
        let mut task = self.contexts.task(&caller, stored.task);
        // The last message is the one to answer: later ones are turns of their own.
        keep_messages(&mut task, row.message);
        let data = LeaseData { earlier, references, ..lease_data(mailbox, kept, memo, &call) };
        let data = serde_json::to_value(&data).map_err(StoreError::broken)?;
        task.metadata.extend([(LEASE, data)]);
        Ok(Some(Post { task, headers: headers(mailbox, webhook, kept), trace: trace(row) }))
    }
}

fn lease_data<'a>(
    mailbox: &'a Mailbox,
    kept: &'a Kept,
    memo: Option<Value>,
    call: &'a CallData,
) -> LeaseData<'a> {
    let (row, rules) = (&kept.row, mailbox.rules());
    LeaseData {
        lease: kept.lease().to_string(),
        generation: row.generation,
        attempt: row.attempt,
        ttl_seconds: rules.lease.as_secs(),
        answer_seconds: rules.answer.as_secs(),
        resumed: row.resumed,
        memo,
        repeat_id: &row.repeat,
        agent: &mailbox.name,
        principal: row.owner.principal.as_deref(),
        tenant: row.owner.tenant.as_deref().filter(|_| row.owner.proved),
        hops: row.trace.as_ref().map_or(&[][..], |trace| &trace.hops),
        accepted_output_modes: &call.accepted_output_modes,
        metadata: &call.metadata,
        earlier: Vec::new(),
        references: Vec::new(),
    }
}

/// Drops the caller's messages after the one of this number.
fn keep_messages(task: &mut Task, number: usize) {
    let mut said = 0;
    task.history.retain(|message| {
        said += usize::from(message.role == Role::User);
        message.role != Role::User || said <= number
    });
}

fn trace(row: &TurnRow) -> Option<TraceContext> {
    let trace = row.trace.as_ref()?;
    Some(TraceContext { parent: trace.parent.clone(), state: trace.state.clone() })
}

fn headers(mailbox: &Mailbox, webhook: &Webhook, kept: &Kept) -> HeaderMap {
    let base = mailbox.urls.base().trim_end_matches('/');
    let update = format!("<{base}/mailboxes/{}/leases/{}:update>; rel=\"edit\"", mailbox.name, kept.lease());
    let accept = match webhook.version {
        nuncio_protocol::Version::V1_0 => "application/a2a+json, application/json",
        nuncio_protocol::Version::V0_3 => "application/json",
    };
    let named = [
        (header::LINK, update),
        (IDEMPOTENCY_KEY, kept.row.repeat.clone()),
        (header::ACCEPT, accept.to_owned()),
    ];
    let valid =
        named.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?)));
    valid.collect()
}

/// The time within which a webhook has to answer a delivery: that of a lease.
pub(super) fn answer_time(mailbox: &Mailbox) -> Duration {
    mailbox.rules().lease
}
