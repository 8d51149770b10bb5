//! `nuncio check`: finds mistakes in a configuration; offline, except to see whether agents can be reached.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use nuncio_hub::{
    config::{Problem, Problems, Severity},
    preflight,
};
use serde_json::json;

use crate::{
    args::Check,
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: Check, format: Format) -> Result<ExitCode> {
    let source = command.options.source(command.file);
    let file = source.file.clone();
    if file.is_none() && source.given.is_empty() {
        return Err(exit::usage(
            "there is no nuncio.toml in this directory; name a file, or write one with `nuncio init`",
        ));
    }
    let (problems, is_read) = match source.load() {
        Ok(loaded) => {
            let mut problems = loaded.warnings.clone();
            problems.0.extend(super::config::log_problem(&loaded));
            problems.0.extend(preflight(&loaded, command.offline).await);
            (problems, true)
        }
        Err(problems) => (problems, false),
    };
    let is_unread = !is_read && file.as_ref().is_some_and(|file| !file.exists());
    let checked = if is_read || is_unread || command.offline { Checked::All } else { Checked::Text };
    tell(&problems, file.as_ref(), checked, format)?;
    Ok(ExitCode::from(match problems.has_errors() {
        false => exit::OK,
        true if is_unread => exit::USAGE,
        true => exit::CONFIG,
    }))
}

/// The part of a configuration that was checked.
#[derive(Clone, Copy)]
enum Checked {
    All,
    /// The text, but not whether agents and their files are there: that needs settings that can be read.
    Text,
}

/// Prints the problems, then their number.
fn tell(problems: &Problems, file: Option<&PathBuf>, checked: Checked, format: Format) -> Result<()> {
    if format == Format::Json {
        let found: Vec<_> = problems.0.iter().map(document).collect();
        return output::json(&json!({ "ok": !problems.has_errors(), "file": file, "problems": found }));
    }
    let name = file.map_or_else(|| "the command line".to_owned(), |file| file.display().to_string());
    if !problems.0.is_empty() {
        output::line(&problems.to_string())?;
    }
    match problems.errors().count() {
        0 => output::note(&format!("{name}: no problems found")),
        n => {
            let rest = match checked {
                Checked::All => "",
                Checked::Text => "; whether the agents can be reached is checked when these are corrected",
            };
            output::note(&format!("{name}: {} found{rest}", output::count(n, "problem", "problems")));
        }
    }
    Ok(())
}

fn document(problem: &Problem) -> serde_json::Value {
    let place = problem.place.as_ref();
    json!({
        "severity": match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "key": problem.key,
        "text": problem.text,
        "file": place.map(|place| &place.file),
        "line": place.map(|place| place.line),
        "column": place.map(|place| place.column),
    })
}
