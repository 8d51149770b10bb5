//! Mailboxes: agents whose workers fetch their messages. The key of a mailbox is returned once.

use std::fmt;

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentSettings, route::routes, schema::Time};

routes! {
    /// Lists the mailboxes that the hub serves.
    ListMailboxes: GET "/mailboxes", "mailboxes.list" {} -> MailboxList;

    /// Creates a mailbox and shows its key, this once. A mailbox of the configuration that has no key gets one.
    CreateMailbox: POST "/mailboxes", "mailboxes.create" { body mailbox: NewMailbox, } -> MailboxWithSecret,
        status CREATED, trail MailboxCreated;

    /// Shows a mailbox with its first messages, its leases and its poison tasks.
    ShowMailbox: GET "/mailboxes/{name}", "mailboxes.show" { path name, } -> MailboxDetails;

    /// Gives a mailbox a new key and shows it, this once.
    RotateMailbox: POST "/mailboxes/{name}:rotate", "mailboxes.rotate" {
        path name,
        body rotation: MailboxRotation,
    } -> MailboxWithSecret, trail MailboxRotated;

    /// Removes a mailbox that was created by this API, and its key. Its tasks are kept.
    RemoveMailbox: DELETE "/mailboxes/{name}", "mailboxes.remove" { path name, } -> (),
        status NO_CONTENT, trail MailboxRemoved;

    /// Offers tasks anew that failed because they were offered too often, each as a new task of its caller.
    RetryMailbox: POST "/mailboxes/{name}:retry", "mailboxes.retry" {
        path name,
        body retry: MailboxRetry,
    } -> Retried, trail MailboxRetried;

    /// Posts again to a webhook that was gone.
    EnableMailbox: POST "/mailboxes/{name}:enable", "mailboxes.enable" { path name, } -> Mailbox,
        trail MailboxEnabled;

    /// Ends leases of workers as if they had expired.
    TakeOverLeases: POST "/mailboxes/{name}:take-over", "mailboxes.take-over" {
        path name,
        body take_over: TakeOver,
    } -> TakenOver, trail LeasesTakenOver;
}

/// All mailboxes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MailboxList {
    pub mailboxes: Vec<Mailbox>,
}

/// A mailbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mailbox {
    pub name: String,
    /// The first characters of its key; absent: it has none, and only workers on the hub's machine may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// Time of the last use of its key, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_used: Option<Timestamp>,
    /// Number of workers that have a message, or have called this hub within two minutes.
    #[serde(default)]
    pub workers_present: usize,
    /// Number of messages that wait for a worker.
    pub waiting: usize,
    /// Number of messages that a worker has.
    pub leased: usize,
    /// Time of arrival of the oldest message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub oldest: Option<Timestamp>,
    /// Number of tasks that failed because they were offered too often.
    pub poison: usize,
    /// The webhook to which messages are posted, without its path.
    #[serde(rename = "deliverTo", default, skip_serializing_if = "Option::is_none")]
    pub deliver_to: Option<String>,
    /// Time since which nothing is posted, because the webhook answered 410.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub disabled: Option<Timestamp>,
}

/// A mailbox with its messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MailboxDetails {
    #[serde(flatten)]
    pub mailbox: Mailbox,
    /// The first messages, oldest first.
    pub turns: Vec<MailboxTurn>,
    /// The tasks that failed because they were offered too often.
    #[serde(rename = "poisonTasks")]
    pub poison_tasks: Vec<PoisonTask>,
    /// The workers that have called this hub since its start.
    pub workers: Vec<MailboxWorker>,
}

/// A message that waits, or that a worker has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MailboxTurn {
    pub task: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[schemars(with = "Time")]
    pub arrived: Timestamp,
    /// The end of its wait.
    #[schemars(with = "Time")]
    pub deadline: Timestamp,
    /// Number of times that it was offered.
    pub attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<MailboxLease>,
}

/// The lease of a worker.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MailboxLease {
    pub id: String,
    pub worker: String,
    #[schemars(with = "Time")]
    pub expires: Timestamp,
    /// The worker has written a line.
    pub begun: bool,
}

/// A task that failed because it was offered too often.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoisonTask {
    pub task: String,
    #[schemars(with = "Time")]
    pub at: Timestamp,
    pub attempts: u32,
    /// The worker that had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// A worker of a mailbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MailboxWorker {
    pub name: String,
    /// Time of its last call.
    #[schemars(with = "Time")]
    pub seen: Timestamp,
}

/// A mailbox to create: its name, and its settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMailbox {
    /// The name of the mailbox: a to z, 0 to 9 and -, at most 63 characters.
    pub name: String,
    /// Settings, by the keys that a configuration file has below `[agents.NAME]`; `mailbox` is {} by default.
    #[serde(default)]
    pub settings: AgentSettings,
}

/// A mailbox with its key.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct MailboxWithSecret {
    pub mailbox: Mailbox,
    /// The key that workers send. It is not shown again.
    pub secret: String,
    /// The hub keeps its data in memory: mailbox and key are lost at its next restart.
    pub volatile: bool,
}

impl fmt::Debug for MailboxWithSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxWithSecret").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}

/// The rotation of a mailbox's key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct MailboxRotation {
    /// Seconds for which the previous key stays valid; a day by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u64>,
}

/// The poison tasks to offer anew.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MailboxRetry {
    /// Only this one; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The tasks that were begun in place of poison tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Retried {
    pub tasks: Vec<String>,
}

/// The leases to end; all by default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TakeOver {
    /// Only those of this worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Only that of this task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The result of a takeover.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TakenOver {
    /// Number of leases that were ended.
    pub leases: usize,
}
