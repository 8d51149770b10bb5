//! Tasks in a file: they outlive the hub, and the file is looked after.

use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
};

use nuncio_tests::hub::{Hub, cli, cli_with_env, cli_with_permissions, start};
use serde_json::{Value, json};

use crate::{directory, documents, json, path, text, wrong_input::check};

/// The offset of the schema version in a SQLite file.
const USER_VERSION: u64 = 60;

async fn kill(mut hub: Hub) {
    hub.process.signal("KILL").await;
    hub.process.end().await;
}

async fn stop(mut hub: Hub) {
    hub.process.signal("TERM").await;
    assert_eq!(hub.process.end().await.code(), Some(0), "{}", hub.process.stderr());
}

/// Sends, and gives the task as it was answered.
async fn send(agent: &str, words: &str) -> Value {
    json(&cli(&["send", agent, words, "-o", "json"]).await)["task"].clone()
}

/// A file with a finished task in it, and that task. Nobody has it open.
async fn written(file: &Path) -> Value {
    let hub = Hub::start(&["--data", path(file)]).await;
    let task = send(&hub.agent("echo"), "hello").await;
    stop(hub).await;
    assert!(!file.with_extension("db-wal").exists(), "all of it is in the one file");
    task
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// The file with everything beyond its first page made worthless.
fn damage(file: &Path) {
    let size = fs::metadata(file).unwrap().len();
    overwrite(file, 4096, &vec![0xA5; usize::try_from(size - 4096).unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_a_killed_hub() {
    let file = directory("outlive").join("nuncio.db");
    let hub = Hub::start(&["--data", path(&file)]).await;
    let data = json!({"kind": "sqlite", "place": path(&file), "durability": "full", "keepDays": 30});
    assert_eq!(hub.announced["data"], data);
    let done = send(&hub.agent("echo"), "hello").await;
    let asked = send(&hub.agent("conformance"), "ask").await;
    kill(hub).await;

    let hub = Hub::start(&["--data", &format!("sqlite:{}", path(&file)), "--durability", "relaxed"]).await;
    assert_eq!(hub.announced["data"]["durability"], "relaxed");
    let (echo, conformance) = (hub.agent("echo"), hub.agent("conformance"));
    let got = cli(&["task", "get", &echo, text(&done["id"]), "-o", "json"]).await;
    assert_eq!((got.code, json(&got)), (Some(0), done.clone()));
    let listed = documents(&cli(&["task", "list", &echo, "-o", "json"]).await);
    assert_eq!(listed.iter().map(|task| &task["id"]).collect::<Vec<_>>(), [&done["id"]]);
    // A question that was asked before is answered after.
    let id = text(&asked["id"]);
    assert_eq!(cli(&["task", "get", &conformance, id]).await.code, Some(8));
    let answered = json(&cli(&["send", &conformance, "tea", "--task", id, "-o", "json"]).await);
    assert_eq!(answered["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_across_a_restart() {
    let file = directory("resume").join("nuncio.db");
    let hub = Hub::start(&["--data", path(&file)]).await;
    let events =
        documents(&cli(&["send", &hub.agent("conformance"), "chunks 5", "--stream", "-o", "json"]).await);
    kill(hub).await;

    let hub = Hub::start(&["--data", path(&file)]).await;
    let id = text(&events[0]["task"]["id"]);
    for (n, event) in events.iter().enumerate() {
        let after = event["eventId"].to_string();
        let watch = ["task", "watch", &hub.agent("conformance"), id, "--after", &after, "-o", "json"];
        assert_eq!(documents(&cli(&watch).await), events[n + 1..], "after {after}");
    }
}

/// A message in progress is executed again only by an idempotent agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_in_progress_goes_on_or_fails_after_a_crash() {
    let file = directory("in-progress").join("nuncio.db");
    let hub = Hub::start(&["--data", path(&file)]).await;
    let (mut ids, mut watches) = (Vec::new(), Vec::new());
    for (agent, words) in [("slow", "2"), ("conformance", "sleep 3600")] {
        let mut stream = start(&["send", &hub.agent(agent), words, "--stream", "-o", "json"]);
        let created: Value = serde_json::from_str(&stream.line().await.unwrap()).unwrap();
        let working: Value = serde_json::from_str(&stream.line().await.unwrap()).unwrap();
        ids.push((text(&created["task"]["id"]).to_owned(), working["eventId"].as_u64().unwrap()));
        watches.push(stream);
    }
    kill(hub).await;

    let hub = Hub::start(&["--data", path(&file)]).await;
    for ((id, seen), agent, code, state, words) in [
        (&ids[0], "slow", 0, "TASK_STATE_COMPLETED", ""),
        (&ids[1], "conformance", 7, "TASK_STATE_FAILED", "not marked as idempotent"),
    ] {
        let watch = ["task", "watch", &hub.agent(agent), id, "--after", &seen.to_string(), "-o", "json"];
        let output = cli(&watch).await;
        assert_eq!(output.code, Some(code), "{agent}: {output:?}");
        let events = documents(&output);
        let numbers: Vec<_> = events.iter().map(|event| event["eventId"].as_u64().unwrap()).collect();
        assert!(numbers[0] > *seen && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        let status = &events.last().unwrap()["statusUpdate"]["status"];
        assert_eq!(status["state"], state, "{agent}");
        assert!(status["message"].to_string().contains(words), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_of_one_hub_at_a_time() {
    let file = directory("one-hub").join("nuncio.db");
    let data = ["--data", path(&file)];
    let hub = Hub::start(&data).await;
    let pid = hub.process.id().to_string();
    let serve = [&["serve", "--demo", "--listen", "127.0.0.1:0"][..], &data].concat();
    check(&serve, 3, &[path(&file), "in use", &pid]).await;
    check(&[&["store", "vacuum"][..], &data].concat(), 3, &["in use", &pid]).await;
    assert_eq!(send(&hub.agent("echo"), "hello").await["status"]["state"], "TASK_STATE_COMPLETED");
    // A lock ends with its process, however that ends.
    kill(hub).await;
    assert_eq!(cli(&[&["store", "vacuum"][..], &data].concat()).await.code, Some(0));
    stop(Hub::start(&data).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_where_tasks_cannot_be_kept_is_refused() {
    let folder = directory("wrong-places");
    let serve = async |data: &str, code, words: &[&str]| {
        check(&["serve", "--demo", "--listen", "127.0.0.1:0", "--data", data], code, words).await;
    };
    let kinds = "expected memory, a file such as nuncio.db or sqlite:FILE, or a database";
    serve("mysql://me:s3cret@db.example/tasks", 2, &["--data: unknown kind of store", kinds]).await;
    serve("redis:6379", 2, &["--data: unknown kind of store", kinds]).await;
    serve("postgres", 2, &[kinds]).await;
    serve("postgres://me:s3/cret@db.example/tasks", 2, &["%2F"]).await;
    serve(path(&folder.join("none/nuncio.db")), 2, &["none does not exist", "create it first"]).await;
    serve(path(&folder), 2, &["wrong-places", "is a folder"]).await;

    let garbage = folder.join("garbage.db");
    fs::write(&garbage, "no database, but long enough to be taken for one\n".repeat(200)).unwrap();
    serve(path(&garbage), 2, &["garbage.db is not a task store"]).await;
    assert!(fs::read_to_string(&garbage).unwrap().starts_with("no database"), "nothing was written to it");

    let newer = folder.join("newer.db");
    written(&newer).await;
    overwrite(&newer, USER_VERSION, &1_000_000_u32.to_be_bytes());
    serve(path(&newer), 1, &["schema version 1000000", "use a newer version"]).await;

    let damaged = folder.join("damaged.db");
    written(&damaged).await;
    damage(&damaged);
    serve(path(&damaged), 9, &["damaged.db is damaged", "nuncio store check"]).await;

    let url = "postgres://me:s3cret@db.example/tasks";
    let help = cli_with_env(&["serve", "--help"], &[("NUNCIO_DATA", url)]).await;
    assert!(!help.stdout.contains("s3cret"), "{help:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_written_is_refused() {
    let folder = directory("read-only");
    let file = folder.join("nuncio.db");
    written(&file).await;
    let mut permissions = fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&file, permissions).unwrap();
    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0", "--data", path(&file)];
    let output = cli_with_permissions(&serve).await;
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(
        output.stderr.contains("nuncio.db was denied") && output.stderr.contains("permissions"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_would_do_nothing_are_refused() {
    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0"];
    let with = |more: &[&'static str]| [&serve, more].concat();
    check(&with(&["--durability", "relaxed"]), 2, &["--durability", "add --data"]).await;
    check(&with(&["--data", "a.db", "--keep-finished", "5"]), 2, &["--keep-finished", "--keep-days"]).await;
    check(&with(&["--keep-days=-1"]), 2, &["--keep-days"]).await;
    check(&with(&["--data", "a.db", "--durability", "none"]), 2, &["full", "relaxed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_where_tasks_are_kept_and_for_how_long() {
    let file = directory("said").join("nuncio.db");
    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0"];
    let in_file = |more: &[&'static str]| [&serve[..], &["--data", path(&file)], more].concat();
    let kept = format!("tasks are kept in {}", path(&file));
    for (args, words) in [
        (
            serve.to_vec(),
            &["tasks and API keys are in memory only", "lost when the hub stops", "add --data nuncio.db"][..],
        ),
        (in_file(&[]), &[&kept, "on disk before it is sent (durability full)", "deleted after 30 days"]),
        (
            in_file(&["--keep-days", "0", "--durability", "relaxed"]),
            &[&kept, "durability relaxed", "kept for ever"],
        ),
    ] {
        let mut hub = start(&args);
        hub.says("Ctrl-C stops").await;
        for word in words {
            assert!(hub.stderr().contains(word), "expected {word:?} in {:?}", hub.stderr());
        }
        hub.signal("TERM").await;
        assert_eq!(hub.end().await.code(), Some(0), "{}", hub.stderr());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_made_beside_a_running_hub_is_served() {
    let folder = directory("backup");
    let (file, copy) = (folder.join("nuncio.db"), folder.join("copy.db"));
    let hub = Hub::start(&["--data", path(&file)]).await;
    let task = send(&hub.agent("echo"), "hello").await;
    let backup = ["store", "backup", "--data", path(&file), "--to", path(&copy)];
    let made = json(&cli(&[&backup[..], &["-o", "json"]].concat()).await);
    let size = fs::metadata(&copy).unwrap().len();
    assert_eq!(made, json!({"store": path(&file), "to": path(&copy), "bytes": size}));
    let later = send(&hub.agent("echo"), "later").await;

    // What is there stays.
    check(&backup, 2, &[path(&copy), "exists"]).await;
    assert_eq!(fs::metadata(&copy).unwrap().len(), size);
    let nowhere = ["store", "backup", "--data", path(&file), "--to", "no/such/folder/copy.db"];
    check(&nowhere, 1, &["no/such/folder"]).await;

    let restored = Hub::start(&["--data", path(&copy)]).await;
    let echo = restored.agent("echo");
    assert_eq!(json(&cli(&["task", "get", &echo, text(&task["id"]), "-o", "json"]).await), task);
    assert_eq!(cli(&["task", "get", &echo, text(&later["id"])]).await.code, Some(5));
    stop(restored).await;
    stop(hub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_looked_after() {
    let file = directory("look-after").join("nuncio.db");
    let store = async |command: &str| {
        let output = cli(&["store", command, "--data", path(&file), "-o", "json"]).await;
        (output.code, json(&output))
    };
    let well = (Some(0), json!({"store": path(&file), "problems": []}));
    let hub = Hub::start(&["--data", path(&file)]).await;
    send(&hub.agent("echo"), "hello").await;
    assert_eq!(store("check").await, well, "beside a running hub");
    stop(hub).await;
    assert_eq!(store("check").await, well);
    let said = cli_with_env(&["store", "check"], &[("NUNCIO_DATA", path(&file))]).await;
    assert_eq!((said.code, said.stdout), (Some(0), format!("{}: no damage found\n", path(&file))));

    let (code, versions) = store("migrate").await;
    assert_eq!((code, &versions["from"]), (Some(0), &versions["to"]), "there is nothing to do");
    let (code, sizes) = store("vacuum").await;
    assert_eq!(code, Some(0));
    assert!(
        sizes["after"].as_u64() > Some(0) && sizes["after"].as_u64() <= sizes["before"].as_u64(),
        "{sizes}"
    );
    assert_eq!(store("check").await, well);

    damage(&file);
    let before = fs::read(&file).unwrap();
    let (code, found) = store("check").await;
    assert_eq!(code, Some(9));
    assert!(!found["problems"].as_array().unwrap().is_empty(), "{found}");
    assert_eq!(cli(&["store", "check", "--data", path(&file)]).await.code, Some(9));
    assert!(before == fs::read(&file).unwrap(), "nothing is repaired in silence");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_after_is_refused() {
    let folder = directory("look-wrong");
    let (missing, garbage) = (folder.join("missing.db"), folder.join("garbage.db"));
    fs::write(&garbage, "no database").unwrap();
    let copy = folder.join("copy.db");
    for command in ["check", "backup", "migrate", "vacuum"] {
        let to = if command == "backup" { &["--to", path(&copy)][..] } else { &[] };
        let store = async |data: &[&str], code, words: &[&str]| {
            check(&[&["store", command][..], data, to].concat(), code, words).await;
        };
        store(&[], 2, &["no store is named", "--data", "NUNCIO_DATA"]).await;
        store(&["--data", "memory"], 2, &["--data memory", "cannot be maintained"]).await;
        store(&["--data", "mysql:x"], 2, &["--data: unknown kind of store", "expected memory"]).await;
        store(&["--data", path(&missing)], 2, &["there is no file", "missing.db"]).await;
        store(&["--data", path(&garbage)], 2, &["garbage.db is not a task store"]).await;
        assert!(!missing.exists() && !copy.exists(), "{command} makes nothing");
    }
}
