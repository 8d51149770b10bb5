//! `nuncio key …`, as in the story of the one front door.

use nuncio_tests::{
    hub::{cli, cli_with_env},
    process::Output,
};

use crate::{
    administration::{administered, says},
    directory, documents, path, text,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_what_it_is_for_until_it_is_revoked() {
    let state = directory("key");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    let made = ask(&["key", "create", "team-a", "--allow", "echo,slow", "--expires", "90d"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let key = made.stdout.trim_end().to_owned();
    assert!(key.starts_with("nuncio_") && !key.contains(char::is_whitespace), "alone on stdout: {made:?}");
    assert!(made.stderr.contains("not shown again") && !made.stderr.contains(&key), "{made:?}");

    let send = async |agent: &str, key: &str| {
        cli_with_env(&["send", &hub.agent(agent), "hello"], &[("NUNCIO_KEY", key)]).await.code
    };
    assert_eq!(send("echo", &key).await, Some(0));
    assert_eq!(send("echo", "nuncio_wrong").await, Some(4));
    assert_eq!(
        cli(&["send", &hub.agent("echo"), "hello"]).await.code,
        Some(4),
        "nobody calls without one any more"
    );
    assert_eq!(send("conformance", &key).await, Some(3), "for this key there is no such agent");

    let listed = ask(&["key", "list"]).await;
    assert!(listed.stdout.contains("team-a") && listed.stdout.contains("echo,slow"), "{listed:?}");
    assert!(!listed.stdout.contains(&key));
    let rotated = ask(&["key", "rotate", "team-a", "--overlap", "1h"]).await;
    let newer = rotated.stdout.trim_end().to_owned();
    assert_ne!(newer, key);
    assert_eq!((send("echo", &key).await, send("echo", &newer).await), (Some(0), Some(0)));
    says(&ask(&["key", "revoke", "team-a"]).await, 0, &["worth nothing"]);
    assert_eq!((send("echo", &key).await, send("echo", &newer).await), (Some(4), Some(4)));
    assert!(ask(&["key", "show", "team-a"]).await.stdout.contains("revoked"));
    says(&ask(&["key", "delete", "team-a"]).await, 0, &["forgotten"]);
    says(&ask(&["key", "show", "team-a"]).await, 5, &["there is no key team-a"]);
    says(&ask(&["key", "create", "b", "--operations", "send"]).await, 6, &["there are SendMessage"]);
    let trail = documents(&ask(&["trail", "--what", "key-created", "-o", "json"]).await);
    assert_eq!(trail.iter().map(|row| text(&row["what"])).collect::<Vec<_>>(), ["key-created"]);
    assert!(ask(&["trail"]).await.stdout.contains("credentials-refused"));
}
