//! Callers who try ids that are not theirs.

use nuncio_protocol::{ErrorKind, Version, op::Op};
use nuncio_tests::world::CALLER;
use serde_json::json;

use crate::{
    VERSIONS, Victim, call, message,
    ways::{check_grpc, check_rest},
};

/// REQ-087: to the last byte, but for the id that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_task_looks_like_an_unknown_one() {
    let victim = Victim::new().await;
    let as_caller = async |version: Version, caller: &str, body: String| {
        victim.raw.post(&[("a2a-version", version.as_str()), (CALLER, caller)], body).await
    };
    for version in VERSIONS {
        let params = json!({ "message": message(version, "ask Which?") }).to_string();
        let sent = as_caller(version, "alice", call(version, Op::SendMessage, &params)).await.json();
        let task = sent["result"].get("task").unwrap_or(&sent["result"]);
        let foreign = task["id"].as_str().unwrap();
        // Of the same form, so that nothing can be told by its length either.
        let unknown = "01990000-0000-7000-8000-000000000000";
        assert_eq!(foreign.len(), unknown.len());
        let about = |op: Op, id: &str| match op {
            Op::SendMessage | Op::SendStreamingMessage => {
                let mut message = message(version, "completed");
                message["taskId"] = json!(id);
                call(version, op, &json!({ "message": message }).to_string())
            }
            _ => call(version, op, &json!({ "id": id }).to_string()),
        };
        for op in
            [Op::GetTask, Op::CancelTask, Op::SubscribeToTask, Op::SendMessage, Op::SendStreamingMessage]
        {
            for stranger in ["bob", ""] {
                let of_foreign = as_caller(version, stranger, about(op, foreign)).await;
                let of_unknown = as_caller(version, stranger, about(op, unknown)).await;
                assert_eq!(of_foreign.status, of_unknown.status);
                assert_eq!(of_foreign.body.replace(foreign, "ID"), of_unknown.body.replace(unknown, "ID"));
                assert_eq!(of_foreign.header("content-type"), of_unknown.header("content-type"));
                // A refused stream is a stream of one error in 0.3, and a plain answer in 1.0.
                let error = of_foreign.events().pop().unwrap_or_else(|| of_foreign.json())["error"].clone();
                assert_eq!(error["code"], -32001, "{version} {op:?}: {of_foreign:?}");
                assert_eq!(error["data"][0]["reason"], "TASK_NOT_FOUND");
            }
        }
        for op in [Op::GetTask, Op::CancelTask, Op::SubscribeToTask, Op::SendMessage] {
            let params = |id: &str| {
                let call: serde_json::Value = serde_json::from_str(&about(op, id)).unwrap();
                call["params"].to_string()
            };
            for stranger in ["bob", ""] {
                let caller = [(CALLER, stranger)];
                let rest = async |id: &str| victim.rest_as(version, op, &params(id), &caller).await.unwrap();
                let (of_foreign, of_unknown) = (rest(foreign).await, rest(unknown).await);
                check_rest(version, &of_foreign, ErrorKind::TaskNotFound, "", "over HTTP+JSON");
                assert_eq!(of_foreign.body.replace(foreign, "ID"), of_unknown.body.replace(unknown, "ID"));

                let grpc = async |id: &str| victim.grpc_as(version, op, &params(id), &caller).await.unwrap();
                let (of_foreign, of_unknown) = (grpc(foreign).await, grpc(unknown).await);
                check_grpc(version, &of_foreign, ErrorKind::TaskNotFound, "", "over gRPC");
                let told = |details: &[u8], id: &str| String::from_utf8_lossy(details).replace(id, "ID");
                assert_eq!(told(&of_foreign.details(), foreign), told(&of_unknown.details(), unknown));
            }
        }
        let still = as_caller(version, "alice", about(Op::GetTask, foreign)).await.json();
        assert_eq!(still["result"]["status"]["state"], task["status"]["state"], "nothing has happened to it");
    }
}
