//! A second opinion: the JSON form, read by a ProtoJSON parser that knows only the descriptors.

use std::sync::LazyLock;

use nuncio_protocol::pb::DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTOR_SET).expect("the descriptors are generated"));

fn dynamic(name: &str, json: &str) -> DynamicMessage {
    let descriptor = POOL.get_message_by_name(name).expect("a message of the descriptors");
    let mut reader = serde_json::Deserializer::from_str(json);
    DynamicMessage::deserialize(descriptor, &mut reader)
        .unwrap_or_else(|error| panic!("{name}: {error}\n{json}"))
}

/// The bytes that this JSON has as the message `P`, in the order of fields and keys that we write.
pub(crate) fn bytes_of<P: Message + Default>(name: &str, json: &str) -> Vec<u8> {
    let bytes = dynamic(name, json).encode_to_vec();
    P::decode(&*bytes).expect("the same message").encode_to_vec()
}

/// The ProtoJSON of these bytes.
pub(crate) fn json_of(name: &str, bytes: &[u8]) -> String {
    let descriptor = POOL.get_message_by_name(name).expect("a message of the descriptors");
    let message = DynamicMessage::decode(descriptor, bytes).expect("the same message");
    serde_json::to_string(&message).expect("JSON")
}
