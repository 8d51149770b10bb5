//! What a client makes of the signatures of a card.

use nuncio_protocol::{Error, ErrorKind, Result};

use super::{
    discover::FetchedCard,
    keys::TrustedKeys,
    verify::{Verified, verify_card},
};

/// What to do about the signatures of a card.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// They are not looked at.
    #[default]
    Ignore,
    /// A card without a signature by one of these keys is used, and a warning is logged.
    Warn(TrustedKeys),
    /// A card without a signature by one of these keys is refused.
    Require(TrustedKeys),
}

impl Trust {
    /// The signature that holds, if there is one.
    pub(crate) fn check(&self, card: &FetchedCard) -> Result<Option<Verified>> {
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
