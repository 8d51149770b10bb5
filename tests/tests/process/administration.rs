//! The admin listener as `serve` has it, and `nuncio delivery …` as its client.

use std::{fs, io::Write as _, net::TcpListener, path::Path};

use axum::{Router, http::StatusCode, response::IntoResponse as _};
use nuncio_tests::{
    hub::{Hub, cli_with_env, free_address, start},
    process::Output,
    raw::Raw,
    within,
};
use serde_json::json;

use crate::{directory, json, path, text, wrong_input::check};

/// A hub that is administered at a port of its own, with a token in this directory.
pub(crate) async fn administered(state: &Path) -> (Hub, String) {
    administered_with(state, &[]).await
}

/// The same with further arguments.
pub(crate) async fn administered_with(state: &Path, args: &[&str]) -> (Hub, String) {
    let file = state.join("hub.token");
    let own = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&file)];
    let hub = Hub::start(&[&own, args].concat()).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    assert_eq!(hub.announced["admin"]["tokenFile"], path(&file));
    (hub, admin)
}

pub(crate) fn says(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, Some(code), "{output:?}");
    assert_eq!(output.stdout, "", "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "expected {word:?} in {:?}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hub_owes_is_asked_with_its_token() {
    let state = directory("administration");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let (file, token) = (path(&file), fs::read_to_string(&file).unwrap());
    assert!(!hub.announced.to_string().contains(token.trim_end()), "it is in the file only");

    let list = ["delivery", "list", "--admin", &admin];
    for (args, variables) in [
        (&[&list[..], &["--admin-token-file", file]].concat()[..], &[][..]),
        (&list[..], &[("NUNCIO_ADMIN_TOKEN", token.trim_end())][..]),
        (&list[..2], &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", file)][..]),
    ] {
        says(&cli_with_env(args, variables).await, 0, &["0 deliveries"]);
    }
    let with = |args: &[&'static str]| {
        let args = args.to_vec();
        let (admin, file) = (admin.clone(), file.to_owned());
        async move {
            let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", &*file)];
            cli_with_env(&args, &variables).await
        }
    };
    let filters = ["--agent", "echo", "--task", "t 1&", "--state", "dead", "--since", "2h", "--limit", "7"];
    says(&with(&[&["delivery", "list"][..], &filters].concat()).await, 0, &["0 deliveries"]);
    says(&with(&["delivery", "show", "w-1"]).await, 5, &["there is no delivery w-1"]);
    says(&with(&["delivery", "show", "../../healthz"]).await, 5, &["there is no delivery"]);
    says(&with(&["delivery", "replay", "w-1"]).await, 5, &["there is no delivery w-1"]);
    says(&with(&["delivery", "redrive", "--since", "2h"]).await, 0, &["0 dead deliveries since 20"]);
    let redrive = ["delivery", "redrive", "--since", "2026-11-15T12:00:00Z", "--agent", "echo", "-o", "json"];
    assert_eq!(json(&with(&redrive).await), json!({ "redriven": 0 }));

    let wrong = cli_with_env(&list, &[("NUNCIO_ADMIN_TOKEN", "s3cret")]).await;
    says(&wrong, 4, &["does not accept the token from NUNCIO_ADMIN_TOKEN", "--admin-token-file"]);
    assert!(!wrong.stderr.contains("s3cret"), "{wrong:?}");
    let none = cli_with_env(&list, &[("NUNCIO_ADMIN_TOKEN_FILE", "no/file")]).await;
    says(&none, 4, &["cannot read the hub's token from no/file", "NUNCIO_ADMIN_TOKEN"]);
}

/// In a place of the user's that nobody else can enter, by the port; and it is gone after a clean end.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_same_user_find_the_token_by_themselves() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let state = directory("state");
    // Made by somebody in a hurry.
    fs::create_dir_all(state.join("nuncio")).unwrap();
    fs::set_permissions(state.join("nuncio"), fs::Permissions::from_mode(0o777)).unwrap();
    let home = format!("XDG_STATE_HOME={}", path(&state));
    let args = ["--admin", "127.0.0.1:0"];
    let mut hub = Hub::start_by(&["env", &home], "127.0.0.1:0", &args).await;
    let listen = text(&hub.announced["admin"]["listen"]).to_owned();
    let port = listen.rsplit_once(':').unwrap().1;
    let file = state.join("nuncio").join(format!("admin-{port}.token"));
    assert_eq!(hub.announced["admin"]["tokenFile"], path(&file));
    let mode = |path: &Path| format!("{:o}", fs::metadata(path).unwrap().mode() & 0o777);
    assert_eq!((mode(&file), mode(file.parent().unwrap())), ("600".to_owned(), "700".to_owned()));

    let admin = format!("http://{listen}");
    let list = ["delivery", "list", "--admin", &*admin];
    let variables = [("XDG_STATE_HOME", path(&state))];
    says(&cli_with_env(&list, &variables).await, 0, &["0 deliveries"]);
    hub.process.signal("TERM").await;
    assert!(hub.process.end().await.success());
    assert!(!file.exists());
    says(
        &cli_with_env(&list, &variables).await,
        3,
        &["cannot connect to", "is the hub running?", "--admin URL"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn administration_is_on_a_listener_of_its_own_or_off() {
    let hub = Hub::start(&[]).await;
    assert_eq!(hub.announced["admin"], json!(null), "the tests say NUNCIO_ADMIN_LISTEN=off");
    assert_eq!(Raw::new(&*hub.base).get("/api/v1", &[]).await.status, 404);
    let (hub, admin) = administered(&directory("own")).await;
    assert_ne!(admin, hub.base);
    let raw = Raw::new(&*admin);
    assert_eq!(raw.get("/readyz", &[]).await.status, 200);
    assert_eq!(raw.get("/api/v1", &[]).await.status, 401);
    assert_eq!(raw.get("/agents", &[]).await.status, 404);

    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0", "--admin"];
    let with = |address: &str, code, words: &'static [&str]| {
        let args = [&serve[..], &[address]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        async move {
            check(&args.iter().map(String::as_str).collect::<Vec<_>>(), code, words).await;
        }
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    with(&address, 1, &["for administration", "--admin 127.0.0.1:0", "--admin off"]).await;
    with("0.0.0.0:0", 2, &["--admin: ", "this machine only", "ssh -L"]).await;
    with("2603", 2, &["--admin", "127.0.0.1:2603, or off"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_hub_is_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let answer = async || (StatusCode::OK, "<html>").into_response();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    let list = ["delivery", "list", "--admin", &*other];
    let token = [("NUNCIO_ADMIN_TOKEN", "x")];
    says(&cli_with_env(&list, &token).await, 3, &["is not the administration of a hub"]);
    // Nobody elsewhere gets what is in our files.
    check(
        &["delivery", "list", "--admin", "http://hub.example:2603"],
        2,
        &["no token for a hub on another machine", "--admin-token-file"],
    )
    .await;
    check(&["delivery", "list", "--admin", "hub.example"], 2, &["http://127.0.0.1:2603"]).await;
    check(&["delivery", "list", "--since", "yesterday"], 2, &["90s, 30m, 2h or 7d"]).await;
    check(&["delivery", "list", "--state", "gone"], 2, &["pending", "delivered", "dead"]).await;
    check(&["delivery", "redrive"], 2, &["--since"]).await;
    let bad = cli_with_env(&list, &[("NUNCIO_ADMIN_TOKEN", "a\nb")]).await;
    says(&bad, 2, &["NUNCIO_ADMIN_TOKEN: not a token: it contains characters that a header cannot hold"]);
}

/// The admin token is there before the public port answers: a script that waits for the port can create a key.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn the_public_port_is_closed_until_the_token_is_there() {
    let folder = directory("token-first");
    let (file, pipe, token) = (folder.join("nuncio.toml"), folder.join("keys"), folder.join("hub.token"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // The hub reads the keys of the agent when it makes it, and waits until somebody writes them.
    fs::write(&file, "[agents.far]\nurl = \"http://127.0.0.1:1\"\ntrust.keys = [\"keys\"]\n").unwrap();
    let listen = free_address();
    let mut hub = start(&[
        "serve",
        "--listen",
        &listen.to_string(),
        "--config",
        path(&file),
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        path(&token),
        "-o",
        "json",
    ]);
    let writing = tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(pipe).unwrap());
    let mut writer = within("the hub that reads its keys", writing).await.unwrap();
    assert!(!token.exists());
    let refused = std::net::TcpStream::connect(listen).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    writer.write_all(key.public_key_pem().as_bytes()).unwrap();
    drop(writer);
    let line = hub.line().await;
    assert!(line.is_some_and(|line| line.contains(&listen.to_string())), "{}", hub.stderr());
    assert!(token.exists() && std::net::TcpStream::connect(listen).is_ok());
}
