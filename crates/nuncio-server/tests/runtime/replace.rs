//! A runtime that is given another card and another executor while tasks run.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_server::{
    Emitter, ExecContext, Executor,
    protocol::{A2aService as _, AgentCard, CallContext, ErrorKind, RESUME_EXTENSION, Result, TaskState},
    store::MemoryStore,
    testing::{Harness, Say, ScriptedExecutor, Step, card, lines, summary},
};

use crate::{refused, secs, settle};

/// An agent that says its name when it is done, and when it is told of a cancel.
fn named(name: &'static str) -> Arc<ScriptedExecutor> {
    Arc::new(ScriptedExecutor::new(move |cx, out| async move {
        out.text(name, cx.card.description.clone()).await?;
        out.input_required("more?").await.map(drop)
    }))
}

fn described(description: &str) -> AgentCard {
    AgentCard { description: description.to_owned(), ..card() }
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_keeps_its_executor_and_the_next_one_has_the_new_one() {
    let harness = Harness::of(
        described("old"),
        MemoryStore::default(),
        ScriptedExecutor::new(|cx, out| async move {
            out.working().await?;
            tokio::time::sleep(secs(5)).await;
            out.input_required(format!("still {}", cx.card.description)).await.map(drop)
        }),
        |builder| builder,
    );
    let task = harness.begin("1").await.unwrap();
    settle().await;
    harness.runtime.replace(described("new"), named("made"));
    let asked = harness.until(&task.id, TaskState::InputRequired).await.unwrap();
    assert_eq!(summary(&asked), "input-required \"still old\" | user: 1 | ");
    let after = harness.task(Say::to(&task, "2")).await.unwrap();
    assert_eq!(after.artifacts[0].text(), "new", "a turn that begins now has the new card and executor");
    let other = harness.task("3").await.unwrap();
    assert_eq!(other.artifacts[0].name, "made");
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_canceled_by_the_executor_that_runs_it() {
    let old = ScriptedExecutor::steps([Step::Working, Step::Hang]).on_cancel(|_| std::future::pending());
    let harness = Harness::new(old);
    let task = harness.begin("1").await.unwrap();
    settle().await;
    let new = ScriptedExecutor::steps([]).on_cancel(|_| async { panic!("not its task") });
    harness.runtime.replace(card(), Arc::new(new));
    assert_eq!(harness.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn the_new_card_is_obeyed_and_says_what_the_runtime_can_do() {
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let mut silent = described("silent");
    silent.capabilities.streaming = Some(false);
    silent.capabilities.push_notifications = Some(true);
    harness.runtime.replace(silent, Arc::new(ScriptedExecutor::steps([])));
    let now = harness.runtime.card();
    assert_eq!(now.description, "silent");
    assert!(now.extension(RESUME_EXTENSION).is_some(), "declared as on the first card");
    assert_eq!(now.capabilities.push_notifications, Some(false), "there is nothing that would push");
    assert_eq!(refused(harness.stream("hi").await), ErrorKind::UnsupportedOperation);
    harness.runtime.replace(card(), Arc::new(ScriptedExecutor::steps([])));
    assert_eq!(lines(harness.stream("hi").await.unwrap()).await, ["1 task submitted", "2 status completed"]);
}

/// Shows more of itself to those who are known.
struct Known(&'static str);

#[async_trait]
impl Executor for Known {
    async fn execute(&self, _: ExecContext, _: Emitter) -> Result<()> {
        Ok(())
    }

    async fn extended_card(&self, _: &CallContext) -> Result<Option<AgentCard>> {
        Ok(Some(described(self.0)))
    }
}

#[tokio::test(start_paused = true)]
async fn the_extended_card_is_that_of_the_present_executor() {
    let mut card = card();
    card.capabilities.extended_agent_card = Some(true);
    let harness = Harness::of(card.clone(), MemoryStore::default(), Known("old"), |builder| builder);
    let get = async |harness: &Harness| {
        harness.runtime.get_extended_agent_card(&harness.cx, Default::default()).await
    };
    assert_eq!(refused(get(&harness).await), ErrorKind::Unauthenticated);
    let known = harness.as_caller("ann");
    assert_eq!(get(&known).await.unwrap().description, "old");
    harness.runtime.replace(card.clone(), Arc::new(Known("new")));
    let new = get(&known).await.unwrap();
    assert_eq!(new.description, "new");
    assert!(new.extension(RESUME_EXTENSION).is_some(), "declared as on every card");
    harness.runtime.replace(card, named("none"));
    assert_eq!(refused(get(&known).await), ErrorKind::ExtendedAgentCardNotConfigured);
}
