//! Checks of secrets: created once, one per name.

use std::sync::Arc;

use futures_util::future::join_all;

use super::works;
use crate::store::Store;

/// A secret stays the same, even if many callers ask for it first at the same time.
pub async fn a_secret_is_made_once_and_each_is_its_own(store: Arc<dyn Store>) {
    let names = ["cursor", "webhook", "", "cursor "];
    let asked = names.iter().cycle().take(32).map(|name| store.secret(name));
    let secrets: Vec<[u8; 32]> = join_all(asked).await.into_iter().map(works).collect();
    for (i, secret) in secrets.iter().enumerate() {
        assert_eq!(*secret, secrets[i % names.len()], "the same each time");
    }
    for (i, secret) in secrets[..names.len()].iter().enumerate() {
        assert!(!secrets[..i].contains(secret), "one for each name");
        assert_ne!(*secret, [0; 32]);
    }
    for (name, secret) in names.iter().zip(secrets) {
        assert_eq!(works(store.secret(name).await), secret);
    }
    works(store.ready().await);
}
