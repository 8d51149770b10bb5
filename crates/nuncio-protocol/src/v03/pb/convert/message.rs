//! Messages and their parts.

use std::borrow::Cow;

use super::super::generated as pb;
use crate::{
    Content, Json, Message, Metadata, Part,
    pb::{
        convert::{Convert, InField as _, Mismatch, required},
        well_known::Struct,
    },
    v03::{
        files,
        leftover::{DATA_PART_COMPAT, Leftover, WireMetadata, is_wrapped},
        shape, upgrade,
    },
};

required! {
    Message => pb::Message;
}

impl Convert<pb::Message> for Message {
    fn to_pb(&self) -> Result<pb::Message, Mismatch> {
        let leftover =
            Leftover { reference_task_ids: self.reference_task_ids.as_slice().into(), ..Leftover::default() };
        Ok(pb::Message {
            message_id: self.message_id.to_pb()?,
            context_id: Convert::<String>::to_pb(&self.context_id)?,
            task_id: Convert::<String>::to_pb(&self.task_id)?,
            role: self.role.to_pb()?,
            content: self.parts.to_pb().at("content")?,
            metadata: wire(&WireMetadata::new(&self.metadata, leftover)).at("metadata")?,
            extensions: self.extensions.clone(),
        })
    }

    fn from_pb(pb: pb::Message) -> Result<Self, Mismatch> {
        let message = Self {
            message_id: pb.message_id.into(),
            context_id: Convert::from_pb(pb.context_id)?,
            task_id: Convert::from_pb(pb.task_id)?,
            role: Convert::from_pb(pb.role).at("role")?,
            parts: Convert::from_pb(pb.content).at("content")?,
            metadata: Convert::from_pb(pb.metadata).at("metadata")?,
            extensions: pb.extensions,
            reference_task_ids: Vec::new(),
        };
        Ok(upgrade::settle(message))
    }
}

impl Convert<pb::Part> for Part {
    fn to_pb(&self) -> Result<pb::Part, Mismatch> {
        let mut leftover = Leftover::default();
        let form = files::current().unwrap_or_default();
        if matches!(self.content, Content::Text(_) | Content::Data(_)) {
            // Only files have a name and a type in v0.3.
            leftover.filename = self.filename.as_deref().map(Into::into);
            leftover.media_type = self.media_type.as_deref().map(Into::into);
        }
        let mut wrapped = false;
        let part = match &self.content {
            Content::Text(text) => pb::part::Part::Text(text.clone()),
            Content::Raw(content) => {
                leftover.base64 = files::mark(content, self.media_type.as_deref(), form);
                let written = match files::write(content, form) {
                    Cow::Borrowed(_) => content.clone(),
                    Cow::Owned(text) => text.into(),
                };
                file(self, pb::file_part::File::FileWithBytes(written))
            }
            Content::Url(url) => file(self, pb::file_part::File::FileWithUri(url.clone())),
            Content::Data(value) => {
                wrapped = !value.is_object();
                if wrapped || is_wrapped(&self.metadata, value) {
                    leftover.set_aside(DATA_PART_COMPAT, &self.metadata);
                }
                pb::part::Part::Data(pb::DataPart { data: Some(data(value).at("data")?) })
            }
        };
        let metadata = WireMetadata { wrapped, ..WireMetadata::new(&self.metadata, leftover) };
        Ok(pb::Part { metadata: wire(&metadata).at("metadata")?, part: Some(part) })
    }

    fn from_pb(pb: pb::Part) -> Result<Self, Mismatch> {
        let (mut filename, mut media_type) = (None, None);
        let content = match pb.part {
            Some(pb::part::Part::Text(text)) => Some(Content::Text(text)),
            Some(pb::part::Part::File(file)) => {
                filename = Some(file.name);
                media_type = Some(file.mime_type);
                file.file.map(|file| match file {
                    pb::file_part::File::FileWithUri(uri) => Content::Url(uri),
                    pb::file_part::File::FileWithBytes(bytes) => Content::Raw(bytes),
                })
            }
            Some(pb::part::Part::Data(part)) => {
                let data: Metadata = Convert::from_pb(part.data).at("data")?;
                Some(Content::Data(data.to_json()))
            }
            None => None,
        };
        let content = content.ok_or_else(|| {
            Mismatch::new("none of text, file, data; expected exactly one, with its content")
        })?;
        let metadata = Convert::from_pb(pb.metadata).at("metadata")?;
        let mut part = Self { content, metadata, filename, media_type };
        shape::settle(&mut part, true, Some(files::current().unwrap_or_default()));
        Ok(part)
    }
}

fn file(part: &Part, file: pb::file_part::File) -> pb::part::Part {
    pb::part::Part::File(pb::FilePart {
        mime_type: part.media_type.clone().unwrap_or_default(),
        name: part.filename.clone().unwrap_or_default(),
        file: Some(file),
    })
}

/// The data of a data part: an object in v0.3, so any other value is wrapped (REQ-204).
fn data(value: &Json) -> Result<Struct, Mismatch> {
    if value.is_object() {
        return Metadata::from_object(value.clone()).to_pb();
    }
    Struct::of_member("value", value)
}

/// The metadata with the leftover added.
fn wire(metadata: &WireMetadata<'_>) -> Result<Option<Struct>, Mismatch> {
    if metadata.leftover.is_empty() && !metadata.wrapped {
        return metadata.metadata.to_pb();
    }
    let members = Metadata::from_serialize(metadata).map_err(|error| Mismatch::new(error.to_string()))?;
    members.to_pb().map(Some)
}
