//! Registration: the code of an invitation becomes a mailbox and its key, once.

use std::fmt;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use url::Url;

use super::{
    WorkerError,
    wire::{Call, Mailbox, decode},
};
use crate::{Egress, auth::secret::Secret};

/// A mailbox, and the key that opens it.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct Registration {
    /// The name of the mailbox.
    pub mailbox: String,
    /// Its key, which the hub does not show again.
    pub key: String,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}

/// Redeems the code of an invitation at a hub.
///
/// # Errors
/// The code was redeemed, has expired or was revoked; or the hub cannot be reached. After an answer that was lost the
/// code may be spent.
pub async fn register(hub: &str, code: &str, egress: &Egress) -> Result<Registration, WorkerError> {
    redeem(hub, code, egress, Bytes::new()).await
}

/// Redeems the code of an invitation like [`register`], for an agent that has only a webhook: the hub posts the messages
/// to this address.
///
/// # Errors
/// As [`register`]; or the hub does not post to this address. Then the code is not spent.
pub async fn register_webhook(
    hub: &str,
    code: &str,
    webhook: &Url,
    egress: &Egress,
) -> Result<Registration, WorkerError> {
    let body = serde_json::json!({ "webhook": webhook.as_str() });
    redeem(hub, code, egress, body.to_string().into()).await
}

async fn redeem(hub: &str, code: &str, egress: &Egress, body: Bytes) -> Result<Registration, WorkerError> {
    let url = super::below(hub, &["mailboxes:register"])?;
    let key = Some(Secret::new(code));
    let hub = Mailbox { url, key, name: String::new(), egress: egress.clone() };
    let mut call = Call::new(Method::POST, "");
    call.content_type = (!body.is_empty()).then_some("application/json");
    decode(&hub.call(call, body).await?)
}
