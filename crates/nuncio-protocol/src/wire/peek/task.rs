//! Finds the task of an answer.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess},
};

use crate::lenient::Key;

/// The id and the context of the task in an answer to a send, or in an event of a stream. They are usually
/// at its beginning, and nothing after them is parsed: the first occurrence wins. `None` if the answer has
/// to be decoded, because it is, or begins with, something else.
#[must_use]
pub fn task_of(place: TaskShape, frame: EventEnvelope, answer: &[u8]) -> Option<[Cow<'_, str>; 2]> {
    let level = match frame {
        EventEnvelope::JsonRpc => Level::Envelope,
        EventEnvelope::Bare => Level::Event,
    };
    let mut told = Told::default();
    let mut reader = serde_json::Deserializer::from_slice(answer);
    // Parsing is stopped with an error as soon as the result is known.
    let _ = Seek { place, level, told: &mut told }.deserialize(&mut reader);
    let Told { is_task: true, id: Some(id), context: Some(context) } = told else { return None };
    Some([id, context]).filter(|ids| ids.iter().all(|id| !id.is_empty()))
}

/// The envelope of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventEnvelope {
    /// A JSON-RPC response.
    JsonRpc,
    /// No envelope.
    Bare,
}

/// The location of the task in an event of a dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskShape {
    /// In the only member of the event, with this name.
    Inside(&'static str),
    /// The event itself, if its member with this name has this value.
    Marked(&'static str, &'static str),
}

/// The members found so far.
#[derive(Default)]
struct Told<'a> {
    is_task: bool,
    id: Option<Cow<'a, str>>,
    context: Option<Cow<'a, str>>,
}

/// The level of an object on the path to the task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Envelope,
    Event,
    Task,
}

struct Seek<'t, 'a> {
    place: TaskShape,
    level: Level,
    told: &'t mut Told<'a>,
}

impl<'de> DeserializeSeed<'de> for Seek<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> de::Visitor<'de> for Seek<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { place, level, told } = self;
        let stop = || de::Error::custom("the rest does not matter");
        told.is_task = level == Level::Task;
        while let Some(Key(name)) = map.next_key()? {
            match (level, place, &*name) {
                (Level::Envelope, _, "result") => {
                    map.next_value_seed(Seek { place, level: Level::Event, told })?;
                    return Err(stop());
                }
                (Level::Event, TaskShape::Inside(task), name) => {
                    if name == task {
                        map.next_value_seed(Seek { place, level: Level::Task, told })?;
                    }
                    return Err(stop());
                }
                (Level::Event, TaskShape::Marked(mark, task), name) if name == mark => {
                    let Key(kind) = map.next_value()?;
                    told.is_task = kind == task;
                    if !told.is_task {
                        return Err(stop());
                    }
                }
                (Level::Event | Level::Task, _, "id" | "contextId") => {
                    let place = if name == "id" { &mut told.id } else { &mut told.context };
                    let Key(value) = map.next_value()?;
                    if place.replace(value).is_some() {
                        // A repeated member: the full decoder decides.
                        *told = Told::default();
                        return Err(stop());
                    }
                }
                _ => {
                    let IgnoredAny = map.next_value()?;
                }
            }
            if told.is_task && told.id.is_some() && told.context.is_some() {
                return Err(stop());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event, v03,
        wire::{Dialect, V1},
    };

    /// A summary agrees with the decoded value; where it cannot be made, the value is decoded.
    #[test]
    fn the_task_of_an_answer_is_the_one_that_is_decoded() {
        let new: &dyn Dialect = &V1;
        let old: &dyn Dialect = &v03::JsonRpc;
        let status = r#""status":{"state":"TASK_STATE_WORKING"}"#;
        for (dialect, event, is_seen) in [
            (new, format!(r#"{{"task":{{"id":"t","contextId":"c",{status}}}}}"#), true),
            (new, format!(r#"{{"task":{{{status},"history":[{{"taskId":"no"}}],"contextId":"c","id":"t\u00e9"}}}}"#), true),
            (new, format!(r#"{{"task":{{"id":"t","context_id":"c",{status}}}}}"#), false),
            (new, format!(r#"{{"task":{{"id":"","contextId":"c",{status}}}}}"#), false),
            (new, format!(r#"{{"task":{{"id":"t","id":"u","contextId":"c",{status}}}}}"#), false),
            (new, format!(r#"{{"task":{{"id":null,"contextId":"c",{status}}}}}"#), false),
            (new, format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c",{status}}}}}"#), false),
            (new, r#"{"message":{"messageId":"m","role":"ROLE_AGENT","contextId":"c","parts":[]}}"#.to_owned(), false),
            (new, format!(r#"{{"id":"x","task":{{"contextId":"c","id":"t",{status}}}}}"#), false),
            (new, format!(r#"{{"task":{{"kind":"task","id":"t",{status}}},"contextId":"x"}}"#), false),
            (new, "{}".to_owned(), false),
            (new, "7".to_owned(), false),
            (old, r#"{"task":{"id":"x","contextId":"y"},"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), true),
            (old, r#"{"id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), false),
            (old, r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), true),
            (old, r#"{"artifacts":[],"contextId":"c","id":"t","status":{"state":"working"},"kind":"task"}"#.to_owned(), true),
            (old, r#"{"kind":"message","messageId":"m","role":"agent","parts":[],"taskId":"t","contextId":"c"}"#.to_owned(), false),
            (old, r#"{"kind":"status-update","taskId":"t","contextId":"c","final":false,"status":{"state":"working"}}"#.to_owned(), false),
        ] {
            let place = dialect.task_shape().unwrap();
            let response = format!(r#"{{"jsonrpc":"2.0","id":"i","result":{event}}}"#);
            let seen = task_of(place, EventEnvelope::JsonRpc, response.as_bytes());
            assert_eq!(seen, task_of(place, EventEnvelope::Bare, event.as_bytes()), "{event}");
            assert_eq!(seen.is_some(), is_seen, "{event}");
            if let Some([id, context]) = seen {
                let Some(Event::Task(task)) = dialect.event_of(&response) else { panic!("{event}") };
                assert_eq!([task.id.as_str(), task.context_id.as_str()], [&*id, &*context], "{event}");
            }
        }
        let error = r#"{"jsonrpc":"2.0","id":"i","error":{"code":-32001,"message":"no","data":[{"id":"t","contextId":"c"}]}}"#;
        assert_eq!(task_of(TaskShape::Inside("task"), EventEnvelope::JsonRpc, error.as_bytes()), None);
        let cut = br#"{"result":{"task":{"id":"t","contextId":"c","status":{"#;
        assert!(
            task_of(TaskShape::Inside("task"), EventEnvelope::JsonRpc, cut).is_some(),
            "what comes after it does not matter"
        );
        assert_eq!(task_of(TaskShape::Inside("task"), EventEnvelope::JsonRpc, &cut[..40]), None);
    }
}
