//! The limit on lists in requests: an empty part takes two bytes on the wire and two hundred in memory.

use bytes::{Buf as _, Bytes};
use prost::encoding::{self, DecodeContext, WireType};

use crate::{
    Error, ErrorKind, Result,
    lenient::{LIST_TOO_LONG, MAX_LIST},
};

/// Returns the request if no message at these paths has more than [`MAX_LIST`] fields. A path has the field
/// numbers that lead to a message with lists. Free-form data is not checked.
///
/// # Errors
/// `InvalidParams` if a list is longer.
pub(crate) fn check_lists(request: Bytes, paths: &[&[u32]]) -> Result<Bytes> {
    // A field takes at least two bytes: nearly every request is too small to have that many.
    let is_short = request.len() <= 2 * MAX_LIST;
    if is_short || paths.iter().all(|path| count_fields(request.clone(), path) <= MAX_LIST) {
        return Ok(request);
    }
    Err(Error::new(ErrorKind::InvalidParams, LIST_TOO_LONG))
}

/// The number of fields of all messages at this path. Invalid bytes end the count: decoding refuses them
/// later.
fn count_fields(mut message: Bytes, path: &[u32]) -> usize {
    let mut count = 0;
    while message.has_remaining() {
        let Ok((field, wire_type)) = encoding::decode_key(&mut message) else { break };
        match path {
            [] => count += 1,
            [first, rest @ ..] if field == *first && wire_type == WireType::LengthDelimited => {
                let Ok(length) = encoding::decode_varint(&mut message) else { break };
                let Some(length) = usize::try_from(length).ok().filter(|length| *length <= message.len())
                else {
                    break;
                };
                count += count_fields(message.split_to(length), rest);
                continue;
            }
            _ => {}
        }
        if encoding::skip_field(wire_type, field, &mut message, DecodeContext::default()).is_err() {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::{
        op::Op,
        pb::{decode_call, generated as pb},
    };

    fn request(parts: usize, data: usize) -> Bytes {
        let part = pb::Part { content: Some(pb::part::Content::Text(String::new())), ..pb::Part::default() };
        let data = pb::Part {
            content: Some(pb::part::Content::Raw([0x0a, 0x00].repeat(data).into())),
            ..pb::Part::default()
        };
        let parts = std::iter::repeat_n(part, parts).chain([data]).collect();
        let message = Some(pb::Message { message_id: "m".to_owned(), parts, ..pb::Message::default() });
        pb::SendMessageRequest { message, ..pb::SendMessageRequest::default() }.encode_to_vec().into()
    }

    #[test]
    fn a_request_with_an_endless_list_is_refused_before_it_is_decoded() {
        let refused = decode_call(Op::SendMessage, request(MAX_LIST + 1, 0)).unwrap_err();
        assert_eq!((refused.kind(), refused.message()), (ErrorKind::InvalidParams, LIST_TOO_LONG));
    }

    #[test]
    fn a_large_file_is_not_taken_for_a_list() {
        assert!(decode_call(Op::SendMessage, request(1, 2 * MAX_LIST)).is_ok());
    }
}
