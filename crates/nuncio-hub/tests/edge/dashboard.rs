//! The dashboard as a browser meets it: who gets in, what is refused, and what every answer carries.

use std::fs;

use nuncio_hub::config::Admin;
use reqwest::{Client, Method, Response, redirect::Policy};
use serde_json::{Value, json};

use super::*;

/// A hub, and a browser that follows no redirects.
struct Dashboard {
    hub: Running,
    base: String,
    token: String,
    client: Client,
}

impl Dashboard {
    async fn start(test: &str) -> Self {
        let file = directory("dashboard").join(format!("{test}.token"));
        let admin = Admin { listen: Some(([127, 0, 0, 1], 0).into()), token_file: Some(file.clone()) };
        let hub = Hub::bind(Config { admin, ..config() }).await.unwrap();
        let base = format!("http://{}", hub.administered().unwrap().address);
        let token = fs::read_to_string(&file).unwrap().trim_end().to_owned();
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { hub: Running::run(hub), base, token, client }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let method: Method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.base)).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        within("the answer", request.send()).await.unwrap()
    }

    async fn api(&self, path: &str, body: Value) -> Value {
        let bearer = format!("Bearer {}", self.token);
        let answer = self
            .send("POST", &format!("/api/v1{path}"), &[("authorization", &bearer)], &body.to_string())
            .await;
        assert!(answer.status().is_success(), "{path}");
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// Signs in by a token; the cookie.
    async fn sign_in(&self, token: &str) -> Option<String> {
        let answer = self.send("POST", "/ui/login", &[SAME_ORIGIN], &format!("admin_token={token}")).await;
        let cookie = answer.headers().get("set-cookie")?.to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        Some(cookie.split(';').next().unwrap().to_owned())
    }

    /// The token of the forms of a session.
    async fn form_token(&self, cookie: &str) -> String {
        let page = self.send("GET", "/ui/access", &[("cookie", cookie)], "").await.text().await.unwrap();
        let (_, rest) = page.split_once(r#"name="token" value=""#).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test]
async fn writes_are_refused_without_a_session_an_origin_or_the_token_of_the_form() {
    let dashboard = Dashboard::start("refusals").await;
    let cookie = dashboard.sign_in(&dashboard.token).await.unwrap();
    let form_token = dashboard.form_token(&cookie).await;
    let other = dashboard.sign_in(&dashboard.token).await.unwrap();
    let (own, foreign) = (("cookie", &*cookie), ("cookie", &*other));
    let guessed = format!("{}=guessed", cookie.split('=').next().unwrap());
    let guessed = ("cookie", &*guessed);
    let good = format!("token={form_token}&name=made");
    for (headers, body, expected) in [
        (&[own][..], &*good, 403),
        (&[own, ("sec-fetch-site", "cross-site")], &good, 403),
        (&[own, ("sec-fetch-site", "same-site")], &good, 403),
        (&[own, ("origin", "http://evil.example")], &good, 403),
        (&[own, SAME_ORIGIN], "name=made", 403),
        (&[own, SAME_ORIGIN], "token=guessed&name=made", 403),
        (&[foreign, SAME_ORIGIN], &good, 403),
        (&[SAME_ORIGIN], &good, 401),
        (&[guessed, SAME_ORIGIN], &good, 401),
        (&[own, SAME_ORIGIN, ("host", "evil.example")], &good, 421),
        (&[own, SAME_ORIGIN], &good, 303),
    ] {
        let answer = dashboard.send("POST", "/ui/access", headers, body).await;
        assert_eq!(answer.status().as_u16(), expected, "{headers:?} {body}");
    }
    // After signing out the cookie is worth nothing.
    let out = format!("token={form_token}");
    assert_eq!(dashboard.send("POST", "/ui/logout", &[own, SAME_ORIGIN], &out).await.status(), 303);
    let answer = dashboard.send("GET", "/ui", &[own], "").await;
    assert_eq!(answer.headers()["location"], "/ui/login?next=%2Fui");
}

#[tokio::test]
async fn every_answer_forbids_frames_and_scripts_that_are_not_ours() {
    let dashboard = Dashboard::start("headers").await;
    let cookie = dashboard.sign_in(&dashboard.token).await.unwrap();
    for (path, status) in [
        ("/", 303),
        ("/ui", 200),
        ("/ui/login", 200),
        ("/ui/nothing", 404),
        ("/ui/api/v1/tasks", 200),
        ("/ui/api/v1/tasks/none?content=true", 403),
        ("/ui/api/v1/tasks/none/artifacts/a/parts/1", 403),
        ("/ui/tasks/none/artifacts/a/1", 403),
        ("/ui/assets/nuncio.js", 200),
    ] {
        let answer = dashboard.send("GET", path, &[("cookie", &cookie)], "").await;
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let header = |name| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action \
             'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types nuncio"
        );
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-frame-options"), "DENY");
    }
}

#[tokio::test]
async fn a_code_signs_in_once_and_a_guess_does_not() {
    let dashboard = Dashboard::start("codes").await;
    let code = dashboard.api("/dashboard:open", Value::Null).await;
    let path = code["path"].as_str().unwrap();
    for (path, expected) in [("/ui/login?code=guessed", 401), (path, 303), (path, 401)] {
        let answer = dashboard.send("GET", path, &[], "").await;
        assert_eq!(answer.status().as_u16(), expected);
        assert_eq!(answer.headers().contains_key("set-cookie"), expected == 303);
    }
    assert_eq!(dashboard.sign_in("wrong").await, None);
}

#[tokio::test]
async fn a_viewer_reads_and_changes_nothing_and_a_revoked_token_ends_its_session() {
    let dashboard = Dashboard::start("viewer").await;
    let viewer = dashboard.api("/admin-tokens", json!({ "name": "eve", "role": "viewer" })).await;
    let cookie = dashboard.sign_in(viewer["text"].as_str().unwrap()).await.unwrap();
    let form_token = dashboard.form_token(&cookie).await;
    let headers = [("cookie", &*cookie), SAME_ORIGIN];
    let task = dashboard.task().await;
    for (path, fields) in [
        ("/ui/access".to_owned(), "name=made"),
        (format!("/ui/tasks/{task}/cancel"), ""),
        (format!("/ui/tasks/{task}/content"), ""),
        (format!("/ui/tasks/{task}/export"), ""),
        ("/ui/deliveries/redrive".to_owned(), "since=1h"),
        ("/ui/config/reload".to_owned(), ""),
        (format!("/ui/tasks/{task}/notify"), ""),
        ("/ui/try".to_owned(), "agent=echo&text=x"),
        ("/ui/try/x/cancel".to_owned(), ""),
        ("/ui/agents/echo/audit".to_owned(), ""),
        ("/ui/mailboxes/x/take-over".to_owned(), ""),
        ("/ui/mailboxes/x/retry".to_owned(), ""),
        ("/ui/mailboxes/x/rotate".to_owned(), ""),
        ("/ui/rooms/x/reset".to_owned(), ""),
        ("/ui/access/callers/accept".to_owned(), "agent=echo&principal=x"),
    ] {
        let answer = dashboard.send("POST", &path, &headers, &format!("token={form_token}&{fields}")).await;
        assert_eq!(answer.status(), 403, "{path}");
    }
    let page = dashboard.send("GET", &format!("/ui/tasks/{task}"), &headers, "").await;
    assert_eq!(page.status(), 200);
    assert!(!page.text().await.unwrap().contains("Show content"));
    let revoke = format!("/api/v1/admin-tokens/{}", viewer["id"].as_str().unwrap());
    let bearer = format!("Bearer {}", dashboard.token);
    assert_eq!(dashboard.send("DELETE", &revoke, &[("authorization", &bearer)], "").await.status(), 204);
    assert_eq!(dashboard.send("GET", "/ui", &headers, "").await.status(), 303, "to the login page");
}

impl Dashboard {
    /// Makes a task with the text of somebody hostile; its id.
    async fn task(&self) -> String {
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": HOSTILE }], "contextId": HOSTILE });
        let url = format!("{}/agents/echo/message:send", self.hub.url);
        let request =
            self.client.post(url).header("a2a-version", "1.0").header("content-type", "application/json");
        let request = request.body(json!({ "message": message }).to_string());
        let answer = within("the answer", request.send()).await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["task"]["id"].as_str().unwrap().to_owned()
    }
}

const HOSTILE: &str = "\"'><script>alert(1)</script>";

#[tokio::test]
async fn a_form_with_files_needs_the_token_as_well() {
    let dashboard = Dashboard::start("multipart").await;
    let cookie = dashboard.sign_in(&dashboard.token).await.unwrap();
    let form_token = dashboard.form_token(&cookie).await;
    let headers = [("cookie", &*cookie), SAME_ORIGIN, ("content-type", "multipart/form-data; boundary=b")];
    let field = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    for (token, end, expected) in
        [("guessed", "--b--\r\n", 403), (&*form_token, "", 400), (&form_token, "--b--\r\n", 303)]
    {
        let body = field("token", token) + &field("agent", "echo") + &field("text", "hello") + end;
        let answer = dashboard.send("POST", "/ui/try", &headers, &body).await;
        assert_eq!(answer.status().as_u16(), expected, "{body}");
    }
}

#[tokio::test]
async fn what_callers_say_is_escaped_on_every_page_that_shows_it() {
    let dashboard = Dashboard::start("escaping").await;
    let task = dashboard.task().await;
    let cookie = dashboard.sign_in(&dashboard.token).await.unwrap();
    let form_token = dashboard.form_token(&cookie).await;
    let headers = [("cookie", &*cookie), SAME_ORIGIN];
    let shown = dashboard
        .send("POST", &format!("/ui/tasks/{task}/content"), &headers, &format!("token={form_token}"))
        .await;
    assert_eq!(shown.status(), 303);
    for path in ["/ui".to_owned(), "/ui/tasks".to_owned(), format!("/ui/tasks/{task}")] {
        let page = dashboard.send("GET", &path, &headers, "").await.text().await.unwrap();
        assert!(page.contains("&#60;script&#62;"), "{path} shows it");
        assert!(!page.contains("<script>"), "{path} runs nothing");
    }
    for path in [
        "/ui/try?agent=%22%3E%3Cscript%3E",
        "/ui/try?card=%22%3E%3Cscript%3E",
        "/ui/try?context=%22%3E%3Cscript%3E",
    ] {
        let page = dashboard.send("GET", path, &headers, "").await.text().await.unwrap();
        assert!(!page.contains("<script>"), "{path} runs nothing");
    }
    let query = "/ui/tasks?principal=%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    let page = dashboard.send("GET", query, &headers, "").await.text().await.unwrap();
    assert!(!page.contains("<script>"), "what an address says is text as well");
}

/// `tests/browser/pictures` takes them.
#[test]
fn the_pictures_of_the_documentation_exist_and_are_small() {
    const MAX_BYTES: u64 = 128 * 1024;
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = std::collections::BTreeSet::new();
    for (document, folder) in [("docs/dashboard.md", "docs"), ("README.md", ".")] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let images = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(path, _)| path);
        for image in images.filter(|path| path.ends_with(".png")) {
            let file = root.join(folder).join(image);
            let bytes =
                fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
            assert!(bytes <= MAX_BYTES, "{image} has {bytes} bytes");
            seen.insert(file.file_name().unwrap().to_owned());
        }
    }
    assert!(seen.len() >= 6, "{seen:?}");
}
