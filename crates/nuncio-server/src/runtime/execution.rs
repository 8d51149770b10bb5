//! Running the executor, detached from any connection: turn after turn, with cancel, watchdog,
//! panics caught, and an end that is always recorded.

use std::{any::Any, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use nuncio_protocol::{
    AgentCard, CallContext, Caller, Error, ErrorKind, Metadata, Result, SendMessageConfiguration, Seq, Task,
    TaskState,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Core,
    agent::Current,
    emitter::Emitter,
    executor::{ExecContext, Execution, Executor},
    live::LiveTaskRef,
    record::Recorder,
    state::{Phase, Running, Stop},
    turn::{Begun, FollowUpTurn, Job, OpeningTurn, Turn},
};
use crate::store::{Reservation, StoredTurn, TurnChange};

/// How an execution ended.
enum Ended {
    Returned(Result<()>),
    Panicked(Box<dyn Any + Send>),
    Stopped,
}

/// Marks the task as running; the caller then spawns [`run`].
pub(super) fn running() -> Running {
    Running { token: CancellationToken::new(), stop: None }
}

/// Runs this turn and those that queue behind it.
pub(super) async fn run(core: Arc<Core>, live: LiveTaskRef, first: Turn) {
    let mut turn = first;
    core.journal.begins();
    loop {
        run_turn(&core, &live, turn).await;
        turn = match next_turn(&live) {
            Next::Turn(next) => next,
            Next::Stop(why) => {
                Box::pin(cancel_after_turn(&core, &live)).await;
                let recorder = Recorder::new(&core, &live);
                report(&live, Box::pin(end_stopped(&core, &recorder, why)).await);
                // The task has ended now, or its store is gone: either way there is no next turn.
                let _ = next_turn(&live);
                break;
            }
            Next::Done => break,
        };
    }
    // Streams that outlive the execution look again.
    live.announce();
}

/// What comes after a turn.
enum Next {
    Turn(Turn),
    /// It was stopped for good when the turn was over already.
    Stop(Stop),
    Done,
}

/// The next turn in the queue. A task that has ended takes no more: those that wait are told.
fn next_turn(live: &LiveTaskRef) -> Next {
    let mut state = live.lock();
    let stop = state.stopping();
    let refused = match &state.phase {
        Phase::Lost(_) => Some(super::unavailable as fn() -> Error),
        Phase::Task(tracked) if tracked.task.status.state.is_terminal() => Some(terminal as fn() -> Error),
        Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) => Some(terminal as fn() -> Error),
        Phase::Task(_) => match stop {
            // Whoever canceled waits for the end, so it must come.
            Some(why) if why.is_for_good() => return Next::Stop(why),
            Some(Stop::Shutdown) => Some(super::unavailable as fn() -> Error),
            // What the silence of a turn would have stopped is over.
            Some(_) | None => None,
        },
    };
    let Some(refused) = refused else {
        let turn = state.queue.pop_front();
        state.running = turn.is_some().then(running);
        return turn.map_or(Next::Done, Next::Turn);
    };
    state.running = None;
    for turn in std::mem::take(&mut state.queue) {
        turn.refuse(refused());
    }
    Next::Done
}

/// The error for a message to a task that has ended (REQ-098).
pub(super) fn terminal() -> Error {
    Error::new(ErrorKind::UnsupportedOperation, "the task has ended; begin a new one with the same contextId")
}

/// A turn that has begun.
struct Started {
    job: Job,
    /// The task as it was before its message.
    task: Option<Task>,
    resumed: bool,
    /// The entry after which its events come.
    seq: Seq,
    reservation: Option<Reservation>,
}

async fn run_turn(core: &Arc<Core>, live: &LiveTaskRef, turn: Turn) {
    let started = match turn {
        Turn::Opening(turn) => begin_opening(core, live, *turn).await,
        // Boxed: most turns are the first of their task.
        Turn::FollowUp(turn) => Box::pin(begin_follow_up(core, live, *turn)).await,
        Turn::Resumed(job) => resume(live, *job),
    };
    let Some(Started { job, task, resumed, seq, reservation }) = started else { return };
    let recorder = Recorder::new(core, live);
    let token =
        live.lock().running.as_ref().map_or_else(CancellationToken::new, |running| running.token.clone());
    let Current { card, executor, .. } = &*core.agent.current.load_full();
    let Job { message, configuration, metadata, references, call, repeat_id, in_flight } = job;
    let cx = ExecContext::from(Execution {
        task_id: live.id.clone(),
        context_id: live.context_id.clone(),
        message,
        task,
        references,
        configuration,
        metadata,
        call,
        name: repeat_id,
        again: resumed,
        memo: live.lock().memo.clone(),
        card: Arc::clone(card),
        cancellation: token.clone(),
    });
    let ended = execute(core, &**executor, live, cx, Emitter::new(recorder.clone()), token).await;
    if is_shut_down(live) && core.keeps_turns() && core.agent.is_idempotent() && !live.lock().will_answer(seq)
    {
        return leave(live).await;
    }
    if !has_said_it_all(live, &ended, seq) {
        // Boxed: there is no need for its room while the agent works.
        report(live, Box::pin(finish(core, live, &recorder, ended, seq)).await);
    }
    // Only then a repeat of its message finds in the store what came of it.
    live.until_committed().await;
    if let Some(reservation) = reservation {
        Box::pin(core.close_reservation(live, reservation)).await;
    }
    drop(in_flight);
}

/// Begins the turn that makes a task. One that was acknowledged is marked as begun before the agent sees it.
async fn begin_opening(core: &Arc<Core>, live: &LiveTaskRef, turn: OpeningTurn) -> Option<Started> {
    let OpeningTurn { job, acknowledged, reservation } = turn;
    if live.lock().state().is_terminal() {
        // It was canceled before it could run: its agent is not asked for what nobody wants.
        return None;
    }
    if let Some(id) = acknowledged {
        if is_shut_down(live) {
            leave(live).await;
            return None;
        }
        live.until_committed().await;
        if let Err(error) = core.change_turn(live, TurnChange::Begin(id)).await {
            report(live, Err(error));
            return None;
        }
    }
    Some(Started { job, task: None, resumed: false, seq: Seq::ZERO, reservation })
}

/// Goes on with a turn that an owner which is gone had begun.
fn resume(live: &LiveTaskRef, job: Job) -> Option<Started> {
    let state = live.lock();
    // Canceled before it could run again: its agent is not asked for what nobody wants.
    let runs = !state.state().is_terminal();
    let (task, seq) = (state.last_task().cloned(), state.folded().seq);
    runs.then_some(Started { job, task, resumed: true, seq, reservation: None })
}

/// Begins the turn of a message to a task: the message is recorded, and whoever waits for the turn is told.
async fn begin_follow_up(core: &Arc<Core>, live: &LiveTaskRef, turn: FollowUpTurn) -> Option<Started> {
    let acknowledged = turn.is_acknowledged();
    let FollowUpTurn { job, key, webhook, stored, begun } = turn;
    let task = live.lock().last_task().cloned();
    if acknowledged && is_shut_down(live) {
        leave(live).await;
        return None;
    }
    let stored = stored.map(|stored| StoredTurn { begun: true, ..stored });
    let waiting = stored.as_ref().filter(|_| acknowledged).map(|stored| Arc::clone(&stored.id));
    let config = webhook.as_ref().map(|webhook| webhook.id.clone());
    let ahead = acknowledged || core.writes_ahead(key.is_some());
    let recorder = Recorder::new(core, live);
    let seq = match recorder.caller_message(&job.message, key, stored, webhook).await {
        Ok(seq) => seq,
        Err(error) => {
            let _ = begun.send(Err(error));
            if let Some(id) = waiting.filter(|_| !live.lock().is_lost()) {
                // It never will be: the task has ended.
                report(live, core.change_turn(live, TurnChange::Drop(id)).await);
            }
            return None;
        }
    };
    if let Some(config) = config {
        live.until_committed().await;
        core.replaced(&live.scope, &live.id, &config).await;
    }
    if ahead {
        // Acknowledged already, or not to be done twice: not begun before the store knows that it has.
        live.until_committed().await;
        if let Err(lost) = live.lock().check_kept() {
            // In other hands: its agent sees it there.
            drop(begun.send(Err(lost)));
            return None;
        }
    }
    if let Some(in_flight) = &job.in_flight {
        in_flight.begins_after(seq);
    }
    let _ = begun.send(Ok(Begun { turn: seq, task: live.lock().task().cloned() }));
    Some(Started { job, task, resumed: false, seq, reservation: None })
}

fn is_shut_down(live: &LiveTaskRef) -> bool {
    live.lock().stopping() == Some(Stop::Shutdown)
}

/// Leaves a kept turn to the next server, as a crash would: it may run there, or again.
async fn leave(live: &LiveTaskRef) {
    live.until_committed().await;
    live.evict();
}

/// An end that could not be recorded: the store is gone, or the task has an end already, which is no
/// news.
fn report(live: &LiveTaskRef, recorded: Result<()>) {
    if let Err(error) = recorded
        && error.kind() != ErrorKind::UnsupportedOperation
    {
        tracing::error!(task = %live.id, %error, "the end of an execution could not be recorded");
    }
}

async fn execute(
    core: &Core,
    executor: &dyn Executor,
    live: &LiveTaskRef,
    cx: ExecContext,
    out: Emitter,
    token: CancellationToken,
) -> Ended {
    // The call is inside of what is caught: a hand-written executor may panic before it gives a future.
    let own = cx.clone();
    let mut work = pin!(caught(async move { executor.execute(own, out).await }));
    tokio::select! {
        // The work comes first: what is done is done, even if the stop came at the same time.
        biased;
        returned = &mut work => return into_ended(returned),
        () = token.cancelled() => {}
        () = silence(core, live) => drop(stop(live, Stop::Silence)),
    }
    // Boxed: it is rare, and would make every execution's future larger.
    Box::pin(wind_up(core, executor, live, cx, work)).await;
    Ended::Stopped
}

/// Gives the executor its grace. What comes of the work does not matter any more, unless it has
/// recorded an end itself.
async fn wind_up(
    core: &Core,
    executor: &dyn Executor,
    live: &LiveTaskRef,
    cx: ExecContext,
    work: impl Future,
) {
    let cancel = caught(async move { executor.cancel(cx).await });
    let both = futures_util::future::join(work, cancel);
    if timeout(core.limits.cancel_grace, both).await.is_err() {
        tracing::warn!(task = %live.id, "the executor did not stop within the grace period and was dropped");
    }
}

/// The agent's own code, with its panics as values.
fn caught<F: Future>(work: F) -> impl Future<Output = Result<F::Output, Box<dyn Any + Send>>> {
    AssertUnwindSafe(work).catch_unwind()
}

fn into_ended(returned: Result<Result<()>, Box<dyn Any + Send>>) -> Ended {
    match returned {
        Ok(result) => Ended::Returned(result),
        Err(panic) => Ended::Panicked(panic),
    }
}

/// Asks the running execution to stop; the first reason stands.
pub(super) fn stop(live: &LiveTaskRef, why: Stop) -> bool {
    live.lock().stop(why)
}

/// Returns when nothing was recorded for the agent's watchdog time; never if it has none.
async fn silence(core: &Core, live: &LiveTaskRef) {
    match core.agent.rules().silence {
        Some(limit) => Box::pin(silence_of(core, live, limit)).await,
        None => std::future::pending().await,
    }
}

async fn silence_of(core: &Core, live: &LiveTaskRef, limit: Duration) {
    loop {
        let changed = live.changed();
        if timeout(limit, changed).await.is_err()
            && core.journal.check().is_ok()
            && !live.lock().awaits_store()
            && !live.lock().state().is_interrupted()
        {
            // An agent that waits for the store, or for its caller, is not to blame.
            return;
        }
    }
}

/// True if there is nothing to add to what the executor has recorded.
fn has_said_it_all(live: &LiveTaskRef, ended: &Ended, turn_seq: Seq) -> bool {
    let state = live.lock();
    matches!(ended, Ended::Returned(Ok(()))) && state.stopping().is_none() && state.will_answer(turn_seq)
}

/// Records the end of an executor that has not said it all.
async fn finish(
    core: &Core,
    live: &LiveTaskRef,
    recorder: &Recorder,
    ended: Ended,
    turn_seq: Seq,
) -> Result<()> {
    let stop = live.lock().stopping();
    if stop == Some(Stop::Shutdown) && live.lock().will_answer(turn_seq) {
        // It has said what it had to say: a question stays asked.
        return Ok(());
    }
    if let Some(why) = stop {
        if matches!(why, Stop::TooLarge | Stop::OutOfMemory) {
            // Its first event may have been the one that was too large.
            recorder.ensure().await?;
        }
        if why.is_for_good() && !matches!(ended, Ended::Stopped) {
            // The stop came when the executor was done.
            cancel_after_turn(core, live).await;
        }
        // Whatever the executor made of it: an emit that failed, or a return in time.
        return end_stopped(core, recorder, why).await;
    }
    match ended {
        Ended::Returned(Ok(())) => {
            recorder.end(TaskState::Completed, None).await?;
        }
        Ended::Returned(Err(error)) => {
            tracing::info!(task = %live.id, %error, cause = ?std::error::Error::source(&error), "an execution failed");
            recorder.end(TaskState::Failed, Some(error.message())).await?;
        }
        Ended::Panicked(panic) => {
            tracing::error!(task = %live.id, panic = panic_text(&*panic), "an executor panicked");
            recorder.end(TaskState::Failed, Some("the agent failed unexpectedly")).await?;
        }
        Ended::Stopped => end_stopped(core, recorder, Stop::Cancel).await?,
    }
    Ok(())
}

async fn end_stopped(core: &Core, recorder: &Recorder, why: Stop) -> Result<()> {
    let reason = match why {
        Stop::Cancel => return recorder.end(TaskState::Canceled, None).await.map(drop),
        Stop::Shutdown => "the server was shut down before the task was done".to_owned(),
        Stop::Silence => "the agent gave no sign of life for too long".to_owned(),
        Stop::TooLarge => core.agent.too_large().message().to_owned(),
        Stop::OutOfMemory => super::out_of_memory().message().to_owned(),
    };
    recorder.end(TaskState::Failed, Some(&reason)).await.map(drop)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return text;
    }
    panic.downcast_ref::<String>().map_or("no text", String::as_str)
}

/// Waits for an executor's `cancel` of a task that does not run; its outcome does not matter.
pub(super) async fn cancel_idle(executor: &dyn Executor, cx: ExecContext, grace: Duration) {
    let _ = timeout(grace, caught(async move { executor.cancel(cx).await })).await;
}

/// Tells the executor that the task of its last turn is canceled, when that turn is over.
async fn cancel_after_turn(core: &Core, live: &LiveTaskRef) {
    let (task, memo) = {
        let state = live.lock();
        (state.last_task().cloned(), state.memo.clone())
    };
    let Some(task) = task.filter(|task| !task.status.state.is_terminal()) else { return };
    let Current { card, executor, .. } = &*core.agent.current.load_full();
    let call = CallContext {
        tenant: live.scope.tenant.as_deref().map(str::to_owned),
        caller: live.scope.owner.clone().map_or_else(Caller::anonymous, Caller::authenticated),
        ..CallContext::default()
    };
    let cx = idle_context(card, &call, task, memo, Metadata::new());
    cancel_idle(&**executor, cx, core.limits.cancel_grace).await;
}

/// What an executor is told about a task that is canceled while nothing runs.
pub(super) fn idle_context(
    card: &Arc<AgentCard>,
    cx: &CallContext,
    task: Task,
    memo: Option<Bytes>,
    metadata: Metadata,
) -> ExecContext {
    ExecContext::from(Execution {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        message: task.history.last().cloned().unwrap_or_default(),
        task: Some(task),
        references: Vec::new(),
        configuration: SendMessageConfiguration::default(),
        metadata,
        call: cx.clone(),
        name: None,
        again: false,
        memo,
        card: Arc::clone(card),
        cancellation: CancellationToken::new(),
    })
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{TaskStatus, Timestamp};

    use super::*;
    use crate::{
        runtime::live::Registry,
        store::{Scope, StoredTask},
    };

    fn asking(stop: Option<Stop>) -> LiveTaskRef {
        let status =
            TaskStatus { state: TaskState::InputRequired, message: None, timestamp: Some(Timestamp::EPOCH) };
        let task = Task { id: "t-1".into(), context_id: "c-1".into(), status, ..Task::default() };
        let registry: Arc<Registry> = Arc::default();
        let live = registry.revive(
            &Arc::new(Scope::default()),
            StoredTask { task, seq: Seq(2), held: false, pushes: false, memo: None },
        );
        live.lock().running = Some(Running { stop, ..running() });
        live
    }

    #[test]
    fn a_cancel_that_comes_when_a_turn_is_over_is_not_forgotten() {
        // It was overwritten with the execution, and whoever had canceled waited for ever.
        for why in [Stop::Cancel, Stop::TooLarge, Stop::OutOfMemory] {
            let live = asking(Some(why));
            assert!(matches!(next_turn(&live), Next::Stop(stop) if stop == why));
            assert!(live.lock().running.is_some(), "until the end is recorded it runs");
        }
        for over in [None, Some(Stop::Shutdown), Some(Stop::Silence)] {
            let live = asking(over);
            assert!(matches!(next_turn(&live), Next::Done), "{over:?}");
            assert!(live.lock().running.is_none(), "{over:?}");
        }
    }
}
