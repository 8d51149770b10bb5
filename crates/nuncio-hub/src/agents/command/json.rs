//! The JSON format, one object per line: the message on standard input, events on standard output.

use std::sync::Arc;

use nuncio_protocol::{Error, Event, Result, Task, TaskState};
use nuncio_server::{Emitter, ExecContext, TextStream};

use super::{ContextKey, Stop, output::Output};
use crate::{
    agents::json_lines::{
        event::{self, Said},
        excerpt,
        input::Parts,
    },
    config::Command,
};

/// Files are accepted: in this format they are parts like any other.
pub(super) const INPUT: &[&str] = &["*/*"];
pub(super) const OUTPUT: &[&str] = &["text/plain", "application/json"];

/// Encodes the input of the program, with derived context ids.
///
/// # Errors
/// It cannot be written as JSON.
pub(super) fn input(
    agent: &str,
    cx: &ExecContext,
    earlier: &[Task],
    contexts: &ContextKey,
) -> Result<Vec<u8>> {
    let parts = Parts {
        agent,
        caller: &cx.call.caller,
        task_id: &cx.task_id,
        context_id: &cx.context_id,
        message: &cx.message,
        task: cx.task.as_ref(),
        references: &cx.references,
        earlier,
        accepted_output_modes: &cx.configuration.accepted_output_modes,
        metadata: &cx.metadata,
    };
    let mut line = serde_json::to_vec(&parts.translate(contexts)).map_err(Error::internal)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a program's output as events.
pub(super) struct Json<'a> {
    cx: &'a ExecContext,
    out: &'a Emitter,
    artifact: TextStream,
    limit: usize,
    /// Number of lines read.
    number: u64,
    unread: Vec<u8>,
    /// The task exists and is in progress.
    begun: bool,
}

impl<'a> Json<'a> {
    pub(super) fn new(
        settings: &Command,
        cx: &'a ExecContext,
        out: &'a Emitter,
        artifact: TextStream,
    ) -> Self {
        Self { cx, out, artifact, limit: settings.line_limit, number: 0, unread: Vec::new(), begun: false }
    }

    pub(super) async fn read(&mut self, output: &mut Output) -> Result<(), Stop> {
        let mut searched = 0;
        while output.read(&mut self.unread).await? {
            let new = &self.unread[searched..];
            if let Some(end) = new.iter().rposition(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(searched + end + 1);
                let whole = std::mem::replace(&mut self.unread, rest);
                for line in whole.split_inclusive(|byte| *byte == b'\n') {
                    self.line(line).await?;
                }
            }
            searched = self.unread.len();
            self.check(searched)?;
        }
        let last = std::mem::take(&mut self.unread);
        if !last.is_empty() {
            self.line(&last).await?;
        }
        self.close().await?;
        Ok(())
    }

    pub(super) async fn close(&mut self) -> Result<()> {
        self.artifact.finish().await
    }

    /// Checks the length of a line against the limit.
    fn check(&self, length: usize) -> Result<(), Stop> {
        if length <= self.limit {
            return Ok(());
        }
        Err(Stop::Refused(format!(
            "line {} of the program's output is longer than {} bytes",
            self.number + 1,
            self.limit
        )))
    }

    async fn line(&mut self, line: &[u8]) -> Result<(), Stop> {
        let line = line.trim_ascii();
        self.check(line.len())?;
        self.number += 1;
        if line.is_empty() {
            return Ok(());
        }
        match event::parse(line) {
            Ok(said) => self.say(said).await,
            Err(why) => Err(Stop::Refused(format!(
                "line {} of the program's output {why}: {}",
                self.number,
                excerpt(line)
            ))),
        }
    }

    async fn say(&mut self, said: Said) -> Result<(), Stop> {
        match said {
            Said::Status(state, parts) => {
                self.stand(state).await?;
                self.out.status(state, parts).await?;
                return ends(state);
            }
            Said::Event(Event::StatusUpdate(mut update)) => {
                let state = update.status.state;
                if let Some(message) = &mut update.status.message {
                    let message = Arc::make_mut(message);
                    message.task_id = Some(self.cx.task_id.clone());
                    message.context_id = Some(self.cx.context_id.clone());
                }
                self.stand(state).await?;
                self.out.emit(Event::StatusUpdate(update)).await?;
                return ends(state);
            }
            Said::Event(reply @ Event::Message(_)) => {
                self.close().await?;
                self.out.emit(reply).await?;
                return Err(Stop::Said);
            }
            Said::Reply(parts) => {
                self.close().await?;
                self.out.message(parts).await?;
                return Err(Stop::Said);
            }
            Said::Event(piece) => {
                self.begin().await?;
                self.out.emit(piece).await?;
            }
            Said::Artifact { artifact, append, last } => {
                self.begin().await?;
                self.out.chunk(artifact, append, last).await?;
            }
            Said::Text { text, last } => {
                self.begin().await?;
                match last {
                    true => self.artifact.finish_with(text).await?,
                    false => self.artifact.push(text).await?,
                }
            }
        }
        Ok(())
    }

    /// Prepares a change of state: a settled state completes the open artifact.
    async fn stand(&mut self, state: TaskState) -> Result<()> {
        self.begun = true;
        if state.is_settled() { self.close().await } else { Ok(()) }
    }

    /// Sets the task to working before its first artifact, if the program has not set a state.
    async fn begin(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.out.working().await?;
        }
        Ok(())
    }
}

/// Stops reading after a terminal state.
fn ends(state: TaskState) -> Result<(), Stop> {
    if state.is_terminal() { Err(Stop::Said) } else { Ok(()) }
}
