//! Errors of v0.3 gRPC. The specification gives them no form. We write the same `google.rpc.Status` as in
//! v1.0; servers of the time put the name of the error before the message, so that is read, too (fact
//! sheet 5.3).

use serde_json::Value;

pub use crate::pb::encode_status;
use crate::{
    Error, ErrorKind,
    pb::{decode_status_or, kind_from_grpc},
    v03::error::class,
};

/// Client: the error of an answer's trailers: by its reason, else by the name in the message, else by the
/// code. `bytes` may be empty or anything at all.
#[must_use]
pub fn decode_status(code: i32, message: &str, bytes: &[u8]) -> Error {
    let kind = class(&Value::from(message)).unwrap_or_else(|| kind_from_code(code));
    decode_status_or(kind, message, bytes)
}

/// UNIMPLEMENTED was the answer to much that an agent will not do.
fn kind_from_code(code: i32) -> ErrorKind {
    const UNIMPLEMENTED: i32 = 12;
    if code == UNIMPLEMENTED { ErrorKind::UnsupportedOperation } else { kind_from_grpc(code) }
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
        ] {
            let error = decode_status(code, message, b"");
            assert_eq!((error.kind(), error.message()), (kind, message));
        }
    }

    #[test]
    fn the_reason_decides_before_the_name() {
        let bytes = encode_status(&Error::from(ErrorKind::VersionNotSupported));
        assert_eq!(decode_status(2, "TaskNotFoundError: no", &bytes).kind(), ErrorKind::VersionNotSupported);
    }
}
