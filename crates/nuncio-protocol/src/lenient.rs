//! Helpers for lenient decoding: `null` means absent, the empty string means unset, numbers may be strings,
//! enums may be numbers, base64 may be of any flavour. Encoding needs none of them.

use std::{borrow::Cow, fmt, marker::PhantomData};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, de};

use crate::{ContextId, PushConfigId, TaskId};

/// Decodes `null` as the default of the type.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Maximum number of elements of a list: an element takes up to a hundred times the memory of its shortest
/// text, so a body within its limit could exhaust the memory. (`data` and `metadata` stay text and have no
/// such limit.)
pub(crate) const MAX_LIST: usize = 1 << 18;

/// Decodes a list of at most [`MAX_LIST`] elements; `null` is empty. Most lists have one element, so the
/// initial capacity is one, while serde would reserve four.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T>(Vec<T>);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_seq(Visitor(PhantomData))
        }
    }

    struct Visitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
        type Value = List<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut elements: A) -> Result<List<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(element) = elements.next_element()? {
                if all.is_empty() {
                    all.reserve_exact(1);
                }
                check_length(all.len())?;
                all.push(element);
            }
            Ok(List(all))
        }
    }

    Ok(Option::<List<T>>::deserialize(deserializer)?.map_or_else(Vec::new, |list| list.0))
}

/// Refuses another element of a list with this length.
pub(crate) fn check_length<E: de::Error>(length: usize) -> Result<(), E> {
    if length < MAX_LIST { Ok(()) } else { Err(E::custom(LIST_TOO_LONG)) }
}

/// The error of a list that is longer than [`MAX_LIST`].
pub(crate) const LIST_TOO_LONG: &str = "a list has more than 262144 elements";

/// A value with an empty form that means "not set".
pub(crate) trait MaybeEmpty {
    fn is_unset(&self) -> bool;
}

impl MaybeEmpty for String {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl MaybeEmpty for TaskId {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl MaybeEmpty for ContextId {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl MaybeEmpty for PushConfigId {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

/// Decodes `null` and the empty value as `None`.
pub(crate) fn none_if_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: MaybeEmpty + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.filter(|value| !value.is_unset()))
}

/// The name of a member, borrowed from the input unless it has escapes.
pub(crate) struct Key<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_identifier(Visitor)
    }
}

/// Decodes an `int32`: a JSON number or, as ProtoJSON allows, a string with one.
pub(crate) fn int32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    struct Visitor;
    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Option<i32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a 32-bit integer")
        }

        fn visit_i64<E: de::Error>(self, n: i64) -> Result<Option<i32>, E> {
            i32::try_from(n).map(Some).map_err(|_| E::invalid_value(de::Unexpected::Signed(n), &self))
        }

        fn visit_u64<E: de::Error>(self, n: u64) -> Result<Option<i32>, E> {
            i32::try_from(n).map(Some).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(n), &self))
        }

        fn visit_f64<E: de::Error>(self, n: f64) -> Result<Option<i32>, E> {
            // ProtoJSON accepts 5.0 for 5.
            let whole = n as i32;
            if f64::from(whole) == n {
                Ok(Some(whole))
            } else {
                Err(E::invalid_value(de::Unexpected::Float(n), &self))
            }
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<i32>, E> {
            text.parse().map(Some).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }

        fn visit_unit<E: de::Error>(self) -> Result<Option<i32>, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(Visitor)
}

/// Decodes an `int32` without presence: absent is 0.
pub(crate) fn int32_or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(int32(deserializer)?.unwrap_or_default())
}

const LAX: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LAX);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LAX);

/// Decodes base64 of either alphabet, padded or not (trap T-30).
pub(crate) fn decode_base64(text: &str) -> Result<Bytes, base64::DecodeError> {
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode(text).map(Bytes::from)
}

/// Encodes base64: standard alphabet, padded.
pub(crate) fn base64_display(bytes: &[u8]) -> impl fmt::Display + '_ {
    base64::display::Base64Display::new(bytes, &base64::engine::general_purpose::STANDARD)
}

/// Decodes and encodes a JSON object with at most one set member: a protobuf `oneof`. Members that are
/// `null` are unset, unknown ones are ignored, several are an error.
macro_rules! oneof {
    ($what:literal, $name:ident { $($key:literal $(| $alias:literal)* => $variant:ident($ty:ty)),+ $(,)? }) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut object = serializer.serialize_struct($what, 1)?;
                match self {
                    $(Self::$variant(value) => object.serialize_field($key, value)?,)+
                }
                object.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object with one of", $(" ", $key,)+))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use serde::de::Error as _;
                        let mut found: Option<$name> = None;
                        while let Some(key) = map.next_key::<$crate::lenient::Key<'de>>()? {
                            let value = match &*key.0 {
                                $($key $(| $alias)* => map.next_value::<Option<$ty>>()?.map($name::$variant),)+
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    None
                                }
                            };
                            match (&found, value) {
                                (Some(_), Some(_)) => {
                                    return Err(A::Error::custom(concat!("several members, expected one of", $(" ", $key,)+)));
                                }
                                (None, Some(value)) => found = Some(value),
                                (_, None) => {}
                            }
                        }
                        found.ok_or_else(|| A::Error::custom(concat!("no member, expected one of", $(" ", $key,)+)))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    };
}
pub(crate) use oneof;

/// A protobuf enum: encoded by name, decoded by name or number.
macro_rules! proto_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $number,)+
        }

        impl $name {
            /// Every value, in the order of the specification.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The number in protobuf.
            #[must_use]
            pub fn number(self) -> i32 {
                self as i32
            }

            /// Finds a value by its name on the wire.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Finds a value by its number in protobuf.
            #[must_use]
            pub fn from_number(number: i64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of", $(" ", $text,)+))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::from_name(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
                    }

                    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<$name, E> {
                        $name::from_number(n).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(n), &self))
                    }

                    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<$name, E> {
                        i64::try_from(n)
                            .ok()
                            .and_then($name::from_number)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(n), &self))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}
pub(crate) use proto_enum;
