//! A courier with scripted receivers, and an agent that delivers through it. Meant for paused time, which the
//! clock of the push engine follows.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use nuncio_protocol::{CallContext, SendMessageRequest, TaskPushNotificationConfig, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use url::Url;

use super::{FailingStore, Harness, Say, card};
use crate::{
    Executor, Runtime, RuntimeBuilder,
    push::{Courier, Failure, Push, PushBuilder, ReceiverResponse, RootKey},
    store::FailureCause,
};

/// The reaction of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Answers with this status.
    Status(u16),
    /// Answers with this status and a `Retry-After` of so many seconds.
    Later(u16, u64),
    /// Answers with this status, after so many seconds.
    Slow(u16, u64),
    /// Cannot be reached.
    Away,
    /// Has an address that the egress rules forbid.
    Forbidden,
    /// Accepts the request and never answers.
    Hang,
}

/// A request that was posted.
#[derive(Clone, Debug)]
pub struct Post {
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Value,
    /// The time, in seconds since the courier was made.
    pub at: u64,
}

impl Post {
    /// The value of a header; empty if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

type React = Box<dyn Fn(&Post) -> Reaction + Send + Sync>;

/// A courier that sends nothing and keeps the requests. Cheap to clone; clones share the requests.
#[derive(Clone)]
pub struct ScriptedCourier(Arc<Inner>);

struct Inner {
    posts: Mutex<Vec<Post>>,
    posted: Notify,
    react: Mutex<React>,
    began: Instant,
}

impl fmt::Debug for ScriptedCourier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedCourier").finish_non_exhaustive()
    }
}

impl ScriptedCourier {
    /// A courier with receivers that react by this function.
    pub fn new(react: impl Fn(&Post) -> Reaction + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            posts: Mutex::default(),
            posted: Notify::new(),
            react: Mutex::new(Box::new(react)),
            began: Instant::now(),
        }))
    }

    /// Replaces the reaction of the receivers.
    pub fn now(&self, react: impl Fn(&Post) -> Reaction + Send + Sync + 'static) {
        *self.0.react.lock() = Box::new(react);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Post>> {
        self.0.posts.lock()
    }

    /// All requests so far, answered or not.
    #[must_use]
    pub fn posts(&self) -> Vec<Post> {
        self.lock().clone()
    }

    /// Waits for so many requests and a little longer, so that an unwanted further one would show.
    pub async fn until(&self, posts: usize) -> Vec<Post> {
        loop {
            let posted = self.0.posted.notified();
            if self.lock().len() >= posts {
                break;
            }
            posted.await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.posts()
    }
}

#[async_trait]
impl Courier for ScriptedCourier {
    fn check(&self, url: &Url) -> Result<(), String> {
        if url.scheme() == "http" { Ok(()) } else { Err("only http here".to_owned()) }
    }

    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<ReceiverResponse, Failure> {
        let at = self.0.began.elapsed().as_secs();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let post = Post { url: url.to_string(), headers, body, at };
        let reaction = (self.0.react.lock())(&post);
        self.lock().push(post);
        self.0.posted.notify_waiters();
        let answer = |status: u16, retry_after| ReceiverResponse {
            status: StatusCode::from_u16(status).unwrap_or_default(),
            retry_after,
            excerpt: format!("says {status}"),
        };
        match reaction {
            Reaction::Status(status) => Ok(answer(status, None)),
            Reaction::Later(status, seconds) => Ok(answer(status, Some(Duration::from_secs(seconds)))),
            Reaction::Slow(status, seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(answer(status, None))
            }
            Reaction::Away => Err(Failure::Failed(FailureCause::Connect, "connection refused".into())),
            Reaction::Forbidden => Err(Failure::Blocked("a private address".into())),
            Reaction::Hang => {
                tokio::time::sleep(deadline).await;
                Err(Failure::Failed(FailureCause::Timeout, "no answer in time".into()))
            }
        }
    }
}

impl Harness {
    /// An agent that delivers to webhooks through this courier.
    ///
    /// # Panics
    /// If the key is refused.
    pub fn pushing(
        executor: impl Executor,
        store: impl Into<FailingStore>,
        courier: &ScriptedCourier,
        engine: impl FnOnce(PushBuilder) -> PushBuilder,
        build: impl FnOnce(RuntimeBuilder, &Push) -> RuntimeBuilder,
    ) -> (Self, Push) {
        let store = Arc::new(store.into());
        let (began, base) = (Instant::now(), crate::clock::now());
        let clock = move || {
            let passed = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(base.as_millis() + passed).unwrap_or(base)
        };
        let push =
            Push::builder(Arc::clone(&store) as _, courier.clone(), RootKey::new([7; 32])).clock(clock);
        #[expect(clippy::expect_used, reason = "for tests")]
        let push = engine(push).build().expect("a key");
        let runtime = build(Runtime::builder(card(), executor).store(Arc::clone(&store) as _), &push).build();
        (Self { runtime, store, cx: CallContext::default() }, push)
    }
}

impl Say {
    /// Adds a webhook.
    #[must_use]
    pub fn push(self, url: &str) -> Self {
        self.push_by(TaskPushNotificationConfig { url: url.to_owned(), ..Default::default() })
    }

    /// Adds a webhook with this configuration.
    #[must_use]
    pub fn push_by(self, config: TaskPushNotificationConfig) -> Self {
        self.change(|request: &mut SendMessageRequest| {
            request.configuration.get_or_insert_default().task_push_notification_config = Some(config);
        })
    }
}
