//! The names of agents.

use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr};

use nuncio_protocol::op::Op;

use crate::config::form::text;

/// Names that would be taken for something else: paths that a binding or the hub has below its own address. The names of
/// the operations are reserved as well.
const RESERVED: &[&str] =
    &["agents", "card", "extendedagentcard", "files", "mailboxes", "message", "push", "rooms", "tasks", "v1"];
const MAX_NAME_CHARS: usize = 63;

/// The name of an agent: part of addresses, and its tenant at the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AgentName(String);

text!(AgentName);

/// The part of a name that stands for the second seat of a room.
const SECOND_SEAT: &str = "/b";

impl AgentName {
    /// The name of the room, for that of a second seat.
    pub(crate) fn room_of_second_seat(&self) -> Option<&str> {
        self.0.strip_suffix(SECOND_SEAT)
    }

    /// The name of the agent in a seat that has only an address. No agent can be called so.
    pub(crate) fn seated_agent(&self, second: bool) -> Self {
        Self(format!("{}/{}/agent", self.0, if second { "b" } else { "a" }))
    }

    /// The name of the second seat of the room of this name.
    pub(crate) fn second_seat(&self) -> Self {
        Self(format!("{}{SECOND_SEAT}", self.0))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if !text.starts_with(is_plain)
            || !text.chars().all(|c| is_plain(c) || c == '-')
            || text.len() > MAX_NAME_CHARS
        {
            return Err(format!(
                "is not a valid name of an agent; expected a to z, 0 to 9 and -, a letter or digit first, at most {MAX_NAME_CHARS} \
                 characters"
            ));
        }
        if RESERVED.contains(&text) || Op::TABLE.iter().any(|row| row.name.eq_ignore_ascii_case(text)) {
            return Err(format!(
                "is reserved, because it is part of other addresses; reserved are {} and the names of operations",
                RESERVED.join(", ")
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Deref for AgentName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_may_be_called() {
        let longest = "a".repeat(MAX_NAME_CHARS);
        let too_long = "a".repeat(MAX_NAME_CHARS + 1);
        for (text, ok) in [
            ("billing", true),
            ("7-of-9", true),
            (&longest, true),
            (&too_long, false),
            ("", false),
            ("-a", false),
            ("Billing", false),
            ("a_b", false),
            ("a.b", false),
            ("a/b", false),
            ("ä", false),
            ("agents", false),
            ("tasks", false),
            ("tasks-2", true),
            ("mailboxes", false),
            ("rooms", false),
            ("files", false),
            ("push", false),
            ("sendmessage", false),
            ("gettask", false),
            ("send-message", true),
        ] {
            assert_eq!(text.parse::<AgentName>().is_ok(), ok, "{text}");
        }
    }
}
