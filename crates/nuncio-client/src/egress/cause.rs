//! The reason why a request failed, out of the chain of causes that the HTTP client gives.

use std::error::Error as StdError;

use super::{
    guard::Refusal,
    tls::{self, Trouble},
};

/// The causes of an error.
pub(super) struct Cause {
    /// In words: the last cause ("connection refused") is the one that helps, with advice if there is any.
    pub(super) why: String,
    /// The guard's reason, if it was the guard.
    pub(super) refusal: Option<Refusal>,
    /// The failure of TLS.
    pub(super) trouble: Option<Trouble>,
    /// True if TLS failed.
    pub(super) is_tls: bool,
}

impl Cause {
    /// Of an error without its address, which may hold secrets.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        Self::begun_by(error.source(), error)
    }

    /// Of a chain of causes, which begins with this one; `error` speaks if there are none.
    pub(super) fn begun_by(first: Option<&(dyn StdError + 'static)>, error: &dyn StdError) -> Self {
        let (mut words, mut refusal, mut trouble, mut is_tls) = (Vec::new(), None, None, false);
        let mut source = first;
        while let Some(cause) = source {
            words.push(cause.to_string());
            refusal = refusal.or_else(|| cause.downcast_ref().cloned());
            trouble = trouble.or_else(|| tls::trouble(cause));
            is_tls |= tls::is_tls(cause);
            source = cause.source();
        }
        let mut why = words.pop().unwrap_or_else(|| error.to_string());
        if let Some(trouble) = &trouble {
            why.push_str("; ");
            why.push_str(trouble.advice());
        }
        Self { why, refusal, trouble, is_tls }
    }
}
