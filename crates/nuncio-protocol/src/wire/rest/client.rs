//! Client: encodes a call as a request.

use super::{Paths, escape::escape};
use crate::{
    Error, Result, TaskId, Timestamp,
    op::{Call, Op, Verb},
    wire::Dialect,
};

/// An outgoing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The HTTP method.
    pub verb: Verb,
    /// The path below the agent's URL, escaped.
    pub path: String,
    /// The query, escaped, without the question mark; empty if there is none.
    pub query: String,
    /// The JSON body; only with POST.
    pub body: Option<Vec<u8>>,
}

impl Outgoing {
    /// The same request as GET: for peers that answer a subscribe by POST with 404 or 405 (trap T-01).
    #[must_use]
    pub fn by_get(self) -> Self {
        Self { verb: Verb::Get, body: None, ..self }
    }

    /// Path and query.
    #[must_use]
    pub fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }
}

/// Encodes a call. Its tenant goes into the path (REQ-180); a version without tenants drops it.
///
/// # Errors
/// `InvalidParams` if an id or the tenant is not allowed in a path; or the error of the dialect.
pub fn encode_request(paths: &Paths, dialect: &dyn Dialect, mut call: Call) -> Result<Outgoing> {
    let op = call.op();
    let tenant = call.tenant().filter(|_| paths.tenants).map(str::to_owned);
    call.set_tenant(None);
    let path = encode_path(paths, tenant.as_deref(), &call)?;
    // Most servers accept a subscribe by POST (trap T-01).
    let verb = if op == Op::SubscribeToTask { Verb::Post } else { op.row().verb };
    let body = match verb {
        Verb::Get | Verb::Delete => None,
        Verb::Post if op == Op::SubscribeToTask => Some(b"{}".to_vec()),
        Verb::Post => {
            let mut body = Vec::with_capacity(256);
            dialect.encode_call(&call, &mut body)?;
            Some(body)
        }
    };
    Ok(Outgoing { verb, path, query: encode_query(&call), body })
}

fn encode_path(paths: &Paths, tenant: Option<&str>, call: &Call) -> Result<String> {
    let mut path = String::new();
    if let Some(tenant) = tenant {
        if paths.is_reserved(tenant) {
            return Err(Error::invalid_field("tenant", "is not allowed in a path"));
        }
        path.push('/');
        escape(tenant, &mut path);
        check_segment("tenant", tenant, &path)?;
    }
    path.push_str(paths.prefix);
    let mut ids = path_ids(call).into_iter();
    for pattern in paths.template(call.op().row()).split('/').skip(1) {
        path.push('/');
        let Some((name, action)) = pattern.strip_prefix('{').and_then(|pattern| pattern.split_once('}'))
        else {
            path.push_str(pattern);
            continue;
        };
        let id = ids.next().unwrap_or_default();
        escape(id, &mut path);
        path.push_str(action);
        check_segment(name, id, &path)?;
    }
    Ok(path)
}

/// Refuses `.` and `..`: URL libraries resolve them as path steps, escaped or not.
fn check_segment(field: &str, value: &str, path: &str) -> Result<()> {
    match path.rsplit('/').next() {
        _ if value.is_empty() => Err(Error::invalid_field(field, "required")),
        Some("." | "..") => Err(Error::invalid_field(field, "is not allowed in a path")),
        Some(_) | None => Ok(()),
    }
}

/// The variables of the path, in the order of the template.
fn path_ids(call: &Call) -> Vec<&str> {
    match call {
        Call::SendMessage(_)
        | Call::SendStreamingMessage(_)
        | Call::ListTasks(_)
        | Call::GetExtendedAgentCard(_) => Vec::new(),
        Call::GetTask(req) => vec![req.id.as_str()],
        Call::CancelTask(req) => vec![req.id.as_str()],
        Call::SubscribeToTask(req) => vec![req.id.as_str()],
        Call::CreateTaskPushNotificationConfig(req) => vec![req.task_id.as_ref().map_or("", TaskId::as_str)],
        Call::ListTaskPushNotificationConfigs(req) => vec![req.task_id.as_str()],
        Call::GetTaskPushNotificationConfig(req) => vec![req.task_id.as_str(), req.id.as_str()],
        Call::DeleteTaskPushNotificationConfig(req) => vec![req.task_id.as_str(), req.id.as_str()],
    }
}

/// The query parameters: all parameters of a GET that are not in the path (REQ-049).
fn encode_query(call: &Call) -> String {
    let mut query = Query::default();
    match call {
        Call::GetTask(req) => query.add("historyLength", req.history_length),
        Call::ListTasks(req) => {
            query.add("contextId", req.context_id.as_ref());
            query.add("status", req.status);
            query.add("pageSize", req.page_size);
            query.add("pageToken", req.page_token.as_ref());
            query.add("historyLength", req.history_length);
            query.add("statusTimestampAfter", req.status_timestamp_after.as_ref().map(Timestamp::to_string));
            query.add("includeArtifacts", req.include_artifacts);
        }
        Call::ListTaskPushNotificationConfigs(req) => {
            query.add("pageSize", Some(req.page_size).filter(|size| *size != 0));
            query.add("pageToken", req.page_token.as_ref());
        }
        Call::SendMessage(_)
        | Call::SendStreamingMessage(_)
        | Call::CancelTask(_)
        | Call::SubscribeToTask(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetTaskPushNotificationConfig(_)
        | Call::DeleteTaskPushNotificationConfig(_)
        | Call::GetExtendedAgentCard(_) => {}
    }
    query.0
}

#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, name: &str, value: Option<impl ToString>) {
        let Some(value) = value else { return };
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        escape(&value.to_string(), &mut self.0);
    }
}
