//! Derives the context ids that agents see.
//!
//! Callers choose context ids; many choose the same one (`main`), and one may choose another's on purpose.
//! To an agent all callers of the hub are one caller, so an agent that stores data by context id would show
//! one caller the data of another. An agent therefore never sees the caller's id, but a derived one:
//!
//! ```text
//! HMAC-SHA256(secret of the store, "context", tenant, principal, contextId)   as a UUID
//! ```
//! The tenant is the one that the credential proves, never the `tenant` field of a call. The derived id is
//! the same after a restart and on every hub of one database. It is keyed, so that a client that calls the
//! agent directly cannot compute the id of another caller's conversation.

use aws_lc_rs::hmac;
use nuncio_protocol::{Caller, ContextId, Message, Task};
use nuncio_server::store::{Store, StoreError};

/// Name of the store's secret that the key is made from.
const SECRET: &str = "contexts";

/// The key that context ids are derived with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContextKey(Option<hmac::Key>);

impl ContextKey {
    /// Loads the key of this store, and creates it on first use.
    ///
    /// # Errors
    /// The store is unavailable.
    pub(crate) async fn open(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self::new(&store.secret(SECRET).await?))
    }

    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(Some(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// Leaves context ids as they are, where another hub has derived them.
    pub(crate) fn derived_elsewhere() -> Self {
        Self(None)
    }

    /// Derives the context id that agents see for this caller's context.
    pub(crate) fn derive(&self, caller: &Caller, context: &ContextId) -> ContextId {
        let Some(key) = &self.0 else { return context.clone() };
        let tag = hmac::sign(key, &encode(caller, context));
        let mut name = [0; 16];
        name.copy_from_slice(&tag.as_ref()[..16]);
        let mut buffer = uuid::Uuid::encode_buffer();
        let text = uuid::Builder::from_custom_bytes(name).into_uuid().hyphenated().encode_lower(&mut buffer);
        ContextId::new(&*text)
    }

    /// Rewrites a message of this caller with the derived context id.
    pub(super) fn message(&self, caller: &Caller, mut message: Message) -> Message {
        message.context_id = message.context_id.map(|context| self.derive(caller, &context));
        message
    }

    /// Rewrites a task of this caller with the derived context id.
    pub(super) fn task(&self, caller: &Caller, mut task: Task) -> Task {
        let Task { context_id, status, history, .. } = &mut task;
        *context_id = self.derive(caller, context_id);
        for message in status.message.iter_mut().chain(history) {
            let translated = self.message(caller, Message::clone(message));
            *message = translated.into();
        }
        task
    }
}

/// Encodes each part with its length, so that no two conversations have the same encoding.
fn encode(caller: &Caller, context: &ContextId) -> Vec<u8> {
    let (tenant, principal) = (caller.tenant(), caller.principal());
    let parts = [Some("context"), tenant.map(|it| &**it), principal.map(|it| &**it), Some(context.as_str())];
    let mut encoded = Vec::with_capacity(128);
    for part in parts {
        // An absent part and an empty one are encoded differently.
        encoded.push(u8::from(part.is_some()));
        let part = part.unwrap_or_default();
        encoded.extend_from_slice(&(part.len() as u64).to_be_bytes());
        encoded.extend_from_slice(part.as_bytes());
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use nuncio_protocol::Part;
    use nuncio_server::store::MemoryStore;

    use super::*;

    #[test]
    fn each_caller_has_conversations_of_its_own() {
        let key = ContextKey::new(&[7; 32]);
        let principal = |name: &str| Caller::authenticated(name);
        let conversations = [
            (Caller::anonymous(), "main"),
            (Caller::anonymous(), "other"),
            (Caller::anonymous(), ""),
            (principal(""), "main"),
            (principal("ann"), "main"),
            (principal("bob"), "main"),
            (principal("annmain"), ""),
            (principal("ann").of_tenant("north"), "main"),
            (principal("ann").of_tenant("south"), "main"),
            (principal("north").of_tenant("ann"), "main"),
            (Caller::anonymous().of_tenant("ann"), "main"),
        ];
        let names: HashSet<_> =
            conversations.iter().map(|(caller, context)| key.derive(caller, &(*context).into())).collect();
        assert_eq!(names.len(), conversations.len(), "{names:?}");
        for name in &names {
            assert!(uuid::Uuid::parse_str(name.as_str()).is_ok(), "{name}");
        }
        for (caller, context) in &conversations {
            assert!(names.contains(&key.derive(caller, &(*context).into())), "the same again");
            let foreign = ContextKey::new(&[8; 32]).derive(caller, &(*context).into());
            assert!(!names.contains(&foreign), "another key has other names");
        }
    }

    /// Stored conversations of agents depend on it.
    #[test]
    fn a_name_stays_as_it_is() {
        let caller = Caller::authenticated("ann").of_tenant("north");
        let name = ContextKey::new(&[7; 32]).derive(&caller, &"main".into());
        assert_eq!(name.as_str(), "8a3423f2-ba74-8e04-bf96-3f355c86fb4e");
    }

    #[tokio::test]
    async fn hubs_of_one_store_have_one_key() {
        let (store, other) = (MemoryStore::default(), MemoryStore::default());
        let (caller, context) = (Caller::authenticated("ann"), "main".into());
        let name = ContextKey::open(&store).await.unwrap().derive(&caller, &context);
        assert_eq!(ContextKey::open(&store).await.unwrap().derive(&caller, &context), name);
        assert_ne!(ContextKey::open(&other).await.unwrap().derive(&caller, &context), name);
    }

    #[test]
    fn nothing_of_a_task_shows_the_callers_own_name() {
        let (key, caller) = (ContextKey::new(&[7; 32]), Caller::authenticated("ann"));
        let said = |id: &str| {
            let mut message = Message::user(id, Part::text("x"));
            message.context_id = Some("main".into());
            message
        };
        let mut task = Task { context_id: "main".into(), ..Task::default() };
        task.history = vec![said("1").into(), said("2").into()];
        task.status.message = Some(said("3").into());
        let seen = serde_json::to_string(&key.task(&caller, task)).unwrap();
        let name = key.derive(&caller, &"main".into());
        assert!(!seen.contains("\"main\""), "{seen}");
        assert_eq!(seen.matches(name.as_str()).count(), 4, "{seen}");
    }
}
