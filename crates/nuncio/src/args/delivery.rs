//! The arguments of `nuncio delivery`.

use std::{str::FromStr, time::Duration};

use clap::{Subcommand, ValueEnum};
use nuncio_hub::admin::api::DeliveryState;
use nuncio_protocol::Timestamp;

use super::Admin;

/// The help on retries by hand.
const AGAIN_HELP: &str = "\
A retried delivery has the full time of a new one before it is given up. Its id stays the same, so that receivers
recognise duplicates.";

/// The help on pauses.
const PAUSE_HELP: &str = "\
The pause is stored: it outlives a restart of the hub. The age of deliveries goes on counting: what is older than
push.give_up_seconds when the host is resumed gets one more attempt.";

#[derive(Debug, Subcommand)]
pub(crate) enum DeliveryCommand {
    /// List deliveries to webhooks, the newest webhook first.
    List {
        #[command(flatten)]
        hub: Admin,
        /// Only deliveries of this agent.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Only deliveries of this task.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// Only deliveries to this host, as `delivery hosts` shows it.
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// Only deliveries in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        /// Only deliveries of events since this time: an age (90s, 30m, 2h, 7d) or a timestamp (2026-11-15T12:00:00Z).
        #[arg(long, value_name = "WHEN")]
        since: Option<Since>,
        /// Maximum number of deliveries to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show a delivery with its attempts.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The id of the delivery.
        id: String,
    },
    /// Deliver once more, in any state of the delivery.
    #[command(after_help = AGAIN_HELP)]
    Replay {
        #[command(flatten)]
        hub: Admin,
        /// The id of the delivery.
        id: String,
    },
    /// Retry all dead deliveries.
    #[command(after_help = AGAIN_HELP)]
    Redrive {
        #[command(flatten)]
        hub: Admin,
        /// Only deliveries of events since this time: an age (90s, 30m, 2h, 7d) or a timestamp (2026-11-15T12:00:00Z).
        #[arg(long, value_name = "WHEN")]
        since: Since,
        /// Only deliveries of this agent.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// List the hosts with pending or dead deliveries, and the causes.
    Hosts {
        #[command(flatten)]
        hub: Admin,
    },
    /// Attempt no delivery to a host until it is resumed; its deliveries wait.
    #[command(after_help = PAUSE_HELP)]
    Pause {
        #[command(flatten)]
        hub: Admin,
        /// The host, with its port if that is not 443.
        host: String,
    },
    /// Deliver to a paused host again, at once.
    Resume {
        #[command(flatten)]
        hub: Admin,
        /// The host, with its port if that is not 443.
        host: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum State {
    /// To be attempted, perhaps again.
    Pending,
    /// Accepted by the receiver.
    Delivered,
    /// Given up.
    Dead,
}

impl From<State> for DeliveryState {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Delivered => Self::Delivered,
            State::Dead => Self::Dead,
        }
    }
}

/// A time in the past, as it is typed: an age or a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ago(text).map(Self::Ago).or_else(|| Timestamp::parse(text).ok().map(Self::At)).ok_or_else(|| {
            "expected an age, such as 90s, 30m, 2h or 7d, or a timestamp, such as 2026-11-15T12:00:00Z"
                .to_owned()
        })
    }
}

/// Reads a duration, such as 90s, 30m, 2h or 7d.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    ago(text).ok_or_else(|| "expected a duration, such as 90s, 30m, 2h or 7d".to_owned())
}

fn ago(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return None,
    };
    let number = &text[..text.len() - unit.len_utf8()];
    // `parse` accepts a sign.
    let number: u64 = number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

impl Since {
    /// The time that it means now.
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Ago(ago) => {
                let millis = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Timestamp::from_millis(now.as_millis().saturating_sub(millis)).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_say_them() {
        let now = Timestamp::parse("2026-11-15T12:00:00Z").unwrap();
        for (text, expected) in [
            ("90s", Some("2026-11-15T11:58:30.000Z")),
            ("30m", Some("2026-11-15T11:30:00.000Z")),
            ("2h", Some("2026-11-15T10:00:00.000Z")),
            ("7d", Some("2026-11-08T12:00:00.000Z")),
            ("0s", Some("2026-11-15T12:00:00.000Z")),
            ("2026-11-14T08:30:00+02:00", Some("2026-11-14T06:30:00.000Z")),
            ("2026-11-14T08:30:00", Some("2026-11-14T08:30:00.000Z")),
            ("2", None),
            ("h", None),
            ("-2h", None),
            ("+2h", None),
            ("1.5h", None),
            ("2w", None),
            ("2 h", None),
            ("yesterday", None),
            ("99999999999999999999h", None),
            ("9999999999999999999d", None),
            ("2é", None),
            ("", None),
        ] {
            let moment = text.parse::<Since>().ok().map(|since| since.before(now).to_string());
            assert_eq!(moment.as_deref(), expected, "{text}");
        }
        let long_ago = "99999999999999d".parse::<Since>().unwrap();
        assert_eq!(long_ago.before(now), Timestamp::MIN, "before there was a date");
    }
}
