//! The retry schedule of deliveries. Pure: times and randomness are parameters.

use std::time::Duration;

use http::StatusCode;
use nuncio_protocol::{Timestamp, retry::Backoff};

use super::courier::{Failure, ReceiverResponse};

/// The pauses between attempts, and the age at which a delivery is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The pause after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The longest pause, unless the receiver asks for a longer one.
    pub max_pause: Duration,
    /// The age from which a delivery that fails is given up.
    pub give_up: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max_pause: Duration::from_secs(15 * 60),
            give_up: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The consequence of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The receiver has accepted it.
    Delivered,
    /// To be sent again, not before this time.
    Retry(Timestamp),
    /// Given up.
    Dead,
    /// The receiver is gone for good (410): nothing more is sent to it.
    Stop,
}

/// The meaning of a response status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Taken,
    NotNow,
    Never,
    Gone,
}

fn class(status: StatusCode) -> Class {
    match status.as_u16() {
        200..300 => Class::Taken,
        410 => Class::Gone,
        // Temporary: credentials are renewed, routes deployed, locks released, limits reset.
        401 | 403 | 404 | 407 | 408 | 409 | 421 | 423 | 425 | 429 => Class::NotNow,
        // The request is wrong for this receiver, and would be the same next time.
        400..500 => Class::Never,
        // 5xx; and redirects, which are not followed, but may be withdrawn.
        _ => Class::NotNow,
    }
}

/// True if the receiver itself is failing, as opposed to refusing this request or its credentials. Otherwise
/// a caller that registers the URL of another's receiver, without the right credentials, would open the
/// breaker for everyone.
pub(super) fn is_trouble(attempt: &Result<ReceiverResponse, Failure>) -> bool {
    match attempt {
        Ok(answer) => {
            let is_about_us = matches!(answer.status.as_u16(), 401 | 403 | 404 | 407 | 409 | 423);
            class(answer.status) == Class::NotNow && !is_about_us
        }
        Err(Failure::Blocked(_)) => false,
        Err(Failure::Failed(..)) => true,
    }
}

impl Retry {
    /// Decides on an attempt after `before` earlier ones, of a delivery that is pending since `since`.
    /// `chance` is a random number from 0 to 1.
    pub(super) fn judge(
        &self,
        attempt: &Result<ReceiverResponse, Failure>,
        before: u32,
        since: Timestamp,
        now: Timestamp,
        chance: f64,
    ) -> Verdict {
        let asked = match attempt {
            Ok(answer) => match class(answer.status) {
                Class::Taken => return Verdict::Delivered,
                Class::Gone => return Verdict::Stop,
                Class::Never => return Verdict::Dead,
                Class::NotNow => answer.retry_after.unwrap_or_default(),
            },
            Err(Failure::Blocked(_)) => return Verdict::Dead,
            Err(Failure::Failed(..)) => Duration::ZERO,
        };
        let end = since + self.give_up;
        if now >= end {
            return Verdict::Dead;
        }
        // At least one more attempt before it is given up, even if the receiver asks for a longer pause.
        Verdict::Retry((now + self.pause(before, chance).max(asked)).min(end))
    }

    /// The pause after `before + 1` failures, with 20 % of jitter: receivers that failed together are not
    /// retried together.
    fn pause(&self, before: u32, chance: f64) -> Duration {
        Backoff::doubling(self.first, self.max_pause).jittered(before, 0.8..=1.2, chance)
    }
}

/// The duration from `now` to `moment`; zero if it is past.
pub(super) fn until(moment: Timestamp, now: Timestamp) -> Duration {
    let left = moment.as_millis().saturating_sub(now.as_millis());
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FailureCause;

    const RETRY: Retry = Retry {
        first: Duration::from_secs(1),
        max_pause: Duration::from_secs(60),
        give_up: Duration::from_secs(600),
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000).unwrap()
    }

    fn answer(status: u16, retry_after: Option<u64>) -> Result<ReceiverResponse, Failure> {
        let status = StatusCode::from_u16(status).unwrap();
        Ok(ReceiverResponse {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            excerpt: String::new(),
        })
    }

    #[test]
    fn every_class_of_answers_has_its_verdict() {
        let retry = Verdict::Retry(at(101));
        for (statuses, expected) in [
            (&[200, 201, 202, 204, 299][..], Verdict::Delivered),
            (&[410], Verdict::Stop),
            (&[400, 402, 405, 406, 411, 412, 413, 414, 415, 422, 431, 451, 499], Verdict::Dead),
            (&[401, 403, 404, 407, 408, 409, 421, 423, 425, 429], retry.clone()),
            (&[500, 501, 502, 503, 504, 599, 301, 302, 307, 308, 304], retry.clone()),
        ] {
            for status in statuses {
                let verdict = RETRY.judge(&answer(*status, None), 0, at(99), at(100), 0.5);
                assert_eq!(verdict, expected, "{status}");
            }
        }
        let failed = Err(Failure::Failed(FailureCause::Connect, "refused".into()));
        assert_eq!(RETRY.judge(&failed, 0, at(99), at(100), 0.5), retry);
        let blocked = Err(Failure::Blocked("private".into()));
        assert_eq!(RETRY.judge(&blocked, 0, at(99), at(100), 0.5), Verdict::Dead);
    }

    #[test]
    fn a_receiver_is_in_trouble_if_it_fails_for_everybody() {
        for (statuses, expected) in [
            // A caller that registers another's receiver without its token gets these; they must not open the
            // breaker.
            (&[401, 403, 404, 407, 409, 423][..], false),
            (&[200, 204, 400, 410, 413, 422], false),
            (&[408, 421, 425, 429, 500, 502, 503, 504, 301, 302], true),
        ] {
            for status in statuses {
                assert_eq!(is_trouble(&answer(*status, None)), expected, "{status}");
            }
        }
        assert!(is_trouble(&Err(Failure::Failed(FailureCause::Connect, "refused".into()))));
        assert!(!is_trouble(&Err(Failure::Blocked("private".into()))));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        // REQ-166
        let pauses: Vec<u64> = (0..9).map(|before| RETRY.pause(before, 0.5).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(RETRY.pause(u32::MAX, 0.5).as_secs(), 60);
        assert_eq!(RETRY.pause(0, 0.0).as_millis(), 800);
        assert_eq!(RETRY.pause(0, 1.0).as_millis(), 1_200);
    }

    #[test]
    fn the_receiver_may_ask_for_more_time_but_not_for_less() {
        for (asked, at_second) in [(Some(30), 130), (Some(0), 108), (None, 108), (Some(99_999), 700)] {
            let verdict = RETRY.judge(&answer(429, asked), 3, at(100), at(100), 0.5);
            assert_eq!(verdict, Verdict::Retry(at(at_second)), "{asked:?}");
        }
    }

    #[test]
    fn what_is_too_old_is_given_up_after_one_more_attempt() {
        // REQ-161: a delivery that waited behind others for so long is also tried once.
        for (now, expected) in [(699, Verdict::Retry(at(700))), (700, Verdict::Dead), (9_999, Verdict::Dead)]
        {
            let verdict = RETRY.judge(&answer(500, None), 9, at(100), at(now), 0.5);
            assert_eq!(verdict, expected, "{now}");
        }
    }
}
