//! Values that are never printed, not even by clap: secrets, and URLs that may contain one.

use std::{convert::Infallible, fmt, str::FromStr};

/// A text that is not printed.
#[derive(Clone)]
pub(crate) struct Hidden(String);

impl Hidden {
    /// The text itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The text, trimmed; `None` if it is empty, since some containers cannot unset a variable.
    pub(crate) fn given(&self) -> Option<&str> {
        Some(self.0.trim()).filter(|text| !text.is_empty())
    }
}

impl FromStr for Hidden {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}
