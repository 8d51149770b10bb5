//! Errors as `google.rpc.Status`.

use std::time::Duration;

use nuncio_protocol::{
    Error, ErrorKind,
    pb::{decode_status, encode_status, kind_from_grpc},
};
use serde_json::json;

fn there_and_back(error: &Error) -> Error {
    // The code and the message say nothing here, so the bytes must say it all.
    decode_status(2, error.message(), &encode_status(error))
}

#[test]
fn every_kind_survives_by_its_reason() {
    // REQ-065
    for row in ErrorKind::TABLE {
        let error = Error::new(row.kind, "words").with_metadata("taskId", "t-1");
        let again = there_and_back(&error);
        assert_eq!(again.kind(), row.kind);
        assert_eq!(again.message(), "words");
        assert_eq!(again.metadata(), error.metadata());
        assert_eq!(again.details(), error.details());
    }
}

#[test]
fn the_bytes_are_those_of_google_rpc_status() {
    let mut expected = b"\x08\x05\x12\x0etask not found\x1a\x4e".to_vec();
    expected.extend(b"\x0a\x28type.googleapis.com/google.rpc.ErrorInfo\x12\x22");
    expected.extend(b"\x0a\x0eTASK_NOT_FOUND\x12\x10a2a-protocol.org");
    let bytes = encode_status(&Error::from(ErrorKind::TaskNotFound));
    assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn wrong_fields_and_the_wait_survive() {
    let error = Error::invalid_field("message.parts", "at least one part")
        .with_retry_after(Duration::from_millis(1500));
    let again = there_and_back(&error);
    assert_eq!(again.violations(), error.violations());
    assert_eq!(again.retry_after(), Some(Duration::from_millis(1500)));
}

#[test]
fn details_of_others_are_passed_on() {
    for detail in [
        json!({"@type": "type.googleapis.com/acme.Quota", "left": 3, "names": ["a", null]}),
        json!({"@type": "type.googleapis.com/acme.Opaque", "value": "AQID"}),
        json!({"@type": "type.googleapis.com/acme.Text", "value": "ab"}),
        json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": 1}}),
        json!({"@type": "type.googleapis.com/google.protobuf.Value", "value": "text"}),
        json!({"@type": "type.googleapis.com/google.protobuf.Value", "value": null}),
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "QUOTA", "domain": "acme.example"}),
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "QUOTA", "domain": "acme.example",
            "metadata": {"task_id": "t"}}),
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "ODD", "domain": "acme.example",
            "metadata": {"left": 3}}),
    ] {
        let error = Error::from_details(ErrorKind::Internal, "no", vec![detail.clone()]);
        assert!(there_and_back(&error).details().contains(&detail), "{detail}");
    }
}

#[test]
fn without_a_reason_the_code_decides() {
    // Trap T-18
    for (code, kind) in [
        (5, ErrorKind::TaskNotFound),
        (9, ErrorKind::UnsupportedOperation),
        (12, ErrorKind::MethodNotFound),
        (14, ErrorKind::Unavailable),
        (0, ErrorKind::Internal),
        (-7, ErrorKind::Internal),
    ] {
        assert_eq!(kind_from_grpc(code), kind);
        for bytes in [&b""[..], b"\xff\xff"] {
            assert_eq!(decode_status(code, "no", bytes).kind(), kind);
        }
    }
}
