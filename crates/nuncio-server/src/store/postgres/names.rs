//! Names in the database: ids of scopes, and the encoding of text for PostgreSQL.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::store::Scope;

/// The escape character: NUL becomes MARK and U+0001, MARK becomes MARK and U+0002. The order of texts stays.
const MARK: char = '\u{1}';

/// Encodes text for a column: PostgreSQL accepts every character except NUL, which callers may send.
pub(super) fn text(name: &str) -> Cow<'_, str> {
    if !name.contains(['\0', MARK]) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace(MARK, "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"))
}

/// Decodes the result of [`text`].
pub(super) fn plain(name: &str) -> Cow<'_, str> {
    if !name.contains(MARK) {
        return Cow::Borrowed(name);
    }
    let mut whole = String::with_capacity(name.len());
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        whole.push(match character {
            MARK if characters.next() == Some(MARK) => '\0',
            other => other,
        });
    }
    Cow::Owned(whole)
}

/// The id of a scope: a digest of its names, so that it is known without a query.
pub(super) fn scope_id(scope: &Scope) -> Uuid {
    let mut digest = Sha256::new();
    for name in [Some(&scope.agent), scope.tenant.as_ref(), scope.owner.as_ref()] {
        // The length tells an absent name from an empty one, and keeps adjacent names apart.
        digest.update(name.map_or(u64::MAX, |name| name.len() as u64).to_be_bytes());
        digest.update(name.map_or("", |name| name).as_bytes());
    }
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    Uuid::from_bytes(id)
}

#[cfg(test)]
mod tests {
    use super::{plain, scope_id, text};
    use crate::store::Scope;

    #[test]
    fn every_text_comes_back_and_the_database_takes_it() {
        let ordered = [
            "",
            "\0",
            "\0\0",
            "\0\u{1}\0",
            "\u{1}",
            "\u{1}\0",
            "\u{1}\u{1}",
            "\u{2}",
            "a",
            "a\0",
            "a\0b",
            "ü\0",
        ];
        for name in ordered {
            assert!(!text(name).contains('\0'));
            assert_eq!(plain(&text(name)), name, "{name:?}");
        }
        assert!(ordered.map(|name| text(name).into_owned()).is_sorted(), "and the order stays");
    }

    #[test]
    fn scopes_with_different_names_have_different_ids() {
        let names = [None, Some(""), Some("a"), Some("ab")];
        let mut ids = std::collections::HashSet::new();
        for agent in ["", "a", "ab"] {
            for tenant in names {
                for owner in names {
                    let scope = Scope {
                        agent: agent.into(),
                        tenant: tenant.map(Into::into),
                        owner: owner.map(Into::into),
                    };
                    assert!(ids.insert(scope_id(&scope)), "{scope:?}");
                }
            }
        }
        let anonymous = Scope { agent: "echo".into(), ..Scope::default() };
        assert_eq!(
            scope_id(&anonymous).to_string(),
            "7fa403bd-fc82-61d0-43a7-a8cce9e149ca",
            "it is in databases"
        );
    }
}
