//! Opens mailboxes: for an operator, and for one who was invited.

use serde_json::{Map, Value};

use super::Mailboxes;
use crate::{
    config::AgentName,
    fleet::Fleet,
    identity::{Authenticator, KeyText, KeyringError, NewApiKey},
    registry::{ChangeRefusal, Registry},
};

/// The parts of a hub that a new mailbox touches.
pub(crate) struct Opening<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) identity: &'a Authenticator,
    pub(crate) fleet: &'a Fleet,
    pub(crate) mailboxes: &'a Mailboxes,
}

/// The reason why a mailbox cannot be opened.
pub(crate) enum OpenRefusal {
    /// The name or a setting is invalid.
    Invalid(String),
    /// The agent cannot be added.
    Agent(ChangeRefusal),
    /// The key cannot be created.
    Key(KeyringError),
}

impl Opening<'_> {
    /// Creates the mailbox and its key. A mailbox of the configuration that has no key gets one.
    ///
    /// # Errors
    /// The name is taken, a setting is wrong, or the store is unavailable.
    pub(crate) async fn open(
        &self,
        name: &str,
        mut settings: Map<String, Value>,
    ) -> Result<KeyText, OpenRefusal> {
        settings.entry("mailbox").or_insert_with(|| Value::Object(Map::new()));
        if !settings.get("mailbox").is_some_and(Value::is_object) {
            let why = "mailbox: expected a table of settings, such as {}";
            return Err(OpenRefusal::Invalid(why.to_owned()));
        }
        let parsed: AgentName =
            name.parse().map_err(|why| OpenRefusal::Invalid(format!("name: {name} {why}")))?;
        let keys = self.identity.mailbox_keys();
        let is_without_key = keys.show(name).is_none();
        let overview = self.mailboxes.overview(name).await;
        let is_served = overview.map_err(|error| OpenRefusal::Agent(ChangeRefusal::Store(error)))?.is_some();
        // Removed first if an earlier attempt got no further: the key of a mailbox that is gone opens nothing.
        if !is_without_key && self.fleet.get(name).is_none() {
            keys.delete(name).await.map_err(OpenRefusal::Key)?;
        }
        if !(is_served && is_without_key) {
            self.registry.add(&parsed, settings).await.map_err(OpenRefusal::Agent)?;
            // Of an earlier mailbox of this name.
            let forgotten = self.mailboxes.forget_switch(name).await;
            forgotten.map_err(|error| OpenRefusal::Agent(ChangeRefusal::Store(error)))?;
        }
        let created = keys.create(NewApiKey::named(name)).await;
        created.map(|(_, text)| text).map_err(OpenRefusal::Key)
    }
}
