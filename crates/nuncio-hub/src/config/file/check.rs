//! Checks a tree against the schema: unknown keys, missing keys, wrong values. Fills in defaults.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    problem::{Findings, did_you_mean, nearest},
    schema::{is_agent, resolve, schema},
    tree::{Node, Spot, Value},
};

/// Maximum number of known keys that a message names.
const MAX_KEYS_SHOWN: usize = 10;

/// Finds every mistake in a tree, and inserts the defaults.
pub(crate) fn check(tree: &mut Node, findings: &mut Findings) {
    Checker { path: Vec::new(), findings }.node(tree, schema());
}

struct Checker<'a> {
    path: Vec<String>,
    findings: &'a mut Findings,
}

impl Checker<'_> {
    fn wrong(&mut self, node: &Node, text: impl Into<String>) {
        self.findings.refuse(&self.path, &node.spot, text);
    }

    fn below(&mut self, key: &str, node: &mut Node, schema: &'static Json) {
        self.path.push(key.to_owned());
        if !self.findings.is_left_out(&self.path) {
            self.node(node, schema);
        }
        self.path.pop();
    }

    fn node(&mut self, node: &mut Node, schema: &'static Json) {
        let schema = resolve(schema);
        if let Some(kinds) = schema["anyOf"].as_array() {
            return match kinds.iter().find(|kind| fits(node, resolve(kind))) {
                Some(kind) => self.node(node, kind),
                None => {
                    let expected: Vec<_> = kinds.iter().map(|kind| kind_of(resolve(kind))).collect();
                    self.wrong(
                        node,
                        format!("expected {}, found {}", expected.join(" or "), node.value.kind()),
                    );
                }
            };
        }
        if let Some(words) = words(schema) {
            return self.word(node, &words);
        }
        loosen(node, schema);
        if !fits(node, schema) {
            return self.wrong(node, format!("expected {}, found {}", kind_of(schema), node.value.kind()));
        }
        self.bounds(node, schema);
        let spot = node.key.clone();
        match &mut node.value {
            Value::Table(table) => self.table(table, &spot, schema),
            Value::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.below(&at.to_string(), item, &schema["items"]);
                }
            }
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Date => {}
        }
    }

    fn word(&mut self, node: &Node, words: &[&str]) {
        match &node.value {
            Value::Text(text) if words.contains(&text.as_str()) => {}
            Value::Text(text) => {
                let hint = did_you_mean(text, words);
                self.wrong(node, format!("expected one of {}{hint}", words.join(", ")));
            }
            other => {
                let found = other.kind();
                self.wrong(node, format!("expected one of {}, found {found}", words.join(", ")));
            }
        }
    }

    fn bounds(&mut self, node: &Node, schema: &'static Json) {
        let number = match &node.value {
            #[expect(clippy::cast_precision_loss, reason = "bounds are small, and exact as f64")]
            Value::Integer(integer) => Some(*integer as f64),
            Value::Float(float) => Some(*float),
            _ => None,
        };
        if let Some(number) = number {
            let least = schema["minimum"].as_f64().filter(|least| number < *least);
            let most = schema["maximum"].as_f64().filter(|most| number > *most);
            if let Some(least) = least {
                self.wrong(node, format!("expected {least} or more"));
            } else if let Some(most) = most {
                self.wrong(node, format!("expected {most} or less"));
            } else if !number.is_finite() {
                self.wrong(node, "expected a finite number");
            }
        }
        if let (Value::List(items), Some(least)) = (&node.value, schema["minItems"].as_u64())
            && (items.len() as u64) < least
        {
            self.wrong(node, format!("expected at least {least}"));
        }
    }

    fn table(&mut self, table: &mut BTreeMap<String, Node>, spot: &Spot, schema: &'static Json) {
        let properties = &schema["properties"];
        let known: Vec<&str> = properties
            .as_object()
            .map(|known| known.keys().map(String::as_str).collect())
            .unwrap_or_default();
        for (key, node) in table.iter_mut() {
            if let Some(schema) = properties.get(key) {
                self.below(key, node, schema);
            } else if schema["additionalProperties"].is_object() {
                self.below(key, node, &schema["additionalProperties"]);
            } else if schema["additionalProperties"] != true {
                self.unknown(key, node, &known);
            }
        }
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
            if !table.contains_key(key) {
                self.findings.miss(&self.path, key, spot);
            }
        }
        // An agent shows only the keys that are set; its defaults depend on its kind.
        if is_agent(schema) {
            return;
        }
        for key in known {
            if let Some(mut node) = absent(&properties[key]).filter(|_| !table.contains_key(key)) {
                self.below(key, &mut node, &properties[key]);
                table.insert(key.to_owned(), node);
            }
        }
    }

    fn unknown(&mut self, key: &str, node: &Node, known: &[&str]) {
        let mut hint = did_you_mean(key, known);
        if hint.is_empty() {
            let top = schema()["properties"].get(key).filter(|_| !self.path.is_empty());
            hint = match top {
                Some(_) => "; it belongs to the beginning of the file, before the first [table]".to_owned(),
                None if known.len() <= MAX_KEYS_SHOWN => {
                    format!("; known keys here are {}", known.join(", "))
                }
                None => {
                    let near = nearest(key, known, MAX_KEYS_SHOWN).join(", ");
                    format!("; the nearest keys are {near}; `nuncio config schema` lists all")
                }
            };
        }
        self.path.push(key.to_owned());
        let text = format!("there is no such key{hint}");
        self.findings.refuse(&self.path, &node.key, text);
        self.path.pop();
    }
}

/// The value of an absent key. A table is filled by its own keys.
fn absent(schema: &'static Json) -> Option<Node> {
    let default = schema.get("default")?;
    let has_keys = resolve(schema).get("properties").is_some();
    if has_keys { Some(Node::table(Spot::Default)) } else { Node::of(default, &Spot::Default) }
}

/// The allowed words, if the schema is an enumeration.
fn words(schema: &'static Json) -> Option<Vec<&'static str>> {
    let words = |list: &'static Json| list.as_array().into_iter().flatten();
    let one_of = words(&schema["oneOf"]).flat_map(|one| {
        let constant = one["const"].as_str().into_iter();
        constant.chain(words(&one["enum"]).filter_map(Json::as_str))
    });
    let found: Vec<_> = words(&schema["enum"]).filter_map(Json::as_str).chain(one_of).collect();
    (!found.is_empty()).then_some(found)
}

fn fits(node: &Node, schema: &'static Json) -> bool {
    match (&node.value, schema["type"].as_str()) {
        (Value::Table(_), Some("object"))
        | (Value::List(_), Some("array"))
        | (Value::Text(_), Some("string"))
        | (Value::Bool(_), Some("boolean"))
        | (Value::Integer(_), Some("integer" | "number"))
        | (Value::Float(_), Some("number")) => true,
        (_, Some(_)) => false,
        (_, None) => true,
    }
}

/// The name of a type, for messages.
fn kind_of(schema: &'static Json) -> &'static str {
    match schema["type"].as_str() {
        Some("object") => "a table",
        Some("array") => "a list",
        Some("string") => "a text",
        Some("boolean") => "true or false",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        _ => "something else",
    }
}

/// Converts a text from a flag or a variable, which have only texts, to the number or boolean that is
/// expected.
fn loosen(node: &mut Node, schema: &'static Json) {
    let Value::Text(text) = &node.value else { return };
    if !node.is_loose {
        return;
    }
    let text = text.trim();
    let meant = match schema["type"].as_str() {
        Some("integer") => text.parse().ok().map(Value::Integer),
        Some("number") => text.parse().ok().map(Value::Float),
        Some("boolean") => text.parse().ok().map(Value::Bool),
        _ => None,
    };
    if let Some(meant) = meant {
        node.value = meant;
    }
}
