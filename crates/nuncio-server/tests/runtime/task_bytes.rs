//! A task has a limit of bytes. What grows beyond is stopped, and what came before is kept.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_server::{
    Emitter, ExecContext, Executor, Limits, Runtime,
    protocol::{Artifact, ErrorKind, Event, Part, Result, Task, TaskArtifactUpdateEvent, TaskState},
    testing::{Harness, Say, ScriptedExecutor, card},
};

use crate::{refused, secs};

const LIMIT: usize = 20_000;
const PIECE: usize = 1_000;

fn limits() -> Limits {
    Limits { max_task_bytes: LIMIT, ..Limits::default() }
}

fn piece() -> Artifact {
    Artifact::new("a", Part::text("x".repeat(PIECE)))
}

/// The work of an agent that never ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    /// Adds to an artifact until it is told that nobody takes more.
    Appends,
    /// Puts it in the place of the one before.
    Replaces,
    /// Says it with its status.
    Talks,
    /// Adds several pieces at a time.
    AppendsMany,
    /// Does not care that nobody takes more.
    GoesOn,
    /// Says that all is well when nobody takes more.
    Completes,
    /// Says too much at once.
    Bursts,
    /// Says too much at once, instead of making a task.
    Replies,
}

async fn act(does: Does, out: &Emitter) -> Result<()> {
    loop {
        let told = match does {
            Does::Appends | Does::Completes | Does::GoesOn => out.chunk(piece(), true, false).await.map(drop),
            Does::Replaces => out.artifact(piece()).await.map(drop),
            Does::Talks => {
                let words = vec![Part::text("x".repeat(PIECE))];
                out.status(TaskState::Working, words).await.map(drop)
            }
            Does::AppendsMany => {
                let artifact = Arc::new(piece());
                let update =
                    TaskArtifactUpdateEvent { artifact, append: true, ..TaskArtifactUpdateEvent::default() };
                out.emit_all(vec![Event::ArtifactUpdate(update); 7]).await
            }
            Does::Bursts => out.text("all", "x".repeat(2 * LIMIT)).await.map(drop),
            Does::Replies => out.message(Part::text("x".repeat(2 * LIMIT))).await,
        };
        match (told, does) {
            (Err(_), Does::Completes) => return out.completed().await.map(drop),
            (Err(_), Does::GoesOn) => tokio::time::sleep(secs(1)).await,
            (told, _) => told?,
        }
    }
}

fn content(task: &Task) -> usize {
    let made: usize = task.artifacts.iter().map(|artifact| artifact.text().len()).sum();
    made + task.history.iter().map(|message| message.text().len()).sum::<usize>()
}

/// It grew until memory was full: nothing bounded a task.
#[tokio::test(start_paused = true)]
async fn an_agent_without_end_is_stopped_as_by_a_cancel_and_its_task_fails() {
    let all = [
        (Does::Appends, LIMIT / 2),
        (Does::Replaces, PIECE),
        (Does::Talks, LIMIT / 2),
        (Does::AppendsMany, LIMIT / 2),
        (Does::GoesOn, LIMIT / 2),
        (Does::Completes, LIMIT / 2),
        (Does::Bursts, 0),
        (Does::Replies, 0),
    ];
    for (does, at_least) in all {
        let cancels = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cancels);
        let executor = ScriptedExecutor::new(move |_, out| async move { act(does, &out).await });
        let executor = executor.on_cancel(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(()))
        });
        let harness = Harness::with(executor, |builder| builder.limits(limits()));
        let task = harness.task("go").await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed, "{does:?}");
        let why = task.status.message.as_ref().unwrap().text().into_owned();
        assert!(why.contains("20000 bytes") && why.contains("max_task_bytes"), "{does:?}: {why}");
        let bytes = content(&task);
        assert!(bytes >= at_least && bytes <= LIMIT, "{does:?}: what came is kept, {bytes} bytes");
        assert_eq!(harness.get(&task.id).await.unwrap(), task, "{does:?}: as it is stored");
        assert_eq!(cancels.load(Ordering::SeqCst), 1, "{does:?}: the executor is told");
        assert_eq!(refused(harness.task(Say::to(&task, "more")).await), ErrorKind::UnsupportedOperation);
    }
}

/// Adds so many pieces, and asks for more to do.
struct Pieces(usize);

#[async_trait::async_trait]
impl Executor for Pieces {
    async fn execute(&self, _: ExecContext, out: Emitter) -> Result<()> {
        for _ in 0..self.0 {
            out.chunk(piece(), true, false).await?;
        }
        out.input_required("more?").await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn the_count_goes_on_where_another_server_stopped() {
    let harness = Harness::with(Pieces(10), |builder| builder.limits(limits()));
    let task = harness.task("go").await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
    let runtime =
        Runtime::builder(card(), Pieces(10)).store(Arc::clone(&harness.store) as _).limits(limits()).build();
    let harness = Harness { runtime, ..harness };
    let task = harness.task(Say::to(&task, "go on")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert!((10 * PIECE..LIMIT).contains(&content(&task)), "{}", content(&task));
}

#[tokio::test(start_paused = true)]
async fn a_message_for_which_a_task_has_no_room_is_refused_and_changes_nothing() {
    let harness = Harness::with(Pieces(10), |builder| builder.limits(limits()));
    let large = "x".repeat(LIMIT);
    assert_eq!(refused(harness.task(&*large).await), ErrorKind::PayloadTooLarge);
    let task = harness.task("go").await.unwrap();
    let half = "x".repeat(LIMIT / 2);
    assert_eq!(refused(harness.task(Say::to(&task, &half)).await), ErrorKind::PayloadTooLarge);
    assert_eq!(harness.get(&task.id).await.unwrap(), task, "it can still be answered");
    let small = harness.task(Say::to(&task, "little")).await.unwrap();
    assert_eq!(small.status.state, TaskState::Failed, "and has no room for ten pieces more");
}
