//! Text that grows: one part in the task, pieces on streams, at a pace.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use nuncio_server::{
    Emitter, Limits,
    protocol::{
        A2aService as _, Artifact, ErrorKind, Event, ListTasksRequest, Part, Result, Seq,
        SubscribeToTaskRequest, Task, TaskState,
    },
    store::MemoryStore,
    testing::{FailingStore, Harness, ScriptedExecutor, card, lines, next_line},
};
use tokio::time::{Instant, sleep};

use crate::{refused, settle};

/// The steps of an agent with its text, which is the artifact `a`.
#[derive(Clone, Copy, Debug)]
enum Does {
    Push(&'static str),
    /// The text of another artifact, `b`.
    PushOther(&'static str),
    Wait(u64),
    Finish,
    FinishWith(&'static str),
    /// Lets go of the text.
    Drop,
    Working,
    Asks,
    Completed,
    /// A piece of `a` that stays a part of its own.
    Chunk(&'static str),
    /// A part of `a` that is no text.
    Data,
    Flush,
    Fails,
    Panics,
}

#[expect(clippy::panic, reason = "the script says so")]
async fn act(script: &[Does], out: &Emitter) -> Result<()> {
    let mut text = Some(out.text_stream("a").with_id("a"));
    let mut other = out.text_stream("b").with_id("b");
    for does in script {
        match (*does, &mut text) {
            (Does::Push(more), Some(text)) => text.push(more).await?,
            (Does::Finish, Some(text)) => text.finish().await?,
            (Does::FinishWith(more), Some(text)) => text.finish_with(more).await?,
            (Does::Push(_) | Does::Finish | Does::FinishWith(_), None) => panic!("it is dropped"),
            (Does::Drop, _) => text = None,
            (Does::PushOther(more), _) => other.push(more).await?,
            (Does::Wait(millis), _) => sleep(Duration::from_millis(millis)).await,
            (Does::Working, _) => out.working().await.map(drop)?,
            (Does::Asks, _) => out.input_required("which?").await.map(drop)?,
            (Does::Completed, _) => out.completed().await.map(drop)?,
            (Does::Chunk(more), _) => {
                out.chunk(Artifact::new("a", Part::text(more)), true, false).await?;
            }
            (Does::Data, _) => {
                out.chunk(Artifact::new("a", Part::data(1)), true, false).await?;
            }
            (Does::Flush, _) => out.flush().await?,
            (Does::Fails, _) => return Err(ErrorKind::Internal.into()),
            (Does::Panics, _) => panic!("as the script says"),
        }
    }
    Ok(())
}

fn agent(store: FailingStore, script: &'static [Does]) -> Harness {
    let executor = ScriptedExecutor::new(move |_, out| async move { act(script, &out).await });
    Harness::of(card(), store, executor, |builder| builder)
}

fn stores() -> [FailingStore; 2] {
    [FailingStore::default(), FailingStore::waiting(MemoryStore::default())]
}

/// The artifacts with their parts: `a = x + y`.
fn made(task: &Task) -> String {
    let parts = |artifact: &Artifact| {
        let parts = artifact.parts.iter().map(|part| part.as_text().unwrap_or("data"));
        parts.collect::<Vec<_>>().join(" + ")
    };
    let made =
        task.artifacts.iter().map(|artifact| format!("{} = {}", artifact.artifact_id, parts(artifact)));
    made.collect::<Vec<_>>().join("; ")
}

/// The one task, as a list has it.
async fn listed(harness: &Harness) -> Task {
    let request = ListTasksRequest { include_artifacts: Some(true), ..ListTasksRequest::default() };
    let mut page = harness.runtime.list_tasks(&harness.cx, request).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
    page.tasks.remove(0)
}

#[tokio::test(start_paused = true)]
async fn the_first_piece_comes_at_once_and_the_next_ones_at_the_pace_before_whatever_is_said_next() {
    use Does::*;
    let cases: &[(&'static [Does], &[&str], &str)] = &[
        // Nothing is nothing.
        (&[Push(""), Finish], &["status completed"], ""),
        // A whole text in few words.
        (&[Push("x"), Finish], &["artifact a \"x\"", "artifact a +\"\" last", "status completed"], "a = x"),
        (&[FinishWith("x")], &["artifact a \"x\" last", "status completed"], "a = x"),
        (
            &[Push("x"), Push("y"), Push("z"), Finish],
            &["artifact a \"x\"", "artifact a +\"yz\" last", "status completed"],
            "a = xyz",
        ),
        (
            &[Push("x"), Push("y"), FinishWith("z")],
            &["artifact a \"x\"", "artifact a +\"yz\" last", "status completed"],
            "a = xyz",
        ),
        // At the pace, also when nothing more comes.
        (
            &[Push("1"), Push("2"), Wait(99), Push("3"), Wait(2), Push("4"), Wait(500), Push("5"), Finish],
            &[
                "artifact a \"1\"",
                "artifact a +\"23\"",
                "artifact a +\"4\"",
                "artifact a +\"5\"",
                "artifact a +\"\" last",
                "status completed",
            ],
            "a = 12345",
        ),
        // Before whatever is said next, however it is said.
        (
            &[Push("x"), Push("y"), Working, Push("z"), Completed],
            &[
                "artifact a \"x\"",
                "artifact a +\"y\"",
                "status working",
                "artifact a +\"z\"",
                "status completed",
            ],
            "a = xyz",
        ),
        (&[Push("x"), Push("y")], &["artifact a \"x\"", "artifact a +\"y\"", "status completed"], "a = xy"),
        (
            &[Push("x"), Push("y"), Drop, Wait(100), Working],
            &["artifact a \"x\"", "artifact a +\"y\"", "status working", "status completed"],
            "a = xy",
        ),
        (
            &[Push("x"), Push("y"), Fails],
            &["artifact a \"x\"", "artifact a +\"y\"", "status failed \"internal error\""],
            "a = xy",
        ),
        (
            &[Push("x"), Push("y"), Panics],
            &["artifact a \"x\"", "artifact a +\"y\"", "status failed \"the agent failed unexpectedly\""],
            "a = xy",
        ),
        (
            &[Push("x"), Push("y"), Asks],
            &["artifact a \"x\"", "artifact a +\"y\"", "status input-required \"which?\""],
            "a = xy",
        ),
        (
            &[Push("x"), Push("y"), Flush, Push("z"), Finish],
            &["artifact a \"x\"", "artifact a +\"y\"", "artifact a +\"z\" last", "status completed"],
            "a = xyz",
        ),
        // Two texts at once, each in its order.
        (
            &[Push("x"), PushOther("1"), Push("y"), PushOther("2"), Finish],
            &[
                "artifact a \"x\"",
                "artifact b \"1\"",
                "artifact a +\"y\" last",
                "artifact b +\"2\"",
                "status completed",
            ],
            "a = xy; b = 12",
        ),
        // What is said otherwise keeps its parts.
        (
            &[Push("x"), Chunk("y"), Push("z"), Finish],
            &["artifact a \"x\"", "artifact a +\"y\"", "artifact a +\"z\" last", "status completed"],
            "a = x + yz",
        ),
        (
            &[Push("x"), Data, Finish],
            &["artifact a \"x\"", "artifact a +\"\"", "artifact a +\"\" last", "status completed"],
            "a = x + data",
        ),
    ];
    for &(script, expected, parts) in cases {
        for store in stores() {
            let harness = agent(store, script);
            let seen = lines(harness.stream("hi").await.unwrap()).await;
            let expected = std::iter::once(&"task submitted").chain(expected);
            let numbered = (1..).zip(expected).map(|(number, line)| format!("{number} {line}"));
            assert_eq!(seen, numbered.collect::<Vec<_>>(), "{script:?}");
            let task = listed(&harness).await;
            assert_eq!(made(&task), parts, "{script:?}");
            assert_eq!(harness.get(&task.id).await.unwrap(), task, "{script:?}");
        }
    }
}

/// The moments at which pieces of text come, in milliseconds from the first, and how long they are.
async fn pace(pace: Option<u64>, tokens: usize, every: u64, token: &'static str) -> Vec<(u128, usize)> {
    let executor = ScriptedExecutor::new(move |_, out| async move {
        let mut text = out.text_stream("a");
        if let Some(pace) = pace {
            text = text.with_pace(Duration::from_millis(pace));
        }
        for _ in 0..tokens {
            text.push(token).await?;
            sleep(Duration::from_millis(every)).await;
        }
        text.finish().await
    });
    let harness = Harness::new(executor);
    let mut stream = harness.stream("hi").await.unwrap();
    let (mut first, mut seen) = (None, Vec::new());
    while let Some(item) = stream.next().await {
        if let Event::ArtifactUpdate(update) = &**item.unwrap().event() {
            let at = first.get_or_insert_with(Instant::now).elapsed().as_millis();
            seen.push((at, update.artifact.text().len()));
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn pieces_come_at_the_pace_or_when_they_are_large() {
    // A token each 30 ms: the first at once, then three of them each 100 ms.
    assert_eq!(pace(None, 8, 30, "x").await, [(0, 1), (100, 3), (200, 3), (240, 1)]);
    assert_eq!(pace(Some(20), 3, 15, "x").await, [(0, 1), (20, 1), (40, 1), (45, 0)]);
    // With none, each is a piece.
    assert_eq!(pace(Some(0), 3, 10, "x").await, [(0, 1), (10, 1), (20, 1), (30, 0)]);
    // Slower than the pace, nothing waits.
    assert_eq!(pace(None, 3, 150, "x").await, [(0, 1), (150, 1), (300, 1), (450, 0)]);
    // 4 KiB do not wait.
    const KIB: &str = match std::str::from_utf8(&[b'x'; 1024]) {
        Ok(text) => text,
        Err(_) => "",
    };
    assert_eq!(
        pace(None, 10, 10, KIB).await,
        [(0, 1024), (40, 4096), (80, 4096), (100, 1024)],
        "the last one is complete before its time"
    );
}

/// An agent that says a word in two pieces, and then nothing.
fn hangs() -> ScriptedExecutor {
    ScriptedExecutor::new(|_, out| async move {
        let mut text = out.text_stream("a").with_id("a");
        text.push("x").await?;
        text.push("y").await?;
        std::future::pending().await
    })
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_cancel_is_kept() {
    for store in stores() {
        let harness = Harness::of(card(), store, hangs(), |builder| builder);
        let mut stream = harness.stream("hi").await.unwrap();
        assert_eq!(next_line(&mut stream).await, "1 task submitted");
        assert_eq!(next_line(&mut stream).await, "2 artifact a \"x\"");
        let task = harness.cancel(&listed(&harness).await.id).await.unwrap();
        assert_eq!((task.status.state, &*made(&task)), (TaskState::Canceled, "a = xy"));
        assert_eq!(lines(stream).await, ["3 artifact a +\"y\"", "4 status canceled"]);
        settle().await;
        assert_eq!(harness.runtime.live_tasks(), 0, "nobody waits for text that was told");
    }
}

#[tokio::test(start_paused = true)]
async fn text_after_the_end_is_refused() {
    for script in [&[Does::Push("x"), Does::Completed][..], &[Does::Completed]] {
        let executor = ScriptedExecutor::new(move |_, out| async move {
            act(script, &out).await?;
            let mut text = out.text_stream("b");
            assert_eq!(refused(text.push("y").await), ErrorKind::UnsupportedOperation);
            assert_eq!(refused(text.finish_with("z").await), ErrorKind::UnsupportedOperation);
            Ok(())
        });
        let harness = Harness::new(executor);
        assert_eq!(harness.task("hi").await.unwrap().status.state, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn text_has_the_limit_of_a_task() {
    const LIMIT: usize = 20_000;
    for tokens in [1, 10, 1_000, 10_000] {
        for store in stores() {
            let executor = ScriptedExecutor::new(move |_, out| async move {
                let mut text = out.text_stream("a");
                let token = "x".repeat(2 * LIMIT / tokens);
                loop {
                    text.push(&token).await?;
                }
            });
            let limits = Limits { max_task_bytes: LIMIT, ..Limits::default() };
            let harness = Harness::of(card(), store, executor, |builder| builder.limits(limits));
            let task = harness.task("hi").await.unwrap();
            assert_eq!(task.status.state, TaskState::Failed);
            assert!(task.status.message.unwrap().text().contains("max_task_bytes"));
            let text = task.artifacts.first().map_or(0, |artifact| artifact.text().len());
            assert!(text < LIMIT && (tokens < 1_000 || text > LIMIT / 2), "{text} of {tokens} tokens");
        }
    }
}

/// A push that is dropped while the store is full has said its text.
#[tokio::test(start_paused = true)]
async fn a_push_that_is_dropped_has_said_its_text() {
    for store in stores() {
        let executor = ScriptedExecutor::new(|_, out| async move {
            let mut text = out.text_stream("a").with_id("a");
            for word in ["x", "y", "z"] {
                // Polled once.
                let _ = text.push(word).now_or_never();
            }
            text.finish().await
        });
        let harness = Harness::of(card(), store, executor, |builder| builder);
        assert_eq!(made(&harness.task("hi").await.unwrap()), "a = xyz");
    }
}

/// A reader that resumes in the middle of a text gets the remaining pieces, from memory or from the store.
#[tokio::test(start_paused = true)]
async fn a_stream_that_resumes_in_the_middle_of_a_text_has_the_same_pieces() {
    for store in stores() {
        let executor = ScriptedExecutor::new(|_, out| async move {
            let mut text = out.text_stream("a").with_id("a");
            for n in 0..600 {
                text.push(format!("{n} ")).await?;
                sleep(Duration::from_millis(50)).await;
            }
            text.finish().await
        });
        let harness = Harness::of(card(), store, executor, |builder| builder);
        let whole = lines(harness.stream("hi").await.unwrap()).await;
        let task = listed(&harness).await;
        let text: String = (0..600).map(|n| format!("{n} ")).collect();
        assert_eq!(task.artifacts[0].parts, [Part::text(text)]);
        for after in [1, 2, 150, whole.len() - 1] {
            let resumed = harness.calling(|cx| cx.last_event_id = Some(Seq(after as u64)));
            let request = SubscribeToTaskRequest { id: task.id.clone(), ..SubscribeToTaskRequest::default() };
            let rest = resumed.runtime.subscribe_to_task(&resumed.cx, request).await.unwrap();
            assert_eq!(lines(rest).await, whole[after..], "after {after}");
        }
    }
}

/// The next server reads one text, and goes on with it.
#[tokio::test(start_paused = true)]
async fn a_text_that_another_server_goes_on_with_is_one_text() {
    let data = MemoryStore::default();
    let server = |executor| {
        let store = FailingStore::waiting(data.another());
        Harness::of(card(), store, executor, |builder| builder.idempotent(true))
    };
    let first = server(hangs());
    let task = first.begin("hi").await.unwrap();
    first.runtime.drain(Duration::ZERO).await;
    assert_eq!(made(&first.get(&task.id).await.unwrap()), "a = xy");
    first.store.retire();
    drop(first);
    let again = ScriptedExecutor::new(|cx, out| async move {
        let text = cx.task.as_ref().map(made).unwrap_or_default();
        let mut next = out.text_stream("b").with_id("b");
        next.push(text).await?;
        next.finish().await
    });
    let second = server(again);
    let done = second.until(&task.id, TaskState::Completed).await.unwrap();
    assert_eq!(made(&done), "a = xy; b = a = xy");
}
