//! The trust of a client in the signatures of a card.

use std::sync::Arc;

use nuncio_protocol::{AgentCard, Error, ErrorKind, Result};

use super::{
    discover::{FetchedCard, SharedCard},
    keys::TrustedKeys,
    verify::{Verified, verify_card},
};

/// The handling of a card's signatures.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// They are not looked at.
    #[default]
    Ignore,
    /// A card without a signature by one of these keys is used, and a warning is logged. Of a card with
    /// one, only what it covers is used.
    Warn(TrustedKeys),
    /// A card without a signature by one of these keys is refused, and of a card with one, only what it
    /// covers is used.
    Require(TrustedKeys),
}

impl Trust {
    /// The card as far as it can be used, and the signature that holds, if there is one.
    pub(crate) fn apply(&self, card: SharedCard) -> Result<(SharedCard, Option<Verified>)> {
        let verified = self.check(&card)?;
        if !verified.as_ref().is_some_and(|verified| verified.over.is_v1_only()) {
            return Ok((card, verified));
        }
        let signed = v1_members(&card)?;
        if signed == card.card {
            return Ok((card, verified));
        }
        tracing::warn!(card = %crate::egress::shown(&card.url), "what is not signed in the card is not used");
        let (json, url) = (card.json.clone(), card.url.clone());
        Ok((Arc::new(FetchedCard { card: signed, json, url }), verified))
    }

    /// The signature that holds, if there is one.
    fn check(&self, card: &FetchedCard) -> Result<Option<Verified>> {
        let keys = match self {
            Self::Ignore => return Ok(None),
            Self::Warn(keys) | Self::Require(keys) => keys,
        };
        match (verify_card(&card.json, keys), self) {
            (Ok(verified), _) => Ok(Some(verified)),
            (Err(error), Self::Require(_)) => {
                let message = format!("the card at {} is refused: {error}", crate::egress::shown(&card.url));
                Err(Error::new(ErrorKind::InvalidAgentResponse, message).with_source(error))
            }
            (Err(error), Self::Warn(_) | Self::Ignore) => {
                tracing::warn!(card = %crate::egress::shown(&card.url), %error, "the card is used without trust");
                Ok(None)
            }
        }
    }
}

/// The card without what members of v0.3 add to it: anybody can put an address there without breaking a
/// signature over the v1.0 members.
fn v1_members(card: &FetchedCard) -> Result<AgentCard> {
    // As the payload of the signature was read, so that both are the same.
    serde_json::from_str(&card.json.to_string()).map_err(Error::internal)
}
