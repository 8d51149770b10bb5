//! Tools of models: servers of the Model Context Protocol, `[tools.NAME]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::{
    AgentKind, AgentName, Auth, Command, CommandLine, Config, Environment, Format, Invalid,
    agent::check_auth,
    file::{Findings, Node},
    form::{FilePath, Form as _, HttpUrl, Opt, Seconds, SecretText},
};

/// The prefix of tools that are agents of the hub, which no server may have.
pub(crate) const AGENTS_PREFIX: &str = "agents";

/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of tools for models (Model Context Protocol): a program by command, or an address by url.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolServer {
    /// A program that speaks the protocol over standard input and output: a line, split at spaces as by a shell (none is
    /// started), or a list of words. Each agent that has these tools runs its own.
    #[schemars(example = "npx -y @modelcontextprotocol/server-filesystem /data")]
    pub command: Option<CommandLine>,
    /// Working directory of the program; default: that of the hub.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = &"work")]
    pub directory: Option<PathBuf>,
    /// Environment variables of the program: a text, or { file = "…" }.
    #[serde(rename = "env")]
    #[schemars(with = "BTreeMap<String, SecretText>", example = BTreeMap::from([("MODE", "fast")]))]
    pub environment: Environment,
    /// Environment variables of the hub that the program inherits.
    #[serde(rename = "env_allow")]
    pub inherit: Vec<String>,
    /// Maximum memory of the program in bytes, as far as the system enforces it.
    #[serde(rename = "memory_limit_bytes")]
    #[schemars(example = 1073741824, range(min = 1))]
    pub memory_limit: Option<u64>,
    /// The address of a server that speaks the protocol over HTTP.
    #[serde(with = "Opt::<HttpUrl>")]
    #[schemars(example = "https://search.internal/mcp")]
    pub url: Option<Url>,
    /// The hub's credentials for the server.
    pub auth: Auth,
    /// Seconds to wait for the result of a tool.
    #[serde(rename = "timeout_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub timeout: Duration,
}

impl Default for ToolServer {
    fn default() -> Self {
        Self {
            command: None,
            directory: None,
            environment: Environment::default(),
            inherit: Command::INHERIT.iter().map(|&name| name.to_owned()).collect(),
            memory_limit: None,
            url: None,
            auth: Auth::default(),
            timeout: CALL_TIMEOUT,
        }
    }
}

/// The way to a server of tools.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolTarget {
    /// A program of the hub's machine.
    Program(Box<Command>),
    /// An address.
    Remote(Url, Box<Auth>),
}

/// A server of tools under its name, as an agent has it.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTools {
    /// The name of its table.
    pub name: String,
    /// The way to it.
    pub target: ToolTarget,
    /// The timeout of a call.
    pub timeout: Duration,
}

impl ToolServer {
    fn target(&self) -> Result<ToolTarget, (&'static str, String)> {
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => Err(("url", "expected only one of command and url".to_owned())),
            (None, None) => Err(("", "missing server of tools; set command or url".to_owned())),
            (Some(line), None) => {
                if self.auth != Auth::default() {
                    return Err(("auth", "is only for servers with url; use env for a program".to_owned()));
                }
                let mut command = Command::new(Format::Json, &*line.program, line.arguments.iter().cloned());
                command.directory.clone_from(&self.directory);
                command.environment = self.environment.clone();
                command.inherit.clone_from(&self.inherit);
                command.memory_limit = self.memory_limit;
                command.time_limit = None;
                command.validate().map_err(|text| ("command", text))?;
                Ok(ToolTarget::Program(Box::new(command)))
            }
            (None, Some(url)) => {
                let of_programs = [
                    ("directory", self.directory.is_some()),
                    ("env", !self.environment.0.is_empty()),
                    ("memory_limit_bytes", self.memory_limit.is_some()),
                ];
                if let Some((key, _)) = of_programs.iter().find(|(_, is_set)| *is_set) {
                    return Err((key, "is only for servers with command".to_owned()));
                }
                Ok(ToolTarget::Remote(url.clone(), Box::new(self.auth.clone())))
            }
        }
    }
}

/// Notes keys of the servers' credentials that contradict each other.
pub(super) fn check(tree: &Node, findings: &mut Findings) {
    let Some(tables) = tree.find(&["tools"]) else { return };
    for name in tables.keys() {
        let Some(table) = tables.find(&[name]) else { continue };
        check_auth(table, &["tools", name], findings);
    }
}

/// Gives each agent with a model the servers that it names, so that a change of one is a change of these agents.
pub(super) fn resolve(config: &mut Config) {
    let Config { tools, agents, .. } = config;
    for agent in agents {
        let AgentKind::Model(model) = &mut agent.kind else { continue };
        let named = |name: &String| {
            let server = tools.get(name)?;
            Some(NamedTools { name: name.clone(), target: server.target().ok()?, timeout: server.timeout })
        };
        model.tool_servers = model.tools.iter().filter_map(named).collect();
    }
}

/// The mistakes in the servers, and in the names by which agents refer to them.
pub(super) fn validate(config: &Config, found: &mut Vec<Invalid>) {
    for (name, server) in &config.tools {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(is_plain) || name == AGENTS_PREFIX {
            let text = "is not a valid name of tools; expected a to z, 0 to 9 and -, at most 32 characters, and not agents";
            found.push(Invalid::new(format!("tools.{name}"), text));
        }
        if let Err((key, text)) = server.target() {
            found.push(Invalid::new(format!("tools.{name}.{key}").trim_end_matches('.'), text));
        }
    }
    for agent in &config.agents {
        let AgentKind::Model(model) = &agent.kind else { continue };
        if let Some(name) = model.tools.iter().find(|name| !config.tools.contains_key(*name)) {
            let text = format!("there are no tools of the name {name}; add the table [tools.{name}]");
            found.push(Invalid::new(format!("agents.{}.tools", agent.name), text));
        }
        if model.agents.iter().any(|name| **name == *agent.name) {
            let text = "an agent cannot be a tool of itself; name other agents";
            found.push(Invalid::new(format!("agents.{}.agents", agent.name), text));
        }
        if let Some(name) = model.agents.iter().find(|name| name.parse::<AgentName>().is_err()) {
            let text = format!("{name} is not a valid name of an agent");
            found.push(Invalid::new(format!("agents.{}.agents", agent.name), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{
        AgentKind, ToolTarget,
        tests::{load, must},
    };

    const AGENT: &str = "[agents.writer]\nmodel = \"openai:#x\"\ntools = [\"files\"]\n";

    #[test]
    fn an_agent_has_the_servers_that_it_names() {
        let loaded = must(load(&format!(
            "[tools.files]\ncommand = \"files /data\"\nenv = {{ A = \"b\" }}\n[tools.other]\nurl = \"https://a.example/mcp\"\n{AGENT}"
        )));
        let AgentKind::Model(model) = &loaded.config.agents[0].kind else { panic!("{loaded:?}") };
        let [files] = &model.tool_servers[..] else { panic!("{model:?}") };
        let ToolTarget::Program(command) = &files.target else { panic!("{files:?}") };
        assert_eq!(
            (files.name.as_str(), command.line.arguments.as_slice()),
            ("files", &["/data".to_owned()][..])
        );
    }

    #[test]
    fn mistakes_name_their_key() {
        for (tools, expected) in [
            ("", "agents.writer.tools: there are no tools of the name files"),
            ("[tools.files]\n", "tools.files: missing server of tools; set command or url"),
            (
                "[tools.files]\ncommand = \"a\"\nurl = \"https://a.example\"\n",
                "expected only one of command and url",
            ),
            (
                "[tools.files]\nurl = \"https://a.example\"\ndirectory = \"x\"\n",
                "is only for servers with command",
            ),
            (
                "[tools.files]\ncommand = \"a\"\nauth = { bearer = \"s3cret\" }\n",
                "is only for servers with url",
            ),
            ("[tools.files]\nurl = \"https://a.example\"\nauth = { user = \"u\" }\n", "needs password"),
            ("[tools.Files]\nurl = \"https://a.example\"\n", "is not a valid name of tools"),
            ("[tools.agents]\nurl = \"https://a.example\"\n", "is not a valid name of tools"),
        ] {
            let problems = load(&format!("{tools}{AGENT}")).unwrap_err().to_string();
            assert!(problems.contains(expected) && !problems.contains("s3cret"), "{tools}: {problems}");
        }
        let own = "[agents.writer]\nmodel = \"openai:#x\"\nagents = [\"writer\"]\n";
        let problems = load(own).unwrap_err().to_string();
        assert!(problems.contains("cannot be a tool of itself"), "{problems}");
        // Others may be added later.
        let unknown =
            "[agents.writer]\nmodel = \"openai:#x\"\nagents = [\"ecko\"]\n[agents.echo]\ndemo = \"echo\"\n";
        let warnings = must(load(unknown)).warnings.to_string();
        let expected =
            "agents.writer.agents: there is no agent ecko in this configuration; did you mean echo?";
        assert!(warnings.contains(expected), "{warnings}");
    }
}
