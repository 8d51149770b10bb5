//! The tools of a model: servers of the Model Context Protocol, and other agents of the hub.
//!
//! Reading order: this file has the tools that one message finds; `server` is a connection to a server, over `http` (our
//! own egress) or `program` (standard input and output); `peers` are other agents; `approval` decides which calls the
//! caller has to allow; `text` makes results of texts.
//!
//! **Invariant:** nothing of the caller reaches a server of tools: no header, no credential, no id. Other agents of the
//! hub know the caller, and a call to one passes the agent's own hop, so that no circle of agents calls itself for ever.

pub(super) mod approval;
mod http;
mod peers;
mod program;
mod server;
mod text;

use std::{collections::HashSet, sync::Arc};

use anyhow::Result;
use nuncio_server::ExecContext;
use serde_json::{Map, Value};

pub(super) use self::server::CONNECT_TIMEOUT;
use self::{approval::Pattern, peers::Peers, server::Server};
use super::dialect::{ToolCall, ToolResult, ToolSpec};
use crate::{
    agents::AgentFactory,
    config::{self, AGENTS_PREFIX, Model, ToolTarget},
};

/// The longest name that providers take for a tool.
const MAX_NAME_BYTES: usize = 64;

/// Maximum number of tools in a prompt. Providers refuse more.
const MAX_TOOLS: usize = 128;

/// The tools of an agent, from its settings.
pub(super) struct Toolbox {
    servers: Vec<Arc<Server>>,
    peers: Option<Arc<Peers>>,
    approve: Vec<Pattern>,
}

/// The tools as they are for one message.
#[derive(Default)]
pub(super) struct Tools(Vec<Tool>);

/// A tool.
pub(super) struct Tool {
    /// The name as callers and operators see it: `files.read`.
    pub(super) name: String,
    pub(super) spec: ToolSpec,
    /// A second call with the same arguments does no harm: it only reads, or changes nothing more.
    pub(super) is_repeatable: bool,
    /// The caller has to allow each call.
    pub(super) needs_approval: bool,
    target: Target,
}

/// The receiver of a call.
enum Target {
    Server(Arc<Server>, String),
    Peer(Arc<Peers>, String),
}

/// A tool of a server, before it has a name for the model.
struct Listed {
    name: String,
    description: String,
    schema: Value,
    is_repeatable: bool,
}

/// The result of a call: its text, and whether it is an error.
struct Outcome {
    text: String,
    is_error: bool,
}

impl Outcome {
    fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }
}

impl Toolbox {
    /// The tools of this agent; `None` if it has none. Makes no call.
    ///
    /// # Errors
    /// The credentials of a server cannot be used.
    pub(super) fn open(
        agent: &Arc<str>,
        settings: &Model,
        factory: Option<&AgentFactory>,
    ) -> Result<Option<Self>> {
        let server = |tools: &config::NamedTools| Server::open(agent, tools).map(Arc::new);
        let servers = settings.tool_servers.iter().map(server).collect::<Result<Vec<_>>>()?;
        let peers = factory.filter(|_| !settings.agents.is_empty());
        let peers = peers.map(|factory| Arc::new(Peers::new(agent, &settings.agents, factory)));
        if servers.is_empty() && peers.is_none() {
            return Ok(None);
        }
        let approve = settings.approve.iter().map(|text| Pattern::new(text)).collect();
        Ok(Some(Self { servers, peers, approve }))
    }

    /// The tools that there are now.
    ///
    /// # Errors
    /// A server cannot be reached: its name, and the cause for the log.
    pub(super) async fn list(&self) -> Result<Tools, (String, String)> {
        let mut tools = Tools(Vec::new());
        let mut taken = HashSet::new();
        let mut add = |prefix: &str, listed: Listed, target: Target| {
            let name = format!("{prefix}.{}", listed.name);
            let spec = ToolSpec {
                name: model_name(&name, &mut taken),
                description: listed.description,
                schema: listed.schema,
            };
            let needs_approval = self.approve.iter().any(|pattern| pattern.matches(&name));
            tools.0.push(Tool { name, spec, is_repeatable: listed.is_repeatable, needs_approval, target });
        };
        for server in &self.servers {
            let listed = server.list().await.map_err(|cause| (server.name().to_owned(), cause))?;
            for tool in listed.iter() {
                let target = Target::Server(Arc::clone(server), tool.name.clone());
                let Listed { name, description, schema, is_repeatable } = tool;
                let (name, description) = (name.clone(), description.clone());
                let tool =
                    Listed { name, description, schema: schema.clone(), is_repeatable: *is_repeatable };
                add(server.name(), tool, target);
            }
        }
        if let Some(peers) = &self.peers {
            for listed in peers.list() {
                let target = Target::Peer(Arc::clone(peers), listed.name.clone());
                add(AGENTS_PREFIX, listed, target);
            }
        }
        if tools.0.len() > MAX_TOOLS {
            tracing::warn!(
                count = tools.0.len(),
                "an agent has more than {MAX_TOOLS} tools; the rest is left out"
            );
            tools.0.truncate(MAX_TOOLS);
        }
        Ok(tools)
    }

    /// The patterns of calls to allow that match no tool.
    pub(super) fn idle_patterns(&self, tools: &Tools) -> Vec<String> {
        // Agents are known only to a hub that serves them.
        let is_of_agents = |pattern: &&Pattern| pattern.to_string().starts_with(AGENTS_PREFIX);
        let is_idle = |pattern: &&Pattern| {
            !is_of_agents(pattern) && !tools.0.iter().any(|tool| pattern.matches(&tool.name))
        };
        self.approve.iter().filter(is_idle).map(ToString::to_string).collect()
    }
}

impl Tools {
    /// The tools for a prompt.
    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        self.0.iter().map(|tool| tool.spec.clone()).collect()
    }

    /// The tool that the model names.
    pub(super) fn find(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.spec.name == name)
    }

    /// The names as callers and operators see them.
    pub(super) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|tool| tool.name.as_str()).collect()
    }

    /// The result of a call to a tool that there is not.
    pub(super) fn unknown(&self, call: &ToolCall) -> ToolResult {
        let names: Vec<_> = self.0.iter().map(|tool| tool.spec.name.as_str()).collect();
        let text = format!("there is no tool {}; the tools are: {}", call.name, names.join(", "));
        text::result(call, Outcome::error(text))
    }
}

impl Tool {
    /// Runs the tool. Every failure is a result for the model.
    pub(super) async fn run(
        &self,
        cx: &ExecContext,
        call: &ToolCall,
        arguments: Map<String, Value>,
        key: String,
    ) -> ToolResult {
        let outcome = match &self.target {
            Target::Server(server, name) => server.call(name, arguments).await,
            Target::Peer(peers, name) => peers.call(name, cx, &arguments, key).await,
        };
        text::result(call, outcome)
    }
}

/// A result that the hub gives in place of a tool.
pub(super) fn refused(call: &ToolCall, text: impl Into<String>) -> ToolResult {
    text::result(call, Outcome::error(text))
}

/// The program of this target, if it is one.
pub(super) fn check_program(target: &ToolTarget) -> Result<()> {
    program::check(target)
}

/// A name that every provider takes: letters, digits, `_` and `-`, at most 64 of them, and none twice.
fn model_name(name: &str, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name: String = name.chars().map(plain).take(MAX_NAME_BYTES).collect();
    let mut number = 2;
    while !taken.insert(name.clone()) {
        let ending = format!("_{number}");
        name.truncate(MAX_NAME_BYTES - ending.len());
        name.push_str(&ending);
        number += 1;
    }
    name
}
