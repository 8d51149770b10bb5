//! A task: its state, its timeline, its webhooks, and what can be done about it.

use askama::Template;
use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect},
};
use http::header;
use serde_json::{Value, json};

use super::{
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::TaskRow,
    timeline::{Group, groups},
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{CancelTask, MAX_PAGE_SIZE, ShowTask, TimelineOptions, Webhook},
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
/// Maximum length of the shown memo.
const MAX_MEMO_CHARS: usize = 8 * 1024;

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
        // It may quote the content.
        upstream: details.upstream.filter(|_| shows_content).map(|memo| show::json(&memo, MAX_MEMO_CHARS)),
        previous: after.is_some(),
        next: details.next.map(|next| visit.with(&[("after", Some(&next.to_string()))])),
        task: details.task.into(),
    })
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
    let name: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
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
