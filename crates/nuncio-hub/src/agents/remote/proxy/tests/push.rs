//! Webhooks with the hub in between.

use nuncio_client::Policy;
use nuncio_protocol::{
    A2aService as _, AuthenticationInfo, CallContext, DeleteTaskPushNotificationConfigRequest, ErrorKind,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest, Message, Part,
    SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig,
};
use nuncio_server::{
    push::{Push, PushOptions, RootKey},
    testing::FailingStore,
};
use serde_json::{Value, json};

use super::*;

fn pushing(store: &Arc<dyn Store>) -> Pushing {
    let egress = Egress::guarded(Policy { allow_private: true, ..Policy::default() }).unwrap();
    let push = Push::builder(Arc::clone(store), egress, RootKey::new([1; 32])).build().unwrap();
    Pushing { push, options: PushOptions::default() }
}

/// An agent of version 1.0 that registers webhooks, and a hub before it.
async fn pair(apart: bool) -> (Canned, Hub) {
    pair_on(Arc::new(MemoryStore::default()), apart).await
}

async fn pair_on(store: Arc<dyn Store>, apart: bool) -> (Canned, Hub) {
    let upstream = Canned::start(&FORMS[..1], |asked| {
        let asked: Value = serde_json::from_slice(&asked.body).unwrap();
        let task = json!({ "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } });
        let result = match asked["method"].as_str().unwrap() {
            "SendMessage" => json!({ "task": task }),
            "GetTask" => task,
            "CreateTaskPushNotificationConfig" => asked["params"].clone(),
            _ => Value::Null,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        typed(StatusCode::OK, "application/json", answer.to_string())
    })
    .await;
    let settings = Upstream::new(Url::parse(&upstream.base).unwrap());
    let hub = hub_with(settings, apart, Some(pushing(&store)), store).await;
    (upstream, hub)
}

/// A receiver that takes everything, or nothing.
async fn receiver(status: u16) -> (String, Arc<Mutex<Vec<Asked>>>) {
    let canned =
        Canned::start(&[], move |_| typed(StatusCode::from_u16(status).unwrap(), "text/plain", "")).await;
    (format!("{}/hook?key=1", canned.base), canned.asked)
}

fn webhook(url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        task_id: Some("t".into()),
        id: Some("w".into()),
        url: url.to_owned(),
        token: Some("token-of-ann".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("credentials-of-ann".to_owned()),
        }),
        tenant: None,
    }
}

fn send(webhook: Option<TaskPushNotificationConfig>) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        task_push_notification_config: webhook,
        ..SendMessageConfiguration::default()
    };
    SendMessageRequest {
        message: Message::user("m", [Part::text("hi")]),
        configuration: Some(configuration),
        ..SendMessageRequest::default()
    }
}

/// The address that the agent was given last.
fn given(upstream: &Canned) -> String {
    let asked = upstream.asked();
    let urls = asked.iter().filter_map(|asked| {
        let asked: Value = serde_json::from_slice(&asked.body).unwrap();
        let inline = &asked["params"]["configuration"]["taskPushNotificationConfig"]["url"];
        [&asked["params"]["url"], inline].into_iter().find_map(|url| url.as_str().map(str::to_owned))
    });
    urls.last().unwrap()
}

/// Posts as the agent does.
async fn notify(url: &str, body: &Value) -> StatusCode {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = client.post(url).header("content-type", "application/a2a+json").body(body.to_string()).send();
    StatusCode::from_u16(sent.await.unwrap().status().as_u16()).unwrap()
}

fn update() -> Value {
    json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": "TASK_STATE_COMPLETED" }, "unheard": "of" } })
}

#[tokio::test]
async fn a_notification_goes_on_to_the_caller_in_its_own_version() {
    for version in [Version::V1_0, Version::V0_3] {
        for inline in [false, true] {
            let (upstream, hub) = pair(true).await;
            let (url, taken) = receiver(200).await;
            let ann = hub.service("ann", (Binding::JsonRpc, version));
            let cx = CallContext::default();
            if inline {
                ann.send_message(&cx, send(Some(webhook(&url)))).await.unwrap();
            } else {
                ann.send_message(&cx, send(None)).await.unwrap();
                let told = ann.create_task_push_notification_config(&cx, webhook(&url)).await.unwrap();
                assert_eq!(told, webhook(&url), "as it was given");
            }
            let address = given(&upstream);
            assert!(address.starts_with(&format!("{}/agents/up/push/", hub.base)), "{address}");
            let seen = upstream.asked().iter().map(|asked| format!("{asked:?}")).collect::<String>();
            for secret in ["token-of-ann", "credentials-of-ann", url.as_str()] {
                assert!(!seen.contains(secret), "the agent does not learn {secret}");
            }
            assert_eq!(notify(&address, &update()).await, StatusCode::NO_CONTENT);
            let got = taken.lock().unwrap().pop().unwrap();
            let body: Value = serde_json::from_slice(&got.body).unwrap();
            match version {
                Version::V1_0 => assert_eq!(body, update()),
                Version::V0_3 => {
                    assert_eq!((&body["kind"], &body["id"]), (&"task".into(), &"t".into()), "{body}")
                }
            }
            assert_eq!(got.headers["a2a-version"], version.as_str());
            assert_eq!(got.headers["x-a2a-notification-token"], "token-of-ann");
            assert_eq!(got.headers["authorization"], "Bearer credentials-of-ann");
            assert_eq!(got.path, "/hook?key=1");
        }
    }
}

#[tokio::test]
async fn callers_see_their_own_configuration_and_can_take_it_back() {
    let (upstream, hub) = pair(true).await;
    let (url, taken) = receiver(200).await;
    let cx = CallContext::default();
    let ann = hub.service("ann", FORMS[0]);
    ann.send_message(&cx, send(None)).await.unwrap();
    ann.create_task_push_notification_config(&cx, webhook(&url)).await.unwrap();
    let address = given(&upstream);
    let get = || GetTaskPushNotificationConfigRequest { task_id: "t".into(), id: "w".into(), tenant: None };
    let told = ann.get_task_push_notification_config(&cx, get()).await.unwrap();
    assert_eq!((told.url, told.authentication.unwrap().credentials), (url, None));
    let list = ListTaskPushNotificationConfigsRequest { task_id: "t".into(), ..Default::default() };
    assert_eq!(ann.list_task_push_notification_configs(&cx, list).await.unwrap().configs.len(), 1);
    let bob = hub.service("bob", FORMS[0]).get_task_push_notification_config(&cx, get()).await.unwrap_err();
    assert_eq!(bob.kind(), ErrorKind::TaskNotFound);
    let delete =
        DeleteTaskPushNotificationConfigRequest { task_id: "t".into(), id: "w".into(), tenant: None };
    ann.delete_task_push_notification_config(&cx, delete.clone()).await.unwrap();
    ann.delete_task_push_notification_config(&cx, delete).await.unwrap();
    assert!(ann.get_task_push_notification_config(&cx, get()).await.is_err());
    assert_eq!(notify(&address, &update()).await, StatusCode::NOT_FOUND);
    assert!(taken.lock().unwrap().is_empty());
}

#[tokio::test]
async fn only_the_agent_can_notify_and_what_is_not_taken_is_its_to_repeat() {
    let (upstream, hub) = pair(false).await;
    let (url, taken) = receiver(500).await;
    let ann = hub.service("ann", FORMS[0]);
    ann.create_task_push_notification_config(&CallContext::default(), webhook(&url)).await.unwrap();
    let address = given(&upstream);
    for wrong in [
        format!("{address}x"),
        address[..address.len() - 1].to_owned(),
        format!("{}/agents/up/push/a", hub.base),
    ] {
        assert_eq!(notify(&wrong, &update()).await, StatusCode::NOT_FOUND, "{wrong}");
    }
    assert_eq!(notify(&address, &json!({ "hello": 1 })).await, StatusCode::BAD_REQUEST);
    let other = json!({ "statusUpdate": { "taskId": "other", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } } });
    assert_eq!(notify(&address, &other).await, StatusCode::BAD_REQUEST, "a task that it was not made for");
    assert!(taken.lock().unwrap().is_empty());
    assert_eq!(notify(&address, &update()).await, StatusCode::BAD_GATEWAY);
    assert_eq!(taken.lock().unwrap().len(), 1);
}

/// The address alone admits a post, so that anybody may try one.
#[tokio::test]
async fn nobody_learns_by_posting_which_agents_there_are() {
    let (_, hub) = pair(true).await;
    for address in ["a", "a.b", "%61.b", "a.b/c"] {
        let post = async |name: &str| {
            let asked =
                posted(&format!("/agents/{name}/push/{address}"), "application/json", Version::V1_0, "{}");
            let (status, mut headers, body, _) = hub.ask("nobody", asked).await;
            // Of no two answers the same.
            headers.remove("date");
            let id = headers.remove("x-request-id").unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap().replace(id.to_str().unwrap(), "ID");
            (status, headers, body.replace(name, "NAME"))
        };
        assert_eq!(post(NAME).await, post("qx").await, "{address}");
    }
}

#[tokio::test]
async fn there_is_an_end_to_the_webhooks_of_a_task() {
    let (_, hub) = pair(true).await;
    let (ann, cx) = (hub.service("ann", FORMS[0]), CallContext::default());
    ann.send_message(&cx, send(None)).await.unwrap();
    let named = |n: usize| TaskPushNotificationConfig {
        id: Some(n.to_string().as_str().into()),
        ..webhook("https://hook.example/")
    };
    for n in 0..256 {
        ann.create_task_push_notification_config(&cx, named(n)).await.unwrap();
    }
    let error = ann.create_task_push_notification_config(&cx, named(256)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    ann.create_task_push_notification_config(&cx, named(0)).await.unwrap();
}

/// As the agent itself answers, whether or not callers are told apart.
#[tokio::test]
async fn webhooks_of_a_task_that_nobody_has_are_not_found() {
    let upstream = Canned::start(&FORMS[..1], |asked| {
        let asked: Value = serde_json::from_slice(&asked.body).unwrap();
        let params = &asked["params"];
        let is_known = [&params["id"], &params["taskId"]].contains(&&json!("t"));
        let mut answer = json!({ "jsonrpc": "2.0", "id": asked["id"] });
        match asked["method"].as_str().unwrap() {
            "SendMessage" => answer["result"] = json!({ "task": { "id": "t", "contextId": "c" } }),
            _ if !is_known => answer["error"] = json!({ "code": -32001, "message": "no such task" }),
            "GetTask" => answer["result"] = json!({ "id": "t", "contextId": "c" }),
            _ => answer["result"] = params.clone(),
        }
        typed(StatusCode::OK, "application/json", answer.to_string())
    })
    .await;
    for apart in [false, true] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let settings = Upstream::new(Url::parse(&upstream.base).unwrap());
        let hub = hub_with(settings, apart, Some(pushing(&store)), store).await;
        for form in FORMS {
            let (ann, cx) = (hub.service("ann", form), CallContext::default());
            let get = |task: &str| GetTaskPushNotificationConfigRequest {
                task_id: task.into(),
                id: "none".into(),
                tenant: None,
            };
            let list = |task: &str| ListTaskPushNotificationConfigsRequest {
                task_id: task.into(),
                ..Default::default()
            };
            let delete = |task: &str| DeleteTaskPushNotificationConfigRequest {
                task_id: task.into(),
                id: "none".into(),
                tenant: None,
            };
            let mut create = webhook("https://hook.example/");
            create.task_id = Some("nobody's".into());
            for (what, error) in [
                ("get", ann.get_task_push_notification_config(&cx, get("nobody's")).await.err()),
                ("list", ann.list_task_push_notification_configs(&cx, list("nobody's")).await.err()),
                ("delete", ann.delete_task_push_notification_config(&cx, delete("nobody's")).await.err()),
                ("create", ann.create_task_push_notification_config(&cx, create).await.err()),
            ] {
                let error = error.unwrap_or_else(|| panic!("{what} {form:?} {apart}"));
                assert_eq!(error.kind(), ErrorKind::TaskNotFound, "{what} {form:?} {apart}: {error}");
                if what != "create" {
                    assert_eq!(error.message(), "task not found", "{what} {form:?} {apart}");
                }
            }
            // A task that is there, without webhooks.
            ann.send_message(&cx, send(None)).await.unwrap();
            let error = ann.get_task_push_notification_config(&cx, get("t")).await.unwrap_err();
            assert!(error.message().contains("configuration"), "{form:?} {apart}: {error}");
            assert!(
                ann.list_task_push_notification_configs(&cx, list("t")).await.unwrap().configs.is_empty()
            );
            ann.delete_task_push_notification_config(&cx, delete("t")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn where_the_agent_does_not_push_neither_does_the_hub() {
    let upstream = agent(&FORMS, false).await;
    let hub = hub(&upstream, false).await;
    for form in FORMS {
        let ann = hub.service("ann", form);
        let (cx, hook) = (CallContext::default(), webhook("https://h.example/"));
        let error = ann.create_task_push_notification_config(&cx, hook);
        assert_eq!(error.await.unwrap_err().kind(), ErrorKind::PushNotificationNotSupported, "{form:?}");
    }
}

/// Nobody has to show anything to post here. So the store is asked for any agent: otherwise the time that an answer
/// takes would tell which agents there are.
#[tokio::test]
async fn a_notification_for_no_agent_goes_the_same_way() {
    let store: Arc<FailingStore> = Arc::new(MemoryStore::default().into());
    let (_upstream, hub) = pair_on(Arc::clone(&store) as _, true).await;
    for (fails, expected) in [(false, StatusCode::NOT_FOUND), (true, StatusCode::SERVICE_UNAVAILABLE)] {
        store.fail_reads(fails);
        for agent in [NAME, "nobody", "No%20name"] {
            for address in ["id.secret", "id", "id.", ".secret"] {
                let url = format!("{}/agents/{agent}/push/{address}", hub.base);
                assert_eq!(notify(&url, &update()).await, expected, "{agent} {address}");
            }
        }
    }
}
