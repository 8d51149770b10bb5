//! The layers of a configuration: flags, variables, files and defaults.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value as Json, json};

use super::{
    Config, Profile, ToolServer,
    agent::read_agents,
    file::{self, Files, Findings, Node, Origin, Problem, Problems, Severity, Spot, Value},
    rooms::seats,
    tools,
};

/// The sources of a configuration: enough to read it again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Values from flags and variables. Later ones take precedence.
    pub given: Vec<Given>,
    /// The environment, for `${NAME}` in files.
    pub variables: Variables,
    /// Behaviour of the demo's conformance agent for a test kit.
    pub profile: Option<Profile>,
}

/// A value from a flag or a variable.
#[derive(Clone, Debug)]
pub struct Given {
    /// The path of its key in `nuncio.toml`.
    pub path: Vec<String>,
    /// The value.
    pub told: Told,
    /// The flag or the variable.
    pub origin: Origin,
}

impl Given {
    /// A flag or a variable for one key, such as `admin.listen`.
    #[must_use]
    pub fn new(key: &str, told: Told, origin: Origin) -> Self {
        Self { path: key.split('.').map(str::to_owned).collect(), told, origin }
    }
}

/// A value from a flag or a variable. Texts may stand for numbers, and may contain secrets.
#[derive(Clone)]
pub enum Told {
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Told>),
    /// A table.
    Table(Vec<(&'static str, Told)>),
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told(…)")
    }
}

impl Told {
    /// A list of texts.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(|text| Self::Text(text.into())).collect())
    }

    fn node(&self, spot: &Spot) -> Node {
        let value = match self {
            Self::Bool(yes) => Value::Bool(*yes),
            Self::Text(text) => Value::Text(text.clone()),
            Self::List(items) => Value::List(items.iter().map(|item| item.node(spot)).collect()),
            Self::Table(table) => {
                Value::Table(table.iter().map(|(key, told)| ((*key).to_owned(), told.node(spot))).collect())
            }
        };
        Node::new(spot.clone(), value)
    }
}

/// Parses the value of `--agent NAME=`.
///
/// # Errors
/// Lists the accepted forms.
pub fn agent_spec(spec: &str) -> Result<Told, String> {
    let text = |text: &str| Told::Text(text.to_owned());
    let expected = "expected http://… or https://… (an agent that speaks A2A), cmd:PROGRAM, cmd+json:PROGRAM, openai:URL#MODEL, \
         anthropic:URL#MODEL, mailbox:, or mailbox:URL (a webhook)";
    match spec.split_once(':') {
        Some(("http" | "https", rest)) if rest.starts_with("//") => {
            Ok(Told::Table(vec![("url", text(spec))]))
        }
        Some((kind @ ("cmd" | "cmd+json"), line)) => {
            let format = if kind == "cmd" { "text" } else { "json" };
            Ok(Told::Table(vec![("command", text(line)), ("format", text(format))]))
        }
        Some(("mailbox", "")) => Ok(Told::Table(vec![("mailbox", Told::Table(Vec::new()))])),
        Some(("mailbox", url)) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(Told::Table(vec![("mailbox", Told::Table(vec![("deliver_to", text(url))]))]))
        }
        Some(("mailbox", _)) => {
            Err("mailbox: takes the address of a webhook, or nothing; other settings are keys of the file"
                .to_owned())
        }
        Some(("openai" | "anthropic", _)) => Ok(Told::Table(vec![("model", text(spec))])),
        Some((kind, _)) if kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-') => {
            Err(format!("unknown kind of agent; {expected}"))
        }
        _ => Err(expected.to_owned()),
    }
}

/// Looks up a variable by its name.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The environment variables that files may refer to.
#[derive(Clone)]
pub struct Variables(Arc<Lookup>);

impl Variables {
    /// Those of the process.
    #[must_use]
    pub fn process() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }

    /// These, for tests.
    #[must_use]
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: BTreeMap<String, String> = variables.iter().map(owned).collect();
        Self(Arc::new(move |name| variables.get(name).cloned()))
    }
}

impl Default for Variables {
    fn default() -> Self {
        Self::process()
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

/// A configuration with the origins of its values.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The origin of each value, by its key.
    pub origins: BTreeMap<String, Origin>,
    /// Every file that was read, including files of secrets, with the SHA-256 of its content.
    pub files: Vec<(PathBuf, [u8; 32])>,
    /// The folders of these files, and those searched by `include`: changes are detected there.
    pub folders: Vec<PathBuf>,
    /// Problems that do not prevent the start.
    pub warnings: Problems,
    /// Every value, with the defaults filled in.
    pub(crate) tree: Node,
}

impl Source {
    /// Reads and checks all sources.
    ///
    /// # Errors
    /// Lists all problems.
    pub fn load(&self) -> Result<Loaded, Problems> {
        let mut findings = Findings::default();
        let mut files = Files::default();
        let variable = |name: &str| (self.variables.0)(name);
        let mut tree = Node::table(Spot::Default);
        if let Some(path) = &self.file {
            match file::load(path, &variable, &mut files, &mut findings) {
                Some(read) => tree = read,
                None => return Err(Problems(findings.problems)),
            }
        }
        for given in &self.given {
            let spot = match &given.origin {
                Origin::Flag(name) => Spot::Flag(name.clone()),
                Origin::Env(name) => Spot::Env(name.clone()),
                Origin::File { .. } | Origin::Default => Spot::Default,
            };
            tree.put(&given.path, given.told.node(&spot));
        }
        finish(tree, self.profile, files, findings)
    }
}

/// Checks a tree against the schema and reads the settings from it. It finds every mistake: a wrong value is
/// left out, and valid settings are compared with each other.
pub(super) fn finish(
    tree: Node,
    profile: Option<Profile>,
    files: Files,
    findings: Findings,
) -> Result<Loaded, Problems> {
    finish_with(&BTreeMap::new(), tree, profile, files, findings)
}

/// As [`finish`], for a document that may refer to servers of tools of another one.
pub(super) fn finish_with(
    tools: &BTreeMap<String, ToolServer>,
    mut tree: Node,
    profile: Option<Profile>,
    mut files: Files,
    mut findings: Findings,
) -> Result<Loaded, Problems> {
    file::check(&mut tree, &mut findings);
    let config: Option<Config> = file::read(&tree, &[], &mut files, &mut findings);
    let agents = read_agents(&tree, &mut files, &mut findings);
    let Some(mut config) = config else { return Err(Problems(findings.problems)) };
    (config.agents, config.profile) = (agents, profile);
    tools::check(&tree, &mut findings);
    config.tools.extend(tools.iter().map(|(name, server)| (name.clone(), server.clone())));
    tools::resolve(&mut config);
    let seats = seats(std::mem::take(&mut config.rooms), &tree, &mut findings);
    config.agents.extend(seats);
    config.compare(&tree, &mut findings);
    let problems = Problems(findings.problems);
    if problems.has_errors() {
        return Err(problems);
    }
    let mut origins = BTreeMap::new();
    collect(&tree, &mut Vec::new(), &mut origins);
    Ok(Loaded { config, origins, files: files.read, folders: files.folders, warnings: problems, tree })
}

/// Reads one text as if it were the file, without access to files. For fuzz tests.
#[doc(hidden)]
pub fn fuzz_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut findings = Findings::default();
    let variables = |name: &str| (name.len() < 4).then(|| name.to_owned());
    let tree = file::parse_text(Path::new("nuncio.toml"), text, &variables, &mut findings);
    let loaded = match tree {
        Some(tree) => finish(tree, None, Files::sealed(), findings),
        None => Err(Problems(findings.problems)),
    };
    match loaded {
        Ok(loaded) => {
            let shown = file::show(&loaded, false);
            let again = toml::from_str::<toml::Table>(&shown);
            assert!(again.is_ok(), "what is shown is TOML: {again:?}\n{shown}");
            let _ = loaded.shown(true);
        }
        Err(problems) => assert!(!problems.to_string().is_empty() && problems.has_errors()),
    }
}

fn collect(node: &Node, path: &mut Vec<String>, origins: &mut BTreeMap<String, Origin>) {
    match &node.value {
        Value::Table(table) => {
            for (key, node) in table {
                path.push(key.clone());
                collect(node, path, origins);
                path.pop();
            }
        }
        _ => drop(origins.insert(path.join("."), node.spot.origin())),
    }
}

impl Loaded {
    /// A problem that only the caller can find, with the position of its key.
    #[must_use]
    pub fn problem(&self, key: &str, text: impl Into<String>) -> Problem {
        let path: Vec<&str> = key.split('.').collect();
        Problem::at(Severity::Error, &path, self.tree.spot_of(&path), text)
    }

    /// The configuration in force as JSON, without secrets; with the origins of values, if requested.
    #[must_use]
    pub fn shown(&self, origins: bool) -> Json {
        let config = file::shown_json(&self.tree, file::schema(), &mut Vec::new());
        if !origins {
            return config;
        }
        let origins: BTreeMap<_, _> =
            self.origins.iter().map(|(key, origin)| (key, origin.to_string())).collect();
        json!({ "config": config, "origins": origins })
    }
}
