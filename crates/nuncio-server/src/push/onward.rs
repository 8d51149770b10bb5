//! Notifications from a remote agent that are forwarded to a caller's webhook. They are not stored: either
//! the receiver accepts them now, or the remote agent gets an error and may send them again.

use bytes::Bytes;
use nuncio_protocol::{Error, Event, Result, TaskId, TaskPushNotificationConfig, Version};
use url::Url;

use super::{
    Push, PushOptions,
    config::{self, Config},
    courier::{Failure, ReceiverResponse},
    payload::NotificationBody,
    request::{Attempted, Request},
};
use crate::store::FailureCause;

/// A notification to forward.
#[derive(Debug)]
pub struct Onward<'a> {
    /// The delivery's id, the same for each attempt.
    pub delivery: &'a str,
    /// The task of the notification.
    pub task_id: &'a TaskId,
    /// The version of the receiver.
    pub version: Version,
    /// The content.
    pub said: Said,
}

/// The content of a forwarded notification.
#[derive(Debug)]
pub enum Said {
    /// The original body, because the sender uses the version of the receiver.
    AsItCame(Bytes),
    /// An event, to be encoded in the receiver's version; v0.3 can only express tasks.
    Event(Box<Event>),
}

impl Push {
    /// Validates and seals a caller's config, bound to the context `place`. `field` is the path of the config
    /// in the request, for error messages.
    ///
    /// # Errors
    /// `InvalidParams` with the invalid field.
    pub fn confide(&self, place: &str, given: &TaskPushNotificationConfig, field: &str) -> Result<String> {
        config::check(&*self.engine.courier, given, field)?;
        let text = serde_json::to_string(given).map_err(Error::internal)?;
        self.engine.vault.seal(place, &text)
    }

    /// Unseals a config that was sealed for the context `place`; `None` if our key cannot open it.
    #[must_use]
    pub fn recall(&self, place: &str, sealed: &str) -> Option<TaskPushNotificationConfig> {
        serde_json::from_str(&self.engine.vault.open(place, sealed)?).ok()
    }

    /// Forwards a notification and waits for the receiver's response.
    ///
    /// # Errors
    /// There was no response.
    pub async fn hand_on(
        &self,
        to: TaskPushNotificationConfig,
        options: &PushOptions,
        onward: Onward<'_>,
    ) -> std::result::Result<ReceiverResponse, Failure> {
        let Onward { delivery, task_id, version, said } = onward;
        let failed = |why: &str| Failure::Failed(FailureCause::Internal, why.into());
        let payload = match said {
            Said::AsItCame(body) => Some(NotificationBody {
                content_type: NotificationBody::content_type(version),
                body: body.into(),
            }),
            Said::Event(event) => NotificationBody::of(version, *event),
        };
        let payload = payload.ok_or_else(|| failed("the receiver's version has no such event"))?;
        let url = Url::parse(&to.url).map_err(|_| failed("the URL of the receiver is invalid"))?;
        let config = Config { url, given: to, version, trace: None };
        let engine = &self.engine;
        let attempted = Attempted { delivery, task_id, attempt: 1, now: engine.now() };
        let request = Request::new(&config, payload, &attempted, options.sign.as_ref(), engine.sign.as_ref());
        engine.courier.post(&config.url, request.headers, request.body, engine.deadline).await
    }
}
