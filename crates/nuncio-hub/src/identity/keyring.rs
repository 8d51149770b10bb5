//! The API keys of the hub: looked up in memory, stored as records, shared with other hubs on the same
//! database.
//!
//! | record | key | value |
//! |---|---|---|
//! | `key` | the id | the permissions of the key, and the hashes of its secrets |
//! | `key-used` | the id | time of the last use, at most a minute late; apart, so that a use is no change |
//! | `key-change` | `all` | none; its version increases with every change, of which other hubs get a signal |
//!
//! The keys of mailboxes, and invitations, have the same text and the same life, and records of kinds of their own: a key of one ring
//! is unknown to the other, on every hub and in every version of it.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use nuncio_protocol::{Caller, Timestamp};
use nuncio_server::store::{Expect, PutRecord, Record, RecordQuery, Store, StoreError, Topic};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    key::{ApiKey, NewApiKey, operations_of},
    text::{self, Hash, KeyText, PresentedKey},
};
use crate::clock::{later, now};

/// The records of a ring.
#[derive(Clone, Copy)]
struct Kinds {
    key: &'static str,
    used: &'static str,
    change: &'static str,
    /// Makes the text for an id.
    text: fn(&str) -> anyhow::Result<KeyText>,
}

/// Keys of callers.
const CALLERS: Kinds = Kinds { key: "key", used: "key-used", change: "key-change", text: KeyText::new };
/// Keys of mailboxes, each named after its mailbox.
const MAILBOXES: Kinds =
    Kinds { key: "mailbox-key", used: "mailbox-key-used", change: "mailbox-key-change", text: KeyText::new };
/// Invitations, each named after the mailbox that it becomes.
const INVITATIONS: Kinds = Kinds {
    key: "invitation",
    used: "invitation-used",
    change: "invitation-change",
    text: KeyText::invitation,
};
const ALL: &str = "all";
/// Interval at which times of last use are stored.
const LAST_USED_INTERVAL: Duration = Duration::from_secs(60);
/// Records per read.
const PAGE: usize = 500;
/// Maximum number of attempts of a change that conflicts with another.
const MAX_ATTEMPTS: usize = 5;

/// The reason why a key cannot be created or changed.
#[derive(Debug)]
pub enum KeyringError {
    /// There is no such key.
    NotFound,
    /// Another key has this name.
    Taken,
    /// A field is invalid.
    Invalid(String),
    /// The store or the system failed.
    Failed(anyhow::Error),
}

impl From<StoreError> for KeyringError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl std::fmt::Display for KeyringError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such key"),
            Self::Taken => f.write_str("there is a key of this name; rotate it, or delete it first"),
            Self::Invalid(why) => f.write_str(why),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for KeyringError {}

/// A key as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct StoredKey {
    key: ApiKey,
    /// Newest first.
    secrets: Vec<StoredSecret>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredSecret {
    /// SHA-256, in base64url.
    hash: String,
    /// End of its validity; absent: that of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// A key in memory.
pub(super) struct KeyEntry {
    key: ApiKey,
    secrets: Vec<(Hash, Option<Timestamp>)>,
    version: u64,
    /// The caller that this key authenticates.
    pub(super) caller: Caller,
    /// The agents that it may call; `None`: all.
    pub(super) agents: Option<Arc<[String]>>,
    used: Arc<Use>,
}

/// Time of the last use, in Unix milliseconds; 0: never.
#[derive(Default)]
struct Use {
    at: AtomicI64,
    /// The part that is stored.
    noted: AtomicI64,
}

/// The reason for refusing a key, worded for its holder.
pub(super) type KeyRefusal = &'static str;

impl KeyEntry {
    fn new(kept: StoredKey, version: u64, before: Option<&Self>) -> Self {
        let StoredKey { key, secrets } = kept;
        let mut caller = Caller::authenticated(key.principal.as_str());
        if let Some(tenant) = &key.tenant {
            caller = caller.of_tenant(tenant.as_str());
        }
        if let Some(operations) = &key.operations {
            // An operation that is no longer known is no longer allowed.
            let known = operations.iter().filter(|name| operations_of(&[(*name).clone()]).is_ok()).cloned();
            let known: Vec<_> = known.collect();
            caller = caller.limited_to(operations_of(&known).unwrap_or_else(|_| [].into_iter().collect()));
        }
        let decode = |secret: StoredSecret| {
            let hash = URL_SAFE_NO_PAD.decode(&secret.hash).ok()?;
            Some((hash.try_into().ok()?, secret.until))
        };
        Self {
            secrets: secrets.into_iter().filter_map(decode).collect(),
            version,
            caller,
            agents: key.agents.as_deref().map(Into::into),
            used: before.map(|before| Arc::clone(&before.used)).unwrap_or_default(),
            key,
        }
    }

    /// Checks a secret. The comparison takes constant time, so its duration tells nothing about a guess.
    fn judge(&self, hash: &Hash, now: Timestamp) -> Result<(), KeyRefusal> {
        let is_it = |secret: &&(Hash, _)| constant_time::verify_slices_are_equal(&secret.0, hash).is_ok();
        let Some((_, until)) = self.secrets.iter().find(is_it) else { return Err("there is no such key") };
        if self.key.revoked.is_some() {
            return Err("the key was revoked");
        }
        if self.key.expires.is_some_and(|expires| expires <= now) {
            return Err("the key has expired");
        }
        if until.is_some_and(|until| until <= now) {
            return Err("the key was replaced by a newer one");
        }
        Ok(())
    }

    /// The time at which a valid secret expires, as far as is known now; `None`: never.
    pub(super) fn worth_until(&self, hash: &Hash) -> Option<Timestamp> {
        let secret = self.secrets.iter().find(|(known, _)| known == hash);
        [self.key.expires, secret.and_then(|(_, until)| *until)].into_iter().flatten().min()
    }

    pub(super) fn name(&self) -> &str {
        &self.key.name
    }

    pub(super) fn id(&self) -> &str {
        &self.key.id
    }

    fn last_used(&self) -> Option<Timestamp> {
        let millis = self.used.at.load(Ordering::Relaxed);
        Some(millis).filter(|millis| *millis > 0).and_then(Timestamp::from_millis)
    }
}

#[derive(Default)]
struct Snapshot {
    by_id: HashMap<String, Arc<KeyEntry>>,
    /// The version of the record of changes at which it was read.
    change: u64,
}

/// All keys of the hub.
pub struct Keyring {
    kinds: Kinds,
    store: Arc<dyn Store>,
    snapshot: ArcSwap<Snapshot>,
    /// Held while keys are changed or loaded.
    changing: tokio::sync::Mutex<()>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("keys", &self.snapshot.load().by_id.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Loads the keys from the store.
    pub(crate) async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Self::open_ring(store, CALLERS).await
    }

    /// Loads the keys of mailboxes from the store.
    pub(crate) async fn open_mailboxes(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Self::open_ring(store, MAILBOXES).await
    }

    /// Loads the invitations from the store.
    pub(crate) async fn open_invitations(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Self::open_ring(store, INVITATIONS).await
    }

    async fn open_ring(store: Arc<dyn Store>, kinds: Kinds) -> Result<Self, StoreError> {
        let (snapshot, changing, changed) = Default::default();
        let keyring = Self { kinds, store, snapshot, changing, changed };
        keyring.load().await?;
        let used = keyring.all(kinds.used).await?;
        let snapshot = keyring.snapshot.load();
        for record in used {
            if let Some(entry) = snapshot.by_id.get(&record.key) {
                entry.used.at.store(record.at.as_millis(), Ordering::Relaxed);
                entry.used.noted.store(record.at.as_millis(), Ordering::Relaxed);
            }
        }
        Ok(keyring)
    }

    /// True if there is any key, valid or not: revoking the last one does not admit anonymous callers again.
    pub(super) fn has_any(&self) -> bool {
        !self.snapshot.load().by_id.is_empty()
    }

    /// A subscription to changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Looks up a key from a request and checks that it is valid now.
    pub(super) fn look_up(
        &self,
        given: &PresentedKey<'_>,
        now: Timestamp,
    ) -> Result<Arc<KeyEntry>, KeyRefusal> {
        let entry = self.snapshot.load().by_id.get(given.id).cloned().ok_or("there is no such key")?;
        entry.judge(&given.hash, now).map(|()| entry)
    }

    /// Looks up a key like [`Self::look_up`], and notes the time of use.
    pub(super) fn find(&self, given: &PresentedKey<'_>, now: Timestamp) -> Result<Arc<KeyEntry>, KeyRefusal> {
        let entry = self.look_up(given, now)?;
        // At most once a second: otherwise all cores would write to the same cache line.
        if now.as_millis() - entry.used.at.load(Ordering::Relaxed) > 1000 {
            entry.used.at.store(now.as_millis(), Ordering::Relaxed);
        }
        Ok(entry)
    }

    /// All keys, sorted by name, each with the time of its last use.
    #[must_use]
    pub fn list(&self) -> Vec<(ApiKey, Option<Timestamp>)> {
        let snapshot = self.snapshot.load();
        let mut keys: Vec<_> =
            snapshot.by_id.values().map(|entry| (entry.key.clone(), entry.last_used())).collect();
        keys.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        keys
    }

    /// The key with this id or name, and the time of its last use.
    #[must_use]
    pub fn show(&self, id_or_name: &str) -> Option<(ApiKey, Option<Timestamp>)> {
        let snapshot = self.snapshot.load();
        let by_name = || snapshot.by_id.values().find(|entry| entry.key.name == id_or_name);
        let entry = snapshot.by_id.get(id_or_name).or_else(by_name)?;
        Some((entry.key.clone(), entry.last_used()))
    }

    /// The hashes of the valid secrets of the key of this name, newest first: a secret that its holder can derive.
    pub(crate) fn hashes(&self, name: &str, now: Timestamp) -> Vec<[u8; 32]> {
        let snapshot = self.snapshot.load();
        let entry = snapshot.by_id.values().find(|entry| entry.key.name == name);
        let valid = entry.into_iter().flat_map(|entry| {
            let hashes = entry.secrets.iter().map(|(hash, _)| hash);
            hashes.filter(|hash| entry.judge(hash, now).is_ok())
        });
        valid.copied().collect()
    }

    /// Creates a key. Its text cannot be retrieved again.
    ///
    /// # Errors
    /// A field is invalid, the name is taken, or the store fails.
    pub async fn create(&self, new: NewApiKey) -> Result<(ApiKey, KeyText), KeyringError> {
        let _alone = self.changing.lock().await;
        if self.snapshot.load().by_id.values().any(|entry| entry.key.name == new.name) {
            return Err(KeyringError::Taken);
        }
        let id = text::new_id().map_err(KeyringError::Failed)?;
        let text = (self.kinds.text)(&id).map_err(KeyringError::Failed)?;
        let key = new.check(id, now()).map_err(KeyringError::Invalid)?;
        let kept = StoredKey { key: key.clone(), secrets: vec![StoredSecret::of(&text)] };
        if !self.put(&kept, Expect::Absent).await? {
            return Err(KeyringError::Taken);
        }
        self.load().await?;
        Ok((key, text))
    }

    /// Gives a key a new secret. The previous one stays valid for `overlap`.
    ///
    /// # Errors
    /// There is no such key, it was revoked, or the store fails.
    pub async fn rotate(
        &self,
        id_or_name: &str,
        overlap: Duration,
    ) -> Result<(ApiKey, KeyText), KeyringError> {
        let mut made = None;
        let key = self
            .change(id_or_name, |kept| {
                if kept.key.revoked.is_some() {
                    return Err(KeyringError::Invalid("the key was revoked; create another".to_owned()));
                }
                let text = (self.kinds.text)(&kept.key.id).map_err(KeyringError::Failed)?;
                let (now, ends) = (now(), later(now(), overlap));
                kept.secrets.truncate(1);
                kept.secrets.iter_mut().for_each(|before| before.until = Some(ends));
                kept.secrets.insert(0, StoredSecret::of(&text));
                kept.key.rotated = Some(now);
                kept.key.overlap_ends = Some(ends);
                made = Some(text);
                Ok(())
            })
            .await?;
        Ok((key, made.ok_or(KeyringError::NotFound)?))
    }

    /// Revokes a key at once: its open streams end.
    ///
    /// # Errors
    /// There is no such key, or the store fails.
    pub async fn revoke(&self, id_or_name: &str) -> Result<ApiKey, KeyringError> {
        let revoke = |kept: &mut StoredKey| {
            kept.key.revoked.get_or_insert_with(now);
            Ok(())
        };
        self.change(id_or_name, revoke).await
    }

    /// Revokes a key that is used once. Of several that try, one succeeds, over all hubs.
    ///
    /// # Errors
    /// There is no such key any more, or the store fails.
    pub(crate) async fn spend(&self, id: &str) -> Result<ApiKey, KeyringError> {
        let spend = |kept: &mut StoredKey| match kept.key.revoked {
            Some(_) => Err(KeyringError::NotFound),
            None => {
                kept.key.revoked = Some(now());
                Ok(())
            }
        };
        self.change(id, spend).await
    }

    /// Makes a key valid again that was spent for nothing.
    ///
    /// # Errors
    /// There is no such key any more, or the store fails.
    pub(crate) async fn give_back(&self, id: &str) -> Result<ApiKey, KeyringError> {
        let restore = |kept: &mut StoredKey| {
            kept.key.revoked = None;
            Ok(())
        };
        self.change(id, restore).await
    }

    /// Deletes a key at once: its open streams end.
    ///
    /// # Errors
    /// There is no such key, or the store fails.
    pub async fn delete(&self, id_or_name: &str) -> Result<ApiKey, KeyringError> {
        // Revoked first: if the hub stops in between, no hub accepts the key.
        let key = self.revoke(id_or_name).await?;
        let _alone = self.changing.lock().await;
        for kind in [self.kinds.key, self.kinds.used] {
            // The record may be absent.
            let _ = self.store.delete_record(kind, &key.id, Expect::Anything).await?;
        }
        let _ = self.store.put_records(vec![self.changed_now()]).await?;
        self.store.signals().send(self.topic(), ALL);
        self.load().await?;
        Ok(key)
    }

    async fn change(
        &self,
        id_or_name: &str,
        mut change: impl FnMut(&mut StoredKey) -> Result<(), KeyringError>,
    ) -> Result<ApiKey, KeyringError> {
        let _alone = self.changing.lock().await;
        let (ApiKey { id, .. }, _) = self.show(id_or_name).ok_or(KeyringError::NotFound)?;
        for _ in 0..MAX_ATTEMPTS {
            let record = self.store.record(self.kinds.key, &id).await?.ok_or(KeyringError::NotFound)?;
            let mut kept = decode(&record).map_err(KeyringError::Failed)?;
            change(&mut kept)?;
            if self.put(&kept, Expect::Version(record.version)).await? {
                self.load().await?;
                return Ok(kept.key);
            }
        }
        Err(KeyringError::Failed(anyhow::anyhow!("the key is being changed by others; try again")))
    }

    /// Stores a key; false if another hub has changed it meanwhile.
    async fn put(&self, kept: &StoredKey, expect: Expect) -> Result<bool, KeyringError> {
        let value = serde_json::to_vec(kept).map_err(|error| KeyringError::Failed(error.into()))?;
        let put = put(self.kinds.key, &kept.key.id, value.into(), now(), expect);
        let outcome = self.store.put_records(vec![put, self.changed_now()]).await?;
        self.store.signals().send(self.topic(), ALL);
        Ok(outcome.first().is_some_and(Result::is_ok))
    }

    /// The topic of changes for other hubs.
    fn topic(&self) -> Topic {
        Topic::Records(self.kinds.change.into())
    }

    fn changed_now(&self) -> PutRecord {
        put(self.kinds.change, ALL, Bytes::new(), now(), Expect::Anything)
    }

    /// Loads all keys from the store.
    async fn load(&self) -> Result<(), StoreError> {
        // Read before the keys: a change while they are read is then seen by the next check.
        let change = self.store.record(self.kinds.change, ALL).await?.map_or(0, |record| record.version);
        let before = self.snapshot.load();
        let mut by_id = HashMap::new();
        for record in self.all(self.kinds.key).await? {
            let known = before.by_id.get(&record.key);
            let entry = match known {
                Some(known) if known.version == record.version => Arc::clone(known),
                _ => match decode(&record) {
                    Ok(kept) => Arc::new(KeyEntry::new(kept, record.version, known.map(|known| &**known))),
                    Err(error) => {
                        tracing::error!(key = record.key, %error, "an API key cannot be read; calls with it are refused");
                        continue;
                    }
                },
            };
            by_id.insert(record.key, entry);
        }
        self.snapshot.store(Arc::new(Snapshot { by_id, change }));
        self.changed.send_modify(|changes| *changes += 1);
        Ok(())
    }

    async fn all(&self, kind: &str) -> Result<Vec<Record>, StoreError> {
        let mut all: Vec<Record> = Vec::new();
        loop {
            let after = all.last().map(|record| record.key.clone());
            let query = RecordQuery { kind: kind.into(), after, limit: PAGE, ..RecordQuery::default() };
            let page = self.store.records(&query).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Applies changes by other hubs and stores times of last use, for as long as it is polled.
    pub(super) async fn follow(&self) -> Infallible {
        let mut ticks = tokio::time::interval(LAST_USED_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = self.store.is_shared().then(|| self.store.signals().subscribe(self.topic()));
        loop {
            let others = async {
                match &mut signals {
                    Some(signals) => drop(signals.next().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = ticks.tick() => self.note_use().await,
                () = others => if let Err(error) = self.look().await {
                    tracing::debug!(%error, "changes of keys could not be read");
                },
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let change = self.store.record(self.kinds.change, ALL).await?.map_or(0, |record| record.version);
        if change == self.snapshot.load().change {
            return Ok(());
        }
        let _alone = self.changing.lock().await;
        self.load().await
    }

    /// Stores the times of last use.
    pub(super) async fn note_use(&self) {
        let snapshot = self.snapshot.load_full();
        let is_news = |entry: &&Arc<KeyEntry>| {
            entry.used.at.load(Ordering::Relaxed) > entry.used.noted.load(Ordering::Relaxed)
        };
        let used = snapshot.by_id.values().filter(is_news);
        let used: Vec<_> = used.filter_map(|entry| Some((entry, entry.last_used()?))).collect();
        if used.is_empty() {
            return;
        }
        let put = |(entry, at): &(&Arc<KeyEntry>, Timestamp)| {
            put(self.kinds.used, entry.id(), Bytes::new(), *at, Expect::Anything)
        };
        match self.store.put_records(used.iter().map(put).collect()).await {
            Ok(_) => {
                used.iter().for_each(|(entry, at)| entry.used.noted.store(at.as_millis(), Ordering::Relaxed));
            }
            Err(error) => tracing::debug!(%error, "last-used times of API keys could not be stored"),
        }
    }
}

impl StoredSecret {
    fn of(text: &KeyText) -> Self {
        Self { hash: URL_SAFE_NO_PAD.encode(text.hash()), until: None }
    }
}

fn put(kind: &str, key: &str, value: Bytes, at: Timestamp, expect: Expect) -> PutRecord {
    PutRecord { kind: kind.into(), key: key.into(), value, at, expect }
}

fn decode(record: &Record) -> anyhow::Result<StoredKey> {
    Ok(serde_json::from_slice(&record.value)?)
}

#[cfg(test)]
mod tests;
