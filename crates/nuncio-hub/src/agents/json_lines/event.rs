//! Parses one line of an agent that writes JSON: an event, or the reason why the line is invalid.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc};

use nuncio_protocol::{
    Artifact, Event, Message, Part, Role, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The content of a line.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::agents) enum Said {
    /// The new status of the task.
    Status(TaskState, Vec<Part>),
    /// An artifact, or a chunk of one.
    Artifact { artifact: Artifact, append: bool, last: bool },
    /// A chunk of the artifact for plain text.
    Text { text: String, last: bool },
    /// A reply without a task.
    Reply(Vec<Part>),
    /// An event in the shape of the A2A specification.
    Event(Event),
}

/// The forms of a line: the member that identifies the form, and the members allowed beside it. If two
/// match, the first wins. The last two forms, and a `message` that is an object, have the shape of the A2A
/// specification.
const FORMS: &[(&str, &[&str])] = &[
    ("status", &["text", "parts"]),
    ("text", &["last"]),
    ("artifact", &["append", "last"]),
    ("message", &[]),
    ("inputRequired", &[]),
    ("authRequired", &[]),
    ("completed", &[]),
    ("failed", &[]),
    ("rejected", &[]),
    ("statusUpdate", &[]),
    ("artifactUpdate", &[]),
];

/// Names of states in a line. The names of the A2A specification are accepted, too.
const STATES: &[(&str, TaskState)] = &[
    ("working", TaskState::Working),
    ("input-required", TaskState::InputRequired),
    ("auth-required", TaskState::AuthRequired),
    ("completed", TaskState::Completed),
    ("failed", TaskState::Failed),
    ("rejected", TaskState::Rejected),
];

/// Minimum similarity of a key that is suggested for an unknown one.
const ALIKE: f64 = 0.7;

/// Members of a line that are kept. There are fewer known ones, so that of more one is unknown.
const MAX_MEMBERS: usize = 32;

/// The members of a line, whose values stay text: a tree of values takes many times the memory of its text.
pub(in crate::agents) struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Members<'a> {
    /// Reads a line as an object.
    ///
    /// # Errors
    /// It is none.
    pub(in crate::agents) fn read(line: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(line)
            .map_err(|_| "is no JSON object; expected an object such as {\"text\": \"…\"}".to_owned())
    }

    /// The value of the only member, if it has this name.
    pub(in crate::agents) fn only(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied().filter(|_| self.0.len() == 1)
    }

    fn remove(&mut self, name: &str) -> Option<&'a RawValue> {
        self.0.remove(name)
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some(name) = map.next_key()? {
                    if members.len() < MAX_MEMBERS {
                        members.insert(name, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// Parses a line.
///
/// # Errors
/// The problem, and the expected form.
pub(in crate::agents) fn parse(line: &[u8]) -> Result<Said, String> {
    said(Members::read(line)?)
}

/// Reads the members of a line.
///
/// # Errors
/// The problem, and the expected form.
pub(in crate::agents) fn said(mut members: Members<'_>) -> Result<Said, String> {
    let form = form(&members)?;
    // Present: `form` found it.
    let value = members.remove(form).unwrap_or(RawValue::NULL);
    match form {
        "status" => {
            let text = members.remove("text").map(|text| words("text", text));
            let parts = members.remove("parts").map(|parts| words("parts", parts));
            match (text, parts) {
                (Some(_), Some(_)) => Err("has both \"text\" and \"parts\"; expected one of them".to_owned()),
                (said, None) | (None, said) => {
                    Ok(Said::Status(state(value)?, said.transpose()?.unwrap_or_default()))
                }
            }
        }
        "text" => {
            Ok(Said::Text { text: read("text", value)?, last: flag(&mut members, "last")?.unwrap_or(false) })
        }
        "artifact" => {
            let (append, last) = (flag(&mut members, "append")?, flag(&mut members, "last")?);
            // An artifact without `append` and `last` is complete.
            let whole = append.is_none() && last.is_none();
            let artifact = read(form, value)?;
            check(&artifact)?;
            Ok(Said::Artifact { artifact, append: append.unwrap_or(false), last: last.unwrap_or(whole) })
        }
        "message" if value.get().starts_with('{') => {
            let message = own(read(form, value)?)?;
            Ok(Said::Event(Event::Message(Arc::new(message))))
        }
        "message" => match words(form, value)? {
            parts if parts.is_empty() => Err("has an empty \"message\"".to_owned()),
            parts => Ok(Said::Reply(parts)),
        },
        "artifactUpdate" => {
            let update: TaskArtifactUpdateEvent = read(form, value)?;
            check(&update.artifact)?;
            Ok(Said::Event(Event::ArtifactUpdate(update)))
        }
        "statusUpdate" => {
            let mut update: TaskStatusUpdateEvent = read(form, value)?;
            allowed(update.status.state)?;
            // The hub's clock sets the time.
            update.status.timestamp = None;
            let message = update.status.message.take().map(Arc::unwrap_or_clone);
            update.status.message = message.map(own).transpose()?.map(Arc::new);
            Ok(Said::Event(Event::StatusUpdate(update)))
        }
        "inputRequired" => Ok(Said::Status(TaskState::InputRequired, words(form, value)?)),
        "authRequired" => Ok(Said::Status(TaskState::AuthRequired, words(form, value)?)),
        "completed" => Ok(Said::Status(TaskState::Completed, words(form, value)?)),
        "failed" => Ok(Said::Status(TaskState::Failed, words(form, value)?)),
        _ => Ok(Said::Status(TaskState::Rejected, words(form, value)?)),
    }
}

/// Finds the member that identifies the form, and refuses members that the form does not allow.
fn form(members: &Members<'_>) -> Result<&'static str, String> {
    if members.contains("task") {
        return Err("has \"task\": the hub makes the task; say its status and its artifacts".to_owned());
    }
    let known = || FORMS.iter().flat_map(|(form, beside)| std::iter::once(form).chain(*beside)).copied();
    if let Some(unknown) = members.names().find(|key| !known().any(|known| known == *key)) {
        return Err(format!("has the unknown key {}{}", quote(unknown), suggestion(unknown, known())));
    }
    let Some((form, beside)) = FORMS.iter().find(|(form, _)| members.contains(form)) else {
        let forms: Vec<&str> = FORMS.iter().map(|(form, _)| *form).collect();
        return Err(format!("has no known key; expected one of {}", forms.join(", ")));
    };
    match members.names().find(|key| key != form && !beside.contains(key)) {
        Some(other) => Err(format!("has both {form:?} and {other:?}, which do not go together")),
        None => Ok(form),
    }
}

fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let likeness = |known: &str| strsim::jaro_winkler(&word.to_lowercase(), &known.to_lowercase());
    let nearest = known.map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, known)) if likeness >= ALIKE => format!("; did you mean {known:?}?"),
        Some(_) | None => String::new(),
    }
}

/// Quotes a text of the agent, shortened for a message.
fn quote(word: &str) -> String {
    format!("{:?}", word.chars().take(40).collect::<String>())
}

fn state(value: &RawValue) -> Result<TaskState, String> {
    let word: String = serde_json::from_str(value.get()).unwrap_or_default();
    let plain = word.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-");
    let known = STATES.iter().find(|(name, _)| *name == plain).map(|(_, state)| *state);
    known.ok_or_else(|| {
        let names = || STATES.iter().map(|(name, _)| *name);
        let hint = suggestion(&plain, names());
        let names: Vec<&str> = names().collect();
        format!("has the status {}{hint}; expected one of {}", quote(&word), names.join(", "))
    })
}

/// Refuses the states that an agent may not set: the hub submits the task, and the caller cancels it.
fn allowed(state: TaskState) -> Result<(), String> {
    match STATES.iter().any(|(_, known)| *known == state) {
        true => Ok(()),
        false => Err(format!("has the state {}, which an agent may not set", state.as_str())),
    }
}

/// Checks that an artifact has an id and parts.
fn check(artifact: &Artifact) -> Result<(), String> {
    if artifact.artifact_id.is_empty() {
        return Err("has an artifact without \"artifactId\"".to_owned());
    }
    if artifact.parts.is_empty() {
        return Err("has an artifact without \"parts\"".to_owned());
    }
    Ok(())
}

/// Checks a message in the shape of the A2A specification, and makes it one of the agent. The hub sets its
/// task and context.
fn own(message: Message) -> Result<Message, String> {
    if message.message_id.is_empty() {
        return Err("has a message without \"messageId\"".to_owned());
    }
    if message.parts.is_empty() {
        return Err("has a message without \"parts\"".to_owned());
    }
    Ok(Message { role: Role::Agent, task_id: None, context_id: None, ..message })
}

/// Reads text, or an array of parts. Null and empty text give no parts.
fn words(key: &str, value: &RawValue) -> Result<Vec<Part>, String> {
    match value.get().as_bytes().first() {
        Some(b'n') => Ok(Vec::new()),
        Some(b'"') => {
            let text: String = read(key, value)?;
            Ok(if text.is_empty() { Vec::new() } else { vec![Part::text(text)] })
        }
        Some(b'[') => read(key, value),
        Some(_) | None => Err(format!("has a wrong value in {key:?}; expected text, or an array of parts")),
    }
}

fn flag(members: &mut Members<'_>, key: &str) -> Result<Option<bool>, String> {
    members.remove(key).map(|value| read(key, value)).transpose()
}

fn read<T: DeserializeOwned>(key: &str, value: &RawValue) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|error| {
        // The position is one within the value, not within the line.
        let error = error.to_string();
        let why = error.split_once(" at line ").map_or(&*error, |(why, _)| why);
        format!("has a wrong value in {key:?}: {why}")
    })
}
