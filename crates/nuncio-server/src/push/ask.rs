//! Deliveries that ask for an answer: the messages of agents that have only a webhook. The caller keeps them, repeats
//! them and decides about their answers; the engine signs, guards, and leaves a receiver alone that fails or is paused.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, header};
use nuncio_protocol::{
    Event, Task, TaskPushNotificationConfig, Timestamp, TraceContext, Version, retry::Backoff,
};
use url::Url;

use super::{
    Push, PushOptions,
    config::Config,
    courier::{Courier, Failure, ReceiverAnswer},
    payload::{Dialect, NotificationBody},
    request::{Attempted, Request},
    schedule,
};
use crate::store::FailureCause;

/// The pause of a delivery to a receiver that an operator has paused, between two looks.
const PAUSED_INTERVAL: Duration = Duration::from_secs(10);

/// A task that is delivered, with the question that its last message asks.
#[expect(missing_debug_implementations, reason = "a courier cannot be printed")]
pub struct Ask<'a> {
    /// The id of the delivery.
    pub delivery: &'a str,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The address of the receiver.
    pub url: &'a Url,
    /// The version of the body.
    pub version: Version,
    /// The content.
    pub task: Task,
    /// More headers; those of the engine win.
    pub headers: HeaderMap,
    /// The trace that the delivery belongs to.
    pub trace: Option<TraceContext>,
    /// The courier for an address of the operator's; `None`: that of the engine, which guards.
    pub courier: Option<&'a dyn Courier>,
    /// The time within which the whole answer must arrive.
    pub deadline: Duration,
    /// The maximum size of an answer.
    pub max_body: usize,
}

/// The reason for a missing answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// Nothing was sent: the receiver fails, or is paused. Not before this time.
    Later(Timestamp),
    /// There was no response.
    Failure(Failure),
}

impl Push {
    /// Delivers a task and waits for the receiver's answer. A receiver that fails repeatedly is left alone for a while.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn ask(&self, options: &PushOptions, ask: Ask<'_>) -> Result<ReceiverAnswer, NoAnswer> {
        let engine = &self.engine;
        let url: Arc<str> = ask.url.as_str().into();
        let target = target(ask.url);
        if engine.paused.has(&target) {
            return Err(NoAnswer::Later(engine.now() + PAUSED_INTERVAL));
        }
        engine.breakers().check(&url, engine.now(), ask.deadline).map_err(NoAnswer::Later)?;
        let task_id = ask.task.id.clone();
        let event = Event::Task(ask.task);
        let body = NotificationBody::of_dialect(ask.version, options.dialect, ask.delivery, event);
        let Some(body) = body else {
            let why = "the task cannot be encoded in the receiver's version".into();
            return Err(NoAnswer::Failure(Failure::Failed(FailureCause::Internal, why)));
        };
        let given = TaskPushNotificationConfig { url: ask.url.to_string(), ..Default::default() };
        let config = Config { url: ask.url.clone(), given, version: ask.version, trace: ask.trace };
        let (delivery, attempt) = (ask.delivery, ask.attempt);
        let attempted = Attempted { delivery, task_id: &task_id, attempt, now: engine.now() };
        let request = Request::new(&config, body, &attempted, options.sign.as_ref(), engine.sign.as_ref());
        let mut headers = ask.headers;
        // It is chosen with the body, so what the caller says of it is wrong.
        headers.remove(header::CONTENT_TYPE);
        headers.extend(request.headers);
        let courier = ask.courier.unwrap_or(&*engine.courier);
        let answered = courier.ask(ask.url, headers, request.body, ask.deadline, ask.max_body).await;
        let response = match &answered {
            Ok(answer) => Ok(answer.response.clone()),
            Err(failure) => Err(failure.clone()),
        };
        if schedule::is_trouble(&response) {
            engine.breakers().failed(&url, engine.now());
        } else {
            engine.breakers().well(&url);
        }
        answered.map_err(NoAnswer::Failure)
    }

    /// The pause after so many failed attempts: it doubles, with some jitter.
    #[must_use]
    pub fn pause_after(&self, failures: u32) -> Duration {
        let retry = self.engine.retry;
        let backoff = Backoff::doubling(retry.first, retry.max_pause);
        backoff.jittered(failures.saturating_sub(1), 0.8..=1.2, rand::random())
    }

    /// Checks an address of a receiver that a caller has given against the rules for outgoing requests.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check_receiver(&self, url: &Url) -> Result<(), String> {
        self.engine.courier.check(url)
    }

    /// Runs `work` in such a way that [`Self::drain`] waits for it, as it does for deliveries.
    pub fn spawn<F>(&self, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let over = self.engine.over.clone();
        self.running.spawn(async move {
            over.run_until_cancelled(work).await;
        });
    }
}

/// Host and port of a receiver, by which operators pause it.
fn target(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0))
}

impl NotificationBody {
    /// Encodes an event that is in no store, in the format of the receiver. `None` for an event that the format cannot
    /// express.
    fn of_dialect(version: Version, dialect: Dialect, delivery: &str, event: Event) -> Option<Self> {
        match (version, dialect) {
            (Version::V0_3, Dialect::NeuralPost) => Self::in_envelope(delivery, &event).ok(),
            (Version::V0_3, Dialect::Standard) | (Version::V1_0, _) => Self::of(version, event),
        }
    }
}
