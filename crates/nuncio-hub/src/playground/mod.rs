//! The playground: messages that an operator sends to an agent, to see what it says.
//!
//! Reading order: [`NewTrial`] is a message with its target, `interface` finds the interface that is called, `exchange`
//! makes the call and reads the answer, `trial` keeps the frames with the task that follows from them. A trial lives in
//! memory, and the oldest ones go first.
//!
//! An agent of the hub is called in the process, as the principal `operator`. Another agent is called by its
//! card, over the guarded way out.

mod exchange;
mod interface;
mod trial;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use nuncio_client::{Credentials, Egress};
use nuncio_protocol::{
    Binding, Caller, CancelTaskRequest, Message, SendMessageConfiguration, SendMessageRequest,
    TaskPushNotificationConfig, Version,
    op::{Call, Op},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::Url;

pub(crate) use self::trial::{Direction, Trial, TrialFrame, TrialState};
use self::{
    exchange::Exchange,
    interface::{Found, find},
    trial::notified,
};
use crate::{events::EventLog, fleet::Fleet, push_receiver::PushReceiver, routes::RouteTable};

/// The principal of all trials.
pub(crate) const PRINCIPAL: &str = "operator";
/// Maximum number of trials that are kept.
const MAX_KEPT: usize = 20;
/// Maximum number of trials that run at a time.
const MAX_RUNNING: usize = 8;
/// The longest time of a trial.
const MAX_TIME: Duration = Duration::from_secs(600);
/// The time for the answer to a cancel.
const CANCEL_TIME: Duration = Duration::from_secs(30);

/// The agent of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrialTarget {
    /// An agent of the hub, by its name.
    Agent(String),
    /// The address of an agent elsewhere, or of its card.
    Card(Url),
}

/// The time of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerMode {
    /// A stream of events.
    Stream,
    /// One answer, when the task has ended or waits.
    Wait,
    /// One answer, as soon as there is a task.
    AtOnce,
}

/// A message to send.
pub(crate) struct NewTrial {
    pub(crate) target: TrialTarget,
    pub(crate) version: Option<Version>,
    pub(crate) binding: Option<Binding>,
    pub(crate) mode: AnswerMode,
    pub(crate) message: Message,
    pub(crate) extensions: Vec<String>,
    /// Ask for notifications, which the built-in receiver takes.
    pub(crate) pushes: bool,
    /// Credentials for an agent elsewhere.
    pub(crate) credentials: Credentials,
    /// The message and its target as the operator gave them, without credentials, to show and to repeat them.
    pub(crate) given: Value,
}

/// The reason why a trial was not begun.
#[derive(Debug)]
pub(crate) enum TrialRefusal {
    /// There is no such agent of the hub.
    NoAgent(String),
    /// The target, the interface or the message cannot be used as asked.
    Invalid(String),
    /// The card of the agent cannot be had.
    Unavailable(String),
}

/// The trials of a hub.
pub(crate) struct Playground {
    exchange: Exchange,
    fleet: Arc<Fleet>,
    receiver: PushReceiver,
    events: Arc<EventLog>,
    trials: Mutex<VecDeque<Arc<Trial>>>,
    running: Arc<Semaphore>,
}

impl Playground {
    /// `base` is the address of the hub as callers see it.
    pub(crate) fn new(
        routes: Arc<RouteTable>,
        fleet: Arc<Fleet>,
        egress: Egress,
        receiver: PushReceiver,
        events: Arc<EventLog>,
        base: Url,
    ) -> Self {
        let exchange = Exchange::new(routes, egress, base, Caller::authenticated(PRINCIPAL));
        let running = Arc::new(Semaphore::new(MAX_RUNNING));
        Self { exchange, fleet, receiver, events, trials: Mutex::default(), running }
    }

    /// The trials, latest first.
    pub(crate) fn all(&self) -> Vec<Arc<Trial>> {
        self.trials.lock().iter().cloned().collect()
    }

    /// The trial with this id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Trial>> {
        self.trials.lock().iter().find(|trial| trial.id == id).cloned()
    }

    /// Sends a message. The trial goes on when this returns.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn send(&self, new: NewTrial) -> Result<Arc<Trial>, TrialRefusal> {
        let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() else {
            let why = format!("{MAX_RUNNING} trials are running; wait for one to end, or cancel it");
            return Err(TrialRefusal::Unavailable(why));
        };
        let NewTrial { target, version, binding, mode, message, extensions, pushes, credentials, given } =
            new;
        let found =
            find(&self.fleet, &self.exchange, &target, version, binding, &extensions, credentials).await?;
        let Found { interface, home, credentials } = found;
        let trial =
            Arc::new(Trial::new(target, interface, home, credentials, given, Arc::clone(&self.events)));
        let config = pushes.then(|| {
            let weak = Arc::downgrade(&trial);
            let inbox = self.receiver.open(Box::new(move |notification| {
                if let Some(trial) = weak.upgrade() {
                    notified(&trial, &notification);
                }
            }));
            let config = TaskPushNotificationConfig {
                url: inbox.url.clone(),
                ..TaskPushNotificationConfig::default()
            };
            trial.hold(inbox);
            config
        });
        let configuration = SendMessageConfiguration {
            task_push_notification_config: config,
            return_immediately: mode == AnswerMode::AtOnce,
            ..SendMessageConfiguration::default()
        };
        let has_options = configuration != SendMessageConfiguration::default();
        let request = SendMessageRequest {
            message,
            configuration: has_options.then_some(configuration),
            ..SendMessageRequest::default()
        };
        let (op, call) = match mode {
            AnswerMode::Stream => (Op::SendStreamingMessage, Call::SendStreamingMessage(Box::new(request))),
            AnswerMode::Wait | AnswerMode::AtOnce => (Op::SendMessage, Call::SendMessage(Box::new(request))),
        };
        let request = trial.interface.request(call);
        let request = request.map_err(|error| TrialRefusal::Invalid(error.message().to_owned()))?;
        self.keep(&trial);
        let (exchange, running) = (self.exchange.clone(), Arc::clone(&trial));
        tokio::spawn(async move {
            let work = tokio::time::timeout(MAX_TIME, exchange.run(&running, op, request));
            match running.stop.run_until_cancelled(work).await {
                Some(Ok(())) => running.end(None),
                Some(Err(_)) => {
                    running.end(Some(format!("the trial was ended after {} s", MAX_TIME.as_secs())))
                }
                None => running.end(Some("the connection was closed: the trial was canceled".to_owned())),
            }
            drop(permit);
        });
        Ok(trial)
    }

    /// Cancels the task of a trial; without one, its connection is closed.
    pub(crate) async fn cancel(&self, trial: &Arc<Trial>) {
        let Some(task) = trial.task_id() else { return trial.stop.cancel() };
        let call = Call::CancelTask(Box::new(CancelTaskRequest { id: task, ..CancelTaskRequest::default() }));
        match trial.interface.request(call) {
            Ok(request) => {
                let work = self.exchange.run(trial, Op::CancelTask, request);
                if tokio::time::timeout(CANCEL_TIME, work).await.is_err() {
                    trial.stop.cancel();
                }
            }
            Err(_) => trial.stop.cancel(),
        }
    }

    fn keep(&self, trial: &Arc<Trial>) {
        let mut trials = self.trials.lock();
        trials.push_front(Arc::clone(trial));
        // A trial that runs is ended with its frames.
        while trials.len() > MAX_KEPT {
            if let Some(old) = trials.pop_back() {
                old.stop.cancel();
            }
        }
    }
}
