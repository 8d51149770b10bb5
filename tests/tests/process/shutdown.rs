//! The end, in good order and otherwise; and callers that end before their task.

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, start},
    process::Process,
    raw::Raw,
    within,
};
use serde_json::{Value, json};

use crate::{documents, text};

/// Starts a send that waits for its answer, and comes back when its task is working.
pub(crate) async fn waiting_send(hub: &Hub, agent: &str, words: &str) -> Process {
    let url = hub.agent(agent);
    let send = start(&["send", &url, words, "-o", "json"]);
    eventually("the task", async || {
        let list = cli(&["task", "list", &url, "--state", "working", "-o", "json"]).await;
        (!documents(&list).is_empty()).then_some(())
    })
    .await;
    send
}

async fn answer(send: &mut Process) -> Value {
    serde_json::from_str(&send.line().await.unwrap()).unwrap()
}

/// Invariant 7.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_finished_before_the_end() {
    let mut hub = Hub::start(&[]).await;
    let mut send = waiting_send(&hub, "slow", "2").await;
    hub.process.signal("TERM").await;
    hub.process.says("waiting for running tasks").await;
    assert_eq!(answer(&mut send).await["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(send.end().await.code(), Some(0));
    assert_eq!(hub.process.end().await.code(), Some(0));
    hub.process.says("stopped").await;
}

/// Invariant 7: what cannot be finished is recorded as failed, with the reason, and streams end.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_does_not_end_in_time_fails() {
    let mut hub = Hub::start(&["--drain-seconds", "0"]).await;
    let mut send = waiting_send(&hub, "echo", "hold").await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hold"}]});
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message},
    });
    let stream = Raw::new(hub.agent("echo")).posting(&[("a2a-version", "1.0")], call.to_string());
    let stream = within("the stream", stream.send()).await.unwrap();
    assert_eq!(stream.status(), 200);

    hub.process.signal("TERM").await;
    let task = answer(&mut send).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert!(text(&task["status"]["message"]["parts"][0]["text"]).contains("shut down"), "{task}");
    assert_eq!(send.end().await.code(), Some(7));
    let body = within("the end of the stream", stream.text()).await.unwrap();
    assert!(body.contains("TASK_STATE_SUBMITTED"), "{body}");
    assert_eq!(hub.process.end().await.code(), Some(0), "{}", hub.process.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let mut hub = Hub::start(&["--drain-seconds", "3600"]).await;
    let _send = waiting_send(&hub, "echo", "hold").await;
    hub.process.signal("INT").await;
    hub.process.says("press Ctrl-C again to stop at once").await;
    hub.process.signal("INT").await;
    assert_eq!(hub.process.end().await.code(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_hub_ends_at_the_first_signal() {
    for signal in ["INT", "TERM"] {
        let mut hub = Hub::start(&[]).await;
        assert_eq!(Raw::new(&*hub.base).get("/readyz", &[]).await.status, 200);
        hub.process.signal(signal).await;
        assert_eq!(hub.process.end().await.code(), Some(0), "{signal}");
    }
}

/// Invariant 7: a caller that dies in the middle of a stream stops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_caller_stops_nothing() {
    let hub = Hub::start(&[]).await;
    let url = hub.agent("slow");
    let mut stream = start(&["send", &url, "1", "--stream", "-o", "json"]);
    let first: Value = serde_json::from_str(&stream.line().await.unwrap()).unwrap();
    stream.signal("KILL").await;
    stream.end().await;
    let id = text(&first["task"]["id"]);
    // After the first event: whether the task has ended meanwhile or not, this shows how it went on.
    let watch = cli(&["task", "watch", &url, id, "--after", "1", "-o", "json"]).await;
    assert_eq!(watch.code, Some(0), "{watch:?}");
    let last = documents(&watch).pop().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}
