//! Protocol versions: `Major.Minor`, as negotiated by the `A2A-Version` service parameter (spec 3.6).

use std::fmt;

/// A supported version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 0.3, also the meaning of an absent version (spec 3.6.2).
    V0_3,
    /// 1.0.
    V1_0,
}

impl Version {
    /// Every version, newest first.
    pub const ALL: &[Self] = &[Self::V1_0, Self::V0_3];

    /// The version of a request without one.
    pub const IMPLIED: Self = Self::V0_3;

    /// The version in headers and cards.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3",
            Self::V1_0 => "1.0",
        }
    }

    /// Parses `Major.Minor`; a patch number is ignored (REQ-073, trap T-38). `None` if it is not supported.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().splitn(3, '.');
        let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next());
        if patch.is_some_and(|patch| patch.is_empty() || !patch.bytes().all(|b| b.is_ascii_digit())) {
            return None;
        }
        match (major, minor) {
            ("0", "3") => Some(Self::V0_3),
            ("1", "0") => Some(Self::V1_0),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_does_not_count() {
        // REQ-073
        for (text, version) in [
            ("1.0", Some(Version::V1_0)),
            ("1.0.3", Some(Version::V1_0)),
            ("0.3.0", Some(Version::V0_3)),
            ("0.3", Some(Version::V0_3)),
            ("1.0.x", None),
            ("1", None),
            ("99.0", None),
            ("10.0", None),
            ("", None),
        ] {
            assert_eq!(Version::parse(text), version, "{text}");
        }
    }
}
