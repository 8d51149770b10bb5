//! Nuncio and the official SDKs, in Python and JavaScript, of both versions: their clients against our
//! agents, and our client against their servers. What the programs do is told in `tests/peers/README.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use async_trait::async_trait;
use nuncio_client::Client;
use nuncio_protocol::{
    Artifact, ErrorKind, Event, ListTasksRequest, Message, Part, Result, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskState, Timestamp, Version, fold,
};
use nuncio_server::{Emitter, ExecContext, Executor, bind::BindOptions};
use nuncio_tests::{
    hub::Hub,
    next,
    peer::{self, Peer},
    rest, within,
    world::Server,
};

mod their_clients {
    use super::{Hub, Server, TalkingEcho, peer};

    /// Against the agent of the binary, and against one that also asks back and answers without a task.
    async fn check(client: &str, args: &[&str]) {
        let hub = Hub::start(&[]).await;
        peer::check(client, &hub.agent("echo"), args).await;
        let server = Server::start(TalkingEcho, super::BindOptions::default(), |_| {}).await;
        let with_talk = [args, &["--talk"]].concat();
        peer::check(client, &format!("http://{}", server.address), &with_talk).await;
    }

    macro_rules! clients {
        ($($name:ident: $client:literal $args:expr;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                check($client, $args).await;
            }
        )+};
    }

    clients! {
        python_1_0: "py1_client" &[];
        python_1_0_speaking_0_3: "py1_client" &["--v03"];
        python_0_3: "py03_client" &[];
        javascript_1_0: "js1_client" &[];
        javascript_1_0_speaking_0_3: "js1_client" &["--v03"];
        javascript_0_3: "js03_client" &[];
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
    use super::{Client, Peer, Quirks, Version, all_checks};

    async fn check(server: &str, args: &[&str], version: Version, quirks: Quirks) {
        let peer = Peer::start(server, args).await;
        let client = Client::builder().version(version).connect(&peer.url).await.unwrap();
        assert_eq!(client.version(), version);
        all_checks(&client, quirks).await;
    }

    macro_rules! servers {
        ($($name:ident: $server:literal $args:expr, $version:ident, $quirks:expr;)+) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                check($server, $args, Version::$version, $quirks).await;
            }
        )+};
    }

    // Known: the JavaScript 1.x server answers a second cancel with the canceled task, which one sentence
    // of the specification allows (3.3.1) and another forbids (3.1.5); trap T-05.
    const CANCELS_TWICE: Quirks = Quirks { cancels_twice: true };
    const NONE: Quirks = Quirks { cancels_twice: false };

    servers! {
        python_1_0: "py1_server" &[], V1_0, NONE;
        python_1_0_beside_0_3: "py1_server" &["--v03"], V1_0, NONE;
        python_1_0_speaking_0_3: "py1_server" &["--v03"], V0_3, NONE;
        python_0_3: "py03_server" &[], V0_3, NONE;
        javascript_1_0: "js1_server" &[], V1_0, CANCELS_TWICE;
        javascript_1_0_beside_0_3: "js1_server" &["--v03"], V1_0, CANCELS_TWICE;
        javascript_1_0_speaking_0_3: "js1_server" &["--v03"], V0_3, CANCELS_TWICE;
        javascript_0_3: "js03_server" &[], V0_3, NONE;
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

/// What a server is known to do otherwise.
#[derive(Clone, Copy)]
struct Quirks {
    cancels_twice: bool,
}

async fn all_checks(client: &Client, quirks: Quirks) {
    send_get_and_list(client).await;
    stream(client).await;
    ask_and_answer(client).await;
    direct_message(client).await;
    parts(client).await;
    cancel(client, quirks).await;
    subscribe(client).await;
    refusals(client).await;
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
async fn parts(client: &Client) {
    let parts = vec![
        Part::text("hello"),
        // No whole numbers: the Python 1.x SDK keeps data as protobuf, where 1 becomes 1.0 (trap T-31).
        Part::data(serde_json::json!({"n": 1.5, "deep": {"list": [0.25, "two", true, null]}})),
        Part::raw((0..=255).collect::<Vec<u8>>())
            .with_filename("all.bin")
            .with_media_type("application/octet-stream"),
        Part::url("https://files.example/a.txt").with_filename("a.txt").with_media_type("text/plain"),
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
    } else {
        assert_eq!(again.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
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
