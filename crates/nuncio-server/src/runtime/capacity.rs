//! Permits: the limits on concurrent executions and streams.

use std::sync::Arc;

use nuncio_protocol::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Limits, RETRY_AFTER};
use crate::{CallerKey, CallerPermit, CallerPool, CallerShare, CountedTask, TaskQuota, store::Scope};

/// The permits of a runtime.
pub(super) struct Capacity {
    executions: CallerPool,
    /// The unfinished tasks of each caller, over all agents that share this quota.
    quota: TaskQuota,
    streams: Arc<Semaphore>,
}

/// The permit of an execution, held until the execution is over.
pub(super) struct TaskPermit {
    _counted: CountedTask,
    /// `None` for an execution that only ends its task.
    _permit: Option<CallerPermit>,
}

impl Capacity {
    pub(super) fn new(limits: &Limits, share: CallerShare, quota: TaskQuota) -> Self {
        let streams = Arc::new(Semaphore::new(limits.streams));
        Self { executions: CallerPool::new(limits.tasks, share), quota, streams }
    }

    /// Takes a permit for an execution of this scope's caller.
    pub(super) fn task_permit(&self, scope: &Scope) -> Result<TaskPermit> {
        let caller = CallerKey::from(scope);
        let counted =
            self.quota.begin(&caller).ok_or_else(|| exhausted("you have too many unfinished tasks"))?;
        let permit =
            self.executions.try_acquire(&caller).ok_or_else(|| exhausted("too many tasks are running"))?;
        Ok(TaskPermit { _counted: counted, _permit: Some(permit) })
    }

    /// Counts an execution that another server had begun toward its caller's quota. It counts even while it
    /// waits for a permit, so that the caller cannot start other tasks instead.
    pub(super) fn resume(&self, scope: &Scope) -> CountedTask {
        self.quota.resume(&CallerKey::from(scope))
    }

    /// Waits for the permit of such an execution. Once it is `stopped` it needs no permit: it only ends its
    /// task.
    pub(super) async fn resumed_permit(
        &self,
        scope: &Scope,
        counted: CountedTask,
        stopped: impl Future<Output = ()>,
    ) -> TaskPermit {
        let caller = CallerKey::from(scope);
        let permit = tokio::select! {
            permit = self.executions.acquire(&caller) => Some(permit),
            () = stopped => None,
        };
        TaskPermit { _counted: counted, _permit: permit }
    }

    /// Takes a permit for a stream.
    pub(super) fn stream_permit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| exhausted("too many streams are open"))
    }
}

fn exhausted(why: &str) -> Error {
    Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(RETRY_AFTER)
}
