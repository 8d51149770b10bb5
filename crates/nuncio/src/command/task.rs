//! `nuncio task …`.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_client::Client;
use nuncio_protocol::{GetTaskRequest, ListTasksRequest, MAX_PAGE_SIZE, Seq, Task, TaskId, TaskState};
use serde_json::{Value, json};

use super::{
    delivery::moment,
    pages::{self, List, filters, members, segment, text},
    send::{Watch, follow},
};
use crate::{
    args::TaskCommand,
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: TaskCommand, format: Format) -> Result<ExitCode> {
    match command {
        TaskCommand::Get { target, id, history } => {
            let client = target.connect().await?;
            let req = GetTaskRequest { id: id.into(), history_length: history, ..GetTaskRequest::default() };
            let task = client.get_with(req).await?;
            output::task(format, &task)?;
            Ok(ExitCode::from(exit::of_state(task.status.state)))
        }
        TaskCommand::List { url: Some(url), connection, context, state, limit, .. } => {
            list(&connection.connect(&url).await?, context, state, limit, format).await
        }
        TaskCommand::List { url: None, hub, agent, principal, since, state, limit, .. } => {
            let state = state.map(|state| state.as_str().to_owned());
            let given =
                [("agent", agent), ("principal", principal), ("since", since.map(moment)), ("state", state)];
            let list = List { path: "tasks", member: "tasks", filters: filters(given), limit };
            pages::show(&hub, list, format, any_row).await?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Show { hub, id, content } => {
            let query = [("content", "true".to_owned())];
            let query = if content { &query[..] } else { &[] };
            show(&hub.get(&format!("tasks/{}", segment(&id)), query).await?, format)?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Cancel { url: None, hub, id, .. } => {
            let task = hub.post(&format!("tasks/{}:cancel", segment(&id)), &json!({})).await?;
            match format {
                Format::Json => output::json(&task)?,
                Format::Human => any_row(&task)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Cancel { url: Some(url), connection, id, .. } => {
            let task = connection.connect(&url).await?.cancel(id).await?;
            output::task(format, &task)?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Watch { target, id, after } => {
            let client = target.connect().await?;
            let task = TaskId::from(id);
            let events = match after {
                Some(seq) => client.subscribe_after(task.clone(), Seq(seq)).await?,
                None => client.subscribe(task.clone()).await?,
            };
            follow(events, &target, Watch { task: Some(task), after }, format).await
        }
    }
}

async fn list(
    client: &Client,
    context: Option<String>,
    state: Option<TaskState>,
    limit: usize,
    format: Format,
) -> Result<ExitCode> {
    let mut left = limit;
    let mut token = None;
    while left > 0 {
        let page_size = i32::try_from(left).unwrap_or(MAX_PAGE_SIZE).min(MAX_PAGE_SIZE);
        let page = client
            .list(ListTasksRequest {
                context_id: context.clone().map(Into::into),
                status: state,
                page_size: Some(page_size),
                page_token: token.take(),
                history_length: Some(0),
                ..ListTasksRequest::default()
            })
            .await?;
        left = left.saturating_sub(page.tasks.len());
        for task in &page.tasks {
            row(task, format)?;
        }
        if page.next_page_token.is_empty() || left == 0 {
            let shown = limit - left;
            if format == Format::Human {
                output::note(&format!("{shown} of {} tasks", page.total_size));
            }
            break;
        }
        token = Some(page.next_page_token);
    }
    Ok(ExitCode::SUCCESS)
}

fn row(task: &Task, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(task);
    }
    let since = task.status.timestamp.map(|timestamp| timestamp.to_string()).unwrap_or_default();
    output::row(&format!(
        "{}  {:<22}  {since}  {}",
        task.id,
        output::state(task.status.state),
        task.context_id
    ))
}

/// A task of any caller.
fn any_row(task: &Value) -> Result<()> {
    output::row(&format!(
        "{}  {:<22}  {}  {}  {}",
        text(task, "id"),
        state_of(task),
        text(task, "since"),
        text(task, "agent"),
        task["principal"].as_str().unwrap_or("-"),
    ))
}

fn state_of(task: &Value) -> &'static str {
    output::state(TaskState::from_name(text(task, "state")).unwrap_or_default())
}

fn show(task: &Value, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(task);
    }
    members(
        task,
        &[
            ("task", "/id"),
            ("agent", "/agent"),
            ("context", "/contextId"),
            ("principal", "/principal"),
            ("tenant", "/tenant"),
            ("since", "/since"),
            ("upstream", "/upstream"),
        ],
    )?;
    output::row(&format!("{:<9}  {}", "state", state_of(task)))?;
    let all = |member: &str| task[member].as_array().cloned().unwrap_or_default();
    for webhook in all("webhooks") {
        output::row(&format!("{:<9}  {} {}", "webhook", text(&webhook, "id"), text(&webhook, "url")))?;
    }
    for entry in all("timeline") {
        let (id, kind) = (&entry["id"], text(&entry, "kind"));
        output::row(&format!("{id:>9}  {}  {kind:<8}  {}", text(&entry, "time"), text(&entry, "summary")))?;
        if !entry["content"].is_null() {
            output::row(&format!("{:9}  {}", "", entry["content"]))?;
        }
    }
    if !task["next"].is_null() {
        output::note("there is more; the API has it in pages");
    }
    Ok(())
}
