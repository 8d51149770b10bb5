//! The operations on push notification configs (spec 3.1.7 to 3.1.10), and the configs that come with a
//! message.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nuncio_protocol::{
    CallContext, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, PushConfigId, Result, SendMessageConfiguration, TaskId,
    TaskPushNotificationConfig,
};

use super::Core;
use crate::{
    clock::now,
    push::AgentPush,
    store::{MAX_WEBHOOKS, Refused, Scope, Webhook},
};

impl Core {
    /// The webhooks of the agent. Without them every such operation is refused, before the task is looked up
    /// (REQ-153).
    pub(super) fn push(&self) -> Result<&AgentPush> {
        self.push.as_deref().ok_or_else(|| ErrorKind::PushNotificationNotSupported.into())
    }

    /// Takes the config out of a message's configuration and seals it for storage. It must not go further,
    /// because it holds secrets.
    pub(super) fn inline_webhook(
        &self,
        cx: &CallContext,
        id: &TaskId,
        configuration: &mut Option<SendMessageConfiguration>,
    ) -> Result<Option<Webhook>> {
        let given = configuration.as_mut().and_then(|all| all.task_push_notification_config.take());
        let Some(given) = given else { return Ok(None) };
        let (webhook, _) = self.push()?.seal(cx, id, given, "configuration.taskPushNotificationConfig.")?;
        Ok(Some(webhook))
    }

    /// Refuses another webhook if the task has reached the maximum.
    pub(super) async fn check_webhooks(
        &self,
        scope: &Arc<Scope>,
        id: &TaskId,
        webhook: &Webhook,
    ) -> Result<()> {
        let known = self.store.webhooks(scope, id, None, MAX_WEBHOOKS).await?.unwrap_or_default();
        if known.len() >= MAX_WEBHOOKS && known.iter().all(|known| known.id != webhook.id) {
            return Err(too_many());
        }
        Ok(())
    }

    pub(super) async fn create_webhook(
        &self,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut given: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig> {
        let push = self.push()?;
        let id = given.task_id.take().unwrap_or_default();
        // A task of another caller is not found. This is checked first, so that no other error reveals the
        // task.
        self.check_task(scope, &id).await?;
        let (webhook, told) = push.seal(cx, &id, given, "")?;
        self.register(scope, &id, webhook).await?;
        Ok(told)
    }

    /// Registers a webhook of an existing task.
    pub(super) async fn register(&self, scope: &Arc<Scope>, id: &TaskId, webhook: Webhook) -> Result<()> {
        let config = webhook.id.clone();
        match self.store.put_webhook(scope, id, webhook, now()).await? {
            Ok(()) => {}
            Err(Refused::Full) => return Err(too_many()),
            Err(_) => return Err(Error::task_not_found(id)),
        }
        self.owe_from_now_on(scope, id).await?;
        self.replaced(scope, id, &config).await;
        self.push()?.wake();
        Ok(())
    }

    /// Marks the live task as one with webhooks, so that events from now on are delivered. Earlier events are
    /// not, so they are committed when this returns: a caller that then reads the task sees them.
    async fn owe_from_now_on(&self, scope: &Arc<Scope>, id: &TaskId) -> Result<()> {
        // A task that becomes live later reads from the store that it has webhooks.
        let Some(live) = self.registry.get(scope, id) else { return Ok(()) };
        let said = {
            let mut state = live.lock();
            state.pushes = true;
            state.folded().seq
        };
        match self.until_committed(&live, said).await {
            // The task was lost, or another server has it: there is nothing to wait for.
            Err(_) if live.lock().is_lost() => Ok(()),
            committed => committed,
        }
    }

    /// Stops the delivery that is under way to the old version of a webhook; it is attempted again with the
    /// new one.
    pub(super) async fn replaced(&self, scope: &Arc<Scope>, id: &TaskId, config: &PushConfigId) {
        // If the read fails, the worker uses the old version until its next pause.
        if let (Ok(push), Ok(Some(webhook))) = (self.push(), self.store.webhook(scope, id, config).await) {
            push.forget(&webhook.uid).await;
        }
    }

    pub(super) async fn get_webhook(
        &self,
        scope: &Arc<Scope>,
        req: &GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig> {
        let push = self.push()?;
        let webhook = self.store.webhook(scope, &req.task_id, &req.id).await?;
        // Trap T-19: the error says that the task is not found, and names the configuration in its metadata.
        let missing = || Error::task_not_found(&req.task_id).with_metadata("configId", req.id.as_str());
        push.open(&req.task_id, &webhook.ok_or_else(missing)?)
    }

    pub(super) async fn list_webhooks(
        &self,
        scope: &Arc<Scope>,
        req: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse> {
        let push = self.push()?;
        let after = req.page_token.as_deref().map(place).transpose()?;
        // A task has few webhooks: without a page size all are on one page.
        let size = usize::try_from(req.page_size).ok().filter(|size| *size > 0);
        let size = size.map_or(MAX_WEBHOOKS, |size| size.min(MAX_WEBHOOKS));
        let found = self.store.webhooks(scope, &req.task_id, after.as_ref(), size + 1).await?;
        let mut found = found.ok_or_else(|| Error::task_not_found(&req.task_id))?;
        let more = found.len() > size;
        found.truncate(size);
        let last = found.last().filter(|_| more);
        let next_page_token = last.map(|last| URL_SAFE_NO_PAD.encode(last.id.as_str())).unwrap_or_default();
        let configs = found.iter().map(|webhook| push.open(&req.task_id, webhook)).collect::<Result<_>>()?;
        Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token })
    }

    pub(super) async fn delete_webhook(
        &self,
        scope: &Arc<Scope>,
        req: &DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()> {
        let push = self.push()?;
        match self.store.delete_webhook(scope, &req.task_id, &req.id).await? {
            Ok(uid) => {
                if let Some(uid) = uid {
                    push.forget(&uid).await;
                }
                Ok(())
            }
            Err(_) => Err(Error::task_not_found(&req.task_id)),
        }
    }

    async fn check_task(&self, scope: &Arc<Scope>, id: &TaskId) -> Result<()> {
        let found = self.store.webhooks(scope, id, None, 0).await?;
        found.map(drop).ok_or_else(|| Error::task_not_found(id))
    }
}

fn too_many() -> Error {
    let why = format!("a task has at most {MAX_WEBHOOKS} push configurations; delete one first");
    Error::new(ErrorKind::ResourceExhausted, why)
}

/// Decodes a page token: the id of the last config of the page before. It is the caller's own list, so the
/// token is not encrypted.
fn place(token: &str) -> Result<PushConfigId> {
    let wrong = || Error::invalid_field("pageToken", "is not a token of this list; begin without one");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    String::from_utf8(bytes).map(PushConfigId::from).map_err(|_| wrong())
}
