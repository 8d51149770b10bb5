//! Exit codes: stable, so that scripts can rely on them.

use std::process::ExitCode;

use nuncio_hub::{OpenError, config::Problems};
use nuncio_protocol::{Error, ErrorKind, TaskState};
use serde::Serialize;
use serde_json::Value;

use crate::output::{self, Format};

/// Success.
pub(crate) const OK: u8 = 0;
/// Any other error.
pub(crate) const OTHER: u8 = 1;
/// The command line is wrong; clap gives the same code.
pub(crate) const USAGE: u8 = 2;
/// The agent, the hub or the store cannot be reached or is overloaded, or there is no agent at the URL.
pub(crate) const UNREACHABLE: u8 = 3;
/// Credentials are missing, wrong or insufficient.
pub(crate) const DENIED: u8 = 4;
/// The task, delivery, agent or key does not exist.
pub(crate) const NOT_FOUND: u8 = 5;
/// The agent or the hub refused the call.
pub(crate) const REFUSED: u8 = 6;
/// The task failed, was rejected or was canceled.
pub(crate) const TASK_FAILED: u8 = 7;
/// The task waits for input or authorization.
pub(crate) const TASK_WAITS: u8 = 8;

/// The store is damaged.
pub(crate) const DAMAGED: u8 = 9;
/// The configuration is wrong; sysexits(3) has the same code.
pub(crate) const CONFIG: u8 = 78;

/// The exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success
  1  any other error
  2  the command line is wrong
  3  the agent, the hub or the store cannot be reached or is overloaded, or there is no agent at the URL
  4  credentials are missing, wrong or insufficient
  5  the task, delivery, agent or key does not exist
  6  the agent or the hub refused the call
  7  the task failed, was rejected or was canceled
  8  the task waits for input or authorization
  9  the store is damaged
 78  the configuration is wrong";

/// A mistake on the command line that clap does not check.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the command line: the mistake and the expected value.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// An error of a call, with a hint by the command.
#[derive(Debug)]
pub(crate) struct Told {
    error: Error,
    /// The remedy, on a line of its own, so that a command in it can be pasted.
    hint: Option<String>,
    /// The exit code, if it is not that of the error's kind.
    code: Option<u8>,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Told {}

/// An error with a hint at the remedy.
pub(crate) fn hinted(error: Error, hint: impl Into<String>) -> anyhow::Error {
    Told { error, hint: Some(hint.into()), code: None }.into()
}

/// An error of a connection to a peer of another kind than the command expects.
pub(crate) fn no_agent(error: Error, hint: Option<String>) -> anyhow::Error {
    let code = (error.kind() == ErrorKind::InvalidAgentResponse).then_some(UNREACHABLE);
    Told { error, hint, code }.into()
}

/// A missing thing other than a task.
pub(crate) fn not_found(message: impl Into<String>) -> anyhow::Error {
    Told { error: Error::new(ErrorKind::InvalidParams, message), hint: None, code: Some(NOT_FOUND) }.into()
}

/// An error as it is printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
    /// The name of its kind, and its details, as the protocol has them; of a call only.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Value>,
}

/// Prints the error and returns its exit code. A broken pipe of stdout is no error.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    report_with(error, code(error), format)
}

/// Prints the error and returns this exit code, unless the error is a broken pipe of stdout.
pub(crate) fn report_with(error: &anyhow::Error, exit_code: u8, format: Format) -> ExitCode {
    let mut words = Vec::new();
    let mut report = Report { message: String::new(), hint: None, exit_code, reason: None, details: vec![] };
    for cause in error.chain() {
        if cause.downcast_ref::<std::io::Error>().is_some_and(is_broken_pipe) {
            return ExitCode::from(OK);
        }
        words.push(cause.to_string());
        let told = cause.downcast_ref::<Told>();
        report.hint = told.and_then(|told| told.hint.as_deref()).or(report.hint);
        let of_call = told.filter(|told| told.code != Some(NOT_FOUND)).map(|told| &told.error);
        if let Some(error) = cause.downcast_ref::<Error>().or(of_call) {
            report.reason = Some(error.kind().row().reason);
            report.details = error.details();
        }
        // Its message is complete: its causes repeat it, and a broken pipe among them was the connection's.
        if cause.is::<Error>() {
            break;
        }
    }
    report.message = words.join(": ");
    output::error(format, &report.message, report.hint, &report);
    ExitCode::from(exit_code)
}

/// Prints a mistake on the command line that clap has found, and ends as clap does.
pub(crate) fn report_usage(error: &clap::Error, format: Format) -> ExitCode {
    if format == Format::Human || !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
    let report = Report { message, hint: None, exit_code: USAGE, reason: None, details: vec![] };
    output::error(format, &report.message, None, &report);
    ExitCode::from(USAGE)
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if let Some(problems) = cause.downcast_ref::<Problems>() {
            // Without a file the mistake is on the command line.
            return if problems.in_files() { CONFIG } else { USAGE };
        }
        if let Some(told) = cause.downcast_ref::<Told>() {
            return told.code.unwrap_or_else(|| of_error(&told.error));
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return of_error(error);
        }
        if let Some(error) = cause.downcast_ref::<OpenError>() {
            return of_store(error);
        }
    }
    OTHER
}

fn of_error(error: &Error) -> u8 {
    if nuncio_client::has_no_agent(error) { UNREACHABLE } else { of_kind(error.kind()) }
}

fn of_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded | ErrorKind::ResourceExhausted => UNREACHABLE,
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => DENIED,
        ErrorKind::TaskNotFound => NOT_FOUND,
        ErrorKind::Internal | ErrorKind::InvalidAgentResponse => OTHER,
        _ => REFUSED,
    }
}

fn of_store(error: &OpenError) -> u8 {
    match error {
        // The command line names a place that cannot hold a store.
        OpenError::NoSuchDirectory(_) | OpenError::NotOurs { .. } | OpenError::Invalid(_) => USAGE,
        OpenError::LockedBy { .. } | OpenError::Unreachable { .. } => UNREACHABLE,
        OpenError::Denied { .. } => DENIED,
        OpenError::Corrupt { .. } => DAMAGED,
        _ => OTHER,
    }
}

/// True if the reader of stdout has gone, which is no error.
pub(crate) fn is_broken_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

/// The exit code for the state of a task.
pub(crate) fn of_state(state: TaskState) -> u8 {
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => TASK_FAILED,
        TaskState::InputRequired | TaskState::AuthRequired => TASK_WAITS,
        TaskState::Completed | TaskState::Submitted | TaskState::Working | TaskState::Unspecified => OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error() {
        let error = |kind| Error::new(kind, "why");
        let pipe = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        for (error, expected) in [
            (usage("wrong"), USAGE),
            (error(ErrorKind::TaskNotFound).into(), NOT_FOUND),
            (error(ErrorKind::InvalidAgentResponse).into(), OTHER),
            (no_agent(error(ErrorKind::InvalidAgentResponse), None), UNREACHABLE),
            (no_agent(error(ErrorKind::Unauthenticated), None), DENIED),
            (no_agent(error(ErrorKind::Unavailable), None).context("there"), UNREACHABLE),
            (hinted(error(ErrorKind::DeadlineExceeded), "see"), UNREACHABLE),
            (anyhow::anyhow!("other"), OTHER),
            (OpenError::LockedBy { path: "a.db".into(), pid: 7 }.into(), UNREACHABLE),
            (OpenError::NoSuchDirectory("a".into()).into(), USAGE),
            (OpenError::ReadOnly { place: "a.db".into() }.into(), OTHER),
            (pipe().into(), OK),
            // The connection to the agent, not the pipe to the reader of our output.
            (error(ErrorKind::Unavailable).with_source(pipe()).into(), UNREACHABLE),
        ] {
            for format in [Format::Human, Format::Json] {
                assert_eq!(report(&error, format), ExitCode::from(expected), "{error:?}");
            }
        }
    }
}
