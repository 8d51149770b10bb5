//! Errors of v0.3 over gRPC. The specification does not define their form. We send the same
//! `google.rpc.Status` as in v1.0, with the code by which SDKs of v0.3 recognise an error, and with the
//! name of its class before the message, as servers of v0.3 do (protocol-notes.md, Errors). Both are
//! decoded.
//!
//! | error | Go | JavaScript | Python, Java | ours |
//! |---|---|---|---|---|
//! | TaskNotFound | NOT_FOUND | NOT_FOUND | NOT_FOUND | NOT_FOUND |
//! | TaskNotCancelable | FAILED_PRECONDITION | FAILED_PRECONDITION | UNIMPLEMENTED | FAILED_PRECONDITION |
//! | PushNotificationNotSupported, UnsupportedOperation | UNIMPLEMENTED | UNIMPLEMENTED | UNIMPLEMENTED | UNIMPLEMENTED |
//! | ContentTypeNotSupported | INVALID_ARGUMENT | INVALID_ARGUMENT | UNIMPLEMENTED | INVALID_ARGUMENT |
//! | InvalidAgentResponse, Internal | INTERNAL | INTERNAL | INTERNAL | INTERNAL |
//! | ExtendedAgentCardNotConfigured | NOT_FOUND | FAILED_PRECONDITION | UNKNOWN | FAILED_PRECONDITION |
//! | InvalidRequest, InvalidParams | INVALID_ARGUMENT | INVALID_ARGUMENT | INVALID_ARGUMENT | INVALID_ARGUMENT |
//! | MethodNotFound | UNIMPLEMENTED | UNKNOWN | NOT_FOUND | UNIMPLEMENTED |
//! | ParseError | INTERNAL | UNKNOWN | INTERNAL | INVALID_ARGUMENT: the caller's fault, and no client knows it by a code |
//! | VersionNotSupported, ExtensionSupportRequired | none | none | none | UNIMPLEMENTED: FAILED_PRECONDITION means TaskNotCancelable to Go and JavaScript |
//!
//! The Python 1.x and Java clients recognise an error by the class in the message, the Go and JavaScript
//! clients by the code. a2a-go 2.x with v0.3 expects the code of v1.0 beside the reason: see
//! [`codec`](super::codec).

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    Error, ErrorKind, GrpcCode,
    error::UNIMPLEMENTED,
    pb::{decode_status_or, encode_status_as, kind_from_grpc, status_message as message_inside},
    v03::error::{class, class_name},
};

/// Server: the status code of an error in v0.3.
#[must_use]
pub fn status_code(kind: ErrorKind) -> GrpcCode {
    match kind {
        ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported => UNIMPLEMENTED,
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ParseError
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::Unavailable
        | ErrorKind::PayloadTooLarge
        | ErrorKind::DeadlineExceeded => kind.row().grpc,
    }
}

/// Server: the message of a status, with the name of the error's class before it.
#[must_use]
pub fn status_message(error: &Error) -> Cow<'_, str> {
    match class_name(error.kind()) {
        Some(name) => format!("{name}: {}", error.message()).into(),
        None => error.message().into(),
    }
}

/// Server: encodes the error as the bytes of a `google.rpc.Status`.
#[must_use]
pub fn encode_status(error: &Error) -> Vec<u8> {
    encode_status_as(status_code(error.kind()), error)
}

/// Client: decodes the error of an answer's trailers: by its reason, else by the class in the message, else
/// by the code. `bytes` may be empty or invalid.
#[must_use]
pub fn decode_status(code: i32, message: &str, bytes: &[u8]) -> Error {
    let class = class(&Value::from(message));
    let kind = class.unwrap_or_else(|| kind_from_code(code));
    // Nuncio sends the class before the message, and the message alone inside of the status.
    let inside = message_inside(bytes).filter(|inside| {
        let name = message.strip_suffix(inside.as_str()).and_then(|head| head.strip_suffix(": "));
        class.is_some() && name.is_some() && name == class.and_then(class_name)
    });
    decode_status_or(kind, inside.as_deref().unwrap_or(message), bytes)
}

/// The kind of an error by its code: v0.3 servers used UNIMPLEMENTED for many refusals, and
/// FAILED_PRECONDITION for a cancel that was too late.
fn kind_from_code(code: i32) -> ErrorKind {
    const FAILED_PRECONDITION: i32 = 9;
    match code {
        FAILED_PRECONDITION => ErrorKind::TaskNotCancelable,
        _ if code == UNIMPLEMENTED.number => ErrorKind::UnsupportedOperation,
        _ => kind_from_grpc(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_the_message_decides_before_the_code() {
        for (code, message, kind) in [
            (12, "TaskNotFoundError: no such task", ErrorKind::TaskNotFound),
            (12, "InvalidParamsError: no", ErrorKind::InvalidParams),
            (
                12,
                "AuthenticatedExtendedCardNotConfiguredError: no",
                ErrorKind::ExtendedAgentCardNotConfigured,
            ),
            (12, "SomeOtherError: no", ErrorKind::UnsupportedOperation),
            (5, "gone", ErrorKind::TaskNotFound),
            (9, "too late", ErrorKind::TaskNotCancelable),
        ] {
            let error = decode_status(code, message, b"");
            assert_eq!((error.kind(), error.message()), (kind, message));
        }
    }

    #[test]
    fn codes_are_those_of_the_sdks() {
        // a2a-go 0.3.15, a2a-js 0.3.14, a2a-python 0.3.26 and a2a-java 0.3.3; see the table above.
        let expected = "\
            -32001 NOT_FOUND\n-32002 FAILED_PRECONDITION\n-32003 UNIMPLEMENTED\n-32004 UNIMPLEMENTED\n\
            -32005 INVALID_ARGUMENT\n-32006 INTERNAL\n-32007 FAILED_PRECONDITION\n-32008 UNIMPLEMENTED\n\
            -32009 UNIMPLEMENTED\n-32700 INVALID_ARGUMENT\n-32600 INVALID_ARGUMENT\n-32601 UNIMPLEMENTED\n\
            -32602 INVALID_ARGUMENT\n-32603 INTERNAL\n-32050 UNAUTHENTICATED\n-32051 PERMISSION_DENIED\n\
            -32052 RESOURCE_EXHAUSTED\n-32053 UNAVAILABLE\n-32054 RESOURCE_EXHAUSTED\n-32055 DEADLINE_EXCEEDED\n";
        let ours: String = ErrorKind::TABLE
            .iter()
            .map(|row| format!("{} {}\n", row.code, status_code(row.kind).name))
            .collect();
        assert_eq!(ours, expected);
    }

    #[test]
    fn what_we_write_is_read_with_codes_of_either_version() {
        for row in ErrorKind::TABLE {
            let error = Error::new(row.kind, "no: not today");
            let message = status_message(&error);
            for (code, bytes) in
                [(status_code(row.kind), encode_status(&error)), (row.grpc, crate::pb::encode_status(&error))]
            {
                let again = decode_status(code.number, &message, &bytes);
                assert_eq!((again.kind(), again.message()), (row.kind, "no: not today"));
            }
        }
    }

    #[test]
    fn the_reason_decides_before_the_name() {
        let bytes = encode_status(&Error::from(ErrorKind::VersionNotSupported));
        assert_eq!(decode_status(2, "TaskNotFoundError: no", &bytes).kind(), ErrorKind::VersionNotSupported);
    }
}
