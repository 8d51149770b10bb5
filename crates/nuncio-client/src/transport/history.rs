//! A history length of 0 for interfaces that do not support it: servers of v0.3 take 0 for the whole
//! history (protocol-notes.md, loss table), and protobuf cannot express it. The history is removed from the
//! answer, so that the result is the same as on any other interface.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use nuncio_protocol::{
    CallContext, Event, Result, SendMessageResponse, StreamItem,
    op::{Call, Reply},
};

use super::{Transport, WireStream};
use crate::{auth::Granted, failure::Failure};

/// A transport that applies a `historyLength` of 0.
pub(crate) struct Trimmed(pub(crate) Arc<dyn Transport>);

#[async_trait]
impl Transport for Trimmed {
    fn granted(&self) -> &Granted {
        self.0.granted()
    }

    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let mut reply = self.0.call(cx, call).await?;
        if wants_no_history(call)
            && let Reply::Task(task) | Reply::Sent(SendMessageResponse::Task(task)) = &mut reply
        {
            task.history.clear();
        }
        Ok(reply)
    }

    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let events = self.0.stream(cx, call).await?;
        if !wants_no_history(call) {
            return Ok(events);
        }
        Ok(events.map(|item| item.map(trim)).boxed())
    }
}

fn wants_no_history(call: &Call) -> bool {
    match call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => {
            req.configuration.as_ref().and_then(|configuration| configuration.history_length) == Some(0)
        }
        Call::GetTask(req) => req.history_length == Some(0),
        Call::ListTasks(_)
        | Call::CancelTask(_)
        | Call::SubscribeToTask(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetTaskPushNotificationConfig(_)
        | Call::ListTaskPushNotificationConfigs(_)
        | Call::GetExtendedAgentCard(_)
        | Call::DeleteTaskPushNotificationConfig(_) => false,
    }
}

fn trim(item: StreamItem) -> StreamItem {
    match &**item.event() {
        Event::Task(task) if !task.history.is_empty() => {
            let mut task = task.clone();
            task.history.clear();
            StreamItem::new(item.seq(), Arc::new(Event::Task(task)))
        }
        Event::Task(_) | Event::Message(_) | Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => item,
    }
}
