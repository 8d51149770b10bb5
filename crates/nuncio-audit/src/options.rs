//! The options of an audit.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use nuncio_client::{Credentials, Egress, InterfaceHosts};
use nuncio_protocol::{Binding, Version};
use url::Url;

use crate::catalogue::{Check, Depth};

/// The time for one answer.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for the answer to a message.
pub const DEFAULT_MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for the whole audit.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(300);

/// A listener of progress: gets a line whenever the audit begins another part.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of an audit.
#[derive(Clone)]
pub struct AuditOptions {
    /// The address of the agent or of its card.
    pub target: Url,
    /// The connections to use.
    pub egress: Egress,
    /// The credentials of the audit.
    pub credentials: Credentials,
    /// The credentials of a second caller, for the isolation of callers.
    pub second: Option<Credentials>,
    /// The text of messages; without it the agent gets none.
    pub send: Option<String>,
    /// A receiver of webhooks on this machine.
    pub push: Option<PushOptions>,
    /// Ids or areas of checks to run; empty: all.
    pub only: Vec<String>,
    /// Ids or areas of checks to leave out.
    pub skip: Vec<String>,
    /// Extensions to list on every call, besides those that the card requires.
    pub extensions: Vec<String>,
    /// The versions to audit; empty: all.
    pub versions: Vec<Version>,
    /// The bindings to audit; empty: all.
    pub bindings: Vec<Binding>,
    /// The hosts where interfaces are called; `None`: wherever the card says. For programs that audit on behalf of
    /// others: a card must not direct their requests to hosts that only they can reach.
    pub interface_hosts: Option<InterfaceHosts>,
    /// The time for one answer.
    pub timeout: Duration,
    /// The time for the answer to a message.
    pub message_timeout: Duration,
    /// The time for the whole audit.
    pub deadline: Duration,
    /// Gets a line whenever the audit begins another part.
    pub progress: Option<Progress>,
}

/// The receiver of webhooks.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// The address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address as the agent reaches it, if it is not the listening address.
    pub url: Option<Url>,
}

impl AuditOptions {
    /// The options of a look at this agent, without credentials.
    #[must_use]
    pub fn new(target: Url, egress: Egress) -> Self {
        Self {
            target,
            egress,
            credentials: Credentials::none(),
            second: None,
            send: None,
            push: None,
            only: Vec::new(),
            skip: Vec::new(),
            extensions: Vec::new(),
            versions: Vec::new(),
            bindings: Vec::new(),
            interface_hosts: None,
            timeout: DEFAULT_TIMEOUT,
            message_timeout: DEFAULT_MESSAGE_TIMEOUT,
            deadline: DEFAULT_DEADLINE,
            progress: None,
        }
    }

    /// The depths of the audit.
    #[must_use]
    pub fn depths(&self) -> Vec<Depth> {
        let all = [
            (Depth::Look, true),
            (Depth::Send, self.send.is_some()),
            (Depth::Push, self.push.is_some() && self.send.is_some()),
            (Depth::Key, self.second.is_some() && self.send.is_some()),
        ];
        all.into_iter().filter(|(_, is_on)| *is_on).map(|(depth, _)| depth).collect()
    }

    /// True if the check is selected by `only` and `skip`.
    #[must_use]
    pub fn selects(&self, check: &Check) -> bool {
        let named =
            |names: &[String]| names.iter().any(|name| name == check.id || name == check.area.as_str());
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }

    /// The first name in `only` or `skip` that is neither a check nor an area.
    #[must_use]
    pub fn unknown_name(&self) -> Option<&str> {
        let is_known = |name: &str| {
            crate::catalogue::find(name).is_some()
                || crate::catalogue::Area::ALL.iter().any(|area| area.as_str() == name)
        };
        self.only.iter().chain(&self.skip).map(String::as_str).find(|name| !is_known(name))
    }

    pub(crate) fn tell(&self, line: &str) {
        if let Some(progress) = &self.progress {
            progress(line);
        }
    }
}

impl fmt::Debug for AuditOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditOptions").field("target", &self.target.as_str()).finish_non_exhaustive()
    }
}
