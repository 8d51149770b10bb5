//! Programs as agents: a process for each message. Its output is streamed as artifacts or events, and its
//! exit code decides the final state.
//!
//! Reading order: this file runs one message; `find` locates the program, `spawn` starts it, `process` ends
//! it, `output` reads its output within limits, `text` and `json` are the two output formats, `event` is a
//! line of JSON, `artifact` the artifact of plain text, `stderr_log` reads standard error, `preflight` checks
//! a configuration.
//!
//! **Invariant:** a program has ended when its first process has exited and its output is closed. All
//! processes that it started belong to its process group, and every path out of this module kills the
//! group.

mod artifact;
mod event;
mod find;
mod json;
mod output;
mod preflight;
mod process;
mod spawn;
mod stderr_log;
#[cfg(test)]
mod tests;
mod text;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, AgentSkill, Error, ErrorKind, Result};
use nuncio_server::{
    CallerKey, CallerPermit, CallerPool, EarlierLimit, Emitter, ExecContext, Executor, Limits, Runtime,
    RuntimeBuilder,
};
use tokio::{io::AsyncWriteExt as _, process::ChildStdin};
use tokio_util::task::AbortOnDropHandle;

pub(super) use self::{find::find, process::Process, spawn::spawn_with};
use self::{json::Json, output::Output, spawn::Started, stderr_log::StderrLog, text::TextReader};
use super::{
    AgentFactory, ContextKey, Isolation, Kind, Label, Prepared,
    kind::{RuntimeSpec, TargetProblem},
};
use crate::{
    agent_urls::AgentUrls,
    config::{self, Command, Format},
};

/// The maximum time to end a program after its grace.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

#[async_trait]
impl Kind for Command {
    fn name() -> &'static str {
        "program"
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> anyhow::Result<Prepared> {
        let builder = agent(&factory.urls, &desired.name, self, &factory.isolation());
        let builder = builder.card(|card| Label::of(desired).put_on(card));
        Ok(Prepared::durable(RuntimeSpec::new(builder)))
    }

    /// A runtime cannot change its cancel grace.
    fn runtime_key(&self) -> String {
        format!("command {:?}", self.grace)
    }

    fn check_files(&self) -> Vec<TargetProblem> {
        preflight::check(self)
    }
}

/// An agent that runs the program.
fn agent(urls: &AgentUrls, name: &str, settings: &Command, isolation: &Isolation) -> RuntimeBuilder {
    // The runtime waits longer than the program's grace, so that it does not end the execution first.
    let cancel_grace = settings.grace + KILL_TIMEOUT;
    Runtime::builder(card(urls, name, settings), Program::new(settings, name, isolation))
        .limits(Limits { cancel_grace, ..Limits::default() })
}

/// The card of an agent that runs the program. Only the operator knows the purpose of the program; without an
/// operator's description the card has the facts that the configuration contains.
fn card(urls: &AgentUrls, name: &str, settings: &Command) -> AgentCard {
    let mut card = super::card(urls, name);
    let (input, output, takes) = match settings.format {
        Format::Text => (text::INPUT, text::OUTPUT, "Takes the text of a message and answers with text."),
        Format::Json => (json::INPUT, json::OUTPUT, "Takes any message and answers with artifacts."),
    };
    let owned = |modes: &[&str]| modes.iter().map(|&mode| mode.to_owned()).collect();
    (card.default_input_modes, card.default_output_modes) = (owned(input), owned(output));
    card.description = "A program that runs once for each message.".to_owned();
    card.skills = vec![AgentSkill {
        id: "message".to_owned(),
        name: "Message".to_owned(),
        description: takes.to_owned(),
        tags: vec!["program".to_owned()],
        ..AgentSkill::default()
    }];
    card
}

/// The executor of a program.
struct Program {
    settings: Command,
    name: Arc<str>,
    /// Derives the context ids that the program sees.
    contexts: ContextKey,
    /// A permit for each process that may run.
    processes: CallerPool,
}

/// The reason why a program is stopped before it ends by itself.
enum Stop {
    /// The task was canceled or the hub shuts down; the runtime records the state.
    Canceled,
    /// The program has set a terminal state or replied.
    Said,
    /// The program exceeded a limit or wrote an invalid line.
    Refused(String),
    /// The task cannot be recorded any more.
    Over(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Over(error)
    }
}

/// Reads the output in the configured format.
enum OutputReader<'a> {
    Text(TextReader),
    Json(Json<'a>),
}

impl OutputReader<'_> {
    /// Reads until the end of the output.
    async fn read(&mut self, output: &mut Output) -> Result<(), Stop> {
        match self {
            Self::Text(text) => text.read(output).await,
            Self::Json(json) => json.read(output).await,
        }
    }

    /// Completes the artifact with the output read so far.
    async fn close(&mut self) -> Result<()> {
        match self {
            Self::Text(text) => text.close().await,
            Self::Json(json) => json.close().await,
        }
    }
}

#[async_trait]
impl Executor for Program {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let text = artifact::text(&self.settings, &cx, &out);
        let (input, mut reader) = match self.settings.format {
            Format::Text => match text::input(&cx.message) {
                Ok(input) => (input, OutputReader::Text(TextReader::new(text))),
                Err(error) => return out.refuse(error),
            },
            Format::Json => {
                let Command { earlier_turns: turns, earlier_bytes: bytes, .. } = self.settings;
                let earlier = cx.earlier(EarlierLimit { turns, bytes }).await?;
                let input = json::input(&self.name, &cx, &earlier, &self.contexts)?;
                (input, OutputReader::Json(Json::new(&self.settings, &cx, &out, text)))
            }
        };
        let Some(_permit) = self.permit(&cx, &out).await? else { return Ok(()) };
        let context = self.contexts.derive(&cx.call.caller, &cx.context_id);
        let Started { process, stdin, stdout, stderr } =
            spawn::spawn(&self.settings, &self.name, &cx, &context).map_err(|problem| {
                tracing::warn!(agent = %self.name, task = %cx.task_id, %problem, cause = problem.cause(), "a program could not be started");
                Error::new(ErrorKind::Internal, problem.to_string())
            })?;
        if let OutputReader::Text(_) = reader {
            out.working().await?;
        }
        let _feeding = AbortOnDropHandle::new(tokio::spawn(feed(stdin, input)));
        let stderr_log = StderrLog::listen(stderr, Arc::clone(&self.name), cx.task_id.clone());
        let mut output = Output::new(stdout, process.exit(), &self.settings);
        let ended = tokio::select! {
            biased;
            () = cx.cancellation.cancelled() => Err(Stop::Canceled),
            ended = follow(&mut reader, &mut output, &process) => ended,
            reason = time(self.settings.time_limit) => Err(Stop::Refused(reason)),
        };
        self.end(ended, process, reader, output, stderr_log).await
    }

    /// A task is always stored: a process costs more than a commit, and its run should be visible
    /// afterwards.
    fn always_leaves_task(&self) -> bool {
        true
    }
}

impl Program {
    fn new(settings: &Command, name: &str, isolation: &Isolation) -> Self {
        if let Err(problem) = find(settings) {
            tracing::warn!(agent = name, %problem, cause = problem.cause(), "the program of this agent cannot be run; its calls fail until this is corrected");
        }
        let Isolation { contexts, share } = isolation.clone();
        let processes = CallerPool::new(settings.processes, share);
        Self { settings: settings.clone(), name: name.into(), contexts, processes }
    }

    /// Waits for a permit to run a process; `None` if the task is canceled meanwhile.
    async fn permit(&self, cx: &ExecContext, out: &Emitter) -> Result<Option<CallerPermit>> {
        let caller = CallerKey::from(&cx.call.caller);
        if let Some(permit) = self.processes.try_acquire(&caller) {
            return Ok(Some(permit));
        }
        out.submitted().await?;
        tokio::select! {
            biased;
            () = cx.cancellation.cancelled() => Ok(None),
            permit = self.processes.acquire(&caller) => Ok(Some(permit)),
        }
    }

    /// Ends the processes, then returns the result of the program.
    async fn end(
        &self,
        ended: Result<(), Stop>,
        process: Process,
        mut reader: OutputReader<'_>,
        mut output: Output,
        stderr_log: StderrLog,
    ) -> Result<()> {
        let grace = self.settings.grace;
        match &ended {
            Ok(()) => {}
            Err(Stop::Said) => process.leave(grace, output.drain()).await,
            Err(Stop::Canceled | Stop::Refused(_) | Stop::Over(_)) => {
                process.stop(grace, output.drain()).await
            }
        }
        let status = process.end().await;
        let last = stderr_log.last(grace).await;
        match ended {
            Ok(()) => match status.as_ref().map(process::failure) {
                Ok(None) => Ok(()),
                Ok(Some(failure)) => Err(failed(join(failure, &last))),
                Err(error) => {
                    Err(failed("the exit status of the program is unknown").with_source(error.to_string()))
                }
            },
            Err(Stop::Canceled | Stop::Said) => Ok(()),
            Err(Stop::Refused(reason)) => {
                reader.close().await?;
                Err(failed(reason))
            }
            Err(Stop::Over(error)) => Err(error),
        }
    }
}

/// Reads the output until the program has ended.
async fn follow(reader: &mut OutputReader<'_>, output: &mut Output, process: &Process) -> Result<(), Stop> {
    reader.read(output).await?;
    process.exit().exited().await;
    Ok(())
}

/// Writes the input to the program, which may close its standard input without reading all of it.
async fn feed(mut stdin: ChildStdin, input: Vec<u8>) {
    if let Err(error) = stdin.write_all(&input).await {
        tracing::debug!(%error, "a program did not read all of its input");
    }
}

/// Returns the reason when the time limit is over; never returns without a limit.
async fn time(limit: Option<Duration>) -> String {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
    format!("the program ran for longer than {:?}", limit.unwrap_or_default())
}

fn failed(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, reason)
}

fn join(failure: String, last: &str) -> String {
    if last.is_empty() { failure } else { format!("{failure}\n{last}") }
}
