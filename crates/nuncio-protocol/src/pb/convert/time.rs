//! Timestamps in protobuf.

use super::{Convert, Mismatch};
use crate::Timestamp;

/// 0001-01-01T00:00:00Z, the earliest protobuf `Timestamp`.
const MIN_SECONDS: i64 = -62_135_596_800;

impl Convert<prost_types::Timestamp> for Timestamp {
    fn to_pb(&self) -> Result<prost_types::Timestamp, Mismatch> {
        let (seconds, nanos) = self.as_parts();
        if seconds < MIN_SECONDS {
            return Err(Mismatch::new("protobuf has no time before the year 1"));
        }
        Ok(prost_types::Timestamp { seconds, nanos })
    }

    fn from_pb(pb: prost_types::Timestamp) -> Result<Self, Mismatch> {
        let valid = pb.seconds >= MIN_SECONDS && (0..1_000_000_000).contains(&pb.nanos);
        valid.then(|| Self::from_parts(pb.seconds, pb.nanos)).flatten().ok_or_else(|| {
            Mismatch::new(format!("expected a time, got {} s and {} ns since 1970", pb.seconds, pb.nanos))
        })
    }
}
