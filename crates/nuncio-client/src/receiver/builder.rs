//! The options of a receiver.

use std::{collections::HashSet, fmt, sync::Arc};

use nuncio_protocol::{Error, ErrorKind, Result, TaskId};
use url::Url;

use super::{
    Receiver,
    jwks::{Jwks, Keys},
    proof::{Authorization, Digest, Proofs},
    seen::SeenDeliveries,
};
use crate::{DEFAULT_MAX_BODY, Egress, TrustedKeys, notification::WebhookSecret};

/// Default number of remembered deliveries: enough for hours of retries of a busy sender, in a few
/// megabytes.
const REMEMBERED: usize = 10_000;

type Predicate = Arc<dyn Fn(&TaskId) -> bool + Send + Sync>;

/// The tasks of accepted notifications.
#[derive(Clone, Default)]
pub(super) struct Expects {
    tasks: HashSet<TaskId>,
    predicate: Option<Predicate>,
}

impl Expects {
    /// True if no task is configured: notifications of all tasks are accepted.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.predicate.is_none()
    }

    pub(super) fn contains(&self, task: &TaskId) -> bool {
        self.is_empty()
            || self.tasks.contains(task)
            || self.predicate.as_ref().is_some_and(|predicate| predicate(task))
    }
}

/// Options of a [`Receiver`].
#[must_use]
pub struct ReceiverBuilder {
    proofs: Proofs,
    keys: TrustedKeys,
    jwks_url: Option<Url>,
    egress: Option<Egress>,
    expects: Expects,
    accept_all: bool,
    remember: usize,
    max_body: usize,
}

impl Default for ReceiverBuilder {
    fn default() -> Self {
        Self {
            proofs: Proofs::default(),
            keys: TrustedKeys::new(),
            jwks_url: None,
            egress: None,
            expects: Expects::default(),
            accept_all: false,
            remember: REMEMBERED,
            max_body: DEFAULT_MAX_BODY,
        }
    }
}

impl ReceiverBuilder {
    /// Requires this token, which was given in the push configuration, in either of its headers (trap
    /// T-17). May be repeated, since each configuration should have its own token; one match is enough.
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        self.proofs.tokens.push(Digest::of(token.as_ref().as_bytes()));
        self
    }

    /// Requires an HMAC by this secret, not older than five minutes. May be repeated, to replace an old
    /// secret by a new one; one match is enough.
    ///
    /// The HMAC does not name the receiver: if a sender uses one secret for all its receivers, each of them
    /// can replay notifications to the others. Require a token as well.
    pub fn secret(mut self, secret: WebhookSecret) -> Self {
        self.proofs.secrets.push(secret);
        self
    }

    /// Requires an HMAC by the SHA-256 of this key of a mailbox, by which a hub signs the messages of an agent that has
    /// only a webhook. May be repeated, while one key replaces the other.
    pub fn mailbox_key(self, key: impl AsRef<str>) -> Self {
        self.secret(WebhookSecret::of_mailbox_key(key.as_ref()))
    }

    /// Requires claims signed by one of these keys.
    ///
    /// They prove which hub sent a notification, but not on whose behalf: every caller of the hub can
    /// register this receiver's URL. Set the expected tasks, or require a token as well.
    pub fn keys(mut self, keys: TrustedKeys) -> Self {
        self.keys.extend(keys);
        self
    }

    /// Requires claims signed by one of the keys published at this URL, such as
    /// `https://hub.example/.well-known/jwks.json`, or by one of [`Self::keys`], with the same limits. The
    /// keys are fetched on demand, and again when an unknown key is used.
    pub fn jwks_url(mut self, url: Url) -> Self {
        self.jwks_url = Some(url);
        self
    }

    /// Fetches the keys with this egress, for example with private certificate authorities.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Requires claims for this URL, the receiver's URL in push configurations. May be repeated. Without
    /// it, another receiver can replay notifications of the same hub here.
    pub fn audience(mut self, url: Url) -> Self {
        self.proofs.audiences.push(url);
        self
    }

    /// Requires `Authorization: Bearer` with this token.
    pub fn bearer(self, token: impl AsRef<str>) -> Self {
        self.authorization("Bearer", token)
    }

    /// Requires `Authorization` with this scheme and these credentials. May be repeated; one match is
    /// enough.
    pub fn authorization(mut self, scheme: impl Into<String>, credentials: impl AsRef<str>) -> Self {
        let credentials = Digest::of(credentials.as_ref().as_bytes());
        self.proofs.authorizations.push(Authorization { scheme: scheme.into(), credentials });
        self
    }

    /// Accepts only notifications of this task, of other tasks that are added in this way, and of those
    /// that [`Self::expecting`] accepts (REQ-171).
    pub fn task(mut self, id: impl Into<TaskId>) -> Self {
        self.expects.tasks.insert(id.into());
        self
    }

    /// Accepts notifications of the tasks for which this is true. For others, the sender is asked to retry,
    /// because a notification may arrive before the answer that has the id of the task.
    pub fn expecting(mut self, predicate: impl Fn(&TaskId) -> bool + Send + Sync + 'static) -> Self {
        self.expects.predicate = Some(Arc::new(predicate));
        self
    }

    /// Sets the number of remembered deliveries; 10,000 by default. With 0, duplicates are not detected.
    pub fn remember(mut self, deliveries: usize) -> Self {
        self.remember = deliveries;
        self
    }

    /// Sets the maximum size of a body; 16 MiB by default.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Requires no proof: any client that can reach the receiver can forge notifications.
    pub fn insecure_accept_all(mut self) -> Self {
        self.accept_all = true;
        self
    }

    /// Builds the receiver.
    ///
    /// # Errors
    /// `InvalidParams` without any required proof (REQ-170), or if the URL of the keys is invalid;
    /// `Internal` if the TLS library refuses the settings.
    pub fn build(self) -> Result<Receiver> {
        let mut proofs = self.proofs;
        let jwks = match self.jwks_url {
            Some(url) if !matches!(url.scheme(), "http" | "https") => {
                return Err(Error::invalid_field("jwks_url", "expected http or https"));
            }
            Some(url) => Some(Jwks::new(url, self.egress.map_or_else(Egress::operator, Ok)?)),
            None => None,
        };
        if jwks.is_some() || !self.keys.is_empty() {
            proofs.keys = Some(Keys::new(self.keys, jwks));
        }
        if proofs.is_empty() && !self.accept_all {
            let message = "notifications could be forged; require a token, a secret, a key or an \
                           authorization, or call insecure_accept_all";
            return Err(Error::new(ErrorKind::InvalidParams, message));
        }
        let seen = Arc::new(SeenDeliveries::new(self.remember));
        Ok(Receiver { proofs, expects: self.expects, seen, max_body: self.max_body })
    }
}

impl fmt::Debug for ReceiverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverBuilder").field("proofs", &self.proofs).finish_non_exhaustive()
    }
}
