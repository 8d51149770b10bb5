//! The text of an API key.
//!
//! ```text
//! nuncio_k3v9x0a1b2c4_7Q…43 characters…Zc1Ab2C3
//!        the id       the secret, 256 bits │
//!                                          └ six more: a checksum of all before it
//! ```
//! Every key has this length and this alphabet, so that secret scanners find a leaked one; the checksum tells
//! them, and the hub, that it is not a chance match.

use std::fmt;

use anyhow::{Context as _, Result};
use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};

const PREFIX: &str = "nuncio_";
/// The prefix of the code of an invitation, which is no key. Codes of earlier versions have that of keys.
const INVITE_PREFIX: &str = "nuncio_invite_";
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Ids use digits and lower-case letters only: people read them aloud.
const ID_RADIX: usize = 36;
const ID: usize = 12;
/// 62 to the power of 43 is a little more than 2 to the power of 256.
const SECRET: usize = 43;
const CHECKSUM: usize = 6;

/// The text of a new key, with its secret; shown once.
#[derive(Clone)]
pub struct KeyText(String);

impl KeyText {
    /// Generates a secret for the key of this id.
    pub(super) fn new(id: &str) -> Result<Self> {
        Self::with_prefix(PREFIX, id)
    }

    /// Generates the code of the invitation of this id.
    pub(super) fn invitation(id: &str) -> Result<Self> {
        Self::with_prefix(INVITE_PREFIX, id)
    }

    fn with_prefix(prefix: &str, id: &str) -> Result<Self> {
        let text = format!("{prefix}{id}_{}", random(DIGITS.len(), SECRET)?);
        let checksum = checksum(&text);
        Ok(Self(text + &checksum))
    }

    /// The key in clear, for the one who created it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(…)")
    }
}

/// The id of a new key.
pub(super) fn new_id() -> Result<String> {
    random(ID_RADIX, ID)
}

/// The first part of a key, which identifies it without revealing the secret.
#[must_use]
pub fn key_prefix(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The first part of the code of an invitation.
pub(crate) fn invitation_prefix(id: &str) -> String {
    format!("{INVITE_PREFIX}{id}")
}

/// A key from a request: well-formed, but not yet looked up.
pub(super) struct PresentedKey<'a> {
    pub(super) id: &'a str,
    pub(super) hash: Hash,
}

/// SHA-256 of a key's text; the text itself is not stored.
pub(super) type Hash = [u8; 32];

/// True if the text has the prefix of our keys.
pub(super) fn is_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Parses a key; `None` if its shape or checksum is wrong.
pub(super) fn read(text: &str) -> Option<PresentedKey<'_>> {
    let (body, sum) = text.split_at_checked(text.len().checked_sub(CHECKSUM)?)?;
    let rest = body.strip_prefix(INVITE_PREFIX).or_else(|| body.strip_prefix(PREFIX))?;
    let (id, secret) = rest.split_once('_')?;
    let is_small = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    let is_shaped = id.len() == ID
        && secret.len() == SECRET
        && id.bytes().all(is_small)
        && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_shaped && checksum(body) == sum).then(|| PresentedKey { id, hash: hash(text) })
}

/// No salt and no stretching: 256 random bits cannot be guessed, so the hash need not be slow.
fn hash(text: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

impl KeyText {
    pub(super) fn hash(&self) -> Hash {
        hash(&self.0)
    }
}

/// Random digits, uniformly distributed.
fn random(radix: usize, length: usize) -> Result<String> {
    let mut text = String::with_capacity(length);
    // Bytes from `end` on would make some digits more likely.
    let end = 256 / radix * radix;
    while text.len() < length {
        let mut bytes = [0; 64];
        rand::fill(&mut bytes).context("the system gives no random bytes")?;
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < end);
        text.extend(fair.take(length - text.len()).map(|byte| char::from(DIGITS[byte % radix])));
    }
    Ok(text)
}

/// CRC-32 (as in zip files) in base 62.
fn checksum(text: &str) -> String {
    let mut sum = u32::MAX;
    for byte in text.bytes() {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 };
        }
    }
    let mut rest = usize::try_from(!sum).unwrap_or_default();
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[rest % 62];
        rest /= 62;
    }
    digits.map(char::from).iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_shape_and_told_by_its_checksum() {
        let id = new_id().unwrap();
        let text = KeyText::new(&id).unwrap();
        assert_eq!(text.reveal().len(), 69);
        assert!(text.reveal().starts_with(&key_prefix(&id)));
        let given = read(text.reveal()).unwrap();
        assert_eq!((given.id, given.hash), (&*id, text.hash()));
        for (at, _) in text.reveal().char_indices().skip(PREFIX.len()) {
            let mut wrong = text.reveal().to_owned();
            let other = if &wrong[at..=at] == "a" { "b" } else { "a" };
            wrong.replace_range(at..=at, other);
            assert!(read(&wrong).is_none(), "{at}: {wrong}");
        }
    }

    #[test]
    fn the_code_of_an_invitation_does_not_look_like_a_key() {
        let text = KeyText::invitation("k3v9x0a1b2c4").unwrap();
        assert!(text.reveal().starts_with(&invitation_prefix("k3v9x0a1b2c4")));
        let given = read(text.reveal()).unwrap();
        assert_eq!((given.id, given.hash), ("k3v9x0a1b2c4", text.hash()));
        let earlier = KeyText::new("k3v9x0a1b2c4").unwrap();
        assert!(read(earlier.reveal()).is_some(), "a code of an earlier version is read");
    }

    #[test]
    fn what_is_no_key() {
        for text in ["", "nuncio_", "nuncio_a_b", "é", "nuncio_ééééééééé", "token", &"x".repeat(69)]
        {
            assert!(read(text).is_none(), "{text}");
        }
    }

    /// The check value of the CRC catalogue, which every implementation agrees on.
    #[test]
    fn the_checksum_is_that_of_the_standard() {
        let mut rest = 0xCBF4_3926_usize;
        let mut expected = String::new();
        for _ in 0..CHECKSUM {
            expected.insert(0, char::from(DIGITS[rest % 62]));
            rest /= 62;
        }
        assert_eq!(checksum("123456789"), expected);
    }

    #[test]
    fn a_new_key_is_not_printed() {
        let text = KeyText::new("k3v9x0a1b2c4").unwrap();
        assert_eq!(format!("{text:?}"), "KeyText(…)");
    }
}
