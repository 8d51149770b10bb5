//! Which of an agent's interfaces to use, a pure function of the card and of what the caller wants; and
//! what then depends on the version: the dialect, the name of a header, the reading of the card. Nothing
//! else in this crate knows that there are several versions.

use std::sync::Arc;

use http::HeaderName;
pub(crate) use nuncio_protocol::v03::decode_card;
use nuncio_protocol::{
    AgentInterface, Binding, Error, ErrorKind, Result, Version, v03,
    wire::{Dialect, V1},
};

/// The bindings this crate can speak.
pub const SPOKEN_BINDINGS: &[Binding] = &[Binding::JsonRpc];

/// What the caller wants of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The versions that will do.
    pub versions: Vec<Version>,
    /// The bindings that will do.
    pub bindings: Vec<Binding>,
}

impl Default for Preferences {
    /// All that we speak; the agent's order decides.
    fn default() -> Self {
        Self { versions: Version::ALL.to_vec(), bindings: SPOKEN_BINDINGS.to_vec() }
    }
}

/// An interface that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As the card has it.
    pub interface: AgentInterface,
    /// Its version.
    pub version: Version,
    /// Its binding.
    pub binding: Binding,
}

/// The interfaces that can be used, in the agent's order (spec 8.3.2): the first one wins, the others
/// are there for when it cannot be reached. A version that is not among the wanted ones is never used,
/// so a pinned version is not downgraded behind the caller's back (REQ-076).
///
/// # Errors
/// `VersionNotSupported` or `UnsupportedOperation` that says what the agent offers and what was wanted.
pub fn choose(interfaces: &[AgentInterface], preferences: &Preferences) -> Result<Vec<Candidate>> {
    let candidates: Vec<_> = interfaces
        .iter()
        .filter_map(|interface| {
            let version = interface.version().filter(|version| preferences.versions.contains(version))?;
            let binding = interface.binding().filter(|binding| preferences.bindings.contains(binding))?;
            Some(Candidate { interface: interface.clone(), version, binding })
        })
        .collect();
    if candidates.is_empty() { Err(nothing_fits(interfaces, preferences)) } else { Ok(candidates) }
}

fn nothing_fits(interfaces: &[AgentInterface], preferences: &Preferences) -> Error {
    let offers: Vec<_> = interfaces
        .iter()
        .map(|offer| format!("{} {} at {}", offer.protocol_binding, offer.protocol_version, offer.url))
        .collect();
    let offers = if offers.is_empty() { "no interface at all".to_owned() } else { offers.join(", ") };
    let versions: Vec<_> = preferences.versions.iter().map(|version| version.as_str()).collect();
    let bindings: Vec<_> = preferences.bindings.iter().map(|binding| binding.as_str()).collect();
    let spoken = interfaces.iter().filter_map(AgentInterface::version);
    let kind = if spoken.into_iter().any(|version| preferences.versions.contains(&version)) {
        ErrorKind::UnsupportedOperation
    } else {
        ErrorKind::VersionNotSupported
    };
    let wanted = format!("{} in version {}", bindings.join(" or "), versions.join(" or "));
    Error::new(kind, format!("the agent offers {offers}; wanted: {wanted}"))
}

/// The dialect of JSON-RPC in this version.
pub(crate) fn jsonrpc_dialect(version: Version) -> Arc<dyn Dialect> {
    match version {
        Version::V1_0 => Arc::new(V1),
        Version::V0_3 => Arc::new(v03::JsonRpc),
    }
}

/// The header that declares extensions.
pub(crate) fn extensions_header(version: Version) -> HeaderName {
    HeaderName::from_static(match version {
        Version::V1_0 => "a2a-extensions",
        Version::V0_3 => "x-a2a-extensions",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(text: &str) -> AgentInterface {
        let mut words = text.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap();
        AgentInterface { protocol_binding: word(), protocol_version: word(), url: word(), tenant: None }
    }

    const BOTH: &[Version] = Version::ALL;
    const NEW: &[Version] = &[Version::V1_0];
    const OLD: &[Version] = &[Version::V0_3];
    const RPC: &[Binding] = &[Binding::JsonRpc];
    const ALL: &[Binding] = &[Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

    /// The addresses in order, or the error.
    fn check(card: &[&str], versions: &[Version], bindings: &[Binding]) -> Result<String, String> {
        let interfaces: Vec<_> = card.iter().map(|text| interface(text)).collect();
        let preferences = Preferences { versions: versions.to_vec(), bindings: bindings.to_vec() };
        match choose(&interfaces, &preferences) {
            Ok(candidates) => {
                Ok(candidates.into_iter().map(|c| c.interface.url).collect::<Vec<_>>().join(" "))
            }
            Err(error) => Err(format!("{:?}: {error}", error.kind())),
        }
    }

    #[test]
    fn the_order_of_the_card_decides() {
        let card = &[
            "GRPC 1.0 g",
            "JSONRPC 0.3.0 old",
            "JSONRPC 1.0 new",
            "jsonrpc 1.0.1 lower",
            "HTTP+JSON 1.0 rest",
        ];
        for (versions, bindings, expected) in [
            (BOTH, RPC, "old new lower"),
            (NEW, RPC, "new lower"),
            (OLD, RPC, "old"),
            (BOTH, ALL, "g old new lower rest"),
            (NEW, &[Binding::HttpJson][..], "rest"),
        ] {
            assert_eq!(check(card, versions, bindings).unwrap(), expected, "{versions:?} {bindings:?}");
        }
    }

    #[test]
    fn a_pinned_version_is_not_downgraded() {
        // REQ-076
        assert_eq!(
            check(&["JSONRPC 0.3 http://a"], NEW, RPC).unwrap_err(),
            "VersionNotSupported: the agent offers JSONRPC 0.3 at http://a; wanted: JSONRPC in version 1.0"
        );
    }

    #[test]
    fn the_error_says_what_there_is() {
        assert_eq!(
            check(&["GRPC 1.0 a:1", "https://x.example/mqtt 2.0 mqtt://a"], BOTH, RPC).unwrap_err(),
            "UnsupportedOperation: the agent offers GRPC 1.0 at a:1, https://x.example/mqtt 2.0 at mqtt://a; \
             wanted: JSONRPC in version 1.0 or 0.3"
        );
        assert_eq!(
            check(&[], BOTH, RPC).unwrap_err(),
            "VersionNotSupported: the agent offers no interface at all; wanted: JSONRPC in version 1.0 or 0.3"
        );
    }
}
