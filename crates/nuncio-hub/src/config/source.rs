//! Flags, variables, files and defaults, on top of each other.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value as Json, json};

use super::{
    Config, Profile,
    agent::read_agents,
    file::{self, Files, Findings, Node, Origin, Problem, Problems, Severity, Spot, Value},
};

/// Where a configuration comes from: enough to read it again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// What flags and variables say. What comes later is stronger.
    pub given: Vec<Given>,
    /// The environment, for `${NAME}` in files.
    pub variables: Variables,
    /// How the demo's conformance agent behaves for a test kit.
    pub profile: Option<Profile>,
}

/// What a flag or a variable says.
#[derive(Clone, Debug)]
pub struct Given {
    /// The keys of `nuncio.toml` on the way to it.
    pub path: Vec<String>,
    /// What is said.
    pub told: Told,
    /// By which flag or variable.
    pub origin: Origin,
}

impl Given {
    /// A flag or a variable for one key, such as `admin.listen`.
    #[must_use]
    pub fn new(key: &str, told: Told, origin: Origin) -> Self {
        Self { path: key.split('.').map(str::to_owned).collect(), told, origin }
    }
}

/// Something that is said. Texts may stand for numbers, and may hold secrets.
#[derive(Clone)]
pub enum Told {
    /// Yes or no.
    Bool(bool),
    /// A text.
    Text(String),
    /// Several.
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
    /// Several texts.
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

/// What stands behind `--agent NAME=`.
///
/// # Errors
/// Says what can stand there.
pub fn agent_spec(spec: &str) -> Result<Told, String> {
    let text = |text: &str| Told::Text(text.to_owned());
    let expected = "expected https://… (an agent that speaks A2A), cmd:PROGRAM or cmd+json:PROGRAM";
    match spec.split_once(':') {
        Some(("http" | "https", rest)) if rest.starts_with("//") => {
            Ok(Told::Table(vec![("url", text(spec))]))
        }
        Some((kind @ ("cmd" | "cmd+json"), line)) => {
            let format = if kind == "cmd" { "text" } else { "json" };
            Ok(Told::Table(vec![("command", text(line)), ("format", text(format))]))
        }
        Some((kind, _)) if kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-') => {
            Err(format!("this version knows no such kind of agent; {expected}"))
        }
        _ => Err(expected.to_owned()),
    }
}

/// Finds a variable by its name.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The variables that files may name.
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

/// A configuration, and where it comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the hub is to do.
    pub config: Config,
    /// Where each value comes from, by its key.
    pub origins: BTreeMap<String, Origin>,
    /// Every file that was read, files of secrets too, with the SHA-256 of what was in it.
    pub files: Vec<(PathBuf, [u8; 32])>,
    /// The folders of these files, and those that were looked through: a change is seen there.
    pub folders: Vec<PathBuf>,
    /// What somebody should look at.
    pub warnings: Problems,
    /// Every value, with what nobody said filled in.
    pub(crate) tree: Node,
}

impl Source {
    /// Reads everything.
    ///
    /// # Errors
    /// All that is wrong.
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

/// Holds a tree to the schema and makes settings of it. Every mistake is found: a value that is wrong is left out, and
/// settings are compared with each other where they are right.
pub(super) fn finish(
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
    config.compare(&tree, &mut findings);
    let problems = Problems(findings.problems);
    if problems.has_errors() {
        return Err(problems);
    }
    let mut origins = BTreeMap::new();
    collect(&tree, &mut Vec::new(), &mut origins);
    Ok(Loaded { config, origins, files: files.read, folders: files.folders, warnings: problems, tree })
}

/// Reads one text as if it were the file, without looking at anything else. For tests that throw bytes at it.
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
    /// A mistake that only the caller can see, with the place where it is written.
    #[must_use]
    pub fn problem(&self, key: &str, text: impl Into<String>) -> Problem {
        let path: Vec<&str> = key.split('.').collect();
        Problem::at(Severity::Error, &path, self.tree.spot_of(&path), text)
    }

    /// What is in force as JSON, without secrets; with where it comes from, if that is wanted.
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
