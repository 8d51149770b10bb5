//! Produces every state and every shape on demand: selected by the messageId that the official test kits
//! send, or by the first word of the text.

use std::time::Duration;

use async_trait::async_trait;
use nuncio_protocol::{
    AgentCard, AgentExtension, Artifact, Error, ErrorKind, Part, Result, TaskState, Version,
};
use nuncio_server::{Emitter, ExecContext, Executor, Runtime, RuntimeBuilder};
use serde_json::json;

use crate::config::Profile;

/// The extension that `--profile extension` requires; the URI is the official kit's.
const REQUIRED_EXTENSION: &str = "urn:a2a:tck:required-extension";

/// Acts of the official kits, by the prefix of the messageId. The first match wins, so longer prefixes come
/// first.
const BY_MESSAGE_ID: &[(&str, Act)] = &[
    ("tck-complete-task", Act::Complete("Hello from TCK")),
    ("tck-input-required", Act::Ask("More input, please")),
    ("tck-auth-required", Act::Auth("Authorization needed")),
    ("tck-delayed-complete", Act::Sleep(2)),
    ("tck-artifact-file-url", Act::FileUrl),
    ("tck-artifact-file", Act::File),
    ("tck-artifact-text", Act::Text("Generated text content")),
    ("tck-artifact-data", Act::Data),
    ("tck-message-response", Act::Message("Direct message response")),
    ("tck-reject-task", Act::Reject("rejected")),
    ("tck-stream-artifact-chunked", Act::Chunked),
    ("tck-stream-artifact-text", Act::Stream("Streamed text content")),
    ("tck-stream-artifact-file", Act::StreamFile),
    ("tck-stream-ordering-001", Act::Stream("Ordered output")),
    ("tck-stream-001", Act::Stream("Stream hello from TCK")),
    ("tck-stream-002", Act::Finish),
    ("tck-stream-003", Act::Stream("Stream task lifecycle")),
    ("test-resubscribe-message-id", Act::Sleep(5)),
];

/// An act of the agent.
#[derive(Clone, Copy)]
enum Act {
    Complete(&'static str),
    Finish,
    Ask(&'static str),
    Text(&'static str),
    File,
    FileUrl,
    Data,
    Message(&'static str),
    Reject(&'static str),
    Fail(&'static str),
    Auth(&'static str),
    Stream(&'static str),
    StreamFile,
    Chunked,
    Chunks(usize),
    Sleep(u64),
    /// The behaviour that the v0.3 kit expects.
    WorkThenAsk,
}

struct Conformance {
    profile: Option<Profile>,
}

#[async_trait]
impl Executor for Conformance {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        self.choose(&cx).run(&cx, &out).await
    }
}

impl Conformance {
    fn choose(&self, cx: &ExecContext) -> Act {
        let message_id = cx.message.message_id.as_str();
        let by_id =
            BY_MESSAGE_ID.iter().find(|(prefix, _)| message_id.starts_with(prefix)).map(|(_, act)| *act);
        match by_id {
            Some(act) => act,
            None if self.profile == Some(Profile::V03) => Act::WorkThenAsk,
            // Any reply to a question completes the task.
            None if cx.task.is_some() => Act::Complete("Thank you"),
            None => by_word(&cx.text()),
        }
    }
}

fn by_word(text: &str) -> Act {
    let mut words = text.split_whitespace();
    let word = words.next().unwrap_or_default();
    let number = words.next().and_then(|number| number.parse::<u64>().ok());
    match word {
        "ask" => Act::Ask("What would you like?"),
        "fail" => Act::Fail("failed, as you asked"),
        "reject" => Act::Reject("rejected, as you asked"),
        "auth" => Act::Auth("Authorize me elsewhere, then say so"),
        "message" => Act::Message("A direct reply, without a task"),
        "file" => Act::File,
        "data" => Act::Data,
        "chunks" => Act::Chunks(usize::try_from(number.unwrap_or(5)).unwrap_or(5).min(10_000)),
        "sleep" => Act::Sleep(number.unwrap_or(5).min(3600)),
        _ => Act::Complete("done"),
    }
}

impl Act {
    async fn run(self, cx: &ExecContext, out: &Emitter) -> Result<()> {
        let text = |text: &str| vec![Part::text(text)];
        match self {
            Self::Complete(words) => drop(out.status(TaskState::Completed, text(words)).await?),
            Self::Finish => drop(out.completed().await?),
            Self::Ask(question) => drop(out.input_required(question).await?),
            Self::Auth(explanation) => drop(out.auth_required(explanation).await?),
            Self::Message(words) => out.message(text(words)).await?,
            Self::Reject(words) => drop(out.status(TaskState::Rejected, text(words)).await?),
            Self::Fail(words) => return Err(Error::new(ErrorKind::Internal, words)),
            Self::Text(words) => drop(out.text("text", words).await?),
            Self::File => drop(out.artifact(Artifact::new("file", file())).await?),
            Self::FileUrl => drop(out.artifact(Artifact::new("file", file_url())).await?),
            Self::Data => drop(
                out.artifact(Artifact::new("data", Part::data(json!({"key": "value", "count": 42})))).await?,
            ),
            Self::Stream(words) => {
                out.working().await?;
                out.text("text", words).await?;
            }
            Self::StreamFile => {
                out.working().await?;
                out.artifact(Artifact::new("file", file())).await?;
            }
            Self::Chunked => {
                out.working().await?;
                out.chunk(Artifact::new("chunks", Part::text("chunk-1 ")), false, false).await?;
                out.chunk(Artifact::new("chunks", Part::text("chunk-2")), true, true).await?;
            }
            Self::Chunks(count) => {
                out.working().await?;
                for n in 1..=count {
                    out.chunk(Artifact::new("chunks", Part::text(format!("chunk {n}\n"))), n > 1, n == count)
                        .await?;
                }
            }
            Self::Sleep(seconds) => {
                out.working().await?;
                pause(cx, Duration::from_secs(seconds)).await;
            }
            Self::WorkThenAsk => {
                out.status(TaskState::Working, text("Working on it")).await?;
                if pause(cx, Duration::from_secs(3)).await {
                    out.input_required(format!("You said: {}", cx.text())).await?;
                }
            }
        }
        // The runtime completes a task that is in progress when its executor returns.
        Ok(())
    }
}

/// Waits; false if the task was canceled meanwhile.
async fn pause(cx: &ExecContext, time: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => true,
        () = cx.cancellation.cancelled() => false,
    }
}

fn file() -> Part {
    Part::raw("Generated file content").with_filename("output.txt").with_media_type("text/plain")
}

fn file_url() -> Part {
    Part::url("https://example.com/output.txt").with_filename("output.txt").with_media_type("text/plain")
}

pub(super) fn agent(mut card: AgentCard, profile: Option<Profile>) -> RuntimeBuilder {
    card.description = "Produces every task state and every kind of content on demand.".to_owned();
    card.default_output_modes = ["text/plain", "application/json"].map(str::to_owned).to_vec();
    card.skills = vec![super::skill(
        "conformance",
        "Conformance",
        "Acts by the first word of the message; any other text completes the task.",
        &["ask", "fail", "reject", "auth", "message", "file", "data", "chunks 20", "sleep 30"],
    )];
    let speak_only = |card: &mut AgentCard, version: Version| {
        card.supported_interfaces.retain(|interface| interface.version() == Some(version));
    };
    card.capabilities.extended_agent_card = Some(true);
    match profile {
        None => {}
        Some(Profile::V03) => {
            // The v0.3 kit expects a refusal of the extended card without credentials, and the hub has none
            // yet.
            card.capabilities.extended_agent_card = Some(false);
        }
        Some(Profile::Full) => speak_only(&mut card, Version::V1_0),
        Some(Profile::Minimal) => {
            speak_only(&mut card, Version::V1_0);
            card.capabilities.streaming = Some(false);
            card.capabilities.extended_agent_card = Some(false);
        }
        Some(Profile::Extension) => {
            speak_only(&mut card, Version::V1_0);
            card.capabilities.extensions.push(AgentExtension {
                uri: REQUIRED_EXTENSION.to_owned(),
                description: "Has no effect but to be demanded.".to_owned(),
                required: true,
                ..AgentExtension::default()
            });
        }
    }
    let mut extended = card.clone();
    extended.description.push_str(" This is the extended card.");
    Runtime::builder(card, Conformance { profile })
        .extended_card(extended)
        .open_extended_card()
        .refuse_media_type("application/x-unsupported*")
}

#[cfg(test)]
mod tests {
    use nuncio_server::testing::{Harness, Say, lines, summary};

    use super::*;

    fn sent(id: &'static str) -> Say {
        Say::from("anything")
            .change(move |req| req.message.message_id = format!("{id}-1a2b3c4d").as_str().into())
    }

    fn harness() -> Harness {
        Harness::new(Conformance { profile: None })
    }

    /// The ids of the kit for specification 1.0.1.
    #[tokio::test(start_paused = true)]
    async fn an_id_of_the_test_kit_brings_its_state() {
        for (id, expected) in [
            ("tck-complete-task", "completed \"Hello from TCK\" | user: anything | "),
            ("tck-input-required", "input-required \"More input, please\" | user: anything | "),
            ("tck-auth-required", "auth-required \"Authorization needed\" | user: anything | "),
            ("tck-delayed-complete", "completed | user: anything | "),
        ] {
            let harness = harness();
            assert_eq!(summary(&harness.task(sent(id)).await.unwrap()), expected, "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_task_works_for_two_seconds() {
        let harness = harness();
        let begun = tokio::time::Instant::now();
        let task = harness.task(sent("tck-delayed-complete").immediately()).await.unwrap();
        assert!(!task.status.state.is_terminal(), "{}", summary(&task));
        harness.until(&task.id, TaskState::Completed).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
        let told = lines(harness.stream(sent("tck-delayed-complete")).await.unwrap()).await;
        let states = ["submitted", "working", "completed"];
        let seen: Vec<_> =
            states.iter().filter(|state| told.iter().any(|line| line.contains(*state))).collect();
        assert_eq!(seen, states.iter().collect::<Vec<_>>(), "{told:?}");
    }
}
