//! Tasks in PostgreSQL: they outlive the hub, and the hub outlives an absence of the database.

use std::net::TcpListener;

use nuncio_server::testing::postgres::{self, Server};
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::{Hub, cli, cli_with_env},
    process,
    raw::Raw,
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{json, path, text, wrong_input::check};

const PASSWORD: &str = "s3cret";

/// An empty database of a role that needs its password: the address, and the address as it may be shown.
async fn guarded(server: &Server) -> (String, String) {
    let made = format!("CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'");
    postgres::run(server.url(), &made).await;
    postgres::run(server.url(), "CREATE DATABASE tasks OWNER guarded").await;
    let (_, place) = server.url().rsplit_once('@').unwrap();
    let (host, _) = place.split_once('/').unwrap();
    (format!("postgres://guarded:{PASSWORD}@{host}/tasks"), format!("postgres://{host}/tasks"))
}

async fn send(hub: &Hub, words: &str) -> Value {
    json(&cli(&["send", &hub.agent("echo"), words, "-o", "json"]).await)["task"].clone()
}

async fn get(hub: &Hub, task: &Value) -> Value {
    json(&cli(&["task", "get", &hub.agent("echo"), text(&task["id"]), "-o", "json"]).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_the_hub_and_an_absence_of_the_database() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let options = ["--no-sync", "--port", &port, "--data", path(folder.path())];
    let server = Server::start(&options);
    let (url, place) = guarded(&server).await;
    let mut hub = Hub::start(&["--data", &url]).await;
    let data = json!({"kind": "postgres", "place": place, "durability": "full", "keepDays": 30});
    assert_eq!(hub.announced["data"], data);
    let task = send(&hub, "hello").await;
    hub.process.signal("KILL").await;
    hub.process.end().await;

    let mut hub = Hub::start(&["--data", &url]).await;
    assert_eq!(get(&hub, &task).await, task);
    let raw = Raw::new(&*hub.base);
    let readiness = async |status| {
        eventually("readiness", async || (raw.get("/readyz", &[]).await.status == status).then_some(()))
            .await;
    };
    readiness(200).await;
    drop(server);
    readiness(503).await;
    assert!(raw.get("/readyz", &[]).await.body.contains("the task store does not answer"));
    assert_eq!(raw.get("/healthz", &[]).await.status, 200, "it is alive");
    let _server = Server::start(&options);
    readiness(200).await;
    assert_eq!(get(&hub, &task).await, task);
    hub.process.signal("TERM").await;
    assert_eq!(hub.process.end().await.code(), Some(0));
    assert!(!hub.process.stderr().contains(PASSWORD), "{}", hub.process.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_where_tasks_cannot_be_kept_is_refused() {
    let server = Server::start(&["--no-sync"]);
    let (url, _) = guarded(&server).await;
    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0"];
    let refused = async |url: &str, code, words: &[&str]| {
        let output = cli_with_env(&serve, &[("NUNCIO_DATA", url)]).await;
        assert_eq!(output.code, Some(code), "{output:?}");
        for word in words {
            assert!(output.stderr.contains(word), "expected {word:?} in {:?}", output.stderr);
        }
        assert!(!output.stderr.contains("s3cr"), "no password is printed: {output:?}");
    };
    refused(&url.replace(PASSWORD, "s3crwrong"), 4, &["denied", "password"]).await;
    refused(&url.replace(&format!(":{PASSWORD}"), ""), 4, &["denied", "password"]).await;
    refused(&server.url_of("nowhere"), 1, &["nowhere", "does not exist", "create the database first"]).await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refused(&format!("postgres://me:s3cret@{closed}/tasks"), 3, &[&closed.to_string(), "cannot be reached"])
        .await;

    let mut hub = Hub::start(&["--data", &url]).await;
    hub.process.signal("TERM").await;
    hub.process.end().await;
    postgres::run(&server.url_of("tasks"), "UPDATE nuncio.schema_version SET version = 1000000").await;
    refused(&url, 1, &["schema version 1000000", "use a newer version"]).await;
    check(&["store", "check", "--data", &url], 1, &["/tasks has", "use a newer version"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_looked_after_beside_a_running_hub() {
    let server = Server::start(&["--no-sync"]);
    let (url, place) = guarded(&server).await;
    let hub = Hub::start(&["--data", &url]).await;
    let task = send(&hub, "hello").await;
    let store = async |args: &[&str]| {
        let output = cli(&[&["store"][..], args, &["--data", &url, "-o", "json"]].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        json(&output)
    };
    assert_eq!(store(&["check"]).await, json!({"store": place, "problems": []}));
    let versions = store(&["migrate"]).await;
    assert_eq!(versions["from"], versions["to"], "there is nothing to do");
    assert!(store(&["vacuum"]).await["after"].as_u64() > Some(0));

    let folder = Folder::new();
    let copy = folder.path().join("copy.dump");
    let made = store(&["backup", "--to", path(&copy)]).await;
    assert_eq!(made["bytes"], std::fs::metadata(&copy).unwrap().len());
    check(&["store", "backup", "--data", &url, "--to", path(&copy)], 2, &[path(&copy), "exists"]).await;

    // As docs/operating.md says.
    let restored = server.database().await;
    let mut restore = Command::new("pg_restore");
    restore.args(["--no-owner", "--exit-on-error", "--dbname", &restored, path(&copy)]);
    let output = process::run(restore, "").await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let restored = Hub::start(&["--data", &restored]).await;
    assert_eq!(get(&restored, &task).await, task);
}
