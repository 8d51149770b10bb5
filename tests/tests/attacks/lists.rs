//! Tasks and answers without end: a task has a limit of bytes, a page of a list as well, and answers that nobody reads
//! have a budget.

use std::{fmt::Write as _, sync::Arc};

use nuncio_protocol::{
    A2aService as _, Artifact, CallContext, ListTasksRequest, Message, Part, SendMessageRequest,
    SendMessageResponse, Task, TaskState,
};
use nuncio_server::{
    Limits, Runtime,
    store::Store,
    testing::{ScriptedExecutor, card},
};
use nuncio_tests::{
    data::{Data, Folder},
    hub::Hub,
    within,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const STORES: [Data; 3] = [Data::Memory, Data::Sqlite, Data::Postgres];
const MIB: usize = 1024 * 1024;

/// An agent of its own name, because some stores are shared.
fn agent(
    name: &str,
    store: &Arc<dyn Store>,
    executor: ScriptedExecutor,
    change: impl FnOnce(&mut Limits),
) -> Runtime {
    let mut limits = Limits::default();
    change(&mut limits);
    Runtime::builder(card(), executor).agent(name).store(Arc::clone(store)).limits(limits).build()
}

async fn send(runtime: &Runtime, text: String) -> Task {
    let message = Message::user("m", Part::text(text));
    let request = SendMessageRequest { message, ..SendMessageRequest::default() };
    match runtime.send_message(&CallContext::default(), request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(reply) => panic!("no task: {reply:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_appends_for_ever_is_stopped_over_every_store() {
    for data in STORES {
        let (store, _kept) = data.open().await;
        let executor = ScriptedExecutor::new(|_, out| async move {
            loop {
                out.chunk(Artifact::new("a", Part::text("x".repeat(10_000))), true, false).await?;
            }
        });
        let runtime = agent("endless", &store, executor, |limits| limits.max_task_bytes = MIB);
        let task = within("the end of the task", send(&runtime, "go".to_owned())).await;
        assert_eq!(task.status.state, TaskState::Failed, "{data:?}");
        let made = task.artifacts[0].text().len();
        assert!((MIB / 2..MIB).contains(&made), "{data:?}: what came is kept, {made} bytes");
        // By another runtime: what is stored, not what is in memory.
        let other = agent("endless", &store, ScriptedExecutor::steps([]), |_| {});
        let get = nuncio_protocol::GetTaskRequest { id: task.id.clone(), ..Default::default() };
        assert_eq!(other.get_task(&CallContext::default(), get).await.unwrap(), task, "{data:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_large_tasks_comes_page_by_page_over_every_store() {
    for data in STORES {
        let (store, _kept) = data.open().await;
        let executor = ScriptedExecutor::steps([]);
        let runtime = agent("large", &store, executor, |limits| limits.max_page_bytes = 4 * MIB);
        let mut made = Vec::new();
        for _ in 0..30 {
            made.push(send(&runtime, "x".repeat(MIB)).await.id);
        }
        let (mut walked, mut token) = (Vec::new(), None);
        loop {
            let request = ListTasksRequest { page_size: Some(100), page_token: token, ..Default::default() };
            let page = runtime.list_tasks(&CallContext::default(), request).await.unwrap();
            assert_eq!(page.total_size, 30, "{data:?}");
            assert!((1..=4).contains(&page.tasks.len()), "{data:?}: {} tasks", page.tasks.len());
            walked.extend(page.tasks.into_iter().map(|task| task.id));
            token = Some(page.next_page_token).filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        walked.sort();
        assert_eq!(walked, made, "{data:?}: each exactly once");
    }
}

/// The number of callers that ask for a list and do not read it.
const CALLERS: usize = 24;
/// The number of tasks in the list, and the bytes of each message; the agent answers with as many.
const TASKS: usize = 24;
const BYTES: usize = MIB;
/// The allowed memory: a page for each of the callers, and the hub's own. All tasks for each caller would be more than
/// a gigabyte.
const PEAK_KIB: u64 = 512 * 1024;

/// The most that a process has had in memory so far.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Posts a call and leaves the answer where it is.
async fn ask(hub: &Hub, call: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(hub.base.strip_prefix("http://").unwrap()).await.unwrap();
    let (body, mut head) = (call.to_string(), String::new());
    write!(
        head,
        "POST /agents/echo HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\na2a-version: 1.0\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    within("the answer", stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn call(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn message(text: &str) -> Value {
    call(
        "SendMessage",
        &json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } }),
    )
}

/// A request of 105 bytes was answered with all tasks of its caller, and sixty of them, unread, took eleven gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_nobody_reads_do_not_fill_the_memory() {
    let folder = Folder::new();
    let file = folder.path().join("tasks.db").display().to_string();
    for data in [&["--data", &*file][..], &[]] {
        let hub = Hub::start(data).await;
        for _ in 0..TASKS {
            let sent = answer(ask(&hub, &message(&"x".repeat(BYTES))).await).await;
            assert!(sent.starts_with("HTTP/1.1 200"), "{}", &sent[..sent.len().min(300)]);
        }
        let list = call("ListTasks", &json!({ "pageSize": 100, "includeArtifacts": true }));
        let mut unread = Vec::new();
        for _ in 0..CALLERS {
            let stream = ask(&hub, &list).await;
            // It has begun to answer, and that is all that is read of it.
            within("an answer", stream.readable()).await.unwrap();
            unread.push(stream);
        }
        let small = answer(ask(&hub, &message("hello")).await).await;
        assert!(small.starts_with("HTTP/1.1 200") && small.contains("hello"), "others are served: {small}");
        let peak = peak_kib(hub.process.id());
        assert!(peak < PEAK_KIB, "{data:?}: {} MiB at its peak", peak / 1024);
        let whole = answer(unread.swap_remove(0)).await;
        assert!(whole.starts_with("HTTP/1.1 200"), "{}", &whole[..whole.len().min(300)]);
        assert!(whole.len() < 20 * MIB, "a page, not all tasks: {} bytes", whole.len());
    }
}
