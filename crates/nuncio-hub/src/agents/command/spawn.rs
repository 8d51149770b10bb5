//! Starts a program with its environment, pipes and limits.

use std::{ffi::OsString, io, process::Stdio};

use nuncio_protocol::ContextId;
use nuncio_server::ExecContext;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command as Builder};

use super::{
    find::{ProgramProblem, find},
    process::Process,
};
use crate::config::Command;

/// A running program, and our ends of its pipes.
pub(in crate::agents) struct Started {
    pub(in crate::agents) process: Process,
    pub(in crate::agents) stdin: ChildStdin,
    pub(in crate::agents) stdout: ChildStdout,
    pub(in crate::agents) stderr: ChildStderr,
}

/// Starts the program for a message.
///
/// # Errors
/// The reason why it cannot be started.
pub(super) fn spawn(
    settings: &Command,
    agent: &str,
    cx: &ExecContext,
    context: &ContextId,
) -> Result<Started, ProgramProblem> {
    spawn_with(settings, environment(settings, agent, cx, context))
}

/// Starts the program with exactly this environment, in a process group of its own.
///
/// # Errors
/// The reason why it cannot be started.
pub(in crate::agents) fn spawn_with(
    settings: &Command,
    variables: Vec<(OsString, OsString)>,
) -> Result<Started, ProgramProblem> {
    let mut builder = Builder::new(find(settings)?);
    builder
        .args(&settings.line.arguments)
        .env_clear()
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        // `Process` kills the whole group; this makes tokio reap the child.
        .kill_on_drop(true);
    if let Some(directory) = &settings.directory {
        builder.current_dir(directory);
    }
    let mut child = builder.spawn().map_err(ProgramProblem::System)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let process = Process::new(child).map_err(ProgramProblem::System)?;
    if let Some(limit) = settings.memory_limit {
        // Set after the start, so memory use before this moment is not limited. An earlier limit needs
        // unsafe code.
        process.limit_memory(limit).map_err(ProgramProblem::Memory)?;
    }
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(ProgramProblem::System(io::ErrorKind::BrokenPipe.into()));
    };
    Ok(Started { process, stdin, stdout, stderr })
}

/// The environment: inherited variables, then configured ones, then those about the task. The last one of a
/// name wins.
fn environment(
    settings: &Command,
    agent: &str,
    cx: &ExecContext,
    context: &ContextId,
) -> Vec<(OsString, OsString)> {
    let caller = &cx.call.caller;
    let about = [
        ("NUNCIO_AGENT", Some(agent)),
        ("NUNCIO_TASK_ID", Some(cx.task_id.as_str())),
        ("NUNCIO_CONTEXT_ID", Some(context.as_str())),
        ("NUNCIO_PRINCIPAL", caller.principal().map(|principal| &**principal)),
        ("NUNCIO_TENANT", caller.tenant().map(|tenant| &**tenant)),
    ];
    // Inherited and configured values of these names are removed: an anonymous caller has no principal.
    let is_ours = |name: &str| about.iter().any(|(ours, _)| *ours == name);
    let inherited = settings.inherit.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let set = settings.environment.0.iter().map(|(name, value)| (name.into(), value.into()));
    let mut variables: Vec<(OsString, OsString)> = inherited.chain(set).collect();
    variables.retain(|(name, _)| name.to_str().is_none_or(|name| !is_ours(name)));
    let trace = cx.call.trace.as_ref();
    let trace = [
        ("TRACEPARENT", trace.map(|trace| &*trace.parent)),
        ("TRACESTATE", trace.and_then(|trace| trace.state.as_deref())),
    ];
    let told = about.into_iter().chain(trace).filter_map(|(name, value)| Some((name.into(), value?.into())));
    variables.extend(told);
    variables
}
