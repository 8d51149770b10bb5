//! Parses the settings that the API gets for an agent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{ChangeRefusal, rooms};
pub(crate) use crate::config::AgentTable as Settings;
use crate::config::{self, AgentName, ToolServer};

/// The servers of tools of the hub's own file, by name. Models of the API may have them.
pub(super) type ToolServers = BTreeMap<String, ToolServer>;

/// Parses the settings.
///
/// # Errors
/// The wrong setting, and the expected value.
pub(super) fn read(
    name: &AgentName,
    given: &Map<String, Value>,
    tools: &ToolServers,
) -> Result<config::Agent, ChangeRefusal> {
    if let Some(seat) = rooms::read(name, given) {
        return seat.map_err(ChangeRefusal::Invalid);
    }
    let is_program = |url: &str| url.starts_with("cmd:") || url.starts_with("cmd+json:");
    if given.contains_key("command") || given.get("url").and_then(Value::as_str).is_some_and(is_program) {
        return Err(ChangeRefusal::Forbidden(
            "programs can be set only in the file or on the command line of the hub, because the admin token \
             would otherwise allow running any command"
                .to_owned(),
        ));
    }
    config::agent_from_api(name, given, tools).map_err(ChangeRefusal::Invalid)
}
