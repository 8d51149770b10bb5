//! An agent that does what the message says: its text is a script of steps, separated by semicolons.
//!
//! | step | what happens |
//! |---|---|
//! | `submitted` | the task is made, and nothing more is said |
//! | `working TEXT`, `completed TEXT`, `reject TEXT` | that status; the text may be absent |
//! | `ask TEXT`, `auth TEXT` | input or an authorisation is required |
//! | `fail TEXT`, `panic` | the execution ends that way |
//! | `message TEXT` | a direct reply |
//! | `text ID TEXT` | a whole artifact |
//! | `chunk ID TEXT`, `last ID TEXT` | a piece of an artifact, the last piece of it |
//! | `grow ID TEXT`, `grown ID TEXT` | a piece of a text that grows, the last piece of it |
//! | `recall` | an artifact that says what the agent can read of the conversation so far |
//! | `echo` | an artifact with the parts and the metadata of the message |
//! | `rich` | an artifact with every member set |
//! | `show` | an artifact that says what the agent was given |
//! | `wait GATE` | until the test opens the gate, or the task is canceled |
//! | `hold` | until the task is canceled |

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use nuncio_protocol::{Artifact, Error, ErrorKind, Part, Result, Task, TaskState};
use nuncio_server::{EarlierLimit, Emitter, ExecContext, Executor, TextStream};
use serde_json::json;
use tokio::sync::Semaphore;

/// Gates that a script waits at and a test opens, by name. Opening comes first or waiting: it is the same.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl Gates {
    /// Lets one script through, now or when it comes.
    pub fn open(&self, name: &str) {
        self.gate(name).add_permits(1);
    }

    fn gate(&self, name: &str) -> Arc<Semaphore> {
        let mut gates = self.0.lock().expect("no script panics while it holds the lock");
        Arc::clone(gates.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    async fn pass(&self, name: &str) {
        let gate = self.gate(name);
        gate.acquire().await.expect("a gate is never closed").forget();
    }
}

/// The agent.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    /// The gate at which its scripts wait.
    pub gates: Gates,
}

/// The artifacts that a script has begun.
#[derive(Default)]
struct Begun {
    pieces: HashSet<String>,
    texts: HashMap<String, TextStream>,
}

/// Whether a script goes on after a step.
enum Next {
    Go,
    Stop,
}

#[async_trait]
impl Executor for Scripted {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let script = cx.message.parts.iter().find_map(Part::as_text).unwrap_or_default();
        let mut begun = Begun::default();
        for step in script.split(';').map(str::trim).filter(|step| !step.is_empty()) {
            if let Next::Stop = self.step(&cx, &out, &mut begun, step).await? {
                break;
            }
        }
        Ok(())
    }
}

impl Scripted {
    async fn step(&self, cx: &ExecContext, out: &Emitter, begun: &mut Begun, step: &str) -> Result<Next> {
        let (word, words) = step.split_once(' ').unwrap_or((step, ""));
        let parts = if words.is_empty() { Vec::new() } else { vec![Part::text(words)] };
        match word {
            "submitted" => out.submitted().await?,
            "working" => drop(out.status(TaskState::Working, parts).await?),
            "completed" => drop(out.status(TaskState::Completed, parts).await?),
            "reject" => drop(out.status(TaskState::Rejected, parts).await?),
            "ask" => drop(out.input_required(words).await?),
            "auth" => drop(out.auth_required(words).await?),
            "fail" => return Err(Error::new(ErrorKind::Internal, words)),
            "panic" => panic!("as the script says"),
            "message" => out.message(Part::text(words)).await?,
            "text" => {
                let (id, text) = words.split_once(' ').unwrap_or((words, ""));
                out.artifact(Artifact::new(id, Part::text(text))).await?;
            }
            "chunk" | "last" => {
                let (id, text) = words.split_once(' ').unwrap_or((words, ""));
                let append = !begun.pieces.insert(id.to_owned());
                out.chunk(Artifact::new(id, Part::text(text)), append, word == "last").await?;
            }
            "grow" | "grown" => {
                let (id, text) = words.split_once(' ').unwrap_or((words, ""));
                // Each a piece, whenever it comes.
                let begin = || out.text_stream(id).with_id(id).with_pace(Duration::ZERO);
                let stream = begun.texts.entry(id.to_owned()).or_insert_with(begin);
                match word {
                    "grow" => stream.push(text).await?,
                    _ => stream.finish_with(text).await?,
                }
            }
            "recall" => {
                let earlier = cx.earlier(EarlierLimit::default()).await?;
                let recalled: Vec<_> = earlier.iter().map(recalled).collect();
                out.artifact(Artifact::new("recalled", Part::data(json!(recalled)))).await?;
            }
            "echo" => {
                let parts = cx.message.parts.clone();
                let metadata = cx.message.metadata.clone();
                out.artifact(Artifact { metadata, ..Artifact::new("echo", parts) }).await?;
            }
            "rich" => drop(out.artifact(rich()).await?),
            "show" => drop(out.artifact(Artifact::new("shown", Part::data(given(cx)))).await?),
            "wait" => {
                tokio::select! {
                    () = self.gates.pass(words) => {}
                    () = cx.cancellation.cancelled() => return Ok(Next::Stop),
                }
            }
            "hold" => {
                cx.cancellation.cancelled().await;
                return Ok(Next::Stop);
            }
            _ => return Err(Error::new(ErrorKind::Internal, format!("no such step: {step}"))),
        }
        Ok(Next::Go)
    }
}

/// A task in brief: what was said, and what was made.
fn recalled(task: &Task) -> serde_json::Value {
    let said: Vec<_> = task.history.iter().map(|message| message.text().into_owned()).collect();
    let made: Vec<_> = task.artifacts.iter().map(|artifact| artifact.text().into_owned()).collect();
    json!([said, made])
}

/// An artifact with every member set.
fn rich() -> Artifact {
    let mut part = Part::text("text").with_filename("a.txt").with_media_type("text/plain");
    part.metadata.insert("part", json!({"deep": [1, "two", null]}));
    let mut artifact = Artifact::new("rich", vec![part, Part::data(json!([1, 2]))]).with_name("name");
    artifact.description = "description".to_owned();
    artifact.metadata.insert("artifact", true);
    artifact.extensions = vec!["https://extension.example/1".to_owned()];
    artifact
}

/// The input of the agent without the version, the only part that may differ between the wires.
fn given(cx: &ExecContext) -> serde_json::Value {
    json!({
        "taskId": cx.task_id,
        "contextId": cx.context_id,
        "message": *cx.message,
        "before": cx.task.as_ref().map(|task| task.status.state),
        "references": cx.references,
        "configuration": cx.configuration,
        "metadata": cx.metadata,
        "extensions": cx.call.extensions,
        "caller": cx.call.caller.principal(),
    })
}
