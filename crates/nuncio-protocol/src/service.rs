//! The one trait of both sides: a server runtime implements it, a client transport implements it, and
//! so does a gateway between them.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Instant,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;

use crate::{
    AgentCard, Binding, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Event,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    ListTasksResponse, Result, SendMessageRequest, SendMessageResponse, Seq, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig, Version,
    op::{Call, Op, OpSet, Reply},
};

/// The extension by which a server says: streams resume after `Last-Event-ID`, and a send may be
/// repeated under its `Idempotency-Key`. Clients rely on either only where it is declared.
pub const RESUME_EXTENSION: &str = "https://nuncio.dev/a2a/resume/v1";

/// The header that carries [`CallContext::hops`], separated by commas.
pub const HOPS_HEADER: &str = "nuncio-hops";

/// The member of `tracestate` that carries them, separated by colons, past agents that hand on the trace and no
/// other header.
pub const HOPS_TRACE_KEY: &str = "nuncio";

/// The eleven operations of the specification, by its own names.
///
/// What implementors keep: an answer or an event shows only what is safely recorded; a task of
/// somebody else is not found; dropping a future or a stream never stops a task.
#[async_trait]
pub trait A2aService: Send + Sync + 'static {
    /// Says something to the agent and waits for the outcome (spec 3.1.1).
    async fn send_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<SendMessageResponse>;

    /// Says something to the agent and follows what happens (spec 3.1.2).
    async fn send_streaming_message(&self, cx: &CallContext, req: SendMessageRequest) -> Result<EventStream>;

    /// The task as it stands (spec 3.1.3).
    async fn get_task(&self, cx: &CallContext, req: GetTaskRequest) -> Result<Task>;

    /// The caller's tasks, newest status first (spec 3.1.4).
    async fn list_tasks(&self, cx: &CallContext, req: ListTasksRequest) -> Result<ListTasksResponse>;

    /// Ends a task (spec 3.1.5).
    async fn cancel_task(&self, cx: &CallContext, req: CancelTaskRequest) -> Result<Task>;

    /// Follows a task (spec 3.1.6).
    async fn subscribe_to_task(&self, cx: &CallContext, req: SubscribeToTaskRequest) -> Result<EventStream>;

    /// Registers a webhook (spec 3.1.7).
    async fn create_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig>;

    /// A webhook (spec 3.1.8).
    async fn get_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig>;

    /// The webhooks of a task (spec 3.1.9).
    async fn list_task_push_notification_configs(
        &self,
        cx: &CallContext,
        req: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse>;

    /// Removes a webhook; one that is gone already is no error (spec 3.1.10).
    async fn delete_task_push_notification_config(
        &self,
        cx: &CallContext,
        req: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<()>;

    /// The card for those who authenticate (spec 3.1.11).
    async fn get_extended_agent_card(
        &self,
        cx: &CallContext,
        req: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard>;

    /// Any of them, with its parameters. Whoever takes calls whole ([`Carrier`](crate::op::Carrier)) gets them as they
    /// are, unopened; for everybody else it is the operation that the call names.
    async fn call(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        call.dispatch(self, cx).await
    }
}

/// Who calls, and how: everything about a call that is not its parameters.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The version the caller speaks.
    pub version: Version,
    /// The binding that the call came by; `None` where it came by none.
    pub binding: Option<Binding>,
    /// The caller did not say its version: it was taken from what the method or the path proves.
    pub version_unsaid: bool,
    /// The caller said something for which there is no place in the parameters as we know them.
    pub said_more: bool,
    /// URIs of the extensions the caller declared.
    pub extensions: Vec<String>,
    /// Routing, where the binding carries it outside of the parameters.
    pub tenant: Option<String>,
    /// Who calls.
    pub caller: Caller,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// W3C trace context, handed on to whatever the call causes.
    pub trace: Option<TraceContext>,
    /// Resume a stream after this entry.
    pub last_event_id: Option<Seq>,
    /// A repeat of the same send has the same key.
    pub idempotency_key: Option<String>,
    /// Further headers (in gRPC: metadata) that a client sends along. What the protocol itself says comes
    /// before them. On a server there are none: what came with a call must not go out again with
    /// another by accident.
    pub headers: Headers,
    /// What came with the call and may be handed on, if somebody decides to; only on a server, and only headers
    /// that it was told to keep.
    pub received: Headers,
    /// The hubs that the call has come through, the first one first, so that it goes round in no circle.
    pub hops: Vec<String>,
}

impl CallContext {
    /// A call by nobody in particular in this version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            binding: None,
            version_unsaid: false,
            said_more: false,
            extensions: Vec::new(),
            tenant: None,
            caller: Caller::anonymous(),
            deadline: None,
            trace: None,
            last_event_id: None,
            idempotency_key: None,
            headers: Headers::default(),
            received: Headers::default(),
            hops: Vec::new(),
        }
    }

    /// True if the caller declared the extension. It is active if the agent declares it, too (spec 4.6).
    #[must_use]
    pub fn declares(&self, uri: &str) -> bool {
        self.extensions.iter().any(|declared| declared == uri)
    }
}

impl Default for CallContext {
    fn default() -> Self {
        Self::new(Version::V1_0)
    }
}

/// Headers by name, whatever its case, each with one value. Some are secrets, so none is printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Sets a header, in place of another of this name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.0.push((name, value.into()));
    }

    /// Names and values, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// Who calls, and what they may do. Tasks belong to the principal that made them, within its tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    principal: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    operations: OpSet,
}

impl Caller {
    /// Nobody in particular.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { principal: None, tenant: None, operations: OpSet::ALL }
    }

    /// Somebody who has proved it.
    pub fn authenticated(principal: impl Into<Arc<str>>) -> Self {
        Self { principal: Some(principal.into()), ..Self::anonymous() }
    }

    /// One who belongs to this tenant: tasks are kept apart from those of the same principal in others.
    #[must_use]
    pub fn of_tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// One who may do these and nothing else.
    #[must_use]
    pub fn limited_to(mut self, operations: OpSet) -> Self {
        self.operations = operations;
        self
    }

    /// The name under which this caller's tasks are kept; `None` for the anonymous caller.
    #[must_use]
    pub fn principal(&self) -> Option<&Arc<str>> {
        self.principal.as_ref()
    }

    /// The tenant that the caller proved to belong to. What a call says about its tenant does not count then.
    #[must_use]
    pub fn tenant(&self) -> Option<&Arc<str>> {
        self.tenant.as_ref()
    }

    /// True if the caller may do this.
    #[must_use]
    pub fn may(&self, op: Op) -> bool {
        self.operations.contains(op)
    }
}

/// W3C trace context as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`.
    pub state: Option<String>,
}

/// Events of a stream, in order. The end of the stream is the end of the interaction.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamItem>> + Send>>;

/// How many forms there are, JSON and protobuf; each has a slot for its encoding of an event.
pub(crate) const FORMS: usize = 7;

/// An event in a stream, with its number in the log. Cheap to clone: all subscribers of a task share
/// one, and it is encoded once per dialect for all of them.
#[derive(Clone, Debug)]
pub struct StreamItem(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seq: Option<Seq>,
    event: Arc<Event>,
    /// Not before somebody shares it: most have one reader.
    encoded: OnceLock<Box<[OnceLock<Bytes>; FORMS]>>,
}

impl StreamItem {
    /// An event; `seq` is its resume cursor, if it has one.
    #[must_use]
    pub fn new(seq: Option<Seq>, event: Arc<Event>) -> Self {
        Self(Arc::new(Shared { seq, event, encoded: OnceLock::new() }))
    }

    /// The number in the task's log.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        self.0.seq
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &Arc<Event> {
        &self.0.event
    }

    /// The event; a copy if others have it, too.
    #[must_use]
    pub fn into_event(self) -> Event {
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Arc::unwrap_or_clone(shared.event),
            Err(shared) => Event::clone(&shared.event),
        }
    }

    /// The same entry with a changed event, for one stream only: the others keep theirs.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Event)) -> Self {
        let mut event = Event::clone(&self.0.event);
        change(&mut event);
        Self::new(self.0.seq, Arc::new(event))
    }

    /// True if somebody else has it, too.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The event in this slot's encoding, made by `encode` the first time.
    pub(crate) fn encoded(&self, slot: usize, encode: impl FnOnce(&Event) -> Vec<u8>) -> &Bytes {
        self.slot(slot).get_or_init(|| encode(&self.0.event).into())
    }

    fn slot(&self, slot: usize) -> &OnceLock<Bytes> {
        &self.0.encoded.get_or_init(Box::default)[slot]
    }

    /// The same for an encoding that can fail.
    #[cfg(feature = "grpc")]
    pub(crate) fn try_encoded(
        &self,
        slot: usize,
        encode: impl FnOnce(&Event) -> Result<Vec<u8>>,
    ) -> Result<&Bytes> {
        let slot = self.slot(slot);
        match slot.get() {
            Some(bytes) => Ok(bytes),
            None => {
                let bytes = encode(&self.0.event)?.into();
                Ok(slot.get_or_init(|| bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_one_value_per_name_and_do_not_show_it() {
        let mut cx = CallContext::default();
        for (name, value) in [("X-Key", "old"), ("x-team", "a"), ("x-key", "s3cret")] {
            cx.headers.set(name, value);
        }
        let all: Vec<_> = cx.headers.iter().collect();
        assert_eq!(all, [("x-team", "a"), ("x-key", "s3cret")]);
        let shown = format!("{cx:?}");
        assert!(shown.contains("x-key") && !shown.contains("s3cret"), "{shown}");
    }
}
