//! The rounds of tools of one task: calls of the model with their results, kept so that a question to the caller and a
//! restart of the hub lose nothing.
//!
//! A round is a record, written in one piece with the event that shows its progress; the memo of the task has the
//! position. **Invariant:** before a tool runs, the store knows that it may have run.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use nuncio_protocol::{Error, Result, TaskId};
use nuncio_server::{
    Emitter, ExecContext,
    store::{Expect, PutRecord, RecordQuery, Store, StoreError},
};
use serde::{Deserialize, Serialize};

use super::dialect::{Item, OutputForm, Speaker, ToolCall, ToolResult, Turn, Usage};
use crate::clock;

/// The kind of the records.
pub(super) const KIND: &str = "model-rounds";

/// Records per read.
const PAGE: usize = 50;

/// The limit that has ended the rounds of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    Rounds(u32),
    Tokens(u64),
    Time(Duration),
}

impl Bound {
    /// The word in metadata.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Rounds(_) => "rounds",
            Self::Tokens(_) => "tokens",
            Self::Time(_) => "time",
        }
    }

    /// The text for callers, and for the model.
    pub(super) fn told(self) -> String {
        match self {
            Self::Rounds(limit) => format!("the limit of {limit} rounds of tools is reached"),
            Self::Tokens(limit) => format!("the limit of {limit} tokens is reached"),
            Self::Time(limit) => format!("the limit of {} s for tools is reached", limit.as_secs()),
        }
    }
}

/// One answer that calls tools, and the results so far.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) text: String,
    /// The reasoning before the calls with its signature, if the provider wants it back.
    pub(super) reasoning: Option<(String, String)>,
    pub(super) calls: Vec<ToolCall>,
    /// In the order of the calls.
    pub(super) results: Vec<ToolResult>,
    /// The form of the last answer, in the first round: later messages of the task do not name it.
    pub(super) output: Option<OutputForm>,
}

/// The position within the rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Phase {
    /// No tool runs.
    #[default]
    Idle,
    /// The caller was asked whether the next call may be made.
    Asked,
    /// The next call is made, or was made and its result is not known.
    Running { is_repeatable: bool },
}

/// The memo of the task.
#[derive(Default, Serialize, Deserialize)]
struct Position {
    rounds: usize,
    /// The tokens of earlier messages of the task.
    #[serde(default)]
    usage: Usage,
    phase: Phase,
}

/// The rounds of a task.
pub(super) struct Rounds {
    store: Arc<dyn Store>,
    /// Of the keys of the records.
    prefix: String,
    position: Position,
    rounds: Vec<Round>,
}

impl Rounds {
    /// Reads the rounds that the task has had so far.
    ///
    /// # Errors
    /// The store is unavailable, or its records are gone.
    pub(super) async fn open(agent: &str, cx: &ExecContext, store: &Arc<dyn Store>) -> Result<Self> {
        let position = cx.memo.as_ref().and_then(|memo| serde_json::from_slice(memo).ok());
        let position: Position = position.unwrap_or_default();
        let prefix = format!("{agent}/{}/", cx.task_id);
        let mut rounds = Vec::with_capacity(position.rounds);
        for number in 0..position.rounds {
            let record = store.record(KIND, &key(&prefix, number)).await?;
            let round = record.and_then(|record| serde_json::from_slice(&record.value).ok());
            rounds.push(
                round.ok_or_else(|| Error::internal("the calls of tools before this message are lost"))?,
            );
        }
        Ok(Self { store: Arc::clone(store), prefix, position, rounds })
    }

    /// The number of rounds that have begun.
    pub(super) fn count(&self) -> usize {
        self.rounds.len()
    }

    pub(super) fn phase(&self) -> Phase {
        self.position.phase
    }

    /// The tokens of earlier messages of the task.
    pub(super) fn usage(&self) -> Usage {
        self.position.usage
    }

    /// The form of the last answer, as the first message of the task named it.
    pub(super) fn output(&self) -> Option<&OutputForm> {
        self.rounds.first()?.output.as_ref()
    }

    /// The texts of the answers so far.
    pub(super) fn texts(&self) -> Vec<&str> {
        self.rounds.iter().map(|round| round.text.as_str()).filter(|text| !text.is_empty()).collect()
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, round: Round, output: &OutputForm) {
        let output = self.rounds.is_empty().then(|| output.clone());
        self.rounds.push(Round { output, ..round });
    }

    /// The call without a result, and its name among all calls of the task.
    pub(super) fn next_call(&self) -> Option<(ToolCall, String)> {
        let round = self.rounds.last()?;
        let call = round.calls.get(round.results.len())?.clone();
        Some((
            call,
            format!("{}-{}-{}", self.prefix.replace('/', "-"), self.rounds.len(), round.results.len()),
        ))
    }

    /// Adds the result of that call.
    pub(super) fn add(&mut self, result: ToolResult) {
        self.position.phase = Phase::Idle;
        if let Some(round) = self.rounds.last_mut() {
            round.results.push(result);
        }
    }

    /// The turns of the rounds, for the prompt. Every call has its result.
    pub(super) fn turns(&self) -> Vec<Turn> {
        let turns = self.rounds.iter().flat_map(|round| {
            let reasoning = round.reasoning.iter().map(|(text, signature)| Item::Reasoning {
                text: text.clone(),
                signature: signature.clone(),
            });
            let text = Some(round.text.clone()).filter(|text| !text.is_empty()).map(Item::Text);
            let calls = round.calls.iter().cloned().map(Item::Call);
            let results = round.results.iter().cloned().map(Item::Result);
            [
                Turn { speaker: Speaker::Model, items: reasoning.chain(text).chain(calls).collect() },
                Turn { speaker: Speaker::User, items: results.collect() },
            ]
        });
        turns.collect()
    }

    /// Writes the position and the current round in one piece with the next event.
    ///
    /// # Errors
    /// The execution is over.
    pub(super) fn note(&mut self, out: &Emitter, phase: Phase, usage: Usage) -> Result<()> {
        self.position.phase = phase;
        let Some((number, round)) = self.rounds.iter().enumerate().next_back() else { return Ok(()) };
        let position = Position { rounds: self.rounds.len(), usage: self.position.usage.and(usage), phase };
        out.put_record(PutRecord {
            kind: KIND.into(),
            key: key(&self.prefix, number).into(),
            value: encode(round)?,
            at: clock::now(),
            expect: Expect::Anything,
        })?;
        out.remember(encode(&position)?)
    }

    /// Removes the records of a task that has ended.
    pub(super) async fn forget(&self) {
        for number in 0..self.rounds.len() {
            let key = key(&self.prefix, number);
            if let Err(error) = self.store.delete_record(KIND, &key, Expect::Anything).await {
                // They go by their age.
                tracing::debug!(%error, "the rounds of a task could not be removed");
                return;
            }
        }
    }
}

/// Removes the rounds of tasks that are not stored any more: a task may be erased while it asks its caller, and its
/// retention may end. A record is written with an event of its task, so that none is without a task before.
///
/// # Errors
/// The store is unavailable. Calling it again does the rest.
pub(crate) async fn forget_orphans(store: &dyn Store) -> Result<(), StoreError> {
    let mut after = None;
    let mut last: Option<(String, bool)> = None;
    loop {
        let query =
            RecordQuery { kind: KIND.into(), after: after.take(), limit: PAGE, ..RecordQuery::default() };
        let records = store.records(&query).await?;
        for record in &records {
            let Some(task) = task_of(&record.key) else { continue };
            let is_orphan = match &last {
                Some((known, is_orphan)) if known == task => *is_orphan,
                _ => store.find_task(&TaskId::from(task)).await?.is_none(),
            };
            last = Some((task.to_owned(), is_orphan));
            if is_orphan {
                // Refused if it has changed, which means that there is a task.
                let _ = store.delete_record(KIND, &record.key, Expect::Version(record.version)).await?;
            }
        }
        match records.last() {
            Some(record) if records.len() == PAGE => after = Some(record.key.clone()),
            _ => return Ok(()),
        }
    }
}

/// The task in the key of a record.
fn task_of(key: &str) -> Option<&str> {
    key.rsplit('/').nth(1)
}

fn key(prefix: &str, number: usize) -> String {
    format!("{prefix}{number:04}")
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    let bytes = serde_json::to_vec(value);
    bytes
        .map(Bytes::from)
        .map_err(|error| Error::internal("a round of tools cannot be written").with_source(error.to_string()))
}
