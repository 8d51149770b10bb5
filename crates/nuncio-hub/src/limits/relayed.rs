//! The same gate for calls that are handed on as they came.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use nuncio_protocol::{CallContext, Result};
use nuncio_server::bind::{self, Raw, Relay};

use super::{Gate, Permit};
use crate::{
    agents::{Answered, Proxy, Taken},
    telemetry::Calls,
};

/// A relay behind a gate, whose calls are counted.
pub(crate) struct Relayed {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) calls: Arc<Calls>,
}

#[async_trait]
impl Relay for Relayed {
    async fn relay(&self, call: Raw<'_>) -> bind::Relayed {
        // What is decoded passes the gate there.
        let Some(taken) = self.proxy.take(&call).transpose() else { return bind::Relayed::Decode };
        let op = call.op;
        let mut passing = self.calls.begin(&call);
        let outcome = match passing.trace() {
            Some(trace) => {
                let cx = CallContext { trace: Some(trace), ..call.cx.clone() };
                self.hand_on(taken, Raw { cx: &cx, ..call }).await
            }
            None => self.hand_on(taken, call).await,
        };
        match outcome {
            Ok((Answered { response, refused }, permit)) => {
                passing.end(refused);
                if !op.row().streaming || refused.is_some() {
                    return bind::Relayed::Answer(response);
                }
                bind::Relayed::Answer(response.map(|body| permit.follow(passing.follow(body))))
            }
            Err(error) => {
                passing.end(Some(error.kind()));
                self.calls.complain(op, &error);
                bind::Relayed::Refuse(error)
            }
        }
    }
}

impl Relayed {
    async fn hand_on(&self, taken: Result<Taken>, call: Raw<'_>) -> Result<(Answered, Permit)> {
        let permit = self.gate.admit(&call.cx.caller, call.op)?;
        Ok((self.proxy.hand_on(&taken?, call).await?, permit))
    }
}

impl Permit {
    /// A stream that counts for as long as it is open.
    fn follow(self, body: Body) -> Body {
        if self.is_empty() { body } else { Body::new(Counted { body, _permit: self }) }
    }
}

/// A stream that counts for as long as it is open.
struct Counted {
    body: Body,
    _permit: Permit,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
