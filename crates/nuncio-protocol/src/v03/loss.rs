//! Detects lossy translations: the rows of the loss table in docs/protocol-notes.md as predicates. Only
//! members that v0.3 or our types cannot express count. Different spellings and values without meaning do
//! not count, and cards are generated for each version anyway.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::form::JsonForm;
use crate::{
    Binding, Metadata, SendMessageConfiguration, TaskPushNotificationConfig, Version,
    metadata::metadata,
    op::{Call, Op, Reply},
};

impl Call {
    /// True if this version can express the whole call in this binding; the newest always can.
    #[must_use]
    pub fn fits(&self, version: Version, binding: Binding) -> bool {
        // The proto does not distinguish 0 from unset.
        let says_length = |length: Option<i32>| binding != Binding::Grpc || length != Some(0);
        let fits = || match self {
            Self::SendMessage(req) | Self::SendStreamingMessage(req) => {
                let fits = |wanted: &SendMessageConfiguration| {
                    let inline = &wanted.task_push_notification_config;
                    says_length(wanted.history_length) && inline.as_ref().is_none_or(is_nameless)
                };
                req.configuration.as_ref().is_none_or(fits)
            }
            Self::GetTask(req) => says_length(req.history_length),
            Self::CancelTask(req) => binding == Binding::JsonRpc || req.metadata.is_empty(),
            Self::ListTaskPushNotificationConfigs(req) => {
                binding != Binding::JsonRpc || (req.page_size == 0 && req.page_token.is_none())
            }
            Self::ListTasks(_)
            | Self::SubscribeToTask(_)
            | Self::CreateTaskPushNotificationConfig(_)
            | Self::GetTaskPushNotificationConfig(_)
            | Self::DeleteTaskPushNotificationConfig(_)
            | Self::GetExtendedAgentCard(_) => true,
        };
        version != Version::V0_3 || (self.tenant().is_none() && fits())
    }
}

/// The webhook of a send belongs to its task, so v0.3 has neither task nor tenant in it.
fn is_nameless(webhook: &TaskPushNotificationConfig) -> bool {
    webhook.task_id.is_none() && webhook.tenant.is_none()
}

impl Reply {
    /// True if this version can express the whole reply in this binding; the newest always can. Streams
    /// consist of events, which lose nothing.
    #[must_use]
    pub fn fits(&self, version: Version, binding: Binding) -> bool {
        version != Version::V0_3
            || match self {
                Self::PushConfig(webhook) => webhook.tenant.is_none(),
                Self::PushConfigs(page) => {
                    page.configs.iter().all(|webhook| webhook.tenant.is_none())
                        && (binding != Binding::JsonRpc || page.next_page_token.is_empty())
                }
                Self::Sent(_)
                | Self::Stream(_)
                | Self::Task(_)
                | Self::Tasks(_)
                | Self::Card(_)
                | Self::Empty => true,
            }
    }
}

/// Metadata of operations that have none in v1.0.
#[derive(Deserialize, Default)]
#[serde(default)]
struct More {
    #[serde(deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

/// True if the parameters have members that v1.0 cannot express.
pub(super) fn says_more<F: JsonForm>(op: Op, params: Option<&RawValue>) -> bool {
    match op {
        Op::GetTask
        | Op::SubscribeToTask
        | Op::GetTaskPushNotificationConfig
        | Op::ListTaskPushNotificationConfigs
        | Op::DeleteTaskPushNotificationConfig => {
            let more = params.filter(|_| F::HAS_KIND).map(|json| serde_json::from_str::<More>(json.get()));
            more.is_some_and(|more| more.is_ok_and(|more| !more.metadata.is_empty()))
        }
        Op::SendMessage
        | Op::SendStreamingMessage
        | Op::ListTasks
        | Op::CancelTask
        | Op::CreateTaskPushNotificationConfig
        | Op::GetExtendedAgentCard => false,
    }
}
