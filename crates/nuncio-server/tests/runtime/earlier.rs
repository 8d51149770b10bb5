//! A context is a conversation: an executor reads the caller's tasks before this one.

use nuncio_server::{
    EarlierLimit, ExecContext, RuntimeBuilder,
    protocol::{Artifact, Part, Task},
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, ScriptedExecutor, card},
};

const ALL: EarlierLimit = EarlierLimit { turns: 20, bytes: 200_000 };

/// An agent that answers a message with an artifact that names the messages before it, task by task, and asks after
/// `ask`.
fn remembers(limit: EarlierLimit) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx: ExecContext, out| async move {
        let earlier = cx.earlier(limit).await?;
        assert!(earlier.iter().all(|task| task.id != cx.task_id && task.context_id == cx.context_id));
        let told: Vec<String> = earlier.iter().map(said).collect();
        out.artifact(Artifact::new("told", Part::text(told.join(" | ")))).await?;
        if cx.text().starts_with("ask") { out.input_required("which?").await.map(drop) } else { Ok(()) }
    })
}

fn said(task: &Task) -> String {
    task.history.iter().map(|message| message.text().into_owned()).collect::<Vec<_>>().join(" ")
}

fn server(data: &MemoryStore, limit: EarlierLimit, agent: &'static str) -> Harness {
    let store = FailingStore::waiting(data.another());
    Harness::of(card(), store, remembers(limit), |builder: RuntimeBuilder| builder.agent(agent))
}

/// The answer to a message of this conversation.
async fn ask(harness: &Harness, context: &str, text: &str) -> Task {
    let say = Say::from(text).change(|request| request.message.context_id = Some(context.into()));
    harness.task(say).await.unwrap()
}

async fn told(harness: &Harness, context: &str, text: &str) -> String {
    ask(harness, context, text).await.artifacts[0].text().into_owned()
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_context_are_read_oldest_first_by_their_caller_alone() {
    let data = MemoryStore::default();
    let agent = server(&data, ALL, "a");
    let (ann, bob) = (agent.as_caller("ann"), agent.as_caller("bob"));
    let acme = ann.calling(|cx| cx.tenant = Some("acme".to_owned()));
    assert_eq!(told(&ann, "c", "one").await, "");
    assert_eq!(told(&ann, "c", "two").await, "one");
    assert_eq!(told(&ann, "c", "three").await, "one | two");
    assert_eq!(told(&ann, "other", "four").await, "", "another context");
    for other in [&bob, &agent, &acme, &server(&data, ALL, "b").as_caller("ann")] {
        assert_eq!(told(other, "c", "foreign").await, "", "another caller, tenant or agent");
    }
    // Each has its own from then on.
    assert_eq!(told(&bob, "c", "five").await, "foreign");
    assert_eq!(told(&ann, "c", "six").await, "one | two | three");
    // The next server reads what this one has stored.
    let next = server(&data, ALL, "a").as_caller("ann");
    assert_eq!(told(&next, "c", "seven").await, "one | two | three | six");
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_reads_what_was_before_its_task() {
    let agent = server(&MemoryStore::default(), ALL, "a");
    ask(&agent, "c", "one").await;
    let asked = ask(&agent, "c", "ask").await;
    let answered = agent.task(Say::to(&asked, "that")).await.unwrap();
    assert_eq!(answered.artifacts[0].text(), "one", "its own task is in the context of the execution");
    assert_eq!(told(&agent, "c", "last").await, "one | ask which? that");
}

/// Older tasks are counted, whether turns or bytes leave them out. The task itself never counts, stored or not.
#[tokio::test(start_paused = true)]
async fn what_the_limit_leaves_out_is_counted() {
    for (turns, bytes, expected) in [
        (20, 200_000, "3+0"),
        (3, 200_000, "3+0"),
        (2, 200_000, "2+1"),
        (1, 200_000, "1+2"),
        (0, 200_000, "0+3"),
        (20, 100, "0+3"),
    ] {
        for is_stored_first in [false, true] {
            let limit = EarlierLimit { turns, bytes };
            let counts = ScriptedExecutor::new(move |cx: ExecContext, out| async move {
                if is_stored_first {
                    out.working().await?;
                    out.flush().await?;
                }
                let earlier = cx.earlier_with_count(limit).await?;
                let told = format!("{}+{}", earlier.tasks.len(), earlier.left_out);
                out.artifact(Artifact::new("told", Part::text(told))).await.map(drop)
            });
            let store = FailingStore::waiting(MemoryStore::default());
            let agent = Harness::of(card(), store, counts, |builder: RuntimeBuilder| builder.agent("a"));
            for _ in 0..3 {
                ask(&agent, "c", "hello").await;
            }
            ask(&agent.as_caller("bob"), "c", "another caller").await;
            assert_eq!(
                told(&agent, "c", "last").await,
                expected,
                "{turns} turns, {bytes} bytes, {is_stored_first}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_read_than_the_limit_says() {
    let large = "x".repeat(3_000);
    for (turns, bytes, expected) in [
        (20, 200_000, "one | ask which? two | {large} | four"),
        // Of a task with more turns than are left, the last.
        (4, 200_000, "ask which? two | {large} | four"),
        (3, 200_000, "two | {large} | four"),
        (2, 200_000, "{large} | four"),
        (1, 200_000, "four"),
        (0, 200_000, ""),
        (20, 2_000, "four"),
        (20, 100, ""),
        (20, 0, ""),
    ] {
        let data = MemoryStore::default();
        // Told without what it was told itself, which would make the tasks longer and longer.
        let silent = server(&data, EarlierLimit { turns: 0, bytes: 0 }, "a");
        ask(&silent, "c", "one").await;
        let asked = ask(&silent, "c", "ask").await;
        silent.task(Say::to(&asked, "two")).await.unwrap();
        for text in [&*large, "four"] {
            ask(&silent, "c", text).await;
        }
        let told = told(&server(&data, EarlierLimit { turns, bytes }, "a"), "c", "last").await;
        let expected = expected.replace("{large}", &large);
        assert_eq!(told, expected, "{turns} turns, {bytes} bytes");
    }
}
