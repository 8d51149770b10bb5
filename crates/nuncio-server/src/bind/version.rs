//! The version of a call, and all that depends on it: dialects, paths, protobuf codecs. No other module of
//! this crate knows that there are several versions.

use http::{HeaderMap, HeaderName, HeaderValue, header};
#[cfg(feature = "grpc")]
use nuncio_protocol::pb::Codec;
use nuncio_protocol::{
    AgentCard, AgentInterface, Binding, Error, ErrorKind, FileBytes, Result, Version, v03,
    wire::{
        Dialect, V1, excerpt,
        jsonrpc::ErrorData,
        rest::{self, Paths},
    },
};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const X_A2A_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

/// The version of a caller that sends none (spec 3.6.2).
pub(super) const IMPLIED: Version = Version::IMPLIED;

/// The headers in which callers declare extensions; some callers send both.
pub(super) const EXTENSIONS_HEADERS: [HeaderName; 2] = [A2A_EXTENSIONS, X_A2A_EXTENSIONS];

/// The header in which a response lists the active extensions.
pub(super) fn extensions_header(version: Version) -> HeaderName {
    match version {
        Version::V1_0 => A2A_EXTENSIONS,
        Version::V0_3 => X_A2A_EXTENSIONS,
    }
}

/// Names the version in which a call is answered.
pub(super) fn name(version: Version, headers: &mut HeaderMap) {
    headers.insert(A2A_VERSION, HeaderValue::from_static(version.as_str()));
}

/// The version that the caller requests, by header or query parameter; `None` if it requests none.
pub(super) fn requested<'a>(headers: &'a HeaderMap, query: Option<&'a str>) -> Result<Option<&'a str>> {
    let by_header = headers.get_all(A2A_VERSION).into_iter().map(|value| value.to_str().unwrap_or("?"));
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let by_query = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("a2a-version")).map(|(_, value)| value);
    let mut said = by_header.chain(by_query).map(str::trim).filter(|text| !text.is_empty());
    let first = said.next();
    match (first, said.find(|other| Some(*other) != first)) {
        (Some(first), Some(other)) => {
            let (first, other) = (excerpt(first.to_owned()), excerpt(other.to_owned()));
            let why =
                format!("A2A-Version is both {first} and {other}; send one, in the header or in the query");
            Err(Error::new(ErrorKind::InvalidRequest, why))
        }
        (first, _) => Ok(first),
    }
}

/// The versions of one binding of an agent. Each interface of the card supports its own (spec 3.6.2).
#[derive(Debug)]
pub(super) struct Spoken(Vec<Version>);

impl Spoken {
    /// The versions of the card's interfaces with this binding.
    pub(super) fn on(binding: Binding, card: &AgentCard) -> Self {
        let interfaces =
            card.supported_interfaces.iter().filter(|interface| interface.binding() == Some(binding));
        Self(interfaces.filter_map(AgentInterface::version).collect())
    }

    pub(super) fn has(&self, version: Version) -> bool {
        self.0.contains(&version)
    }

    /// The version to use: the requested one, or the implied one. Refuses a version that is not supported.
    pub(super) fn choose(&self, requested: Option<&str>) -> Result<Version> {
        let version = requested.map_or(Some(IMPLIED), Version::parse);
        version.filter(|version| self.has(*version)).ok_or_else(|| {
            let Some(requested) = requested.map(|text| excerpt(text.to_owned())) else {
                let why = format!(
                    "no A2A-Version was sent, which means {IMPLIED}, and {IMPLIED} is not supported by this agent"
                );
                return self.refuse(&why).with_metadata("requestedVersion", IMPLIED.as_str());
            };
            let why = format!("A2A-Version {requested} is not supported by this agent");
            self.refuse(&why).with_metadata("requestedVersion", requested)
        })
    }

    /// Refuses a version, determined by the package or the path, that is not supported or contradicts the
    /// requested one.
    pub(super) fn confirm(&self, proven: Version, requested: Option<&str>) -> Result<()> {
        agrees(proven, requested, &self.0)?;
        if self.has(proven) {
            return Ok(());
        }
        let why = format!("version {proven} is not supported by this agent");
        Err(self.refuse(&why).with_metadata("requestedVersion", proven.as_str()))
    }

    /// The error for a version that is not supported.
    pub(super) fn refuse(&self, why: &str) -> Error {
        let supported = list(&self.0);
        let advice = if supported.is_empty() {
            "its card lists the supported bindings".to_owned()
        } else {
            format!("send the header A2A-Version with one of {supported}")
        };
        Error::new(ErrorKind::VersionNotSupported, format!("{why}; {advice}"))
            .with_metadata("supportedVersions", supported)
    }
}

fn list(versions: &[Version]) -> String {
    let versions: Vec<&str> = versions.iter().map(|version| version.as_str()).collect();
    versions.join(",")
}

/// Refuses a caller that requests another version than that of the package or path it calls.
pub(super) fn agrees(proven: Version, requested: Option<&str>, spoken: &[Version]) -> Result<()> {
    match requested {
        Some(requested) if Version::parse(requested) != Some(proven) => {
            let requested = excerpt(requested.to_owned());
            let why = format!(
                "A2A-Version {requested} was sent to an interface of version {proven}; \
                 send {proven}, or call the interface that the card lists for the other version"
            );
            Err(Error::new(ErrorKind::VersionNotSupported, why)
                .with_metadata("requestedVersion", requested)
                .with_metadata("supportedVersions", list(spoken)))
        }
        _ => Ok(()),
    }
}

/// The card in a form that clients of every version can read: they do not send their version here.
pub(super) fn for_all_versions(card: &AgentCard) -> serde_json::Value {
    v03::union_card(card)
}

/// The JSON-RPC dialect of a version.
pub(super) fn jsonrpc_dialect(version: Version) -> &'static dyn Dialect {
    match version {
        Version::V1_0 => &V1,
        Version::V0_3 => &v03::JsonRpc,
    }
}

/// True for a JSON-RPC method whose params may have a tenant: all but those of the version without tenants. An
/// unknown method, too: the agent of the tenant answers it.
pub(super) fn takes_tenant(method: &str) -> bool {
    jsonrpc_dialect(Version::V0_3).op(method).is_none()
}

/// The form of `error.data` for a caller. Older SDKs accept only an object; they send no version header,
/// which exists since 1.0, and call methods that 1.0 does not have. Newer SDKs accept only a list, also when
/// they speak the old version.
pub(super) fn error_data(headers: &HeaderMap, query: Option<&str>, method: Option<&str>) -> ErrorData {
    let is_new = method.is_some_and(|method| jsonrpc_dialect(Version::V1_0).op(method).is_some());
    if is_new || names_version(headers, query) { ErrorData::List } else { ErrorData::Object }
}

/// True for a caller that sends a version, even one that is unknown.
fn names_version(headers: &HeaderMap, query: Option<&str>) -> bool {
    requested(headers, query).map_or(true, |requested| requested.is_some())
}

/// The form of file content that a caller uses, as far as its user agent shows it.
fn file_bytes(headers: &HeaderMap) -> FileBytes {
    let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    user_agent.map_or(FileBytes::Detect, FileBytes::of_user_agent)
}

/// The form of HTTP+JSON in one version.
pub(super) struct RestForm {
    pub(super) paths: Paths,
    pub(super) dialect: &'static dyn Dialect,
    /// True if responses may have the protocol's own media type.
    pub(super) has_own_media_type: bool,
    /// Encodes an error: status and body. A given status takes precedence over that of the error's kind.
    pub(super) error: fn(Option<u16>, &Error) -> (u16, Vec<u8>),
    /// Encodes an error as the last frame of a stream.
    pub(super) error_event: fn(&Error, &mut Vec<u8>),
}

static REST: RestForm = RestForm {
    paths: Paths::V1,
    dialect: &V1,
    has_own_media_type: true,
    error: |status, error| {
        let status = status.unwrap_or(error.kind().row().http);
        let mut body = Vec::with_capacity(512);
        rest::encode_error(status, error, &mut body);
        (status, body)
    },
    error_event: |error, out| rest::encode_error(error.kind().row().http, error, out),
};

/// The old version's HTTP+JSON for callers with this form of file content.
const fn old_rest(dialect: &'static dyn Dialect) -> RestForm {
    RestForm {
        paths: v03::PATHS,
        dialect,
        has_own_media_type: false,
        error: |status, error| {
            let (own, body) = v03::rest_error(error);
            (status.unwrap_or(own), body.to_string().into_bytes())
        },
        error_event: |error, out| {
            out.extend_from_slice(v03::rest_error_frame(error).to_string().as_bytes());
        },
    }
}

static OLD_REST: RestForm = old_rest(&v03::Rest);
static OLD_REST_BASE64: RestForm = old_rest(&v03::RestWith(FileBytes::Base64));
static OLD_REST_RAW: RestForm = old_rest(&v03::RestWith(FileBytes::Raw));

/// The form of HTTP+JSON for this path below the agent's URL, and for a caller with these headers.
pub(super) fn rest_form(path: &str, headers: &HeaderMap) -> &'static RestForm {
    let is_old = path.strip_prefix(v03::PATHS.prefix).is_some_and(|below| below.starts_with('/'));
    if !is_old {
        return &REST;
    }
    match file_bytes(headers) {
        FileBytes::Detect => &OLD_REST,
        FileBytes::Base64 => &OLD_REST_BASE64,
        FileBytes::Raw => &OLD_REST_RAW,
    }
}

/// The protobuf codecs, one per package.
#[cfg(feature = "grpc")]
pub(super) const CODECS: [&Codec; 2] = [&nuncio_protocol::pb::CODEC, &v03::pb::CODEC];

/// The protobuf codec of a package for a caller with these headers.
#[cfg(feature = "grpc")]
pub(super) fn codec_for(codec: &'static Codec, headers: &HeaderMap) -> &'static Codec {
    match codec.version {
        Version::V1_0 => codec,
        Version::V0_3 => v03::pb::codec(file_bytes(headers), names_version(headers, None)),
    }
}
