//! An answer in progress: its text, its calls of tools, and its tokens. Pure.

use serde_json::{Value, json};

use super::{
    dialect::{Finish, Item, Piece, Prompt, ToolCall, Usage},
    rounds::{Bound, Round, Rounds},
};
use crate::telemetry::ModelSpan;

/// Bytes per token, to estimate what a provider does not report.
const BYTES_PER_TOKEN: u64 = 4;

/// The maximum size of the arguments of a call. What is cut is not JSON any more, which the model is told.
pub(super) const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// Maximum number of calls in one answer; the rest is dropped.
pub(super) const MAX_CALLS: usize = 64;

/// The answers to one message, as far as they have come: one for each round of tools, and the last one.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) model: String,
    pub(super) finish: Option<Finish>,
    /// The text of the current answer.
    pub(super) text: String,
    /// The limit that has ended the rounds.
    pub(super) bound: Option<Bound>,
    usage: Usage,
    /// The tokens of the answers before it.
    earlier: Usage,
    /// A figure is an estimate.
    is_estimate: bool,
    /// Bytes of the prompt and of the answer, for estimates.
    sent_bytes: usize,
    received_bytes: usize,
    /// Earlier turns that are not part of the prompt.
    omitted: usize,
    refusal: String,
    reasoning: String,
    signature: String,
    /// The calls, each with its index in the stream.
    calls: Vec<(u64, ToolCall)>,
}

impl Progress {
    pub(super) fn new(omitted: usize) -> Self {
        Self { omitted, ..Self::default() }
    }

    /// Begins the answer to this prompt.
    pub(super) fn begin(&mut self, prompt: &Prompt) {
        let texts = prompt.turns.iter().flat_map(|turn| &turn.items).map(|item| match item {
            Item::Text(text) | Item::Reasoning { text, .. } => text.len(),
            Item::Call(call) => call.arguments.len(),
            Item::Result(result) => result.text.len(),
            Item::Image(_) | Item::Audio(_) | Item::Document(_) => 0,
        });
        let sent_bytes = texts.sum::<usize>() + prompt.instructions.as_ref().map_or(0, String::len);
        let is_estimate = self.is_estimate || (self.has_begun() && self.usage.output.is_none());
        *self = Self {
            model: std::mem::take(&mut self.model),
            bound: self.bound,
            earlier: self.tokens(),
            is_estimate,
            omitted: self.omitted,
            sent_bytes,
            ..Self::default()
        };
    }

    pub(super) fn take(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) => {
                self.received_bytes += text.len();
                self.text.push_str(text);
            }
            Piece::Reasoning(text) => {
                self.received_bytes += text.len();
                self.reasoning.push_str(text);
            }
            Piece::Signature(text) => self.signature.push_str(text),
            Piece::Call { index, call } => self.take_call(*index, call),
            Piece::Refusal(text) => self.refusal.push_str(text),
            Piece::Finish(finish) => self.finish = Some(*finish),
            Piece::Usage(usage) => self.update(*usage),
            Piece::Error(_) | Piece::End => {}
        }
    }

    /// Takes over the figures of a later report.
    pub(super) fn update(&mut self, usage: Usage) {
        self.usage.update(usage);
    }

    fn take_call(&mut self, index: u64, piece: &ToolCall) {
        self.received_bytes += piece.arguments.len();
        let goes_on = |known: &&mut (u64, ToolCall)| {
            // Some servers give every call the same index.
            known.0 == index && (piece.id.is_empty() || known.1.id.is_empty() || known.1.id == piece.id)
        };
        let known = self.calls.iter_mut().rev().find(goes_on);
        let Some((_, call)) = known else {
            if self.calls.len() < MAX_CALLS {
                self.calls.push((index, piece.clone()));
            }
            return;
        };
        for (own, more) in [(&mut call.id, &piece.id), (&mut call.name, &piece.name)] {
            if own.is_empty() {
                own.clone_from(more);
            }
        }
        if call.arguments.len() + piece.arguments.len() <= MAX_ARGUMENT_BYTES {
            call.arguments.push_str(&piece.arguments);
        }
    }

    /// The round of tools that the answer begins; `None` if it is the last answer. Calls of an answer that was cut or
    /// refused are not complete.
    pub(super) fn round(&self, number: usize) -> Option<Round> {
        let is_cut = matches!(self.finish, Some(Finish::Length)) || self.is_refused();
        let calls = self.calls.iter().enumerate().filter(|(_, (_, call))| !call.name.is_empty());
        let calls: Vec<ToolCall> = calls
            .map(|(at, (_, call))| match call.id.as_str() {
                // Some servers give none, and results need one.
                "" => ToolCall { id: format!("call_{number}_{at}"), ..call.clone() },
                _ => call.clone(),
            })
            .collect();
        (!is_cut && !calls.is_empty()).then(|| Round {
            text: self.text.clone(),
            reasoning: (!self.signature.is_empty()).then(|| (self.reasoning.clone(), self.signature.clone())),
            calls,
            results: Vec::new(),
            output: None,
        })
    }

    fn has_begun(&self) -> bool {
        self.received_bytes > 0 || self.finish.is_some()
    }

    /// The tokens that the provider reported, or an estimate where it reported none and has begun an answer.
    pub(super) fn tokens(&self) -> Usage {
        let estimate = |bytes: usize| self.has_begun().then(|| (bytes as u64).div_ceil(BYTES_PER_TOKEN));
        self.earlier.and(Usage {
            input: self.usage.input.or_else(|| estimate(self.sent_bytes)),
            output: self.usage.output.or_else(|| estimate(self.received_bytes)),
            ..self.usage
        })
    }

    /// Puts the tokens of the current answer and the reason for its end on its span.
    pub(super) fn describe(&self, span: &ModelSpan) {
        span.answered(self.usage.input, self.usage.output, self.finish.map(Finish::word));
    }

    pub(super) fn is_refused(&self) -> bool {
        self.finish == Some(Finish::Refused) || !self.refusal.is_empty()
    }

    pub(super) fn words_of_refusal(&self) -> String {
        match self.refusal.as_str() {
            "" => "the model or its provider refused to answer".to_owned(),
            words => words.to_owned(),
        }
    }

    /// The metadata for the caller: of all messages of the task.
    pub(super) fn report(&self, before: &Rounds) -> Value {
        let rounds = before.count();
        let Usage { input, output, cached, reasoning } = before.usage().and(self.tokens());
        let mut report = json!({
            "model": self.model, "inputTokens": input, "outputTokens": output, "cachedTokens": cached,
            "reasoningTokens": reasoning, "finishReason": self.finish.map(Finish::word), "omittedTurns": self.omitted,
            "isEstimate": self.is_estimate || self.usage.output.is_none(),
            "toolRounds": (rounds > 0).then_some(rounds), "boundedBy": self.bound.map(Bound::word),
        });
        if let Some(report) = report.as_object_mut() {
            report.retain(|_, value| !value.is_null());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of calls, each with its index.
    type Pieces = Vec<(u64, ToolCall)>;

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn pieces_of_calls_are_joined_by_index_and_id() {
        let cases: [(&str, Pieces, Vec<ToolCall>); 5] = [
            (
                "streamed side by side",
                vec![
                    (0, call("a", "read", "")),
                    (1, call("b", "write", "{")),
                    (0, call("", "", "{\"p\":")),
                    (1, call("", "", "}")),
                    (0, call("", "", "1}")),
                ],
                vec![call("a", "read", "{\"p\":1}"), call("b", "write", "{}")],
            ),
            (
                "whole calls of the same index",
                vec![(0, call("a", "read", "{}")), (0, call("b", "read", "{}"))],
                vec![call("a", "read", "{}"), call("b", "read", "{}")],
            ),
            (
                "id and name in every piece",
                vec![(0, call("a", "read", "{")), (0, call("a", "read", "}"))],
                vec![call("a", "read", "{}")],
            ),
            ("without ids", vec![(0, call("", "read", "{}"))], vec![call("call_3_0", "read", "{}")]),
            ("without a name", vec![(0, call("a", "", "{}"))], vec![]),
        ];
        for (case, pieces, expected) in cases {
            let mut progress = Progress::new(0);
            for (index, call) in pieces {
                progress.take(&Piece::Call { index, call });
            }
            let calls = progress.round(3).map(|round| round.calls).unwrap_or_default();
            assert_eq!(calls, expected, "{case}");
        }
    }

    #[test]
    fn calls_of_an_answer_that_was_cut_are_not_made() {
        let mut progress = Progress::new(0);
        progress.take(&Piece::Call { index: 0, call: call("a", "read", "{\"p\"") });
        progress.take(&Piece::Finish(Finish::Length));
        assert!(progress.round(0).is_none());
    }

    #[test]
    fn tokens_of_all_rounds_are_added() {
        let mut progress = Progress::new(0);
        for _ in 0..3 {
            progress.begin(&Prompt::default());
            progress.take(&Piece::Finish(Finish::Tools));
            progress.update(Usage { input: Some(10), output: Some(2), ..Usage::default() });
        }
        assert_eq!((progress.tokens().total(), progress.is_estimate), (36, false));
    }
}
