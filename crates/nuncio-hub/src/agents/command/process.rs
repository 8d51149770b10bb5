//! The process group of a program: signals, exit and cleanup.
//!
//! **Invariant:** the first process is not reaped before its group was killed. Until then its id, which is
//! also the group's id, cannot be reused, so that no signal can hit another process.

use std::{io, os::unix::process::ExitStatusExt as _, process::ExitStatus, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    process::Child,
    signal::unix::{SignalKind, signal},
    time::timeout,
};

/// A running program.
pub(in crate::agents) struct Process {
    /// Before `child`: fields are dropped in this order, so the group is killed while its id is still in
    /// use.
    group: Group,
    child: Child,
    exit: Arc<Exit>,
}

impl Process {
    pub(super) fn new(child: Child) -> io::Result<Self> {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { group: Group(Some(pid)), child, exit: Arc::new(Exit(pid)) })
    }

    /// The exit of the first process.
    pub(super) fn exit(&self) -> &Arc<Exit> {
        &self.exit
    }

    /// Limits the address space of the first process, and of the processes that it starts from now on.
    #[cfg(target_os = "linux")]
    pub(super) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, prlimit};
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        prlimit(self.group.0, Resource::As, limit)?;
        Ok(())
    }

    /// Unsupported: the configuration refuses a memory limit on this system.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn limit_memory(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends SIGTERM to the group and waits for up to `grace`. Output is read by `drain` meanwhile, so that
    /// the program can clean up without blocking on its pipe.
    pub(in crate::agents) async fn stop(&self, grace: Duration, drain: impl Future) {
        self.group.signal(Signal::TERM);
        self.leave(grace, drain).await;
    }

    /// Waits for up to `grace` for the program to end by itself.
    pub(super) async fn leave(&self, grace: Duration, drain: impl Future) {
        let gone = futures_util::future::join(drain, self.exit.exited());
        if timeout(grace, gone).await.is_err() {
            tracing::debug!("a program did not end in time and is killed");
        }
    }

    /// Kills the rest of the group and returns the exit status of the first process.
    pub(in crate::agents) async fn end(mut self) -> io::Result<ExitStatus> {
        self.group.signal(Signal::KILL);
        let status = self.child.wait().await;
        // The process is reaped: its id may be reused from now on.
        self.group.0 = None;
        status
    }
}

/// A process group that is killed on drop.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0
            && let Err(error) = kill_process_group(pid, signal)
        {
            tracing::debug!(%error, "a signal did not reach a program");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The exit of a process, observed without reaping it.
pub(super) struct Exit(Pid);

impl Exit {
    /// Returns when the process has exited.
    pub(super) async fn exited(&self) {
        // Subscribes before the first check, so that an exit between check and wait is not missed.
        let mut children = match signal(SignalKind::child()) {
            Ok(children) => children,
            Err(error) => {
                tracing::error!(%error, "cannot wait for the end of a program; it is killed");
                return;
            }
        };
        while !self.has_ended() {
            children.recv().await;
        }
    }

    fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // An error means that the process is not our child any more.
        !matches!(waitid(WaitId::Pid(self.0), look), Ok(None))
    }
}

/// Describes the failure of an exit status; `None` for exit code 0.
pub(super) fn failure(status: &ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(match name(signal) {
            Some(name) => format!("killed by signal {signal} ({name})"),
            None => format!("killed by signal {signal}"),
        }),
        (None, None) => Some("neither exit code nor signal".to_owned()),
    }
}

/// Names of signals that end programs.
fn name(signal: i32) -> Option<&'static str> {
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    named.into_iter().find(|(known, _)| known.as_raw() == signal).map(|(_, name)| name)
}
