//! The built-in agents: `demo`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Agent, AgentKind, kinds::KindKeys};

/// One of the demo agents.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DemoKeys {
    /// One of the demo agents.
    #[schemars(example = &"echo")]
    demo: Demo,
}

impl KindKeys for DemoKeys {
    const KEY: &'static str = "demo";
    const EXAMPLE: &'static str = "hello";

    fn into_kind(self, _: &Agent) -> Result<AgentKind, String> {
        Ok(AgentKind::Demo(self.demo))
    }
}

/// A built-in agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Demo {
    /// Answers with the text of the message.
    #[default]
    Echo,
    /// Counts one step a second.
    Slow,
    /// Goes through every state, for test kits.
    Conformance,
}

impl Demo {
    /// Every demo agent.
    pub const ALL: [Self; 3] = [Self::Echo, Self::Slow, Self::Conformance];

    /// The name under which `demo = true` serves it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Slow => "slow",
            Self::Conformance => "conformance",
        }
    }

    /// True for the name of a demo agent.
    pub(crate) fn has_name(name: &str) -> bool {
        Self::ALL.iter().any(|demo| demo.name() == name)
    }
}

/// Behaviour of the conformance agent for an official test kit. The kit of v1.0 rejects a card with members
/// of another version, so each profile speaks one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// All capabilities.
    Full,
    /// No streams, no webhooks, no extended card.
    Minimal,
    /// An extension that callers must declare.
    Extension,
    /// As the v0.3 test kit expects: each message ends in INPUT_REQUIRED after a while.
    V03,
}

impl Profile {
    /// True if its kit reads addresses of gRPC as URLs.
    pub(crate) fn wants_grpc_urls(self) -> bool {
        self == Self::V03
    }
}
