//! Answers one message by a model.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{
    Error, ErrorKind, Event, Message, Metadata, Part, Result, Role, TaskState, TaskStatus,
    TaskStatusUpdateEvent, TraceContext,
};
use nuncio_server::{
    CallerKey, CallerPermit, CallerPool, EarlierLimit, Emitter, ExecContext, Executor, store::Store,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    MODEL_EXTENSION,
    artifacts::Artifacts,
    budget::Budget,
    dialect::{self, Finish, OutputForm, Piece, Prompt},
    progress::Progress,
    prompt,
    provider::{Answer, Fault, Provider},
    retry::{self, Next},
    rounds::{Bound, Rounds},
    status,
    tools::{Toolbox, Tools},
};
use crate::{
    agents::{delegation, probe::Probe},
    config::Model,
    fleet::Condition,
    telemetry::{HubTelemetry, ModelRequest, ModelSpan},
};

/// Retry-after of an unavailable model whose provider gave none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The time after which a task is made although the provider has not answered yet. Until then a model that cannot be
/// reached is an error of the call.
const TASK_DELAY: Duration = Duration::from_secs(1);

/// The note at an answer that ends at the limit of tokens.
const CUT: &str = "the answer was cut at the limit of tokens";

/// The executor of a model.
pub(super) struct ModelExecutor {
    pub(super) settings: Model,
    pub(super) instructions: Option<String>,
    /// The model, then its fallbacks.
    pub(super) providers: Arc<Vec<Provider>>,
    pub(super) probe: Arc<Probe>,
    /// A permit for each answer at a time.
    pub(super) permits: CallerPool,
    pub(super) budget: Budget,
    /// `None`: the model has no tools.
    pub(super) toolbox: Option<Toolbox>,
    pub(super) store: Arc<dyn Store>,
    pub(super) telemetry: HubTelemetry,
    pub(super) earlier: EarlierLimit,
    pub(super) name: Arc<str>,
}

/// The work on one message.
pub(super) struct Work {
    pub(super) prompt: Prompt,
    pub(super) rounds: Rounds,
    pub(super) tools: Tools,
    /// Earlier turns that are not part of the prompt.
    omitted: usize,
}

/// An answer that has begun.
struct Begun {
    first: Option<Piece>,
    answer: Answer,
    span: ModelSpan,
}

/// The end of an answer that is not an error of the hub.
pub(super) enum Outcome {
    Answered,
    /// The caller has to decide about a tool.
    Asked,
    /// A tool may have run before a stop of the hub, and must not run twice.
    Unsure(String),
    /// Failed before the first token.
    NoAnswer(Fault),
    /// Failed after it.
    Broken(Fault),
}

#[async_trait]
impl Executor for ModelExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        if let Err(error) = self.budget.check(&cx.call.caller).await {
            return delegation::refuse(&cx, &out, error).await;
        }
        let mut work = match self.begin(&cx).await {
            Ok(work) => work,
            Err(error) => return delegation::refuse(&cx, &out, error).await,
        };
        let Some(_permit) = self.permit(&cx, &out).await? else { return Ok(()) };
        let mut progress = Progress::new(work.omitted);
        let mut artifacts = Artifacts::new(&self.settings, &out, &work.prompt);
        let outcome = tokio::select! {
            biased;
            // Drops the connection to the provider; the text so far is recorded with the status.
            () = cx.cancellation.cancelled() => None,
            outcome = self.run(&cx, &out, &mut work, &mut progress, &mut artifacts) => Some(outcome?),
        };
        self.count(&cx, &progress).await;
        let goes_on = match &outcome {
            // After a shutdown the hub goes on with the task.
            None => !out.is_canceled(),
            Some(outcome) => matches!(outcome, Outcome::Asked),
        };
        let ended = match outcome {
            None | Some(Outcome::Asked) => Ok(()),
            Some(outcome) => self.end(&cx, &out, outcome, &progress, &work.rounds, artifacts).await,
        };
        if !goes_on {
            work.rounds.forget().await;
        }
        ended
    }

    /// An answer that was interrupted by a stop of the hub is asked for again: it has no effect but its text, which is
    /// replaced.
    fn is_idempotent(&self) -> bool {
        self.settings.rerun
    }
}

impl ModelExecutor {
    /// Reads what the message needs: the conversation, the rounds of tools so far, and the tools.
    async fn begin(&self, cx: &ExecContext) -> Result<Work> {
        let rounds = Rounds::open(&self.name, cx, &self.store).await?;
        let dialects: Vec<_> = self.providers.iter().map(|provider| provider.target.dialect).collect();
        // Later messages of a task are decisions about tools.
        let history = cx.task.iter().flat_map(|task| &task.history);
        let first = history.into_iter().find(|message| message.role == Role::User);
        let current = prompt::turn_of(first.unwrap_or(&cx.message), &dialects)?;
        let output = match rounds.output() {
            Some(output) => output.clone(),
            None => output_form(cx)?,
        };
        let earlier = cx.earlier_with_count(self.earlier).await?;
        let (mut turns, unanswered) = prompt::earlier_turns(&earlier.tasks, &dialects);
        let omitted = unanswered + earlier.left_out;
        turns.push(current);
        let tools = self.tools().await?;
        let prompt = Prompt {
            instructions: self.instructions.clone(),
            turns,
            output,
            tools: tools.specs(),
            max_tokens: self.settings.max_tokens,
            parameters: self.settings.parameters.clone(),
            ..Prompt::default()
        };
        Ok(Work { prompt, rounds, tools, omitted })
    }

    async fn tools(&self) -> Result<Tools> {
        let Some(toolbox) = &self.toolbox else { return Ok(Tools::default()) };
        toolbox.list().await.map_err(|(server, cause)| {
            tracing::warn!(agent = &*self.name, server, cause, "the tools of a model cannot be reached");
            let condition = Condition::Degraded(format!("the tools {server} cannot be reached: {cause}"));
            status::saw(&self.probe, &self.name, &condition);
            let told = format!("the tools {server} of this agent cannot be reached; try again later");
            Error::new(ErrorKind::Unavailable, told).with_retry_after(DEFAULT_RETRY_AFTER)
        })
    }

    /// Waits for a permit; `None` if the task is canceled meanwhile.
    async fn permit(&self, cx: &ExecContext, out: &Emitter) -> Result<Option<CallerPermit>> {
        let caller = CallerKey::from(&cx.call.caller);
        if let Some(permit) = self.permits.try_acquire(&caller) {
            return Ok(Some(permit));
        }
        out.submitted().await?;
        tokio::select! {
            biased;
            () = cx.cancellation.cancelled() => Ok(None),
            permit = self.permits.acquire(&caller) => Ok(Some(permit)),
        }
    }

    /// Asks until a model answers, and reads its answer.
    pub(super) async fn answer(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        prompt: &mut Prompt,
        progress: &mut Progress,
        artifacts: &mut Artifacts,
    ) -> Result<Outcome> {
        progress.begin(prompt);
        let Begun { mut first, mut answer, span } = {
            let asking = self.ask(cx, prompt, progress);
            tokio::pin!(asking);
            let asked = tokio::select! {
                asked = &mut asking => asked,
                () = tokio::time::sleep(TASK_DELAY) => {
                    out.working().await?;
                    asking.await
                }
            };
            match asked {
                Ok(answered) => answered,
                Err(fault) => return Ok(Outcome::NoAnswer(fault)),
            }
        };
        if !out.with_task(|task| task.is_some_and(|task| task.status.state == TaskState::Working)) {
            out.working().await?;
        }
        while let Some(piece) = first.take() {
            if let Piece::Error(why) = &piece {
                span.failed("provider_error");
                return Ok(Outcome::Broken(Fault::Busy { why: why.clone(), retry_after: None }));
            }
            progress.take(&piece);
            artifacts.push(piece).await?;
            first = match answer.next(self.settings.silence).await {
                Ok(next) => next,
                Err(fault) => {
                    span.failed(fault.word());
                    return Ok(Outcome::Broken(fault));
                }
            };
        }
        progress.describe(&span);
        Ok(Outcome::Answered)
    }

    /// Asks the model and its fallbacks until one begins an answer; returns its first piece and the rest.
    async fn ask(
        &self,
        cx: &ExecContext,
        prompt: &mut Prompt,
        progress: &mut Progress,
    ) -> Result<Begun, Fault> {
        let begun = Instant::now();
        let mut last = Fault::Broken("there is no provider".to_owned());
        for (number, provider) in self.providers.iter().enumerate() {
            prompt.model.clone_from(&provider.target.name);
            progress.model.clone_from(&prompt.model);
            let body = dialect::encode(provider.target.dialect, prompt, provider.is_default());
            for attempt in 1.. {
                match self.attempt(provider, &body, cx, progress).await {
                    Ok(answered) => {
                        if number == 0 {
                            status::saw(&self.probe, &self.name, &Condition::Up);
                        }
                        return Ok(answered);
                    }
                    Err(fault) => last = fault,
                }
                tracing::debug!(agent = &*self.name, model = %provider.target.name, attempt, cause = last.cause(), "an attempt to ask a model failed");
                if number == 0 {
                    status::saw(&self.probe, &self.name, &status::condition_after(&last));
                }
                match retry::next(&last, attempt, begun.elapsed(), self.settings.retry_window) {
                    Next::Retry(pause) => tokio::time::sleep(pause).await,
                    Next::Fallback => break,
                    Next::GiveUp => return Err(last),
                }
            }
        }
        Err(last)
    }

    /// One request, until its first token.
    async fn attempt(
        &self,
        provider: &Provider,
        body: &Value,
        cx: &ExecContext,
        progress: &mut Progress,
    ) -> Result<Begun, Fault> {
        let request = ModelRequest {
            agent: &self.name,
            provider: provider.target.dialect.word(),
            model: &provider.target.name,
            server: provider.server(),
            max_tokens: self.settings.max_tokens,
        };
        let span = self.telemetry.model_span(&request, cx.call.trace.as_ref());
        let trace = span.trace().or_else(|| cx.call.trace.clone());
        let begun = self.first_token(provider, body, trace.as_ref(), progress).await;
        let (first, answer) = begun.inspect_err(|fault| span.failed(fault.word()))?;
        Ok(Begun { first, answer, span })
    }

    async fn first_token(
        &self,
        provider: &Provider,
        body: &Value,
        trace: Option<&TraceContext>,
        progress: &mut Progress,
    ) -> Result<(Option<Piece>, Answer), Fault> {
        let silence = self.settings.silence;
        let asked = provider.ask(body, trace);
        let mut answer = tokio::time::timeout(silence, asked).await.map_err(|_| Fault::Silent(silence))??;
        loop {
            match answer.next(silence).await? {
                // Not a token yet.
                Some(Piece::Usage(usage)) => progress.update(usage),
                Some(Piece::Error(why)) => return Err(Fault::Busy { why, retry_after: None }),
                first => return Ok((first, answer)),
            }
        }
    }

    /// Adds the tokens to the metrics and to the budgets.
    async fn count(&self, cx: &ExecContext, progress: &Progress) {
        let tokens = progress.tokens();
        for (kind, number) in [
            ("input", tokens.input),
            ("output", tokens.output),
            ("cached", tokens.cached),
            ("reasoning", tokens.reasoning),
        ] {
            self.telemetry.metrics.add_model_tokens(&self.name, kind, number.unwrap_or_default());
        }
        let spent = tokens.input.unwrap_or_default().saturating_add(tokens.output.unwrap_or_default());
        if spent > 0 {
            self.budget.spend(&cx.call.caller, spent).await;
        }
    }

    /// Records the end of the task.
    async fn end(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        outcome: Outcome,
        progress: &Progress,
        rounds: &Rounds,
        mut artifacts: Artifacts,
    ) -> Result<()> {
        let (state, words) = match outcome {
            Outcome::Asked => return Ok(()),
            Outcome::Unsure(words) => (TaskState::Failed, Some(words)),
            Outcome::NoAnswer(fault) => return self.no_answer(cx, out, &fault, progress, rounds).await,
            Outcome::Broken(fault) => {
                self.log(cx, &fault);
                status::saw(&self.probe, &self.name, &status::condition_after(&fault));
                artifacts.close(&progress.text).await?;
                (TaskState::Failed, Some(fault.told()))
            }
            Outcome::Answered if progress.is_refused() => {
                artifacts.close(&progress.text).await?;
                (TaskState::Rejected, Some(progress.words_of_refusal()))
            }
            Outcome::Answered => match artifacts.finish(&progress.text).await? {
                Ok(()) if progress.finish == Some(Finish::Length) => {
                    (TaskState::Completed, Some(CUT.to_owned()))
                }
                Ok(()) => (TaskState::Completed, progress.bound.map(Bound::told)),
                Err(why) => (TaskState::Failed, Some(why)),
            },
        };
        self.settle(cx, out, state, words, progress.report(rounds)).await
    }

    /// Records that no model has answered: an unavailable one is an error of the call, as long as there is no task.
    async fn no_answer(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        fault: &Fault,
        progress: &Progress,
        rounds: &Rounds,
    ) -> Result<()> {
        self.log(cx, fault);
        if !fault.is_passing() {
            return self
                .settle(cx, out, TaskState::Failed, Some(fault.told()), progress.report(rounds))
                .await;
        }
        let named = match fault {
            Fault::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        let mut error = Error::new(ErrorKind::Unavailable, fault.told());
        if matches!(fault, Fault::Unreachable(_)) {
            error = error.undelivered();
        }
        out.refuse(error.with_retry_after(named.unwrap_or(DEFAULT_RETRY_AFTER)))
    }

    fn log(&self, cx: &ExecContext, fault: &Fault) {
        let cause = fault.cause();
        tracing::warn!(agent = &*self.name, task = %cx.task_id, cause, "a model has not answered: {}", fault.told());
    }

    /// Sets the last state, with the tokens for callers that declare the extension.
    async fn settle(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        state: TaskState,
        words: Option<String>,
        report: Value,
    ) -> Result<()> {
        let message = words.map(|words| Arc::new(message(cx, vec![Part::text(words)])));
        let mut metadata = Metadata::new();
        if cx.extension(MODEL_EXTENSION).is_some() {
            metadata.insert(MODEL_EXTENSION, report);
        }
        let status = TaskStatus { state, message, timestamp: None };
        let update = TaskStatusUpdateEvent { status, metadata, ..TaskStatusUpdateEvent::default() };
        out.emit(Event::StatusUpdate(update)).await
    }
}

/// The form of the answer that the caller wants.
///
/// # Errors
/// `ContentTypeNotSupported` if it is neither text nor JSON, `InvalidParams` for a schema that is not an object.
fn output_form(cx: &ExecContext) -> Result<OutputForm> {
    let schema = cx.extension(MODEL_EXTENSION).and_then(|_| {
        let given = cx.message.metadata.get(MODEL_EXTENSION).or_else(|| cx.metadata.get(MODEL_EXTENSION))?;
        given.get::<Value>().ok()?.get("schema").cloned()
    });
    if let Some(schema) = schema {
        return match schema.is_object() {
            true => Ok(OutputForm::Schema(schema)),
            false => {
                Err(Error::invalid_field("metadata.schema", "expected a JSON Schema, which is an object"))
            }
        };
    }
    let modes = &cx.configuration.accepted_output_modes;
    let accepts = |wanted: fn(&str) -> bool| modes.iter().any(|mode| wanted(&mode.to_ascii_lowercase()));
    if modes.is_empty()
        || accepts(|mode| mode.starts_with("text/") || mode == "text" || mode.starts_with('*'))
    {
        return Ok(OutputForm::Text);
    }
    if accepts(|mode| mode.starts_with("application/json") || mode == "application/*") {
        return Ok(OutputForm::Json);
    }
    Err(Error::new(
        ErrorKind::ContentTypeNotSupported,
        "none of the accepted output modes can be produced; accept text/plain or application/json",
    ))
}

/// A message of the agent in this task.
pub(super) fn message(cx: &ExecContext, parts: Vec<Part>) -> Message {
    let mut message = Message::agent(uuid::Uuid::now_v7().to_string(), parts);
    message.task_id = Some(cx.task_id.clone());
    message.context_id = Some(cx.context_id.clone());
    message
}
