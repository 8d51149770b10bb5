//! Validation of requests beyond their shape: REQUIRED fields are set, lists have their minimum length,
//! numbers are in range (spec 5.7). Every violation names its field.

use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, FieldViolation,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, PushConfigId, Result, Role, SendMessageRequest, SubscribeToTaskRequest, Task,
    TaskId, TaskPushNotificationConfig,
};

/// Maximum page size of `ListTasks` (spec 3.1.4).
pub const MAX_PAGE_SIZE: i32 = 100;
/// Default page size of `ListTasks`.
pub const DEFAULT_PAGE_SIZE: i32 = 50;

/// Violations found so far.
#[derive(Default)]
struct Checks(Vec<FieldViolation>);

impl Checks {
    fn that(&mut self, holds: bool, field: &str, description: &str) {
        if !holds {
            self.0.push(FieldViolation { field: field.to_owned(), description: description.to_owned() });
        }
    }

    fn required(&mut self, text: &str, field: &str) {
        self.that(!text.is_empty(), field, "required");
    }

    fn history_length(&mut self, length: Option<i32>, field: &str) {
        self.that(length.is_none_or(|n| n >= 0), field, "must not be negative");
    }

    fn done(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::invalid_fields(self.0)) }
    }
}

/// A request that can be validated.
pub trait Validate {
    /// Validates the request.
    ///
    /// # Errors
    /// `InvalidParams` with every wrong field.
    fn validate(&self) -> Result<()>;
}

macro_rules! validates {
    ($($ty:ty => |$req:ident| $check:expr;)+) => {$(
        impl Validate for $ty {
            fn validate(&self) -> Result<()> {
                let $req = self;
                $check
            }
        }
    )+};
}

validates! {
    SendMessageRequest => |req| validate_send(req);
    GetTaskRequest => |req| validate_get(req);
    ListTasksRequest => |req| validate_list(req);
    CancelTaskRequest => |req| required_id(&req.id);
    SubscribeToTaskRequest => |req| required_id(&req.id);
    TaskPushNotificationConfig => |req| validate_push_config(req);
    GetTaskPushNotificationConfigRequest => |req| required_config_id(&req.task_id, &req.id);
    ListTaskPushNotificationConfigsRequest => |req| validate_list_configs(req);
    DeleteTaskPushNotificationConfigRequest => |req| required_config_id(&req.task_id, &req.id);
}

fn validate_send(req: &SendMessageRequest) -> Result<()> {
    let mut checks = Checks::default();
    check_message(&mut checks, &req.message);
    if let Some(configuration) = &req.configuration {
        checks.history_length(configuration.history_length, "configuration.historyLength");
        if let Some(config) = &configuration.task_push_notification_config {
            checks.required(&config.url, "configuration.taskPushNotificationConfig.url");
            // Trap T-21: in a send, only the task of that send is allowed.
            let own = config.task_id.is_none() || config.task_id == req.message.task_id;
            let field = "configuration.taskPushNotificationConfig.taskId";
            checks.that(own, field, "must be empty or the task of the message");
        }
    }
    checks.done()
}

/// Checks a message (REQ-018, REQ-019).
fn check_message(checks: &mut Checks, message: &Message) {
    checks.required(message.message_id.as_str(), "message.messageId");
    checks.that(message.role != Role::Unspecified, "message.role", "expected ROLE_USER or ROLE_AGENT");
    checks.that(!message.parts.is_empty(), "message.parts", "at least one part is required");
}

fn validate_get(req: &GetTaskRequest) -> Result<()> {
    let mut checks = Checks::default();
    checks.required(req.id.as_str(), "id");
    checks.history_length(req.history_length, "historyLength");
    checks.done()
}

/// Checks a list request (REQ-116, REQ-121).
fn validate_list(req: &ListTasksRequest) -> Result<()> {
    let mut checks = Checks::default();
    checks.history_length(req.history_length, "historyLength");
    let in_range = req.page_size.is_none_or(|n| (1..=MAX_PAGE_SIZE).contains(&n));
    checks.that(in_range, "pageSize", "must be from 1 to 100");
    checks.done()
}

fn validate_list_configs(req: &ListTaskPushNotificationConfigsRequest) -> Result<()> {
    let mut checks = Checks::default();
    checks.required(req.task_id.as_str(), "taskId");
    checks.that(req.page_size >= 0, "pageSize", "must not be negative");
    checks.done()
}

fn validate_push_config(req: &TaskPushNotificationConfig) -> Result<()> {
    let mut checks = Checks::default();
    checks.that(req.task_id.is_some(), "taskId", "required");
    checks.required(&req.url, "url");
    if let Some(authentication) = &req.authentication {
        checks.required(&authentication.scheme, "authentication.scheme");
    }
    checks.done()
}

fn required_id(id: &TaskId) -> Result<()> {
    let mut checks = Checks::default();
    checks.required(id.as_str(), "id");
    checks.done()
}

fn required_config_id(task_id: &TaskId, id: &PushConfigId) -> Result<()> {
    let mut checks = Checks::default();
    checks.required(task_id.as_str(), "taskId");
    checks.required(id.as_str(), "id");
    checks.done()
}

/// Validates a task that a peer sent.
///
/// # Errors
/// `InvalidParams` with every wrong field; a client turns it into `InvalidAgentResponse`.
pub fn validate_task(task: &Task) -> Result<()> {
    let mut checks = Checks::default();
    checks.required(task.id.as_str(), "task.id");
    checks.done()
}
