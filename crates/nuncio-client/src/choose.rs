//! Which of an agent's interfaces to use, a pure function of the card and of what the caller wants; and
//! what then depends on the version: the dialect, the name of a header, the reading of the card. Nothing
//! else in this crate knows that there are several versions.

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

/// The bindings this crate can speak.
pub const SPOKEN_BINDINGS: &[Binding] = &[
    Binding::JsonRpc,
    Binding::HttpJson,
    #[cfg(feature = "grpc")]
    Binding::Grpc,
];

/// What the caller wants of an interface: what will do, in no order. Of what will do, the agent's order
/// decides (spec 8.3.2); who wants one thing and no other names only that.
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
    /// Shapes.
    pub(crate) dialect: Arc<dyn Dialect>,
    /// Routes.
    pub(crate) paths: Paths,
    /// Of what we send.
    pub(crate) media_type: &'static str,
    /// Of what we take as an answer.
    pub(crate) accept: &'static str,
    /// Of what we take as a stream.
    pub(crate) accept_stream: &'static str,
    /// Reads the body of an error.
    pub(crate) decode_error: fn(u16, &[u8]) -> Error,
}

impl RestForm {
    pub(crate) fn version(&self) -> Version {
        self.dialect.version()
    }
}

/// HTTP+JSON in this version, with an agent that has this form of file content. Servers of either version of v1.0's content type are understood (trap T-07).
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

/// The protobuf form of this version, with an agent that has this form of file content.
#[cfg(feature = "grpc")]
pub(crate) fn grpc_codec(version: Version, files: FileBytes) -> &'static Codec {
    match version {
        Version::V1_0 => &pb::CODEC,
        Version::V0_3 => v03::pb::codec(files, true),
    }
}

/// True if this version has the operation, on whatever binding.
pub(crate) fn has_operation(version: Version, op: Op) -> bool {
    jsonrpc_dialect(version).method(op).is_some()
}

/// True if a `historyLength` of 0 is understood. The proto of v0.3 takes it for all there is, and so do most
/// of its servers.
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
