//! `nuncio task …`.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_client::Client;
use nuncio_protocol::{GetTaskRequest, ListTasksRequest, MAX_PAGE_SIZE, Seq, Task, TaskId, TaskState};

use super::send::{Watch, follow};
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
        TaskCommand::List { target, context, state, limit } => {
            list(&target.connect().await?, context, state, limit, format).await
        }
        TaskCommand::Cancel { target, id } => {
            let task = target.connect().await?.cancel(id).await?;
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
    output::line(&format!(
        "{}  {:<22}  {since}  {}",
        task.id,
        output::state(task.status.state),
        task.context_id
    ))
}
