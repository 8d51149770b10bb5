//! The switches of `[calls]`, for all agents and for one.

use std::{fs, net::SocketAddr};

use nuncio_protocol::{
    Binding, Message, Part, SendMessageConfiguration, SendMessageRequest, Version, op::Call, pb, v03,
};
use nuncio_tests::{
    eventually,
    http2::{Http2, encode, frame, rpc},
    hub::Hub,
    raw::Raw,
    within,
};
use serde_json::{Value, json};

use crate::{directory, path, text};

const VERSION: (&str, &str) = ("a2a-version", "1.0");

fn settings(calls: &str, own: &str, kind: &str) -> String {
    format!(
        "default_agent = \"all\"\n[calls]\n{calls}\n[agents.all]\n{kind}\n[agents.own]\n{kind}\n[agents.own.calls]\n{own}\n"
    )
}

/// A hub of two agents: `all` follows the table of all agents, `own` has its own.
async fn hub(name: &str, calls: &str, own: &str, kind: &str) -> (Hub, Raw, Raw) {
    let file = directory(name).join("nuncio.toml");
    fs::write(&file, settings(calls, own, kind)).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file), "--admin", "127.0.0.1:0"]).await;
    let (all, own) = (Raw::new(hub.agent("all")), Raw::new(hub.agent("own")));
    (hub, all, own)
}

fn message(id: &str, words: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": words }] })
}

fn call(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

async fn send(agent: &Raw, words: &str) -> Value {
    let request = call("SendMessage", &json!({ "message": message("m-1", words) }));
    agent.post(&[VERSION], request.to_string()).await.json()
}

const ECHO: &str = "demo = \"echo\"";
const SLOW: &str = "demo = \"slow\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_method_or_the_path_proves_may_be_taken() {
    let (hub, strict, lenient) = hub("lenient", "", "lenient_version = true", ECHO).await;
    let request = call("SendMessage", &json!({ "message": message("m", "hello") })).to_string();
    let (refused, taken) =
        (strict.post(&[], &*request).await.json(), lenient.post(&[], &*request).await.json());
    assert_eq!(refused["error"]["code"], -32009, "{refused}");
    assert_eq!(text(&taken["result"]["task"]["artifacts"][0]["parts"][0]["text"]), "hello", "{taken}");
    for (agent, status) in [(&strict, 400), (&lenient, 200)] {
        let listed = agent.get("/tasks", &[]).await;
        assert_eq!(listed.status, status, "{listed:?}");
    }
    let admin = Raw::new(format!("http://{}", text(&hub.announced["admin"]["listen"])));
    let metrics = admin.get("/metrics", &[]).await.body;
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let counted = metrics.lines().any(|line| {
            line.starts_with("nuncio_inferred_versions_total{")
                && line.contains("agent=\"own\"")
                && line.contains(binding)
                && line.ends_with(" 1")
        });
        assert!(counted, "{binding}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_follow_the_file() {
    let (on, off) = ("lenient_version = true", "lenient_version = false");
    let (_hub, all, own) = hub("switched", off, on, ECHO).await;
    let takes = async |agent: &Raw| agent.get("/tasks", &[]).await.status == 200;
    assert!(!takes(&all).await && takes(&own).await);
    fs::write(directory("switched").join("nuncio.toml"), settings(on, off, ECHO)).unwrap();
    let what = "both agents follow the new switches";
    eventually(what, async || (takes(&all).await && !takes(&own).await).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_may_be_taken() {
    let (hub, all, own) = hub("batch", "batch = 2", "batch = 0", ECHO).await;
    let one = call("SendMessage", &json!({ "message": message("m", "hello") }));
    let two = json!([one, call("ListTasks", &json!({}))]);
    let answers = all.post(&[VERSION], two.to_string()).await.json();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().all(|answer| answer["result"].is_object()), "{answers:?}");
    for (agent, batch, why) in
        [(&own, &two, "batches are not accepted"), (&all, &json!([one, one, one]), "at most 2 requests")]
    {
        let refused = agent.post(&[VERSION], batch.to_string()).await.json();
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    // At the root a batch is for one agent.
    let root = Raw::new(format!("{}/", hub.base));
    let named = |tenants: [&str; 2]| {
        let calls = tenants.map(|tenant| call("ListTasks", &json!({ "tenant": tenant })));
        let body = Value::from(calls.to_vec()).to_string();
        let root = root.clone();
        async move { root.post(&[VERSION], body).await.json() }
    };
    assert_eq!(named(["all", "all"]).await.as_array().map(Vec::len), Some(2));
    assert!(named(["own", "own"]).await.to_string().contains("batches are not accepted"));
    assert!(named(["all", "own"]).await.to_string().contains("a batch is for one agent"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_send_is_answered_when_its_time_is_up() {
    let (_hub, all, own) =
        hub("ceiling", "blocking_ceiling_seconds = 1", "blocking_ceiling_seconds = 2", SLOW).await;
    for agent in [&all, &own] {
        let answer = send(agent, "600").await;
        assert_eq!(text(&answer["result"]["task"]["status"]["state"]), "TASK_STATE_WORKING", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_sign_of_life_fails() {
    let (_hub, watched, own) =
        hub("watchdog", "watchdog_seconds = 1", "watchdog_seconds = 0", "command = [\"sleep\", \"4\"]").await;
    let failed = send(&watched, "hi").await;
    let status = &failed["result"]["task"]["status"];
    assert_eq!(text(&status["state"]), "TASK_STATE_FAILED", "{failed}");
    assert!(status.to_string().contains("silent for too long"), "{failed}");
    let ended = send(&own, "hi").await;
    assert_eq!(text(&ended["result"]["task"]["status"]["state"]), "TASK_STATE_COMPLETED", "{ended}");
}

/// A message on its way to an agent: over a binding, in a version, by a call that waits or one that streams.
#[derive(Clone, Copy, Debug)]
struct Way {
    binding: Binding,
    version: Version,
    streams: bool,
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        let versions = || Version::ALL.iter().copied();
        let bindings =
            versions().flat_map(|version| Binding::ALL.iter().map(move |binding| (version, *binding)));
        bindings
            .flat_map(|(version, binding)| [true, false].map(|streams| Self { binding, version, streams }))
    }

    /// The request by which a message gets to this agent over HTTP.
    fn request(self, agent: &Raw, id: &str, context: &str, words: &str) -> reqwest::RequestBuilder {
        let is_new = self.version == Version::V1_0;
        let text = if is_new { json!({ "text": words }) } else { json!({ "kind": "text", "text": words }) };
        let role = if is_new { "ROLE_USER" } else { "user" };
        let message = json!({ "messageId": id, "contextId": context, "role": role, "parts": [text] });
        let params = json!({ "message": message, "configuration": { "blocking": true } });
        let headers: &[(&str, &str)] = if is_new { &[VERSION] } else { &[] };
        match self.binding {
            Binding::JsonRpc => {
                let method = match (is_new, self.streams) {
                    (true, true) => "SendStreamingMessage",
                    (true, false) => "SendMessage",
                    (false, true) => "message/stream",
                    (false, false) => "message/send",
                };
                agent.posting(headers, call(method, &params).to_string())
            }
            Binding::HttpJson | Binding::Grpc => {
                let (prefix, verb) =
                    (if is_new { "" } else { "/v1" }, if self.streams { "stream" } else { "send" });
                agent.below(&format!("{prefix}/message:{verb}")).posting(headers, params.to_string())
            }
        }
    }

    /// The same over gRPC.
    fn frame(self, agent: &str, id: &str, context: &str, words: &str) -> (String, Vec<u8>) {
        let mut message = Message::user(id, Part::text(words));
        message.context_id = Some(context.into());
        let configuration = SendMessageConfiguration::default();
        let request = Box::new(SendMessageRequest {
            // 0.3 has none, and reaches the default agent.
            tenant: (self.version == Version::V1_0).then(|| agent.to_owned()),
            message,
            configuration: Some(configuration),
            ..SendMessageRequest::default()
        });
        let call =
            if self.streams { Call::SendStreamingMessage(request) } else { Call::SendMessage(request) };
        let codec = if self.version == Version::V1_0 { &pb::CODEC } else { &v03::pb::CODEC };
        (rpc(codec, call.op()), frame(&encode(codec, &call)))
    }
}

/// The states of the tasks in a context.
async fn states(agent: &Raw, context: &str) -> Vec<String> {
    let listed = agent.get(&format!("/tasks?contextId={context}"), &[VERSION]).await.json();
    let tasks = listed["tasks"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tasks.iter().map(|task| text(&task["status"]["state"]).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_id_may_be_taken_for_a_repeat() {
    let (_hub, all, own) = hub("dedupe", "dedupe_message_id = true", "dedupe_message_id = false", ECHO).await;
    // The same message each time, however it comes.
    for way in Way::all().filter(|way| way.binding != Binding::Grpc) {
        for (agent, sent_once) in [(&all, true), (&own, false)] {
            let context = format!("c-{way:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
            let send = async |words: &str| {
                let answer = within("the answer", way.request(agent, &context, &context, words).send()).await;
                within("the body", answer.unwrap().text()).await.unwrap()
            };
            for _ in 0..2 {
                let answer = send("hello").await;
                assert!(answer.contains("hello"), "{way:?}: {answer}");
            }
            let expected = if sent_once { 1 } else { 2 };
            assert_eq!(states(agent, &context).await.len(), expected, "{way:?}");
            let other = send("something else").await;
            assert_eq!(other.contains("message.messageId"), sent_once, "{way:?}: {other}");
        }
    }
}

/// Over every binding, in both versions, by a stream and by a call that waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_may_end_with_the_connection_of_its_caller() {
    let (hub, all, own) =
        hub("disconnect", "cancel_on_disconnect = true", "cancel_on_disconnect = false", SLOW).await;
    let address: SocketAddr = hub.base.strip_prefix("http://").unwrap().parse().unwrap();
    for way in Way::all() {
        for (name, agent, expected) in
            [("all", &all, "TASK_STATE_CANCELED"), ("own", &own, "TASK_STATE_WORKING")]
        {
            if way.binding == Binding::Grpc && way.version == Version::V0_3 && name == "own" {
                // Not the default agent, so 0.3 does not reach it.
                continue;
            }
            let context = format!("c-{way:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
            let calling = if way.binding == Binding::Grpc {
                let (path, body) = way.frame(name, "m", &context, "600");
                tokio::spawn(async move {
                    let mut connection = Http2::connect(address).await;
                    connection.ask(&path, &[], body).await;
                })
            } else {
                let request = way.request(agent, "m", &context, "600");
                tokio::spawn(async move {
                    request.send().await.unwrap().text().await.unwrap();
                })
            };
            eventually("the task works", async || {
                (states(agent, &context).await == ["TASK_STATE_WORKING"]).then_some(())
            })
            .await;
            calling.abort();
            assert!(calling.await.unwrap_err().is_cancelled(), "{way:?}");
            // One that goes on is found at work by whoever asks next.
            eventually(&format!("{way:?} {expected}"), async || {
                (states(agent, &context).await == [expected]).then_some(())
            })
            .await;
        }
    }
}
