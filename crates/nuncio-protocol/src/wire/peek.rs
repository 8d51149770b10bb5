//! A summary of a request's parameters for a relay, without decoding them: the tasks and contexts they
//! name, and whether they need more than forwarding. And of an answer, its task.
//!
//! A relayed request is parsed by the agent, which may read it differently: one server accepts `task_id`
//! for `taskId`, another one `TaskID`, a third one the last of two members. So there is a summary only of
//! requests with exactly one reading. All others are decoded, and encoded again in our own form.

mod task;

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess},
};
use serde_json::value::RawValue;

pub use self::task::{EventEnvelope, TaskShape, task_of};
use crate::{lenient::Key, metadata::LEFTOVER, op::Op};

/// The summary of a request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestSummary<'a> {
    /// The tenant, for routing.
    pub tenant: Option<Cow<'a, str>>,
    /// The task of the request, or the task that its message continues.
    pub task: Option<Cow<'a, str>>,
    /// The context of its message.
    pub context: Option<Cow<'a, str>>,
    /// Other tasks that its message references.
    pub references: Vec<Cow<'a, str>>,
    /// True if it has a webhook.
    pub webhook: bool,
}

impl<'a> RequestSummary<'a> {
    /// Summarises the JSON parameters of an operation, in any version; `None` if they have more than one
    /// reading, are invalid, or belong to an operation that needs decoding.
    #[must_use]
    pub fn at(op: Op, params: Option<&'a str>) -> Option<Self> {
        let params = params.unwrap_or("{}");
        match op {
            Op::SendMessage | Op::SendStreamingMessage => Self::at_send(params),
            Op::GetTask | Op::CancelTask | Op::SubscribeToTask => {
                let [tenant, task] = members(params, ["tenant", "id"], &["taskId", "name", "parent"])?;
                Some(Self { tenant: text(tenant)?, task: text(task)?, ..Self::default() })
            }
            Op::ListTasks | Op::GetExtendedAgentCard => {
                let [tenant] = members(params, ["tenant"], &[])?;
                Some(Self { tenant: text(tenant)?, ..Self::default() })
            }
            Op::CreateTaskPushNotificationConfig
            | Op::GetTaskPushNotificationConfig
            | Op::ListTaskPushNotificationConfigs
            | Op::DeleteTaskPushNotificationConfig => None,
        }
    }

    fn at_send(params: &'a str) -> Option<Self> {
        let [tenant, message, configuration] =
            members(params, ["tenant", "message", "configuration"], &["request"])?;
        let [task, context, references, metadata] =
            members(message?.get(), ["taskId", "contextId", "referenceTaskIds", "metadata"], &[])?;
        // The leftover of an older version may reference further tasks.
        if let Some(metadata) = metadata.filter(|json| json.get() != "null") {
            let Known(is_there) = serde_json::from_str(metadata.get()).ok()?;
            if is_there {
                return None;
            }
        }
        let webhook = match configuration.filter(|json| json.get() != "null") {
            Some(configuration) => {
                let webhooks = ["taskPushNotificationConfig", "pushNotificationConfig"];
                let [newer, older] = members(configuration.get(), webhooks, &["pushNotification"])?;
                newer.is_some() || older.is_some()
            }
            None => false,
        };
        Some(Self {
            tenant: text(tenant)?,
            task: text(task)?,
            context: text(context)?,
            references: match references {
                Some(references) => serde_json::from_str::<Option<Vec<TextValue<'a>>>>(references.get())
                    .ok()?
                    .unwrap_or_default()
                    .into_iter()
                    .map(|TextValue(text)| text)
                    .collect(),
                None => Vec::new(),
            },
            webhook,
        })
    }
}

/// True if the members of an envelope have exactly one reading.
#[must_use]
pub fn is_plain_envelope(json: &str) -> bool {
    members(json, ["jsonrpc", "id", "method", "params"], &[]).is_some()
}

/// True if a query has no parameter that the path or the body has.
#[must_use]
pub fn is_plain_query(query: &str) -> bool {
    let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    names.all(|name| {
        let escaped = name.contains(['%', '+']);
        !escaped && !["id", "taskId", "name", "parent", "tenant"].iter().any(|own| is_like(name, own))
    })
}

/// True if metadata has our key.
struct Known(bool);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = bool;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
                let mut is_there = false;
                while let Some((Key(name), IgnoredAny)) = map.next_entry::<Key<'de>, IgnoredAny>()? {
                    is_there |= name == LEFTOVER;
                }
                Ok(is_there)
            }
        }
        deserializer.deserialize_map(Visitor).map(Self)
    }
}

#[derive(Deserialize)]
struct TextValue<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of a value; `Some(None)` if it is absent, `None` if it is not text.
fn text<'a>(json: Option<&'a RawValue>) -> Option<Option<Cow<'a, str>>> {
    let Some(json) = json else { return Some(None) };
    let Key(text) = match json.get() {
        "null" => return Some(None),
        json => serde_json::from_str::<Key<'a>>(json).ok()?,
    };
    Some(Some(text).filter(|text| !text.is_empty()))
}

/// The members with these names. `None` if the JSON is not an object, if a name is repeated, or if there is
/// a name that a peer could take for one of them or one of `others`.
fn members<'a, const N: usize>(
    json: &'a str,
    names: [&'static str; N],
    others: &'static [&'static str],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(Visitor { names, others }).ok()?;
    reader.end().ok().map(|()| found)
}

struct Visitor<const N: usize> {
    names: [&'static str; N],
    others: &'static [&'static str],
}

impl<'de, const N: usize> de::Visitor<'de> for Visitor<N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that can be read in one way")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            if let Some(place) = self.names.iter().position(|own| *own == name) {
                if found[place].replace(value).is_some() {
                    return Err(de::Error::custom("a member comes twice"));
                }
            } else if self.names.iter().chain(self.others).any(|own| is_like(&name, own)) {
                return Err(de::Error::custom("a member looks like another one"));
            }
        }
        Ok(found)
    }
}

/// True if a peer could take one name for the other. Some compare case-insensitively, and fold more than
/// ASCII; some accept both camel case and snake case.
fn is_like(name: &str, own: &str) -> bool {
    fn plain(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().filter(|byte| !matches!(byte, b'_' | b'-')).map(|byte| byte.to_ascii_lowercase())
    }
    !name.is_ascii() || plain(name).eq(plain(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_request_is_about() {
        let send = r#"{"message":{"messageId":"m","taskId":"t","contextId":"c\u00e9","referenceTaskIds":["r","s"],"x":{"taskId":"no"}},"metadata":{"taskId":"no"}}"#;
        let summary = RequestSummary::at(Op::SendMessage, Some(send)).unwrap();
        assert_eq!(summary.task.as_deref(), Some("t"));
        assert_eq!(summary.context.as_deref(), Some("cé"));
        assert_eq!(summary.references, ["r", "s"]);
        assert!(!summary.webhook && summary.tenant.is_none());
        let get =
            RequestSummary::at(Op::GetTask, Some(r#"{"id":"t","tenant":"a","historyLength":1}"#)).unwrap();
        assert_eq!((get.task.as_deref(), get.tenant.as_deref()), (Some("t"), Some("a")));
        for (config, expected) in [
            ("null", false),
            (r#"{"blocking":true}"#, false),
            (r#"{"pushNotificationConfig":{"url":"u"}}"#, true),
            (r#"{"taskPushNotificationConfig":{"url":"u"}}"#, true),
        ] {
            let params = format!(r#"{{"message":{{}},"configuration":{config}}}"#);
            assert_eq!(
                RequestSummary::at(Op::SendMessage, Some(&params)).map(|summary| summary.webhook),
                Some(expected)
            );
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_looked_at() {
        for params in [
            r#"{"message":{"taskId":"a","taskId":"b"}}"#,
            r#"{"message":{"task_id":"b"}}"#,
            r#"{"message":{"TaskID":"b"}}"#,
            r#"{"message":{"ta\u0073k_id":"b"}}"#,
            r#"{"message":{"taſkId":"b"}}"#,
            r#"{"message":{"taskId":7}}"#,
            r#"{"message":{"reference_task_ids":["b"]}}"#,
            r#"{"message":{"referenceTaskIds":[7]}}"#,
            r#"{"message":{"context_id":"b"}}"#,
            r#"{"message":{"metadata":{"https:\/\/nuncio.dev/a2a/leftover/v1":{"referenceTaskIds":["b"]}}}}"#,
            r#"{"message":{},"Message":{"taskId":"b"}}"#,
            r#"{"request":{"taskId":"b"}}"#,
            r#"{"message":{},"request":{"taskId":"b"}}"#,
            r#"{"message":{},"configuration":{"push_notification":{}}}"#,
            r#"{"message":{},"configuration":{"PushNotificationConfig":{}}}"#,
            r#"{"message":[]}"#,
            r#"{"message":{}} x"#,
            "[]",
            "{}",
        ] {
            assert_eq!(RequestSummary::at(Op::SendMessage, Some(params)), None, "{params}");
        }
        for params in [r#"{"ID":"a"}"#, r#"{"id":"a","taskId":"b"}"#, r#"{"id":"a","name":"tasks/b"}"#] {
            assert_eq!(RequestSummary::at(Op::GetTask, Some(params)), None, "{params}");
        }
        assert!(is_plain_envelope(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"extra":1}"#));
        assert!(!is_plain_envelope(r#"{"jsonrpc":"2.0","id":1,"method":"m","Method":"n"}"#));
        assert!(is_plain_query("historyLength=1&A2A-Version=1.0") && is_plain_query(""));
        assert!(!is_plain_query("historyLength=1&Id=2") && !is_plain_query("%69d=2"));
    }
}
