//! Messages and their parts (spec 4.1.4 to 4.1.6).

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Error as _, IgnoredAny, MapAccess},
    ser::SerializeStruct as _,
};

use crate::{
    ContextId, Json, MessageId, Metadata, TaskId,
    json::AtDepth,
    lenient::{Key, base64_display, decode_base64, list, none_if_empty, null_default, proto_enum},
    metadata::metadata,
};

proto_enum! {
    /// The sender of a message.
    Role {
        /// Invalid on the wire.
        #[default]
        Unspecified = 0 "ROLE_UNSPECIFIED",
        /// From client to server.
        User = 1 "ROLE_USER",
        /// From server to client.
        Agent = 2 "ROLE_AGENT",
    }
}

/// A message of a conversation, in either direction.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Message {
    /// Created by the sender.
    #[serde(alias = "message_id", deserialize_with = "null_default")]
    pub message_id: MessageId,
    /// The context. Servers always set it.
    #[serde(
        alias = "context_id",
        deserialize_with = "none_if_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// The task this message continues (from a client) or belongs to (from a server).
    #[serde(alias = "task_id", deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The sender.
    #[serde(deserialize_with = "null_default")]
    pub role: Role,
    /// The content; at least one.
    #[serde(deserialize_with = "list")]
    pub parts: Vec<Part>,
    /// Data of extensions, keyed by their URI.
    #[serde(deserialize_with = "metadata::<_, 2>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// URIs of the extensions that contributed to this message.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that this message refers to; a hint.
    #[serde(alias = "reference_task_ids", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<TaskId>,
}

impl Message {
    /// A message from a client.
    pub fn user(id: impl Into<MessageId>, parts: impl Into<Vec<Part>>) -> Self {
        Self { message_id: id.into(), role: Role::User, parts: parts.into(), ..Self::default() }
    }

    /// A message from an agent.
    pub fn agent(id: impl Into<MessageId>, parts: impl Into<Vec<Part>>) -> Self {
        Self { message_id: id.into(), role: Role::Agent, parts: parts.into(), ..Self::default() }
    }

    /// All text parts, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        join_text(&self.parts, "\n")
    }
}

pub(crate) fn join_text<'a>(parts: &'a [Part], between: &str) -> Cow<'a, str> {
    let mut texts = parts.iter().filter_map(Part::as_text);
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let mut joined = Cow::Borrowed(first);
    for text in texts {
        let joined = joined.to_mut();
        joined.push_str(between);
        joined.push_str(text);
    }
    joined
}

/// The content of a part: exactly one of the four.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text; may be empty.
    Text(String),
    /// The bytes of a file, inline.
    Raw(Bytes),
    /// The URL of a file.
    Url(String),
    /// Any JSON value, `null` included.
    Data(Json),
}

/// A piece of a message or an artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The content.
    pub content: Content,
    /// Free-form data.
    pub metadata: Metadata,
    /// A file name, allowed with every kind of content.
    pub filename: Option<String>,
    /// The media type, allowed with every kind of content.
    pub media_type: Option<String>,
}

impl Part {
    fn new(content: Content) -> Self {
        Self { content, metadata: Metadata::new(), filename: None, media_type: None }
    }

    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// A file with its bytes inline.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::new(Content::Raw(bytes.into()))
    }

    /// A file by its URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::new(Content::Url(url.into()))
    }

    /// Structured data: `json!`, or any [`Json`].
    pub fn data(value: impl Into<Json>) -> Self {
        Self::new(Content::Data(value.into()))
    }

    /// Gives the part a file name.
    #[must_use]
    pub fn with_filename(mut self, name: impl Into<String>) -> Self {
        self.filename = Some(name.into());
        self
    }

    /// Gives the part a media type.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// The text of a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        }
    }

    /// The value of a data part.
    #[must_use]
    pub fn as_data(&self) -> Option<&Json> {
        match &self.content {
            Content::Data(json) => Some(json),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Part> for Vec<Part> {
    fn from(part: Part) -> Self {
        vec![part]
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Part", 4)?;
        match &self.content {
            Content::Text(text) => object.serialize_field("text", text)?,
            Content::Raw(bytes) => object.serialize_field("raw", &Base64(bytes))?,
            Content::Url(url) => object.serialize_field("url", url)?,
            Content::Data(value) => object.serialize_field("data", value)?,
        }
        if !self.metadata.is_empty() {
            object.serialize_field("metadata", &self.metadata)?;
        }
        if let Some(filename) = &self.filename {
            object.serialize_field("filename", filename)?;
        }
        if let Some(media_type) = &self.media_type {
            object.serialize_field("mediaType", media_type)?;
        }
        object.end()
    }
}

/// Bytes that are encoded as a base64 string.
pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64_display(self.0))
    }
}

/// Bytes, decoded from base64 of any flavour.
pub(crate) struct AnyBase64(pub(crate) Bytes);

impl<'de> Deserialize<'de> for AnyBase64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = AnyBase64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AnyBase64, E> {
                decode_base64(text).map(AnyBase64).map_err(|e| E::custom(format_args!("invalid base64: {e}")))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

/// The number of objects and lists around a part of a request, including the part.
pub(crate) const PART_DEPTH: usize = 4;

/// Decodes the metadata of a part; `null` means none.
pub(crate) fn read_metadata<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Metadata, A::Error> {
    let metadata = map.next_value::<Option<AtDepth<PART_DEPTH, _>>>()?;
    Ok(metadata.map(|AtDepth(metadata)| metadata).unwrap_or_default())
}

struct PartVisitor;

impl<'de> de::Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part: an object with one of text, raw, url, data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let mut content = None;
        let (mut metadata, mut filename, mut media_type) = (Metadata::new(), None, None);
        while let Some(key) = map.next_key::<Key<'de>>()? {
            // Presence decides, not the value (trap T-12): `null` leaves text, raw and url unset, but
            // is itself a value of data.
            let member = match &*key.0 {
                "text" => map.next_value::<Option<String>>()?.map(Content::Text),
                "raw" => map.next_value::<Option<AnyBase64>>()?.map(|raw| Content::Raw(raw.0)),
                "url" => map.next_value::<Option<String>>()?.map(Content::Url),
                "data" => Some(Content::Data(map.next_value::<AtDepth<PART_DEPTH, _>>()?.0)),
                other => {
                    match other {
                        "metadata" => metadata = read_metadata(&mut map)?,
                        "filename" => filename = map.next_value::<Option<String>>()?,
                        "mediaType" | "media_type" => media_type = map.next_value::<Option<String>>()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    continue;
                }
            };
            if member.is_some() && content.is_some() {
                return Err(A::Error::custom("several of text, raw, url, data; expected exactly one"));
            }
            content = content.or(member);
        }
        let content =
            content.ok_or_else(|| A::Error::custom("none of text, raw, url, data; expected exactly one"))?;
        let set = |text: &String| !text.is_empty();
        Ok(Part { content, metadata, filename: filename.filter(set), media_type: media_type.filter(set) })
    }
}
