//! Conversion between our types and protobuf messages, for both versions.
//!
//! A conversion to protobuf borrows, and copies where necessary; one from protobuf moves. It fails only if
//! one side cannot express a value of the other, and names the field by its JSON name, like all other
//! errors. Missing fields are left to [`validate`](crate::validate), so that they fail alike in every
//! binding.

mod card;
mod message;
mod push;
mod request;
mod security;
mod task;
mod time;

use std::{collections::BTreeMap, sync::Arc};

use crate::{Error, ErrorKind, FieldViolation, error::excerpt};

/// A type of ours with the protobuf form `P`: a message, or the value of a field.
pub(crate) trait Convert<P>: Sized {
    /// Converts to protobuf.
    fn to_pb(&self) -> Result<P, Mismatch>;

    /// Converts from protobuf.
    fn from_pb(pb: P) -> Result<Self, Mismatch>;
}

/// A value that the other side cannot express: the field, and the expectation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mismatch(Box<FieldViolation>);

impl Mismatch {
    pub(crate) fn new(description: impl Into<String>) -> Self {
        Self(Box::new(FieldViolation { field: String::new(), description: description.into() }))
    }

    /// Prepends the name of the enclosing field, in protobuf spelling, to the path.
    fn inside(mut self, field: &str) -> Self {
        self.prepend(&camel_case(field));
        self
    }

    /// Prepends the key of a map, which is data and keeps its spelling, to the path.
    pub(crate) fn inside_key(mut self, key: &str) -> Self {
        self.prepend(key);
        self
    }

    /// Prepends the index in a list to the path.
    pub(crate) fn inside_index(mut self, index: usize) -> Self {
        self.prepend(&format!("[{index}]"));
        self
    }

    fn prepend(&mut self, step: &str) {
        let path = &mut self.0.field;
        if !path.is_empty() && !path.starts_with('[') {
            path.insert(0, '.');
        }
        path.insert_str(0, step);
    }

    /// The path and the expectation.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.0.field, &self.0.description)
    }

    /// Converts it to an error of this kind.
    pub(crate) fn into_error(self, kind: ErrorKind) -> Error {
        let FieldViolation { field, description } = *self.0;
        // Keys of maps are the sender's, and may be as long as a message.
        let (field, description) = (excerpt(field), excerpt(description));
        if kind == ErrorKind::InvalidParams {
            return Error::invalid_field(field, description);
        }
        let place = if field.is_empty() { field } else { format!("{field}: ") };
        Error::new(kind, format!("{}: {place}{description}", kind.row().message))
    }
}

/// Converts `message_id` to `messageId`, its name in JSON.
fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    for (i, word) in name.split('_').enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if i > 0 => camel.push(first.to_ascii_uppercase()),
            Some(first) => camel.push(first),
            None => {}
        }
        camel.push_str(letters.as_str());
    }
    camel
}

/// Adds the field in which a conversion failed.
pub(crate) trait InField: Sized {
    /// Adds this field, by its protobuf name.
    fn at(self, field: &str) -> Self;
}

impl<T> InField for Result<T, Mismatch> {
    fn at(self, field: &str) -> Self {
        self.map_err(|mismatch| mismatch.inside(field))
    }
}

/// Converts messages whose fields have the same names on both sides; `pb` is the module of the generated
/// types. Every field must be listed: the literals of both structs are complete, so the compiler reports a
/// missing one. Fields that are not on the wire come last, each with its value.
macro_rules! convert {
    ($($ours:ident => pb::$pb:ident { $($field:ident),* $(,)? $(; $own:ident: $value:expr)? })+) => {$(
        impl $crate::pb::convert::Convert<pb::$pb> for $crate::$ours {
            fn to_pb(&self) -> Result<pb::$pb, $crate::pb::convert::Mismatch> {
                use $crate::pb::convert::InField as _;
                Ok(pb::$pb { $($field: self.$field.to_pb().at(stringify!($field))?,)* })
            }

            fn from_pb(pb: pb::$pb) -> Result<Self, $crate::pb::convert::Mismatch> {
                use $crate::pb::convert::{InField as _, Convert};
                Ok(Self {
                    $($field: Convert::from_pb(pb.$field).at(stringify!($field))?,)*
                    $($own: $value,)?
                })
            }
        }
    )+};
}
pub(crate) use convert;

/// Converts messages with one of several members. Our type is an enum; protobuf wraps it in a message in
/// which it may also be absent.
macro_rules! convert_oneof {
    ($($ours:ident => pb::$pb:ident, $holder:ident: $oneof:path {
        $($variant:ident = $theirs:ident $name:literal),+ $(,)?
    })+) => {$(
        impl $crate::pb::convert::Convert<pb::$pb> for $crate::$ours {
            fn to_pb(&self) -> Result<pb::$pb, $crate::pb::convert::Mismatch> {
                use $oneof as Oneof;
                use $crate::pb::convert::InField as _;
                let member = match self {
                    $(Self::$variant(value) => Oneof::$theirs(value.to_pb().at($name)?),)+
                };
                Ok(pb::$pb { $holder: Some(member) })
            }

            fn from_pb(pb: pb::$pb) -> Result<Self, $crate::pb::convert::Mismatch> {
                use $oneof as Oneof;
                use $crate::pb::convert::{InField as _, Convert, Mismatch};
                match pb.$holder {
                    $(Some(Oneof::$theirs(value)) => Ok(Self::$variant(Convert::from_pb(value).at($name)?)),)+
                    None => Err(Mismatch::new(concat!("expected one of", $(" ", $name,)+))),
                }
            }
        }
    )+};
}
pub(crate) use convert_oneof;

/// Required messages. If absent, they are decoded as empty, as in JSON.
macro_rules! required {
    ($($ours:ident => pb::$pb:ident;)+) => {$(
        impl $crate::pb::convert::Convert<Option<pb::$pb>> for $crate::$ours {
            fn to_pb(&self) -> Result<Option<pb::$pb>, $crate::pb::convert::Mismatch> {
                self.to_pb().map(Some)
            }

            fn from_pb(pb: Option<pb::$pb>) -> Result<Self, $crate::pb::convert::Mismatch> {
                pb.map_or_else(|| Ok(Self::default()), $crate::pb::convert::Convert::from_pb)
            }
        }
    )+};
}
pub(crate) use required;

macro_rules! same {
    ($($scalar:ty),+) => {$(
        impl Convert<$scalar> for $scalar {
            fn to_pb(&self) -> Result<Self, Mismatch> {
                Ok(self.clone())
            }

            fn from_pb(pb: Self) -> Result<Self, Mismatch> {
                Ok(pb)
            }
        }
    )+};
}

same!(String, bool, i32);

/// Fields without presence: empty means unset.
impl Convert<String> for Option<String> {
    fn to_pb(&self) -> Result<String, Mismatch> {
        Ok(self.clone().unwrap_or_default())
    }

    fn from_pb(pb: String) -> Result<Self, Mismatch> {
        Ok(Some(pb).filter(|text| !text.is_empty()))
    }
}

macro_rules! ids {
    ($($id:ident),+) => {$(
        impl Convert<String> for crate::$id {
            fn to_pb(&self) -> Result<String, Mismatch> {
                Ok(self.as_str().to_owned())
            }

            fn from_pb(pb: String) -> Result<Self, Mismatch> {
                Ok(pb.into())
            }
        }

        /// Fields without presence: empty means unset.
        impl Convert<String> for Option<crate::$id> {
            fn to_pb(&self) -> Result<String, Mismatch> {
                self.as_ref().map_or_else(|| Ok(String::new()), Convert::to_pb)
            }

            fn from_pb(pb: String) -> Result<Self, Mismatch> {
                Ok(if pb.is_empty() { None } else { Some(pb.into()) })
            }
        }
    )+};
}

ids!(TaskId, ContextId, MessageId, ArtifactId, PushConfigId);

macro_rules! enums {
    ($($ours:ident),+) => {$(
        impl Convert<i32> for crate::$ours {
            fn to_pb(&self) -> Result<i32, Mismatch> {
                Ok(self.number())
            }

            fn from_pb(pb: i32) -> Result<Self, Mismatch> {
                Self::from_number(pb.into())
                    .ok_or_else(|| Mismatch::new(format!(concat!("expected a ", stringify!($ours), ", got {}"), pb)))
            }
        }
    )+};
}

enums!(Role, TaskState);

impl<P, T: Convert<P>> Convert<Option<P>> for Option<T> {
    fn to_pb(&self) -> Result<Option<P>, Mismatch> {
        self.as_ref().map(Convert::to_pb).transpose()
    }

    fn from_pb(pb: Option<P>) -> Result<Self, Mismatch> {
        pb.map(Convert::from_pb).transpose()
    }
}

impl<P, T: Convert<P>> Convert<P> for Arc<T> {
    fn to_pb(&self) -> Result<P, Mismatch> {
        (**self).to_pb()
    }

    fn from_pb(pb: P) -> Result<Self, Mismatch> {
        T::from_pb(pb).map(Self::new)
    }
}

impl<P, T: Convert<P>> Convert<Vec<P>> for Vec<T> {
    fn to_pb(&self) -> Result<Vec<P>, Mismatch> {
        let elements = self.iter().enumerate();
        elements.map(|(i, element)| element.to_pb().map_err(|mismatch| mismatch.inside_index(i))).collect()
    }

    fn from_pb(pb: Vec<P>) -> Result<Self, Mismatch> {
        let elements = pb.into_iter().enumerate();
        elements
            .map(|(i, element)| T::from_pb(element).map_err(|mismatch| mismatch.inside_index(i)))
            .collect()
    }
}

impl<P, T: Convert<P>> Convert<BTreeMap<String, P>> for BTreeMap<String, T> {
    fn to_pb(&self) -> Result<BTreeMap<String, P>, Mismatch> {
        let convert = |(key, value): (&String, &T)| match value.to_pb() {
            Ok(pb) => Ok((key.clone(), pb)),
            Err(mismatch) => Err(mismatch.inside_key(key)),
        };
        self.iter().map(convert).collect()
    }

    fn from_pb(pb: BTreeMap<String, P>) -> Result<Self, Mismatch> {
        let convert = |(key, pb): (String, P)| match T::from_pb(pb) {
            Ok(value) => Ok((key, value)),
            Err(mismatch) => Err(mismatch.inside_key(&key)),
        };
        pb.into_iter().map(convert).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_in_json() {
        let mismatch = Mismatch::new("no")
            .inside_index(2)
            .inside_key("some_key")
            .inside("metadata")
            .inside_index(0)
            .inside("reference_task_ids");
        assert_eq!(mismatch.0.field, "referenceTaskIds[0].metadata.some_key[2]");
    }
}
