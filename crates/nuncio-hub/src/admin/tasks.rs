//! Tasks, whoever owns them: looked at, canceled, erased. What they are about is told only if it is asked for.

mod timeline;

use std::sync::Arc;

use http::Method;
use nuncio_protocol::{
    A2aService as _, CallContext, Caller, CancelTaskRequest, Error, ErrorKind, TaskId, TaskState, Timestamp,
};
use nuncio_server::{
    Runtime,
    push::shown_url,
    store::{self, AdminTask, AdminTaskQuery, Keyset, MOST_WEBHOOKS, Scope, StoredTask},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use self::timeline::Entry;
use super::{
    Desk,
    answer::Problem,
    openapi::Time,
    query::{LARGEST_PAGE, USUAL_PAGE},
    route::{Call, Reply, Route, route},
};
use crate::{audit::What, fleet::Agent};

pub(super) fn routes() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    vec![
        route(get.clone(), "/tasks", "tasks.list", "Tasks of all callers, newest status first.", list),
        route(get, "/tasks/{id}", "tasks.show", "One task: what happened to it, and who is told.", show),
        route(post.clone(), "/tasks/{id}:cancel", "tasks.cancel", "Cancels it, whoever owns it.", cancel)
            .noted(What::TaskCanceled),
        route(post, "/tasks:erase", "tasks.erase", "Forgets all that a caller said and was told.", erase)
            .noted(What::DataErased),
    ]
}

/// The states, by the names of the specification.
struct State;

impl JsonSchema for State {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TaskState".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^TASK_STATE_[A-Z_]+$" })
    }
}

/// Which tasks.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Wanted {
    /// Only of this agent.
    agent: Option<String>,
    /// Only in this state, such as `TASK_STATE_WORKING`.
    state: Option<String>,
    /// Only of this principal.
    principal: Option<String>,
    /// Only with a status since then.
    #[schemars(with = "Option<Time>")]
    since: Option<Timestamp>,
    /// At most so many.
    #[schemars(range(min = 1, max = LARGEST_PAGE))]
    limit: Option<usize>,
    /// From here on: what `next` of the page before says.
    after: Option<String>,
}

/// Some tasks.
#[derive(Serialize, JsonSchema)]
struct Page {
    tasks: Vec<Task>,
    /// For `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A task, without what it is about.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Task {
    id: String,
    context_id: String,
    agent: String,
    /// Whose it is; absent: an anonymous caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[schemars(with = "State")]
    state: TaskState,
    /// In this state since then.
    #[schemars(with = "Time")]
    since: Timestamp,
    /// The id of its last event.
    last_event_id: u64,
}

impl From<AdminTask> for Task {
    fn from(task: AdminTask) -> Self {
        let AdminTask { scope, id, context_id, state, at, seq } = task;
        Self {
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
}

async fn list(desk: Arc<Desk>, call: Call<Wanted>) -> Result<Reply<Page>, Problem> {
    let Wanted { agent, state, principal, since, limit, after } = call.query;
    let query = AdminTaskQuery {
        agent: agent.map(Into::into),
        owner: principal.map(Into::into),
        state: state.as_deref().map(state_of).transpose()?,
        since,
        after: after.as_deref().map(place_of).transpose()?,
        limit: limit.unwrap_or(USUAL_PAGE),
    };
    let page = desk.store.all_tasks(&query).await?;
    let next =
        page.tasks.last().filter(|_| page.more).map(|last| format!("{}.{}", last.at.as_millis(), last.id));
    Ok(Reply::new(Page { tasks: page.tasks.into_iter().map(Task::from).collect(), next }))
}

fn state_of(text: &str) -> Result<TaskState, Problem> {
    let expected = "state: expected one of the specification's names, such as TASK_STATE_WORKING";
    TaskState::from_name(text).ok_or_else(|| Problem::invalid(expected))
}

fn place_of(text: &str) -> Result<Keyset, Problem> {
    let parts = text.split_once('.');
    let place = parts.and_then(|(millis, id)| {
        Some(Keyset { timestamp: Timestamp::from_millis(millis.parse().ok()?)?, id: id.into() })
    });
    place.ok_or_else(|| Problem::invalid("after: expected what next of the page before says"))
}

/// How much of a task.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Depth {
    /// Also what was said and made. It is the callers': think before you look.
    content: Option<bool>,
    /// Only events after this one.
    after: Option<u64>,
    /// At most so many events.
    #[schemars(range(min = 1, max = LARGEST_PAGE))]
    limit: Option<usize>,
}

/// A task and what belongs to it.
#[derive(Serialize, JsonSchema)]
struct Whole {
    #[serde(flatten)]
    task: Task,
    /// What happened to it, oldest first.
    timeline: Vec<Entry>,
    /// For `after` if there is more of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Who is told of its updates.
    webhooks: Vec<Told>,
    /// What the agent keeps with it, such as the ids of the task at its upstream, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<serde_json::Value>,
}

/// A webhook, without what may be secret of it.
#[derive(Serialize, JsonSchema)]
struct Told {
    id: String,
    url: String,
}

async fn show(desk: Arc<Desk>, call: Call<Depth>) -> Result<Reply<Whole>, Problem> {
    let (scope, stored) = find(&desk, call.name()).await?;
    let Depth { content, after, limit } = call.query;
    let limit = limit.unwrap_or(LARGEST_PAGE);
    let id = &stored.task.id;
    let after = after.map(nuncio_protocol::Seq).unwrap_or_default();
    let mut events = desk.store.events(&scope, id, after, limit + 1).await?;
    let more = events.len() > limit;
    events.truncate(limit);
    let next = events.last().filter(|_| more).map(|last| last.seq.0);
    let webhooks = desk.store.webhooks(&scope, id, None, MOST_WEBHOOKS).await?.unwrap_or_default();
    let webhooks =
        webhooks.iter().map(|webhook| Told { id: webhook.id.to_string(), url: shown_url(webhook) });
    let upstream = stored.memo.as_deref().and_then(|memo| serde_json::from_slice(memo).ok());
    Ok(Reply::new(Whole {
        timeline: events
            .iter()
            .map(|event| timeline::entry(event, content == Some(true)))
            .collect::<Result<_, _>>()?,
        next,
        webhooks: webhooks.collect(),
        upstream,
        task: row(&scope, &stored),
    }))
}

fn row(scope: &Scope, stored: &StoredTask) -> Task {
    let task = &stored.task;
    Task::from(AdminTask {
        scope: Arc::new(scope.clone()),
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        state: task.status.state,
        at: task.status.timestamp.unwrap_or(Timestamp::EPOCH),
        seq: stored.seq,
    })
}

async fn cancel(desk: Arc<Desk>, call: Call) -> Result<Reply<Task>, Problem> {
    let (scope, stored) = find(&desk, call.name()).await?;
    let agent = desk.fleet.get(&scope.agent);
    let runtime = agent.as_ref().and_then(|agent| agent.runtime()).ok_or_else(|| {
        Problem::conflict(format!(
            "its agent {} is not served by this hub, so nothing runs to be stopped",
            scope.agent
        ))
    })?;
    let request = CancelTaskRequest { id: stored.task.id, ..CancelTaskRequest::default() };
    runtime.cancel_task(&in_place_of(&scope, runtime), request).await.map_err(|error| refused(&error))?;
    let (scope, stored) = find(&desk, call.name()).await?;
    Ok(Reply::new(row(&scope, &stored)))
}

/// A call as its owner would make it, who knows what the agent demands.
fn in_place_of(scope: &Scope, runtime: &Runtime) -> CallContext {
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

fn refused(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::TaskNotFound => Problem::not_found(error.message()),
        ErrorKind::TaskNotCancelable | ErrorKind::UnsupportedOperation => Problem::conflict(error.message()),
        ErrorKind::Unavailable | ErrorKind::ResourceExhausted | ErrorKind::DeadlineExceeded => {
            Problem::unavailable(error.message())
        }
        _ => {
            tracing::error!(%error, "an agent did not do what administration asked for");
            Problem::broken()
        }
    }
}

/// Whose data.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Whose {
    /// The principal; null: anonymous callers.
    #[serde(deserialize_with = "said")]
    principal: Option<String>,
    /// In this tenant; in all when absent.
    #[serde(default)]
    tenant: Option<String>,
    /// At this agent; at all when absent.
    #[serde(default)]
    agent: Option<String>,
}

/// Who forgets to say whose data must not erase those of all anonymous callers.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// What was erased.
#[derive(Serialize, JsonSchema)]
struct Erased {
    /// How many tasks and replies.
    erased: usize,
}

async fn erase(desk: Arc<Desk>, call: Call<(), Whose>) -> Result<Reply<Erased>, Problem> {
    let Whose { principal, tenant, agent } = call.body;
    let caller = principal.as_deref().map_or_else(Caller::anonymous, Caller::authenticated);
    let is_meant = |served: &&Arc<Agent>| agent.as_deref().is_none_or(|agent| agent == &**served.name());
    let mut erased = 0;
    for runtime in desk.fleet.all().iter().filter(is_meant).filter_map(|agent| agent.runtime()) {
        erased += runtime.erase(tenant.as_deref(), &caller).await.map_err(|error| refused(&error))?;
    }
    // And what is left of agents that are served no more.
    let whose = store::ErasureTarget {
        agent: agent.map(Into::into),
        tenant: tenant.map(Into::into),
        owner: principal.as_deref().map(Into::into),
    };
    loop {
        match desk.store.erase(&whose, LARGEST_PAGE).await? {
            0 => break,
            some => erased += some,
        }
    }
    let about = principal.unwrap_or_else(|| "anonymous callers".to_owned());
    Ok(Reply::new(Erased { erased }).about(about))
}

async fn find(desk: &Desk, id: &str) -> Result<(Scope, StoredTask), Problem> {
    let found = desk.store.find_task(&TaskId::from(id)).await?;
    found.ok_or_else(|| {
        Problem::not_found(format!("there is no task {id}; it may have been forgotten by its age"))
    })
}
