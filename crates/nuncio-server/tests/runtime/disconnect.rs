//! Callers that leave: their tasks go on, unless the agent wants them to end.

use nuncio_server::{
    protocol::{A2aService as _, ListTasksRequest, Task, TaskState},
    testing::{Harness, Say, ScriptedExecutor, Step, next_line},
};

use crate::{secs, settle};

/// An agent that works until it is canceled.
fn agent(cancels: bool) -> Harness {
    let executor = ScriptedExecutor::new(|cx, out| async move {
        out.working().await?;
        cx.cancellation.cancelled().await;
        Ok(())
    });
    Harness::with(executor, |builder| builder.cancel_on_disconnect(cancels))
}

/// A sender that waits in this way and leaves.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Blocking,
    Streaming,
    ReturnImmediately,
}

async fn leave(harness: &Harness, sender: Sender) {
    match sender {
        Sender::Blocking => {
            let sending = harness.clone();
            let send = tokio::spawn(async move { sending.send("hi").await });
            settle().await;
            send.abort();
            assert!(send.await.unwrap_err().is_cancelled());
        }
        Sender::Streaming => {
            let mut stream = harness.stream("hi").await.unwrap();
            next_line(&mut stream).await;
        }
        Sender::ReturnImmediately => drop(harness.task(Say::from("hi").immediately()).await.unwrap()),
    }
    settle().await;
}

async fn tasks(harness: &Harness) -> Vec<Task> {
    harness.runtime.list_tasks(&harness.cx, ListTasksRequest::default()).await.unwrap().tasks
}

async fn states(harness: &Harness) -> Vec<TaskState> {
    tasks(harness).await.iter().map(|task| task.status.state).collect()
}

/// C-63: the life of a task is independent of its callers; the other way is a policy.
#[tokio::test(start_paused = true)]
async fn a_task_ends_with_its_caller_only_where_that_is_wanted() {
    use Sender::{Blocking, ReturnImmediately, Streaming};
    for (cancels, sender, expected) in [
        (false, Blocking, TaskState::Working),
        (false, Streaming, TaskState::Working),
        (true, Blocking, TaskState::Canceled),
        (true, Streaming, TaskState::Canceled),
        // It does not wait for its task.
        (true, ReturnImmediately, TaskState::Working),
    ] {
        let harness = agent(cancels);
        leave(&harness, sender).await;
        assert_eq!(states(&harness).await, [expected], "{cancels} {sender:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_while_somebody_follows_it() {
    let harness = agent(true);
    let mut sent = harness.stream("hi").await.unwrap();
    next_line(&mut sent).await;
    let id = &tasks(&harness).await[0].id;
    let followed = harness.subscribe(id).await.unwrap();
    drop(sent);
    settle().await;
    assert_eq!(states(&harness).await, [TaskState::Working], "somebody follows it");
    drop(followed);
    settle().await;
    assert_eq!(states(&harness).await, [TaskState::Canceled], "nobody does any more");
}

/// A watcher that leaves does not end a task that was started in the background.
#[tokio::test(start_paused = true)]
async fn a_subscriber_ends_nothing() {
    let harness = agent(true);
    let task = harness.task(Say::from("hi").immediately()).await.unwrap();
    drop(harness.subscribe(&task.id).await.unwrap());
    settle().await;
    assert_eq!(states(&harness).await, [TaskState::Working]);
}

/// A caller that was answered has not left: with the question of the agent, or when its time was up.
#[tokio::test(start_paused = true)]
async fn an_answered_caller_has_not_left() {
    for (steps, expected) in [
        (vec![Step::InputRequired("which?")], TaskState::InputRequired),
        (vec![Step::Working, Step::Hang], TaskState::Working),
    ] {
        let harness = Harness::with(ScriptedExecutor::steps(steps), |builder| {
            builder.cancel_on_disconnect(true).blocking_ceiling(secs(5))
        });
        harness.task("hi").await.unwrap();
        settle().await;
        assert_eq!(states(&harness).await, [expected]);
    }
}
