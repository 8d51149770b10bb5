//! The official SDKs, and the ways in which their peers are met.

use nuncio_hub::config::Mode;
use nuncio_protocol::{Binding, Version};
use nuncio_tests::{between::Relation, hub::root};

/// The place of a version in `tests/peers`: a file, and the text before the version there.
type Pin = (&'static str, &'static str);

/// An official SDK with a client and a server on it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sdk {
    /// Its language.
    pub(crate) language: &'static str,
    /// Its peers are called `{folder}_client` and `{folder}_server`.
    folder: &'static str,
    client_pin: Pin,
    server_pin: Pin,
    /// True for those of the 1.x lines: they speak 0.3 with `--v03`.
    is_current: bool,
}

pub(crate) const PYTHON_1: Sdk = current("Python", "py1", ("setup", "\npython_peer py1 "));
pub(crate) const PYTHON_03: Sdk = legacy("Python", "py03", ("setup", "\npython_peer py03 "));
pub(crate) const JAVASCRIPT_1: Sdk =
    current("JavaScript", "js1", ("js1/package.json", r#""@a2a-js/sdk": ""#));
pub(crate) const JAVASCRIPT_03: Sdk =
    legacy("JavaScript", "js03", ("js03/package.json", r#""@a2a-js/sdk": ""#));
pub(crate) const GO_1: Sdk = current("Go", "go1", ("go/go.mod", "github.com/a2aproject/a2a-go/v2 v"));
pub(crate) const GO_03: Sdk = legacy("Go", "go03", ("go/go.mod", "github.com/a2aproject/a2a-go v"));
pub(crate) const RUST_1: Sdk = Sdk {
    server_pin: ("rust1/Cargo.toml", r#""a2a-server-lf", version = "="#),
    ..current("Rust", "rust1", ("rust1/Cargo.toml", r#""a2a-client-lf", version = "="#))
};

const fn current(language: &'static str, folder: &'static str, pin: Pin) -> Sdk {
    Sdk { language, folder, client_pin: pin, server_pin: pin, is_current: true }
}

const fn legacy(language: &'static str, folder: &'static str, pin: Pin) -> Sdk {
    Sdk { is_current: false, ..current(language, folder, pin) }
}

/// The version that is pinned there.
fn pinned((file, before): Pin) -> String {
    let text = std::fs::read_to_string(root().join("tests/peers").join(file)).unwrap();
    let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in tests/peers/{file}"));
    after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect()
}

impl Sdk {
    /// The program of its client.
    pub(crate) fn client(&self) -> String {
        format!("{}_client", self.folder)
    }

    /// Its language and the version with its server.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.language, self.server_version())
    }

    /// The program of its server.
    pub(crate) fn server(&self) -> String {
        format!("{}_server", self.folder)
    }

    /// The argument with which a peer speaks this version, if it needs one.
    pub(crate) fn args(&self, version: Version) -> &'static [&'static str] {
        if self.is_current && version == Version::V0_3 { &["--v03"] } else { &[] }
    }

    /// The version of the SDK with its client.
    pub(crate) fn client_version(&self) -> String {
        pinned(self.client_pin)
    }

    /// The version of the SDK with its server.
    pub(crate) fn server_version(&self) -> String {
        pinned(self.server_pin)
    }
}

/// The way between a caller and an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Without a hub.
    Direct,
    /// Through a hub.
    Through(Relation),
}

/// Through a hub that keeps the tasks and speaks this to the agent.
pub(crate) const fn durable(version: Version, binding: Binding) -> Way {
    Way::Through(Relation { mode: Mode::Durable, version, binding })
}

/// Through a hub that relays to the agent, to which it speaks this.
pub(crate) const fn proxy(version: Version, binding: Binding) -> Way {
    Way::Through(Relation { mode: Mode::Proxy, version, binding })
}

impl Way {
    /// The mode of the hub, if there is one.
    pub(crate) const fn mode(self) -> Option<Mode> {
        match self {
            Self::Direct => None,
            Self::Through(relation) => Some(relation.mode),
        }
    }
}
