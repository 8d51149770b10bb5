//! Answers one message by a model.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_protocol::{
    Artifact, Error, ErrorKind, Event, Json, Message, Metadata, Part, Result, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use nuncio_server::{
    CallerKey, CallerPermit, CallerPool, EarlierLimit, Emitter, ExecContext, Executor, TextStream,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    ANSWER, MODEL_EXTENSION, REASONING,
    budget::Budget,
    dialect::{self, Finish, OutputForm, Piece, Prompt, Usage},
    prompt,
    provider::{Answer, Fault, Provider},
    retry::{self, Next},
    status,
};
use crate::{
    agents::probe::Probe,
    config::{Model, Reasoning},
    fleet::Condition,
    telemetry::Metrics,
};

/// Retry-after of an unavailable model whose provider gave none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The time after which a task is made although the provider has not answered yet. Until then a model that cannot be
/// reached is an error of the call.
const TASK_DELAY: Duration = Duration::from_secs(1);

/// The note at an answer that ends at the limit of tokens.
const CUT: &str = "the answer was cut at the limit of tokens";

/// Bytes per token, to estimate what a provider does not report.
const BYTES_PER_TOKEN: u64 = 4;

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
    pub(super) metrics: Arc<Metrics>,
    pub(super) earlier: EarlierLimit,
    pub(super) name: Arc<str>,
}

/// An answer in progress, as far as it has come.
struct Progress {
    model: String,
    usage: Usage,
    finish: Option<Finish>,
    /// Bytes of the prompt and of the answer, for estimates.
    sent_bytes: usize,
    received_bytes: usize,
    /// Earlier turns that are not part of the prompt.
    omitted: usize,
    text: String,
    refusal: String,
}

/// The end of an answer that is not an error of the hub.
enum Outcome {
    Answered,
    /// Failed before the first token.
    NoAnswer(Fault),
    /// Failed after it.
    Broken(Fault),
}

#[async_trait]
impl Executor for ModelExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        if let Err(error) = self.budget.check(&cx.call.caller).await {
            return out.refuse(error);
        }
        let (prompt, omitted) = match self.prompt(&cx).await {
            Ok(prompt) => prompt,
            Err(error) => return out.refuse(error),
        };
        let Some(_permit) = self.permit(&cx, &out).await? else { return Ok(()) };
        let mut progress = Progress::new(&prompt, omitted);
        let mut artifacts = Artifacts::new(self, &out, &prompt);
        let outcome = tokio::select! {
            biased;
            // Drops the connection to the provider; the text so far is recorded with the status.
            () = cx.cancellation.cancelled() => None,
            outcome = self.answer(&cx, &out, prompt, &mut progress, &mut artifacts) => Some(outcome?),
        };
        self.count(&cx, &progress).await;
        match outcome {
            None => Ok(()),
            Some(outcome) => self.end(&cx, &out, outcome, &progress, artifacts).await,
        }
    }

    /// An answer that was interrupted by a stop of the hub is asked for again: it has no effect but its text, which is
    /// replaced.
    fn is_idempotent(&self) -> bool {
        self.settings.rerun
    }
}

impl ModelExecutor {
    /// The prompt for this message, and the number of earlier turns that are not part of it.
    async fn prompt(&self, cx: &ExecContext) -> Result<(Prompt, usize)> {
        let dialects: Vec<_> = self.providers.iter().map(|provider| provider.target.dialect).collect();
        let current = prompt::turn_of(&cx.message, &dialects)?;
        let output = output_form(cx)?;
        let earlier = cx.earlier(self.earlier).await?;
        let (mut turns, omitted) = prompt::earlier_turns(&earlier, &dialects);
        turns.push(current);
        let prompt = Prompt {
            instructions: self.instructions.clone(),
            turns,
            output,
            max_tokens: self.settings.max_tokens,
            parameters: self.settings.parameters.clone(),
            ..Prompt::default()
        };
        Ok((prompt, omitted))
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
    async fn answer(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        mut prompt: Prompt,
        progress: &mut Progress,
        artifacts: &mut Artifacts,
    ) -> Result<Outcome> {
        let (mut first, mut answer) = {
            let asking = self.ask(cx, &mut prompt, progress);
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
                return Ok(Outcome::Broken(Fault::Busy { why: why.clone(), retry_after: None }));
            }
            progress.take(&piece);
            artifacts.push(piece).await?;
            first = match answer.next(self.settings.silence).await {
                Ok(next) => next,
                Err(fault) => return Ok(Outcome::Broken(fault)),
            };
        }
        Ok(Outcome::Answered)
    }

    /// Asks the model and its fallbacks until one begins an answer; returns its first piece and the rest.
    async fn ask(
        &self,
        cx: &ExecContext,
        prompt: &mut Prompt,
        progress: &mut Progress,
    ) -> Result<(Option<Piece>, Answer), Fault> {
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
    ) -> Result<(Option<Piece>, Answer), Fault> {
        let silence = self.settings.silence;
        let asked = provider.ask(body, cx.call.trace.as_ref());
        let mut answer = tokio::time::timeout(silence, asked).await.map_err(|_| Fault::Silent(silence))??;
        loop {
            match answer.next(silence).await? {
                // Not a token yet.
                Some(Piece::Usage(usage)) => progress.usage.update(usage),
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
            self.metrics.add_model_tokens(&self.name, kind, number.unwrap_or_default());
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
        mut artifacts: Artifacts,
    ) -> Result<()> {
        let (state, words) = match outcome {
            Outcome::NoAnswer(fault) => return self.no_answer(cx, out, &fault, progress).await,
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
                Ok(()) => (TaskState::Completed, None),
                Err(why) => (TaskState::Failed, Some(why)),
            },
        };
        self.settle(cx, out, state, words, progress).await
    }

    /// Records that no model has answered: an unavailable one is an error of the call, as long as there is no task.
    async fn no_answer(
        &self,
        cx: &ExecContext,
        out: &Emitter,
        fault: &Fault,
        progress: &Progress,
    ) -> Result<()> {
        self.log(cx, fault);
        if !fault.is_passing() {
            return self.settle(cx, out, TaskState::Failed, Some(fault.told()), progress).await;
        }
        let named = match fault {
            Fault::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        let error = Error::new(ErrorKind::Unavailable, fault.told());
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
        progress: &Progress,
    ) -> Result<()> {
        let message = words.map(|words| {
            let id = uuid::Uuid::now_v7().to_string();
            let mut message = Message::agent(id, Part::text(words));
            message.task_id = Some(cx.task_id.clone());
            message.context_id = Some(cx.context_id.clone());
            Arc::new(message)
        });
        let mut metadata = Metadata::new();
        if cx.extension(MODEL_EXTENSION).is_some() {
            metadata.insert(MODEL_EXTENSION, progress.report());
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

impl Progress {
    fn new(prompt: &Prompt, omitted: usize) -> Self {
        let texts = prompt.turns.iter().flat_map(|turn| &turn.items).map(|item| match item {
            dialect::Item::Text(text) => text.len(),
            dialect::Item::Image(_) | dialect::Item::Audio(_) | dialect::Item::Document(_) => 0,
        });
        let sent_bytes = texts.sum::<usize>() + prompt.instructions.as_ref().map_or(0, String::len);
        Self {
            model: String::new(),
            usage: Usage::default(),
            finish: None,
            sent_bytes,
            received_bytes: 0,
            omitted,
            text: String::new(),
            refusal: String::new(),
        }
    }

    fn take(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) => {
                self.received_bytes += text.len();
                self.text.push_str(text);
            }
            Piece::Reasoning(text) => self.received_bytes += text.len(),
            Piece::Refusal(text) => self.refusal.push_str(text),
            Piece::Finish(finish) => self.finish = Some(*finish),
            Piece::Usage(usage) => self.usage.update(*usage),
            Piece::Error(_) | Piece::End => {}
        }
    }

    /// The tokens that the provider reported, or an estimate where it reported none and has begun an answer.
    fn tokens(&self) -> Usage {
        let estimate = |bytes: usize| (bytes as u64).div_ceil(BYTES_PER_TOKEN);
        let has_begun = self.received_bytes > 0 || self.finish.is_some();
        let input = self.usage.input.or_else(|| has_begun.then(|| estimate(self.sent_bytes)));
        let output = self.usage.output.or_else(|| has_begun.then(|| estimate(self.received_bytes)));
        Usage { input, output, ..self.usage }
    }

    fn is_refused(&self) -> bool {
        self.finish == Some(Finish::Refused) || !self.refusal.is_empty()
    }

    fn words_of_refusal(&self) -> String {
        match self.refusal.as_str() {
            "" => "the model or its provider refused to answer".to_owned(),
            words => words.to_owned(),
        }
    }

    /// The metadata for the caller.
    fn report(&self) -> Value {
        let Usage { input, output, cached, reasoning } = self.tokens();
        let mut report = json!({
            "model": self.model, "inputTokens": input, "outputTokens": output, "cachedTokens": cached,
            "reasoningTokens": reasoning, "finishReason": self.finish.map(Finish::word), "omittedTurns": self.omitted,
            "isEstimate": self.usage.output.is_none(),
        });
        if let Some(report) = report.as_object_mut() {
            report.retain(|_, value| !value.is_null());
        }
        report
    }
}

/// The artifacts of an answer.
struct Artifacts {
    out: Emitter,
    answer: TextStream,
    /// `None`: the reasoning is dropped.
    reasoning: Option<TextStream>,
    /// The answer is one data part: it is not streamed.
    is_data: bool,
}

impl Artifacts {
    fn new(executor: &ModelExecutor, out: &Emitter, prompt: &Prompt) -> Self {
        // Under fixed ids: the first piece after a restart replaces what was there.
        let stream = |id: &'static str| out.text_stream(id).with_id(id).with_pace(executor.settings.pace);
        let shows_reasoning = executor.settings.reasoning == Reasoning::Artifact;
        Self {
            out: out.clone(),
            answer: stream(ANSWER),
            reasoning: shows_reasoning.then(|| stream(REASONING)),
            is_data: prompt.output != OutputForm::Text,
        }
    }

    async fn push(&mut self, piece: Piece) -> Result<()> {
        match (piece, &mut self.reasoning) {
            (Piece::Text(text), _) if !self.is_data => self.answer.push(text).await,
            (Piece::Reasoning(text), Some(reasoning)) => reasoning.push(text).await,
            _ => Ok(()),
        }
    }

    /// Completes the artifacts of an answer that has come to its end. The inner error says why it is not the data that
    /// the caller wants; its text is kept.
    async fn finish(&mut self, text: &str) -> Result<Result<(), String>> {
        if !self.is_data {
            self.close(text).await?;
            return Ok(Ok(()));
        }
        match serde_json::from_str::<Json>(without_fence(text)) {
            Ok(data) => {
                self.close_reasoning().await?;
                self.out.artifact(Artifact::new(ANSWER, Part::data(data)).with_name(ANSWER)).await?;
                Ok(Ok(()))
            }
            Err(_) => {
                self.close(text).await?;
                Ok(Err("the answer of the model is not JSON; its text is kept".to_owned()))
            }
        }
    }

    /// Completes the artifacts with the text as it is.
    async fn close(&mut self, text: &str) -> Result<()> {
        self.close_reasoning().await?;
        if self.is_data { self.answer.finish_with(text).await } else { self.answer.finish().await }
    }

    async fn close_reasoning(&mut self) -> Result<()> {
        match &mut self.reasoning {
            Some(reasoning) => reasoning.finish().await,
            None => Ok(()),
        }
    }
}

/// JSON without the Markdown fence that many models put around it.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}
