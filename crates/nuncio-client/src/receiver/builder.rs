//! The options of a receiver.

use std::{collections::HashSet, fmt, sync::Arc};

use nuncio_protocol::{Error, ErrorKind, Result, TaskId};
use url::Url;

use super::{
    Receiver,
    jwks::{Jwks, Keys},
    proof::{Authorization, Digest, Proofs},
    seen::Seen,
};
use crate::{DEFAULT_MAX_BODY, Egress, TrustedKeys, notification::WebhookSecret};

/// The number of deliveries that are remembered: enough for hours of retries of a busy sender, and a few megabytes.
const REMEMBERED: usize = 10_000;

type Predicate = Arc<dyn Fn(&TaskId) -> bool + Send + Sync>;

/// The tasks whose notifications are accepted.
#[derive(Clone, Default)]
pub(super) struct Expects {
    tasks: HashSet<TaskId>,
    predicate: Option<Predicate>,
}

impl Expects {
    /// True if nothing is said about tasks: all are accepted.
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
    /// Asks for this token, which was given along with the push configuration, under either name of its
    /// header (trap T-17). May be repeated, as each configuration should have its own: any of them will do.
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        self.proofs.tokens.push(Digest::of(token.as_ref().as_bytes()));
        self
    }

    /// Asks for an HMAC by this secret, not older than five minutes. May be repeated, so that a new secret can
    /// take the place of an old one: any of them will do.
    ///
    /// It does not say for whom a notification is meant: where a sender has one secret for all its receivers, each
    /// can send on what it got to the others. Ask for a token as well.
    pub fn secret(mut self, secret: WebhookSecret) -> Self {
        self.proofs.secrets.push(secret);
        self
    }

    /// Asks for claims signed by one of these keys.
    ///
    /// They prove which hub has sent a notification, not for whom it has: everybody who may send tasks to the
    /// hub can name this receiver's address. Say which tasks are expected, or ask for a token as well.
    pub fn keys(mut self, keys: TrustedKeys) -> Self {
        self.keys.extend(keys);
        self
    }

    /// Asks for claims signed by one of the keys that are published at this address, such as
    /// `https://hub.example/.well-known/jwks.json`, or by one of [`Self::keys`]; what is said there holds here,
    /// too. The keys are fetched when they are needed, and again when one comes that is not among them.
    pub fn jwks_url(mut self, url: Url) -> Self {
        self.jwks_url = Some(url);
        self
    }

    /// Fetches the keys by this way, for certificate authorities of one's own.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Accepts claims that are made for this address only: that of the receiver as it stands in push
    /// configurations. May be repeated. Without it, what a hub has sent to somebody else can be sent on.
    pub fn audience(mut self, url: Url) -> Self {
        self.proofs.audiences.push(url);
        self
    }

    /// Asks for `Authorization: Bearer` with this token.
    pub fn bearer(self, token: impl AsRef<str>) -> Self {
        self.authorization("Bearer", token)
    }

    /// Asks for `Authorization` with this scheme and these credentials. May be repeated: any of them will do.
    pub fn authorization(mut self, scheme: impl Into<String>, credentials: impl AsRef<str>) -> Self {
        let credentials = Digest::of(credentials.as_ref().as_bytes());
        self.proofs.authorizations.push(Authorization { scheme: scheme.into(), credentials });
        self
    }

    /// Accepts notifications of this task, and no others but those that are named in the same way or that
    /// [`Self::expecting`] accepts (REQ-171).
    pub fn task(mut self, id: impl Into<TaskId>) -> Self {
        self.expects.tasks.insert(id.into());
        self
    }

    /// Accepts notifications of the tasks for which this is true. A sender is told to try again later, because
    /// a notification may come before the answer that tells the id of the task.
    pub fn expecting(mut self, predicate: impl Fn(&TaskId) -> bool + Send + Sync + 'static) -> Self {
        self.expects.predicate = Some(Arc::new(predicate));
        self
    }

    /// Remembers the last so many deliveries; 10,000 by default. With 0 all that comes is handed over.
    pub fn remember(mut self, deliveries: usize) -> Self {
        self.remember = deliveries;
        self
    }

    /// Refuses larger bodies; 16 MiB by default.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Does without any proof: whoever can reach the receiver can make up notifications.
    pub fn insecure_accept_all(mut self) -> Self {
        self.accept_all = true;
        self
    }

    /// The receiver.
    ///
    /// # Errors
    /// `InvalidParams` if no proof is asked for (REQ-170), or the address of the keys is none; `Internal` if
    /// the TLS library refuses our settings.
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
            let message = "anybody could make up notifications; ask for a token, a secret, a key or an \
                           authorization, or say insecure_accept_all";
            return Err(Error::new(ErrorKind::InvalidParams, message));
        }
        let seen = Arc::new(Seen::new(self.remember));
        Ok(Receiver { proofs, expects: self.expects, seen, max_body: self.max_body })
    }
}

impl fmt::Debug for ReceiverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverBuilder").field("proofs", &self.proofs).finish_non_exhaustive()
    }
}
