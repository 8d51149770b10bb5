//! Page tokens of `ListTasks`: opaque, authenticated, and bound to the caller and the filters.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use nuncio_protocol::{Error, ListTasksRequest, Result, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::sync::OnceCell;

use crate::store::{Keyset, Scope, Store};

const MAC: usize = 16;

/// The content of a page token.
#[derive(Debug, PartialEq)]
pub(super) struct Cursor {
    /// The last task of the page before.
    pub(super) after: Keyset,
    /// The total, counted with the first page.
    pub(super) total: usize,
    /// True if it is an estimate.
    pub(super) is_estimate: bool,
}

/// The encoded content of a token: time, id, total, and whether that is an estimate.
#[derive(Serialize, Deserialize)]
struct CursorPayload<'a>(
    i64,
    #[serde(borrow)] std::borrow::Cow<'a, str>,
    usize,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")] bool,
);

/// The key of page tokens. It is stored with the tasks, so that tokens are valid after a restart and on other
/// servers of the same store.
pub(super) struct Cursors {
    store: Arc<dyn Store>,
    key: OnceCell<CursorKey>,
}

impl Cursors {
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), key: OnceCell::new() }
    }

    pub(super) async fn key(&self) -> Result<&CursorKey> {
        let make = || async { Ok(CursorKey::new(self.store.secret("cursor").await?)) };
        self.key.get_or_try_init(make).await
    }
}

/// Seals and opens page tokens. The key is known only to servers that share the store.
pub(super) struct CursorKey([u8; 32]);

impl CursorKey {
    fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    pub(super) fn seal(&self, scope: &Scope, req: &ListTasksRequest, cursor: &Cursor) -> Result<String> {
        let Cursor { after: Keyset { timestamp, id }, total, is_estimate } = cursor;
        let payload = CursorPayload(timestamp.as_millis(), id.as_str().into(), *total, *is_estimate);
        let mut token = serde_json::to_vec(&payload).map_err(Error::internal)?;
        let mac = self.mac(scope, req, &token)?.finalize().into_bytes();
        token.extend_from_slice(&mac[..MAC]);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    pub(super) fn open(&self, scope: &Scope, req: &ListTasksRequest, token: &str) -> Result<Cursor> {
        let invalid = || Error::invalid_field("pageToken", "is not a token of this list; begin without one");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let (payload, mac) = bytes.split_at_checked(bytes.len().saturating_sub(MAC)).ok_or_else(invalid)?;
        self.mac(scope, req, payload)?.verify_truncated_left(mac).map_err(|_| invalid())?;
        if mac.len() != MAC {
            return Err(invalid());
        }
        let CursorPayload(millis, id, total, is_estimate) =
            serde_json::from_slice(payload).map_err(|_| invalid())?;
        let timestamp = Timestamp::from_millis(millis).ok_or_else(invalid)?;
        Ok(Cursor { after: Keyset { timestamp, id: id.as_ref().into() }, total, is_estimate })
    }

    /// Authenticates the payload together with the scope and all filters of the list. The page size may
    /// change between pages.
    fn mac(&self, scope: &Scope, req: &ListTasksRequest, payload: &[u8]) -> Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(Error::internal)?;
        let list = (
            (&*scope.agent, scope.tenant.as_deref(), scope.owner.as_deref()),
            (&req.context_id, req.status, req.status_timestamp_after),
        );
        mac.update(&serde_json::to_vec(&list).map_err(Error::internal)?);
        mac.update(&[0]);
        mac.update(payload);
        Ok(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(owner: &str) -> Scope {
        Scope { agent: "echo".into(), tenant: None, owner: Some(owner.into()) }
    }

    #[test]
    fn a_token_is_good_for_its_own_list_only() {
        // REQ-122
        let key = CursorKey::new([1; 32]);
        let after = Keyset { timestamp: Timestamp::EPOCH, id: "t-1".into() };
        let req = ListTasksRequest::default();
        let mut token = String::new();
        for is_estimate in [true, false] {
            let cursor = Cursor { after: after.clone(), total: 7, is_estimate };
            token = key.seal(&scope("ann"), &req, &cursor).unwrap();
            assert_eq!(key.open(&scope("ann"), &req, &token).unwrap(), cursor);
        }

        let other_filter = ListTasksRequest { context_id: Some("c".into()), ..req.clone() };
        let mut forged = token.clone().into_bytes();
        forged[3] ^= 1;
        let forged = String::from_utf8(forged).unwrap();
        assert!(key.open(&scope("bob"), &req, &token).is_err(), "another caller");
        assert!(key.open(&scope("ann"), &other_filter, &token).is_err(), "another filter");
        assert!(key.open(&scope("ann"), &req, &forged).is_err(), "forged");
        for garbage in ["", "x", "AAAA", "!!!", &"A".repeat(500)] {
            assert!(key.open(&scope("ann"), &req, garbage).is_err(), "{garbage}");
        }
        assert!(CursorKey::new([2; 32]).open(&scope("ann"), &req, &token).is_err(), "another server");
    }
}
