//! What stands around every agent of the hub: limits before it, and what the hub says about itself after it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use nuncio_protocol::{
    A2aService, CallContext, Carrier, EventStream, Result, StreamItem,
    op::{Call, Reply},
};

use super::{Gate, Permit};
use crate::identity::Identity;

/// A service behind a gate.
pub(crate) struct Guarded {
    pub(crate) service: Arc<dyn A2aService>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) identity: Arc<Identity>,
}

impl Carrier for Guarded {
    async fn carry(&self, cx: &CallContext, mut call: Call) -> Result<Reply> {
        let permit = self.gate.admit(&cx.caller, call.op())?;
        // Here a tenant says which agent is meant, and that is known by now. Whose a task is, is for the caller's
        // credentials to say.
        call.set_tenant(None);
        let mut reply = self.service.call(cx, call).await?;
        match &mut reply {
            Reply::Card(card) => self.identity.declare(card),
            Reply::Stream(_) if permit.is_empty() => {}
            Reply::Stream(events) => {
                let inner = std::mem::replace(events, Box::pin(futures_util::stream::empty()));
                *events = Box::pin(Counted { events: inner, _permit: permit });
            }
            _ => {}
        }
        Ok(reply)
    }
}

/// A stream that counts for as long as it is open.
struct Counted {
    events: EventStream,
    _permit: Permit,
}

impl Stream for Counted {
    type Item = Result<StreamItem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}
