//! Callers of agents that ask first (`access = "ask"`): requests, grants and blocks.

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    paging::{ListRoute, Page, Paging},
    route::routes,
    schema::Time,
};

routes! {
    /// Lists the callers that wait for consent, are accepted, or are blocked.
    ListAccess: GET "/access", "access.list" { query filter: AccessFilter, } -> AccessPage;

    /// Accepts a caller: its held messages are executed, and so are all that follow.
    AcceptAccess: POST "/access:accept", "access.accept" { body caller: AccessCaller, } -> CallerAccess,
        trail AccessAccepted;

    /// Declines a request: its tasks are rejected. The caller's next message is a new request.
    DeclineAccess: POST "/access:decline", "access.decline" { body caller: AccessCaller, } -> CallerAccess,
        trail AccessDeclined;

    /// Blocks a caller: its tasks and all further messages are rejected, as if they were declined.
    BlockAccess: POST "/access:block", "access.block" { body caller: AccessCaller, } -> CallerAccess,
        trail AccessBlocked;

    /// Revokes a grant or a block: the caller's next message is a new request.
    RevokeAccess: POST "/access:revoke", "access.revoke" { body caller: AccessCaller, } -> CallerAccess,
        trail AccessRevoked;
}

/// A filter of callers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AccessFilter {
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only in this state.
    pub state: Option<AccessState>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A page of callers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessPage {
    pub callers: Vec<CallerAccess>,
    /// Value for `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListRoute for ListAccess {
    type Item = CallerAccess;

    fn paging(&mut self) -> &mut Paging {
        &mut self.filter.paging
    }

    fn page(AccessPage { callers, next }: AccessPage) -> Page<CallerAccess> {
        Page { items: callers, next }
    }
}

/// A caller at an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessCaller {
    pub agent: String,
    /// The principal of the caller.
    pub principal: String,
    /// The tenant of its credential, if that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A caller with its state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallerAccess {
    pub agent: String,
    pub principal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub state: AccessState,
    /// The time of the request, or of the decision.
    #[schemars(with = "Time")]
    pub since: Timestamp,
    /// The end of a request that nobody decides on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub expires: Option<Timestamp>,
    /// Number of held messages.
    pub messages: usize,
    /// Their tasks, oldest first.
    pub tasks: Vec<String>,
}

/// The state of a caller at an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessState {
    /// Its messages wait for a decision.
    Waiting,
    /// Its messages are executed.
    Accepted,
    /// Its request was declined, or its grant or block was revoked.
    Declined,
    /// Its messages are rejected.
    Blocked,
}
