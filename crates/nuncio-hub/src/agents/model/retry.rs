//! When a request is sent again, and when another model is asked. Pure.

use std::time::Duration;

use super::provider::Fault;

/// Attempts per model.
const MAX_ATTEMPTS: u32 = 3;

/// The pause after the first attempt, if the provider names none; it doubles.
const BASE_PAUSE: Duration = Duration::from_millis(250);

/// The step after an attempt that failed before its first token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The same model, after this pause.
    Retry(Duration),
    /// The next model, or none.
    Fallback,
    /// Nothing would help.
    GiveUp,
}

/// The step after this fault of attempt number `attempt`, `elapsed` after the first one.
pub(super) fn next(fault: &Fault, attempt: u32, elapsed: Duration, window: Duration) -> Next {
    let pause = match fault {
        Fault::Busy { retry_after: Some(pause), .. } => *pause,
        Fault::Busy { retry_after: None, .. } | Fault::Unreachable(_) | Fault::Broken(_) => {
            BASE_PAUSE.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)))
        }
        Fault::Refused(_) | Fault::Unauthorized(_) | Fault::Silent(_) | Fault::Undecodable(_) => {
            return Next::GiveUp;
        }
    };
    let fits = elapsed.saturating_add(pause) <= window;
    if attempt < MAX_ATTEMPTS && fits { Next::Retry(pause) } else { Next::Fallback }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_attempts_within_the_window_then_the_next_model() {
        let (second, window) = (Duration::from_secs(1), Duration::from_secs(60));
        let busy = |seconds: Option<u64>| Fault::Busy {
            why: String::new(),
            retry_after: seconds.map(Duration::from_secs),
        };
        let broken = Fault::Broken(String::new());
        for (fault, attempt, elapsed, expected) in [
            (busy(None), 1, 0, Next::Retry(BASE_PAUSE)),
            (busy(None), 2, 1, Next::Retry(2 * BASE_PAUSE)),
            (busy(None), 3, 1, Next::Fallback),
            (busy(Some(7)), 1, 0, Next::Retry(7 * second)),
            (busy(Some(7)), 2, 54, Next::Fallback),
            (busy(Some(3600)), 1, 0, Next::Fallback),
            (broken.clone(), 1, 0, Next::Retry(BASE_PAUSE)),
            (broken, 3, 0, Next::Fallback),
            (Fault::Unreachable(String::new()), 1, 0, Next::Retry(BASE_PAUSE)),
            (Fault::Refused(String::new()), 1, 0, Next::GiveUp),
            (Fault::Unauthorized(String::new()), 1, 0, Next::GiveUp),
            (Fault::Silent(second), 1, 0, Next::GiveUp),
        ] {
            assert_eq!(
                next(&fault, attempt, Duration::from_secs(elapsed), window),
                expected,
                "{fault:?} {attempt}"
            );
        }
    }
}
