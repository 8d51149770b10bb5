//! The keys that sign cards, and the JWKS with their public halves.
//!
//! Every key signs, and a verifier that knows one of them is satisfied. To rotate, add the new key beside the
//! old one, and remove the old one when all verifiers know the new one.

use std::{fs, sync::Arc, time::SystemTime};

use anyhow::{Context as _, Result, bail};
use axum::routing::{MethodRouter, get};
use http::HeaderMap;
use nuncio_client::{SigningKey, sign_card};
use nuncio_server::bind::{BindOptions, CardSigner, Document};
use serde_json::{Value, json};

use crate::config::{CardKey, shown_path};

/// The path of the JWKS below the base of a card.
pub(crate) const JWKS: &str = "/.well-known/jwks.json";

/// The private keys; may be empty.
pub(crate) struct CardKeys {
    keys: Vec<SigningKey>,
}

impl CardKeys {
    pub(crate) fn load(files: &[CardKey]) -> Result<Self> {
        let mut keys: Vec<SigningKey> = Vec::new();
        for CardKey { file, kid } in files {
            let flag = || format!("--card-key {}", shown_path(file));
            let pem = fs::read_to_string(file)
                .with_context(|| format!("{}: cannot read it; expected a file in PEM format", flag()))?;
            let key = SigningKey::from_pem(&pem, kid.as_deref().unwrap_or_default()).with_context(flag)?;
            if keys.iter().any(|known| known.kid() == key.kid()) {
                bail!(
                    "{}: another key has the id {} as well; give each its own id by --card-kid",
                    flag(),
                    key.kid()
                );
            }
            keys.push(key);
        }
        Ok(Self { keys })
    }

    /// A signer with every key; `None` if there is none.
    pub(crate) fn signer(&self) -> Option<CardSigner> {
        if self.keys.is_empty() {
            return None;
        }
        let keys = self.keys.clone();
        Some(CardSigner::new(move |card, base| {
            let published = |key: &SigningKey| match base {
                Some(base) => key.clone().with_jku(format!("{base}{JWKS}")),
                None => key.clone(),
            };
            let keys: Vec<_> = keys.iter().map(published).collect();
            sign_card(card, &keys)
        }))
    }

    /// The route of the JWKS, with the key of notifications; `None` if there are no keys.
    pub(crate) fn route(
        &self,
        push: Option<&SigningKey>,
        options: &BindOptions,
    ) -> Result<Option<(&'static str, MethodRouter)>> {
        let keys: Vec<Value> = self.keys.iter().chain(push).map(SigningKey::jwk).collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let document = Document::new(&json!({ "keys": keys }), options.card_max_age, SystemTime::now())?;
        let document = Arc::new(document);
        let serve = move |headers: HeaderMap| {
            let document = Arc::clone(&document);
            async move { document.respond(&headers) }
        };
        Ok(Some((JWKS, get(serve))))
    }
}
