//! Our error as a `google.rpc.Status` (spec 10.6): the bytes of the `grpc-status-details-bin` trailer.
//!
//! The three detail messages are small and never change, so they are declared here by hand, and
//! `google/rpc/*.proto` is not a dependency. Both versions use this form; v0.3 does not define its own.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;
use prost_types::Any;
use serde_json::{Map, Value, json};

use super::{convert::Convert as _, well_known};
use crate::{
    ERROR_DOMAIN, Error, ErrorKind, GrpcCode, Json, Metadata,
    error::{STRUCT, VALUE},
    lenient::decode_base64,
};

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`: the reason, for programs.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`: the wrong fields.
#[derive(Clone, PartialEq, Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    field_violations: Vec<RpcFieldViolation>,
}

/// `google.rpc.BadRequest.RpcFieldViolation`.
#[derive(Clone, PartialEq, Message)]
struct RpcFieldViolation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

/// `google.rpc.RetryInfo`: the time of a retry.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// A detail with a known type.
trait Detail: Message + Default {
    const TYPE_URL: &str;

    fn pack(&self) -> Any {
        Any { type_url: Self::TYPE_URL.to_owned(), value: self.encode_to_vec() }
    }
}

impl Detail for ErrorInfo {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";
}

impl Detail for BadRequest {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.BadRequest";
}

impl Detail for RetryInfo {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.RetryInfo";
}

/// Server: encodes the error as the bytes of a `google.rpc.Status`.
#[must_use]
pub fn encode_status(error: &Error) -> Vec<u8> {
    encode_status_as(error.kind().row().grpc, error)
}

/// Like [`encode_status`], with the code of another version.
pub(crate) fn encode_status_as(code: GrpcCode, error: &Error) -> Vec<u8> {
    let row = error.kind().row();
    let info = ErrorInfo {
        reason: row.reason.to_owned(),
        domain: ERROR_DOMAIN.to_owned(),
        metadata: error.metadata().clone(),
    };
    let mut details = vec![info.pack()];
    if !error.violations().is_empty() {
        details.push(bad_request(error).pack());
    }
    if let Some(after) = error.retry_after() {
        // A wait beyond the range of protobuf becomes the maximum.
        let retry_delay = after.try_into().unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
        details.push(RetryInfo { retry_delay: Some(retry_delay) }.pack());
    }
    details.extend(error.foreign_details().iter().filter_map(pack_foreign));
    Status { code: code.number, message: error.message().to_owned(), details }.encode_to_vec()
}

fn bad_request(error: &Error) -> BadRequest {
    let violation = |violation: &crate::FieldViolation| RpcFieldViolation {
        field: violation.field.clone(),
        description: violation.description.clone(),
    };
    BadRequest { field_violations: error.violations().iter().map(violation).collect() }
}

/// Encodes a detail of an upstream error: as its own type if that is known, as bytes if it arrived as
/// bytes, else as JSON in a `Struct`.
fn pack_foreign(detail: &Value) -> Option<Any> {
    let type_url = detail["@type"].as_str().unwrap_or_default();
    let members = detail.as_object()?;
    if type_url == ErrorInfo::TYPE_URL
        && let Some(info) = exact_info(members)
    {
        return Some(info.pack());
    }
    if let (2, Some(value)) = (members.len(), members.get("value")) {
        if type_url == VALUE {
            let value: well_known::Value = Json::from(value.clone()).to_pb().ok()?;
            return Some(Any { type_url: type_url.to_owned(), value: value.encode_to_vec() });
        }
        // Only canonical base64: any other text is text.
        if let Value::String(text) = value
            && let Ok(bytes) = decode_base64(text)
            && STANDARD.encode(&bytes) == *text
        {
            return Some(Any { type_url: type_url.to_owned(), value: bytes.to_vec() });
        }
    }
    // A detail that protobuf cannot express is left out, so that the error itself does not fail.
    let members: well_known::Struct = Metadata::from(members.clone()).to_pb().ok()?;
    Some(Any { type_url: STRUCT.to_owned(), value: members.encode_to_vec() })
}

/// An `ErrorInfo` of another domain; `None` if it has data that the message cannot express.
fn exact_info(members: &Map<String, Value>) -> Option<ErrorInfo> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let metadata = match members.get("metadata") {
        Some(metadata) => {
            let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            metadata
                .as_object()
                .filter(|metadata| !metadata.is_empty())?
                .iter()
                .map(pair)
                .collect::<Option<_>>()?
        }
        None => BTreeMap::new(),
    };
    let info = ErrorInfo { reason: text("reason")?, domain: text("domain")?, metadata };
    let count = if info.metadata.is_empty() { 3 } else { 4 };
    (members.len() == count).then_some(info)
}

/// Client: decodes the error of an answer's trailers. `bytes` may be empty or invalid; then the code alone
/// decides.
#[must_use]
pub fn decode_status(code: i32, message: &str, bytes: &[u8]) -> Error {
    decode_status_or(kind_from_grpc(code), message, bytes)
}

/// Like [`decode_status`], with the kind for an error without a reason.
pub(crate) fn decode_status_or(fallback: ErrorKind, message: &str, bytes: &[u8]) -> Error {
    let details = Status::decode(bytes).map(|status| status.details).unwrap_or_default();
    let retry_after = details.iter().find_map(retry_after);
    let json = details.iter().filter_map(unpack).collect();
    let error = Error::from_details(fallback, message, json);
    match retry_after {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}

/// The message inside of a status, if any.
pub(crate) fn status_message(bytes: &[u8]) -> Option<String> {
    Status::decode(bytes).ok().map(|status| status.message).filter(|message| !message.is_empty())
}

/// Decodes a detail as JSON, the form in which [`Error`] stores it.
fn unpack(detail: &Any) -> Option<Value> {
    match detail.type_url.as_str() {
        ErrorInfo::TYPE_URL => {
            let info = ErrorInfo::decode(&*detail.value).ok()?;
            let is_ours = info.domain == ERROR_DOMAIN;
            let spelled = |key| if is_ours { spelled_as_ours(key) } else { key };
            let metadata: Map<String, Value> =
                info.metadata.into_iter().map(|(key, value)| (spelled(key), value.into())).collect();
            let mut json = json!({ "@type": detail.type_url, "reason": info.reason, "domain": info.domain });
            if !metadata.is_empty() {
                json["metadata"] = metadata.into();
            }
            Some(json)
        }
        BadRequest::TYPE_URL => {
            let request = BadRequest::decode(&*detail.value).ok()?;
            let violation = |violation: RpcFieldViolation| json!({ "field": violation.field, "description": violation.description });
            let violations: Vec<Value> = request.field_violations.into_iter().map(violation).collect();
            Some(json!({ "@type": detail.type_url, "fieldViolations": violations }))
        }
        RetryInfo::TYPE_URL => None,
        STRUCT => {
            let members = well_known::Struct::decode(&*detail.value).ok()?;
            let members: Map<String, Value> = Metadata::from_pb(members).ok()?.to_json().get().ok()?;
            Some(if members.contains_key("@type") {
                Value::Object(members)
            } else {
                json!({ "@type": STRUCT, "value": members })
            })
        }
        VALUE => {
            let value = well_known::Value::decode(&*detail.value).ok()?;
            let value: Value = Json::from_pb(value).ok()?.get().ok()?;
            Some(json!({ "@type": VALUE, "value": value }))
        }
        _ => Some(json!({ "@type": detail.type_url, "value": STANDARD.encode(&detail.value) })),
    }
}

/// Trap T-45: the specification's gRPC sample spells this key differently from its JSON samples.
fn spelled_as_ours(key: String) -> String {
    if key == "task_id" { "taskId".to_owned() } else { key }
}

fn retry_after(detail: &Any) -> Option<Duration> {
    if detail.type_url != RetryInfo::TYPE_URL {
        return None;
    }
    RetryInfo::decode(&*detail.value).ok()?.retry_delay?.try_into().ok()
}

/// The kind of an error without a reason, by its gRPC status: a best guess, because several kinds share one
/// status.
#[must_use]
pub fn kind_from_grpc(code: i32) -> ErrorKind {
    match code {
        // INVALID_ARGUMENT, ALREADY_EXISTS, OUT_OF_RANGE
        3 | 6 | 11 => ErrorKind::InvalidParams,
        // DEADLINE_EXCEEDED
        4 => ErrorKind::DeadlineExceeded,
        // NOT_FOUND
        5 => ErrorKind::TaskNotFound,
        // PERMISSION_DENIED
        7 => ErrorKind::PermissionDenied,
        // RESOURCE_EXHAUSTED
        8 => ErrorKind::ResourceExhausted,
        // FAILED_PRECONDITION
        9 => ErrorKind::UnsupportedOperation,
        // CANCELLED, ABORTED, UNAVAILABLE
        1 | 10 | 14 => ErrorKind::Unavailable,
        // UNIMPLEMENTED
        12 => ErrorKind::MethodNotFound,
        // UNAUTHENTICATED
        16 => ErrorKind::Unauthenticated,
        // UNKNOWN, INTERNAL, DATA_LOSS, and unknown codes
        _ => ErrorKind::Internal,
    }
}
