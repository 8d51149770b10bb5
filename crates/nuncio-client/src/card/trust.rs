//! The client's policy for the signatures of a card.

use std::sync::Arc;

use nuncio_protocol::{AgentCard, Error, ErrorKind, Result};

use super::{
    discover::{FetchedCard, SharedCard},
    keys::TrustedKeys,
    verify::{Verified, verify_card},
};

/// The policy for the signatures of a card.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Signatures are ignored.
    #[default]
    Ignore,
    /// A card without a signature by one of these keys is used, with a warning in the log. Of a signed
    /// card, only the covered members are used.
    Warn(TrustedKeys),
    /// A card without a signature by one of these keys is refused. Of a signed card, only the covered
    /// members are used.
    Require(TrustedKeys),
}

impl Trust {
    /// The usable part of the card, and its valid signature, if any.
    pub(crate) fn apply(&self, card: SharedCard) -> Result<(SharedCard, Option<Verified>)> {
        let verified = self.check(&card)?;
        if !verified.as_ref().is_some_and(|verified| verified.over.is_v1_only()) {
            return Ok((card, verified));
        }
        let signed = v1_members(&card)?;
        if signed == card.card {
            return Ok((card, verified));
        }
        tracing::warn!(card = %crate::egress::shown(&card.url), "members of the card that are not signed are ignored");
        let (json, url) = (card.json.clone(), card.url.clone());
        Ok((Arc::new(FetchedCard { card: signed, json, url }), verified))
    }

    /// The valid signature, if any.
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

/// The card without the additions of its v0.3 members: an attacker can put a URL there without breaking a
/// signature over the v1.0 members.
fn v1_members(card: &FetchedCard) -> Result<AgentCard> {
    // Parsed in the same way as the payload of the signature, so that both agree.
    serde_json::from_str(&card.json.to_string()).map_err(Error::internal)
}
