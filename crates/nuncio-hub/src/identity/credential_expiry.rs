//! Expiry of credentials: a stream ends when the credential that opened it does.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{
    keyring::Keyring,
    text::{Hash, PresentedKey},
};
use crate::clock;

/// The events that end a credential.
pub(super) enum CredentialExpiry {
    /// Anonymous callers have no credential.
    Never,
    /// Ends with the key, or earlier with this secret of it, when the overlap after a rotation is over.
    Key { keyring: Arc<Keyring>, id: String, hash: Hash },
    /// Ends with the token, or earlier when its issuer is removed.
    Token { at: Option<Timestamp>, issuer: CancellationToken },
}

impl CredentialExpiry {
    /// True if there is no credential that could expire.
    pub(super) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// Returns when the credential has expired or was revoked.
    pub(super) async fn expired(self) {
        match self {
            Self::Never => std::future::pending().await,
            Self::Key { keyring, id, hash } => {
                let mut changes = keyring.changes();
                loop {
                    // A change of the keyring may have revoked the key or shortened its validity.
                    let given = PresentedKey { id: &id, hash };
                    let Ok(entry) = keyring.look_up(&given, clock::now()) else { return };
                    tokio::select! {
                        () = passed(entry.worth_until(&hash)) => return,
                        // An error is impossible: the sender lives in the keyring, which we hold.
                        _ = changes.changed() => {}
                    }
                }
            }
            Self::Token { at, issuer } => tokio::select! {
                () = passed(at) => {}
                () = issuer.cancelled() => {}
            },
        }
    }
}

/// Returns at this time; never if there is none.
async fn passed(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    let left = at.as_millis().saturating_sub(clock::now().as_millis());
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default())).await;
}
