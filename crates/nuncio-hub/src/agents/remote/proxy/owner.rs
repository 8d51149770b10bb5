//! The owner of a task or context, as stored in records.

use std::{borrow::Cow, sync::Arc};

use aws_lc_rs::digest;
use nuncio_protocol::Caller;
use serde::{Deserialize, Serialize};

use crate::agents::hex::hex;

/// Longer ids are replaced by their digest in keys: the agent makes the ids, so their length is not
/// bounded.
const MAX_PLAIN_ID_BYTES: usize = 256;

/// A caller's principal and tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Owner(Option<Arc<str>>, Option<Arc<str>>);

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        Self(caller.principal().cloned(), caller.tenant().cloned())
    }

    pub(super) fn is(&self, caller: &Caller) -> bool {
        self.0.as_ref() == caller.principal() && self.1.as_ref() == caller.tenant()
    }

    /// The owner as a part of a key.
    pub(super) fn key(&self) -> String {
        hash(&self.json())
    }

    /// The owner as the value of a record.
    pub(super) fn json(&self) -> Vec<u8> {
        // Serializing strings cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Combines a name chosen by the owner with the owner, so that names of different owners never collide.
    pub(super) fn own(&self, name: &str) -> String {
        hash(&serde_json::to_vec(&(self, name)).unwrap_or_default())
    }
}

/// An id as a part of a key.
pub(super) fn bounded(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_PLAIN_ID_BYTES { id.into() } else { format!("\0{}", hash(id.as_bytes())).into() }
}

/// The SHA-256 digest in hex.
pub(super) fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}
