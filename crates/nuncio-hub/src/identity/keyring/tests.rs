//! Keys through their lives, and seen by other hubs.

use nuncio_server::store::MemoryStore;

use super::*;
use crate::identity::ApiKeyLimits;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(10))
}

async fn keyring(store: &Arc<dyn Store>) -> Keyring {
    Keyring::open(Arc::clone(store)).await.unwrap()
}

fn judge(keyring: &Keyring, text: &KeyText, at: Timestamp) -> Result<String, KeyRefusal> {
    let entry = keyring.find(&text::read(text.reveal()).unwrap(), at)?;
    Ok(entry.caller.principal().unwrap().to_string())
}

#[tokio::test]
async fn a_key_is_worth_what_it_says_for_as_long_as_it_says() {
    let keyring = keyring(&store()).await;
    let expires = Some(later(now(), DAY));
    let (key, text) = keyring
        .create(NewApiKey { expires, principal: Some("p".into()), ..NewApiKey::named("a") })
        .await
        .unwrap();
    assert_eq!(judge(&keyring, &text, now()), Ok("p".to_owned()));
    assert_eq!(judge(&keyring, &text, later(now(), DAY)), Err("the key has expired"));
    let other = KeyText::new(&key.id).unwrap();
    assert_eq!(
        judge(&keyring, &other, now()),
        Err("there is no such key"),
        "the id is right, the secret is not"
    );

    let (_, newer) = keyring.rotate("a", DAY / 2).await.unwrap();
    for text in [&text, &newer] {
        assert_eq!(judge(&keyring, text, now()), Ok("p".to_owned()), "both for a while");
    }
    let after = later(now(), DAY / 2);
    assert_eq!(judge(&keyring, &text, after), Err("the key was replaced by a newer one"));
    assert_eq!(judge(&keyring, &newer, after), Ok("p".to_owned()));
    let (_, newest) = keyring.rotate(&key.id, DAY / 2).await.unwrap();
    assert_eq!(judge(&keyring, &text, now()), Err("there is no such key"), "two at a time, no more");
    assert_eq!(judge(&keyring, &newest, now()), Ok("p".to_owned()));

    keyring.revoke("a").await.unwrap();
    for text in [&newer, &newest] {
        assert_eq!(judge(&keyring, text, now()), Err("the key was revoked"));
    }
    assert!(keyring.has_any(), "what was revoked is there, so that nobody gets in without one");
    assert!(matches!(keyring.rotate("a", DAY).await, Err(KeyringError::Invalid(_))));
    keyring.delete("a").await.unwrap();
    assert!(!keyring.has_any());
    assert_eq!(judge(&keyring, &newest, now()), Err("there is no such key"));
}

#[tokio::test]
async fn names_are_unique_and_either_name_or_id_will_do() {
    let keyring = keyring(&store()).await;
    let (key, _) = keyring.create(NewApiKey::named("b")).await.unwrap();
    assert!(matches!(keyring.create(NewApiKey::named("b")).await, Err(KeyringError::Taken)));
    assert!(matches!(keyring.create(NewApiKey::named("")).await, Err(KeyringError::Invalid(_))));
    keyring.create(NewApiKey::named("a")).await.unwrap();
    let names: Vec<_> = keyring.list().into_iter().map(|(key, _)| key.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(keyring.show("b"), keyring.show(&key.id));
    assert_eq!(keyring.show("c"), None);
    assert!(matches!(keyring.revoke("c").await, Err(KeyringError::NotFound)));
}

#[tokio::test]
async fn nothing_that_is_kept_is_the_key() {
    let store = store();
    let keyring = keyring(&store).await;
    let (_, first) = keyring.create(NewApiKey::named("a")).await.unwrap();
    let (_, second) = keyring.rotate("a", DAY).await.unwrap();
    let records = keyring.all(CALLERS.key).await.unwrap();
    let kept = String::from_utf8(records[0].value.to_vec()).unwrap();
    for text in [first, second] {
        let secret = text.reveal().rsplit('_').next().unwrap();
        assert!(!kept.contains(secret) && !kept.contains(&secret[..20]), "{kept}");
    }
}

#[tokio::test]
async fn keys_and_their_use_outlive_the_hub() {
    let store = store();
    let before = keyring(&store).await;
    let limits = ApiKeyLimits { tasks: Some(3), ..ApiKeyLimits::default() };
    let agents = Some(vec!["billing".to_owned()]);
    let new =
        NewApiKey { limits, agents, operations: Some(vec!["GetTask".to_owned()]), ..NewApiKey::named("a") };
    let (key, text) = before.create(new).await.unwrap();
    let at = now();
    judge(&before, &text, at).unwrap();
    before.note_use().await;
    let after = keyring(&store).await;
    assert_eq!(after.show("a"), Some((key, Some(at))));
    let entry = after.find(&text::read(text.reveal()).unwrap(), now()).unwrap();
    let may: Vec<_> = nuncio_protocol::op::Op::TABLE.iter().filter(|row| entry.caller.may(row.op)).collect();
    assert_eq!(may.len(), 1, "{may:?}");
}

#[tokio::test]
async fn other_hubs_see_what_one_changes() {
    let store = store();
    let (one, other) = (keyring(&store).await, keyring(&store).await);
    let mut changes = other.changes();
    let (_, text) = one.create(NewApiKey::named("a")).await.unwrap();
    assert_eq!(judge(&other, &text, now()), Err("there is no such key"), "not yet");
    other.look().await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    judge(&other, &text, now()).unwrap();
    other.look().await.unwrap();
    assert!(!changes.has_changed().unwrap(), "nothing new");
    one.delete("a").await.unwrap();
    other.look().await.unwrap();
    assert_eq!(judge(&other, &text, now()), Err("there is no such key"));
    assert!(changes.has_changed().unwrap(), "open streams look again");
}
