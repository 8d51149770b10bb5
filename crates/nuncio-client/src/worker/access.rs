//! Consent by the agent itself: the key of a mailbox decides on the callers of its agent.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{
    Worker, WorkerError,
    wire::{Call, decode},
};

/// A caller of an agent that asks for consent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentCaller {
    /// The principal of the caller.
    pub principal: String,
    /// The tenant of its credential, if that has one.
    pub tenant: Option<String>,
    /// `waiting`, `accepted`, `declined` or `blocked`.
    pub state: String,
    /// The time of the request, or of the decision.
    pub since: String,
    /// The end of a request that nobody decides on.
    pub expires: Option<String>,
    /// Number of held messages.
    pub messages: usize,
    /// Their tasks, oldest first.
    pub tasks: Vec<String>,
}

/// A decision about a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallerDecision {
    /// Its held messages are executed, and so are all that follow.
    Accept,
    /// Its tasks are rejected; its next message is a new request.
    Decline,
    /// Its tasks and all further messages are rejected, as if they were declined.
    Block,
    /// Takes a grant or a block back: its next message is a new request.
    Revoke,
}

#[derive(Deserialize)]
struct Page {
    callers: Vec<AgentCaller>,
    #[serde(default)]
    next: Option<String>,
}

impl CallerDecision {
    fn path(self) -> &'static str {
        match self {
            Self::Accept => "/access:accept",
            Self::Decline => "/access:decline",
            Self::Block => "/access:block",
            Self::Revoke => "/access:revoke",
        }
    }
}

impl Worker {
    /// The callers of the agent, in this state (`waiting`, `accepted` or `blocked`) or in any of them; at most `limit`.
    ///
    /// # Errors
    /// The hub cannot be reached, or refuses the key.
    pub async fn callers(&self, state: Option<&str>, limit: usize) -> Result<Vec<AgentCaller>, WorkerError> {
        let (mut callers, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            if let Some(state) = state {
                query.append_pair("state", state);
            }
            if let Some(after) = &after {
                query.append_pair("after", after);
            }
            let query = query.finish();
            let mut call = Call::new(Method::GET, "/access");
            call.query = Some(&query).filter(|query| !query.is_empty()).map(String::as_str);
            let page: Page = decode(&self.mailbox.call(call, bytes::Bytes::new()).await?)?;
            callers.extend(page.callers);
            if callers.len() >= limit || page.next.is_none() {
                callers.truncate(limit);
                return Ok(callers);
            }
            after = page.next;
        }
    }

    /// Decides on a caller of the agent.
    ///
    /// # Errors
    /// There is nothing to decide; the hub cannot be reached, or refuses the key.
    pub async fn decide(
        &self,
        decision: CallerDecision,
        principal: &str,
        tenant: Option<&str>,
    ) -> Result<AgentCaller, WorkerError> {
        let mut body = json!({ "principal": principal });
        if let Some(tenant) = tenant {
            body["tenant"] = tenant.into();
        }
        let mut call = Call::new(Method::POST, decision.path());
        call.content_type = Some("application/json");
        decode(&self.mailbox.call(call, body.to_string().into()).await?)
    }
}
