//! Exit codes: stable, so that scripts can rely on them.

use std::process::ExitCode;

use nuncio_protocol::{Error, ErrorKind, TaskState};

use crate::output;

/// All went well.
pub(crate) const OK: u8 = 0;
/// Something else.
pub(crate) const OTHER: u8 = 1;
/// The command line is wrong; clap gives the same code.
pub(crate) const USAGE: u8 = 2;
/// The agent could not be reached, or not now.
pub(crate) const UNREACHABLE: u8 = 3;
/// Credentials are missing, wrong, or not enough.
pub(crate) const DENIED: u8 = 4;
/// There is no such task.
pub(crate) const NOT_FOUND: u8 = 5;
/// The agent refused the call.
pub(crate) const REFUSED: u8 = 6;
/// The task failed, was rejected or was canceled.
pub(crate) const TASK_FAILED: u8 = 7;
/// The task waits for input or for an authorisation.
pub(crate) const TASK_WAITS: u8 = 8;

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  all went well
  1  something else
  2  the command line is wrong
  3  the agent could not be reached, or not now
  4  credentials are missing, wrong, or not enough
  5  there is no such task
  6  the agent refused the call
  7  the task failed, was rejected or was canceled
  8  the task waits for input or for an authorisation";

/// A mistake on the command line that only we can see.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Says what is wrong on the command line and what is expected.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Tells the error and gives its code. A broken pipe is none, and nothing is said about it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_broken_pipe)) {
        return ExitCode::from(OK);
    }
    let mut words = Vec::new();
    for cause in error.chain() {
        words.push(cause.to_string());
        // Its message says all that people need; what is beneath it repeats that in other words.
        if cause.is::<Error>() {
            break;
        }
    }
    output::end_line();
    output::note(&format!("error: {}", words.join(": ")));
    ExitCode::from(code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<Usage>()) {
        return USAGE;
    }
    let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<Error>()) else { return OTHER };
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded | ErrorKind::ResourceExhausted => UNREACHABLE,
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => DENIED,
        ErrorKind::TaskNotFound => NOT_FOUND,
        ErrorKind::Internal | ErrorKind::InvalidAgentResponse => OTHER,
        _ => REFUSED,
    }
}

/// Whoever read us has had enough: that is not an error.
pub(crate) fn is_broken_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

/// What the state of a task means for a script.
pub(crate) fn of_state(state: TaskState) -> u8 {
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => TASK_FAILED,
        TaskState::InputRequired | TaskState::AuthRequired => TASK_WAITS,
        TaskState::Completed | TaskState::Submitted | TaskState::Working | TaskState::Unspecified => OK,
    }
}
