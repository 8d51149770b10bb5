//! One interface of an agent as a service, without retries.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use nuncio_protocol::{
    CallContext, CallHandler, Error, FileBytes, Result,
    op::{Call, Reply},
};
use url::Url;

use super::{Transport, wire};
use crate::{Candidate, Credentials, Egress};

/// One interface of an agent, of any binding and version. As an `A2aService` it makes each call exactly
/// once, except for a call that is refused because its access token has expired. Broken streams are not
/// resumed; [`Client`](crate::Client) does that.
#[derive(Clone)]
pub struct Direct {
    wire: Arc<dyn Transport>,
    candidate: Candidate,
}

impl Direct {
    /// The interface of a card that came from `home`; credentials are bound to that origin.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the interface has no valid URL.
    pub fn new(
        egress: &Egress,
        candidate: &Candidate,
        credentials: &Credentials,
        home: &Url,
    ) -> Result<Self> {
        Self::with_file_bytes(egress, candidate, credentials, home, FileBytes::default())
    }

    /// Like [`Self::new`], for an agent with this form of file content; see
    /// [`ClientBuilder::file_bytes`](crate::ClientBuilder::file_bytes).
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the interface has no valid URL.
    pub fn with_file_bytes(
        egress: &Egress,
        candidate: &Candidate,
        credentials: &Credentials,
        home: &Url,
        files: FileBytes,
    ) -> Result<Self> {
        let wire = wire(egress, candidate, credentials, home, files)?;
        Ok(Self { wire, candidate: candidate.clone() })
    }

    /// The interface.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }
}

impl CallHandler for Direct {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let (wire, granted) = (&self.wire, self.wire.granted());
        if !call.op().row().streaming {
            return Ok(granted.renewing(|| wire.call(cx, &call)).await?);
        }
        let events = granted.renewing(|| wire.stream(cx, &call)).await?;
        Ok(Reply::Stream(Box::pin(events.map_err(Error::from))))
    }
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("candidate", &self.candidate).finish_non_exhaustive()
    }
}
