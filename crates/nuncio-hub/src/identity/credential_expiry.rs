//! The end of a credential: a stream that was opened with it ends with it.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{
    keyring::Keyring,
    text::{Given, Hash},
};
use crate::clock;

/// When a credential expires.
pub(super) enum CredentialExpiry {
    /// Nothing was shown.
    Never,
    /// With the key, or before that with this secret of it, for as long as others are taken, too.
    Key { keyring: Arc<Keyring>, id: String, hash: Hash },
    /// With the token, or before that with its issuer.
    Token { at: Option<Timestamp>, issuer: CancellationToken },
}

impl CredentialExpiry {
    /// True if there is nothing that could expire.
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
                    // What is worth something now may be worth less after a change.
                    let given = Given { id: &id, hash };
                    let Ok(entry) = keyring.look_up(&given, clock::now()) else { return };
                    tokio::select! {
                        () = passed(entry.worth_until(&hash)) => return,
                        // It ends with the keyring, which is here.
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

/// Comes back when this moment has passed; never if there is none.
async fn passed(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    let left = at.as_millis().saturating_sub(clock::now().as_millis());
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default())).await;
}
