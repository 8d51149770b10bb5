//! Decodes the small elements of v0.3: enums under any of their names, files and data parts in any of their
//! shapes (traps T-08 and T-12; contradictions C-05 to C-11). One decoder for both forms.

use std::{fmt, marker::PhantomData, mem};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess},
};

use super::{
    FileBytes, JsonRpc, files,
    form::JsonForm,
    leftover::{self, DATA_PART_COMPAT, is_wrapped},
};
use crate::{
    Content, Json, Metadata, Part, Role, TaskState,
    json::AtDepth,
    lenient::{Key, check_length, decode_base64},
    message::{PART_DEPTH, read_metadata},
};

/// One of our values, decoded from v0.3.
#[derive(Default)]
pub(super) struct Up<T>(pub(super) T);

/// Decodes a list of values; `null` is empty.
pub(super) fn list<'de, D, T, U>(deserializer: D) -> Result<Vec<U>, D::Error>
where
    D: Deserializer<'de>,
    Up<T>: Deserialize<'de>,
    U: From<T>,
{
    struct Visitor<T, U>(PhantomData<(T, U)>);
    impl<'de, T, U: From<T>> de::Visitor<'de> for Visitor<T, U>
    where
        Up<T>: Deserialize<'de>,
    {
        type Value = Vec<U>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<U>, A::Error> {
            let mut values = Vec::new();
            while let Some(Up(value)) = seq.next_element::<Up<T>>()? {
                check_length(values.len())?;
                values.push(U::from(value));
            }
            Ok(values)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Vec<U>, E> {
            Ok(Vec::new())
        }
    }
    deserializer.deserialize_any(Visitor(PhantomData))
}

/// Decodes a value; `null` is the default.
pub(super) fn one<'de, D, T, U>(deserializer: D) -> Result<U, D::Error>
where
    D: Deserializer<'de>,
    Up<T>: Deserialize<'de>,
    U: From<T> + Default,
{
    Ok(Option::<Up<T>>::deserialize(deserializer)?.map_or_else(U::default, |Up(value)| U::from(value)))
}

/// Decodes a value; `null` is none.
pub(super) fn maybe<'de, D, T, U>(deserializer: D) -> Result<Option<U>, D::Error>
where
    D: Deserializer<'de>,
    Up<T>: Deserialize<'de>,
    U: From<T>,
{
    Ok(Option::<Up<T>>::deserialize(deserializer)?.map(|Up(value)| U::from(value)))
}

/// True if two names differ only in case or in dash and underscore.
fn is_same_name(a: &str, b: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}

fn state(text: &str) -> Option<TaskState> {
    let name = text.strip_prefix("TASK_STATE_").unwrap_or(text);
    if is_same_name(name, "cancelled") {
        return Some(TaskState::Canceled);
    }
    if is_same_name(name, "unspecified") {
        return Some(TaskState::Unspecified);
    }
    TaskState::ALL.iter().copied().find(|state| is_same_name(JsonRpc::state(*state), name))
}

fn role(text: &str) -> Option<Role> {
    let name = text.strip_prefix("ROLE_").unwrap_or(text);
    match name {
        _ if is_same_name(name, "user") => Some(Role::User),
        _ if is_same_name(name, "agent") => Some(Role::Agent),
        _ if is_same_name(name, "unspecified") => Some(Role::Unspecified),
        _ => None,
    }
}

/// Decodes an enum by any of its names or by its number.
macro_rules! any_name {
    ($name:ident, $from_text:ident, $expecting:literal) => {
        impl<'de> Deserialize<'de> for Up<$name> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = Up<$name>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        let value = $from_text(text);
                        value.map(Up).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
                    }

                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Self::Value, E> {
                        let value = $name::from_number(n);
                        value.map(Up).ok_or_else(|| E::invalid_value(de::Unexpected::Signed(n), &self))
                    }

                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Self::Value, E> {
                        let value = i64::try_from(n).ok().and_then($name::from_number);
                        value.map(Up).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(n), &self))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

any_name!(TaskState, state, "a task state such as working or input-required");
any_name!(Role, role, "user or agent");

/// A file as received.
#[derive(Default)]
struct ReceivedFile {
    content: Option<Content>,
    name: Option<String>,
    mime_type: Option<String>,
    /// True if the content is in the field of the proto, in a form that depends on the peer.
    is_proto: bool,
}

impl<'de> Deserialize<'de> for ReceivedFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> de::Visitor<'de> for FileVisitor {
    type Value = ReceivedFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file: an object with one of bytes, uri")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReceivedFile, A::Error> {
        let mut file = ReceivedFile::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            let source = match &*key.0 {
                // Documentation and peers disagree about these names (C-06).
                "bytes" | "data" => map.next_value_seed(Source::Bytes)?,
                "fileWithBytes" | "file_with_bytes" => map.next_value_seed(Source::ProtoBytes)?,
                "uri" | "fileWithUri" | "file_with_uri" | "url" => map.next_value_seed(Source::Uri)?,
                other => {
                    match other {
                        "name" | "filename" => file.name = map.next_value()?,
                        "mimeType" | "mime_type" | "mediaType" | "media_type" => {
                            file.mime_type = map.next_value()?
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    continue;
                }
            };
            if file.content.is_some() && source.content.is_some() {
                return Err(A::Error::custom("both bytes and uri; expected exactly one"));
            }
            file.content = file.content.or(source.content);
            file.is_proto |= source.is_proto;
            file.name = file.name.or(source.name);
            file.mime_type = file.mime_type.or(source.mime_type);
        }
        Ok(file)
    }
}

/// The location of a file's content: text, or one more object around it (contradiction C-06).
#[derive(Clone, Copy)]
enum Source {
    Bytes,
    ProtoBytes,
    Uri,
}

impl<'de> DeserializeSeed<'de> for Source {
    type Value = ReceivedFile;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ReceivedFile, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Source {
    type Value = ReceivedFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes | Self::ProtoBytes => f.write_str("base64 text"),
            Self::Uri => f.write_str("an address"),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ReceivedFile, E> {
        let content = match self {
            Self::Bytes | Self::ProtoBytes => decode_base64(text)
                .map(Content::Raw)
                .map_err(|error| E::custom(format_args!("invalid base64: {error}")))?,
            Self::Uri => Content::Url(text.to_owned()),
        };
        let is_proto = matches!(self, Self::ProtoBytes);
        Ok(ReceivedFile { content: Some(content), is_proto, ..ReceivedFile::default() })
    }

    fn visit_unit<E: de::Error>(self) -> Result<ReceivedFile, E> {
        Ok(ReceivedFile::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ReceivedFile, A::Error> {
        FileVisitor.visit_map(map)
    }
}

impl<'de> Deserialize<'de> for Up<Part> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OldPartVisitor)
    }
}

struct OldPartVisitor;

impl<'de> de::Visitor<'de> for OldPartVisitor {
    type Value = Up<Part>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part: an object with one of text, file, data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Up<Part>, A::Error> {
        let mut content = None;
        let (mut metadata, mut filename, mut media_type) = (Metadata::new(), None, None);
        let (mut has_kind, mut is_proto) = (false, false);
        while let Some(key) = map.next_key::<Key<'de>>()? {
            // Presence decides (trap T-12). `null` is no content here: v0.3 data is an object.
            let member = match &*key.0 {
                "text" => map.next_value::<Option<String>>()?.map(Content::Text),
                "file" => map.next_value::<Option<ReceivedFile>>()?.and_then(|file| {
                    filename = file.name;
                    media_type = file.mime_type;
                    is_proto = file.is_proto;
                    file.content
                }),
                "data" => map
                    .next_value::<Option<AtDepth<PART_DEPTH, _>>>()?
                    .map(|AtDepth(json)| Content::Data(json)),
                other => {
                    match other {
                        // Some peers use `type`. A part of an unknown kind is refused.
                        "kind" | "type" => match map.next_value::<Option<Key<'de>>>()? {
                            Some(kind) if matches!(&*kind.0, "text" | "file" | "data") => has_kind = true,
                            Some(kind) => {
                                return Err(A::Error::unknown_variant(&kind.0, &["text", "file", "data"]));
                            }
                            None => {}
                        },
                        "metadata" => metadata = read_metadata(&mut map)?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    continue;
                }
            };
            if member.is_some() && content.is_some() {
                return Err(A::Error::custom("several of text, file, data; expected exactly one"));
            }
            content = content.or(member);
        }
        let content =
            content.ok_or_else(|| A::Error::custom("none of text, file, data; expected exactly one"))?;
        let mut part = Part { content, metadata, filename, media_type };
        settle(&mut part, has_kind, files::current().filter(|_| is_proto));
        Ok(Up(part))
    }
}

/// Unwraps data, decodes the content of a file in its form, if it has one, and restores the leftover.
pub(super) fn settle(part: &mut Part, has_kind: bool, form: Option<FileBytes>) {
    let mut mark = None;
    if let Content::Data(value) = &mut part.content {
        // ProtoJSON has `{"data":{"data":…}}` without a kind; with one, `data` is the data itself.
        if !has_kind {
            unwrap(value, "data");
        }
        if !part.metadata.is_empty() && is_wrapped(&part.metadata, value) {
            unwrap(value, "value");
            part.metadata.remove(DATA_PART_COMPAT);
        }
    }
    if !part.metadata.is_empty() {
        let leftover = leftover::take(&mut part.metadata);
        mark = leftover.base64;
        part.metadata.merge(&leftover.metadata);
        part.filename = part.filename.take().or(leftover.filename.map(Into::into));
        part.media_type = part.media_type.take().or(leftover.media_type.map(Into::into));
    }
    part.filename.take_if(|name| name.is_empty());
    part.media_type.take_if(|media_type| media_type.is_empty());
    if let (Content::Raw(content), Some(form)) = (&mut part.content, form) {
        *content = files::read(mem::take(content), part.media_type.as_deref(), mark, form);
    }
}

/// Replaces an object by the value of its only member, if that has this name.
fn unwrap(value: &mut Json, name: &str) {
    if let Some(inner) = value.only_member(name) {
        *value = Json::part(inner);
    }
}
