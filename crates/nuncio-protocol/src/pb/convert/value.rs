//! JSON values and moments as protobuf has them.
//!
//! A number of protobuf's is a double (trap T-31). We write one only if nothing is lost, and read it as
//! the integer it most likely was: a peer that said 5 must not find 5.0.

use prost_types::{ListValue, Struct, Value as PbValue, value::Kind};
use serde_json::{Number, Value};

use super::{Convert, Mismatch};
use crate::{Metadata, Timestamp};

/// Up to here every integer is a double of its own.
const MAX_INTEGER: u64 = 1 << 53;

/// 0001-01-01T00:00:00Z, the first moment a protobuf `Timestamp` can say.
const MIN_SECONDS: i64 = -62_135_596_800;

impl Convert<PbValue> for Value {
    fn to_pb(&self) -> Result<PbValue, Mismatch> {
        let kind = match self {
            Self::Null => Kind::NullValue(0),
            Self::Bool(truth) => Kind::BoolValue(*truth),
            Self::Number(number) => Kind::NumberValue(to_double(number)?),
            Self::String(text) => Kind::StringValue(text.clone()),
            Self::Array(values) => Kind::ListValue(ListValue { values: values.to_pb()? }),
            Self::Object(members) => Kind::StructValue(members.to_pb()?),
        };
        Ok(PbValue { kind: Some(kind) })
    }

    fn from_pb(pb: PbValue) -> Result<Self, Mismatch> {
        Ok(match pb.kind {
            // A value that holds nothing is not valid protobuf, but there is only one thing it can mean.
            None | Some(Kind::NullValue(_)) => Self::Null,
            Some(Kind::BoolValue(truth)) => Self::Bool(truth),
            Some(Kind::NumberValue(double)) => Self::Number(from_double(double)?),
            Some(Kind::StringValue(text)) => Self::String(text),
            Some(Kind::ListValue(list)) => Self::Array(Convert::from_pb(list.values)?),
            Some(Kind::StructValue(members)) => Self::Object(Convert::from_pb(members)?),
        })
    }
}

fn to_double(number: &Number) -> Result<f64, Mismatch> {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    if magnitude.is_some_and(|n| n > MAX_INTEGER) {
        return Err(Mismatch::new(format!("protobuf cannot carry the integer {number} without loss")));
    }
    number.as_f64().ok_or_else(|| Mismatch::new(format!("protobuf cannot carry the number {number}")))
}

fn from_double(double: f64) -> Result<Number, Mismatch> {
    let integral = double.fract() == 0.0 && double.abs() <= MAX_INTEGER as f64;
    // There is no integer for minus zero.
    if integral && !(double == 0.0 && double.is_sign_negative()) {
        return Ok(Number::from(double as i64));
    }
    Number::from_f64(double).ok_or_else(|| Mismatch::new(format!("expected a finite number, got {double}")))
}

impl Convert<Struct> for Metadata {
    fn to_pb(&self) -> Result<Struct, Mismatch> {
        let member = |(key, value): (&String, &Value)| match value.to_pb() {
            Ok(pb) => Ok((key.clone(), pb)),
            Err(mismatch) => Err(mismatch.inside_key(key)),
        };
        Ok(Struct { fields: self.iter().map(member).collect::<Result<_, _>>()? })
    }

    fn from_pb(pb: Struct) -> Result<Self, Mismatch> {
        let member = |(key, pb): (String, PbValue)| match Value::from_pb(pb) {
            Ok(value) => Ok((key, value)),
            Err(mismatch) => Err(mismatch.inside_key(&key)),
        };
        pb.fields.into_iter().map(member).collect()
    }
}

/// Empty and absent are the same to us; we write absent.
impl Convert<Option<Struct>> for Metadata {
    fn to_pb(&self) -> Result<Option<Struct>, Mismatch> {
        if self.is_empty() { Ok(None) } else { self.to_pb().map(Some) }
    }

    fn from_pb(pb: Option<Struct>) -> Result<Self, Mismatch> {
        pb.map_or_else(|| Ok(Self::new()), Convert::from_pb)
    }
}

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
