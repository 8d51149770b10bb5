//! Servers of tools that are programs: a process group for as long as the connection lives.

use std::{ffi::OsString, time::Duration};

use anyhow::{Result, anyhow};
use tokio::{
    io::AsyncReadExt as _,
    process::{ChildStderr, ChildStdin, ChildStdout},
    runtime::Handle,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    agents::command::{Process, find, spawn_with},
    config::{Command, ToolTarget},
};

/// Bytes of standard error that are read at a time.
const STDERR_CHUNK_BYTES: usize = 4096;

/// A running server. Dropping it asks the process group to end, and kills it after a grace.
pub(super) struct Program {
    process: Option<Process>,
    grace: Duration,
    _stderr: AbortOnDropHandle<()>,
}

/// Checks that the program can be run.
///
/// # Errors
/// Says why not.
pub(super) fn check(target: &ToolTarget) -> Result<()> {
    match target {
        ToolTarget::Program(settings) => match find(settings) {
            Ok(_) => Ok(()),
            Err(problem) => Err(anyhow!("{}", problem.cause()).context(problem.to_string())),
        },
        ToolTarget::Remote(..) => Ok(()),
    }
}

impl Program {
    /// Starts the program with the limits of programs that are agents.
    ///
    /// # Errors
    /// The reason why it cannot be started.
    pub(super) fn start(settings: &Command, server: &str) -> Result<(Self, ChildStdout, ChildStdin)> {
        let inherited =
            settings.inherit.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        let set = settings.environment.0.iter().map(|(name, value)| (name.into(), value.into()));
        let variables: Vec<(OsString, OsString)> = inherited.chain(set).collect();
        let started = spawn_with(settings, variables)
            .map_err(|problem| anyhow!("{}", problem.cause()).context(problem.to_string()))?;
        let stderr = tokio::spawn(drain(started.stderr, server.to_owned()));
        let program = Self {
            process: Some(started.process),
            grace: settings.grace,
            _stderr: AbortOnDropHandle::new(stderr),
        };
        Ok((program, started.stdout, started.stdin))
    }
}

/// Reads standard error, so that the program is never blocked by a full pipe. Only its size is logged: servers write the
/// contents of files there.
async fn drain(mut stderr: ChildStderr, server: String) {
    let mut chunk = vec![0; STDERR_CHUNK_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        tracing::trace!(%server, count, "a server of tools wrote to standard error");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let (Some(process), Ok(runtime)) = (self.process.take(), Handle::try_current()) else { return };
        let grace = self.grace;
        runtime.spawn(async move {
            process.stop(grace, std::future::ready(())).await;
            if let Err(error) = process.end().await {
                tracing::debug!(%error, "the exit status of a server of tools is unknown");
            }
        });
    }
}
