//! Proofs of a notification's sender (REQ-170). Every required kind of proof has to be valid.

use std::fmt;

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, digest},
};
use http::{HeaderMap, header::AUTHORIZATION};
use url::Url;

use super::{
    Rejected,
    head::{NotificationHead, text},
    jwks::Keys,
};
use crate::notification::{self, Expected, Invalid, WebhookSecret, verify};

/// A proof of a notification's sender.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Proof {
    /// The token of the push configuration.
    Token,
    /// The header `Authorization`.
    Authorization,
    /// A secret shared by sender and receiver.
    Secret,
    /// A key of the sender.
    Key {
        /// The key id; empty if the sender gives none.
        kid: String,
    },
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => f.write_str("token"),
            Self::Authorization => f.write_str("authorization"),
            Self::Secret => f.write_str("secret"),
            Self::Key { kid } if kid.is_empty() => f.write_str("key"),
            Self::Key { kid } => write!(f, "key {kid}"),
        }
    }
}

/// The hash of a secret: compared in constant time, independent of its length.
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(hash)
    }

    fn is_of(&self, bytes: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, &Self::of(bytes).0).is_ok()
    }
}

/// The expected header `Authorization`.
pub(super) struct Authorization {
    pub(super) scheme: String,
    pub(super) credentials: Digest,
}

impl Authorization {
    fn is_in(&self, header: &[u8]) -> bool {
        let Some(space) = header.iter().position(|byte| *byte == b' ') else { return false };
        let (scheme, credentials) = header.split_at(space);
        scheme.eq_ignore_ascii_case(self.scheme.as_bytes())
            && self.credentials.is_of(credentials.trim_ascii())
    }
}

/// Identifies a sender by the proofs that matched. The matching secret is not included: a sender has two of
/// them while one replaces the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Sender {
    token: Option<usize>,
    authorization: Option<usize>,
    kid: Option<String>,
}

/// The required proofs.
#[derive(Default)]
pub(super) struct Proofs {
    pub(super) tokens: Vec<Digest>,
    pub(super) authorizations: Vec<Authorization>,
    pub(super) secrets: Vec<WebhookSecret>,
    pub(super) keys: Option<Keys>,
    pub(super) audiences: Vec<Url>,
}

impl Proofs {
    /// True if no proof is required.
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
            && self.authorizations.is_empty()
            && self.secrets.is_empty()
            && self.keys.is_none()
    }

    /// Verifies the proofs of a notification. The cheap ones come first: only a sender that passes them can
    /// cause a fetch of keys.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        head: &NotificationHead<'_>,
        body: &[u8],
        now: i64,
    ) -> Result<(Vec<Proof>, Sender), Rejected> {
        let (mut proofs, mut sender) = (Vec::new(), Sender::default());
        if !self.tokens.is_empty() {
            sender.token = Some(self.token(headers)?);
            proofs.push(Proof::Token);
        }
        if !self.authorizations.is_empty() {
            sender.authorization = Some(self.authorization(headers)?);
            proofs.push(Proof::Authorization);
        }
        if !self.secrets.is_empty() {
            proofs.push(self.secret(headers, head, body, now)?);
        }
        if let Some(keys) = &self.keys {
            let kid = self.signature(keys, headers, head, body, now).await?;
            proofs.push(Proof::Key { kid: kid.clone() });
            sender.kid = Some(kid);
        }
        Ok((proofs, sender))
    }

    fn token(&self, headers: &HeaderMap) -> Result<usize, Rejected> {
        const PROOF_NAME: &str = "token";
        let names = [notification::TOKEN, notification::X_TOKEN];
        let mut given = names.iter().flat_map(|name| headers.get_all(*name)).peekable();
        given.peek().ok_or(Rejected::Missing(PROOF_NAME))?;
        let which = |value: &[u8]| self.tokens.iter().position(|token| token.is_of(value));
        given.find_map(|value| which(value.as_bytes())).ok_or(Rejected::Wrong(PROOF_NAME))
    }

    fn authorization(&self, headers: &HeaderMap) -> Result<usize, Rejected> {
        const PROOF_NAME: &str = "authorization";
        let given = headers.get(AUTHORIZATION).ok_or(Rejected::Missing(PROOF_NAME))?;
        let which = self.authorizations.iter().position(|expected| expected.is_in(given.as_bytes()));
        which.ok_or(Rejected::Wrong(PROOF_NAME))
    }

    fn secret(
        &self,
        headers: &HeaderMap,
        head: &NotificationHead<'_>,
        body: &[u8],
        now: i64,
    ) -> Result<Proof, Rejected> {
        let signatures = text(headers, notification::SECRET_SIGNATURE)?
            .ok_or(Rejected::Missing("signature by a secret"))?;
        let id = head.id.ok_or(Rejected::Missing(notification::ID))?;
        let timestamp = head.timestamp.ok_or(Rejected::Missing(notification::TIMESTAMP))?;
        let mut outcome = Err(notification::WrongSignature::DoesNotHold);
        for secret in &self.secrets {
            outcome = secret.verify(signatures, id, timestamp, body, now);
            if outcome.is_ok() {
                break;
            }
        }
        outcome?;
        Ok(Proof::Secret)
    }

    async fn signature(
        &self,
        keys: &Keys,
        headers: &HeaderMap,
        head: &NotificationHead<'_>,
        body: &[u8],
        now: i64,
    ) -> Result<String, Rejected> {
        let token = text(headers, notification::SIGNATURE)?.ok_or(Rejected::Missing("signature"))?;
        let id = head.id.ok_or(Rejected::Missing(notification::ID))?;
        let expected = Expected { id, body, audiences: &self.audiences, now };
        let known = keys.known().await?;
        let mut outcome = verify(token, &known, &expected);
        if matches!(outcome, Err(Invalid::UnknownKey(_)))
            && let Some(renewed) = keys.renewed().await?
        {
            outcome = verify(token, &renewed, &expected);
        }
        Ok(outcome?.kid)
    }
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proofs")
            .field("tokens", &self.tokens.len())
            .field("authorizations", &self.authorizations.len())
            .field("secrets", &self.secrets.len())
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
