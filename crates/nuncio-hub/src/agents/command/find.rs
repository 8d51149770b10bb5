//! Finds the program of an agent and checks that it can be executed.

use std::{
    ffi::OsString,
    fmt, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::config::Command;

/// The search path of a program that gets no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The reason why a program cannot be started. Callers see only its text; the log has the cause as well.
#[derive(Debug)]
pub(in crate::agents) enum ProgramProblem {
    /// The working directory does not exist.
    Directory(PathBuf),
    /// The program does not exist.
    Missing(String),
    /// The file exists and is not executable.
    Forbidden(PathBuf),
    /// The operating system refused to start it.
    System(io::Error),
    /// The memory limit could not be set.
    Memory(io::Error),
}

impl fmt::Display for ProgramProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory(_) => "the working directory of this agent's program is not there",
            Self::Missing(_) => "the program of this agent was not found",
            Self::Forbidden(_) => "the program of this agent may not be executed",
            Self::System(_) => "the program of this agent could not be started",
            Self::Memory(_) => "the memory of this agent's program could not be limited",
        })
    }
}

impl ProgramProblem {
    /// The path, name or system error, for the operator.
    pub(in crate::agents) fn cause(&self) -> String {
        match self {
            Self::Directory(path) | Self::Forbidden(path) => path.display().to_string(),
            Self::Missing(program) => program.clone(),
            Self::System(error) | Self::Memory(error) => error.to_string(),
        }
    }
}

/// The path of the program.
///
/// # Errors
/// The program cannot be run.
pub(in crate::agents) fn find(settings: &Command) -> Result<PathBuf, ProgramProblem> {
    if let Some(directory) = settings.directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(ProgramProblem::Directory(directory.clone()));
    }
    if settings.line.program.contains('/') {
        // The child would resolve a relative path in its own working directory.
        let path = std::path::absolute(&settings.line.program).map_err(ProgramProblem::System)?;
        return match path.is_file() {
            true if is_executable(&path) => Ok(path),
            true => Err(ProgramProblem::Forbidden(path)),
            false => Err(ProgramProblem::Missing(settings.line.program.clone())),
        };
    }
    let candidates: Vec<PathBuf> = std::env::split_paths(&search_path(settings))
        .filter_map(|directory| std::path::absolute(directory.join(&settings.line.program)).ok())
        .filter(|path| path.is_file())
        .collect();
    match candidates.iter().find(|path| is_executable(path)).or(candidates.first()) {
        Some(path) if is_executable(path) => Ok(path.clone()),
        Some(path) => Err(ProgramProblem::Forbidden(path.clone())),
        None => Err(ProgramProblem::Missing(settings.line.program.clone())),
    }
}

/// The `PATH` that the program itself will see.
fn search_path(settings: &Command) -> OsString {
    let inherited = || {
        let inherits = settings.inherit.iter().any(|name| name == "PATH");
        std::env::var_os("PATH").filter(|_| inherits)
    };
    let own = settings.environment.0.get("PATH").map(OsString::from);
    own.or_else(inherited).unwrap_or_else(|| DEFAULT_PATH.into())
}

/// True if any execute bit is set. The system decides at the start whether the hub may execute it.
fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}
