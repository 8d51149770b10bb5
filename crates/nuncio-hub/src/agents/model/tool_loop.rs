//! The loop of a model with tools: ask, call, ask again with the results, until the model calls nothing more or a limit
//! is reached.

use nuncio_protocol::{Event, Message, Part, Result, TaskState, TaskStatus, TaskStatusUpdateEvent};
use nuncio_server::{Emitter, ExecContext};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::{
    MODEL_EXTENSION,
    artifacts::Artifacts,
    dialect::{self, Item, Speaker, ToolCall, ToolResult, Turn},
    executor::{ModelExecutor, Outcome, Work, message},
    progress::Progress,
    rounds::{Bound, Phase},
    tools::{Tool, approval::Decision, refused},
};

/// The members of the metadata of a message that tells of a call, and of one that asks about it.
pub(super) const CALL: &str = "call";
pub(super) const QUESTION: &str = "question";

/// The state of the loop beside the work itself.
struct Loop<'a> {
    cx: &'a ExecContext,
    out: &'a Emitter,
    /// The end of the time for tools.
    deadline: Option<Instant>,
    /// The caller's decision about the next call.
    decision: Option<Decision>,
}

impl ModelExecutor {
    /// Asks the model, and calls its tools, until the last answer.
    pub(super) async fn run(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        work: &mut Work,
        progress: &mut Progress,
        artifacts: &mut Artifacts,
    ) -> Result<Outcome> {
        let phase = work.rounds.phase();
        let decision = (phase == Phase::Asked).then(|| Decision::of(&cx.message)).flatten();
        let deadline = self.settings.time_limit.map(|limit| Instant::now() + limit);
        let mut state = Loop { cx, out, deadline, decision };
        if let (Phase::Running { is_repeatable: false }, Some((call, _))) = (phase, work.rounds.next_call()) {
            let tool = work.tools.find(&call.name).map_or(call.name.as_str(), |tool| &tool.name);
            let words = format!(
                "the hub was stopped while {tool} ran: it may have been done, and is not called again"
            );
            return Ok(Outcome::Unsure(words));
        }
        artifacts.restore(&work.rounds.texts()).await?;
        let spoken = work.prompt.turns.len();
        loop {
            if self.call_tools(&mut state, work, progress).await? {
                return Ok(Outcome::Asked);
            }
            let rounds = u32::try_from(work.rounds.count()).unwrap_or(u32::MAX);
            let limit = self.settings.max_rounds;
            let at_rounds = (rounds >= limit).then_some(Bound::Rounds(limit));
            progress.bound = at_rounds.or_else(|| self.bound(&state, work, progress)).filter(|_| rounds > 0);
            work.prompt.turns.truncate(spoken);
            work.prompt.turns.extend(work.rounds.turns());
            work.prompt.tools_are_over = progress.bound.is_some();
            if let Some(bound) = progress.bound {
                let note =
                    format!("No more tools can be called: {}. Answer with what is known.", bound.told());
                work.prompt.turns.push(Turn { speaker: Speaker::User, items: vec![Item::Text(note)] });
            }
            artifacts.next_round();
            match self.answer(cx, out, &mut work.prompt, progress, artifacts).await? {
                Outcome::Answered => {}
                other => return Ok(other),
            }
            match progress.round(work.rounds.count()).filter(|_| progress.bound.is_none()) {
                Some(round) if !work.prompt.tools.is_empty() => work.rounds.begin(round, &work.prompt.output),
                Some(_) | None => return Ok(Outcome::Answered),
            }
        }
    }

    /// The limit of tokens or time, if it is reached.
    fn bound(&self, state: &Loop<'_>, work: &Work, progress: &Progress) -> Option<Bound> {
        let spent = work.rounds.usage().and(progress.tokens()).total();
        let tokens = self.settings.max_total_tokens.filter(|limit| spent >= *limit).map(Bound::Tokens);
        let is_late = state.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        tokens.or_else(|| self.settings.time_limit.filter(|_| is_late).map(Bound::Time))
    }

    /// Makes the calls of the current round that have no result yet; true if the caller has to decide about one.
    async fn call_tools(&self, state: &mut Loop<'_>, work: &mut Work, progress: &Progress) -> Result<bool> {
        let (cx, out) = (state.cx, state.out);
        let mut has_called = false;
        while let Some((call, key)) = work.rounds.next_call() {
            let result = match (work.tools.find(&call.name), dialect::arguments(&call)) {
                (None, _) => work.tools.unknown(&call),
                (Some(_), Err(why)) => refused(&call, format!("the arguments are wrong: {why}")),
                (Some(tool), Ok(arguments)) => {
                    if let Some(bound) = self.bound(state, work, progress) {
                        refused(&call, format!("the tool was not called: {}", bound.told()))
                    } else {
                        match (tool.needs_approval, state.decision.take()) {
                            (true, None) => {
                                let question = question(cx, tool, &arguments);
                                work.rounds.note(out, Phase::Asked, progress.tokens())?;
                                emit(out, TaskState::InputRequired, question).await?;
                                return Ok(true);
                            }
                            (true, Some(Decision::Deny)) => {
                                refused(&call, "the user did not allow this call of the tool")
                            }
                            (true, Some(Decision::Allow)) | (false, _) => {
                                let is_repeatable = tool.is_repeatable;
                                let told = calling(cx, tool, &arguments);
                                work.rounds.note(out, Phase::Running { is_repeatable }, progress.tokens())?;
                                emit(out, TaskState::Working, told).await?;
                                // From here on a restart must not call it again.
                                out.flush().await?;
                                has_called = true;
                                self.call(state, tool, &call, arguments, key).await
                            }
                        }
                    }
                }
            };
            work.rounds.add(result);
        }
        if has_called {
            work.rounds.note(out, Phase::Idle, progress.tokens())?;
            out.working().await?;
        }
        Ok(false)
    }

    /// Calls a tool, until the end of the time for tools.
    async fn call(
        &self,
        state: &Loop<'_>,
        tool: &Tool,
        call: &ToolCall,
        arguments: Map<String, Value>,
        key: String,
    ) -> ToolResult {
        let span = self.telemetry.tool_span(&self.name, &tool.name, state.cx.call.trace.as_ref());
        let running = tool.run(state.cx, call, arguments, key);
        let result = match state.deadline {
            None => running.await,
            Some(deadline) => timeout_at(deadline, running)
                .await
                .unwrap_or_else(|_| refused(call, "the time for tools is over; the call may have been done")),
        };
        if result.is_error {
            span.failed("tool_error");
        }
        result
    }
}

async fn emit(out: &Emitter, state: TaskState, message: Message) -> Result<()> {
    let status = TaskStatus { state, message: Some(message.into()), timestamp: None };
    out.emit(Event::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() })).await
}

/// The progress for the caller. The arguments are in the metadata only: they may be long.
fn calling(cx: &ExecContext, tool: &Tool, arguments: &Map<String, Value>) -> Message {
    let mut message = message(cx, vec![Part::text(format!("calling {}", tool.name))]);
    message.metadata.insert(MODEL_EXTENSION, json!({ CALL: { "tool": tool.name, "arguments": arguments } }));
    message
}

/// The question whether a tool may be called.
fn question(cx: &ExecContext, tool: &Tool, arguments: &Map<String, Value>) -> Message {
    let text = format!(
        "May {} be called with these arguments? Answer yes or no, or with the data {{\"decision\": \"allow\"}} or \
         {{\"decision\": \"deny\"}}.",
        tool.name
    );
    let data = Part::data(json!({ "tool": tool.name, "arguments": arguments }));
    let mut message = message(cx, vec![Part::text(text), data]);
    message.metadata.insert(MODEL_EXTENSION, json!({ QUESTION: { "tool": tool.name } }));
    message
}
