//! Nuncio and the official SDKs, in Python and JavaScript, of both versions and in every binding: their
//! clients against our agents, and our client against their servers. What the programs do is told in
//! `tests/peers/README.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use async_trait::async_trait;
use nuncio_client::{Client, Receiver};
use nuncio_protocol::{
    Artifact, Binding, DeleteTaskPushNotificationConfigRequest, ErrorKind, Event,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message,
    Part, Result, Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task,
    TaskPushNotificationConfig, TaskState, Timestamp, Version, fold,
};
use nuncio_server::{Emitter, ExecContext, Executor, bind::BindOptions};
use nuncio_tests::{
    hub::Hub,
    next,
    peer::{self, Peer},
    rest,
    webhook::Webhook,
    within,
    world::Server,
};
use serde_json::json;

mod their_clients {
    use super::{Binding, Hub, Server, TalkingEcho, Version, peer};

    /// Against the agent of the binary, which also pushes, and against one that also asks back and answers without a task.
    async fn check(client: &str, args: &[&str], version: Version, binding: Binding) {
        // The proto of 0.3 has no tenant, so that over it the hub can only be one agent.
        let only_one = version == Version::V0_3 && binding == Binding::Grpc;
        let default: &[&str] = if only_one { &["--default", "echo"] } else { &[] };
        let hub = Hub::start(&[&["--allow-private-push"], default].concat()).await;
        peer::check(client, &hub.agent("echo"), binding, &[args, &["--push"]].concat()).await;
        let server = Server::start(TalkingEcho, super::BindOptions::default(), |_| {}).await;
        let with_talk = [args, &["--talk"]].concat();
        peer::check(client, &format!("http://{}", server.address), binding, &with_talk).await;
    }

    macro_rules! clients {
        ($($name:ident: $client:literal $args:expr, $version:ident, $binding:ident;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                check($client, $args, Version::$version, Binding::$binding).await;
            }
        )+};
    }

    clients! {
        python_1_0_json_rpc: "py1_client" &[], V1_0, JsonRpc;
        python_1_0_rest: "py1_client" &[], V1_0, HttpJson;
        python_1_0_grpc: "py1_client" &[], V1_0, Grpc;
        python_1_0_speaking_0_3_json_rpc: "py1_client" &["--v03"], V0_3, JsonRpc;
        python_1_0_speaking_0_3_rest: "py1_client" &["--v03"], V0_3, HttpJson;
        python_1_0_speaking_0_3_grpc: "py1_client" &["--v03"], V0_3, Grpc;
        python_0_3_json_rpc: "py03_client" &[], V0_3, JsonRpc;
        python_0_3_rest: "py03_client" &[], V0_3, HttpJson;
        python_0_3_grpc: "py03_client" &[], V0_3, Grpc;
        javascript_1_0_json_rpc: "js1_client" &[], V1_0, JsonRpc;
        javascript_1_0_rest: "js1_client" &[], V1_0, HttpJson;
        javascript_1_0_grpc: "js1_client" &[], V1_0, Grpc;
        javascript_1_0_speaking_0_3_json_rpc: "js1_client" &["--v03"], V0_3, JsonRpc;
        javascript_1_0_speaking_0_3_rest: "js1_client" &["--v03"], V0_3, HttpJson;
        javascript_1_0_speaking_0_3_grpc: "js1_client" &["--v03"], V0_3, Grpc;
        javascript_0_3_json_rpc: "js03_client" &[], V0_3, JsonRpc;
        javascript_0_3_rest: "js03_client" &[], V0_3, HttpJson;
        javascript_0_3_grpc: "js03_client" &[], V0_3, Grpc;
    }
}

/// The agent that the official clients expect; see the table in `tests/peers/README.md`.
struct TalkingEcho;

#[async_trait]
impl Executor for TalkingEcho {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let (text, begins) = (cx.text().into_owned(), cx.task.is_none());
        if begins && text.starts_with("message") {
            return out.message(Part::text(text)).await;
        }
        out.working().await?;
        if begins && text == "ask" {
            return out.input_required("What shall I echo?").await.map(drop);
        }
        if begins && text.starts_with("hold") {
            cx.cancellation.cancelled().await;
            return Ok(());
        }
        out.artifact(Artifact::new("echo", Part::text(text))).await?;
        out.completed().await.map(drop)
    }
}

mod their_servers {
    use super::{Binding, Client, Peer, Quirks, Version, all_checks};

    async fn check(server: &str, args: &[&str], version: Version, binding: Binding, quirks: Quirks) {
        let peer = Peer::start(server, args).await;
        let client = Client::builder().version(version).binding(binding).connect(&peer.url).await.unwrap();
        let used = &client.candidates()[0];
        assert_eq!((used.version, used.binding), (version, binding));
        all_checks(&client, quirks).await;
    }

    macro_rules! servers {
        ($($name:ident: $server:literal $args:expr, $version:ident, $binding:ident, $quirks:expr;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                check($server, $args, Version::$version, Binding::$binding, $quirks).await;
            }
        )+};
    }

    const NONE: Quirks =
        Quirks { cancels_twice: false, vague: false, no_file_names: false, no_null: false, lacks: &[] };
    // The JavaScript 1.x server answers a second cancel with the canceled task, which one sentence of the
    // specification allows (3.3.1) and another forbids (3.1.5); trap T-05.
    const CANCELS_TWICE: Quirks = Quirks { cancels_twice: true, ..NONE };
    // In the messages of the 0.3 proto, which are on the wire in gRPC and in REST, JavaScript has no name for a
    // file.
    const NO_FILE_NAMES: Quirks = Quirks { no_file_names: true, ..NONE };
    // The JavaScript 0.3 server says over gRPC no more of an error than the code and a sentence, and reads
    // null as 0.
    const VAGUE: Quirks = Quirks { vague: true, no_file_names: true, no_null: true, ..NONE };
    const BOTH: Quirks = Quirks { cancels_twice: true, no_file_names: true, ..NONE };
    // For 0.3 over REST the Python 1.x server has no route to delete a webhook, and the JavaScript 1.x one takes
    // another body to make one than all other servers, of which the Python 0.3 one takes no other. That one
    // neither lists nor deletes them, over gRPC as well.
    const NO_DELETE: Quirks = Quirks { lacks: &["delete"], ..NONE };
    const NO_CREATE: Quirks = Quirks { lacks: &["create"], ..BOTH };
    const NO_LIST: Quirks = Quirks { lacks: &["list", "delete"], ..NONE };

    servers! {
        python_1_0_json_rpc: "py1_server" &[], V1_0, JsonRpc, NONE;
        python_1_0_rest: "py1_server" &[], V1_0, HttpJson, NONE;
        python_1_0_grpc: "py1_server" &[], V1_0, Grpc, NONE;
        python_1_0_beside_0_3_json_rpc: "py1_server" &["--v03"], V1_0, JsonRpc, NONE;
        python_1_0_beside_0_3_rest: "py1_server" &["--v03"], V1_0, HttpJson, NONE;
        python_1_0_beside_0_3_grpc: "py1_server" &["--v03"], V1_0, Grpc, NONE;
        python_1_0_speaking_0_3_json_rpc: "py1_server" &["--v03"], V0_3, JsonRpc, NONE;
        python_1_0_speaking_0_3_rest: "py1_server" &["--v03"], V0_3, HttpJson, NO_DELETE;
        python_1_0_speaking_0_3_grpc: "py1_server" &["--v03"], V0_3, Grpc, NONE;
        python_0_3_json_rpc: "py03_server" &[], V0_3, JsonRpc, NONE;
        python_0_3_rest: "py03_server" &[], V0_3, HttpJson, NO_LIST;
        python_0_3_grpc: "py03_server" &[], V0_3, Grpc, NO_LIST;
        javascript_1_0_json_rpc: "js1_server" &[], V1_0, JsonRpc, CANCELS_TWICE;
        javascript_1_0_rest: "js1_server" &[], V1_0, HttpJson, CANCELS_TWICE;
        javascript_1_0_grpc: "js1_server" &[], V1_0, Grpc, CANCELS_TWICE;
        javascript_1_0_beside_0_3_json_rpc: "js1_server" &["--v03"], V1_0, JsonRpc, CANCELS_TWICE;
        javascript_1_0_beside_0_3_rest: "js1_server" &["--v03"], V1_0, HttpJson, CANCELS_TWICE;
        javascript_1_0_beside_0_3_grpc: "js1_server" &["--v03"], V1_0, Grpc, CANCELS_TWICE;
        javascript_1_0_speaking_0_3_json_rpc: "js1_server" &["--v03"], V0_3, JsonRpc, CANCELS_TWICE;
        javascript_1_0_speaking_0_3_rest: "js1_server" &["--v03"], V0_3, HttpJson, NO_CREATE;
        javascript_1_0_speaking_0_3_grpc: "js1_server" &["--v03"], V0_3, Grpc, BOTH;
        javascript_0_3_json_rpc: "js03_server" &[], V0_3, JsonRpc, NONE;
        javascript_0_3_rest: "js03_server" &[], V0_3, HttpJson, NO_FILE_NAMES;
        javascript_0_3_grpc: "js03_server" &[], V0_3, Grpc, VAGUE;
    }

    /// Without a wish we take the first interface of the card that we speak (REQ-179).
    #[tokio::test(flavor = "multi_thread")]
    async fn the_newest_version_is_taken_without_asking() {
        let peer = Peer::start("js1_server", &["--v03"]).await;
        assert_eq!(Client::connect(&peer.url).await.unwrap().version(), Version::V1_0);
        let peer = Peer::start("js03_server", &[]).await;
        assert_eq!(Client::connect(&peer.url).await.unwrap().version(), Version::V0_3);
    }
}

/// Through a hub: every server behind it and every client before it, in both of its modes, with versions and bindings
/// so that each meets another one.
mod through_the_hub {
    use nuncio_hub::config::Mode;
    use nuncio_tests::between::{Between, Relation, upstream};

    use super::{BindOptions, Binding, Peer, Quirks, Server, TalkingEcho, Version, all_checks, peer};

    const NONE: Quirks =
        Quirks { cancels_twice: false, vague: false, no_file_names: false, no_null: false, lacks: &[] };
    // What a server keeps otherwise (see above) is otherwise behind a hub, too. Webhooks are the hub's own.
    const CANCELS_TWICE: Quirks = Quirks { cancels_twice: true, ..NONE };
    const NO_FILE_NAMES: Quirks = Quirks { no_file_names: true, ..NONE };

    async fn check_server(
        server: &str,
        args: &[&str],
        mode: Mode,
        (version, binding): (Version, Binding),
        caller: (Version, Binding),
        quirks: Quirks,
    ) {
        let peer = Peer::start(server, args).await;
        let hub = Between::before(upstream(&peer.url, Relation { mode, binding, version }), true).await;
        let client = hub.client(caller.1, caller.0, Some("alice")).await;
        all_checks(&client, quirks).await;
    }

    macro_rules! servers {
        ($($name:ident: $server:literal $args:expr, $mode:ident
            $version:ident $binding:ident from $caller_version:ident $caller_binding:ident, $quirks:expr;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let agent = (Version::$version, Binding::$binding);
                let caller = (Version::$caller_version, Binding::$caller_binding);
                check_server($server, $args, Mode::$mode, agent, caller, $quirks).await;
            }
        )+};
    }

    servers! {
        python_1_0_durable: "py1_server" &[], Durable V1_0 JsonRpc from V0_3 Grpc, NONE;
        python_1_0_speaking_0_3_durable: "py1_server" &["--v03"], Durable V0_3 JsonRpc from V1_0 HttpJson, NONE;
        python_0_3_durable: "py03_server" &[], Durable V0_3 JsonRpc from V1_0 Grpc, NONE;
        javascript_1_0_durable: "js1_server" &[], Durable V1_0 HttpJson from V0_3 JsonRpc, NONE;
        javascript_1_0_speaking_0_3_durable: "js1_server" &["--v03"], Durable V0_3 Grpc from V1_0 JsonRpc, NONE;
        javascript_0_3_durable: "js03_server" &[], Durable V0_3 HttpJson from V0_3 HttpJson, NONE;
        python_1_0_proxy: "py1_server" &[], Proxy V1_0 Grpc from V1_0 HttpJson, NONE;
        python_1_0_speaking_0_3_proxy: "py1_server" &["--v03"], Proxy V0_3 JsonRpc from V0_3 Grpc, NONE;
        python_0_3_proxy: "py03_server" &[], Proxy V0_3 JsonRpc from V0_3 JsonRpc, NONE;
        javascript_1_0_proxy: "js1_server" &[], Proxy V1_0 JsonRpc from V1_0 Grpc, CANCELS_TWICE;
        javascript_1_0_speaking_0_3_proxy: "js1_server" &["--v03"], Proxy V0_3 JsonRpc from V0_3 HttpJson, CANCELS_TWICE;
        javascript_0_3_proxy: "js03_server" &[], Proxy V0_3 HttpJson from V0_3 JsonRpc, NO_FILE_NAMES;
    }

    async fn check_client(client: &str, args: &[&str], binding: Binding, relation: Relation) {
        let server = Server::start(TalkingEcho, BindOptions::default(), |_| {}).await;
        let durable = relation.mode == Mode::Durable;
        let hub = Between::before(upstream(&format!("http://{}", server.address), relation), durable).await;
        peer::check(client, &hub.url, binding, &[args, &["--talk"]].concat()).await;
        if durable {
            // Whatever the agent can do.
            peer::check(client, &hub.url, binding, &[args, &["--push"]].concat()).await;
        }
    }

    macro_rules! clients {
        ($($name:ident: $client:literal $args:expr, $caller:ident to $mode:ident $version:ident $binding:ident;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let relation =
                    Relation { mode: Mode::$mode, version: Version::$version, binding: Binding::$binding };
                check_client($client, $args, Binding::$caller, relation).await;
            }
        )+};
    }

    clients! {
        by_python_1_0_durable: "py1_client" &[], JsonRpc to Durable V0_3 HttpJson;
        by_python_1_0_proxy: "py1_client" &[], Grpc to Proxy V1_0 JsonRpc;
        by_python_1_0_speaking_0_3_durable: "py1_client" &["--v03"], HttpJson to Durable V1_0 Grpc;
        by_python_0_3_durable: "py03_client" &[], JsonRpc to Durable V1_0 HttpJson;
        by_python_0_3_proxy: "py03_client" &[], HttpJson to Proxy V1_0 JsonRpc;
        by_javascript_1_0_durable: "js1_client" &[], HttpJson to Durable V0_3 Grpc;
        by_javascript_1_0_proxy: "js1_client" &[], JsonRpc to Proxy V1_0 Grpc;
        by_javascript_1_0_speaking_0_3_proxy: "js1_client" &["--v03"], Grpc to Proxy V1_0 HttpJson;
        by_javascript_0_3_durable: "js03_client" &[], Grpc to Durable V1_0 JsonRpc;
        by_javascript_0_3_proxy: "js03_client" &[], JsonRpc to Proxy V0_3 JsonRpc;
    }
}

/// What a server is known to do otherwise.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a quirk of its own")]
struct Quirks {
    /// A second cancel succeeds.
    cancels_twice: bool,
    /// An error does not say which one it is.
    vague: bool,
    /// The name of a file is lost.
    no_file_names: bool,
    /// Null becomes 0.
    no_null: bool,
    /// Operations on webhooks that are missing.
    lacks: &'static [&'static str],
}

async fn all_checks(client: &Client, quirks: Quirks) {
    send_get_and_list(client).await;
    stream(client).await;
    ask_and_answer(client).await;
    direct_message(client).await;
    parts(client, quirks).await;
    cancel(client, quirks).await;
    subscribe(client).await;
    refusals(client).await;
    webhooks(client, quirks).await;
    notified(client).await;
}

fn text_of(task: &Task) -> String {
    task.artifacts.iter().map(|artifact| artifact.text()).collect()
}

async fn task(client: &Client, req: impl Into<nuncio_client::Outgoing>) -> Task {
    match within("the answer", client.send(req)).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

async fn send_get_and_list(client: &Client) {
    let sent = task(client, Message::user("m-1", Part::text("hello"))).await;
    assert_eq!(sent.status.state, TaskState::Completed);
    assert_eq!(text_of(&sent), "hello");
    assert!(sent.history.iter().any(|m| m.message_id.as_str() == "m-1" && m.role == Role::User), "{sent:?}");
    let got = client.get(sent.id.clone()).await.unwrap();
    assert_eq!((&got.id, &got.context_id, &got.artifacts), (&sent.id, &sent.context_id, &sent.artifacts));

    let in_context = ListTasksRequest { context_id: Some(sent.context_id.clone()), ..<_>::default() };
    match (client.version(), client.list(in_context).await) {
        (Version::V1_0, page) => {
            let page = page.unwrap();
            assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&sent.id]);
            assert_eq!(page.total_size, 1);
        }
        (Version::V0_3, refused) => assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnsupportedOperation),
    }
}

async fn stream(client: &Client) {
    let events = rest(client.stream("hello").await.unwrap()).await;
    let Event::Task(first) = &**events[0].event() else { panic!("expected the task first, got {events:?}") };
    let mut folded = first.clone();
    let mut states = vec![folded.status.state];
    for item in &events[1..] {
        fold(&mut folded, item.event(), Timestamp::EPOCH).unwrap();
        states.push(folded.status.state);
    }
    states.dedup();
    assert_eq!(states, [TaskState::Submitted, TaskState::Working, TaskState::Completed]);
    assert_eq!(text_of(&folded), "hello");
    let got = client.get(folded.id.clone()).await.unwrap();
    assert_eq!(folded.artifacts, got.artifacts, "what we put together is what they have");
}

async fn ask_and_answer(client: &Client) {
    let asked = task(client, "ask").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    assert_eq!(asked.status.message.as_ref().unwrap().text(), "What shall I echo?");
    let SendMessageResponse::Task(done) = client.reply(&asked, "answer").await.unwrap() else {
        panic!("once there is a task, it is the answer")
    };
    assert_eq!((&done.id, done.status.state), (&asked.id, TaskState::Completed));
    assert_eq!(text_of(&done), "answer");

    let events = rest(client.stream("ask").await.unwrap()).await;
    let last = events.last().unwrap().event().status().unwrap().state;
    assert_eq!(last, TaskState::InputRequired, "a stream that ends with a question has not broken");
}

async fn direct_message(client: &Client) {
    let reply = client.send("message hello").await.unwrap();
    let SendMessageResponse::Message(reply) = reply else { panic!("expected a message, got {reply:?}") };
    assert_eq!((reply.role, &*reply.text()), (Role::Agent, "message hello"));
    let events = rest(client.stream("message hello").await.unwrap()).await;
    let [only] = &*events else { panic!("expected one event, got {events:?}") };
    assert!(matches!(&**only.event(), Event::Message(reply) if reply.text() == "message hello"));
}

/// REQ-203: what we send is what they keep.
async fn parts(client: &Client, quirks: Quirks) {
    let name = |part: Part, name: &str| if quirks.no_file_names { part } else { part.with_filename(name) };
    let nothing = if quirks.no_null { json!(false) } else { json!(null) };
    let bytes = Part::raw((0..=255).collect::<Vec<u8>>()).with_media_type("application/octet-stream");
    let parts = vec![
        Part::text("hello"),
        // No whole numbers: the Python 1.x SDK keeps data as protobuf, where 1 becomes 1.0 (trap T-31).
        Part::data(json!({"n": 1.5, "deep": {"list": [0.25, "two", true, nothing]}})),
        name(Part::url("https://files.example/a.txt").with_media_type("text/plain"), "a.txt"),
        name(bytes, "all.bin"),
    ];
    let done = task(client, Message::user("m-3", parts.clone())).await;
    let kept = done.history.iter().find(|message| message.message_id.as_str() == "m-3").unwrap();
    assert_eq!(kept.parts, parts);
}

async fn hold(client: &Client) -> Task {
    let configuration = SendMessageConfiguration { return_immediately: true, ..<_>::default() };
    let message = Message::user("m-4", Part::text("hold"));
    let req = SendMessageRequest { message, configuration: Some(configuration), ..<_>::default() };
    let held = task(client, req).await;
    assert!(matches!(held.status.state, TaskState::Submitted | TaskState::Working), "{held:?}");
    held
}

async fn cancel(client: &Client, quirks: Quirks) {
    let held = hold(client).await;
    let canceled = client.cancel(held.id.clone()).await.unwrap();
    assert_eq!((&canceled.id, canceled.status.state), (&held.id, TaskState::Canceled));
    assert_eq!(client.get(held.id.clone()).await.unwrap().status.state, TaskState::Canceled);
    let again = client.cancel(held.id).await;
    if quirks.cancels_twice {
        assert_eq!(again.unwrap().status.state, TaskState::Canceled);
        return;
    }
    match again.unwrap_err().kind() {
        ErrorKind::TaskNotCancelable => {}
        ErrorKind::UnsupportedOperation if quirks.vague => {}
        other => panic!("expected that the task cannot be canceled, got {other:?}"),
    }
}

async fn subscribe(client: &Client) {
    let held = hold(client).await;
    let mut events = client.subscribe(held.id.clone()).await.unwrap();
    let mut seen = Vec::new();
    if client.version() == Version::V1_0 {
        // The snapshot comes first since 1.0; a 0.3 server may say nothing until something happens.
        seen.push(next(&mut events).await);
        assert!(matches!(&**seen[0].event(), Event::Task(task) if task.id == held.id));
    }
    client.cancel(held.id).await.unwrap();
    seen.extend(rest(events).await);
    let last = seen.last().and_then(|item| item.event().status()).unwrap();
    assert_eq!(last.state, TaskState::Canceled);
}

async fn refusals(client: &Client) {
    let unknown = "00000000-0000-4000-8000-000000000000";
    assert_eq!(client.get(unknown).await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(client.cancel(unknown).await.unwrap_err().kind(), ErrorKind::TaskNotFound);

    let done = task(client, "hello").await;
    let more = Message {
        task_id: Some(done.id),
        context_id: Some(done.context_id),
        ..Message::user("m-5", Part::text("more"))
    };
    let error = client.send(more).await.unwrap_err();
    // 0.3 leaves open which error; it must be one of the agent, not of the way to it.
    match client.version() {
        Version::V1_0 => assert_eq!(error.kind(), ErrorKind::UnsupportedOperation),
        Version::V0_3 => assert_ne!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
}

const TOKEN: &str = "t0ken";

async fn webhooks(client: &Client, quirks: Quirks) {
    let (service, cx) = (client.service(), client.context());
    let task_id = task(client, Message::user("m-5", Part::text("hello"))).await.id;
    let wanted = TaskPushNotificationConfig {
        id: Some("w-1".into()),
        task_id: Some(task_id.clone()),
        url: "http://receiver.example/hook".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let same = |told: &TaskPushNotificationConfig| {
        assert_eq!((&told.id, &told.task_id, &told.url), (&wanted.id, &wanted.task_id, &wanted.url));
    };
    let made = service.create_task_push_notification_config(&cx, wanted.clone()).await;
    if quirks.lacks.contains(&"create") {
        made.unwrap_err();
        return;
    }
    same(&made.unwrap());
    let get =
        GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "w-1".into(), tenant: None };
    same(&service.get_task_push_notification_config(&cx, get.clone()).await.unwrap());
    let list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..<_>::default() };
    let listed = service.list_task_push_notification_configs(&cx, list).await;
    if quirks.lacks.contains(&"list") {
        listed.unwrap_err();
    } else {
        let [told] = &listed.unwrap().configs[..] else { panic!("expected one webhook") };
        same(told);
    }
    let delete = DeleteTaskPushNotificationConfigRequest { task_id, id: "w-1".into(), tenant: None };
    let deleted = service.delete_task_push_notification_config(&cx, delete).await;
    if quirks.lacks.contains(&"delete") {
        deleted.unwrap_err();
        return;
    }
    deleted.unwrap();
    service.get_task_push_notification_config(&cx, get).await.unwrap_err();
}

/// REQ-169 to REQ-171: our receiver takes what they send.
async fn notified(client: &Client) {
    let mut webhook = Webhook::open(Receiver::builder().token(TOKEN)).await;
    let config = TaskPushNotificationConfig {
        id: Some("w-1".into()),
        url: webhook.url.clone(),
        token: Some(TOKEN.to_owned()),
        ..TaskPushNotificationConfig::default()
    };
    let configuration =
        SendMessageConfiguration { task_push_notification_config: Some(config), ..<_>::default() };
    let message = Message::user("m-6", Part::text("hello"));
    let req = SendMessageRequest { message, configuration: Some(configuration), ..<_>::default() };
    let done = task(client, req).await;
    let mut told = Task { id: done.id.clone(), context_id: done.context_id.clone(), ..Task::default() };
    while told.status.state != TaskState::Completed {
        match webhook.next().await.event {
            Event::Task(task) => told = task,
            event => fold(&mut told, &event, Timestamp::EPOCH).unwrap(),
        }
    }
    assert_eq!((&told.id, text_of(&told)), (&done.id, "hello".to_owned()));
}
