//! The artifacts of an answer: its text as it grows, or its data as a whole, and the reasoning if callers may see it.

use nuncio_protocol::{Artifact, Json, Part, Result};
use nuncio_server::{Emitter, TextStream};

use super::{
    ANSWER, REASONING,
    dialect::{OutputForm, Piece, Prompt},
};
use crate::config::{Model, Reasoning};

/// The text between the answers of two rounds of tools.
const ROUND_BREAK: &str = "\n\n";

/// The artifacts of an answer.
pub(super) struct Artifacts {
    out: Emitter,
    answer: TextStream,
    /// `None`: the reasoning is dropped.
    reasoning: Option<TextStream>,
    /// The answer is one data part: it is not streamed.
    is_data: bool,
    /// Text of an earlier round is there; what follows is set apart.
    has_text: bool,
    is_new_round: bool,
}

impl Artifacts {
    pub(super) fn new(settings: &Model, out: &Emitter, prompt: &Prompt) -> Self {
        // Under fixed ids: the first piece after a restart replaces what was there.
        let stream = |id: &'static str| out.text_stream(id).with_id(id).with_pace(settings.pace);
        let shows_reasoning = settings.reasoning == Reasoning::Artifact;
        Self {
            out: out.clone(),
            answer: stream(ANSWER),
            reasoning: shows_reasoning.then(|| stream(REASONING)),
            is_data: prompt.output != OutputForm::Text,
            has_text: false,
            is_new_round: false,
        }
    }

    /// Writes the text of earlier rounds anew: the task goes on after an interrupt or a restart.
    pub(super) async fn restore(&mut self, texts: &[&str]) -> Result<()> {
        let text = texts.join(ROUND_BREAK);
        if text.is_empty() {
            return Ok(());
        }
        self.push(Piece::Text(text)).await
    }

    /// The text that follows belongs to the next answer.
    pub(super) fn next_round(&mut self) {
        self.is_new_round = true;
    }

    pub(super) async fn push(&mut self, piece: Piece) -> Result<()> {
        match (piece, &mut self.reasoning) {
            (Piece::Text(text), _) if !self.is_data => {
                if std::mem::take(&mut self.is_new_round) && self.has_text {
                    self.answer.push(ROUND_BREAK).await?;
                }
                self.has_text = true;
                self.answer.push(text).await
            }
            (Piece::Reasoning(text), Some(reasoning)) => reasoning.push(text).await,
            _ => Ok(()),
        }
    }

    /// Completes the artifacts of an answer that has come to its end. The inner error says why it is not the data that
    /// the caller wants; its text is kept.
    pub(super) async fn finish(&mut self, text: &str) -> Result<Result<(), String>> {
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
    pub(super) async fn close(&mut self, text: &str) -> Result<()> {
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
