//! The stored facts about an API key: principal, permissions, limits, expiry. The secret is not among them.

use nuncio_protocol::{
    Timestamp,
    op::{Op, OpSet},
};
use serde::{Deserialize, Serialize};

use crate::config::Rate;

/// Maximum length of the name of a key, a principal or a tenant.
const MAX_NAME_BYTES: usize = 128;

/// An API key, without its secret.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Random id; part of the key's text.
    pub id: String,
    /// The name that operators gave it.
    pub name: String,
    /// Owner of the tasks that its callers see. Keys of one principal share them.
    pub principal: String,
    /// Tenant: keeps tasks apart from those of the same principal in other tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The agents that it may call; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The operations that it may call, by name; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<String>>,
    /// Limits that replace those for every caller.
    #[serde(default, skip_serializing_if = "ApiKeyLimits::is_empty")]
    pub limits: ApiKeyLimits,
    /// Time of creation.
    pub created: Timestamp,
    /// Time of expiry; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Time of revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    /// Time of the last rotation of its secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<Timestamp>,
    /// Time until which the previous secret is still valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ends: Option<Timestamp>,
}

/// Limits of a key. An absent one is as for every caller.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyLimits {
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Requests at once after a pause; absent: one second's worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Sends in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Open streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}

impl ApiKeyLimits {
    /// True if no limit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The rate limit, if one is set.
    pub(crate) fn rate(&self) -> Option<Rate> {
        let per_second = self.per_second?;
        Some(Rate { per_second, burst: self.burst })
    }
}

/// A key to create.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NewApiKey {
    /// The name; unique among keys.
    pub name: String,
    /// Owner of the tasks that its callers see; absent: the name.
    pub principal: Option<String>,
    pub tenant: Option<String>,
    /// The agents that it may call; absent: all. They need not exist yet.
    pub agents: Option<Vec<String>>,
    /// The operations that it may call, by name; absent: all.
    pub operations: Option<Vec<String>>,
    pub expires: Option<Timestamp>,
    pub limits: ApiKeyLimits,
}

impl NewApiKey {
    /// A key of this name, without restrictions.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Validates the fields and makes the key.
    pub(super) fn check(self, id: String, now: Timestamp) -> Result<ApiKey, String> {
        let principal = self.principal.unwrap_or_else(|| self.name.clone());
        let named =
            [("name", Some(&self.name)), ("principal", Some(&principal)), ("tenant", self.tenant.as_ref())];
        for (what, name) in named {
            name.map_or(Ok(()), |name| check_name(what, name))?;
        }
        if let Some(agents) = &self.agents {
            if agents.is_empty() {
                return Err("agents: name one, or leave them out for all".to_owned());
            }
            if let Some(wrong) = agents.iter().find(|agent| !is_agent_name(agent)) {
                return Err(format!("agents: {wrong:?} is not a valid name of an agent"));
            }
        }
        if let Some(operations) = &self.operations {
            operations_of(operations)?;
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err("expires: that is in the past".to_owned());
        }
        let ApiKeyLimits { per_second, burst, .. } = self.limits;
        if per_second.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) || burst == Some(0) {
            return Err("limits: expected a rate and a burst of more than 0".to_owned());
        }
        Ok(ApiKey {
            id,
            name: self.name,
            principal,
            tenant: self.tenant,
            agents: self.agents,
            operations: self.operations,
            limits: self.limits,
            created: now,
            expires: self.expires,
            revoked: None,
            rotated: None,
            overlap_ends: None,
        })
    }
}

/// Excludes `#`, which principals of issuers contain: so no key can have the principal of a token.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._@:/+".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
        return Err(format!(
            "{what}: expected 1 to {MAX_NAME_BYTES} of the characters a-z A-Z 0-9 - . _ @ : / +"
        ));
    }
    Ok(())
}

/// The second seat of a room, NAME/b, is an agent of its own.
fn is_agent_name(name: &str) -> bool {
    let name = name.strip_suffix("/b").unwrap_or(name);
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_plain) && name.chars().all(|c| is_plain(c) || c == '-') && name.len() <= 63
}

/// The operations with these names.
pub(super) fn operations_of(names: &[String]) -> Result<OpSet, String> {
    if names.is_empty() {
        return Err("operations: name one, or leave them out for all".to_owned());
    }
    let op = |name: &String| {
        Op::from_name(name).ok_or_else(|| {
            let known: Vec<_> = Op::TABLE.iter().map(|row| row.name).collect();
            format!("operations: there is no {name:?}; there are {}", known.join(", "))
        })
    };
    names.iter().map(op).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_may_say() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        let key = || NewApiKey::named("team-a");
        let limits = |per_second, burst| ApiKeyLimits { per_second, burst, ..ApiKeyLimits::default() };
        for (new, complaint) in [
            (key(), None),
            (NewApiKey { principal: Some("alice@example.com".to_owned()), ..key() }, None),
            (NewApiKey { agents: words(&["billing", "search-2"]), ..key() }, None),
            (NewApiKey { operations: words(&["SendMessage"]), ..key() }, None),
            (NewApiKey { limits: limits(Some(0.5), None), ..key() }, None),
            (NewApiKey::named(""), Some("name: ")),
            (NewApiKey::named("a b"), Some("name: ")),
            (NewApiKey::named("x".repeat(129)), Some("name: ")),
            (NewApiKey { principal: Some("https://issuer#me".to_owned()), ..key() }, Some("principal: ")),
            (NewApiKey { tenant: Some(String::new()), ..key() }, Some("tenant: ")),
            (NewApiKey { agents: words(&[]), ..key() }, Some("agents: name one")),
            (NewApiKey { agents: words(&["Billing"]), ..key() }, Some("\"Billing\"")),
            (NewApiKey { operations: words(&[]), ..key() }, Some("operations: name one")),
            (NewApiKey { operations: words(&["send"]), ..key() }, Some("there are SendMessage")),
            (NewApiKey { expires: Some(now), ..key() }, Some("in the past")),
            (NewApiKey { limits: limits(Some(0.0), None), ..key() }, Some("limits: ")),
            (NewApiKey { limits: limits(Some(1.0), Some(0)), ..key() }, Some("limits: ")),
        ] {
            let said = new.clone().check("id".to_owned(), now).err();
            assert_eq!(said.is_some(), complaint.is_some(), "{new:?}: {said:?}");
            let said = said.unwrap_or_default();
            assert!(said.contains(complaint.unwrap_or_default()), "{new:?}: {said}");
        }
        assert_eq!(key().check("id".to_owned(), now).unwrap().principal, "team-a", "its own name");
    }
}
