//! Which task an answer is.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess},
};

use crate::{Version, lenient::Key};

/// The id and the context of the task that is the answer to a send, or an event of a stream. They mostly stand at its
/// beginning, and nothing behind them is read: an agent that contradicts itself later is taken at its first word.
/// `None` if it has to be decoded, because it is, or begins with, something else.
#[must_use]
pub fn task_of(version: Version, frame: Frame, answer: &[u8]) -> Option<[Cow<'_, str>; 2]> {
    let level = match frame {
        Frame::JsonRpc => Level::Envelope,
        Frame::Bare => Level::Event,
    };
    let mut told = Told::default();
    let mut reader = serde_json::Deserializer::from_slice(answer);
    // Whoever knows enough, or too little, stops in the middle, with an error.
    let _ = Seek { version, level, told: &mut told }.deserialize(&mut reader);
    let Told { id: Some(id), context: Some(context), is_enough: true, .. } = told else { return None };
    Some([id, context]).filter(|ids| ids.iter().all(|id| !id.is_empty()))
}

/// What stands around an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A JSON-RPC response.
    JsonRpc,
    /// Nothing.
    Bare,
}

/// What was found so far.
#[derive(Default)]
struct Told<'a> {
    /// What v0.3 says it is.
    kind: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    context: Option<Cow<'a, str>>,
    is_enough: bool,
}

/// An object on the way to the task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Envelope,
    /// In 1.0 it has the task in it, in 0.3 it is the task.
    Event,
    Task,
}

struct Seek<'t, 'a> {
    version: Version,
    level: Level,
    told: &'t mut Told<'a>,
}

impl<'a> Told<'a> {
    /// Takes a member of the task; false if there is no need, or no use, to go on.
    fn take(&mut self, version: Version, name: &str, value: Cow<'a, str>) -> bool {
        let place = match name {
            "id" => &mut self.id,
            "kind" => &mut self.kind,
            _ => &mut self.context,
        };
        let is_twice = place.replace(value).is_some();
        let is_else = self.kind.as_deref().is_some_and(|kind| kind != "task");
        let says_kind = version == Version::V1_0 || self.kind.is_some();
        self.is_enough = !is_twice && !is_else && says_kind && self.id.is_some() && self.context.is_some();
        !is_twice && !is_else && !self.is_enough
    }
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
        let Self { version, level, told } = self;
        let stop = || de::Error::custom("the rest does not matter");
        let is_old = version == Version::V0_3;
        while let Some(Key(name)) = map.next_key()? {
            match (level, &*name) {
                (Level::Envelope, "result") => {
                    map.next_value_seed(Seek { version, level: Level::Event, told })?;
                    return Err(stop());
                }
                (Level::Event, "task") if !is_old => {
                    map.next_value_seed(Seek { version, level: Level::Task, told })?;
                    return Err(stop());
                }
                // Another kind of event; or, of 0.3, one that is said in the words of another version.
                (Level::Event, "task") => return Err(stop()),
                (Level::Event, _) if !is_old => return Err(stop()),
                (Level::Event | Level::Task, "id" | "contextId") | (Level::Event, "kind") => {
                    let Key(value) = map.next_value()?;
                    if !told.take(version, &name, value) {
                        return Err(stop());
                    }
                }
                _ => {
                    let IgnoredAny = map.next_value()?;
                }
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

    /// Whatever is said in one way is what decoding the whole says, and the rest is left to that.
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
            (old, r#"{"task":{"id":"x","contextId":"y"},"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), false),
            (old, r#"{"id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), false),
            (old, r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#.to_owned(), true),
            (old, r#"{"artifacts":[],"contextId":"c","id":"t","status":{"state":"working"},"kind":"task"}"#.to_owned(), true),
            (old, r#"{"kind":"message","messageId":"m","role":"agent","parts":[],"taskId":"t","contextId":"c"}"#.to_owned(), false),
            (old, r#"{"kind":"status-update","taskId":"t","contextId":"c","final":false,"status":{"state":"working"}}"#.to_owned(), false),
        ] {
            let version = dialect.version();
            let response = format!(r#"{{"jsonrpc":"2.0","id":"i","result":{event}}}"#);
            let seen = task_of(version, Frame::JsonRpc, response.as_bytes());
            assert_eq!(seen, task_of(version, Frame::Bare, event.as_bytes()), "{event}");
            assert_eq!(seen.is_some(), is_seen, "{event}");
            if let Some([id, context]) = seen {
                let Some(Event::Task(task)) = dialect.event_of(&response) else { panic!("{event}") };
                assert_eq!([task.id.as_str(), task.context_id.as_str()], [&*id, &*context], "{event}");
            }
        }
        let error = r#"{"jsonrpc":"2.0","id":"i","error":{"code":-32001,"message":"no","data":[{"id":"t","contextId":"c"}]}}"#;
        assert_eq!(task_of(Version::V1_0, Frame::JsonRpc, error.as_bytes()), None);
        let cut = br#"{"result":{"task":{"id":"t","contextId":"c","status":{"#;
        assert!(task_of(Version::V1_0, Frame::JsonRpc, cut).is_some(), "what comes after it does not matter");
        assert_eq!(task_of(Version::V1_0, Frame::JsonRpc, &cut[..40]), None);
    }
}
