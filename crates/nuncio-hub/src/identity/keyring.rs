//! The API keys of the hub: found in memory, kept as records, shared with other hubs on the same database.
//!
//! | record | key | says |
//! |---|---|---|
//! | `key` | the id | what the key allows, and the hashes of its secrets |
//! | `key-used` | the id | when it was last used, a minute late at most; apart, so that use is no change |
//! | `key-change` | `all` | nothing; its version grows with every change, which is what other hubs look at |

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
use nuncio_server::store::{Expect, PutRecord, Record, RecordQuery, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    key::{Key, NewKey, operations_of},
    text::{self, Given, Hash, KeyText},
};
use crate::clock::{later, now};

const KEY: &str = "key";
const USED: &str = "key-used";
const CHANGE: &str = "key-change";
const ALL: &str = "all";
/// How often a hub looks whether another has changed something.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is written down which keys were used, in looks.
const LOOKS_PER_NOTE: u32 = 60;
/// How many records are read at a time.
const PAGE: usize = 500;
/// How often a change is tried again that lost against another.
const TRIES: usize = 5;

/// Why a key cannot be made or changed.
#[derive(Debug)]
pub enum KeyringError {
    /// There is no such key.
    NotFound,
    /// Another key has this name.
    Taken,
    /// What is said about it cannot be.
    Invalid(String),
    /// The store, or the system.
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

/// What is kept of a key.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    key: Key,
    /// The newest first.
    secrets: Vec<Secret>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Secret {
    /// SHA-256, in base64url.
    hash: String,
    /// Until when it is taken; absent: as long as the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// A key that may be shown.
pub(super) struct Entry {
    key: Key,
    secrets: Vec<(Hash, Option<Timestamp>)>,
    version: u64,
    /// Whoever has shown it.
    pub(super) caller: Caller,
    /// The agents that it is for.
    pub(super) agents: Option<Arc<[String]>>,
    used: Arc<Use>,
}

/// When a key was last used. Unix milliseconds; 0: never.
#[derive(Default)]
struct Use {
    at: AtomicI64,
    /// What of it is written down.
    noted: AtomicI64,
}

/// Why a key is not taken, in words for whoever has its secret.
pub(super) type Refusal = &'static str;

impl Entry {
    fn new(kept: Kept, version: u64, before: Option<&Self>) -> Self {
        let Kept { key, secrets } = kept;
        let mut caller = Caller::authenticated(key.principal.as_str());
        if let Some(tenant) = &key.tenant {
            caller = caller.of_tenant(tenant.as_str());
        }
        if let Some(operations) = &key.operations {
            // What is not known any more is not allowed any more.
            let known = operations.iter().filter(|name| operations_of(&[(*name).clone()]).is_ok()).cloned();
            let known: Vec<_> = known.collect();
            caller = caller.limited_to(operations_of(&known).unwrap_or_else(|_| [].into_iter().collect()));
        }
        let decode = |secret: Secret| {
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

    /// How long it takes tells nothing about how much of a guess is right.
    fn judge(&self, hash: &Hash, now: Timestamp) -> Result<(), Refusal> {
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

    /// Until when a secret that was taken is, as far as is known now; `None`: for ever.
    pub(super) fn worth_until(&self, hash: &Hash) -> Option<Timestamp> {
        let secret = self.secrets.iter().find(|(known, _)| known == hash);
        [self.key.expires, secret.and_then(|(_, until)| *until)].into_iter().flatten().min()
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
    by_id: HashMap<String, Arc<Entry>>,
    /// The version of [`CHANGE`] that it is of.
    change: u64,
}

/// All keys of the hub.
pub struct Keyring {
    store: Arc<dyn Store>,
    snapshot: ArcSwap<Snapshot>,
    /// Held while something is changed or read anew.
    changing: tokio::sync::Mutex<()>,
    /// Grows with every change.
    changed: watch::Sender<u64>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("keys", &self.snapshot.load().by_id.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// The keys that the store has.
    pub(crate) async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let (snapshot, changing, changed) = Default::default();
        let keyring = Self { store, snapshot, changing, changed };
        keyring.load().await?;
        let used = keyring.all(USED).await?;
        let snapshot = keyring.snapshot.load();
        for record in used {
            if let Some(entry) = snapshot.by_id.get(&record.key) {
                entry.used.at.store(record.at.as_millis(), Ordering::Relaxed);
                entry.used.noted.store(record.at.as_millis(), Ordering::Relaxed);
            }
        }
        Ok(keyring)
    }

    /// True if there is a key, be it worth anything or not: one that was revoked opens no door again.
    pub(super) fn has_any(&self) -> bool {
        !self.snapshot.load().by_id.is_empty()
    }

    /// Tells of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The key that was given, if it is worth anything now.
    pub(super) fn look_up(&self, given: &Given<'_>, now: Timestamp) -> Result<Arc<Entry>, Refusal> {
        let entry = self.snapshot.load().by_id.get(given.id).cloned().ok_or("there is no such key")?;
        entry.judge(&given.hash, now).map(|()| entry)
    }

    /// The same, and it is used by that.
    pub(super) fn find(&self, given: &Given<'_>, now: Timestamp) -> Result<Arc<Entry>, Refusal> {
        let entry = self.look_up(given, now)?;
        // Not at each use: all cores would write to the same place.
        if now.as_millis() - entry.used.at.load(Ordering::Relaxed) > 1000 {
            entry.used.at.store(now.as_millis(), Ordering::Relaxed);
        }
        Ok(entry)
    }

    /// All keys with when they were last used, by name.
    #[must_use]
    pub fn list(&self) -> Vec<(Key, Option<Timestamp>)> {
        let snapshot = self.snapshot.load();
        let mut keys: Vec<_> =
            snapshot.by_id.values().map(|entry| (entry.key.clone(), entry.last_used())).collect();
        keys.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        keys
    }

    /// The key of this id or name, and when it was last used.
    #[must_use]
    pub fn show(&self, id_or_name: &str) -> Option<(Key, Option<Timestamp>)> {
        let snapshot = self.snapshot.load();
        let by_name = || snapshot.by_id.values().find(|entry| entry.key.name == id_or_name);
        let entry = snapshot.by_id.get(id_or_name).or_else(by_name)?;
        Some((entry.key.clone(), entry.last_used()))
    }

    /// Makes a key. Its text is not to be had again.
    ///
    /// # Errors
    /// It cannot be so, or not be kept.
    pub async fn create(&self, new: NewKey) -> Result<(Key, KeyText), KeyringError> {
        let _alone = self.changing.lock().await;
        if self.snapshot.load().by_id.values().any(|entry| entry.key.name == new.name) {
            return Err(KeyringError::Taken);
        }
        let id = text::new_id().map_err(KeyringError::Failed)?;
        let text = KeyText::new(&id).map_err(KeyringError::Failed)?;
        let key = new.check(id, now()).map_err(KeyringError::Invalid)?;
        let kept = Kept { key: key.clone(), secrets: vec![Secret::of(&text)] };
        if !self.put(&kept, Expect::Absent).await? {
            return Err(KeyringError::Taken);
        }
        self.load().await?;
        Ok((key, text))
    }

    /// Gives a key a new secret. The one before is taken for as long as `overlap` says.
    ///
    /// # Errors
    /// There is no such key, it was revoked, or it cannot be kept.
    pub async fn rotate(&self, id_or_name: &str, overlap: Duration) -> Result<(Key, KeyText), KeyringError> {
        let mut made = None;
        let key = self
            .change(id_or_name, |kept| {
                if kept.key.revoked.is_some() {
                    return Err(KeyringError::Invalid("the key was revoked; create another".to_owned()));
                }
                let text = KeyText::new(&kept.key.id).map_err(KeyringError::Failed)?;
                let (now, ends) = (now(), later(now(), overlap));
                kept.secrets.truncate(1);
                kept.secrets.iter_mut().for_each(|before| before.until = Some(ends));
                kept.secrets.insert(0, Secret::of(&text));
                kept.key.rotated = Some(now);
                kept.key.overlap_ends = Some(ends);
                made = Some(text);
                Ok(())
            })
            .await?;
        Ok((key, made.ok_or(KeyringError::NotFound)?))
    }

    /// Takes a key back, at once: its open streams end.
    ///
    /// # Errors
    /// There is no such key, or it cannot be kept.
    pub async fn revoke(&self, id_or_name: &str) -> Result<Key, KeyringError> {
        let revoke = |kept: &mut Kept| {
            kept.key.revoked.get_or_insert_with(now);
            Ok(())
        };
        self.change(id_or_name, revoke).await
    }

    /// Forgets a key, at once: its open streams end.
    ///
    /// # Errors
    /// There is no such key, or the store fails.
    pub async fn delete(&self, id_or_name: &str) -> Result<Key, KeyringError> {
        // First revoked: should we stop in between, it is worth nothing in any hub.
        let key = self.revoke(id_or_name).await?;
        let _alone = self.changing.lock().await;
        for kind in [KEY, USED] {
            // Whether it is there does not matter.
            let _ = self.store.delete_record(kind, &key.id, Expect::Anything).await?;
        }
        let _ = self.store.put_records(vec![changed_now()]).await?;
        self.load().await?;
        Ok(key)
    }

    async fn change(
        &self,
        id_or_name: &str,
        mut change: impl FnMut(&mut Kept) -> Result<(), KeyringError>,
    ) -> Result<Key, KeyringError> {
        let _alone = self.changing.lock().await;
        let (Key { id, .. }, _) = self.show(id_or_name).ok_or(KeyringError::NotFound)?;
        for _ in 0..TRIES {
            let record = self.store.record(KEY, &id).await?.ok_or(KeyringError::NotFound)?;
            let mut kept = decode(&record).map_err(KeyringError::Failed)?;
            change(&mut kept)?;
            if self.put(&kept, Expect::Version(record.version)).await? {
                self.load().await?;
                return Ok(kept.key);
            }
        }
        Err(KeyringError::Failed(anyhow::anyhow!("others change this key all the time; try again")))
    }

    /// False if somebody else was faster.
    async fn put(&self, kept: &Kept, expect: Expect) -> Result<bool, KeyringError> {
        let value = serde_json::to_vec(kept).map_err(|error| KeyringError::Failed(error.into()))?;
        let put = put(KEY, &kept.key.id, value.into(), now(), expect);
        let outcome = self.store.put_records(vec![put, changed_now()]).await?;
        Ok(outcome.first().is_some_and(Result::is_ok))
    }

    /// Reads all keys anew.
    async fn load(&self) -> Result<(), StoreError> {
        // Before the keys: a change while we read is seen by the next look.
        let change = self.store.record(CHANGE, ALL).await?.map_or(0, |record| record.version);
        let before = self.snapshot.load();
        let mut by_id = HashMap::new();
        for record in self.all(KEY).await? {
            let known = before.by_id.get(&record.key);
            let entry = match known {
                Some(known) if known.version == record.version => Arc::clone(known),
                _ => match decode(&record) {
                    Ok(kept) => Arc::new(Entry::new(kept, record.version, known.map(|known| &**known))),
                    Err(error) => {
                        tracing::error!(key = record.key, %error, "a key cannot be read; it is worth nothing");
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

    /// Looks after what other hubs change, and writes down what was used, for as long as it is polled.
    pub(super) async fn follow(&self) -> Infallible {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            ticks.tick().await;
            looks = looks.wrapping_add(1);
            if self.store.is_shared()
                && let Err(error) = self.look().await
            {
                tracing::debug!(%error, "changes of keys could not be read");
            }
            if looks.is_multiple_of(LOOKS_PER_NOTE) {
                self.note_use().await;
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let change = self.store.record(CHANGE, ALL).await?.map_or(0, |record| record.version);
        if change == self.snapshot.load().change {
            return Ok(());
        }
        let _alone = self.changing.lock().await;
        self.load().await
    }

    /// Writes down when keys were last used.
    pub(super) async fn note_use(&self) {
        let snapshot = self.snapshot.load_full();
        let is_news = |entry: &&Arc<Entry>| {
            entry.used.at.load(Ordering::Relaxed) > entry.used.noted.load(Ordering::Relaxed)
        };
        let used = snapshot.by_id.values().filter(is_news);
        let used: Vec<_> = used.filter_map(|entry| Some((entry, entry.last_used()?))).collect();
        if used.is_empty() {
            return;
        }
        let put = |(entry, at): &(&Arc<Entry>, Timestamp)| {
            put(USED, entry.id(), Bytes::new(), *at, Expect::Anything)
        };
        match self.store.put_records(used.iter().map(put).collect()).await {
            Ok(_) => {
                used.iter().for_each(|(entry, at)| entry.used.noted.store(at.as_millis(), Ordering::Relaxed));
            }
            Err(error) => tracing::debug!(%error, "it could not be written down which keys were used"),
        }
    }
}

impl Secret {
    fn of(text: &KeyText) -> Self {
        Self { hash: URL_SAFE_NO_PAD.encode(text.hash()), until: None }
    }
}

fn changed_now() -> PutRecord {
    put(CHANGE, ALL, Bytes::new(), now(), Expect::Anything)
}

fn put(kind: &str, key: &str, value: Bytes, at: Timestamp, expect: Expect) -> PutRecord {
    PutRecord { kind: kind.into(), key: key.into(), value, at, expect }
}

fn decode(record: &Record) -> anyhow::Result<Kept> {
    Ok(serde_json::from_slice(&record.value)?)
}

#[cfg(test)]
mod tests;
