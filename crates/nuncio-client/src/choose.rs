//! Selection of an interface: a pure function of the card and the caller's preferences. Also everything
//! that depends on the selected version: the dialect, the extensions header, the parser of cards. No other
//! file of this crate distinguishes versions.

use std::sync::Arc;

use http::HeaderName;
#[cfg(feature = "grpc")]
use nuncio_protocol::pb::{self, Codec};
pub(crate) use nuncio_protocol::v03::decode_card;
use nuncio_protocol::{
    AgentInterface, Binding, Error, ErrorKind, FileBytes, Result, Version,
    op::Op,
    v03,
    wire::{
        Dialect, V1,
        rest::{self, Paths},
    },
};

use crate::egress::shown_text;

/// The bindings that this crate supports.
pub const SPOKEN_BINDINGS: &[Binding] = &[
    Binding::JsonRpc,
    Binding::HttpJson,
    #[cfg(feature = "grpc")]
    Binding::Grpc,
];

/// The versions and bindings that the caller accepts. Their order has no meaning; among accepted
/// interfaces, the card's order decides (spec 8.3.2). To require one version or binding, list only that
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// Accepted versions.
    pub versions: Vec<Version>,
    /// Accepted bindings.
    pub bindings: Vec<Binding>,
}

impl Default for Preferences {
    /// All supported versions and bindings.
    fn default() -> Self {
        Self { versions: Version::ALL.to_vec(), bindings: SPOKEN_BINDINGS.to_vec() }
    }
}

/// An interface that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The interface as listed in the card.
    pub interface: AgentInterface,
    /// Its version.
    pub version: Version,
    /// Its binding.
    pub binding: Binding,
}

/// The usable interfaces, in the card's order (spec 8.3.2). The first one is used, and the others if it
/// cannot be reached. A version that is not accepted is never used, so a pinned version is not downgraded
/// silently (REQ-076).
///
/// # Errors
/// `VersionNotSupported` or `UnsupportedOperation`, with the offered and the accepted interfaces.
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
        .map(|offer| {
            format!("{} {} at {}", offer.protocol_binding, offer.protocol_version, shown_text(&offer.url))
        })
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

/// HTTP+JSON in one version.
#[derive(Clone)]
pub(crate) struct RestForm {
    /// Names and shapes.
    pub(crate) dialect: Arc<dyn Dialect>,
    /// Routes.
    pub(crate) paths: Paths,
    /// Media type of requests.
    pub(crate) media_type: &'static str,
    /// `Accept` for calls.
    pub(crate) accept: &'static str,
    /// `Accept` for streams.
    pub(crate) accept_stream: &'static str,
    /// Decodes the body of an error.
    pub(crate) decode_error: fn(u16, &[u8]) -> Error,
}

impl RestForm {
    pub(crate) fn version(&self) -> Version {
        self.dialect.version()
    }
}

/// HTTP+JSON in this version, for an agent with this form of file content. Both media types that servers of
/// v1.0 use are accepted (trap T-07).
pub(crate) fn rest_form(version: Version, files: FileBytes) -> RestForm {
    match version {
        Version::V1_0 => RestForm {
            dialect: Arc::new(V1),
            paths: Paths::V1,
            media_type: "application/a2a+json",
            accept: "application/a2a+json, application/json",
            accept_stream: "text/event-stream, application/a2a+json, application/json",
            decode_error: rest::decode_error,
        },
        Version::V0_3 => RestForm {
            dialect: Arc::new(v03::RestWith(files)),
            paths: v03::PATHS,
            media_type: "application/json",
            accept: "application/json",
            accept_stream: "text/event-stream, application/json",
            decode_error: v03::decode_rest_error,
        },
    }
}

/// The protobuf codec of this version, for an agent with this form of file content.
#[cfg(feature = "grpc")]
pub(crate) fn grpc_codec(version: Version, files: FileBytes) -> &'static Codec {
    match version {
        Version::V1_0 => &pb::CODEC,
        Version::V0_3 => v03::pb::codec(files, true),
    }
}

/// True if this version has the operation in any binding.
pub(crate) fn has_operation(version: Version, op: Op) -> bool {
    jsonrpc_dialect(version).method(op).is_some()
}

/// True if a `historyLength` of 0 means no history. In the proto of v0.3, and in most of its servers, 0
/// means the whole history.
pub(crate) fn can_ask_for_no_history(version: Version, binding: Binding) -> bool {
    match version {
        Version::V1_0 => true,
        Version::V0_3 => binding == Binding::JsonRpc,
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
