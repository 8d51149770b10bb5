//! Messages for failed calls: the cause, and the advice on a line of its own.

use axum::{
    Router,
    body::{Body, Bytes},
    http::Method,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use nuncio_tests::hub::{Hub, binary, cli};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

/// A peer that has a card, and breaks off whatever else it is asked: a stream after its first events.
async fn breaking_off() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let card = json!({
        "name": "breaks", "description": "", "version": "1", "skills": [],
        "capabilities": {"streaming": true}, "defaultInputModes": [], "defaultOutputModes": [],
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    });
    let answer = move |method: Method, body: Bytes| async move {
        if method == Method::GET {
            return card.to_string().into_response();
        }
        let is_stream = String::from_utf8_lossy(&body).contains("\"SendStreamingMessage\"");
        let events = [
            json!({"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}}),
            json!({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1",
                "artifact": {"artifactId": "a", "parts": [{"text": "half a li"}]}}}),
        ];
        let frames = (6..).zip(events).map(|(id, event)| {
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result": event});
            Ok(format!("id: {id}\ndata: {answer}\n\n"))
        });
        let mut frames: Vec<_> = frames.take(if is_stream { 2 } else { 0 }).collect();
        frames.push(Err(std::io::Error::other("broken off")));
        let media_type = if is_stream { "text/event-stream" } else { "application/json" };
        // With a step between them, so that each frame is on its way before the next.
        let frames = stream::iter(frames).then(async |frame| {
            tokio::task::yield_now().await;
            frame
        });
        let body = Body::from_stream(frames);
        Response::builder().header("content-type", media_type).body(body).unwrap()
    };
    let serving = tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(answer)).await.unwrap();
    });
    (url, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_send_that_was_cut_short_one_knows_where_to_look() {
    let program = binary().display();
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("echo");
    let late = cli(&["send", &agent, "hold", "--timeout", "0.5", "--binding", "jsonrpc"]).await;
    assert_eq!(late.code, Some(3), "{late:?}");
    let lines: Vec<_> = late.stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && !lines[0].contains("task list"), "{late:?}");
    let hint = format!("the task may still be running; see: {program} task list {agent} --binding JSONRPC");
    assert_eq!(lines[1..], [hint]);

    let (url, serving) = breaking_off().await;
    let cut = cli(&["send", &url, "x", "-H", "X-Key: s3cret"]).await;
    assert_eq!(cut.code, Some(3), "{cut:?}");
    let lines: Vec<_> = cut.stderr.lines().collect();
    assert!(lines[0].starts_with("error: the connection broke"), "{cut:?}");
    let command = format!("see: {program} task list {url} -H 'X-Key: …'");
    assert!(lines[1].ends_with(&command) && !cut.stderr.contains("s3cret"), "{cut:?}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_broke_says_how_to_resume() {
    let (url, serving) = breaking_off().await;
    let cut = cli(&["send", &url, "x", "--stream"]).await;
    assert_eq!(cut.code, Some(3), "{cut:?}");
    assert_eq!(cut.stdout, "half a li\n", "what follows begins a line");
    let hint = format!("resume with: {} task watch {url} t-1 --after 7", binary().display());
    assert_eq!(cut.stderr.lines().last(), Some(&*hint), "{cut:?}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_says_how_to_answer() {
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("conformance");
    for more in [&[][..], &["--stream"]] {
        let args = [&["send", &agent, "ask", "--a2a-version", "0.3"][..], more].concat();
        let asked = cli(&args).await;
        assert_eq!(asked.code, Some(8), "{asked:?}");
        let hint = asked.stderr.lines().last().unwrap();
        let start = format!("answer with: {} send {agent} \"…\" --task ", binary().display());
        assert!(hint.starts_with(&start) && hint.ends_with(" --a2a-version 0.3"), "{asked:?}");
    }
}
