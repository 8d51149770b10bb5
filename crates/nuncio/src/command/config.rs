//! `nuncio config …` and `nuncio init`; all but `config reload` are offline.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use nuncio_hub::{
    admin::api::{ReloadConfig, ReloadOptions},
    config::{self, Loaded, Problem, Problems},
};
use serde_json::json;

use super::{agent::root_lost, hint::program};
use crate::{
    args::{Admin, ConfigCommand, Init, log_filter},
    exit,
    output::{self, Format},
};

/// The file of the schema, next to the configuration; the first line of the configuration names it.
const SCHEMA: &str = "nuncio.schema.json";

pub(super) async fn run(command: ConfigCommand, format: Format) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show { origin, options } => {
            let loaded = load(&options.source(None))?;
            match format {
                Format::Json => output::json(&loaded.shown(origin))?,
                Format::Human => output::line(config::show(&loaded, origin).trim_end())?,
            }
        }
        ConfigCommand::Schema => output::pretty(config::schema())?,
        ConfigCommand::Fmt { files, check } => return fmt(&files, check, format),
        ConfigCommand::Reload { hub, force } => reload(&hub, force, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads a configuration and prints its warnings.
pub(super) fn load(source: &config::Source) -> Result<Loaded> {
    let loaded = source.load()?;
    if let Some(problem) = log_problem(&loaded) {
        return Err(Problems(vec![problem]).into());
    }
    if !loaded.warnings.0.is_empty() {
        output::note(&loaded.warnings.to_string());
    }
    Ok(loaded)
}

/// A mistake in the log level, which the hub does not check: this program filters the log.
pub(super) fn log_problem(loaded: &Loaded) -> Option<Problem> {
    let wrong = log_filter(&loaded.config.telemetry.log_level).err()?;
    Some(loaded.problem("telemetry.log_level", wrong))
}

pub(super) fn init(init: &Init, format: Format) -> Result<ExitCode> {
    let schema = init.file.with_file_name(SCHEMA);
    write(&init.file, &config::init(), init.force)?;
    // Overwritten in any case: it is generated.
    write(&schema, &(serde_json::to_string_pretty(config::schema())? + "\n"), true)?;
    match format {
        Format::Json => output::json(&json!({ "file": init.file, "schema": schema }))?,
        Format::Human => {
            let (file, program) = (init.file.display(), program());
            output::line(&format!("{file}"))?;
            output::line(&format!("{}", schema.display()))?;
            output::note(&format!(
                "this configuration serves the demo agents; add your own at its end, then: {program} check {file} && \
                 {program} serve --config {file}"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true);
    } else {
        options.write(true).create_new(true);
    }
    let written = options.open(file).and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exit::usage(format!(
            "cannot write {}: it exists already; name another file, or add --force to overwrite it",
            file.display()
        ))),
        written => written.with_context(|| format!("cannot write {}", file.display())),
    }
}

/// Formats files in place, or says which are in another layout.
fn fmt(files: &[PathBuf], check: bool, format: Format) -> Result<ExitCode> {
    let mut all_formatted = true;
    for file in files {
        let is_stdin = file.as_os_str() == "-";
        let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
        let name = file.display();
        let text = text.map_err(|error| exit::usage(format!("cannot read {name}: {error}")))?;
        let formatted = config::format(file, &text)?;
        let is_changed = formatted != text;
        all_formatted &= !is_changed;
        match (check, is_stdin) {
            (false, true) => {
                output::bytes(formatted.as_bytes())?;
                continue;
            }
            // In place: the file keeps its owner and its permissions.
            (false, false) if is_changed => {
                fs::write(file, formatted).with_context(|| format!("cannot write {name}"))?;
            }
            _ => {}
        }
        match format {
            Format::Json => output::json(&json!({ "file": file, "changed": is_changed }))?,
            Format::Human if is_changed => output::line(&format!("{name}"))?,
            Format::Human => {}
        }
    }
    let is_wrong = check && !all_formatted;
    if is_wrong && format == Format::Human {
        output::note(&format!("in another layout; format with: {} config fmt FILE", program()));
    }
    Ok(ExitCode::from(if is_wrong { exit::OTHER } else { exit::OK }))
}

async fn reload(hub: &Admin, force: bool, format: Format) -> Result<()> {
    let changes = hub.call(&ReloadConfig { options: ReloadOptions { force } }).await?;
    if format == Format::Json {
        return output::json(&changes);
    }
    let mut any = false;
    for (names, what) in [
        (&changes.added, "new agents"),
        (&changes.changed, "changed agents"),
        (&changes.removed, "removed agents"),
        (&changes.parts, "changed"),
        (&changes.needs_restart, "changes that need a restart"),
    ] {
        if !names.is_empty() {
            any = true;
            output::line(&format!("{what}: {}", names.join(", ")))?;
        }
    }
    changes.root_lost.as_deref().map(root_lost).iter().for_each(|note| output::note(note));
    output::note(&match &*changes.files {
        _ if any => "the configuration is reloaded".to_owned(),
        [] => "this hub was started without a configuration file; there is nothing to reload".to_owned(),
        [file] => format!("{file} has not changed since it was last loaded"),
        files => format!("{} have not changed since they were last loaded", files.join(", ")),
    });
    Ok(())
}
