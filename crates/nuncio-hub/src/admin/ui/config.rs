//! The configuration in force, with the origin of each value.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::Value;

use super::{
    form::Form,
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{ReloadConfig, ReloadOptions, Reloaded, ShowConfig},
    reload,
};

/// A value with its key and its origin.
struct Setting {
    key: String,
    value: String,
    origin: String,
}

/// A key that the last reload has changed.
struct Change {
    key: String,
    before: Option<String>,
    after: Option<String>,
}

/// A reload that was refused.
struct Refusal {
    at: String,
    problems: Vec<String>,
}

/// Maximum length of the problems of a refused reload.
const MAX_PROBLEM_CHARS: usize = 8 * 1024;

#[derive(Template)]
#[template(path = "ui/config.html")]
struct ConfigPage {
    shell: Shell,
    settings: Vec<Setting>,
    reloaded: Option<String>,
    changes: Vec<Change>,
    refusal: Option<Refusal>,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Configuration", Area::Config);
    let shell = shell.with_route(&ShowConfig {}, Some("config show".to_owned()))?;
    let shown = visit.call(reload::show, ShowConfig {}).await?.0;
    let mut values = BTreeMap::new();
    flatten(String::new(), &shown["config"], &mut values);
    let origin = |key: &str| {
        // The origin of a table is that of its values.
        let mut at = Some(key);
        while let Some(key) = at {
            if let Some(origin) = shown["origins"].get(key).and_then(Value::as_str) {
                return origin.to_owned();
            }
            at = key.rsplit_once('.').map(|(parent, _)| parent);
        }
        "default".to_owned()
    };
    let settings = values.into_iter().map(|(key, value)| Setting {
        origin: show::cell(&origin(&key)),
        key: show::cell(&key),
        value: show::cell(&value),
    });
    let last = &shown["lastReload"];
    let refused = &shown["refused"];
    render(&ConfigPage {
        settings: settings.collect(),
        reloaded: last["at"].as_str().map(str::to_owned),
        changes: last["changes"].as_array().into_iter().flatten().map(change).collect(),
        refusal: refused["at"].as_str().map(|at| Refusal {
            at: at.to_owned(),
            problems: show::text(refused["problems"].as_str().unwrap_or_default(), MAX_PROBLEM_CHARS)
                .lines()
                .map(str::to_owned)
                .collect(),
        }),
        shell,
    })
}

fn change(change: &Value) -> Change {
    let value = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(show::cell(text)),
        other => Some(show::cell(&other.to_string())),
    };
    Change {
        key: show::cell(change["key"].as_str().unwrap_or_default()),
        before: value(&change["before"]),
        after: value(&change["after"]),
    }
}

/// The values of a tree by their whole keys, such as `limits.rate.burst`.
fn flatten(key: String, value: &Value, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(key, value, values);
            }
        }
        Value::Null => {}
        Value::String(text) => _ = values.insert(key, text.clone()),
        other => _ = values.insert(key, other.to_string()),
    }
}

pub(super) async fn reload(visit: Visit, form: Form) -> Answer {
    let options = ReloadOptions { force: form.get("force").is_some() };
    let reloaded = visit.call(reload::reload, ReloadConfig { options }).await?;
    visit.done("/ui/config", outcome(&reloaded))
}

fn outcome(reloaded: &Reloaded) -> String {
    let Reloaded { files: _, added, changed, removed, parts, needs_restart, root_lost } = reloaded;
    let mut sentences = Vec::new();
    for (what, names) in [
        ("Agents added", added),
        ("Agents changed", changed),
        ("Agents removed", removed),
        ("Changed", parts),
        ("In force after a restart", needs_restart),
    ] {
        if !names.is_empty() {
            sentences.push(format!("{what}: {}.", names.join(", ")));
        }
    }
    if let Some(root) = root_lost {
        sentences.push(format!("{root} does not answer at the root any more."));
    }
    if sentences.is_empty() {
        sentences.push("Nothing has changed.".to_owned());
    }
    format!("The configuration was read again. {}", sentences.join(" "))
}
