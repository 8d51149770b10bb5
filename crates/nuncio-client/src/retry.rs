//! Retry decisions and pauses: pure functions. Randomness and failures are parameters; the caller does the
//! waiting.

use std::{fmt, sync::Arc, time::Duration};

use nuncio_protocol::{Error, ErrorKind, op::Op, retry::Backoff};

use crate::failure::{Failure, Reached};

/// The retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of retries of a call, and of reconnects of a stream without progress.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each further one.
    pub base: Duration,
    /// Maximum pause. If the peer requests a longer one, the error is returned.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 4, base: Duration::from_millis(250), cap: Duration::from_secs(15) }
    }
}

impl RetryPolicy {
    /// No retries.
    pub const NEVER: Self = Self { retries: 0, base: Duration::ZERO, cap: Duration::ZERO };

    /// The pause before retry number `retry` (0 is the first). `chance` is from 0 to 1; it spreads the
    /// pauses over their upper half, so that clients that were disconnected together do not return
    /// together.
    pub(crate) fn pause(&self, retry: u32, chance: f64) -> Duration {
        Backoff::doubling(self.base, self.cap).jittered(retry, 0.5..=1.0, chance)
    }

    /// The pause before a unary call is repeated; `None` if it must not be repeated.
    pub(crate) fn unary(&self, op: Op, retry: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        let harmless = match failure.reached {
            Reached::Nobody => true,
            Reached::Perhaps => is_read(op) && failure.kind() == ErrorKind::Unavailable,
            Reached::Answered => {
                is_read(op) && failure.kind().is_retryable() && failure.error.retry_after().is_some()
            }
        };
        if harmless { self.wait(retry, failure, chance) } else { None }
    }

    /// The pause before a stream is reopened; `None` if a retry is useless or the limit is reached. The
    /// caller knows whether the stream may be reopened at all.
    pub(crate) fn stream(&self, retry: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        let hopeful = failure.reached != Reached::Answered || failure.kind().is_retryable();
        if hopeful { self.wait(retry, failure, chance) } else { None }
    }

    fn wait(&self, retry: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        if retry >= self.retries {
            return None;
        }
        match failure.error.retry_after() {
            Some(after) if after > self.cap => None,
            Some(after) => Some(after.max(self.pause(retry, chance))),
            None => Some(self.pause(retry, chance)),
        }
    }
}

/// A retry that is about to be made, see [`ClientBuilder::on_retry`](crate::ClientBuilder::on_retry).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retry<'a> {
    /// The failure of the last attempt.
    pub error: &'a Error,
    /// The number of this retry, counted from 1.
    pub number: u32,
    /// Maximum number of retries without progress.
    pub max: u32,
    /// The pause before it.
    pub pause: Duration,
}

/// A function that is called before each retry.
type Observer = dyn Fn(Retry<'_>) + Send + Sync;

/// The observer of retries; none by default.
#[derive(Clone, Default)]
pub(crate) struct OnRetry(Option<Arc<Observer>>);

impl OnRetry {
    pub(crate) fn new(observer: impl Fn(Retry<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observer)))
    }

    pub(crate) fn notify(&self, retry: Retry<'_>) {
        if let Some(observer) = &self.0 {
            observer(retry);
        }
    }
}

impl fmt::Debug for OnRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnRetry").field(&self.0.is_some()).finish()
    }
}

/// True for operations without side effects, which may be repeated freely.
fn is_read(op: Op) -> bool {
    match op {
        Op::GetTask
        | Op::ListTasks
        | Op::GetTaskPushNotificationConfig
        | Op::ListTaskPushNotificationConfigs
        | Op::GetExtendedAgentCard => true,
        Op::SendMessage
        | Op::SendStreamingMessage
        | Op::CancelTask
        | Op::SubscribeToTask
        | Op::CreateTaskPushNotificationConfig
        | Op::DeleteTaskPushNotificationConfig => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { retries: 4, base: Duration::from_millis(100), cap: Duration::from_secs(1) };

    #[test]
    fn pauses_double_up_to_the_cap_and_are_spread() {
        let millis = |retry, chance| POLICY.pause(retry, chance).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 40].map(|retry| millis(retry, 1.0)), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!((millis(0, 0.0), millis(0, 0.5)), (50, 75));
    }

    #[test]
    fn only_what_is_safe_is_repeated() {
        let plain = |kind: ErrorKind| Error::from(kind);
        let later = |kind: ErrorKind| Error::from(kind).with_retry_after(Duration::from_secs(1));
        let never = |kind: ErrorKind| Error::from(kind).with_retry_after(Duration::from_secs(3600));
        for (op, failure, repeated) in [
            (Op::SendMessage, Failure::nobody(plain(ErrorKind::Unavailable)), true),
            (Op::SendMessage, Failure::perhaps(plain(ErrorKind::Unavailable)), false),
            (Op::SendMessage, Failure::answered(later(ErrorKind::Unavailable)), false),
            (Op::CancelTask, Failure::perhaps(plain(ErrorKind::Unavailable)), false),
            (Op::CreateTaskPushNotificationConfig, Failure::answered(later(ErrorKind::Unavailable)), false),
            (Op::GetTask, Failure::perhaps(plain(ErrorKind::Unavailable)), true),
            (Op::GetTask, Failure::perhaps(plain(ErrorKind::DeadlineExceeded)), false),
            (Op::GetTask, Failure::answered(plain(ErrorKind::Unavailable)), false),
            (Op::GetTask, Failure::answered(later(ErrorKind::Unavailable)), true),
            (Op::ListTasks, Failure::answered(later(ErrorKind::ResourceExhausted)), true),
            (Op::ListTasks, Failure::answered(never(ErrorKind::ResourceExhausted)), false),
            (Op::GetExtendedAgentCard, Failure::answered(later(ErrorKind::Unauthenticated)), false),
            (Op::GetTask, Failure::answered(plain(ErrorKind::TaskNotFound)), false),
        ] {
            let pause = POLICY.unary(op, 0, &failure, 1.0);
            assert_eq!(pause.is_some(), repeated, "{op:?} {failure:?}");
            assert_eq!(POLICY.unary(op, 4, &failure, 1.0), None, "patience ends");
        }
    }

    #[test]
    fn the_peer_says_when() {
        let failure = Failure::answered(
            Error::from(ErrorKind::Unavailable).with_retry_after(Duration::from_millis(700)),
        );
        assert_eq!(POLICY.unary(Op::GetTask, 0, &failure, 1.0), Some(Duration::from_millis(700)));
        assert_eq!(POLICY.unary(Op::GetTask, 3, &failure, 1.0), Some(Duration::from_millis(800)));
    }
}
