//! The playground: messages that operators send to an agent, with every frame of the answer.

use std::fmt;

use nuncio_protocol::{TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    route::routes,
    schema::{TaskStateName, Time},
};

routes! {
    /// Lists the trials of the playground, latest first. They are kept in memory, and only the last ones.
    ListTrials: GET "/playground", "playground.list" {} -> Trials;

    /// Sends a message to an agent as the principal `operator`, and begins to read the answer. An agent elsewhere is
    /// called over the guarded way out, by the rules of `[push]` for addresses.
    SendTrial: POST "/playground:send", "playground.send" { body trial: NewTrial, } -> Trial, status CREATED,
        trail TrialSent;

    /// Shows a trial with its frames, and the task that follows from them.
    ShowTrial: GET "/playground/{id}", "playground.show" { path id, } -> Trial, redact Trial::redact;

    /// Cancels the task of a trial at its agent. Without a task the connection is closed.
    CancelTrial: POST "/playground/{id}:cancel", "playground.cancel" { path id, } -> Trial, trail TrialCanceled;
}

/// A message to send, and its agent: one of `agent` and `card`.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewTrial {
    /// An agent of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The address of an agent elsewhere, or of its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// The protocol version, `1.0` or `0.3`; by default that of the first interface of the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The binding, `JSONRPC`, `HTTP+JSON` or `GRPC`; by default that of the first interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// The time of the answer.
    pub mode: TrialMode,
    /// The parts of the message, in the form of 1.0.
    #[schemars(length(min = 1))]
    pub parts: Vec<Value>,
    /// Metadata of the message.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// URIs of extensions to ask for, besides those that the card requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Continue this conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// Continue this task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Ask for notifications; the hub's own receiver takes them, and they become frames.
    pub push: bool,
    /// A bearer token for an agent elsewhere. It is sent to the origin of its card, and not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub key: Option<String>,
}

/// A message without its key.
impl fmt::Debug for NewTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTrial")
            .field("agent", &self.agent)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// The time of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrialMode {
    /// A stream of events.
    #[default]
    Stream,
    /// One answer, when the task has ended or waits.
    Wait,
    /// One answer, as soon as there is a task.
    Now,
}

/// The latest trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Trials {
    pub trials: Vec<TrialSummary>,
}

/// A trial, without its content.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrialSummary {
    pub id: String,
    /// The agent of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The address of the agent elsewhere, or of its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    pub version: String,
    pub binding: String,
    /// The address of the interface.
    pub url: String,
    #[schemars(with = "Time")]
    pub began: Timestamp,
    /// Absent: the answer is still read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub ended: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// The last state of the task that a frame has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TaskStateName>")]
    pub state: Option<TaskState>,
    /// Number of frames.
    pub frame_count: usize,
}

/// A trial with its frames.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    #[serde(flatten)]
    pub summary: TrialSummary,
    pub frames: Vec<TrialFrame>,
    /// Later frames were left out.
    pub truncated: bool,
    /// The task as the frames have it, in the form of 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Value>,
    /// The reply of an agent that makes no task, in the form of 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<Value>,
    /// A shell command that sends the same request; credentials are variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curl: Option<String>,
    /// The message and its agent as they were given, without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<NewTrial>,
}

impl Trial {
    /// Removes what was said.
    fn redact(&mut self) {
        (self.task, self.reply, self.curl, self.request) = (None, None, None, None);
        for frame in &mut self.frames {
            frame.text = None;
            frame.notes.clear();
        }
    }
}

/// A frame as it was sent or received.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrialFrame {
    pub number: u64,
    #[schemars(with = "Time")]
    pub at: Timestamp,
    pub direction: FrameDirection,
    /// Its kind in words, such as `event 3`.
    pub label: String,
    /// Absent: there is nothing to judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validity: Option<FrameValidity>,
    /// Deviations from the version's form, or the error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The frame, of gRPC as JSON of 1.0; credentials are not shown. Absent for a viewer, and where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text is only the beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameDirection {
    Sent,
    Received,
    /// Posted to the hub's receiver.
    Notified,
}

/// The validity of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameValidity {
    /// It has the exact form of the version.
    Valid,
    /// Its meaning is clear, and its form is not that of the version.
    Deviates,
    /// It is an error of the agent.
    Error,
    /// It has no meaning in this version and binding.
    Invalid,
}
