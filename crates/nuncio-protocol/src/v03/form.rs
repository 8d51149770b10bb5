//! The differences between the two JSON forms of v0.3 (trap T-08): JSON-RPC has a schema of its own,
//! HTTP+JSON uses the ProtoJSON of the v0.3 proto. Encoding takes every name that differs from a [`JsonForm`];
//! decoding accepts both forms everywhere, and uses the form only where the same JSON has two meanings.

use crate::{Role, TaskState};

/// One of the two JSON forms.
pub(super) trait JsonForm: Send + Sync + 'static {
    /// The dialect's slot among the cached encodings of a stream item.
    const SLOT: usize;
    /// True: an object has its type in `kind`, and answers are bare. False: the name of the enclosing
    /// member is the type.
    const HAS_KIND: bool;
    /// True: absent differs from `false` and 0. ProtoJSON leaves out both.
    const HAS_PRESENCE: bool;
    /// The name of a message's parts; an artifact has `parts` in both forms.
    const MESSAGE_PARTS: &'static str;
    /// True if a message can reference tasks.
    const HAS_REFERENCES: bool;
    /// The name of a file's URL.
    const FILE_URI: &'static str;
    /// The name of a file's bytes.
    const FILE_BYTES: &'static str;
    /// The name of the webhook in the configuration of a send.
    const INLINE_PUSH: &'static str;

    /// The name of a state (C-09).
    fn state(state: TaskState) -> &'static str;

    /// The name of a role; `None` if this form does not have it.
    fn role(role: Role) -> Option<&'static str>;

    /// The JSON-RPC method of a row of the method table; the REST form has no methods.
    fn method(method: &'static str) -> Option<&'static str>;
}

/// v0.3 over JSON-RPC: JSON with `kind`, methods such as `message/send`.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonRpc;

impl JsonForm for JsonRpc {
    const SLOT: usize = 1;
    const HAS_KIND: bool = true;
    const HAS_PRESENCE: bool = true;
    const MESSAGE_PARTS: &'static str = "parts";
    const HAS_REFERENCES: bool = true;
    const FILE_URI: &'static str = "uri";
    const FILE_BYTES: &'static str = "bytes";
    const INLINE_PUSH: &'static str = "pushNotificationConfig";

    fn state(state: TaskState) -> &'static str {
        match state {
            TaskState::Unspecified => "unknown",
            TaskState::Submitted => "submitted",
            TaskState::Working => "working",
            TaskState::Completed => "completed",
            TaskState::Failed => "failed",
            TaskState::Canceled => "canceled",
            TaskState::InputRequired => "input-required",
            TaskState::Rejected => "rejected",
            TaskState::AuthRequired => "auth-required",
        }
    }

    fn role(role: Role) -> Option<&'static str> {
        match role {
            Role::Unspecified => None,
            Role::User => Some("user"),
            Role::Agent => Some("agent"),
        }
    }

    fn method(method: &'static str) -> Option<&'static str> {
        Some(method)
    }
}

/// v0.3 over HTTP+JSON, for a peer with a known form of file content. [`Rest`] is for all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestWith(pub super::FileBytes);

impl RestWith {
    /// The slot of [`FileBytes::Raw`](super::FileBytes::Raw); the other forms are encoded like [`Rest`].
    pub(super) const RAW_SLOT: usize = 5;
}

/// v0.3 over HTTP+JSON: the ProtoJSON of the v0.3 proto.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest;

impl JsonForm for Rest {
    const SLOT: usize = 2;
    const HAS_KIND: bool = false;
    const HAS_PRESENCE: bool = false;
    const MESSAGE_PARTS: &'static str = "content";
    const HAS_REFERENCES: bool = false;
    const FILE_URI: &'static str = "fileWithUri";
    const FILE_BYTES: &'static str = "fileWithBytes";
    const INLINE_PUSH: &'static str = "pushNotification";

    fn state(state: TaskState) -> &'static str {
        match state {
            // The only state with a different name: two L in v0.3, one L in v1.0.
            TaskState::Canceled => "TASK_STATE_CANCELLED",
            TaskState::Unspecified
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::InputRequired
            | TaskState::Rejected
            | TaskState::AuthRequired => state.as_str(),
        }
    }

    fn role(role: Role) -> Option<&'static str> {
        Some(role.as_str())
    }

    fn method(_method: &'static str) -> Option<&'static str> {
        None
    }
}
