//! The reason why a request failed, from the error chain of the HTTP client.

use std::error::Error as StdError;

use super::{
    guard::Refusal,
    tls::{self, Trouble},
};

/// The causes of an error.
pub(super) struct Cause {
    /// The message: the last cause ("connection refused"), which is the useful one, with advice if there is
    /// any.
    pub(super) why: String,
    /// The refusal, if the guard stopped the request.
    pub(super) refusal: Option<Refusal>,
    /// The TLS problem, if it is a known one.
    pub(super) trouble: Option<Trouble>,
    /// True if TLS failed.
    pub(super) is_tls: bool,
}

impl Cause {
    /// From an error without its URL, which may contain secrets.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        Self::begun_by(error.source(), error)
    }

    /// From an error chain that begins with `first`; the message of `error` is used if it is empty.
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
        let why = match (trouble, words.pop()) {
            (Some(trouble), last) => trouble.explain(&last.unwrap_or_else(|| error.to_string())),
            (None, Some(last)) => last,
            (None, None) => error.to_string(),
        };
        Self { why, refusal, trouble, is_tls }
    }
}
