//! Starting a program: its environment, its pipes, its bounds.

use std::{ffi::OsString, io, process::Stdio};

use nuncio_server::ExecContext;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command as Builder};

use super::{
    find::{Problem, find},
    process::Process,
};
use crate::config::Command;

/// A program that runs, and the ends of its pipes.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Starts the program in a process group of its own.
///
/// # Errors
/// Says why it cannot be started.
pub(super) fn spawn(settings: &Command, agent: &str, cx: &ExecContext) -> Result<Started, Problem> {
    let mut builder = Builder::new(find(settings)?);
    builder
        .args(&settings.arguments)
        .env_clear()
        .envs(environment(settings, agent, cx))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        // With its group it is killed by `Process`; this has it reaped.
        .kill_on_drop(true);
    if let Some(directory) = &settings.directory {
        builder.current_dir(directory);
    }
    let mut child = builder.spawn().map_err(Problem::System)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let process = Process::new(child).map_err(Problem::System)?;
    if let Some(limit) = settings.memory_limit {
        // A moment late: what it does before is not bounded. To be there earlier takes unsafe code.
        process.limit_memory(limit).map_err(Problem::Memory)?;
    }
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(Problem::System(io::ErrorKind::BrokenPipe.into()));
    };
    Ok(Started { process, stdin, stdout, stderr })
}

/// What is let through, what is set, and what the task is; of the same name the last counts.
fn environment(settings: &Command, agent: &str, cx: &ExecContext) -> Vec<(OsString, OsString)> {
    let inherited = settings.inherit.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let mut variables: Vec<(OsString, OsString)> = inherited.collect();
    let mut set = |name: &str, value: &str| variables.push((name.into(), value.into()));
    for (name, value) in &settings.environment.0 {
        set(name, value);
    }
    set("NUNCIO_AGENT", agent);
    set("NUNCIO_TASK_ID", cx.task_id.as_str());
    set("NUNCIO_CONTEXT_ID", cx.context_id.as_str());
    if let Some(trace) = &cx.call.trace {
        set("TRACEPARENT", &trace.parent);
        if let Some(state) = &trace.state {
            set("TRACESTATE", state);
        }
    }
    variables
}
