//! A moment on the wire. Read liberally (any RFC 3339 offset, or none, which v0.3 peers send and mean
//! as UTC); written exactly: UTC, milliseconds, `Z` (spec 5.6.1, trap T-28).

use std::fmt;

use jiff::{civil::DateTime, fmt::temporal::DateTimePrinter, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment in UTC. This crate has no clock: whoever makes one reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Timestamp(jiff::Timestamp);

static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

impl Timestamp {
    /// The earliest there is.
    pub const MIN: Self = Self(jiff::Timestamp::MIN);
    /// The latest there is.
    pub const MAX: Self = Self(jiff::Timestamp::MAX);
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    /// From milliseconds since the Unix epoch; `None` outside of what a date can say.
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        jiff::Timestamp::from_millisecond(millis).ok().map(Self)
    }

    /// Milliseconds since the Unix epoch, rounded down.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0.as_nanosecond().div_euclid(1_000_000) as i64
    }

    /// From whole seconds and nanoseconds since the Unix epoch, as protobuf has it.
    #[must_use]
    pub fn from_parts(seconds: i64, nanos: i32) -> Option<Self> {
        jiff::Timestamp::new(seconds, nanos).ok().map(Self)
    }

    /// Whole seconds (rounded down) and the nanoseconds after them.
    #[must_use]
    pub fn as_parts(self) -> (i64, i32) {
        let nanos = self.0.as_nanosecond();
        (nanos.div_euclid(1_000_000_000) as i64, nanos.rem_euclid(1_000_000_000) as i32)
    }

    /// Reads RFC 3339 with any offset; a time without one is taken as UTC.
    ///
    /// # Errors
    /// Says what was expected when the text is no such time.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(timestamp));
        }
        let naive: DateTime = text.parse().map_err(|_| InvalidTimestamp)?;
        let zoned = naive.to_zoned(TimeZone::UTC).map_err(|_| InvalidTimestamp)?;
        Ok(Self(zoned.timestamp()))
    }
}

/// The text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTimestamp;

impl fmt::Display for InvalidTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an ISO 8601 time such as 2026-11-15T12:00:00.000Z")
    }
}

impl std::error::Error for InvalidTimestamp {}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PRINTER.print_timestamp(&self.0, jiff::fmt::StdFmtWrite(f)).map_err(|_| fmt::Error)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an ISO 8601 time")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_liberally_and_writes_milliseconds_with_z() {
        // REQ-014, REQ-015, REQ-016, trap T-28
        for (input, output) in [
            ("2026-11-15T12:00:00.123Z", "2026-11-15T12:00:00.123Z"),
            ("2026-11-15T12:00:00Z", "2026-11-15T12:00:00.000Z"),
            ("2026-11-15T12:00:00.123456789Z", "2026-11-15T12:00:00.123Z"),
            ("2026-11-15T14:00:00+02:00", "2026-11-15T12:00:00.000Z"),
            ("2026-11-15T12:00:00", "2026-11-15T12:00:00.000Z"),
            ("2026-11-15T12:00:00.5", "2026-11-15T12:00:00.500Z"),
        ] {
            assert_eq!(Timestamp::parse(input).unwrap().to_string(), output, "{input}");
        }
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn millis_round_down_before_the_epoch_too() {
        let before = Timestamp::parse("1969-12-31T23:59:59.999Z").unwrap();
        assert_eq!(before.as_millis(), -1);
        assert_eq!(before.as_parts(), (-1, 999_000_000));
    }
}
