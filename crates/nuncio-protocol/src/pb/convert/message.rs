//! Messages and their parts.

use super::{Convert, InField as _, Mismatch, convert, required};
use crate::{
    Content, Part,
    pb::{generated as pb, well_known::Struct},
};

convert! {
    Message => pb::Message {
        message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids,
    }
}

required! {
    Message => pb::Message;
}

impl Convert<pb::Part> for Part {
    fn to_pb(&self) -> Result<pb::Part, Mismatch> {
        let content = match &self.content {
            Content::Text(text) => pb::part::Content::Text(text.clone()),
            // The bytes are shared, not copied.
            Content::Raw(bytes) => pb::part::Content::Raw(bytes.clone()),
            Content::Url(url) => pb::part::Content::Url(url.clone()),
            Content::Data(value) => pb::part::Content::Data(value.to_pb().at("data")?),
        };
        Ok(pb::Part {
            metadata: Convert::<Option<Struct>>::to_pb(&self.metadata).at("metadata")?,
            filename: Convert::<String>::to_pb(&self.filename)?,
            media_type: Convert::<String>::to_pb(&self.media_type)?,
            content: Some(content),
        })
    }

    fn from_pb(pb: pb::Part) -> Result<Self, Mismatch> {
        let content = match pb.content {
            Some(pb::part::Content::Text(text)) => Content::Text(text),
            Some(pb::part::Content::Raw(bytes)) => Content::Raw(bytes),
            Some(pb::part::Content::Url(url)) => Content::Url(url),
            Some(pb::part::Content::Data(value)) => Content::Data(Convert::from_pb(value).at("data")?),
            None => return Err(Mismatch::new("none of text, raw, url, data; expected exactly one")),
        };
        Ok(Self {
            content,
            metadata: Convert::from_pb(pb.metadata).at("metadata")?,
            filename: Convert::from_pb(pb.filename)?,
            media_type: Convert::from_pb(pb.media_type)?,
        })
    }
}
