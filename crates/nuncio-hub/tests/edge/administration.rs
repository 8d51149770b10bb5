//! The API of whoever runs the hub. Every answer is held to the document that describes it.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use nuncio_hub::{
    Reloader,
    config::{Admin, Changes, Problems},
};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::{schema::check, *};

/// A hub with the demo agents, and how its operator asks it.
struct Api {
    hub: Running,
    base: String,
    token: String,
    client: Client,
    document: Value,
}

/// The answer.
#[derive(Debug)]
struct Told {
    status: u16,
    tag: Option<String>,
    body: Value,
}

impl Told {
    fn says(&self, status: u16, words: &str) {
        let message = self.body["error"]["message"].as_str().unwrap_or_default();
        assert!(
            self.status == status && message.contains(words),
            "expected {status} with {words:?}: {self:?}"
        );
    }
}

impl Api {
    async fn start(test: &str) -> Self {
        Self::with(test, |_| {}).await
    }

    async fn with(test: &str, prepare: impl FnOnce(&Hub)) -> Self {
        let file = directory("administration").join(format!("{test}.token"));
        let admin = Admin { listen: Some(([127, 0, 0, 1], 0).into()), token_file: Some(file.clone()) };
        let hub = Hub::bind(Config { admin, ..config() }).await.unwrap();
        prepare(&hub);
        let base = format!("http://{}/api/v1", hub.administered().unwrap().address);
        let token = fs::read_to_string(&file).unwrap().trim_end().to_owned();
        let client = Client::builder().no_proxy().build().unwrap();
        let mut api = Self { hub: Running::run(hub), base, token, client, document: Value::Null };
        api.document = api.send(Method::GET, "/openapi.json", None, None).await.body;
        api
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>, tag: Option<&str>) -> Told {
        let mut request =
            self.client.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let response = within("the answer", request.send()).await.unwrap();
        let status = response.status().as_u16();
        let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        let bytes = response.bytes().await.unwrap();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Told { status, tag, body }
    }

    /// Asks, and holds the answer to the document: `route` is the path as it stands there.
    async fn ask(&self, method: &str, route: &str, path: &str, body: Option<Value>) -> Told {
        let told = self.send(method.parse().unwrap(), path, body.as_ref(), None).await;
        let operation = &self.document["paths"][route][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {route} is not in the document");
        let responses = operation["responses"].as_object().unwrap();
        let is_ok = told.status < 300;
        let listed = if is_ok { told.status.to_string() } else { "default".to_owned() };
        let response = responses.get(&listed).unwrap_or_else(|| panic!("{method} {route}: {told:?}"));
        match response.pointer("/content/application~1json/schema") {
            Some(schema) => check(&told.body, schema, &self.document)
                .unwrap_or_else(|why| panic!("{method} {path}: {why}")),
            None => assert_eq!(told.body, Value::Null, "{method} {path}"),
        }
        told
    }

    async fn get(&self, path: &str) -> Told {
        let route = path.split('?').next().unwrap();
        self.ask("GET", route, path, None).await
    }

    /// Says something to an agent; the task it makes.
    async fn task(&self, agent: &str, text: &str) -> Value {
        let url = format!("{}/agents/{agent}/message:send", self.hub.url);
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] });
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let request =
            self.client.post(url).header("a2a-version", "1.0").header("content-type", "application/json");
        let response = within("the answer", request.body(body.to_string()).send()).await.unwrap();
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert!(answer["task"]["id"].is_string(), "{answer}");
        answer["task"].clone()
    }

    /// Asks until it is so.
    async fn until(&self, route: &str, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        within(path, async {
            loop {
                let told = self.ask("GET", route, path, None).await;
                if is_so(&told.body) {
                    return told.body;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn whatever_can_be_read_is_as_the_document_says() {
    let api = Api::start("read").await;
    for (path, methods) in api.document["paths"].as_object().unwrap() {
        // A stream has no end.
        if methods.get("get").is_none() || path.contains('{') || path == "/events" {
            continue;
        }
        let told = api.get(path).await;
        let expected = if path == "/config" { 409 } else { 200 };
        assert_eq!(told.status, expected, "{path}: {told:?}");
        api.get(&format!("{path}?nonsense=1")).await.says(400, "nonsense: unknown parameter");
    }
    api.send(Method::PUT, "/agents/echo", None, None).await.says(405, "GET /agents/{name}");
    api.send(Method::GET, "/nothing", None, None).await.says(404, "/api/v1/openapi.json");
    let large = Value::from("x".repeat(2 << 20));
    api.send(Method::POST, "/keys", Some(&large), None).await.says(413, "bytes");
}

#[tokio::test]
async fn agents_are_told_and_programs_are_not_taken() {
    let api = Api::start("agents").await;
    let all = api.get("/agents").await.body;
    assert_eq!(names(&all["agents"]), ["conformance", "echo", "slow"]);
    let echo = api.ask("GET", "/agents/{name}", "/agents/echo", None).await.body;
    assert_eq!(
        (&echo["kind"], &echo["origin"], &echo["mode"]),
        (&json!("demo"), &json!("flag"), &json!("durable"))
    );
    assert_eq!(echo["health"]["state"], "up");
    assert_eq!(echo["card"]["name"], "echo");
    assert_eq!(echo["interfaces"].as_array().unwrap().len(), 5, "{echo}");
    let card = api.client.get(echo["cardUrl"].as_str().unwrap()).send().await.unwrap();
    assert!(card.status().is_success());
    let health = api.ask("GET", "/agents/{name}/health", "/agents/echo/health", None).await;
    assert_eq!(health.body, json!({ "state": "up" }));
    let hub = api.get("/health").await.body;
    assert_eq!((&hub["ready"], names(&hub["agents"]).len()), (&json!(true), 3));

    let add = async |body| api.ask("POST", "/agents", "/agents", Some(body)).await;
    add(json!({ "name": "x", "command": "./agent" })).await.says(403, "only in the file");
    add(json!({ "name": "x", "url": "cmd:./agent" })).await.says(403, "only in the file");
    add(json!({ "name": "echo", "url": "https://a.example" })).await.says(409, "already");
    add(json!({ "name": "No", "url": "https://a.example" })).await.says(400, "name: No");
    add(json!({ "name": "x", "url": "https://a.example", "tmieout_seconds": 1 }))
        .await
        .says(400, "timeout_seconds");
    add(json!({ "name": "x", "url": "https://a.example", "auth": { "bearer_file": "/etc/passwd" } }))
        .await
        .says(400, "auth.bearer_file");
    let one = |method: &'static str, name: &'static str| {
        let body = (method == "PATCH").then(|| json!({ "title": "other" }));
        let api = &api;
        async move { api.ask(method, "/agents/{name}", &format!("/agents/{name}"), body).await }
    };
    one("DELETE", "echo").await.says(409, "command line");
    one("PATCH", "echo").await.says(409, "command line");
    for method in ["GET", "DELETE", "PATCH"] {
        one(method, "none").await.says(404, "there is no agent none");
    }
    api.ask("POST", "/agents/{name}:refresh", "/agents/echo:refresh", None)
        .await
        .says(409, "has no card to fetch");
    assert_eq!(names(&api.get("/agents").await.body["agents"]), ["conformance", "echo", "slow"]);
}

#[tokio::test]
async fn a_key_is_told_once_and_what_was_done_to_it_stays_in_the_trail() {
    let api = Api::start("keys").await;
    let new = json!({
        "name": "team-a", "agents": ["echo"], "operations": ["SendMessage"], "tenant": "t",
        "expires": "2999-01-01T00:00:00Z", "limits": { "perSecond": 2.5 },
    });
    let made = api.ask("POST", "/keys", "/keys", Some(new.clone())).await;
    assert_eq!(made.status, 201);
    let secret = made.body["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with(made.body["key"]["prefix"].as_str().unwrap()), "{made:?}");
    api.ask("POST", "/keys", "/keys", Some(new)).await.says(409, "team-a");
    api.ask("POST", "/keys", "/keys", Some(json!({ "name": "b", "operations": ["send"] })))
        .await
        .says(400, "there are SendMessage");
    let listed = api.get("/keys").await.body;
    assert_eq!(names(&listed["keys"]), ["team-a"]);
    let id = made.body["key"]["id"].as_str().unwrap();
    for name in ["team-a", id] {
        let shown = api.ask("GET", "/keys/{id}", &format!("/keys/{name}"), None).await.body;
        assert_eq!(
            (&shown["id"], &shown["agents"], &shown["tenant"]),
            (&json!(id), &json!(["echo"]), &json!("t"))
        );
        assert_eq!(shown["limits"], json!({ "perSecond": 2.5 }));
    }
    let rotate = Some(json!({ "overlapSeconds": 60 }));
    let rotated = api.ask("POST", "/keys/{id}:rotate", "/keys/team-a:rotate", rotate).await.body;
    assert_ne!(rotated["secret"], made.body["secret"]);
    assert!(rotated["key"]["overlapEnds"].is_string());
    let revoked = api.ask("POST", "/keys/{id}:revoke", "/keys/team-a:revoke", None).await.body;
    assert!(revoked["revoked"].is_string(), "{revoked}");
    assert_eq!(api.ask("DELETE", "/keys/{id}", "/keys/team-a", None).await.status, 204);
    api.ask("DELETE", "/keys/{id}", "/keys/team-a", None).await.says(404, "there is no key team-a");

    let rows = |trail: &Value| trail["rows"].as_array().unwrap().len();
    let trail = api.until("/audit", "/audit", |trail| rows(trail) == 4).await;
    let what: Vec<_> =
        trail["rows"].as_array().unwrap().iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["key-deleted", "key-revoked", "key-rotated", "key-created"]);
    assert!(trail["rows"].as_array().unwrap().iter().all(|row| row["key"] == id), "{trail}");
    assert!(!trail.to_string().contains(&secret) && !listed.to_string().contains(&secret));
    assert_eq!(rows(&api.get("/audit?what=key-created").await.body), 1);
    assert_eq!(rows(&api.get("/audit?since=2999-01-01T00:00:00Z").await.body), 0);
    assert_eq!(rows(&api.get("/audit?agent=echo").await.body), 0);
    api.get("/audit?what=nothing").await.says(400, "what: unknown variant");
    let first = api.get("/audit?limit=3").await.body;
    let next = first["next"].as_str().unwrap();
    let rest = api.get(&format!("/audit?limit=3&after={next}")).await.body;
    assert_eq!((rows(&first), rows(&rest), &rest["rows"][0]["what"]), (3, 1, &json!("key-created")));
}

#[tokio::test]
async fn tasks_of_all_callers_are_told_without_what_they_are_about() {
    let api = Api::start("tasks").await;
    let echo = api.task("echo", "s3cret words").await;
    let slow = api.task("slow", "1000").await;
    let (echo, slow) = (echo["id"].as_str().unwrap(), slow["id"].as_str().unwrap());
    let done = |task: &Value| task["state"] == "TASK_STATE_COMPLETED";
    let shown = api.until("/tasks/{id}", &format!("/tasks/{echo}"), done).await;
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    let timeline = shown["timeline"].as_array().unwrap();
    assert_eq!(timeline.last().unwrap()["id"], shown["lastEventId"]);
    assert!(timeline[0]["summary"].as_str().unwrap().contains("text of 12 bytes"), "{shown}");
    assert_eq!((&shown["agent"], &shown["webhooks"]), (&json!("echo"), &json!([])));
    let whole = api.ask("GET", "/tasks/{id}", &format!("/tasks/{echo}?content=true"), None).await.body;
    assert!(whole.to_string().contains("s3cret words"));
    let part = api.ask("GET", "/tasks/{id}", &format!("/tasks/{echo}?limit=1&after=1"), None).await.body;
    assert_eq!((part["timeline"].as_array().unwrap().len(), &part["timeline"][0]["id"]), (1, &json!(2)));

    let ids = |page: &Value| {
        let tasks = page["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (query, expected) in [
        ("", 2),
        ("?agent=echo", 1),
        ("?state=TASK_STATE_COMPLETED", 1),
        ("?principal=somebody", 0),
        ("?since=2999-01-01T00:00:00Z", 0),
    ] {
        assert_eq!(ids(&api.get(&format!("/tasks{query}")).await.body).len(), expected, "{query}");
    }
    api.get("/tasks?state=done").await.says(400, "TASK_STATE_WORKING");
    api.get("/tasks?after=x").await.says(400, "after: expected");
    let first = api.get("/tasks?limit=1").await.body;
    let next = first["next"].as_str().unwrap();
    let rest = api.get(&format!("/tasks?limit=1&after={next}")).await.body;
    assert_eq!([ids(&first), ids(&rest)].concat().len(), 2);

    let cancel =
        async |id: &str| api.ask("POST", "/tasks/{id}:cancel", &format!("/tasks/{id}:cancel"), None).await;
    assert_eq!(cancel(slow).await.body["state"], "TASK_STATE_CANCELED");
    cancel(echo).await.says(409, "");
    cancel("none").await.says(404, "there is no task none");
    let erase = async |body| api.ask("POST", "/tasks:erase", "/tasks:erase", Some(body)).await;
    erase(json!({})).await.says(400, "principal");
    assert_eq!(erase(json!({ "principal": "somebody" })).await.body, json!({ "erased": 0 }));
    assert_eq!(erase(json!({ "principal": null, "agent": "echo" })).await.body, json!({ "erased": 1 }));
    assert_eq!(ids(&api.get("/tasks").await.body), [slow]);
}

#[tokio::test]
async fn an_agent_is_added_changed_and_taken_away_while_the_hub_runs() {
    let far = Running::start(config()).await;
    let api = Api::start("added").await;
    let url = format!("{}/agents/echo", far.url);
    let new =
        json!({ "name": "far", "url": url, "title": "Far", "auth": { "headers": { "X-Token": "s3cret" } } });
    let added = api.ask("POST", "/agents", "/agents", Some(new.clone())).await;
    assert_eq!((added.status, added.tag.as_deref()), (201, Some("\"1\"")), "{added:?}");
    let agent = &added.body;
    assert_eq!(
        (&agent["kind"], &agent["origin"], &agent["health"]["state"]),
        (&json!("remote"), &json!("api"), &json!("up"))
    );
    assert_eq!(
        (&agent["url"], &agent["card"]["name"], &agent["upstreamCard"]["name"]),
        (&json!(url), &json!("Far"), &json!("echo"))
    );
    assert!(agent["speaks"]["version"] == "1.0" && !agent.to_string().contains("s3cret"), "{agent}");
    let task = api.task("far", "hello").await;
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    let done = api.until("/tasks/{id}", &path, |task| task["state"] == "TASK_STATE_COMPLETED").await;
    assert!(done["upstream"].is_object(), "the task there is told: {done}");

    api.ask("POST", "/agents", "/agents", Some(new)).await.says(409, "by the API");
    let refreshed = api.ask("POST", "/agents/{name}:refresh", "/agents/far:refresh", None).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    let patch = async |tag| {
        let body = json!({ "title": "Farther", "timeout_seconds": 7 });
        api.send(Method::PATCH, "/agents/far", Some(&body), Some(tag)).await
    };
    patch("\"7\"").await.says(412, "read it again");
    let changed = patch("\"1\"").await;
    assert_eq!((changed.tag.as_deref(), &changed.body["card"]["name"]), (Some("\"2\""), &json!("Farther")));
    api.send(Method::DELETE, "/agents/far", None, Some("\"1\"")).await.says(412, "read it again");
    assert_eq!(api.ask("DELETE", "/agents/{name}", "/agents/far", None).await.status, 204);
    assert_eq!(names(&api.get("/agents").await.body["agents"]), ["conformance", "echo", "slow"]);
    let rows = |trail: &Value| trail["rows"].as_array().unwrap().len();
    api.until("/audit", "/audit?agent=far", |trail| rows(trail) == 4).await;
}

#[tokio::test]
async fn an_agent_is_audited_at_its_own_address_and_the_result_is_kept() {
    let far = Running::start(config()).await;
    let api = Api::start("audited").await;
    let url = format!("{}/agents/echo", far.url);
    let new = json!({ "name": "far", "url": url });
    assert_eq!(api.ask("POST", "/agents", "/agents", Some(new.clone())).await.status, 201);
    let audit = async |name: &str, body: Value| {
        api.ask("POST", "/agents/{name}:audit", &format!("/agents/{name}:audit"), Some(body)).await
    };
    let latest =
        async |name| api.ask("GET", "/agents/{name}/audit", &format!("/agents/{name}/audit"), None).await;
    let shown = async |name| api.ask("GET", "/agents/{name}", &format!("/agents/{name}"), None).await.body;
    latest("echo").await.says(404, "echo has not been audited yet");
    for (name, target) in [("far", url.clone()), ("echo", format!("{}/agents/echo", api.hub.url))] {
        let told = audit(name, json!({})).await;
        assert_eq!((told.status, &told.body["target"]), (200, &json!(target)), "{told:?}");
        let outcome = ["grade", "failed", "messagesSent", "depths"].map(|member| &told.body[member]);
        assert_eq!(outcome, [&json!("A"), &json!(0), &json!(0), &json!(["look"])], "{name}");
        assert_eq!(told.body, latest(name).await.body, "{name}");
        assert_eq!(shown(name).await["audits"][0]["at"], told.body["at"], "{name}");
    }
    assert_eq!(api.get("/tasks").await.body["tasks"], json!([]), "a look sends no message");

    let deeper = audit("echo", json!({ "send": "hello" })).await.body;
    assert_eq!(deeper["depths"], json!(["look", "send"]));
    assert!(deeper["messagesSent"].as_u64() > Some(0), "{}", deeper["messagesSent"]);
    assert!(deeper["report"]["changes"]["changes"].is_array(), "compared with the audit before");
    assert_eq!(shown("echo").await["audits"].as_array().unwrap().len(), 2);
    let running = api.get("/tasks?state=TASK_STATE_WORKING").await.body;
    assert_eq!(running["tasks"], json!([]), "an audit leaves no task running");

    audit("none", json!({})).await.says(404, "there is no agent none");
    audit("echo", json!({ "send": "" })).await.says(400, "send:");
    audit("echo", json!({ "deadlineSeconds": 0 })).await.says(400, "deadlineSeconds: expected 1 to");
    audit("far", json!({ "key": "s3cret" })).await.says(400, "leave the key out");
    let rows = |trail: &Value| trail["rows"].as_array().unwrap().len();
    api.until("/audit", "/audit?what=agent-audited", |trail| rows(trail) == 3).await;

    assert_eq!(api.ask("DELETE", "/agents/{name}", "/agents/far", None).await.status, 204);
    assert_eq!(api.ask("POST", "/agents", "/agents", Some(new)).await.status, 201);
    assert_eq!(shown("far").await["audits"], Value::Null, "another agent of this name has no audit");
}

/// Answers as it was told to.
struct Scripted(Mutex<Vec<Result<Changes, Problems>>>);

#[async_trait::async_trait]
impl Reloader for Scripted {
    fn shown(&self) -> Value {
        json!({ "config": { "listen": "127.0.0.1:2602" }, "origins": { "listen": "default" } })
    }

    fn files(&self) -> Vec<String> {
        vec!["nuncio.toml".to_owned()]
    }

    async fn reload(&self, _force: bool) -> Result<Changes, Problems> {
        self.0.lock().unwrap().remove(0)
    }
}

#[tokio::test]
async fn the_configuration_is_told_and_read_again() {
    let changes = Changes { limits: true, needs_restart: vec!["listen"], ..Changes::default() };
    let script = vec![Ok(changes), Err(Problems(Vec::new()))];
    let api = Api::with("config", |hub| hub.reload_by(Arc::new(Scripted(Mutex::new(script))))).await;
    assert_eq!(api.get("/config").await.body["origins"]["listen"], "default");
    let reload = async || api.ask("POST", "/config:reload", "/config:reload", None).await;
    let told = reload().await.body;
    assert_eq!((&told["parts"], &told["needsRestart"]), (&json!(["limits"]), &json!(["listen"])));
    assert_eq!(told["files"], json!(["nuncio.toml"]), "{told}");
    reload().await.says(409, "the previous configuration stays in force");
    api.until("/audit", "/audit?what=config-reloaded", |trail| !trail["rows"].as_array().unwrap().is_empty())
        .await;
}

#[tokio::test]
async fn the_figures_follow_the_calls() {
    let api = Api::start("figures").await;
    let before = api.get("/stats").await.body;
    assert_eq!((&before["calls"]["calls"], &before["tasks"]), (&json!(0), &json!([])), "{before}");
    assert!(before["calls"].get("latency").is_none() && before["errors"] == json!([]), "{before}");
    let kinds = |stats: &Value| -> Vec<String> {
        let warnings = stats["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&before), ["memory-store", "unsigned-cards"]);
    api.task("echo", "hello").await;
    let unknown = format!("{}/agents/echo/tasks/none", api.hub.url);
    let unknown = api.client.get(unknown).header("a2a-version", "1.0");
    assert_eq!(within("the answer", unknown.send()).await.unwrap().status(), 404);

    let stats = api.get("/stats?minutes=0").await.body;
    let echo = stats["byAgent"].as_array().unwrap().iter().find(|agent| agent["name"] == "echo").unwrap();
    assert_eq!((&echo["calls"], &echo["failed"], &echo["errorRate"]), (&json!(2), &json!(0), &json!(0.0)));
    assert!(echo["lastCall"].is_string() && echo["latency"]["p50"].as_f64().unwrap() > 0.0, "{echo}");
    assert_eq!((&stats["calls"]["calls"], &stats["history"]), (&json!(2), &json!([])));
    assert_eq!(stats["errors"], json!([{ "reason": "TASK_NOT_FOUND", "code": -32001, "calls": 1 }]));
    assert_eq!(stats["mix"], json!([{ "version": "1.0", "binding": "HTTP+JSON", "calls": 2 }]));
    assert_eq!(stats["agents"]["up"], json!(stats["byAgent"].as_array().unwrap().len()));
    assert_eq!(stats["store"]["kind"], "memory");
    let soon = "2999-01-01T00:00:00Z";
    for (name, expires) in [("late", soon.to_owned()), ("soon", in_a_week())] {
        let told = api.ask("POST", "/keys", "/keys", Some(json!({ "name": name, "expires": expires }))).await;
        assert_eq!(told.status, 201, "{told:?}");
    }
    let warnings = api.get("/stats").await.body["warnings"].clone();
    assert_eq!((&warnings[0]["kind"], &warnings[0]["subject"]), (&json!("key-expires"), &json!("soon")));
    api.get("/stats?minutes=999").await.says(400, "minutes: expected a number from 0 to 360");
}

fn in_a_week() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let week = i64::try_from(now.as_millis()).unwrap() + 7 * 24 * 60 * 60 * 1000;
    nuncio_protocol::Timestamp::from_millis(week).unwrap().to_string()
}

#[tokio::test]
async fn tasks_are_found_by_context_age_and_the_beginning_of_their_id() {
    let api = Api::start("filters").await;
    let task = api.task("echo", "hello").await;
    api.task("echo", "again").await;
    let (id, context) = (task["id"].as_str().unwrap(), task["contextId"].as_str().unwrap());
    for (query, expected) in [
        (format!("context={context}"), 1),
        ("context=none".to_owned(), 0),
        (format!("id={id}"), 1),
        ("id=none".to_owned(), 0),
        ("before=2999-01-01T00:00:00Z".to_owned(), 2),
        ("before=2001-01-01T00:00:00Z".to_owned(), 0),
        (format!("context={context}&before=2001-01-01T00:00:00Z"), 0),
    ] {
        let told = api.get(&format!("/tasks?{query}")).await;
        assert_eq!(told.body["tasks"].as_array().unwrap().len(), expected, "{query}: {told:?}");
    }
}

/// The next event of a stream, held to the document; heartbeats are skipped.
async fn event(api: &Api, stream: &mut reqwest::Response) -> Value {
    within("an event", async {
        loop {
            let chunk = stream.chunk().await.unwrap().unwrap();
            let text = String::from_utf8(chunk.to_vec()).unwrap();
            let Some((id, data)) =
                text.trim_end().strip_prefix("id: ").and_then(|text| text.split_once("\ndata: "))
            else {
                continue;
            };
            let data = data.split('\n').next().unwrap();
            let event: Value = serde_json::from_str(data).unwrap();
            let schema =
                &api.document["paths"]["/events"]["get"]["responses"]["200"]["content"]["text/event-stream"];
            check(&event, &schema["schema"], &api.document).unwrap_or_else(|why| panic!("{event}: {why}"));
            assert_eq!(event["cursor"], id);
            return event;
        }
    })
    .await
}

/// Follows the events with this token, after this cursor.
async fn follow(api: &Api, token: &str, last: Option<&str>) -> reqwest::Response {
    let mut request = api.client.get(format!("{}/events", api.base)).bearer_auth(token);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = within("the stream", request.send()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}

#[tokio::test]
async fn events_tell_of_changes_and_a_reader_goes_on_where_it_stopped() {
    let api = Api::start("events").await;
    let mut stream = follow(&api, &api.token, None).await;
    let task = api.task("echo", "a secret").await;
    let mut last = json!({});
    while last["state"] != "TASK_STATE_COMPLETED" {
        last = event(&api, &mut stream).await;
        assert_eq!(
            (&last["kind"], &last["agent"], &last["taskId"]),
            (&json!("task"), &json!("echo"), &task["id"])
        );
        assert!(!last.to_string().contains("secret"), "{last}");
    }
    drop(stream);
    api.ask("POST", "/keys", "/keys", Some(json!({ "name": "k" }))).await;
    let mut stream = follow(&api, &api.token, last["cursor"].as_str()).await;
    let key = event(&api, &mut stream).await;
    assert_eq!((&key["kind"], &key["change"]), (&json!("key"), &json!("key-created")));
    let mut stream = follow(&api, &api.token, Some("0000000000000000-7")).await;
    let reset = event(&api, &mut stream).await;
    assert_eq!((&reset["kind"], reset["cursor"].is_string()), (&json!("reset"), true));
}

#[tokio::test]
async fn a_viewer_reads_everything_but_content_and_changes_nothing() {
    let mut api = Api::start("viewer").await;
    let (operator, task) = (api.token.clone(), api.task("echo", "a secret").await);
    let create = |name: &str, role: &str| json!({ "name": name, "role": role });
    let path = "/admin-tokens";
    let made = api.ask("POST", path, path, Some(create("wall", "viewer"))).await;
    assert_eq!(made.status, 201, "{made:?}");
    api.ask("POST", path, path, Some(create("wall", "viewer"))).await.says(409, "already");
    api.ask("POST", path, path, Some(create("", "viewer"))).await.says(400, "name: expected");
    api.send(Method::POST, path, Some(&create("x", "root")), None).await.says(400, "unknown variant");
    let task = format!("/tasks/{}?content=true", task["id"].as_str().unwrap());
    assert!(api.send(Method::GET, &task, None, None).await.body.to_string().contains("a secret"));

    api.token = made.body["text"].as_str().unwrap().to_owned();
    let mut stream = follow(&api, &api.token, None).await;
    let seen = api.send(Method::GET, &task, None, None).await;
    assert!(seen.status == 200 && !seen.body.to_string().contains("a secret"), "{seen:?}");
    assert!(!seen.body["timeline"].as_array().unwrap().is_empty());
    for (route, methods) in api.document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let path = route.replace(['{', '}'], "");
            let method: Method = method.to_uppercase().parse().unwrap();
            api.send(method, &path, None, None).await.says(403, "of a viewer");
        }
    }
    let mut wrong = api.token.clone();
    wrong.replace_range(wrong.len() - 1.., if wrong.ends_with('0') { "1" } else { "0" });
    for token in [wrong.as_str(), "nuncio_viewer_x_y", "nuncio_viewer", ""] {
        let request = api.client.get(format!("{}/health", api.base)).bearer_auth(token);
        assert_eq!(within("the answer", request.send()).await.unwrap().status(), 401, "{token}");
    }

    let viewer = std::mem::replace(&mut api.token, operator);
    assert_eq!(names(&api.get(path).await.body["tokens"]), ["wall"]);
    let revoked = api.ask("DELETE", "/admin-tokens/{id}", "/admin-tokens/wall", None).await;
    assert_eq!(revoked.status, 204);
    within("the end of the stream", async { while stream.chunk().await.unwrap().is_some() {} }).await;
    let request = api.client.get(format!("{}/health", api.base)).bearer_auth(viewer);
    assert_eq!(within("the answer", request.send()).await.unwrap().status(), 401);
    api.until("/audit", "/audit?what=admin-token-revoked", |page| page["rows"][0]["detail"] == "wall").await;
}
