//! A second opinion: the JSON form, read by a ProtoJSON parser that knows only the descriptors.

use std::sync::LazyLock;

use nuncio_protocol::pb::DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTOR_SET).expect("the descriptors are generated"));

/// The message that this JSON means. What is set to its default is as unset as it is in bytes.
pub(crate) fn of_json(name: &str, json: &str) -> DynamicMessage {
    let descriptor = POOL.get_message_by_name(name).expect("a message of the descriptors");
    let mut reader = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(descriptor, &mut reader)
        .unwrap_or_else(|error| panic!("{name}: {error}\n{json}"));
    of_bytes(name, &message.encode_to_vec())
}

/// The message that these bytes are. Members of free-form data have no order in it.
pub(crate) fn of_bytes(name: &str, bytes: &[u8]) -> DynamicMessage {
    let descriptor = POOL.get_message_by_name(name).expect("a message of the descriptors");
    DynamicMessage::decode(descriptor, bytes).expect("the same message")
}

/// The ProtoJSON of these bytes.
pub(crate) fn json_of(name: &str, bytes: &[u8]) -> String {
    serde_json::to_string(&of_bytes(name, bytes)).expect("JSON")
}
