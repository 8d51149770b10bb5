//! Checks of the isolation of callers: the task of the first caller, called for by the second.

use futures_util::{FutureExt as _, future::BoxFuture};
use nuncio_protocol::{
    DeleteTaskPushNotificationConfigRequest, ListTasksRequest, TaskId,
    op::{Call, Op},
};
use serde_json::Value;

use super::{Row, Run};
use crate::{
    answer::{Answer, Said, Typed},
    conversation::to_task,
    observed::{Checked, Kind, Observed},
    outcome::Unseen,
    probe::{Probe, UNKNOWN, on_task},
    wire::Identity,
};

/// The task of the first caller, seen by the second.
#[derive(Debug)]
pub(crate) struct Foreign<'a> {
    pub(crate) probe: &'a Probe<'a>,
    /// The task; `None` if the agent made none.
    pub(crate) task: Option<&'a TaskId>,
}

/// A check over the task of another caller.
pub(crate) type ForeignCheck = for<'a> fn(&'a Foreign<'a>) -> BoxFuture<'a, Checked>;

pub(super) const CHECKS: &[Row] = &[
    ("isolation.get", Run::Foreign(|foreign| unknown(foreign, Op::GetTask).boxed())),
    ("isolation.cancel", Run::Foreign(|foreign| unknown(foreign, Op::CancelTask).boxed())),
    ("isolation.subscribe", Run::Foreign(|foreign| subscribe(foreign).boxed())),
    ("isolation.send", Run::Foreign(|foreign| unknown(foreign, Op::SendMessage).boxed())),
    ("isolation.push", Run::Foreign(|foreign| push(foreign).boxed())),
    ("isolation.list", Run::Foreign(|foreign| list(foreign).boxed())),
];

fn task<'a>(foreign: &'a Foreign<'_>) -> Result<&'a TaskId, Observed> {
    foreign.task.ok_or_else(|| Observed::no_setup("the agent made no task"))
}

fn call(op: Op, id: &str) -> Call {
    match op {
        Op::SendMessage => Call::SendMessage(Box::new(to_task(&TaskId::from(id)))),
        _ => on_task(op, id),
    }
}

/// The second caller gets the same answer for the task of the first as for one that does not exist, byte for
/// byte but for the id.
async fn unknown(foreign: &Foreign<'_>, op: Op) -> Checked {
    let id = task(foreign)?.as_str();
    let theirs = foreign.probe.call_by(Identity::Second, call(op, id)).await?;
    let none = foreign.probe.call_by(Identity::Second, call(op, UNKNOWN)).await?;
    // An agent that answers everything alike tells nothing: some delete what does not exist with success.
    if let (Said::Success(_), false) = (&theirs.said, matches!(none.said, Said::Success(_))) {
        return Err(Observed::broken("the task of another caller is accessible")
            .seen(theirs.shown())
            .expecting(none.shown())
            .on(&theirs.exchange));
    }
    let denied = none.error().is_some_and(|refusal| matches!(refusal.http, 401 | 403) || refusal.code == 16);
    if denied {
        return Ok(Observed::unseen(Unseen::Credentials, "the agent refuses the second caller altogether"));
    }
    if content(&theirs, id) == content(&none, UNKNOWN) {
        return Ok(Observed::met().on(&theirs.exchange));
    }
    Err(Observed::broken("the answer tells that the task of another caller exists")
        .seen(content(&theirs, id))
        .expecting(content(&none, UNKNOWN))
        .on(&theirs.exchange))
}

/// The status and body of an answer, without the id of the task.
fn content(answer: &Answer, id: &str) -> String {
    let Ok(response) = &answer.exchange.response else { return String::new() };
    let code = answer.error().map(|refusal| (refusal.code, refusal.message.replace(id, "ID")));
    let body = String::from_utf8_lossy(&response.body).replace(id, "ID");
    // Members that differ by nature: ids of requests and times.
    let event = body.trim().strip_prefix("data:").unwrap_or(&body);
    let body = match serde_json::from_str::<Value>(event) {
        Ok(body) => without_volatile(body).to_string(),
        Err(_) => body,
    };
    format!("HTTP {} {code:?} {body}", response.status)
}

/// Removes members whose names say that they differ from answer to answer.
fn without_volatile(value: Value) -> Value {
    const VOLATILE: &[&str] = &["requestId", "request_id", "timestamp", "traceId", "trace_id"];
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| !VOLATILE.contains(&name.as_str()));
            Value::Object(members.map(|(name, value)| (name, without_volatile(value))).collect())
        }
        Value::Array(list) => list.into_iter().map(without_volatile).collect(),
        other => other,
    }
}

async fn subscribe(foreign: &Foreign<'_>) -> Checked {
    if foreign.probe.streams() { unknown(foreign, Op::SubscribeToTask).await } else { Ok(Observed::skip()) }
}

/// All operations on webhooks, the one that would leave something behind last: it is deleted if it was accepted.
async fn push(foreign: &Foreign<'_>) -> Checked {
    if !foreign.probe.pushes() {
        return Ok(Observed::skip());
    }
    let operations = [
        Op::ListTaskPushNotificationConfigs,
        Op::GetTaskPushNotificationConfig,
        Op::DeleteTaskPushNotificationConfig,
    ];
    for op in operations {
        let seen = unknown(foreign, op).await?;
        if seen.kind != Kind::Met {
            return Ok(seen);
        }
    }
    let created = unknown(foreign, Op::CreateTaskPushNotificationConfig).await;
    if created.is_err() {
        delete_all(foreign).await;
    }
    created
}

/// Deletes the webhooks that the second caller finds at the task of the first.
async fn delete_all(foreign: &Foreign<'_>) {
    let Some(id) = foreign.task else { return };
    let list = on_task(Op::ListTaskPushNotificationConfigs, id.as_str());
    let Ok(answer) = foreign.probe.call_by(Identity::Second, list).await else { return };
    let Some(Ok(Typed::PushConfigs(page))) = answer.success().map(|success| &success.typed) else { return };
    for webhook in page.configs.iter().filter_map(|config| config.id.clone()) {
        let request = DeleteTaskPushNotificationConfigRequest {
            task_id: id.clone(),
            id: webhook,
            ..DeleteTaskPushNotificationConfigRequest::default()
        };
        let delete = Call::DeleteTaskPushNotificationConfig(Box::new(request));
        // It is told in the finding that the webhook was accepted.
        let _ = foreign.probe.call_by(Identity::Second, delete).await;
    }
}

async fn list(foreign: &Foreign<'_>) -> Checked {
    let id = task(foreign)?;
    let request = ListTasksRequest { page_size: Some(100), ..ListTasksRequest::default() };
    let answer = foreign.probe.call_by(Identity::Second, Call::ListTasks(Box::new(request))).await?;
    let Some(Ok(Typed::Tasks(page))) = answer.success().map(|success| &success.typed) else {
        return Ok(Observed::no_setup(format!("the second caller cannot list tasks: {}", answer.shown())));
    };
    if page.tasks.iter().any(|task| task.id == *id) {
        return Err(Observed::broken("the list of a caller has the task of another").on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}
