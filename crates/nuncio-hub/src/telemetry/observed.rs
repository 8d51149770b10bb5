//! The answers of remote agents, counted by operation: what an agent does, beside what its card declares.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use nuncio_protocol::{
    A2aService, CallContext, CallHandler, ErrorKind, Fault, Result,
    op::{Call, Op, Reply},
};

/// The calls of one operation to a remote agent since the hub started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpTotals {
    /// Answered, by the operation's result or by an error that is about the request.
    pub(crate) answered: u64,
    /// Refused: the agent does not have the operation.
    pub(crate) refused: u64,
    /// Failed by a fault of the agent or of the network.
    pub(crate) failed: u64,
}

/// The evidence that an answer gives of its operation.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Answered,
    Refused,
    Failed,
}

impl Shown {
    /// From the error of a call, and the side that is at fault for it.
    pub(super) fn of(kind: ErrorKind, fault: Fault) -> Self {
        match kind {
            ErrorKind::UnsupportedOperation
            | ErrorKind::PushNotificationNotSupported
            | ErrorKind::MethodNotFound
            | ErrorKind::ExtendedAgentCardNotConfigured => Self::Refused,
            _ if fault == Fault::Caller => Self::Answered,
            _ => Self::Failed,
        }
    }
}

/// The counters of a remote agent.
#[derive(Default)]
pub(crate) struct UpstreamCells([[AtomicU64; 3]; Op::TABLE.len()]);

impl UpstreamCells {
    fn count(&self, op: Op, shown: Shown) {
        self.0[op as usize][shown as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The calls of an operation.
    pub(super) fn totals(&self, op: Op) -> OpTotals {
        let [answered, refused, failed] =
            [0, 1, 2].map(|shown: usize| self.0[op as usize][shown].load(Ordering::Relaxed));
        OpTotals { answered, refused, failed }
    }
}

/// A remote service whose answers are counted.
pub(super) struct ObservedService {
    pub(super) cells: Arc<UpstreamCells>,
    pub(super) service: Arc<dyn A2aService>,
}

impl CallHandler for ObservedService {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let op = call.op();
        let reply = self.service.call(cx, call).await;
        let shown = match &reply {
            Ok(_) => Shown::Answered,
            Err(error) => Shown::of(error.kind(), error.fault()),
        };
        self.cells.count(op, shown);
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_whether_the_agent_has_the_operation() {
        let cells = UpstreamCells::default();
        for (kind, fault) in [
            (ErrorKind::TaskNotFound, Fault::Caller),
            (ErrorKind::UnsupportedOperation, Fault::Caller),
            (ErrorKind::MethodNotFound, Fault::Upstream),
            (ErrorKind::Unavailable, Fault::Upstream),
            (ErrorKind::Internal, Fault::Us),
        ] {
            cells.count(Op::ListTasks, Shown::of(kind, fault));
        }
        assert_eq!(cells.totals(Op::ListTasks), OpTotals { answered: 1, refused: 2, failed: 2 });
        assert_eq!(cells.totals(Op::GetTask), OpTotals::default());
    }
}
