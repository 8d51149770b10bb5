//! Encryption of stored credentials, with a key that is not in the store.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use nuncio_protocol::{Error, Result};
use sha2::Sha256;

/// The key from which the server derives a key for each purpose.
#[derive(Clone)]
pub struct RootKey([u8; 32]);

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(…)")
    }
}

impl RootKey {
    /// Wraps an existing key.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Generates a key. Data sealed with it is lost if the key is lost.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The key's bytes, to be written to a file.
    #[must_use]
    pub fn reveal(&self) -> &[u8; 32] {
        &self.0
    }

    /// Derives the key for a purpose.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a MAC takes keys of any length")]
    #[expect(clippy::missing_panics_doc, reason = "it does not")]
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.chain_update(purpose).finalize().into_bytes().into()
    }
}

/// Seals and opens texts (AES-256-GCM).
pub struct Vault(RandomizedNonceKey);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// Creates a vault for a purpose; it does not open texts that were sealed for another purpose.
    ///
    /// # Errors
    /// The system's cryptography does not work.
    pub fn new(key: &RootKey, purpose: &str) -> Result<Self> {
        RandomizedNonceKey::new(&AES_256_GCM, &key.derive(purpose)).map(Self).map_err(Error::internal)
    }

    /// Seals a text and binds it to the context `place`: it does not open under another one.
    ///
    /// # Errors
    /// The system's cryptography does not work.
    pub fn seal(&self, place: &str, text: &str) -> Result<String> {
        let mut sealed = text.as_bytes().to_vec();
        let nonce =
            self.0.seal_in_place_append_tag(Aad::from(place), &mut sealed).map_err(Error::internal)?;
        sealed.extend_from_slice(nonce.as_ref());
        Ok(STANDARD_NO_PAD.encode(sealed))
    }

    /// Opens a sealed text. `None` if it was sealed with another key or for another context, or is damaged.
    #[must_use]
    pub fn open(&self, place: &str, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD_NO_PAD.decode(sealed).ok()?;
        let nonce = bytes.split_off(bytes.len().checked_sub(NONCE_LEN)?);
        let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
        let text = self.0.open_in_place(nonce, Aad::from(place), &mut bytes).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_in_its_place_and_with_its_key_only() {
        let vault = Vault::new(&RootKey::new([7; 32]), "one").unwrap();
        let sealed = vault.seal("t-1", "s3cret").unwrap();
        assert!(!sealed.contains("s3cret"));
        assert_ne!(sealed, vault.seal("t-1", "s3cret").unwrap(), "no two are alike");
        assert_eq!(vault.open("t-1", &sealed).as_deref(), Some("s3cret"));
        assert_eq!(vault.open("t-2", &sealed), None);
        for (key, purpose) in [([8; 32], "one"), ([7; 32], "another")] {
            let other = Vault::new(&RootKey::new(key), purpose).unwrap();
            assert_eq!(other.open("t-1", &sealed), None);
        }
        for damaged in ["", "x", "AAAA", &sealed[1..], &format!("A{}", &sealed[1..])] {
            if damaged != sealed {
                assert_eq!(vault.open("t-1", damaged), None, "{damaged}");
            }
        }
    }

    #[test]
    fn each_purpose_has_its_key_and_none_is_shown() {
        let key = RootKey::new([7; 32]);
        assert_ne!(key.derive("a"), key.derive("b"));
        assert_eq!(key.derive("a"), RootKey::new([7; 32]).derive("a"));
        assert_eq!(format!("{key:?}"), "RootKey(…)");
    }
}
