//! Bytes from anybody: an error perhaps, a panic never.

use bytes::Bytes;
use nuncio_protocol::{ErrorKind, op::Op, pb, v03};
use proptest::{collection, prelude::*, sample::Index};

use crate::strategies as any;

fn read_everything(bytes: &Bytes) {
    for row in Op::TABLE {
        let _ = pb::decode_call(row.op, bytes.clone());
        let _ = pb::decode_reply(row.op, bytes.clone());
        let _ = v03::pb::decode_call(row.op, bytes.clone());
        let _ = v03::pb::decode_reply(row.op, bytes.clone());
    }
    let _ = pb::decode_event(bytes.clone());
    let _ = pb::decode_status(2, "", bytes);
    let _ = v03::pb::decode_event(bytes.clone());
    let _ = v03::pb::decode_status(2, "", bytes);
}

proptest! {
    #[test]
    fn random_bytes(bytes in collection::vec(any::<u8>(), 0..256)) {
        read_everything(&bytes.into());
    }

    #[test]
    fn broken_messages(event in any::event(), end in any::<Index>(), at in any::<Index>(), flip in 1_u8..) {
        for encode in [pb::encode_event, v03::pb::encode_event] {
            let mut bytes = Vec::new();
            encode(&event, &mut bytes).unwrap();
            let whole = Bytes::from(bytes.clone());
            read_everything(&whole.slice(..end.index(whole.len())));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            read_everything(&bytes.into());
        }
    }
}

#[test]
fn bytes_that_are_no_message_are_a_parse_error() {
    let bytes = Bytes::from_static(b"\xff\xff\xff");
    let error = pb::decode_call(Op::SendMessage, bytes.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ParseError);
    assert!(error.message().starts_with("invalid protobuf payload: "), "{error}");
    let error = pb::decode_event(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
}

#[test]
fn nesting_without_end_is_an_error() {
    // `Part.data` of a message: a list in a list, and so on, more often than any stack could hold.
    let mut bytes: Vec<u8> = Vec::new();
    let wrap = |field: u8, inner: &[u8]| {
        let mut outer = vec![field << 3 | 2];
        prost::encode_length_delimiter(inner.len(), &mut outer).unwrap();
        outer.extend_from_slice(inner);
        outer
    };
    for _ in 0..2_000 {
        bytes = wrap(6, &wrap(1, &bytes));
    }
    for field in [4, 5, 2] {
        bytes = wrap(field, &bytes);
    }
    let error = pb::decode_event(bytes.into()).unwrap_err();
    assert!(error.message().contains("recursion limit"), "{error}");
}
