//! Notifications of somebody else that are handed on to a webhook. Nothing of them is kept: they arrive now, or
//! whoever sent them is told that they did not.

use bytes::Bytes;
use nuncio_protocol::{Error, Event, Result, TaskId, TaskPushNotificationConfig, Version};
use url::Url;

use super::{
    Push, PushOptions,
    config::{self, Config},
    courier::{Answer, Failure},
    payload::Payload,
    request::{Attempted, Request},
};

/// A notification.
#[derive(Debug)]
pub struct Onward<'a> {
    /// The same each time it is tried.
    pub delivery: &'a str,
    /// The task it is about.
    pub task_id: &'a TaskId,
    /// The version of its receiver.
    pub version: Version,
    /// What it says.
    pub said: Said,
}

/// What a notification says.
#[derive(Debug)]
pub enum Said {
    /// As it came, since it came in the version of its receiver.
    AsItCame(Bytes),
    /// This; a receiver of the older version is told of tasks only.
    Event(Box<Event>),
}

impl Push {
    /// Seals what a caller gave, for this place, if it is one that notifications may go to. `field` is where in the
    /// request it stands.
    ///
    /// # Errors
    /// `InvalidParams` that names what is wrong.
    pub fn confide(&self, place: &str, given: &TaskPushNotificationConfig, field: &str) -> Result<String> {
        config::check(&*self.engine.courier, given, field)?;
        let text = serde_json::to_string(given).map_err(Error::internal)?;
        self.engine.vault.seal(place, &text)
    }

    /// What was sealed for this place; `None` if it cannot be read with our key.
    #[must_use]
    pub fn recall(&self, place: &str, sealed: &str) -> Option<TaskPushNotificationConfig> {
        serde_json::from_str(&self.engine.vault.open(place, sealed)?).ok()
    }

    /// LeaseTable a notification on and waits for what its receiver says.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn hand_on(
        &self,
        to: TaskPushNotificationConfig,
        options: &PushOptions,
        onward: Onward<'_>,
    ) -> std::result::Result<Answer, Failure> {
        let Onward { delivery, task_id, version, said } = onward;
        let failed = |why: &str| Failure::Failed(why.into());
        let payload = match said {
            Said::AsItCame(body) => {
                Some(Payload { content_type: Payload::content_type(version), body: body.into() })
            }
            Said::Event(event) => Payload::of(version, *event),
        };
        let payload = payload.ok_or_else(|| failed("it cannot be said in the receiver's version"))?;
        let url = Url::parse(&to.url).map_err(|_| failed("the address of the receiver cannot be read"))?;
        let config = Config { url, given: to, version, trace: None };
        let engine = &self.engine;
        let attempted = Attempted { delivery, task_id, attempt: 1, now: engine.now() };
        let request = Request::new(&config, payload, &attempted, options.sign.as_ref(), engine.sign.as_ref());
        engine.courier.post(&config.url, request.headers, request.body, engine.deadline).await
    }
}
