//! Checks the program and folder that a configuration names, without running it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::Result;

use crate::{agents::kind::TargetProblem, config::Command};

/// Checks the program and its working directory.
pub(super) fn check(settings: &Command) -> Vec<TargetProblem> {
    let folder = settings.directory.as_deref().map_or(Ok(()), is_folder);
    let problem = |key, result: Result<()>| result.err().map(|error| TargetProblem { key, error });
    problem("command", program(settings)).into_iter().chain(problem("directory", folder)).collect()
}

fn is_folder(folder: &Path) -> Result<()> {
    anyhow::ensure!(folder.is_dir(), "there is no such folder");
    Ok(())
}

/// Checks that the program exists and is executable.
fn program(settings: &Command) -> Result<()> {
    let name = &settings.line.program;
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        anyhow::ensure!(runs(Path::new(name)), "there is no program at this path that can be run");
        return Ok(());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| runs(&folder.join(name)));
    anyhow::ensure!(found, "there is no such program in PATH; write its whole path");
    Ok(())
}
