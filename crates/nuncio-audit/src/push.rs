//! Webhooks: a receiver on this machine, and the record of a task that reports to it.

mod receiver;

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use nuncio_protocol::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, ErrorKind,
    GetTaskPushNotificationConfigRequest, PushConfigId, SendMessageRequest, TaskId,
    TaskPushNotificationConfig, Version,
    op::{Call, Op},
};
use tokio::time::Instant;
use url::Url;

pub(crate) use self::receiver::{Delivery, Receiver, is_repeated};
use crate::{
    answer::{Answer, Typed},
    conversation::{message, send},
    probe::{Probe, UNKNOWN_WEBHOOK, on_task},
};

/// The credentials that a notification has to carry.
pub(crate) const SCHEME: &str = "Bearer";
pub(crate) const CREDENTIALS: &str = "nuncio-audit-webhook";
/// The token of a webhook.
const TOKEN: &str = "nuncio-audit-token";
/// The longest wait for a notification.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// A private address that nobody has.
const PRIVATE: &str = "http://10.255.255.1:8080/nuncio-audit";

/// The record of webhooks over one interface.
#[derive(Debug, Default)]
pub(crate) struct PushSeen {
    pub(crate) calls: BTreeMap<&'static str, Answer>,
    /// The notifications that arrived, in their order.
    pub(crate) deliveries: Vec<Delivery>,
    /// The task.
    pub(crate) task: Option<TaskId>,
    /// The message could not be sent, or not with a webhook.
    pub(crate) refusal: Option<String>,
    /// True if the task had ended when the wait for notifications was over.
    pub(crate) has_ended: bool,
}

impl PushSeen {
    /// Sends one message with a webhook, reads, lists and deletes webhooks of its task.
    pub(crate) async fn watch(probe: &Probe<'_>, text: &str, receiver: &Receiver) -> Self {
        let mut seen = Self::default();
        let url = receiver.url();
        let mut request = send(message(text), true);
        inline(&mut request, &url);
        let sent = seen.send(probe, request).await;
        seen.calls.insert("sent", sent);
        let Some(task) = seen.calls.get("sent").and_then(|answer| answer.task().map(|task| task.id.clone()))
        else {
            seen.refusal = seen.calls.get("sent").map(Answer::shown);
            return seen;
        };
        seen.task = Some(task.clone());
        seen.manage(probe, &task, &receiver.url()).await;
        let by = Instant::now() + MAX_WAIT.min(probe.session.message_timeout);
        // Only 1.0 has a check of repeated notifications; those of 0.3 have the task as it is at that time.
        let is_repeat_awaited = probe.interface.version == Version::V1_0;
        let are_enough = |arrived: &[Delivery]| match is_repeat_awaited {
            true => is_repeated(arrived),
            false => !arrived.is_empty(),
        };
        seen.deliveries = receiver.collect(&url, by, are_enough).await;
        let get = probe.call(on_task(Op::GetTask, task.as_str())).await;
        seen.has_ended =
            get.is_ok_and(|answer| answer.task().is_some_and(|task| task.status.state.is_terminal()));
        seen
    }

    async fn send(&mut self, probe: &Probe<'_>, request: SendMessageRequest) -> Answer {
        probe.session.messages.fetch_add(1, Ordering::Relaxed);
        match probe.request(Call::SendMessage(Box::new(request))) {
            Ok(request) => {
                let exchange = probe.session.send_within(request, probe.session.message_timeout).await;
                Answer::read(probe.interface, Op::SendMessage, exchange)
            }
            Err(_) => probe.answer(Op::SendMessage, probe.interface.post(Op::SendMessage)).await,
        }
    }

    /// Creates, reads, lists and deletes a second webhook of the task.
    async fn manage(&mut self, probe: &Probe<'_>, task: &TaskId, url: &Url) {
        let mut config = config(Some(task.clone()), url.as_str());
        // Agents of 0.3 keep one webhook without an id per task, which is that of the message already.
        config.id = (probe.interface.version == Version::V0_3).then(|| PushConfigId::from("nuncio-audit"));
        self.ask(probe, "create", Call::CreateTaskPushNotificationConfig(Box::new(config))).await;
        let private = TaskPushNotificationConfig {
            task_id: Some(task.clone()),
            url: PRIVATE.to_owned(),
            ..TaskPushNotificationConfig::default()
        };
        self.ask(probe, "private", Call::CreateTaskPushNotificationConfig(Box::new(private))).await;
        if let Some(id) = self.calls.get("create").and_then(created).and_then(|config| config.id.clone()) {
            let get = |id: PushConfigId| {
                let request =
                    GetTaskPushNotificationConfigRequest { task_id: task.clone(), id, ..Default::default() };
                Call::GetTaskPushNotificationConfig(Box::new(request))
            };
            let delete = |id: PushConfigId| {
                let request = DeleteTaskPushNotificationConfigRequest {
                    task_id: task.clone(),
                    id,
                    ..Default::default()
                };
                Call::DeleteTaskPushNotificationConfig(Box::new(request))
            };
            self.ask(probe, "get", get(id.clone())).await;
            self.ask(probe, "get-unknown", get(PushConfigId::from(UNKNOWN_WEBHOOK))).await;
            self.ask(probe, "list", on_task(Op::ListTaskPushNotificationConfigs, task.as_str())).await;
            self.ask(probe, "delete", delete(id.clone())).await;
            self.ask(probe, "delete-again", delete(id.clone())).await;
            self.ask(probe, "get-deleted", get(id)).await;
        }
        if let Some(id) = self.calls.get("private").and_then(created).and_then(|config| config.id.clone()) {
            let request =
                DeleteTaskPushNotificationConfigRequest { task_id: task.clone(), id, ..Default::default() };
            self.ask(probe, "private-deleted", Call::DeleteTaskPushNotificationConfig(Box::new(request)))
                .await;
        }
    }

    async fn ask(&mut self, probe: &Probe<'_>, name: &'static str, call: Call) {
        let op = call.op();
        let Ok(request) = probe.request(call) else { return };
        let answer = probe.answer(op, request).await;
        self.calls.insert(name, answer);
    }

    /// True if the agent refuses webhooks at the address of the receiver.
    pub(crate) fn is_address_refused(&self) -> bool {
        let sent = self.calls.get("sent").and_then(Answer::error);
        sent.is_some_and(|refusal| refusal.kind == ErrorKind::InvalidParams)
    }
}

/// The webhook in an answer.
pub(crate) fn created(answer: &Answer) -> Option<&TaskPushNotificationConfig> {
    match answer.success()?.typed.as_ref().ok()? {
        Typed::PushConfig(config) => Some(config),
        _ => None,
    }
}

fn config(task_id: Option<TaskId>, url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        task_id,
        url: url.to_owned(),
        token: Some(TOKEN.to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: SCHEME.to_owned(),
            credentials: Some(CREDENTIALS.to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    }
}

/// Puts the webhook into the configuration of a send.
fn inline(request: &mut SendMessageRequest, url: &Url) {
    let configuration = request.configuration.get_or_insert_default();
    configuration.task_push_notification_config = Some(config(None, url.as_str()));
}
