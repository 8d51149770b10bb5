//! One lease: its turn runs, and each entry of the turn becomes lines.

use std::time::Duration;

use nuncio_client::worker::{Claim, Lease, Line, WorkerError};
use nuncio_protocol::{CallContext, Caller, Result, SendMessageConfiguration, TaskState, Version};
use nuncio_server::{HandedTurn, TurnRun};
use tokio::time::timeout;

use super::{
    lines,
    local::LocalAgent,
    report::{LeaseEnd, Report},
};

/// The time that the agent gets after a question, with which the lease ends, before it is stopped.
const QUESTION_GRACE: Duration = Duration::from_secs(5);

/// Works on a lease until it is over.
pub(super) async fn work(lease: Lease, agent: &LocalAgent, report: &(dyn Fn(Report) + Send + Sync)) {
    let (task, resumed) = (lease.claim().task_id.clone(), lease.claim().resumed);
    report(Report::Begins(task.clone(), resumed));
    let end = match run(lease, agent).await {
        Ok(state) => LeaseEnd::State(state),
        Err(error) => LeaseEnd::Lost(error.to_string()),
    };
    report(Report::Ends(task, end));
}

async fn run(lease: Lease, agent: &LocalAgent) -> Result<TaskState, WorkerError> {
    lease.write_all(lines::begin(agent.may_repeat(), lease.claim().memo.is_some()));
    lease.flush().await?;
    let mut turn = match agent.runtime().run_turn(handed(lease.claim())).await {
        Ok(turn) => turn,
        Err(error) => {
            lease.finish(Line::failed(error.message())).await?;
            return Ok(TaskState::Failed);
        }
    };
    let state = follow(&lease, &mut turn).await;
    match state {
        Some(TaskState::Canceled) => lease.release().await.map(drop)?,
        Some(_) => lease.flush().await?,
        None => return Err(lost(&lease).await),
    }
    let state = state.unwrap_or(TaskState::Failed);
    if state.is_interrupted() {
        // The agent has asked; what it says until it is done belongs to no lease.
        let _ = timeout(QUESTION_GRACE, async { while turn.next().await.is_some() {} }).await;
    }
    Ok(state)
}

/// Writes the entries of the turn until one ends the lease; `None` if the lease is lost before. A turn that is dropped
/// stops, and the task of a remote agent goes on: the next worker finds it by the memo.
async fn follow(lease: &Lease, turn: &mut TurnRun) -> Option<TaskState> {
    let mut canceled = false;
    // Of an earlier turn. The first entry shows that the agent has this message, too: from then on the next worker may
    // follow its task.
    let mut memo = lease.claim().memo.clone().filter(|_| !lease.claim().resumed);
    loop {
        let entry = tokio::select! {
            biased;
            () = lease.lost().cancelled() => return None,
            () = lease.canceled().cancelled(), if !canceled => {
                canceled = true;
                turn.cancel();
                continue;
            }
            entry = turn.next() => entry,
        };
        let Some(entry) = entry else {
            // The runtime records an end of each turn; without one, this is a failure.
            lease.write(Line::failed("the agent stopped without an end"));
            return Some(TaskState::Failed);
        };
        if let Some(memo) = memo.take().filter(|_| entry.memo.is_none()) {
            // A memo that was read as JSON can be written as such.
            lease.write_all(Line::memo(&memo).ok());
        }
        let told = lines::of(&entry);
        lease.write_all(told.lines);
        if let Some(end) = told.end {
            return Some(end);
        }
    }
}

async fn lost(lease: &Lease) -> WorkerError {
    let lost = lease.flush().await.err();
    lost.unwrap_or_else(|| WorkerError::Lost("its task has ended".to_owned()))
}

/// The turn of a claim.
fn handed(claim: &Claim) -> HandedTurn {
    let caller = match &claim.principal {
        Some(principal) => Caller::authenticated(&**principal),
        None => Caller::anonymous(),
    };
    let caller = match &claim.tenant {
        Some(tenant) => caller.of_tenant(&**tenant),
        None => caller,
    };
    HandedTurn {
        task_id: claim.task_id.clone(),
        context_id: claim.context_id.clone(),
        message: claim.message.clone(),
        task: claim.task.clone(),
        earlier: claim.earlier.clone(),
        references: claim.references.clone(),
        configuration: SendMessageConfiguration {
            accepted_output_modes: claim.accepted_output_modes.clone(),
            ..SendMessageConfiguration::default()
        },
        metadata: claim.metadata.clone(),
        call: CallContext {
            caller,
            trace: claim.trace(),
            hops: claim.hops.clone(),
            ..CallContext::new(Version::V1_0)
        },
        repeat_id: claim.repeat_id.as_deref().map(Into::into),
        resumed: claim.resumed,
        memo: claim.memo.as_ref().map(|memo| memo.as_str().to_owned().into()),
    }
}
