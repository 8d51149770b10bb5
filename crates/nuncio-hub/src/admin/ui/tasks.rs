//! The list of tasks, with its filter in the address.

use std::sync::Arc;

use askama::Template;
use nuncio_protocol::TaskState;

use super::{
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        AdminState,
        api::{ListTasks, Paging, TaskFilter, TaskSummary},
        problem::AdminProblem,
        tasks,
    },
    clock,
};

/// Number of tasks on a page.
const PAGE_SIZE: usize = 100;

/// The fields of the filter, by the names of the API and of the command.
const FIELDS: [&str; 7] = ["agent", "state", "principal", "context", "id", "since", "before"];

/// Maximum length of the ids in a row; the whole id is in the link.
const MAX_ID_CHARS: usize = 40;
const MAX_CONTEXT_CHARS: usize = 18;

/// A row of a list of tasks.
pub(super) struct TaskRow {
    pub(super) id: String,
    pub(super) shown_id: String,
    pub(super) path: String,
    /// The id as a value in an address.
    pub(super) query: String,
    pub(super) agent: String,
    pub(super) principal: String,
    pub(super) context: String,
    pub(super) context_path: String,
    /// The whole context as a value in an address.
    pub(super) context_query: String,
    pub(super) state: String,
    pub(super) since: String,
    pub(super) last_event: u64,
}

impl From<TaskSummary> for TaskRow {
    fn from(task: TaskSummary) -> Self {
        Self {
            path: format!("/ui/tasks/{}", show::segment(&task.id)),
            query: show::segment(&task.id),
            shown_id: show::text(&task.id, MAX_ID_CHARS),
            id: task.id,
            agent: task.agent,
            principal: show::cell(task.principal.as_deref().unwrap_or("anonymous")),
            context_query: show::segment(&task.context_id),
            context_path: format!("/ui/contexts/{}", show::segment(&task.context_id)),
            context: show::text(&task.context_id, MAX_CONTEXT_CHARS),
            state: show::state(task.state),
            since: task.since.to_string(),
            last_event: task.last_event_id,
        }
    }
}

/// A choice of a filter.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) label: String,
    pub(super) is_chosen: bool,
}

#[derive(Template)]
#[template(path = "ui/tasks.html")]
struct TasksPage<'a> {
    shell: Shell,
    query: &'a Form,
    agents: Vec<Choice>,
    states: Vec<Choice>,
    rows: Vec<TaskRow>,
    next: Option<String>,
    is_filtered: bool,
    try_command: String,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let filter = filter(&visit.query)?;
    let request = ListTasks { filter };
    let command = command(&visit.query);
    let shell = visit.shell("Tasks", Area::Tasks).with_route(&request, Some(command))?;
    let page = visit.call(tasks::list, request).await?;
    let query = &visit.query;
    let next = page.next.map(|next| visit.with(&[("after", Some(&next))]));
    render(&TasksPage {
        shell,
        agents: agents(visit.state(), query.get("agent")),
        states: states(query.get("state")),
        rows: page.tasks.into_iter().map(TaskRow::from).collect(),
        next,
        is_filtered: FIELDS.iter().any(|field| query.get(field).is_some()),
        try_command: try_command(visit.state()),
        query,
    })
}

fn filter(query: &Form) -> Result<TaskFilter, AdminProblem> {
    Ok(TaskFilter {
        agent: query.text("agent"),
        state: query.get("state").map(parse_state).transpose()?,
        principal: query.text("principal"),
        context: query.text("context"),
        id: query.text("id"),
        before: query.past("before", clock::now())?,
        since: query.past("since", clock::now())?,
        paging: Paging { limit: Some(PAGE_SIZE), after: query.text("after") },
    })
}

fn parse_state(word: &str) -> Result<TaskState, AdminProblem> {
    let name = format!("TASK_STATE_{}", word.to_uppercase().replace('-', "_"));
    TaskState::from_name(&name)
        .ok_or_else(|| AdminProblem::invalid(format!("state: {word} is not a state; choose one of the list")))
}

/// The command that prints the same list.
fn command(query: &Form) -> String {
    let mut command = "task list".to_owned();
    for field in FIELDS {
        if let Some(value) = query.get(field) {
            command.push_str(&format!(" --{field} {}", quoted(value)));
        }
    }
    command
}

fn states(chosen: Option<&str>) -> Vec<Choice> {
    let states = [
        TaskState::Submitted,
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::AuthRequired,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::Rejected,
    ];
    let choice = |state| {
        let word = show::state(state);
        Choice { is_chosen: chosen == Some(&*word), label: word.clone(), value: word }
    };
    states.into_iter().map(choice).collect()
}

/// The agents of the hub as choices.
pub(super) fn agents(state: &Arc<AdminState>, chosen: Option<&str>) -> Vec<Choice> {
    let mut choices: Vec<_> = state
        .fleet
        .all()
        .iter()
        .map(|agent| Choice {
            value: agent.name().to_string(),
            label: agent.name().to_string(),
            is_chosen: chosen == Some(agent.name()),
        })
        .collect();
    // An agent that is no longer served may have tasks.
    if let Some(other) = chosen.filter(|chosen| choices.iter().all(|choice| choice.value != **chosen)) {
        choices.push(Choice { value: other.to_owned(), label: show::cell(other), is_chosen: true });
    }
    choices
}

/// A command that makes a task.
pub(super) fn try_command(state: &AdminState) -> String {
    let agents = state.fleet.all();
    let Some(agent) = agents.first() else { return "nuncio agent add NAME URL".to_owned() };
    let card = agent.shown();
    let url = card.card.supported_interfaces.first().map_or("URL", |interface| interface.url.as_str());
    format!("nuncio send {} {}", quoted(url), quoted(agent.example()))
}
