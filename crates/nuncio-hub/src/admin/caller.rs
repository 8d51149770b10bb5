//! The callers of administration: their tokens and roles.
//!
//! | token | role | lives |
//! |---|---|---|
//! | the one in the token's file | operator | as long as the hub runs, or as the operator's file |
//! | created by this API | viewer or operator | in the store, until it is revoked |
//!
//! Of a created token only the SHA-256 is stored; its 256 random bits need no slower hash.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use aws_lc_rs::{
    constant_time,
    digest::{SHA256, digest},
    rand,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nuncio_protocol::Timestamp;
use nuncio_server::store::{Expect, PutRecord, Record, RecordQuery, Store, StoreError, Topic};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    api::{NewAdminToken, Role},
    problem::AdminProblem,
    token::Token,
};
use crate::clock;

/// The kind of the records; the key is the id of the token.
const KIND: &str = "admin-token";
/// The maximum number of tokens.
const MAX_TOKENS: usize = 1_000;
/// The maximum length of a name, in characters.
const MAX_NAME: usize = 64;
/// The number of random bytes of an id, and of a secret.
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// An authenticated caller of administration.
#[derive(Clone, Debug)]
pub(crate) struct AdminCaller {
    pub(crate) role: Role,
    /// The name of a created token; `None` for the one in the file.
    pub(crate) name: Option<Arc<str>>,
    /// Cancelled when the token is revoked.
    pub(crate) revoked: CancellationToken,
}

/// A token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredToken {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) created: Timestamp,
    /// SHA-256 of the text, in base64url.
    hash: String,
}

struct Entry {
    token: StoredToken,
    caller: AdminCaller,
}

/// The created tokens.
pub(crate) struct AdminTokens {
    store: Arc<dyn Store>,
    entries: ArcSwap<HashMap<String, Arc<Entry>>>,
    /// Held while tokens are changed or read.
    changing: Mutex<()>,
}

impl AdminTokens {
    /// Reads the tokens from the store.
    pub(crate) async fn open(store: &Arc<dyn Store>) -> Result<Self, StoreError> {
        let tokens =
            Self { store: Arc::clone(store), entries: ArcSwap::default(), changing: Mutex::default() };
        tokens.read().await?;
        Ok(tokens)
    }

    /// Reads the tokens again when another hub of the same store has changed them, for as long as it is polled.
    pub(crate) async fn watch(&self) -> Infallible {
        if !self.store.is_shared() {
            return std::future::pending().await;
        }
        let mut changes = self.store.signals().subscribe(topic());
        loop {
            changes.next().await;
            let _alone = self.changing.lock().await;
            if let Err(error) = self.read().await {
                tracing::warn!(%error, "the admin tokens cannot be read from the store; those known stay valid");
            }
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        let query = RecordQuery { kind: KIND.into(), limit: MAX_TOKENS, ..RecordQuery::default() };
        let records = self.store.records(&query).await?;
        let before = self.entries.load();
        let entry = |record: Record| {
            let token: StoredToken = serde_json::from_slice(&record.value).map_err(StoreError::broken)?;
            let known = before.get(&record.key).filter(|known| known.token.hash == token.hash);
            let entry = known.map_or_else(|| Arc::new(Entry::new(token)), Arc::clone);
            Ok::<_, StoreError>((record.key, entry))
        };
        let now = records.into_iter().map(entry).collect::<Result<HashMap<_, _>, _>>()?;
        for (id, entry) in before.iter() {
            if !now.get(id).is_some_and(|known| Arc::ptr_eq(known, entry)) {
                entry.caller.revoked.cancel();
            }
        }
        self.entries.store(Arc::new(now));
        Ok(())
    }

    /// The caller with this token: the one of the file, or a created one.
    pub(super) fn caller(&self, file: &Token, given: &str) -> Option<AdminCaller> {
        if file.is(given) {
            return Some(AdminCaller { role: Role::Operator, name: None, revoked: CancellationToken::new() });
        }
        let (_, rest) = given.split_once('_')?.1.split_once('_')?;
        let (id, _) = rest.split_once('_')?;
        let entry = self.entries.load().get(id).cloned()?;
        let is_it =
            constant_time::verify_slices_are_equal(hash(given).as_bytes(), entry.token.hash.as_bytes());
        is_it.is_ok().then(|| entry.caller.clone())
    }

    /// The tokens by id.
    pub(super) fn all(&self) -> Vec<(String, StoredToken)> {
        self.entries.load().iter().map(|(id, entry)| (id.clone(), entry.token.clone())).collect()
    }

    /// Creates a token; returns its id and its text, which cannot be retrieved again.
    pub(super) async fn create(
        &self,
        new: NewAdminToken,
    ) -> Result<(String, StoredToken, String), AdminProblem> {
        let NewAdminToken { name, role } = new;
        let length = name.chars().count();
        if !(1..=MAX_NAME).contains(&length) || name.chars().any(char::is_control) {
            return Err(AdminProblem::invalid(format!(
                "name: expected 1 to {MAX_NAME} printable characters"
            )));
        }
        let _alone = self.changing.lock().await;
        let entries = self.entries.load();
        if entries.values().any(|entry| entry.token.name == name) {
            return Err(AdminProblem::conflict(format!(
                "there is an admin token {name} already; revoke it first, or use another name"
            )));
        }
        if entries.len() >= MAX_TOKENS {
            return Err(AdminProblem::conflict(format!(
                "there are {MAX_TOKENS} admin tokens; revoke some first"
            )));
        }
        let (id, secret) = random().map_err(|error| {
            tracing::error!(error = %format!("{error:#}"), "an admin token could not be created");
            AdminProblem::internal()
        })?;
        let role_name = match role {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
        };
        let text = format!("nuncio_{role_name}_{id}_{secret}");
        let token = StoredToken { name, role, created: clock::now(), hash: hash(&text) };
        let value = serde_json::to_vec(&token).map_err(|_| AdminProblem::internal())?.into();
        let (key, at) = (id.as_str().into(), token.created);
        let put = PutRecord { kind: KIND.into(), key, value, at, expect: Expect::Absent };
        let results = self.store.put_records(vec![put]).await?;
        if results.iter().any(Result::is_err) {
            return Err(AdminProblem::conflict("another token has the same random id; try again"));
        }
        self.store.signals().send(topic(), &id);
        self.read().await?;
        Ok((id, token, text))
    }

    /// Revokes the token of this id or name; returns its name.
    pub(super) async fn revoke(&self, id_or_name: &str) -> Result<String, AdminProblem> {
        let _alone = self.changing.lock().await;
        let entries = self.entries.load_full();
        let by_name = || entries.iter().find(|(_, entry)| entry.token.name == id_or_name);
        let found = entries.get_key_value(id_or_name).or_else(by_name);
        let (id, entry) = found.ok_or_else(|| {
            AdminProblem::not_found(format!(
                "there is no admin token {id_or_name}; GET /api/v1/admin-tokens lists them"
            ))
        })?;
        // Another hub may have revoked it meanwhile.
        let _ = self.store.delete_record(KIND, id, Expect::Anything).await?;
        self.store.signals().send(topic(), id);
        self.read().await?;
        Ok(entry.token.name.clone())
    }
}

impl Entry {
    fn new(token: StoredToken) -> Self {
        let name = Some(token.name.as_str().into());
        let caller = AdminCaller { role: token.role, name, revoked: CancellationToken::new() };
        Self { token, caller }
    }
}

fn topic() -> Topic {
    Topic::Records(KIND.into())
}

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// An id and a secret.
fn random() -> Result<(String, String)> {
    let mut bytes = [0; ID_BYTES + SECRET_BYTES];
    rand::fill(&mut bytes).context("the system gives no random bytes")?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((hex(&bytes[..ID_BYTES]), hex(&bytes[ID_BYTES..])))
}
