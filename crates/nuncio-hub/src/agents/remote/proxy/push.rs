//! Webhooks of callers, with the hub in between. The agent gets a URL of the hub, and the hub forwards its
//! notifications to the caller's URL. So the agent learns neither the URLs nor the credentials of callers,
//! and callers' URLs are only called through the guarded egress.
//!
//! | record | key | value |
//! |---|---|---|
//! | `webhook` | agent, random id | task, ids of the config, sealed config, digest of the URL's secret |
//! | `webhooks-of` | agent, task, id of the config | the key of the `webhook` record |
//!
//! Notifications are not stored. They are forwarded while the agent waits: the hub accepts a notification
//! only if the receiver does, and the agent has to repeat it otherwise.

use std::sync::Arc;

use aws_lc_rs::{constant_time, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use nuncio_client::{notification, receiver};
use nuncio_protocol::{
    CallContext, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind, Event,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, PushConfigId, Result, TaskId, TaskPushNotificationConfig,
    Version,
    op::{Call, Reply},
};
use nuncio_server::{
    push::{Failure, Onward, Said},
    store::{Expect, PutRecord, Record, RecordQuery, Records},
};
use serde::{Deserialize, Serialize};

use super::{
    super::link::refusal,
    Interfaces, Proxy,
    owner::{bounded, hash},
    owners::not_found,
    unexpected,
};
use crate::{agent_urls, agents::expiry, clock::now, push::Pushing};

const WEBHOOK: &str = "webhook";
const WEBHOOKS_OF: &str = "webhooks-of";

/// The kinds of records that expire.
pub(super) const KINDS: [&str; 2] = [WEBHOOK, WEBHOOKS_OF];

/// A value of the length of a digest that no secret has.
const NO_DIGEST: &str = "----------------------------------------------------------------";

/// Maximum number of webhooks of a task.
const MAX_WEBHOOKS: usize = 256;

/// The webhook behind a URL of the hub.
#[derive(Clone, Serialize, Deserialize)]
struct Mapping {
    /// `None` until the agent has answered the message that the webhook came with.
    task: Option<TaskId>,
    /// The caller's id of the config.
    id: Option<PushConfigId>,
    /// The agent's id of the config.
    theirs: Option<PushConfigId>,
    /// The caller's version, which is also the receiver's.
    version: Arc<str>,
    /// The caller's config, sealed.
    sealed: String,
    /// The digest of the secret in the URL.
    opens: String,
}

/// A webhook that came with a message.
pub(super) struct Inline {
    /// The config for the agent.
    pub(super) theirs: TaskPushNotificationConfig,
    key: String,
    given: TaskPushNotificationConfig,
}

/// The outcome of a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handed {
    /// The receiver has accepted it.
    Taken,
    /// The webhook does not exist.
    Unknown,
    /// The body is not a notification.
    Invalid,
    /// Not accepted; the agent may repeat it.
    NotTaken(StatusCode),
}

impl Handed {
    /// The HTTP status for the agent.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Taken => StatusCode::NO_CONTENT,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::NotTaken(status) => status,
        }
    }
}

impl Proxy {
    /// Registers a webhook of the caller (spec 3.1.7).
    pub(super) async fn create_webhook(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        mut given: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        self.supported(interfaces)?;
        let task = given.task_id.clone().unwrap_or_default();
        self.require(&cx.caller, task.as_str()).await?;
        given.id = Some(given.id.unwrap_or_else(|| name(cx.version, &task)));
        // A config with the same id is replaced, here and at the agent.
        let before = self.find(&task, given.id.as_ref()).await?;
        if before.is_none() && self.indexed(&task).await?.len() >= MAX_WEBHOOKS {
            let why = format!("a task has at most {MAX_WEBHOOKS} push notification configurations");
            return Err(Error::new(ErrorKind::ResourceExhausted, why));
        }
        let inline = self.prepare(interfaces, cx, given, "").await?;
        let wanted = TaskPushNotificationConfig { task_id: Some(task.clone()), ..inline.theirs.clone() };
        let told =
            match self.ask(interfaces, cx, Call::CreateTaskPushNotificationConfig(Box::new(wanted))).await {
                Ok(Reply::PushConfig(told)) => told,
                Ok(_) => return Err(unexpected("CreateTaskPushNotificationConfig")),
                Err(error) => {
                    self.forget_webhook(&inline).await;
                    return Err(error);
                }
            };
        let given = self.settle(cx, inline, &task, told.id).await?;
        if let Some((key, _)) = before {
            self.store.delete_record(WEBHOOK, &key, Expect::Anything).await?.ok();
        }
        Ok(given)
    }

    /// Stores a webhook that came with a message; its task is not known yet.
    pub(super) async fn begin_webhook(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        given: TaskPushNotificationConfig,
    ) -> Result<Inline> {
        self.prepare(interfaces, cx, given, "configuration.taskPushNotificationConfig.").await
    }

    /// Sets the task of the webhook after the message was answered.
    pub(super) async fn settle_webhook(
        &self,
        cx: &CallContext,
        mut inline: Inline,
        task: &TaskId,
    ) -> Result<()> {
        inline.given.id.get_or_insert_with(|| name(cx.version, task));
        let theirs = inline.theirs.id.clone();
        self.settle(cx, inline, task, theirs).await.map(drop)
    }

    /// Deletes a webhook that the agent did not accept.
    pub(super) async fn forget_webhook(&self, inline: &Inline) {
        if let Err(error) = self.store.delete_record(WEBHOOK, &inline.key, Expect::Anything).await {
            tracing::warn!(%error, "an unused webhook record cannot be deleted; it expires later");
        }
    }

    /// Stores the caller's config and makes a URL of the hub for it, before the agent is called.
    async fn prepare(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        given: TaskPushNotificationConfig,
        field: &str,
    ) -> Result<Inline> {
        let Some(Pushing { push, .. }) = self.pushing.as_ref().filter(|_| self.pushes(interfaces)) else {
            return Err(ErrorKind::PushNotificationNotSupported.into());
        };
        let (id, secret) = (random::<16>()?, random::<32>()?);
        let key = format!("{}/{id}", self.name);
        let mapping = Mapping {
            task: given.task_id.clone(),
            id: given.id.clone(),
            theirs: None,
            version: cx.version.as_str().into(),
            sealed: push.confide(&key, &given, field)?,
            opens: hash(secret.as_bytes()),
        };
        self.put(WEBHOOK, key.clone(), serde_json::to_vec(&mapping).map_err(Error::internal)?).await?;
        let url = format!("{}{}/push/{id}.{secret}", self.urls.base(), agent_urls::path(&self.name));
        let theirs =
            TaskPushNotificationConfig { id: given.id.clone(), url, ..TaskPushNotificationConfig::default() };
        Ok(Inline { theirs, key, given })
    }

    /// Stores the webhook under its task; returns the config as the caller sees it.
    async fn settle(
        &self,
        cx: &CallContext,
        inline: Inline,
        task: &TaskId,
        theirs: Option<PushConfigId>,
    ) -> Result<TaskPushNotificationConfig> {
        let Inline { key, mut given, .. } = inline;
        given.task_id = Some(task.clone());
        let Some(Pushing { push, .. }) = &self.pushing else {
            return Err(ErrorKind::PushNotificationNotSupported.into());
        };
        let Some(record) = self.store.record(WEBHOOK, &key).await? else {
            return Err(Error::internal("a webhook was deleted meanwhile"));
        };
        let mut mapping: Mapping = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        mapping.version = cx.version.as_str().into();
        mapping.theirs = theirs.or_else(|| given.id.clone());
        mapping.sealed = push.confide(&key, &given, "")?;
        (mapping.task, mapping.id) = (Some(task.clone()), given.id.clone());
        let index = self.index(task, given.id.as_ref());
        let value = serde_json::to_vec(&mapping).map_err(Error::internal)?;
        self.put(WEBHOOK, key.clone(), value).await?;
        self.put(WEBHOOKS_OF, index, key.into_bytes()).await?;
        Ok(given)
    }

    /// A webhook of a task of the caller (spec 3.1.8).
    pub(super) async fn webhook(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        req: &GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig> {
        self.supported(interfaces)?;
        self.require(&cx.caller, req.task_id.as_str()).await?;
        let Some((key, mapping)) = self.find(&req.task_id, Some(&req.id)).await? else {
            self.require_known(interfaces, cx, &req.task_id).await?;
            return Err(no_webhook(&req.id));
        };
        self.told(&key, &mapping).ok_or_else(|| no_webhook(&req.id))
    }

    /// All webhooks of a task of the caller (spec 3.1.9), on one page: a task has few.
    pub(super) async fn webhooks(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        req: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse> {
        self.supported(interfaces)?;
        self.require(&cx.caller, req.task_id.as_str()).await?;
        let mut configs = Vec::new();
        let indexed = self.indexed(&req.task_id).await?;
        if indexed.is_empty() {
            self.require_known(interfaces, cx, &req.task_id).await?;
        }
        for index in indexed {
            if let Some((key, mapping)) = self.behind(&index.value).await? {
                configs.extend(self.told(&key, &mapping));
            }
        }
        Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token: String::new() })
    }

    /// Removes a webhook, at the agent first (spec 3.1.10).
    pub(super) async fn delete_webhook(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        req: &DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()> {
        self.supported(interfaces)?;
        self.require(&cx.caller, req.task_id.as_str()).await?;
        let Some((key, mapping)) = self.find(&req.task_id, Some(&req.id)).await? else {
            return self.require_known(interfaces, cx, &req.task_id).await;
        };
        let theirs = DeleteTaskPushNotificationConfigRequest {
            id: mapping.theirs.unwrap_or_else(|| req.id.clone()),
            ..req.clone()
        };
        self.ask(interfaces, cx, Call::DeleteTaskPushNotificationConfig(Box::new(theirs))).await?;
        let index = self.index(&req.task_id, Some(&req.id));
        self.store.delete_record(WEBHOOKS_OF, &index, Expect::Anything).await?.ok();
        self.store.delete_record(WEBHOOK, &key, Expect::Anything).await?.ok();
        Ok(())
    }

    /// Refuses a task that the agent does not know. Called only for tasks without webhooks: a webhook shows
    /// that the task exists.
    async fn require_known(&self, interfaces: &Interfaces, cx: &CallContext, task: &TaskId) -> Result<()> {
        let req = GetTaskRequest { id: task.clone(), history_length: Some(0), ..GetTaskRequest::default() };
        match self.ask(interfaces, cx, Call::GetTask(Box::new(req))).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::TaskNotFound => Err(not_found(task.as_str())),
            // The agent cannot answer this, so the task may exist.
            Err(error) if refusal::lacks_operation(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn supported(&self, interfaces: &Interfaces) -> Result<()> {
        if self.pushes(interfaces) { Ok(()) } else { Err(ErrorKind::PushNotificationNotSupported.into()) }
    }

    /// The config as shown to the caller, without the credentials.
    fn told(&self, key: &str, mapping: &Mapping) -> Option<TaskPushNotificationConfig> {
        let mut config = self.pushing.as_ref()?.push.recall(key, &mapping.sealed)?;
        if let Some(authentication) = &mut config.authentication {
            authentication.credentials = None;
        }
        Some(config)
    }

    /// The key of a webhook under its task; without an id, the prefix of all webhooks of the task.
    fn index(&self, task: &TaskId, id: Option<&PushConfigId>) -> String {
        let id = id.map(|id| bounded(id.as_str())).unwrap_or_default();
        format!("{}/{}/{id}", self.name, hash(task.as_str().as_bytes()))
    }

    /// The index records of all webhooks of a task.
    async fn indexed(&self, task: &TaskId) -> Result<Vec<Record>> {
        let prefix = self.index(task, None);
        let query =
            RecordQuery { kind: WEBHOOKS_OF.into(), prefix, limit: MAX_WEBHOOKS, ..RecordQuery::default() };
        Ok(self.store.records(&query).await?)
    }

    async fn find(&self, task: &TaskId, id: Option<&PushConfigId>) -> Result<Option<(String, Mapping)>> {
        match self.store.record(WEBHOOKS_OF, &self.index(task, id)).await? {
            Some(index) => self.behind(&index.value).await,
            None => Ok(None),
        }
    }

    async fn behind(&self, key: &Bytes) -> Result<Option<(String, Mapping)>> {
        let key = String::from_utf8_lossy(key).into_owned();
        match self.store.record(WEBHOOK, &key).await? {
            Some(record) => self.mapping(key, &record).await.map(Some),
            None => Ok(None),
        }
    }

    /// Decodes a record, and rewrites it if it would expire otherwise.
    async fn mapping(&self, key: String, record: &Record) -> Result<(String, Mapping)> {
        let mapping: Mapping = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        if let Some(task) = mapping.task.as_ref().filter(|_| expiry::is_due(record.at)) {
            self.put(WEBHOOKS_OF, self.index(task, mapping.id.as_ref()), key.clone().into_bytes()).await?;
            self.put(WEBHOOK, key.clone(), record.value.to_vec()).await?;
        }
        Ok((key, mapping))
    }

    async fn put(&self, kind: &str, key: String, value: Vec<u8>) -> Result<()> {
        let put = PutRecord {
            kind: kind.into(),
            key: key.into(),
            value: value.into(),
            at: now(),
            expect: Expect::Anything,
        };
        self.store.put_records(vec![put]).await?;
        Ok(())
    }

    /// Forwards a notification that the agent has posted to a URL of the hub.
    pub(crate) async fn notified(&self, opened: Opened, headers: &HeaderMap, body: Bytes) -> Handed {
        match self.hand_on_notification(opened, headers, body).await {
            Ok(handed) => handed,
            Err(error) => {
                tracing::warn!(agent = &*self.name, %error, "a notification could not be forwarded");
                Handed::NotTaken(StatusCode::SERVICE_UNAVAILABLE)
            }
        }
    }

    async fn hand_on_notification(
        &self,
        Opened(record): Opened,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Handed> {
        let Some(Pushing { push, options }) = &self.pushing else { return Ok(Handed::Unknown) };
        let (key, mapping) = self.mapping(record.key.clone(), &record).await?;
        let Some(to) = push.recall(&key, &mapping.sealed) else { return Ok(Handed::Unknown) };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let said = text(notification::VERSION).and_then(Version::parse);
        let Ok((came, event)) = receiver::read_body(&body, said) else { return Ok(Handed::Invalid) };
        let version = Version::parse(&mapping.version).unwrap_or(came);
        let Some(task_id) = mapping.task.clone().or_else(|| event.task_id().cloned()) else {
            return Ok(Handed::Invalid);
        };
        // A webhook gets only notifications of its own task.
        if event.task_id().is_some_and(|told| *told != task_id) {
            return Ok(Handed::Invalid);
        }
        let said = if came == version {
            Said::AsItCame(body)
        } else {
            self.translated(version, event, &task_id).await?
        };
        let made;
        let delivery = match text(notification::ID) {
            Some(delivery) => delivery,
            None => {
                made = random::<16>()?;
                &made
            }
        };
        let onward = Onward { delivery, task_id: &task_id, version, said };
        Ok(match push.hand_on(to, options, onward).await {
            Ok(answer) if answer.status.is_success() => Handed::Taken,
            Ok(answer) if answer.retry_after.is_some() => Handed::NotTaken(StatusCode::SERVICE_UNAVAILABLE),
            Ok(_) => Handed::NotTaken(StatusCode::BAD_GATEWAY),
            Err(Failure::Blocked(why) | Failure::Failed(_, why)) => {
                tracing::info!(agent = &*self.name, %why, "a receiver did not accept a notification");
                Handed::NotTaken(StatusCode::BAD_GATEWAY)
            }
        })
    }

    /// The event in the receiver's version. In 0.3 notifications are whole tasks, so the task is fetched.
    async fn translated(&self, version: Version, event: Event, task_id: &TaskId) -> Result<Said> {
        if version == Version::V1_0 || matches!(event, Event::Task(_)) {
            return Ok(Said::Event(Box::new(event)));
        }
        let interfaces = self.interfaces()?;
        let req = GetTaskRequest { id: task_id.clone(), ..GetTaskRequest::default() };
        match self.ask(&interfaces, &CallContext::new(version), Call::GetTask(Box::new(req))).await? {
            Reply::Task(task) => Ok(Said::Event(Box::new(Event::Task(task)))),
            _ => Err(unexpected("GetTask")),
        }
    }
}

/// A webhook that was found by its URL.
pub(crate) struct Opened(Record);

impl Opened {
    /// Finds the webhook of a URL that ends with `id.secret`. The request is not authenticated otherwise,
    /// so the same work is done whether or not agent and webhook exist: the time reveals nothing.
    ///
    /// # Errors
    /// The store is unavailable.
    pub(crate) async fn by(store: &dyn Records, agent: &str, address: &str) -> Result<Option<Self>> {
        let (id, secret) = address.split_once('.').unwrap_or((address, ""));
        let record = store.record(WEBHOOK, &format!("{agent}/{id}")).await?;
        let mapping =
            record.as_ref().and_then(|record| serde_json::from_slice::<Mapping>(&record.value).ok());
        let opens = mapping.map_or_else(|| NO_DIGEST.to_owned(), |mapping| mapping.opens);
        let shown = hash(secret.as_bytes());
        let is_it = constant_time::verify_slices_are_equal(shown.as_bytes(), opens.as_bytes()).is_ok();
        Ok(record.filter(|_| is_it).map(Self))
    }
}

/// The id of a config without one. In 0.3 such a config can also be requested without an id.
fn name(version: Version, task: &TaskId) -> PushConfigId {
    match version {
        Version::V1_0 => random::<16>().unwrap_or_default().into(),
        Version::V0_3 => task.as_str().into(),
    }
}

fn no_webhook(id: &PushConfigId) -> Error {
    Error::new(ErrorKind::TaskNotFound, format!("there is no push notification configuration {id}"))
}

/// `N` random bytes from the secure generator, encoded for a URL.
fn random<const N: usize>() -> Result<String> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(Error::internal)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
