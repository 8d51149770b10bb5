//! Resource names of the v0.3 proto: `tasks/{id}` and `tasks/{id}/pushNotificationConfigs/{id}`
//! (REQ-067).

use serde::{Deserialize, Deserializer, de};

use crate::{PushConfigId, TaskId, lenient::MaybeEmpty};

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs";

/// A parsed resource name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Name {
    task: TaskId,
    config: Option<PushConfigId>,
}

impl Name {
    /// Parses the name of a task or of a configuration; `None` if it is neither.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(TASKS)?;
        let Some((task, config)) = rest.split_once(CONFIGS) else {
            return (!rest.is_empty()).then(|| Self { task: rest.into(), config: None });
        };
        // In the proto's annotation, `tasks/{id}/pushNotificationConfigs` alone is a parent.
        let config = config.strip_prefix('/').filter(|config| !config.is_empty());
        (!task.is_empty()).then(|| Self { task: task.into(), config: config.map(Into::into) })
    }

    /// The task.
    pub(super) fn task(&self) -> &TaskId {
        &self.task
    }

    /// The task, and the configuration, if any.
    pub(super) fn split(self) -> (Option<TaskId>, Option<PushConfigId>) {
        (Some(self.task).filter(|task| !task.is_empty()), self.config)
    }
}

impl MaybeEmpty for Name {
    fn is_unset(&self) -> bool {
        self.task.is_empty()
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        Self::parse(&text)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &"a name such as tasks/{id}"))
    }
}

/// The name of a task.
pub(super) fn of_task(task: &str) -> String {
    format!("{TASKS}{task}")
}

/// The name of a configuration of a task.
pub(super) fn of_config(task: &str, config: &str) -> String {
    format!("{TASKS}{task}{CONFIGS}/{config}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_or_refused() {
        for (text, task, config) in [
            ("tasks/t-1", "t-1", None),
            ("tasks/t-1/pushNotificationConfigs", "t-1", None),
            ("tasks/t-1/pushNotificationConfigs/", "t-1", None),
            ("tasks/t-1/pushNotificationConfigs/c-1", "t-1", Some("c-1")),
        ] {
            let name = Name { task: task.into(), config: config.map(Into::into) };
            assert_eq!(Name::parse(text), Some(name), "{text}");
        }
        for text in ["t-1", "tasks/", "task/t-1", "tasks//pushNotificationConfigs/c-1", "contexts/c/tasks/t"]
        {
            assert_eq!(Name::parse(text), None, "{text}");
        }
        assert_eq!(
            Name::parse(&of_config("t", "c")),
            Some(Name { task: "t".into(), config: Some("c".into()) })
        );
        assert_eq!(Name::parse(&of_task("t")), Some(Name { task: "t".into(), config: None }));
    }
}
