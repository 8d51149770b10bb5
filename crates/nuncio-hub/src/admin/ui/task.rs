//! A task: its state, its timeline, its webhooks, and what can be done about it.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    body::Bytes,
    extract::Path,
    response::{IntoResponse as _, Redirect},
};
use http::header;
use nuncio_protocol::{Content, Part};
use serde_json::{Value, json};

use super::{
    deliveries::DeliveryRow,
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::TaskRow,
    timeline::{Group, groups},
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{
            ArtifactPart, CancelTask, Delivery, DeliveryFilter, ListDeliveries, ListTaskArtifacts,
            MAX_PAGE_SIZE, Paging, PartKind, RemoteTask, ReplayDelivery, ShowArtifactPart, ShowTask,
            TimelineOptions, Webhook,
        },
        artifacts, deliveries,
        problem::AdminProblem,
        tasks,
    },
    clock,
    trail::What,
};

/// Number of events on a page.
const PAGE_SIZE: usize = 100;
/// Maximum number of events in an export.
const MAX_EXPORTED_EVENTS: usize = 100_000;
/// Number of deliveries on the page.
const MAX_DELIVERIES: usize = 20;
/// Number of artifacts on the page, and of parts of each.
const MAX_ARTIFACTS: usize = 20;
/// Maximum length of the preview of a part, and of all of them.
const MAX_PREVIEW_CHARS: usize = 4 * 1024;
const MAX_PREVIEWS_CHARS: usize = 32 * 1024;
/// Maximum length of the shown memo.
const MAX_MEMO_CHARS: usize = 8 * 1024;

/// The lease of a message of the task, or its wait in the mailbox.
struct Lease {
    mailbox_path: String,
    worker: Option<String>,
    until: String,
}

/// A task that this one refers to, or that refers to it.
struct Reference {
    id: String,
    path: String,
}

/// An artifact with its parts.
struct ShownArtifact {
    title: String,
    parts: Vec<ArtifactRow>,
}

/// A part of an artifact.
struct ArtifactRow {
    label: String,
    /// The address of the download.
    path: String,
    /// The beginning of it as text, once the content is shown.
    preview: Option<String>,
}

#[derive(Template)]
#[template(path = "ui/task.html")]
struct TaskPage {
    shell: Shell,
    task: TaskRow,
    is_terminal: bool,
    elapsed: Option<String>,
    began: Option<String>,
    groups: Vec<Group>,
    shows_content: bool,
    webhooks: Vec<Webhook>,
    deliveries: Vec<DeliveryRow>,
    artifacts: Vec<ShownArtifact>,
    remote: Option<RemoteTask>,
    lease: Option<Lease>,
    parents: Vec<Reference>,
    children: Vec<Reference>,
    delegated: Vec<TaskRow>,
    upstream: Option<String>,
    previous: bool,
    next: Option<String>,
}

pub(super) async fn page(visit: Visit, Path(id): Path<String>) -> Answer {
    let shows_content = visit.session().is_some_and(|session| session.has_opened(&id));
    let after = visit.query.number("after")?;
    let options = TimelineOptions { content: None, after, limit: Some(PAGE_SIZE) };
    let request = ShowTask { id: id.clone(), options };
    let command = format!("task get {}", quoted(&id));
    let shell = visit.shell("Task", Area::Tasks).with_route(&request, Some(command))?;
    let options = TimelineOptions { content: Some(shows_content), ..request.options };
    let details = visit.call(tasks::show, ShowTask { id, options }).await?;
    let artifacts = artifacts(&visit, &details.task.id, shows_content).await?;
    let deliveries = match details.webhooks.is_empty() {
        true => Vec::new(),
        false => deliveries(&visit, &details.task.id, MAX_DELIVERIES).await?,
    };
    let is_terminal = details.task.state.is_terminal();
    let began = details.timeline.first().filter(|first| first.id == 1).map(|first| first.time);
    let until = if is_terminal { details.task.since } else { clock::now() };
    let elapsed = began.map(|began| elapsed(until.as_millis().saturating_sub(began.as_millis())));
    render(&TaskPage {
        shell,
        is_terminal,
        elapsed,
        began: began.map(|began| began.to_string()),
        groups: groups(&details.timeline),
        shows_content,
        webhooks: details.webhooks,
        deliveries: deliveries.iter().map(DeliveryRow::from).collect(),
        artifacts,
        remote: details.remote.map(|remote| RemoteTask {
            task_id: show::cell(&remote.task_id),
            context_id: show::cell(&remote.context_id),
            url: remote.url.as_deref().map(show::cell),
        }),
        lease: details.lease.map(|turn| Lease {
            mailbox_path: format!("/ui/mailboxes/{}", show::segment(&details.task.agent)),
            until: turn.lease.as_ref().map_or(turn.deadline, |lease| lease.expires).to_string(),
            worker: turn.lease.map(|lease| show::cell(&lease.worker)),
        }),
        parents: references(&details.parents),
        children: references(&details.children),
        delegated: details.delegated.into_iter().map(TaskRow::from).collect(),
        // It may quote the content.
        upstream: details.upstream.filter(|_| shows_content).map(|memo| show::json(&memo, MAX_MEMO_CHARS)),
        previous: after.is_some(),
        next: details.next.map(|next| visit.with(&[("after", Some(&next.to_string()))])),
        task: details.task.into(),
    })
}

fn references(ids: &[String]) -> Vec<Reference> {
    ids.iter().map(|id| Reference { path: path(id), id: show::cell(id) }).collect()
}

async fn deliveries(visit: &Visit, task: &str, limit: usize) -> Result<Vec<Delivery>, AdminProblem> {
    let paging = Paging { limit: Some(limit), after: None };
    let filter = DeliveryFilter { task: Some(task.to_owned()), paging, ..DeliveryFilter::default() };
    Ok(visit.call(deliveries::list, ListDeliveries { filter }).await?.deliveries)
}

async fn artifacts(visit: &Visit, id: &str, shows_content: bool) -> Result<Vec<ShownArtifact>, AdminProblem> {
    let list = visit.call(artifacts::list, ListTaskArtifacts { id: id.to_owned() }).await?;
    let mut budget = MAX_PREVIEWS_CHARS;
    let mut shown = Vec::new();
    for artifact in list.artifacts.into_iter().take(MAX_ARTIFACTS) {
        let mut rows = Vec::new();
        for part in artifact.parts.into_iter().take(MAX_ARTIFACTS) {
            let number = part.number.to_string();
            let preview = match shows_content && budget > 0 {
                true => {
                    let of = (id.to_owned(), artifact.id.clone(), number.clone());
                    preview(visit, of, &mut budget).await?
                }
                false => None,
            };
            let path =
                format!("/ui/tasks/{}/artifacts/{}/{number}", show::segment(id), show::segment(&artifact.id));
            rows.push(ArtifactRow { label: label(&part), path, preview });
        }
        let title = artifact.name.unwrap_or(artifact.id);
        shown.push(ShownArtifact { title: show::cell(&title), parts: rows });
    }
    Ok(shown)
}

/// The kind of a part with what is known about it.
fn label(part: &ArtifactPart) -> String {
    let name = part.filename.as_deref().map(|name| format!(" {}", show::cell(name))).unwrap_or_default();
    let media =
        part.media_type.as_deref().map(|media| format!(", {}", show::cell(media))).unwrap_or_default();
    let kind = match part.kind {
        PartKind::Text => "text",
        PartKind::Raw => "file",
        PartKind::Url => "file elsewhere",
        PartKind::Data => "data",
    };
    format!("{kind}{name}{media}, {}", show::bytes(part.bytes as u64))
}

async fn part(
    visit: &Visit,
    (id, artifact, number): (String, String, String),
) -> Result<(ArtifactPart, Part), AdminProblem> {
    let mut shown = visit.call(artifacts::part, ShowArtifactPart { id, artifact, number }).await?;
    let part = shown.part.take().and_then(|part| serde_json::from_value(part).ok());
    Ok((shown, part.ok_or_else(AdminProblem::viewer)?))
}

/// The beginning of a part as text; none for a file that is not text.
async fn preview(
    visit: &Visit,
    of: (String, String, String),
    budget: &mut usize,
) -> Result<Option<String>, AdminProblem> {
    let (_, part) = part(visit, of).await?;
    let text = match &part.content {
        Content::Text(text) | Content::Url(text) => text.clone(),
        Content::Data(data) => show::indented(data.as_str()),
        Content::Raw(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Ok(None),
        },
    };
    let shown = show::text(&text, MAX_PREVIEW_CHARS.min(*budget));
    *budget = budget.saturating_sub(shown.chars().count());
    Ok(Some(shown))
}

/// A part of an artifact as a file. The content must have been asked for, which has left a row in the trail.
pub(super) async fn download(
    visit: Visit,
    Path((id, artifact, number)): Path<(String, String, String)>,
) -> Answer {
    if !visit.session().is_some_and(|session| session.has_opened(&id)) {
        return Err(AdminProblem::forbidden(
            "the content of the task is hidden: open its page and choose \"Show content\" first",
        )
        .into());
    }
    let (_, part) = part(&visit, (id.clone(), artifact, number.clone())).await?;
    let extension = match &part.content {
        Content::Text(_) | Content::Url(_) => ".txt",
        Content::Data(_) => ".json",
        Content::Raw(_) => "",
    };
    let own = part.filename.as_deref().map(show::file_name).filter(|name| !name.is_empty());
    let name = own
        .unwrap_or_else(|| format!("task-{}-{}{extension}", show::file_name(&id), show::file_name(&number)));
    let body = match part.content {
        Content::Text(text) | Content::Url(text) => Bytes::from(text),
        Content::Data(data) => Bytes::from(data.as_str().to_owned()),
        Content::Raw(bytes) => bytes,
    };
    let headers = [
        // Whatever the agent calls it: no browser shows bytes of this type.
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, body).into_response())
}

/// Sends the last notification of each webhook of the task again.
pub(super) async fn notify(visit: Visit, Path(id): Path<String>) -> Answer {
    visit.require_operator()?;
    let mut latest: BTreeMap<String, Delivery> = BTreeMap::new();
    for delivery in deliveries(&visit, &id, MAX_PAGE_SIZE).await? {
        let known = latest.get(&delivery.webhook).is_some_and(|known| known.event_id >= delivery.event_id);
        if !known {
            latest.insert(delivery.webhook.clone(), delivery);
        }
    }
    let count = latest.len();
    for delivery in latest.into_values() {
        visit.call(deliveries::replay, ReplayDelivery { id: delivery.id }).await?;
    }
    visit.done(&path(&id), format!("Notifications that are delivered again: {count}."))
}

/// A duration, such as `2 min 5 s`.
fn elapsed(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0) => format!("{} ms", millis.max(0)),
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn path(id: &str) -> String {
    format!("/ui/tasks/{}", show::segment(id))
}

pub(super) async fn cancel(visit: Visit, Path(id): Path<String>) -> Answer {
    let canceled = visit.call(tasks::cancel, CancelTask { id: id.clone() }).await?;
    visit.done(&path(&id), format!("The task was canceled: its state is {}.", show::state(canceled.state)))
}

/// Shows the content of a task from now on, or hides it again.
pub(super) async fn show_content(visit: Visit, Path(id): Path<String>, form: Form) -> Answer {
    let Some(session) = visit.session() else { return Err(AdminProblem::signed_out().into()) };
    if form.get("show") == Some("no") {
        session.close(&id);
    } else {
        exists(&visit, &id).await?;
        visit.note(What::ContentShown, &id)?;
        session.open(&id);
    }
    Ok(Redirect::to(&path(&id)).into_response())
}

async fn exists(visit: &Visit, id: &str) -> Result<(), AdminProblem> {
    let options = TimelineOptions { limit: Some(1), ..TimelineOptions::default() };
    visit.call(tasks::show, ShowTask { id: id.to_owned(), options }).await.map(|_| ())
}

/// Everything that is stored about a task, content included, as a file.
pub(super) async fn export(visit: Visit, Path(id): Path<String>) -> Answer {
    exists(&visit, &id).await?;
    visit.note(What::ContentShown, &id)?;
    let mut after = None;
    let mut events = Vec::new();
    let mut last = loop {
        let options = TimelineOptions { content: Some(true), after, limit: Some(MAX_PAGE_SIZE) };
        let mut page = visit.call(tasks::show, ShowTask { id: id.clone(), options }).await?;
        events.append(&mut page.timeline);
        after = page.next;
        if after.is_none() || events.len() >= MAX_EXPORTED_EVENTS {
            break page;
        }
    };
    last.timeline = events;
    let bundle = json!({ "exported": clock::now(), "task": last });
    let body = serde_json::to_vec_pretty::<Value>(&bundle).map_err(|_| AdminProblem::internal())?;
    let name = show::file_name(&id);
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"task-{name}.json\"")),
    ];
    Ok((headers, body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, expected) in [
            (-5, "0 ms"),
            (250, "250 ms"),
            (59_999, "59 s"),
            (125_000, "2 min 5 s"),
            (7_260_000, "2 h 1 min"),
            (180_000_000, "2 d 2 h"),
        ] {
            assert_eq!(elapsed(millis), expected);
        }
    }
}
