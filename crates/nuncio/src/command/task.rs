//! `nuncio task …`: tasks at an agent, or of all callers of a hub.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_client::Client;
use nuncio_hub::admin::api::{
    CancelTask, ListTasks, Paging, ShowTask, TaskDetails, TaskFilter, TaskSummary, TimelineOptions,
};
use nuncio_protocol::{GetTaskRequest, ListTasksRequest, MAX_PAGE_SIZE, Seq, Task, TaskId, TaskState};

use super::{
    delivery::moment,
    hint::program,
    pages::{self, Table, columns, fields, word},
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
        TaskCommand::List {
            url: None,
            hub,
            agent,
            principal,
            context,
            id,
            since,
            before,
            state,
            limit,
            ..
        } => {
            let (since, before, paging) = (since.map(moment), before.map(moment), Paging::default());
            let filter = TaskFilter { agent, state, principal, context, id, since, before, paging };
            let table =
                Table { header: &["TASK", "STATE", "SINCE", "AGENT", "CALLER"], nouns: ("task", "tasks") };
            pages::show(&hub, ListTasks { filter }, limit, table, format, summary).await?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Show { extra: Some(_), .. } => Err(exit::usage(format!(
            "task show takes only the id of a task, of any caller of a hub; for a task of your own at an agent: {} task \
             get URL ID",
            program()
        ))),
        TaskCommand::Show { hub, id, content, extra: None } => {
            let options = TimelineOptions { content: content.then_some(true), ..TimelineOptions::default() };
            show(&hub.call(&ShowTask { id, options }).await?, format)?;
            Ok(ExitCode::SUCCESS)
        }
        // The only argument is the id, unless it can be none.
        TaskCommand::Cancel { url: None, id, .. } if id.contains("://") => Err(exit::usage(format!(
            "missing the id of the task to cancel at {id}; list its tasks with: {} task list {id}",
            program()
        ))),
        TaskCommand::Cancel { url: None, hub, id, .. } => {
            let task = hub.call(&CancelTask { id }).await?;
            match format {
                Format::Json => output::json(&task)?,
                Format::Human => columns(&[], &[summary(&task)])?,
            }
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Cancel { url: Some(url), connection, id, .. } => {
            let task = connection.connect(&url).await?.cancel(id).await?;
            output::task(format, &task)?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Watch { target, id, after } => {
            let client = target.connect_to_watch().await?;
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
    let mut header: &[&str] = &["TASK", "STATE", "SINCE", "CONTEXT"];
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
        match format {
            Format::Json => page.tasks.iter().try_for_each(output::json)?,
            // The first page alone has a header.
            Format::Human => {
                columns(std::mem::take(&mut header), &page.tasks.iter().map(row).collect::<Vec<_>>())?;
            }
        }
        if page.next_page_token.is_empty() || left == 0 {
            let shown = limit - left;
            if format == Format::Human {
                let total = output::count(page.total_size, "task", "tasks");
                output::note(&format!("{shown} of {total}"));
            }
            break;
        }
        token = Some(page.next_page_token);
    }
    Ok(ExitCode::SUCCESS)
}

fn row(task: &Task) -> Vec<String> {
    let since = task.status.timestamp.map(|timestamp| timestamp.to_string()).unwrap_or_default();
    let state = output::state(task.status.state).to_owned();
    vec![task.id.to_string(), state, since, task.context_id.to_string()]
}

/// A task of any caller.
fn summary(task: &TaskSummary) -> Vec<String> {
    vec![
        task.id.clone(),
        output::state(task.state).to_owned(),
        task.since.to_string(),
        task.agent.clone(),
        task.principal.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn show(details: &TaskDetails, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(details);
    }
    let TaskDetails { task, timeline, next, webhooks, upstream, remote, lease, parents, children, delegated } =
        details;
    let list = |ids: &[String]| Some(ids.join(" ")).filter(|ids| !ids.is_empty());
    let begun: Vec<_> = delegated.iter().map(|task| format!("{} ({})", task.id, task.agent)).collect();
    let held = lease.as_ref().map(|turn| match &turn.lease {
        Some(lease) => format!("{} until {}", lease.worker, lease.expires),
        None => format!("none; waits in the mailbox until {}", turn.deadline),
    });
    fields(&[
        ("task", Some(task.id.clone())),
        ("agent", Some(task.agent.clone())),
        ("context", Some(task.context_id.clone())),
        ("principal", task.principal.clone()),
        ("tenant", task.tenant.clone()),
        ("since", Some(task.since.to_string())),
        ("remote", remote.as_ref().map(|remote| format!("{} in {}", remote.task_id, remote.context_id))),
        ("lease", held),
        ("parents", list(parents)),
        ("children", list(children)),
        ("delegated", list(&begun)),
        ("upstream", upstream.as_ref().map(ToString::to_string)),
        ("state", Some(output::state(task.state).to_owned())),
    ])?;
    for webhook in webhooks {
        output::row(&format!("{:<9}  {} {}", "webhook", webhook.id, webhook.url))?;
    }
    for entry in timeline {
        let kind = word(entry.kind);
        output::row(&format!("{:>9}  {}  {kind:<8}  {}", entry.id, entry.time, entry.summary))?;
        if let Some(content) = &entry.content {
            output::row(&format!("{:9}  {content}", ""))?;
        }
    }
    if next.is_some() {
        output::note(
            "the timeline has more events; GET /api/v1/tasks/ID of the administration API has all, page by page",
        );
    }
    Ok(())
}
