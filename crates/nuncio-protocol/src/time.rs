//! Timestamps on the wire. Decoding is lenient (any RFC 3339 offset, or none, which v0.3 peers send and
//! mean as UTC); encoding is exact: UTC, milliseconds, `Z` (spec 5.6.1, trap T-28).

use std::{fmt, ops::Add, time::Duration};

use jiff::{
    civil::DateTime,
    fmt::temporal::DateTimePrinter,
    tz::{Offset, TimeZone},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time in UTC. This crate does not read the clock: the caller passes the time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Timestamp(jiff::Timestamp);

static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

impl Timestamp {
    /// The earliest time.
    pub const MIN: Self = Self(jiff::Timestamp::MIN);
    /// The latest time.
    pub const MAX: Self = Self(jiff::Timestamp::MAX);
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    /// From milliseconds since the Unix epoch; `None` outside of the range of dates.
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        jiff::Timestamp::from_millisecond(millis).ok().map(Self)
    }

    /// Milliseconds since the Unix epoch, rounded down.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0.as_nanosecond().div_euclid(1_000_000) as i64
    }

    /// From whole seconds and nanoseconds since the Unix epoch, as in protobuf.
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

    /// Parses RFC 3339 with any offset; a time without one is taken as UTC.
    ///
    /// # Errors
    /// The text is not such a time; the error has the expected format.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        if let Some(timestamp) = as_written(text) {
            return Ok(Self(timestamp));
        }
        if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(timestamp));
        }
        let naive: DateTime = text.parse().map_err(|_| InvalidTimestamp)?;
        let zoned = naive.to_zoned(TimeZone::UTC).map_err(|_| InvalidTimestamp)?;
        Ok(Self(zoned.timestamp()))
    }
}

/// Adds a duration, in whole milliseconds; [`Timestamp::MAX`] beyond the range of dates.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.as_millis().saturating_add(millis)).unwrap_or(Self::MAX)
    }
}

/// Parses the form that we and most peers write: `2026-11-15T12:00:00.000Z`. Each status of a stream has
/// one, and the general parser takes ten times as long.
fn as_written(text: &str) -> Option<jiff::Timestamp> {
    let bytes: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')];
    if marks.iter().any(|(place, mark)| bytes[*place] != *mark) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_i16, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0'))
        })
    };
    let small = |place: usize| number(&bytes[place..place + 2]).map(|number| number as i8);
    let (year, millis) = (number(&bytes[..4])?, number(&bytes[20..23])?);
    let at = DateTime::new(
        year,
        small(5)?,
        small(8)?,
        small(11)?,
        small(14)?,
        small(17)?,
        i32::from(millis) * 1_000_000,
    );
    Offset::UTC.to_timestamp(at.ok()?).ok()
}

/// The error for a text that is not a time.
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
            ("2026-11-15t12:00:00.123z", "2026-11-15T12:00:00.123Z"),
            ("2016-12-31T23:59:60.999Z", "2016-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::parse(input).unwrap().to_string(), output, "{input}");
        }
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        let mut texts = vec!["2026-02-29T00:00:00.000Z".to_owned(), "2016-12-31T23:59:60.999Z".to_owned()];
        // Each character as each other one that could matter.
        let good = "2026-11-15T12:34:56.789Z";
        for place in 0..good.len() {
            texts.extend("0123456789:-.TZtz +é".chars().map(|other| {
                let mut text = good.to_owned();
                text.replace_range(place..=place, other.encode_utf8(&mut [0; 4]));
                text
            }));
        }
        assert!(as_written(good).is_some());
        for text in texts {
            if let Some(short) = as_written(&text) {
                assert_eq!(Some(short), text.parse().ok(), "{text}");
            }
        }
    }

    #[test]
    fn millis_round_down_before_the_epoch_too() {
        let before = Timestamp::parse("1969-12-31T23:59:59.999Z").unwrap();
        assert_eq!(before.as_millis(), -1);
        assert_eq!(before.as_parts(), (-1, 999_000_000));
    }
}
