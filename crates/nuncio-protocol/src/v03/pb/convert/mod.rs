//! Conversion between our types and the v0.3 messages, like [`crate::pb`]. Upgrade and downgrade have the
//! same rules as in the JSON forms, and members without a v0.3 field travel in the same leftover.

mod card;
mod message;
mod push;
mod request;
mod security;
mod task;

use crate::{PushConfigId, TaskId, pb::convert::Mismatch, v03::name::Name};

/// The task of a resource name (REQ-067).
fn task_of(name: &str) -> Result<TaskId, Mismatch> {
    match Name::parse(name).map(Name::split) {
        Some((Some(task_id), None)) => Ok(task_id),
        _ => Err(Mismatch::new(format!("expected tasks/{{id}}, got \"{name}\""))),
    }
}

/// The configuration of a resource name, with its task (REQ-067).
fn config_of(name: &str) -> Result<(TaskId, PushConfigId), Mismatch> {
    match Name::parse(name).map(Name::split) {
        Some((Some(task_id), Some(id))) => Ok((task_id, id)),
        _ => Err(Mismatch::new(format!(
            "expected tasks/{{id}}/pushNotificationConfigs/{{id}}, got \"{name}\""
        ))),
    }
}
