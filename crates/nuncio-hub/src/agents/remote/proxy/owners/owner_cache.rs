//! A cache of recently recorded or read owners.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use foldhash::fast::RandomState;
use nuncio_protocol::{Caller, Timestamp};

use super::super::owner::Owner;

/// Owners in a generation of the cache; there are two generations.
const KNOWN: usize = 8_192;

/// An owner, and the time of its record.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct CachedOwner {
    pub(super) owner: Owner,
    pub(super) at: Timestamp,
}

impl CachedOwner {
    pub(super) fn is(&self, caller: &Caller) -> bool {
        self.owner.is(caller)
    }
}

/// An owner, encoded for records.
#[derive(Debug)]
pub(super) struct Name {
    /// The value of an `owner` record.
    pub(super) value: Bytes,
    /// The prefix of the keys of its `owned` records.
    pub(super) counted: Box<str>,
}

impl Name {
    pub(super) fn new(agent: &str, owner: &Owner) -> Self {
        Self { value: owner.json().into(), counted: format!("{agent}/{}/", owner.key()).into() }
    }
}

/// A cache in two generations: a full young generation becomes the old one. Entries in use move to the
/// young generation, without a list to keep in order. Callers choose some of the keys, so the hashes are
/// seeded at random and the size is bounded.
#[derive(Default)]
pub(super) struct OwnerCache {
    young: HashMap<Arc<str>, Arc<CachedOwner>, RandomState>,
    old: HashMap<Arc<str>, Arc<CachedOwner>, RandomState>,
    names: HashMap<Owner, Arc<Name>, RandomState>,
}

impl OwnerCache {
    pub(super) fn get(&mut self, key: &str) -> Option<Arc<CachedOwner>> {
        if let Some(owned) = self.young.get(key) {
            return Some(Arc::clone(owned));
        }
        let (key, owned) = self.old.remove_entry(key)?;
        self.put(key, &owned);
        Some(owned)
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(super) fn put(&mut self, key: Arc<str>, owned: &Arc<CachedOwner>) {
        if self.young.len() >= KNOWN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, Arc::clone(owned));
    }

    /// The encoded owner; cached up to [`KNOWN`] owners.
    pub(super) fn name(&mut self, agent: &str, owner: &Owner) -> Arc<Name> {
        if let Some(name) = self.names.get(owner) {
            return Arc::clone(name);
        }
        if self.names.len() >= KNOWN {
            self.names.clear();
        }
        let name = Arc::new(Name::new(agent, owner));
        self.names.insert(owner.clone(), Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Timestamp;

    use super::*;

    #[test]
    fn what_is_known_has_a_bound_and_what_is_used_stays() {
        let mut known = OwnerCache::default();
        let owner = Arc::new(CachedOwner { owner: Owner::of(&Caller::anonymous()), at: Timestamp::EPOCH });
        known.put("kept".into(), &owner);
        for n in 0..5 * KNOWN {
            known.put(n.to_string().into(), &owner);
            if n % 1_000 == 0 {
                assert!(known.get("kept").is_some(), "{n}");
            }
        }
        assert!(known.young.len() + known.old.len() <= 2 * KNOWN + 1);
        assert!(known.get("0").is_none());
    }

    #[test]
    fn names_are_made_once_and_have_a_bound() {
        let mut known = OwnerCache::default();
        let owner = |n: usize| Owner::of(&Caller::authenticated(n.to_string()));
        let [one, again] = [(); 2].map(|()| known.name("a", &owner(0)));
        assert!(Arc::ptr_eq(&one, &again));
        assert_eq!((&*one.value, &*one.counted), (&*owner(0).json(), &*format!("a/{}/", owner(0).key())));
        for n in 0..2 * KNOWN {
            assert_eq!(*known.name("a", &owner(n)).value, owner(n).json());
        }
        assert!(known.names.len() <= KNOWN);
    }
}
