//! nuncio.toml, read again while the hub runs: the file and those that it includes, however they are saved.

use std::{fs, path::Path};

use nuncio_tests::{
    eventually,
    hub::{Hub, cli_with_env},
    raw::Raw,
};

use serde_json::json;

use crate::{directory, path, text};

/// The ways in which a file is saved or deleted.
#[derive(Clone, Copy, Debug)]
enum Saved {
    /// Its own bytes are overwritten.
    InPlace,
    /// Another takes its name, as most editors do it.
    Renamed,
    Gone,
}

impl Saved {
    fn save(self, file: &Path, text: &str) {
        let new = file.with_extension("new");
        match self {
            Self::InPlace => fs::write(file, text).unwrap(),
            Self::Renamed => {
                fs::write(&new, text).unwrap();
                fs::rename(new, file).unwrap();
            }
            Self::Gone => fs::remove_file(file).unwrap(),
        }
    }
}

/// The beginning of the log line for an invalid file.
const WRONG: &str = "the new configuration is invalid; the previous one stays in force: ";

/// An agent with a title: a program, or one that comes with every hub.
fn agent(name: &str, title: &str) -> String {
    let kind = if name == "b" { "command = [\"cat\"]" } else { "demo = \"echo\"" };
    format!("[agents.{name}]\n{kind}\ntitle = \"{title}\"\n")
}

/// The titles of the agents that callers see.
async fn titles(hub: &Raw) -> Vec<String> {
    let list = hub.get("/agents", &[]).await.json();
    list["agents"].as_array().unwrap().iter().map(|agent| text(&agent["title"]).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_is_followed_however_it_is_saved_and_a_wrong_one_is_told_by_its_line() {
    let folder = directory("reloaded");
    let (main, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let more = folder.join("conf.d");
    fs::create_dir_all(&more).unwrap();
    let with = |title: &str| "include = [\"conf.d/*.toml\"]\n".to_owned() + &agent("a", title);
    fs::write(&main, with("a one")).unwrap();
    fs::write(more.join("b.toml"), agent("b", "b one")).unwrap();
    let args = ["--config", path(&main), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let raw = Raw::new(&*hub.base);
    let (b, c) = (more.join("b.toml"), more.join("c.toml"));
    for (file, saved, new, expected) in [
        (&main, Saved::InPlace, with("a two"), &["a two", "b one"][..]),
        (&main, Saved::Renamed, with("a three"), &["a three", "b one"]),
        (&b, Saved::InPlace, agent("b", "b two"), &["a three", "b two"]),
        (&b, Saved::Renamed, agent("b", "b three"), &["a three", "b three"]),
        (&c, Saved::Renamed, agent("c", "c one"), &["a three", "b three", "c one"]),
        (&c, Saved::InPlace, agent("c", "c two"), &["a three", "b three", "c two"]),
        (&b, Saved::Gone, String::new(), &["a three", "c two"]),
    ] {
        saved.save(file, &new);
        let what = format!("{saved:?} {}: {expected:?}", file.display());
        eventually(&what, async || (titles(&raw).await == expected).then_some(())).await;
    }
    for (file, saved, wrong, words) in [
        (&main, Saved::InPlace, with("a")[..35].to_owned(), "nuncio.toml:2:8: invalid TOML"),
        (
            &c,
            Saved::InPlace,
            agent("c", "c") + "titel = 1\n",
            "c.toml:4:1: agents.c.titel: there is no such key",
        ),
        (
            &c,
            Saved::Renamed,
            agent("c", "c") + "timeout_seconds = \"x\"\n",
            "c.toml:4:19: agents.c.timeout_seconds",
        ),
        // What is one agent in two files is none.
        (&b, Saved::Renamed, agent("c", "again"), "agents.c"),
    ] {
        let before = fs::read_to_string(file).ok();
        saved.save(file, wrong.as_str());
        eventually(words, async || {
            let stderr = hub.process.stderr();
            let (_, said) = stderr.rsplit_once(WRONG)?;
            said.contains(words).then_some(())
        })
        .await;
        // Whoever asks is told the same.
        let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
        let asked = cli_with_env(&["config", "reload"], &variables).await;
        assert_ne!(asked.code, Some(0), "{words}: {asked:?}");
        assert!(asked.stderr.contains(words), "{words}: {asked:?}");
        assert_eq!(titles(&raw).await, ["a three", "c two"], "{words}");
        match before {
            Some(before) => saved.save(file, &before),
            None => Saved::Gone.save(file, ""),
        }
        let asked = cli_with_env(&["config", "reload", "-o", "json"], &variables).await;
        assert_eq!(asked.code, Some(0), "{words}: {asked:?}");
    }
    let metrics = Raw::new(admin).get("/metrics", &[]).await.body;
    assert!(metrics.contains("nuncio_config_reloads_total{outcome=\"refused\"}"), "{metrics}");
    assert_eq!(raw.get("/readyz", &[]).await.status, 200);
}

/// The status of a message with so many parts, and so many bytes in all.
async fn status(hub: &Raw, agent: &str, parts: usize, bytes: usize) -> u16 {
    let text = "x".repeat(bytes / parts);
    let parts = vec![json!({"text": text}); parts];
    let body = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
    let headers = [("A2A-Version", "1.0"), ("Content-Type", "application/json")];
    hub.ask("POST", &format!("/agents/{agent}/message:send"), &headers, body.to_string()).await.status
}

/// Of agents that a file names, and of those that were added while the hub runs; their own bounds, and those of all.
#[tokio::test(flavor = "multi_thread")]
async fn how_large_a_message_may_be_follows_the_file() {
    let folder = directory("reloaded-limits");
    let (main, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let file = |all: &str, own: &str| format!("[limits]\n{all}\n{}limits = {{ {own} }}\n", agent("a", "a"));
    fs::write(&main, file("", "")).unwrap();
    let args = ["--config", path(&main), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    let far = Hub::start(&[]).await;
    let added = cli_with_env(&["agent", "add", "far", &far.agent("echo")], &variables).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let raw = Raw::new(&*hub.base);
    for (all, own, expected) in [
        ("", "", [200, 200, 200, 200]),
        ("parts = 2", "", [400, 200, 400, 200]),
        ("parts = 2", "parts = 9", [200, 200, 400, 200]),
        ("", "parts = 2", [400, 200, 200, 200]),
        ("body_bytes = 5000", "", [200, 413, 200, 413]),
        ("body_bytes = 5000", "body_bytes = 50000", [200, 200, 200, 413]),
        ("", "", [200, 200, 200, 200]),
    ] {
        Saved::Renamed.save(&main, &file(all, own));
        let asked = cli_with_env(&["config", "reload"], &variables).await;
        assert_eq!(asked.code, Some(0), "{asked:?}");
        let mut seen = Vec::new();
        for agent in ["a", "far"] {
            seen.extend([status(&raw, agent, 3, 30).await, status(&raw, agent, 1, 10_000).await]);
        }
        assert_eq!(seen, expected, "all {all:?}, its own {own:?}");
    }
}

/// An editor that empties a file before it writes it, a full disk, a template that failed: neither is the hub opened
/// by that, nor do its agents go.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_emptied_or_has_lost_what_counts_is_not_taken_unless_it_is_meant() {
    let folder = directory("reloaded-emptied");
    let (main, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let closed = "[identity]\nanonymous = \"never\"\n";
    let whole = closed.to_owned() + &agent("a", "a");
    fs::write(&main, &whole).unwrap();
    let args = ["--config", path(&main), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    let agents = async || {
        let listed = cli_with_env(&["agent", "list", "-o", "json"], &variables).await;
        listed.stdout.lines().count()
    };
    let raw = Raw::new(&*hub.base);
    for (new, words) in [
        (String::new(), "the file is empty"),
        (closed.to_owned(), "has no agents any more"),
        (agent("a", "a"), "no identity settings any more"),
        ("[identity]\n".to_owned() + &agent("a", "a"), "no identity settings any more"),
    ] {
        let told = || hub.process.stderr().matches(words).count();
        let before = told();
        Saved::InPlace.save(&main, &new);
        eventually(words, async || (told() > before).then_some(())).await;
        // Whoever asks by a signal does not force it either.
        let before = told();
        hub.process.signal("HUP").await;
        eventually(words, async || (told() > before).then_some(())).await;
        let asked = cli_with_env(&["config", "reload"], &variables).await;
        assert_ne!(asked.code, Some(0), "{asked:?}");
        assert!(asked.stderr.contains(words) && asked.stderr.contains("--force"), "{asked:?}");
        assert_eq!((raw.get("/agents", &[]).await.status, agents().await), (401, 1), "{words}");
        Saved::InPlace.save(&main, &whole);
    }
    Saved::InPlace.save(&main, closed);
    let forced = cli_with_env(&["config", "reload", "--force"], &variables).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(agents().await, 0);
}
