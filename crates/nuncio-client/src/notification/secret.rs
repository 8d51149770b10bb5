//! A secret shared by sender and receiver, and its HMAC signature, as in Standard Webhooks.

use std::{fmt, str::FromStr};

use aws_lc_rs::{
    digest,
    hmac::{self, HMAC_SHA256},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};

/// The prefix of a secret.
const PREFIX: &str = "whsec_";
/// The version of the signature.
const VERSION: &str = "v1,";
/// Allowed difference between the time of an attempt and ours, in seconds.
pub const TOLERANCE: i64 = 300;
/// Maximum number of signatures that are checked: each costs a hash of the body.
const MAX_SIGNATURES: usize = 8;

/// A text that is not a valid secret. The text is not quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected whsec_ and the base64 of 24 to 64 bytes; make one with: echo whsec_$(openssl rand -base64 32)"
)]
pub struct SecretError;

/// The reason why the signatures by shared secrets are refused. Fit for logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrongSignature {
    /// None of them is by this secret, or the message was changed in transit.
    #[error("it is not by the expected secret, or the notification was changed in transit")]
    DoesNotHold,
    /// The time of the attempt is too far in the past or in the future.
    #[error("its time is more than five minutes away from ours")]
    OtherTime,
}

/// A secret shared by sender and receiver: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone)]
pub struct WebhookSecret(hmac::Key);

impl WebhookSecret {
    /// A secret from bytes.
    ///
    /// # Errors
    /// There are fewer than 24 or more than 64 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if !(24..=64).contains(&bytes.len()) {
            return Err(SecretError);
        }
        Ok(Self(hmac::Key::new(HMAC_SHA256, bytes)))
    }

    /// The secret that goes with the key of a mailbox: its SHA-256.
    #[must_use]
    pub fn of_mailbox_key(key: &str) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, digest::digest(&digest::SHA256, key.as_bytes()).as_ref()))
    }

    /// Signs an attempt that is made at this time in Unix seconds.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("{VERSION}{}", STANDARD.encode(context.sign()))
    }

    /// Verifies that one of the space-separated signatures is by this secret, and that the attempt was made
    /// within [`TOLERANCE`] of `now`.
    ///
    /// # Errors
    /// No signature is valid, or the time is out of tolerance.
    pub fn verify(
        &self,
        signatures: &str,
        id: &str,
        timestamp: i64,
        body: &[u8],
        now: i64,
    ) -> Result<(), WrongSignature> {
        if now.abs_diff(timestamp) > TOLERANCE.unsigned_abs() {
            return Err(WrongSignature::OtherTime);
        }
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let entries = signatures.split(' ').filter_map(|entry| entry.strip_prefix(VERSION));
        let mut tags = entries.take(MAX_SIGNATURES).filter_map(|tag| STANDARD.decode(tag).ok());
        // Compares in constant time.
        let holds = tags.any(|tag| hmac::verify(&self.0, &signed, &tag).is_ok());
        if holds { Ok(()) } else { Err(WrongSignature::DoesNotHold) }
    }
}

impl FromStr for WebhookSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let base64 = text.trim().strip_prefix(PREFIX).ok_or(SecretError)?.trim_end_matches('=');
        Self::from_bytes(&STANDARD_NO_PAD.decode(base64).map_err(|_| SecretError)?)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secret: WebhookSecret = SECRET.parse().unwrap();
        assert_eq!(secret.sign(ID, TIME, BODY), SIGNATURE);
        assert_eq!(format!("{secret:?}"), "WebhookSecret");
    }

    #[test]
    fn what_a_signature_proves() {
        let several = format!("v1a,AAAA v2,x v1,??? v1,AAAA {SIGNATURE}");
        let late = format!("{}{SIGNATURE}", "v1,AAAA ".repeat(MAX_SIGNATURES));
        let other = WebhookSecret::from_bytes(&[7; 32]).unwrap().sign(ID, TIME, BODY);
        let (holds, fails, time) = (Ok(()), Err(WrongSignature::DoesNotHold), Err(WrongSignature::OtherTime));
        for (what, signatures, id, timestamp, body, now, expected) in [
            ("right", SIGNATURE, ID, TIME, BODY, TIME, holds),
            ("one of several, while the secret changes", &several, ID, TIME, BODY, TIME, holds),
            ("late, but not too late", SIGNATURE, ID, TIME, BODY, TIME + 300, holds),
            ("a clock that is behind", SIGNATURE, ID, TIME, BODY, TIME - 300, holds),
            ("too late", SIGNATURE, ID, TIME, BODY, TIME + 301, time),
            ("from the future", SIGNATURE, ID, TIME, BODY, TIME - 301, time),
            ("at the end of time", SIGNATURE, ID, i64::MIN, BODY, i64::MAX, time),
            ("another id", SIGNATURE, "msg_x", TIME, BODY, TIME, fails),
            ("another time", SIGNATURE, ID, TIME + 1, BODY, TIME, fails),
            ("another body", SIGNATURE, ID, TIME, b"{}", TIME, fails),
            ("another secret", &other, ID, TIME, BODY, TIME, fails),
            ("another version", &SIGNATURE.replace("v1,", "v2,"), ID, TIME, BODY, TIME, fails),
            ("without a version", &SIGNATURE.replace("v1,", ""), ID, TIME, BODY, TIME, fails),
            ("after too many", &late, ID, TIME, BODY, TIME, fails),
            ("nothing", "", ID, TIME, BODY, TIME, fails),
        ] {
            let secret: WebhookSecret = SECRET.parse().unwrap();
            assert_eq!(secret.verify(signatures, id, timestamp, body, now), expected, "{what}");
        }
    }

    #[test]
    fn secrets_as_they_are_written() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for (text, ok) in [
            (SECRET, true),
            (&of(24), true),
            (&of(64), true),
            (of(32).trim_end_matches('='), true),
            (&of(23), false),
            (&of(65), false),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
            ("whsec_no base64!", false),
            ("whsec_", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<WebhookSecret>().is_ok(), ok, "{text}");
        }
        let error = "whsec_verysecret".parse::<WebhookSecret>().unwrap_err().to_string();
        assert!(!error.contains("verysecret"));
    }
}
