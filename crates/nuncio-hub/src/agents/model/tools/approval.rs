//! Calls of tools that the caller has to allow. Pure.

use std::fmt;

use nuncio_protocol::{Content, Message};
use serde_json::Value;

/// A pattern of names; a star stands for any characters.
#[derive(Clone, Debug)]
pub(super) struct Pattern(String);

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let mut pieces = self.0.split('*');
        let Some(rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
        let pieces: Vec<&str> = pieces.collect();
        let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
        // The first place where a piece fits leaves most to the others.
        let rest = middle.iter().try_fold(rest, |rest, piece| rest.split_once(piece).map(|(_, rest)| rest));
        rest.is_some_and(|rest| rest.ends_with(last))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The caller's answer to the question whether a tool may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::agents::model) enum Decision {
    Allow,
    Deny,
}

impl Decision {
    /// Reads `{"decision": "allow"}` or `{"decision": "deny"}`, or a text that is yes or no. `None` for anything else:
    /// the caller is asked again.
    pub(in crate::agents::model) fn of(message: &Message) -> Option<Self> {
        let data = message.parts.iter().find_map(|part| match &part.content {
            Content::Data(data) => data.get::<Value>().ok()?.get("decision")?.as_str().map(str::to_owned),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
        });
        let word = data.unwrap_or_else(|| message.text().into_owned());
        match word.trim().trim_end_matches(['.', '!']).to_ascii_lowercase().as_str() {
            "allow" | "yes" | "y" | "ok" => Some(Self::Allow),
            "deny" | "no" | "n" => Some(Self::Deny),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Part;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("files.read", "files.read", true),
            ("files.read", "files.read_all", false),
            ("files.write_*", "files.write_file", true),
            ("files.write_*", "files.write_", true),
            ("files.write_*", "files.read", false),
            ("*", "anything", true),
            ("*.delete", "files.delete", true),
            ("*.delete", "files.deleted", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("", "x", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn decisions_are_words_or_data() {
        let decision = |part: Part| Decision::of(&Message::user("m-1", part));
        for (text, expected) in [
            ("yes", Some(Decision::Allow)),
            (" Yes. ", Some(Decision::Allow)),
            ("no", Some(Decision::Deny)),
            ("NO!", Some(Decision::Deny)),
            ("yes, but not that file", None),
            ("", None),
        ] {
            assert_eq!(decision(Part::text(text)), expected, "{text:?}");
        }
        for (data, expected) in [
            (json!({ "decision": "allow" }), Some(Decision::Allow)),
            (json!({ "decision": "deny" }), Some(Decision::Deny)),
            (json!({ "decision": "maybe" }), None),
            (json!({ "decision": true }), None),
            (json!(["allow"]), None),
        ] {
            assert_eq!(decision(Part::data(data.clone())), expected, "{data}");
        }
    }
}
