//! Tasks of one server share its memory account. Near the limit large work is refused and small work goes on.

use nuncio_server::{
    MemoryAccount, MemoryUse,
    protocol::{Artifact, ErrorKind, Part, TaskState},
    testing::{Harness, ScriptedExecutor},
};

use crate::refused;

const MIB: usize = 1 << 20;

/// Appends to an artifact until it is stopped; with the word `hold` it waits to be canceled, otherwise it echoes.
fn executor() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx, out| async move {
        let text = cx.text();
        if text == "endless" {
            loop {
                out.chunk(Artifact::new("a", Part::text("x".repeat(MIB / 8))), true, false).await?;
            }
        }
        out.text("echo", text.to_string()).await?;
        if text.starts_with("hold") {
            std::future::pending::<()>().await;
        }
        out.completed().await.map(drop)
    })
}

#[tokio::test(start_paused = true)]
async fn near_the_limit_large_tasks_are_refused_and_small_ones_run() {
    let memory = MemoryAccount::new(16 * MIB);
    let account = memory.clone();
    let harness = Harness::with(executor(), |builder| builder.memory(account));
    let large = format!("hold {}", "x".repeat(MIB));
    let held = harness.begin(&*large).await.unwrap();
    harness.until(&held.id, TaskState::Submitted).await.unwrap();
    while memory.usage(MemoryUse::Tasks).used < 4 * MIB {
        tokio::task::yield_now().await;
    }
    let more = "x".repeat(3 * MIB);
    assert_eq!(refused(harness.task(&*more).await), ErrorKind::ResourceExhausted);
    let stopped = harness.task("endless").await.unwrap();
    assert_eq!(stopped.status.state, TaskState::Failed);
    let why = stopped.status.message.as_ref().unwrap().text().into_owned();
    assert!(why.contains("memory_limit_bytes"), "{why}");
    assert!(stopped.artifacts[0].text().len() >= MIB, "content before the limit is kept");
    let small = harness.task("hello").await.unwrap();
    assert_eq!(small.status.state, TaskState::Completed);
    assert_eq!(memory.usage(MemoryUse::Tasks).refused, 2);
    harness.cancel(&held.id).await.unwrap();
    assert_eq!(memory.usage(MemoryUse::Tasks).used, 0, "ended tasks leave memory");
    assert_eq!(harness.task(&*more).await.unwrap().status.state, TaskState::Completed);
}
