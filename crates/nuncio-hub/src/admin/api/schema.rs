//! Schemas of types from other crates.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The schema of a [`Timestamp`](nuncio_protocol::Timestamp).
pub(super) struct Time;

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The schema of a [`TaskState`](nuncio_protocol::TaskState), by the names of the specification.
pub(super) struct TaskStateName;

impl JsonSchema for TaskStateName {
    fn schema_name() -> Cow<'static, str> {
        "TaskState".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^TASK_STATE_[A-Z_]+$" })
    }
}
