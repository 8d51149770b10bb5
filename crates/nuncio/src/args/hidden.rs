//! What nobody shows, clap neither: a secret, or an address that may hold one.

use std::{convert::Infallible, fmt, str::FromStr};

/// Some text that is not printed.
#[derive(Clone)]
pub(crate) struct Hidden(String);

impl Hidden {
    /// As it was typed.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// What was typed; `None` for nothing, which is how some containers unset a variable.
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
