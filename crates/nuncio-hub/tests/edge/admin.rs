//! The listener of whoever runs the hub: nobody else gets in, and its token is nobody else's.

use std::{fs, path::PathBuf};

use nuncio_hub::config::Admin;
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;

use super::*;

/// A file for the token of a test.
fn token_file(test: &str) -> PathBuf {
    directory("admin").join(format!("{test}.token"))
}

fn administered(file: &std::path::Path) -> Config {
    let admin = Admin { listen: Some(([127, 0, 0, 1], 0).into()), token_file: Some(file.to_owned()) };
    Config { admin, ..config() }
}

/// A hub that is administered, and how to ask it.
struct Asked {
    hub: Running,
    base: String,
    client: Client,
}

impl Asked {
    async fn start(config: Config) -> Self {
        let hub = Hub::bind(config).await.unwrap();
        let base = format!("http://{}", hub.administered().unwrap().address);
        // No proxy of the environment: this is about one machine.
        let client = Client::builder().no_proxy().build().unwrap();
        Self { hub: Running::run(hub), base, client }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.client.get(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        within("the answer", request.send()).await.unwrap()
    }

    async fn stop(self) {
        drop(self.client);
        self.hub.stop.send(()).unwrap();
        within("the end of the hub", self.hub.ended).await.unwrap().unwrap();
    }
}

async fn message(response: Response) -> String {
    let document: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(document["error"]["code"], 401);
    document["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn only_the_token_opens_the_api() {
    let file = token_file("opens");
    let asked = Asked::start(administered(&file)).await;
    let token = fs::read_to_string(&file).unwrap().trim_end().to_owned();
    for path in ["/api", "/api/v1", "/api/v1/nothing", "/api/v2"] {
        for (authorization, challenge) in [
            (None, r#"Bearer realm="nuncio admin""#),
            (Some("Bearer".to_owned()), r#"Bearer realm="nuncio admin""#),
            (Some(format!("Basic {token}")), r#"Bearer realm="nuncio admin""#),
            (Some("Bearer nope".to_owned()), r#"Bearer realm="nuncio admin", error="invalid_token""#),
            (Some(format!("Bearer {token}0")), r#"Bearer realm="nuncio admin", error="invalid_token""#),
        ] {
            let headers = authorization.as_deref().map(|value| ("authorization", value));
            let response = asked.get(path, headers.as_slice()).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path} {authorization:?}");
            assert_eq!(response.headers()["www-authenticate"], challenge, "{path} {authorization:?}");
            assert_eq!(response.headers()["cache-control"], "no-store");
            let message = message(response).await;
            assert!(message.contains("Authorization: Bearer") && !message.contains(&token), "{message}");
        }
    }
    for scheme in ["Bearer", "bearer"] {
        let authorization = format!("{scheme} {token}");
        let response = asked.get("/api/v1", &[("authorization", &authorization)]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["cache-control"], "no-store");
        let response = asked.get("/api/v1/nothing", &[("authorization", &authorization)]).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
}

/// No header of CORS on anything, so that no page of another site can read what is answered.
#[tokio::test]
async fn health_is_for_all_and_pages_of_other_sites_get_nothing() {
    let file = token_file("health");
    let asked = Asked::start(administered(&file)).await;
    let token = format!("Bearer {}", fs::read_to_string(&file).unwrap().trim_end());
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let response = asked.get(path, &[("origin", "https://evil.example")]).await;
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        assert_eq!((response.status(), response.text().await.unwrap()), (StatusCode::OK, body.to_owned()));
    }
    let response =
        asked.get("/api/v1", &[("authorization", &token), ("origin", "https://evil.example")]).await;
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    // DNS rebinding: also with the token, also where none is needed.
    for path in ["/healthz", "/readyz", "/api/v1", "/nothing"] {
        for host in ["evil.example", "evil.example:2603", "localhost.evil.example"] {
            let response = asked.get(path, &[("host", host), ("authorization", &token)]).await;
            assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST, "{host}{path}");
        }
    }
    assert_eq!(asked.get("/api/v1", &[("host", "localhost"), ("authorization", &token)]).await.status(), 200);
    assert_eq!(asked.get("/", &[]).await.url().path(), "/ui/login", "the dashboard");
    for path in ["/agents", "/agents/echo", "/.well-known/jwks.json"] {
        assert_eq!(asked.get(path, &[]).await.status(), StatusCode::NOT_FOUND, "{path} is for callers");
    }
    // And nothing of it on the other side.
    let url = format!("{}/api/v1", asked.hub.url);
    let response = asked.client.get(&url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let response = asked.client.get(&url).header("authorization", &token).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "the token is no credential of a caller");
}

#[tokio::test]
async fn a_hub_in_code_has_no_administration_unless_it_is_asked_for() {
    assert!(Hub::bind(config()).await.unwrap().administered().is_none());
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_for_its_owner_only_and_goes_with_the_hub() {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    let file = token_file("file");
    let other = token_file("other");
    // What a crash left behind is not written into.
    fs::write(&other, "nuncio_admin_old").unwrap();
    symlink(&other, &file).unwrap();
    let asked = Asked::start(administered(&file)).await;
    let metadata = fs::symlink_metadata(&file).unwrap();
    assert!(metadata.is_file());
    assert_eq!(format!("{:o}", metadata.mode() & 0o777), "600");
    assert_eq!(fs::read_to_string(&other).unwrap(), "nuncio_admin_old");
    let token = fs::read_to_string(&file).unwrap();
    let random = token.trim_end().strip_prefix("nuncio_admin_").unwrap();
    assert!(random.len() == 64 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token:?}");
    asked.stop().await;
    assert!(!file.exists(), "it goes at a clean end");
    let left: Vec<_> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn of_two_hubs_with_one_file_the_later_has_it() {
    let file = token_file("two");
    let first = Asked::start(administered(&file)).await;
    let old = fs::read_to_string(&file).unwrap();
    let second = Asked::start(administered(&file)).await;
    let new = fs::read_to_string(&file).unwrap();
    assert_ne!(old, new, "each start makes a token");
    first.stop().await;
    assert_eq!(fs::read_to_string(&file).unwrap(), new, "it is not the first one's to remove");
    let authorization = format!("Bearer {}", new.trim_end());
    assert_eq!(second.get("/api/v1", &[("authorization", &authorization)]).await.status(), StatusCode::OK);
    second.stop().await;
    assert!(!file.exists());
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_told_with_what_to_do() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = |listen, token_file| Config { admin: Admin { listen: Some(listen), token_file }, ..config() };
    for (config, words) in [
        (
            at(holder.local_addr().unwrap(), Some(token_file("taken"))),
            ["for administration", "--admin 127.0.0.1:0", "--admin off"],
        ),
        (
            at(([127, 0, 0, 1], 0).into(), Some(directory("admin").join("none").join("x.token"))),
            ["cannot write the admin token", "--admin-token-file", "--admin off"],
        ),
        (
            at(([127, 0, 0, 1], 0).into(), Some(directory("admin"))),
            ["cannot write the admin token", "--admin-token-file", "--admin off"],
        ),
    ] {
        let error = format!("{:#}", Hub::bind(config).await.unwrap_err());
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error:?}");
        }
    }
    assert!(!token_file("taken").exists(), "the file of a port belongs to whoever has the port");
}
