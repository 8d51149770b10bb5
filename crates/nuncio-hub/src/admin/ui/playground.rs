//! The playground: a message to an agent, its frames with a mark of validity each, and the task beside them.

use askama::Template;
use axum::extract::Path;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nuncio_protocol::{Message, Part, Task, Version};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::{Choice, agents, try_command},
    timeline::{MAX_PAGE_CHARS, ShownPart, shown_part},
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{
        CancelTrial, ListTrials, NewTrial, SendTrial, ShowTrial, Trial, TrialFrame, TrialMode, TrialSummary,
    },
    playground,
    problem::AdminProblem,
};

const PAGE: &str = "/ui/try";
/// Maximum length of the text of one frame on the page.
const MAX_FRAME_CHARS: usize = 16 * 1024;

/// The fields of the form, as they were sent or are to be filled in.
#[derive(Default)]
struct Draft {
    card: String,
    text: String,
    data: String,
    file_url: String,
    metadata: String,
    extensions: String,
    context: String,
    task: String,
    pushes: bool,
}

/// A frame as it is shown.
struct FrameRow {
    number: u64,
    at: String,
    /// `sent`, `received` or `notified`.
    direction: String,
    label: String,
    validity: Option<String>,
    notes: Vec<String>,
    text: Option<String>,
    /// The newest one with a text is open.
    is_open: bool,
}

/// The task or the reply of a trial.
struct Outcome {
    state: Option<String>,
    task: Option<String>,
    /// The page of the task, if the hub keeps it.
    task_path: Option<String>,
    context: Option<String>,
    said: Vec<Spoken>,
}

/// A message or an artifact.
struct Spoken {
    title: String,
    parts: Vec<ShownPart>,
}

/// A trial with its texts.
struct ShownTrial {
    path: String,
    to: String,
    interface: String,
    url: String,
    began: String,
    ended: Option<String>,
    frames: Vec<FrameRow>,
    is_cut: bool,
    outcome: Outcome,
    curl: Option<String>,
    command: Option<String>,
    has_content: bool,
    can_cancel: bool,
}

/// A trial in the list.
struct TrialRow {
    path: String,
    to: String,
    interface: String,
    began: String,
    state: Option<String>,
    frames: usize,
}

#[derive(Template)]
#[template(path = "ui/playground.html")]
struct PlaygroundPage {
    shell: Shell,
    agents: Vec<Choice>,
    versions: Vec<Choice>,
    bindings: Vec<Choice>,
    modes: Vec<Choice>,
    draft: Draft,
    trial: Option<ShownTrial>,
    rows: Vec<TrialRow>,
    try_command: String,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Try an agent", Area::Try);
    let all = visit.call(playground::list, ListTrials {}).await?.trials;
    let (shell, trial) = match visit.query.get("trial") {
        Some(id) => {
            let request = ShowTrial { id: id.to_owned() };
            let shell = shell.with_route(&request, None)?;
            (shell, Some(visit.call(playground::show, request).await?))
        }
        None => (shell.with_route(&ListTrials {}, None)?, None),
    };
    let query = &visit.query;
    let request = trial.as_ref().and_then(|trial| trial.request.clone());
    let is_new = request.is_none();
    let request = request.unwrap_or_else(|| NewTrial {
        agent: query.text("agent"),
        card: query.text("card"),
        context_id: query.text("context"),
        task_id: query.text("task"),
        ..NewTrial::default()
    });
    let draft = draft(&request, trial.as_ref(), is_new);
    let chosen = |words: &[(&str, &str)], chosen: Option<&str>| {
        let choice = |(value, label): &(&str, &str)| Choice {
            value: (*value).to_owned(),
            label: (*label).to_owned(),
            is_chosen: chosen == Some(value),
        };
        words.iter().map(choice).collect()
    };
    let versions: Vec<_> = Version::ALL.iter().map(|version| (version.as_str(), version.as_str())).collect();
    render(&PlaygroundPage {
        shell,
        agents: agents(visit.state(), request.agent.as_deref()),
        versions: chosen(&versions, request.version.as_deref()),
        bindings: chosen(
            &[("JSONRPC", "JSON-RPC"), ("HTTP+JSON", "HTTP+JSON"), ("GRPC", "gRPC")],
            request.binding.as_deref(),
        ),
        modes: chosen(
            &[("stream", "stream of events"), ("wait", "one, at the end"), ("now", "one, at once")],
            Some(&show::word(request.mode)),
        ),
        draft,
        trial: trial.map(|trial| shown(&visit, trial)),
        rows: all.iter().map(row).collect(),
        try_command: try_command(visit.state()),
    })
}

fn draft(request: &NewTrial, trial: Option<&Trial>, is_new: bool) -> Draft {
    let of = |member: &str| request.parts.iter().find_map(|part| part.get(member));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let summary = trial.map(|trial| &trial.summary);
    let waits = summary.and_then(|summary| summary.state).is_some_and(|state| !state.is_terminal());
    Draft {
        card: request.card.clone().unwrap_or_default(),
        text: if is_new { "hello".to_owned() } else { text(of("text")) },
        data: of("data").map(|data| show::json(data, MAX_FRAME_CHARS)).unwrap_or_default(),
        file_url: text(of("url")),
        metadata: if request.metadata.is_empty() {
            String::new()
        } else {
            show::json(&request.metadata, MAX_FRAME_CHARS)
        },
        extensions: request.extensions.join(" "),
        // The next message goes on with the conversation, and with its task if that has not ended.
        context: summary
            .and_then(|summary| summary.context_id.clone())
            .or_else(|| request.context_id.clone())
            .unwrap_or_default(),
        task: summary
            .and_then(|summary| summary.task_id.clone())
            .filter(|_| waits)
            .or_else(|| request.task_id.clone().filter(|_| is_new))
            .unwrap_or_default(),
        pushes: request.push,
    }
}

fn to(summary: &TrialSummary) -> String {
    show::cell(summary.agent.as_deref().or(summary.card.as_deref()).unwrap_or_default())
}

fn row(summary: &TrialSummary) -> TrialRow {
    TrialRow {
        path: format!("{PAGE}?trial={}", summary.id),
        to: to(summary),
        interface: format!("{} {}", summary.version, summary.binding),
        began: summary.began.to_string(),
        state: summary.state.map(show::state),
        frames: summary.frame_count,
    }
}

fn shown(visit: &Visit, trial: Trial) -> ShownTrial {
    let command = command(visit, &trial);
    let Trial { summary, frames, truncated, task, reply, curl, request } = trial;
    let mut budget = MAX_PAGE_CHARS;
    let with_text = frames.iter().rev().find(|frame| frame.text.is_some());
    let last = with_text.map_or(0, |frame| frame.number);
    let outcome = outcome(visit, &summary, task, reply, &mut budget);
    let frames = frames.into_iter().map(|frame| frame_row(frame, last, &mut budget)).collect();
    ShownTrial {
        path: format!("{PAGE}/{}", show::segment(&summary.id)),
        to: to(&summary),
        interface: format!("{} {}", summary.version, summary.binding),
        url: show::cell(&summary.url),
        began: summary.began.to_string(),
        ended: summary.ended.map(|ended| ended.to_string()),
        frames,
        is_cut: truncated,
        outcome,
        curl,
        command,
        has_content: request.is_some(),
        can_cancel: match summary.state {
            Some(state) => !state.is_terminal(),
            None => summary.ended.is_none(),
        },
    }
}

fn frame_row(frame: TrialFrame, last: u64, budget: &mut usize) -> FrameRow {
    let TrialFrame { number, at, direction, label, validity, notes, text, truncated } = frame;
    let text = text.map(|text| {
        // The head of a request stays as it is.
        let (head, body) = match text.split_once("\n\n") {
            Some((head, body)) if !text.starts_with('{') => (format!("{head}\n\n"), body),
            _ => (String::new(), &*text),
        };
        let shown = show::text(&format!("{head}{}", show::indented(body)), MAX_FRAME_CHARS.min(*budget));
        *budget = budget.saturating_sub(shown.chars().count());
        if truncated { format!("{shown}…") } else { shown }
    });
    FrameRow {
        number,
        at: at.to_string(),
        label: show::cell(&label),
        direction: show::word(direction),
        validity: validity.map(show::word),
        notes: notes.iter().map(|note| show::cell(note)).collect(),
        text,
        is_open: number == last,
    }
}

fn outcome(
    visit: &Visit,
    summary: &TrialSummary,
    task: Option<Value>,
    reply: Option<Value>,
    budget: &mut usize,
) -> Outcome {
    let (task, reply): (Option<Task>, Option<Message>) = (decoded(task), decoded(reply));
    let mut said = Vec::new();
    let mut add = |title: String, parts: &[Part]| {
        said.push(Spoken { title, parts: parts.iter().map(|part| shown_part(part, budget)).collect() });
    };
    if let Some(reply) = &reply {
        add("Reply".to_owned(), &reply.parts);
    }
    if let Some(task) = &task {
        if let Some(message) = &task.status.message {
            add("Status".to_owned(), &message.parts);
        }
        for artifact in &task.artifacts {
            let name = Some(&*artifact.name).filter(|name| !name.is_empty());
            let name = name.unwrap_or(artifact.artifact_id.as_str());
            add(format!("Artifact {}", show::cell(name)), &artifact.parts);
        }
    }
    let is_kept = summary.agent.as_deref().and_then(|name| visit.state().fleet.get(name));
    let is_kept = is_kept.is_some_and(|agent| agent.runtime().is_some());
    let path = summary.task_id.as_deref().filter(|_| is_kept);
    Outcome {
        state: summary.state.map(show::state),
        task: summary.task_id.as_deref().map(show::cell),
        task_path: path.map(|id| format!("/ui/tasks/{}", show::segment(id))),
        context: summary.context_id.as_deref().map(show::cell),
        said,
    }
}

fn decoded<T: DeserializeOwned>(value: Option<Value>) -> Option<T> {
    value.and_then(|value| serde_json::from_value(value).ok())
}

/// The command that sends the same message.
fn command(visit: &Visit, trial: &Trial) -> Option<String> {
    let request = trial.request.as_ref()?;
    let agent = request.agent.as_deref().and_then(|name| visit.state().fleet.get(name));
    let url = agent.and_then(|agent| {
        agent.shown().card.supported_interfaces.first().map(|interface| interface.url.clone())
    });
    let mut words = vec!["nuncio send".to_owned(), quoted(&url.or_else(|| request.card.clone())?)];
    let mut texts = Vec::new();
    for part in &request.parts {
        if let Some(text) = part["text"].as_str() {
            texts.push(text);
        } else if part.get("data").is_some() {
            words.push(format!("--data {}", quoted(&part["data"].to_string())));
        } else {
            words.push(format!("--file {}", quoted(part["filename"].as_str().unwrap_or("FILE"))));
        }
    }
    words.insert(2, quoted(&texts.join("\n")));
    words.push(format!("--a2a-version {}", trial.summary.version));
    words.push(format!(
        "--binding {}",
        match &*trial.summary.binding {
            "HTTP+JSON" => "rest",
            "GRPC" => "grpc",
            _ => "jsonrpc",
        }
    ));
    match request.mode {
        TrialMode::Stream => words.push("--stream".to_owned()),
        TrialMode::Now => words.push("--no-wait".to_owned()),
        TrialMode::Wait => {}
    }
    for (name, value) in &request.metadata {
        words.push(format!("--metadata {}", quoted(&format!("{name}={value}"))));
    }
    for extension in &request.extensions {
        words.push(format!("--extension {}", quoted(extension)));
    }
    for (option, value) in [("--context", &request.context_id), ("--task", &request.task_id)] {
        if let Some(value) = value {
            words.push(format!("{option} {}", quoted(value)));
        }
    }
    Some(words.join(" "))
}

pub(super) async fn send(visit: Visit, form: Form) -> Answer {
    let trial = read(&form)?;
    let sent = visit.call(playground::send, SendTrial { trial }).await?;
    visit.done(&format!("{PAGE}?trial={}", sent.summary.id), "The message was sent.")
}

fn read(form: &Form) -> Result<NewTrial, AdminProblem> {
    let mut parts = Vec::new();
    if let Some(text) = form.get("text") {
        parts.push(json!({ "text": text.replace("\r\n", "\n") }));
    }
    if let Some(data) = form.get("data") {
        let data: Value = serde_json::from_str(data)
            .map_err(|error| AdminProblem::invalid(format!("data: expected JSON: {error}")))?;
        parts.push(json!({ "data": data }));
    }
    for file in form.files() {
        let raw = STANDARD.encode(&file.bytes);
        parts.push(json!({ "raw": raw, "filename": file.name, "mediaType": file.media_type }));
    }
    if let Some(url) = form.get("file_url") {
        parts.push(json!({ "url": url }));
    }
    if parts.is_empty() {
        return Err(AdminProblem::invalid("the message is empty; enter a text, data, or a file"));
    }
    let metadata: Map<String, Value> = match form.get("metadata") {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| AdminProblem::invalid(format!("metadata: expected a JSON object: {error}")))?,
        None => Map::new(),
    };
    let card = form.text("card");
    Ok(NewTrial {
        // An address that was entered is meant, whichever agent is chosen above it.
        agent: form.text("agent").filter(|_| card.is_none()),
        card,
        version: form.text("version"),
        binding: form.text("binding"),
        mode: match form.get("mode") {
            Some("wait") => TrialMode::Wait,
            Some("now") => TrialMode::Now,
            _ => TrialMode::Stream,
        },
        parts,
        metadata,
        extensions: form.list("extensions").unwrap_or_default(),
        context_id: form.text("context"),
        task_id: form.text("task"),
        push: form.get("push").is_some(),
        key: form.text("key"),
    })
}

pub(super) async fn cancel(visit: Visit, Path(id): Path<String>) -> Answer {
    let canceled = visit.call(playground::cancel, CancelTrial { id }).await?;
    let said = match canceled.summary.task_id {
        Some(_) => "The agent was asked to cancel the task.",
        None => "The connection was closed.",
    };
    visit.done(&format!("{PAGE}?trial={}", canceled.summary.id), said)
}
