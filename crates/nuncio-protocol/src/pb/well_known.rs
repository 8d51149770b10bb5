//! `google.protobuf.Value` and `Struct` without a tree of values: they are decoded directly to JSON text,
//! and encoded directly from it. A tree takes many times the memory of either.

mod read;
mod write;

use bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType},
};

use self::read::{StructRead, ValueRead};
use super::convert::{Convert, Mismatch};
use crate::{Json, Metadata};

/// The content of a well-known message in the generated ones: `R` while decoding, bytes for encoding.
#[derive(Clone, Debug, PartialEq)]
enum WellKnownContent<R> {
    Read(R),
    Write(Vec<u8>),
}

impl<R: Default> Default for WellKnownContent<R> {
    fn default() -> Self {
        Self::Read(R::default())
    }
}

/// The two messages differ in the type that they are decoded to, and in its encoder.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident: $read:ident, $write:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name(WellKnownContent<$read>);

        impl $name {
            /// Its bytes; empty if a decoded value cannot be encoded.
            fn with_bytes<T>(&self, then: impl FnOnce(&[u8]) -> T) -> T {
                match &self.0 {
                    WellKnownContent::Write(bytes) => then(bytes),
                    WellKnownContent::Read(read) => then(&$write(&read.clone().into_json()).unwrap_or_default()),
                }
            }
        }

        impl Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                self.with_bytes(|bytes| buf.put_slice(bytes));
            }

            fn encoded_len(&self) -> usize {
                self.with_bytes(<[u8]>::len)
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                if let WellKnownContent::Write(bytes) = &self.0 {
                    *self = Self::decode(&**bytes)?;
                }
                match &mut self.0 {
                    WellKnownContent::Read(read) => read.merge_field(tag, wire_type, buf, ctx),
                    WellKnownContent::Write(_) => Ok(()),
                }
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }
    };
}

message! {
    /// `google.protobuf.Value`: any JSON value.
    Value: ValueRead, write::value
}

message! {
    /// `google.protobuf.Struct`: a JSON object.
    Struct: StructRead, write::object
}

impl Convert<Value> for Json {
    fn to_pb(&self) -> Result<Value, Mismatch> {
        write::value(self).map(|bytes| Value(WellKnownContent::Write(bytes)))
    }

    fn from_pb(pb: Value) -> Result<Self, Mismatch> {
        match pb.0 {
            WellKnownContent::Read(text) => text.finish(),
            WellKnownContent::Write(bytes) => Self::from_pb(Value::decode(&*bytes).unwrap_or_default()),
        }
    }
}

impl Convert<Struct> for Metadata {
    fn to_pb(&self) -> Result<Struct, Mismatch> {
        write::object(&self.to_json()).map(|bytes| Struct(WellKnownContent::Write(bytes)))
    }

    fn from_pb(pb: Struct) -> Result<Self, Mismatch> {
        match pb.0 {
            WellKnownContent::Read(object) => object.finish().map(Self::from_object),
            WellKnownContent::Write(bytes) => Self::from_pb(Struct::decode(&*bytes).unwrap_or_default()),
        }
    }
}

/// Empty and absent are the same to us; we encode absent.
impl Convert<Option<Struct>> for Metadata {
    fn to_pb(&self) -> Result<Option<Struct>, Mismatch> {
        if self.is_empty() { Ok(None) } else { self.to_pb().map(Some) }
    }

    fn from_pb(pb: Option<Struct>) -> Result<Self, Mismatch> {
        pb.map_or_else(|| Ok(Self::new()), Convert::from_pb)
    }
}

impl Struct {
    /// An object with one member; errors about its value do not include the name.
    pub(crate) fn of_member(name: &str, value: &Json) -> Result<Self, Mismatch> {
        write::member(name, value).map(|bytes| Self(WellKnownContent::Write(bytes)))
    }
}

#[cfg(test)]
mod tests;
