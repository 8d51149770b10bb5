//! Executions: run the executor turn after turn, detached from any connection. They handle cancel, the
//! silence watchdog and panics, and record an end in every case.

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
    conversation::Conversation,
    emitter::Emitter,
    executor::{ExecContext, Execution, Executor},
    live::LiveTaskRef,
    record::Recorder,
    state::{Phase, Running, Stop},
    turn::{Begun, ExecutionInput, FollowUpTurn, OpeningTurn, Turn},
};
use crate::store::{Reservation, StoredTurn, TurnChange};

/// The end of an executor's run.
enum Ended {
    Returned(Result<()>),
    Panicked(Box<dyn Any + Send>),
    Stopped,
}

/// A new mark for a running execution. The caller puts it on the task, then spawns [`run`].
pub(super) fn running() -> Running {
    Running { token: CancellationToken::new(), stop: None }
}

/// Runs this turn, and the turns that queue behind it.
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
                // The task has ended now, or its store is down: there is no next turn.
                let _ = next_turn(&live);
                break;
            }
            Next::Done => break,
        };
    }
    // Streams that outlive the execution check whether they are over.
    live.announce();
}

/// The step after a turn.
enum Next {
    Turn(Turn),
    /// The task was stopped for good after the turn was already over.
    Stop(Stop),
    Done,
}

/// Takes the next turn from the queue. If the task has ended, the waiting turns are refused.
fn next_turn(live: &LiveTaskRef) -> Next {
    let mut state = live.lock();
    let stop = state.stopping();
    let refused = match &state.phase {
        Phase::Lost(_) => Some(super::unavailable as fn() -> Error),
        Phase::Task(tracked) if tracked.task.status.state.is_terminal() => Some(terminal as fn() -> Error),
        Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) => Some(terminal as fn() -> Error),
        Phase::Task(_) => match stop {
            // The caller of the cancel waits for the end of the task, so it must be recorded.
            Some(why) if why.is_for_good() => return Next::Stop(why),
            Some(Stop::Shutdown) => Some(super::unavailable as fn() -> Error),
            // A stop for silence concerned the turn that is over.
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
    job: ExecutionInput,
    /// The task as it was before the turn's message.
    task: Option<Task>,
    resumed: bool,
    /// The entry after which the turn's events come.
    seq: Seq,
    reservation: Option<Reservation>,
}

async fn run_turn(core: &Arc<Core>, live: &LiveTaskRef, turn: Turn) {
    // From now on somebody works on it.
    live.lock().parked = false;
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
    let ExecutionInput { message, configuration, metadata, references, call, repeat_id, in_flight } = job;
    let execution = Execution {
        task_id: live.id.clone(),
        context_id: live.context_id.clone(),
        message,
        task,
        references,
        configuration,
        metadata,
        call,
        repeat_id,
        resumed,
        memo: live.lock().memo.clone(),
        card: Arc::clone(card),
        cancellation: token.clone(),
    };
    let cx = ExecContext::new(execution, Conversation::new(&core.store, &live.scope));
    let ended = execute(core, &**executor, live, cx, Emitter::new(recorder.clone()), token).await;
    report(live, recorder.record_left().await);
    if matches!(ended, Ended::Returned(Ok(()))) && live.lock().attached.park {
        report(live, Box::pin(recorder.repeat_status()).await.map(drop));
    }
    if is_shut_down(live) && core.keeps_turns() && core.agent.is_idempotent() && !live.lock().will_rest(seq) {
        return leave(live).await;
    }
    if !has_said_it_all(live, &ended, seq) {
        // Boxed, so that its state takes no memory while the agent works.
        report(live, Box::pin(finish(core, live, &recorder, ended, seq)).await);
    }
    // Only then a repeat of the message finds the outcome in the store.
    live.until_committed().await;
    if let Some(reservation) = reservation {
        Box::pin(core.close_reservation(live, reservation)).await;
    }
    drop(in_flight);
}

/// Begins the turn that makes a task. An acknowledged turn is marked as begun in the store before the agent
/// sees it.
async fn begin_opening(core: &Arc<Core>, live: &LiveTaskRef, turn: OpeningTurn) -> Option<Started> {
    let OpeningTurn { job, acknowledged, reservation } = turn;
    if live.lock().state().is_terminal() {
        // Canceled before it could run: the agent is not asked for unwanted work.
        return None;
    }
    if let Some(in_hand) = acknowledged {
        if is_shut_down(live) {
            leave(live).await;
            return None;
        }
        live.until_committed().await;
        if let Err(error) = core.change_turn(live, TurnChange::Begin(Arc::clone(&in_hand.id))).await {
            report(live, Err(error));
            return None;
        }
    }
    // A held message may be a later one, and its task has had other statuses.
    let (task, seq) = {
        let state = live.lock();
        let begins =
            |task: &Task| task.history.first().is_none_or(|first| first.message_id == job.message.message_id);
        (state.task().filter(|task| !begins(task)).cloned(), state.folded().seq)
    };
    Some(Started { job, task, resumed: false, seq, reservation })
}

/// Resumes a turn that a stopped server had begun.
fn resume(live: &LiveTaskRef, job: ExecutionInput) -> Option<Started> {
    let state = live.lock();
    // Canceled before it could run again: the agent is not asked for unwanted work.
    let runs = !state.state().is_terminal();
    let (task, seq) = (state.last_task().cloned(), state.folded().seq);
    runs.then_some(Started { job, task, resumed: true, seq, reservation: None })
}

/// Begins the turn of a message to a task: records the message and reports the beginning to the waiting
/// caller.
async fn begin_follow_up(core: &Arc<Core>, live: &LiveTaskRef, turn: FollowUpTurn) -> Option<Started> {
    let acknowledged = turn.is_acknowledged();
    // In hand until its beginning is committed, or it is dropped.
    let FollowUpTurn { job, key, webhook, stored, in_hand: _in_hand, begun } = turn;
    let task = live.lock().last_task().cloned();
    if acknowledged && is_shut_down(live) {
        leave(live).await;
        return None;
    }
    let stored = stored.map(|stored| StoredTurn { begun: true, ..stored });
    let waiting = stored.as_ref().filter(|_| acknowledged).map(|stored| Arc::clone(&stored.id));
    let config = webhook.as_ref().map(|webhook| webhook.id.clone());
    let ahead = acknowledged || core.writes_ahead(key.is_some()) || core.store.is_shared();
    let recorder = Recorder::new(core, live);
    if let Some(key) = key.as_ref().filter(|_| acknowledged)
        && Box::pin(core.is_answered(live, key)).await
    {
        // The same message was handed in at another server, and has a turn of its own.
        let dropped = match waiting {
            Some(id) => core.change_turn(live, TurnChange::Drop(id)).await,
            None => Ok(()),
        };
        report(live, dropped);
        let _ = begun.send(Err(super::unavailable()));
        return None;
    }
    let seq = match recorder.caller_message(&job.message, key, stored, webhook).await {
        Ok(seq) => seq,
        Err(error) => {
            let _ = begun.send(Err(error));
            if let Some(id) = waiting.filter(|_| !live.lock().is_lost()) {
                // The message will never be recorded, because the task has ended.
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
        // The turn is acknowledged, must not run twice, or another server may get a message at the same time:
        // the agent sees it only when its beginning is committed.
        live.until_committed().await;
        if let Err(lost) = live.lock().check_kept() {
            // Another server has the task, and its agent sees the message.
            drop(begun.send(Err(lost)));
            return None;
        }
    }
    if live.lock().memo_is_old {
        live.until_committed().await;
        core.refresh_memo(live).await;
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

/// Leaves a stored turn to the next server, as a crash would. It runs there, for the first time or again.
async fn leave(live: &LiveTaskRef) {
    live.until_committed().await;
    live.evict();
}

/// Logs that an end could not be recorded, unless the reason is that the task has ended already.
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
    // The call itself is inside `caught`: a hand-written executor may panic before it returns a future.
    let own = cx.clone();
    let mut work = pin!(caught(async move { executor.execute(own, out).await }));
    tokio::select! {
        // The work comes first: a result counts even if the stop came at the same time.
        biased;
        returned = &mut work => return into_ended(returned),
        () = token.cancelled() => {}
        () = silence(core, live) => drop(stop(live, Stop::Silence)),
    }
    // Boxed: it is rare, and would make every execution's future larger.
    Box::pin(wind_up(core, executor, live, cx, work)).await;
    Ended::Stopped
}

/// Gives the executor its grace period. The result of the work is ignored, unless it has recorded an end
/// itself.
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

/// Runs the agent's own code; a panic becomes a value.
fn caught<F: Future>(work: F) -> impl Future<Output = Result<F::Output, Box<dyn Any + Send>>> {
    AssertUnwindSafe(work).catch_unwind()
}

fn into_ended(returned: Result<Result<()>, Box<dyn Any + Send>>) -> Ended {
    match returned {
        Ok(result) => Ended::Returned(result),
        Err(panic) => Ended::Panicked(panic),
    }
}

/// Asks the running execution to stop; the first reason is kept. False if none runs.
pub(super) fn stop(live: &LiveTaskRef, why: Stop) -> bool {
    live.lock().stop(why)
}

/// Returns when nothing was recorded for the time of the silence watchdog; never if there is none.
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

/// True if the executor has recorded the outcome of the turn itself.
fn has_said_it_all(live: &LiveTaskRef, ended: &Ended, turn_seq: Seq) -> bool {
    let state = live.lock();
    matches!(ended, Ended::Returned(Ok(()))) && state.stopping().is_none() && state.will_rest(turn_seq)
}

/// Records the end of a turn that was stopped, or whose executor has not recorded its outcome.
async fn finish(
    core: &Core,
    live: &LiveTaskRef,
    recorder: &Recorder,
    ended: Ended,
    turn_seq: Seq,
) -> Result<()> {
    let stop = live.lock().stopping();
    if stop == Some(Stop::Shutdown) && live.lock().will_rest(turn_seq) {
        // The executor has settled or parked the task already; a question stays open.
        return Ok(());
    }
    if let Some(why) = stop {
        if matches!(why, Stop::TooLarge | Stop::OutOfMemory) {
            // The first event may have been the one that was too large, so there may be no task yet.
            recorder.ensure().await?;
        }
        if why.is_for_good() && !matches!(ended, Ended::Stopped) {
            // The stop came after the executor had returned, so its `cancel` was not called yet.
            cancel_after_turn(core, live).await;
        }
        // The stop decides the end, also if the executor returned in time or failed at an emit.
        return end_stopped(core, recorder, why).await;
    }
    match ended {
        Ended::Returned(Ok(())) => {
            recorder.end(TaskState::Completed, None).await?;
        }
        Ended::Returned(Err(error)) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::info!(task = %live.id, %error, cause, "an execution failed");
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
        Stop::Silence => "the agent was silent for too long".to_owned(),
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

/// Calls the executor's `cancel` for a task that does not run; its result is ignored.
pub(super) async fn cancel_idle(executor: &dyn Executor, cx: ExecContext, grace: Duration) {
    let _ = timeout(grace, caught(async move { executor.cancel(cx).await })).await;
}

/// Calls the executor's `cancel` for a stop that came after the last turn was over.
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
    let conversation = Conversation::new(&core.store, &live.scope);
    let cx = idle_context(card, &call, conversation, task, memo, Metadata::new());
    cancel_idle(&**executor, cx, core.limits.cancel_grace).await;
}

/// The context for an executor whose task is canceled while nothing runs.
pub(super) fn idle_context(
    card: &Arc<AgentCard>,
    cx: &CallContext,
    conversation: Conversation,
    task: Task,
    memo: Option<Bytes>,
    metadata: Metadata,
) -> ExecContext {
    let execution = Execution {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        message: task.history.last().cloned().unwrap_or_default(),
        task: Some(task),
        references: Vec::new(),
        configuration: SendMessageConfiguration::default(),
        metadata,
        call: cx.clone(),
        repeat_id: None,
        resumed: false,
        memo,
        card: Arc::clone(card),
        cancellation: CancellationToken::new(),
    };
    ExecContext::new(execution, conversation)
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
            StoredTask { task, seq: Seq(2), held: false, in_hand: true, pushes: false, memo: None },
        );
        live.lock().running = Some(Running { stop, ..running() });
        live
    }

    #[test]
    fn a_cancel_that_comes_when_a_turn_is_over_is_not_forgotten() {
        // Regression: the stop was overwritten together with the execution, and the cancel call waited for
        // ever.
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
