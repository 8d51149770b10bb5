//! Members that v0.3 cannot express travel in the nearest metadata under our own key, so that downgrading
//! and upgrading again is the identity. Only messages and parts need it: all members of tasks, artifacts,
//! statuses and updates exist in v0.3.
//!
//! If metadata already has one of the keys used here, the original value moves into the leftover meanwhile.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap as _};

pub use crate::metadata::LEFTOVER;
use crate::{Json, Metadata, Role, TaskId};

/// The flag of a convention that a2a-python, a2a-js and a2a-go share, for data that is not an object
/// (REQ-204).
pub(super) const DATA_PART_COMPAT: &str = "data_part_compat";

/// The members that v0.3 does not have.
#[derive(Default, Serialize, Deserialize)]
// Strict, so that a peer's own data under our key stays unchanged.
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Leftover<'a> {
    /// Of a text or data part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<Cow<'a, str>>,
    /// Of a text or data part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<Cow<'a, str>>,
    /// Of a message in the REST form.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) reference_task_ids: Cow<'a, [TaskId]>,
    /// Of a message, if the form does not have the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<Role>,
    /// Of a file in the protobuf forms: true for base64 text, false for the content itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<bool>,
    /// Members of the metadata that have the same keys as our own.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(super) metadata: Metadata,
}

impl Leftover<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.filename.is_none()
            && self.media_type.is_none()
            && self.reference_task_ids.is_empty()
            && self.role.is_none()
            && self.base64.is_none()
            && self.metadata.is_empty()
    }

    /// Moves a member of the metadata into the leftover, if it exists.
    pub(super) fn set_aside(&mut self, key: &str, metadata: &Metadata) {
        if let Some(value) = metadata.get(key) {
            self.metadata.insert(key, value);
        }
    }
}

/// Metadata with our own members added, as sent.
pub(super) struct WireMetadata<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) leftover: Leftover<'a>,
    /// True if the data of this part is wrapped.
    pub(super) wrapped: bool,
}

impl<'a> WireMetadata<'a> {
    pub(super) fn new(metadata: &'a Metadata, mut leftover: Leftover<'a>) -> Self {
        leftover.set_aside(LEFTOVER, metadata);
        Self { metadata, leftover, wrapped: false }
    }
}

impl Serialize for WireMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (key, value) in self.metadata {
            if !self.leftover.metadata.contains_key(&key) {
                object.serialize_entry(&key, value)?;
            }
        }
        if self.wrapped {
            object.serialize_entry(DATA_PART_COMPAT, &true)?;
        }
        if !self.leftover.is_empty() {
            object.serialize_entry(LEFTOVER, &self.leftover)?;
        }
        object.end()
    }
}

/// Removes the leftover from received metadata. The caller restores its `metadata`.
pub(super) fn take(metadata: &mut Metadata) -> Leftover<'static> {
    // An array would be decoded as a struct by position, and an empty object has no content: neither is
    // ours.
    let value = metadata.get(LEFTOVER).filter(Json::is_object);
    let leftover = value.and_then(|value| value.get::<Leftover<'static>>().ok());
    let leftover = leftover.filter(|leftover| !leftover.is_empty());
    let Some(leftover) = leftover else { return Leftover::default() };
    metadata.remove(LEFTOVER);
    leftover
}

/// True if `data` with this metadata is wrapped.
pub(super) fn is_wrapped(metadata: &Metadata, data: &Json) -> bool {
    let flag = metadata.get(DATA_PART_COMPAT).is_some_and(|flag| flag.as_str() == "true");
    flag && data.only_member("value").is_some()
}
