//! A conversation: the tasks of one context, over all agents.

use askama::Template;
use axum::extract::Path;

use super::{
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::TaskRow,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{ListTasks, Paging, TaskFilter},
    problem::AdminProblem,
    tasks,
};

/// Number of tasks on a page.
const PAGE_SIZE: usize = 100;

#[derive(Template)]
#[template(path = "ui/context.html")]
struct ContextPage {
    shell: Shell,
    id: String,
    shown_id: String,
    rows: Vec<TaskRow>,
    next: Option<String>,
}

pub(super) async fn page(visit: Visit, Path(id): Path<String>) -> Answer {
    let paging = Paging { limit: Some(PAGE_SIZE), after: visit.query.text("after") };
    let filter = TaskFilter { context: Some(id.clone()), paging, ..TaskFilter::default() };
    let request = ListTasks { filter };
    let command = format!("task list --context {}", quoted(&id));
    let shell = visit.shell("Conversation", Area::Tasks).with_route(&request, Some(command))?;
    let page = visit.call(tasks::list, request).await?;
    if page.tasks.is_empty() && visit.query.get("after").is_none() {
        return Err(AdminProblem::not_found(format!(
            "there is no conversation {}; its tasks may have been deleted after their retention time",
            show::cell(&id)
        ))
        .into());
    }
    render(&ContextPage {
        shell,
        shown_id: show::cell(&id),
        id,
        rows: page.tasks.into_iter().map(TaskRow::from).collect(),
        next: page.next.map(|next| visit.with(&[("after", Some(&next))])),
    })
}
