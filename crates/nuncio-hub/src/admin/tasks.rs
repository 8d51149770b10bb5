//! Tasks of all callers: listed, shown, canceled, erased.

mod timeline;

use std::sync::Arc;

use nuncio_protocol::{
    A2aService as _, CallContext, Caller, CancelTaskRequest, ContextId, Error, ErrorKind, Seq, Task, TaskId,
    Timestamp,
};
use nuncio_server::{
    Runtime,
    push::shown_url,
    store::{self, AdminTask, AdminTaskQuery, Keyset, MAX_WEBHOOKS, Scope, StoredTask},
};
use serde_json::Value;
use url::Url;

use super::{
    AdminState,
    api::{
        CancelTask, EraseTasks, Erased, ErasureTarget, ListTasks, MAX_PAGE_SIZE, RemoteTask, ShowTask,
        TaskDetails, TaskFilter, TaskPage, TaskSummary, TimelineOptions, Webhook,
    },
    endpoint::Reply,
    mailboxes,
    problem::AdminProblem,
};
use crate::{agents, fleet::ServedAgent};

/// Maximum number of tasks that a task is shown to belong with.
const MAX_RELATED: usize = 20;

pub(super) async fn list(
    state: Arc<AdminState>,
    request: ListTasks,
) -> Result<Reply<TaskPage>, AdminProblem> {
    let TaskFilter { agent, state: in_state, principal, context, id, since, before, paging } = request.filter;
    let query = AdminTaskQuery {
        context_id: context.map(Into::into),
        id_prefix: id,
        before,
        agent: agent.map(Into::into),
        owner: principal.map(Into::into),
        state: in_state,
        since,
        after: paging.after.as_deref().map(keyset).transpose()?,
        limit: paging.limit(),
    };
    let page = state.store.all_tasks(&query).await?;
    let next =
        page.tasks.last().filter(|_| page.more).map(|last| format!("{}.{}", last.at.as_millis(), last.id));
    Ok(Reply::new(TaskPage { tasks: page.tasks.into_iter().map(summary).collect(), next }))
}

fn keyset(text: &str) -> Result<Keyset, AdminProblem> {
    let parts = text.split_once('.');
    let keyset = parts.and_then(|(millis, id)| {
        Some(Keyset { timestamp: Timestamp::from_millis(millis.parse().ok()?)?, id: id.into() })
    });
    keyset.ok_or_else(|| AdminProblem::invalid("after: expected next of the previous page"))
}

fn summary(task: AdminTask) -> TaskSummary {
    let AdminTask { scope, id, context_id, state, at, seq } = task;
    TaskSummary {
        id: id.to_string(),
        context_id: context_id.to_string(),
        agent: scope.agent.to_string(),
        principal: scope.owner.as_deref().map(str::to_owned),
        tenant: scope.tenant.as_deref().map(str::to_owned),
        state,
        since: at,
        last_event_id: seq.0,
    }
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowTask,
) -> Result<Reply<TaskDetails>, AdminProblem> {
    let (scope, stored) = find(&state, &request.id).await?;
    let TimelineOptions { content, after, limit } = request.options;
    let limit = limit.unwrap_or(MAX_PAGE_SIZE);
    let id = &stored.task.id;
    let mut events = state.store.events(&scope, id, after.map(Seq).unwrap_or_default(), limit + 1).await?;
    let more = events.len() > limit;
    events.truncate(limit);
    let next = events.last().filter(|_| more).map(|last| last.seq.0);
    let webhooks = state.store.webhooks(&scope, id, None, MAX_WEBHOOKS).await?.unwrap_or_default();
    let webhooks =
        webhooks.iter().map(|webhook| Webhook { id: webhook.id.to_string(), url: shown_url(webhook) });
    let upstream = stored.memo.as_deref().and_then(|memo| serde_json::from_slice(memo).ok());
    let links = state.store.links(&scope, id).await?;
    Ok(Reply::new(TaskDetails {
        timeline: events
            .iter()
            .map(|event| timeline::entry(event, content == Some(true)))
            .collect::<Result<_, _>>()?,
        next,
        webhooks: webhooks.collect(),
        remote: upstream.as_ref().and_then(remote),
        upstream,
        lease: mailboxes::turn_of(&state, &scope.agent, &stored.task.id).await?,
        parents: related(links.parents),
        children: related(links.children),
        delegated: delegated(&state, &scope, &stored.task).await?,
        task: stored_summary(&scope, &stored),
    }))
}

/// The task at a remote agent, by the memo of its executor.
fn remote(memo: &Value) -> Option<RemoteTask> {
    let text = |member: &str| memo[member].as_str().map(str::to_owned);
    let url = text("interface").and_then(|url| Url::parse(&url).ok()).map(|mut url| {
        url.set_query(None);
        url.to_string()
    });
    Some(RemoteTask { task_id: text("task")?, context_id: text("context")?, url })
}

fn related(ids: Vec<TaskId>) -> Vec<String> {
    ids.into_iter().take(MAX_RELATED).map(|id| id.to_string()).collect()
}

/// Tasks of other agents in the conversation that an agent has with them for this one: a model with tools derives the
/// name of that conversation so.
async fn delegated(state: &AdminState, scope: &Scope, task: &Task) -> Result<Vec<TaskSummary>, AdminProblem> {
    let mut caller =
        scope.owner.as_ref().map_or_else(Caller::anonymous, |owner| Caller::authenticated(Arc::clone(owner)));
    if let Some(tenant) = &scope.tenant {
        caller = caller.of_tenant(Arc::clone(tenant));
    }
    let own = ContextId::new(format!("{}/{}", scope.agent, task.context_id));
    let context = state.contexts.derive(&caller, &own);
    let query = AdminTaskQuery { context_id: Some(context), limit: MAX_RELATED, ..AdminTaskQuery::default() };
    Ok(state.store.all_tasks(&query).await?.tasks.into_iter().map(summary).collect())
}

fn stored_summary(scope: &Scope, stored: &StoredTask) -> TaskSummary {
    let task = &stored.task;
    summary(AdminTask {
        scope: Arc::new(scope.clone()),
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        state: task.status.state,
        at: task.status.timestamp.unwrap_or(Timestamp::EPOCH),
        seq: stored.seq,
    })
}

pub(super) async fn cancel(
    state: Arc<AdminState>,
    request: CancelTask,
) -> Result<Reply<TaskSummary>, AdminProblem> {
    let (scope, stored) = find(&state, &request.id).await?;
    let agent = state.fleet.get(&scope.agent);
    let runtime = agent.as_ref().and_then(|agent| agent.runtime()).ok_or_else(|| {
        AdminProblem::conflict(format!(
            "its agent {} is not served by this hub, so the task does not run here",
            scope.agent
        ))
    })?;
    let cancel = CancelTaskRequest { id: stored.task.id, ..CancelTaskRequest::default() };
    runtime
        .cancel_task(&on_behalf_of_owner(&scope, runtime), cancel)
        .await
        .map_err(|error| refused(&error))?;
    let (scope, stored) = find(&state, &request.id).await?;
    Ok(Reply::new(stored_summary(&scope, &stored)))
}

/// The context of a call by the task's owner, with the extensions that the agent requires.
fn on_behalf_of_owner(scope: &Scope, runtime: &Runtime) -> CallContext {
    let mut caller =
        scope.owner.as_ref().map_or_else(Caller::anonymous, |owner| Caller::authenticated(Arc::clone(owner)));
    if let Some(tenant) = &scope.tenant {
        caller = caller.of_tenant(Arc::clone(tenant));
    }
    let extensions = &runtime.card().capabilities.extensions;
    let extensions =
        extensions.iter().filter(|extension| extension.required).map(|extension| extension.uri.clone());
    CallContext { caller, extensions: extensions.collect(), ..CallContext::default() }
}

fn refused(error: &Error) -> AdminProblem {
    match error.kind() {
        ErrorKind::TaskNotFound => AdminProblem::not_found(error.message()),
        ErrorKind::TaskNotCancelable | ErrorKind::UnsupportedOperation => {
            AdminProblem::conflict(error.message())
        }
        ErrorKind::Unavailable | ErrorKind::ResourceExhausted | ErrorKind::DeadlineExceeded => {
            AdminProblem::unavailable(error.message())
        }
        _ => {
            tracing::error!(%error, "an admin request to an agent failed");
            AdminProblem::internal()
        }
    }
}

pub(super) async fn erase(
    state: Arc<AdminState>,
    request: EraseTasks,
) -> Result<Reply<Erased>, AdminProblem> {
    let ErasureTarget { principal, tenant, agent } = request.target;
    let caller = principal.as_deref().map_or_else(Caller::anonymous, Caller::authenticated);
    let is_meant =
        |served: &&Arc<ServedAgent>| agent.as_deref().is_none_or(|agent| agent == &**served.name());
    // First, so that no held message runs while its task is erased.
    if let Some(principal) = &principal {
        state.consents.erase(principal, tenant.as_deref(), agent.as_deref()).await?;
    }
    let mut erased = 0;
    for runtime in state.fleet.all().iter().filter(is_meant).filter_map(|agent| agent.runtime()) {
        erased += runtime.erase(tenant.as_deref(), &caller).await.map_err(|error| refused(&error))?;
    }
    // Also the tasks of agents that are no longer served.
    let whose = store::ErasureTarget {
        agent: agent.map(Into::into),
        tenant: tenant.map(Into::into),
        owner: principal.as_deref().map(Into::into),
    };
    loop {
        match state.store.erase(&whose, MAX_PAGE_SIZE).await? {
            0 => break,
            some => erased += some,
        }
    }
    state.mailboxes.erase(&whose).await?;
    agents::forget_orphaned_rounds(&*state.store).await?;
    let subject = principal.unwrap_or_else(|| "anonymous callers".to_owned());
    Ok(Reply::new(Erased { erased }).subject(subject))
}

pub(super) async fn find(state: &AdminState, id: &str) -> Result<(Scope, StoredTask), AdminProblem> {
    let found = state.store.find_task(&TaskId::from(id)).await?;
    found.ok_or_else(|| {
        AdminProblem::not_found(format!(
            "there is no task {id}; it may have been deleted after its retention time"
        ))
    })
}
