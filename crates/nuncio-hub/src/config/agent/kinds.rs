//! The kinds of agents, each with the keys that only it has.
//!
//! `nuncio.toml` is flat: the table of an agent has the keys of all agents and those of its kind, and the key
//! of a kind (`url`, `command`, `model`, `mailbox`, `demo`) selects it. A new kind is a file with its settings, which implements
//! [`KindKeys`], and a line in [`KINDS`].

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::{Agent, AgentKind, Command, Model, Upstream, demo::DemoKeys, mailbox::MailboxKeys};
use crate::config::{
    fields,
    file::{Files, Findings, Node, Value, read},
};

/// Every kind. The schema and the file that `nuncio init` writes have their keys in this order.
pub(crate) const KINDS: &[KindEntry] = &[
    KindEntry::of::<Upstream>(),
    KindEntry::of::<Command>(),
    KindEntry::of::<Model>(),
    KindEntry::of::<MailboxKeys>(),
    KindEntry::of::<DemoKeys>(),
];

/// An agent in the file that `nuncio init` writes: its name, and its keys.
pub(crate) type Example = (&'static str, &'static [&'static str]);

/// The keys of one kind.
pub(crate) trait KindKeys: DeserializeOwned + JsonSchema {
    /// The key that selects the kind.
    const KEY: &'static str;
    /// Another key that selects the kind.
    const OTHER_KEY: Option<&'static str> = None;
    /// The name of the example that shows every key but those of the alternatives.
    const EXAMPLE: &'static str;
    /// Examples with keys that contradict those of the main example.
    const ALTERNATIVES: &'static [Example] = &[];

    /// Notes keys that contradict each other.
    fn check(_: &mut TableKeys<'_>) {}

    /// Makes the kind of an agent.
    ///
    /// # Errors
    /// Describes the mistake in the value of [`KindKeys::KEY`].
    fn into_kind(self, agent: &Agent) -> Result<AgentKind, String>;
}

/// A kind as a value, for iteration.
pub(crate) struct KindEntry {
    pub(crate) key: &'static str,
    other_key: Option<&'static str>,
    pub(crate) example: &'static str,
    pub(crate) alternatives: &'static [Example],
    /// Its keys, in the order of declaration.
    pub(crate) keys: fn() -> &'static [&'static str],
    schema: fn(&mut SchemaGenerator) -> Schema,
    check: fn(&mut TableKeys<'_>),
    read: fn(&Node, &[&str], &Agent, &mut Files, &mut Findings) -> Option<AgentKind>,
}

impl KindEntry {
    const fn of<K: KindKeys>() -> Self {
        Self {
            key: K::KEY,
            other_key: K::OTHER_KEY,
            example: K::EXAMPLE,
            alternatives: K::ALTERNATIVES,
            keys: fields::of::<K>,
            schema: K::json_schema,
            check: K::check,
            read: read_kind::<K>,
        }
    }

    /// The keys of this table that select the kind.
    fn selected_by(&self, table: &Node) -> usize {
        let keys = std::iter::once(self.key).chain(self.other_key);
        keys.filter(|key| table.find(&[*key]).is_some()).count()
    }

    fn has(&self, key: &str) -> bool {
        (self.keys)().contains(&key)
    }
}

fn read_kind<K: KindKeys>(
    table: &Node,
    path: &[&str],
    agent: &Agent,
    files: &mut Files,
    findings: &mut Findings,
) -> Option<AgentKind> {
    let keys: K = read(table, path, files, findings)?;
    // A default in place of a wrong value must not be reported as a second mistake.
    if findings.is_wrong_within(path) {
        return None;
    }
    let wrong = |text| findings.refuse(&[path, &[K::KEY]].concat(), table.spot_of(&[K::KEY]), text);
    keys.into_kind(agent).map_err(wrong).ok()
}

/// Reads the keys of an agent's kind.
pub(super) fn read_of_kind(
    table: &Node,
    path: &[&str],
    agent: &Agent,
    files: &mut Files,
    findings: &mut Findings,
) -> Option<AgentKind> {
    let kind = kind_of(table, path, findings)?;
    // Contradictions are reported only if the keys themselves are valid.
    if !findings.is_wrong_within(path) {
        for key in table.keys().filter(|key| !kind.has(key)) {
            if let Some(other) = KINDS.iter().find(|kind| kind.has(key)) {
                let text = format!("is only for agents with {}", other.key);
                findings.refuse(&[path, &[key]].concat(), table.spot_of(&[key]), text);
            }
        }
        (kind.check)(&mut TableKeys::new(table, path, findings));
    }
    (kind.read)(&table.with_keys(|key| kind.has(key)), path, agent, files, findings)
}

/// The kind selected by its key; exactly one must be present.
fn kind_of(table: &Node, path: &[&str], findings: &mut Findings) -> Option<&'static KindEntry> {
    let keys: Vec<_> = KINDS.iter().map(|kind| kind.key).collect();
    let listed = match keys.split_last() {
        Some((last, keys)) => format!("{} and {last}", keys.join(", ")),
        None => String::new(),
    };
    let present: Vec<_> = KINDS.iter().filter(|kind| kind.selected_by(table) > 0).collect();
    match present[..] {
        [kind] if kind.selected_by(table) == 1 => return Some(kind),
        [kind] => {
            let text =
                format!("expected only one of {} and {}", kind.key, kind.other_key.unwrap_or_default());
            findings.refuse(path, &table.spot, text);
        }
        [] if findings.is_wrong_within(path) => {}
        [] => findings.refuse(path, &table.spot, format!("missing agent type; set one of {listed}")),
        _ => findings.refuse(path, &table.spot, format!("expected only one of {listed}")),
    }
    None
}

/// The table of an agent, for checks of contradicting keys.
pub(crate) struct TableKeys<'a> {
    node: &'a Node,
    path: &'a [&'a str],
    findings: &'a mut Findings,
}

impl<'a> TableKeys<'a> {
    pub(super) fn new(node: &'a Node, path: &'a [&'a str], findings: &'a mut Findings) -> Self {
        Self { node, path, findings }
    }

    /// True if the key is set.
    pub(super) fn has(&self, key: &[&str]) -> bool {
        self.node.find(key).is_some()
    }

    pub(super) fn is_true(&self, key: &[&str]) -> bool {
        self.node.find(key).is_some_and(|node| matches!(node.value, Value::Bool(true)))
    }

    /// True for this text.
    pub(super) fn is_text(&self, key: &[&str], text: &str) -> bool {
        self.node.find(key).is_some_and(|node| matches!(&node.value, Value::Text(own) if own == text))
    }

    /// True for a list without items, and for an absent one.
    pub(super) fn is_empty(&self, key: &[&str]) -> bool {
        self.node.find(key).is_none_or(|node| matches!(&node.value, Value::List(items) if items.is_empty()))
    }

    pub(super) fn wrong(&mut self, key: &[&str], text: &str) {
        self.findings.clash(&[self.path, key].concat(), self.node.spot_of(key), text);
    }

    /// Refuses a secret that is set both directly and in a file.
    pub(super) fn not_both(&mut self, within: &[&str], key: &str, file: &str) {
        let (key_path, file_path) = ([within, &[key]].concat(), [within, &[file]].concat());
        if self.has(&key_path) && self.has(&file_path) {
            let text = format!("{key} is set as well; set one of them");
            self.findings.refuse(&[self.path, &file_path].concat(), self.node.spot_of(&file_path), text);
        }
    }
}

/// The table of an agent in the schema: the keys of all agents, and those of every kind.
pub(crate) struct AgentTable;

impl JsonSchema for AgentTable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Agent::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Agent::json_schema(generator);
        let all = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
        for kind in KINDS {
            let keys = (kind.schema)(generator);
            for (key, property) in keys.get("properties").and_then(Json::as_object).into_iter().flatten() {
                let known = all.get(key).cloned();
                all[key] = known.map_or_else(|| of_kind(kind, key, property), |known| of_both(kind, known));
            }
        }
        schema
    }
}

/// The property of a key that one kind has.
fn of_kind(kind: &KindEntry, key: &str, property: &Json) -> Json {
    let mut property = property.clone();
    if key == kind.key || kind.other_key == Some(key) {
        // It has no default: without the key it would not be an agent of this kind.
        property.as_object_mut().map(|property| property.remove("default"));
    } else {
        describe(&mut property, &format!(" With {}.", kind.key));
    }
    property
}

/// The property of a key that several kinds have: the first kind describes it. Each has its own default.
fn of_both(kind: &KindEntry, mut known: Json) -> Json {
    let text = known["description"].as_str().unwrap_or_default().trim_end_matches('.').to_owned();
    known["description"] = json!(format!("{text} or {}.", kind.key));
    known.as_object_mut().map(|known| known.remove("default"));
    known
}

fn describe(property: &mut Json, more: &str) {
    let text = property["description"].as_str().unwrap_or_default();
    property["description"] = json!(format!("{text}{more}"));
}

/// The keys of an agent in the order for readers: kind, the keys of all agents, the keys of each kind, then
/// the tables of all agents.
pub(crate) fn order() -> Vec<&'static str> {
    let shared = fields::of::<Agent>();
    let (first, last) =
        shared.split_at(shared.iter().position(|key| *key == "limits").unwrap_or(shared.len()));
    let mut order: Vec<&'static str> = KINDS.iter().map(|kind| kind.key).collect();
    order.extend(first);
    for key in KINDS.iter().flat_map(|kind| (kind.keys)()) {
        if !order.contains(key) {
            order.push(key);
        }
    }
    order.extend(last);
    order
}
