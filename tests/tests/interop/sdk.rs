//! The official SDKs, and the ways in which their peers are met.

use nuncio_hub::config::Mode;
use nuncio_protocol::{Binding, Version};
use nuncio_tests::{between::Relation, hub::root};

/// An official SDK with a client and a server on it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sdk {
    /// Its language.
    pub(crate) language: &'static str,
    /// Its peers are called `{folder}_client` and `{folder}_server`.
    folder: &'static str,
    /// The file of `tests/peers` with its version, and the text before it there.
    pin: (&'static str, &'static str),
    /// True for those of the 1.x lines: they speak 0.3 with `--v03`.
    is_current: bool,
}

pub(crate) const PYTHON_1: Sdk =
    Sdk { language: "Python", folder: "py1", pin: ("setup", "\npython_peer py1 "), is_current: true };
pub(crate) const PYTHON_03: Sdk =
    Sdk { language: "Python", folder: "py03", pin: ("setup", "\npython_peer py03 "), is_current: false };
pub(crate) const JAVASCRIPT_1: Sdk = Sdk {
    language: "JavaScript",
    folder: "js1",
    pin: ("js1/package.json", r#""@a2a-js/sdk": ""#),
    is_current: true,
};
pub(crate) const JAVASCRIPT_03: Sdk = Sdk {
    language: "JavaScript",
    folder: "js03",
    pin: ("js03/package.json", r#""@a2a-js/sdk": ""#),
    is_current: false,
};
pub(crate) const GO_1: Sdk = Sdk {
    language: "Go",
    folder: "go1",
    pin: ("go/go.mod", "github.com/a2aproject/a2a-go/v2 v"),
    is_current: true,
};
pub(crate) const GO_03: Sdk = Sdk {
    language: "Go",
    folder: "go03",
    pin: ("go/go.mod", "github.com/a2aproject/a2a-go v"),
    is_current: false,
};
pub(crate) const RUST_1: Sdk = Sdk {
    language: "Rust",
    folder: "rust1",
    pin: ("rust1/Cargo.toml", r#""a2a-client-lf", version = "="#),
    is_current: true,
};

impl Sdk {
    /// The program of its client.
    pub(crate) fn client(&self) -> String {
        format!("{}_client", self.folder)
    }

    /// The program of its server.
    pub(crate) fn server(&self) -> String {
        format!("{}_server", self.folder)
    }

    /// The argument with which a peer speaks this version, if it needs one.
    pub(crate) fn args(&self, version: Version) -> &'static [&'static str] {
        if self.is_current && version == Version::V0_3 { &["--v03"] } else { &[] }
    }

    /// The version that is pinned in `tests/peers`.
    pub(crate) fn version(&self) -> String {
        let (file, before) = self.pin;
        let text = std::fs::read_to_string(root().join("tests/peers").join(file)).unwrap();
        let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("no version of {self:?} in {file}"));
        after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect()
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
