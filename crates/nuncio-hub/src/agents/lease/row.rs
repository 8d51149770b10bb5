//! A turn of a task as a row: small, and without the message, which is in the log of its task.

use std::{fmt, str::FromStr, sync::Arc};

use nuncio_protocol::{Caller, ContextId, Metadata, TaskId, TaskState};
use nuncio_server::store::Scope;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use uuid::Uuid;

/// The name of a turn. Names sort by the time of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::agents) struct TurnId(Uuid);

impl TurnId {
    /// The name of a turn that arrives now.
    pub(in crate::agents) fn now() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TurnId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| "expected the name of a turn")
    }
}

impl Serialize for TurnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TurnId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The stage of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::agents) enum Stage {
    /// No worker has it.
    Waiting,
    /// A worker has it and has said nothing yet.
    Offered,
    /// A worker has written a line.
    Begun,
}

/// The owner of a task.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(in crate::agents) struct Owner {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) principal: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) tenant: Option<Arc<str>>,
    /// The tenant is the one that the credential proves, not a field of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agents) proved: bool,
}

impl Owner {
    /// The scope of this owner's tasks of an agent.
    pub(in crate::agents) fn scope(&self, agent: &str) -> Scope {
        Scope { agent: agent.into(), tenant: self.tenant.clone(), owner: self.principal.clone() }
    }

    /// The caller, as far as agents are told about it.
    pub(in crate::agents) fn caller(&self) -> Caller {
        let caller = self.principal.clone().map_or_else(Caller::anonymous, Caller::authenticated);
        match self.tenant.clone().filter(|_| self.proved) {
            Some(tenant) => caller.of_tenant(tenant),
            None => caller,
        }
    }
}

/// The trace that a call belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::agents) struct Trace {
    pub(in crate::agents) parent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) state: Option<String>,
    /// The hubs and agents that the call has come through, this one included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agents) hops: Vec<String>,
}

/// Data of the call that are in no log: a record of their own, because few calls have any.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::agents) struct CallData {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agents) accepted_output_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub(in crate::agents) metadata: Metadata,
}

impl CallData {
    pub(in crate::agents) fn is_empty(&self) -> bool {
        self.accepted_output_modes.is_empty() && self.metadata.is_empty()
    }
}

/// A memo that a worker left in this turn, in place of that of the task; none deletes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(in crate::agents) struct NewMemo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) value: Option<Value>,
}

/// A turn. Times are milliseconds since 1970.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::agents) struct TurnRow {
    pub(in crate::agents) owner: Owner,
    pub(in crate::agents) task: TaskId,
    pub(in crate::agents) context: ContextId,
    /// The number of the message among the messages of the caller to this task; begins at 1.
    pub(in crate::agents) message: usize,
    /// The id that each offer of this turn has in common.
    pub(in crate::agents) repeat: String,
    pub(in crate::agents) stage: Stage,
    /// The time of its arrival.
    pub(in crate::agents) arrived: i64,
    /// The end of its wait.
    pub(in crate::agents) deadline: i64,
    /// The number of its lease: the fencing token. 0: it was never offered.
    #[serde(default)]
    pub(in crate::agents) generation: u64,
    /// The number of offers that count.
    #[serde(default)]
    pub(in crate::agents) attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) holder: Option<String>,
    /// The key of the claim, by which a repeat gets the same lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) claim: Option<String>,
    /// The end of the lease; 0 without one.
    #[serde(default)]
    pub(in crate::agents) expires: i64,
    /// The interrupted state in which the task was when the message came: the hub's own words are over it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) rest: Option<TaskState>,
    /// The number of lines of this lease that are stored.
    #[serde(default)]
    pub(in crate::agents) have: u64,
    /// The artifact of plain text is not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agents) open_text: bool,
    /// An earlier lease had begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agents) resumed: bool,
    /// The caller has canceled the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agents) canceled: bool,
    /// The memo that a worker left in this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) memo: Option<NewMemo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) trace: Option<Trace>,
    /// There is a record with [`CallData`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agents) has_call: bool,
}

/// The name of a lease: a turn and the number of its lease. Workers take it as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::agents) struct LeaseId {
    pub(in crate::agents) turn: TurnId,
    pub(in crate::agents) generation: u64,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.generation)
    }
}

impl FromStr for LeaseId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (turn, generation) = text.split_once('.').ok_or(())?;
        let read = Self { turn: turn.parse().map_err(drop)?, generation: generation.parse().map_err(drop)? };
        // One name per lease: other spellings of the same numbers are no names.
        if read.to_string() == text { Ok(read) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_name() {
        let lease = LeaseId { turn: TurnId::now(), generation: 7 };
        assert_eq!(lease.to_string().parse(), Ok(lease.clone()));
        let upper = lease.to_string().to_uppercase();
        for wrong in ["", ".", "x.1", &*upper, &format!("{}.07", lease.turn), &format!("{}.+7", lease.turn)] {
            assert_eq!(wrong.parse::<LeaseId>(), Err(()), "{wrong}");
        }
    }
}
