//! The error type of all crates, and the table of its codes in each binding (spec 5.4, error section of
//! docs/protocol-notes.md).

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::{Value, json};

/// `Result` with our [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The domain of every `ErrorInfo` (spec 9.5, 10.6, 11.6).
pub const ERROR_DOMAIN: &str = "a2a-protocol.org";

/// The member of `ErrorInfo.metadata` with which a hub states that a message was not delivered.
const DELIVERED: &str = "delivered";

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
/// Types of JSON without a known type: an object, and any value.
pub(crate) const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";
pub(crate) const VALUE: &str = "type.googleapis.com/google.protobuf.Value";

/// A gRPC status code with its name, which HTTP+JSON also writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrpcCode {
    /// The number.
    pub number: i32,
    /// The name in upper case.
    pub name: &'static str,
}

const fn grpc(number: i32, name: &'static str) -> GrpcCode {
    GrpcCode { number, name }
}

const INVALID_ARGUMENT: GrpcCode = grpc(3, "INVALID_ARGUMENT");
const DEADLINE_EXCEEDED: GrpcCode = grpc(4, "DEADLINE_EXCEEDED");
const NOT_FOUND: GrpcCode = grpc(5, "NOT_FOUND");
const PERMISSION_DENIED: GrpcCode = grpc(7, "PERMISSION_DENIED");
const RESOURCE_EXHAUSTED: GrpcCode = grpc(8, "RESOURCE_EXHAUSTED");
const FAILED_PRECONDITION: GrpcCode = grpc(9, "FAILED_PRECONDITION");
pub(crate) const UNIMPLEMENTED: GrpcCode = grpc(12, "UNIMPLEMENTED");
const INTERNAL: GrpcCode = grpc(13, "INTERNAL");
const UNAVAILABLE: GrpcCode = grpc(14, "UNAVAILABLE");
const UNAUTHENTICATED: GrpcCode = grpc(16, "UNAUTHENTICATED");

/// The codes and names of one kind of error on each binding.
#[derive(Clone, Copy, Debug)]
pub struct ErrorRow {
    /// The kind.
    pub kind: ErrorKind,
    /// JSON-RPC code.
    pub code: i32,
    /// HTTP status of the HTTP+JSON binding.
    pub http: u16,
    /// gRPC status.
    pub grpc: GrpcCode,
    /// `reason` of the `ErrorInfo`.
    pub reason: &'static str,
    /// The default message.
    pub message: &'static str,
}

macro_rules! error_table {
    ($($(#[$doc:meta])* $kind:ident $code:literal $http:literal $grpc:ident $reason:literal $message:literal;)+) => {
        /// Every kind of error.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)+
        }

        impl ErrorKind {
            /// The table: one row per kind.
            pub const TABLE: &[ErrorRow] = &[$(ErrorRow {
                kind: Self::$kind, code: $code, http: $http, grpc: $grpc, reason: $reason, message: $message,
            },)+];
        }
    };
}

error_table! {
    /// The task (or push configuration) does not exist, or the caller may not see it.
    TaskNotFound -32001 404 NOT_FOUND "TASK_NOT_FOUND" "task not found";
    /// The task has ended already.
    TaskNotCancelable -32002 400 FAILED_PRECONDITION "TASK_NOT_CANCELABLE" "task cannot be canceled";
    /// The agent does not support push notifications.
    PushNotificationNotSupported -32003 400 FAILED_PRECONDITION "PUSH_NOTIFICATION_NOT_SUPPORTED" "push notifications are not supported";
    /// The operation, or an aspect of it, is not available here.
    UnsupportedOperation -32004 400 FAILED_PRECONDITION "UNSUPPORTED_OPERATION" "this operation is not supported";
    /// A media type that the agent does not accept.
    ContentTypeNotSupported -32005 400 INVALID_ARGUMENT "CONTENT_TYPE_NOT_SUPPORTED" "content type not supported";
    /// The upstream agent answered with something that is not A2A.
    InvalidAgentResponse -32006 500 INTERNAL "INVALID_AGENT_RESPONSE" "invalid agent response";
    /// The card declares an extended card that does not exist.
    ExtendedAgentCardNotConfigured -32007 400 FAILED_PRECONDITION "EXTENDED_AGENT_CARD_NOT_CONFIGURED" "extended agent card is not configured";
    /// The caller did not declare an extension that the agent requires.
    ExtensionSupportRequired -32008 400 FAILED_PRECONDITION "EXTENSION_SUPPORT_REQUIRED" "a required extension was not declared";
    /// The interface does not support this version.
    VersionNotSupported -32009 400 FAILED_PRECONDITION "VERSION_NOT_SUPPORTED" "protocol version not supported";
    /// The body is not JSON.
    ParseError -32700 400 INVALID_ARGUMENT "PARSE_ERROR" "invalid JSON payload";
    /// The body is JSON, but not a request.
    InvalidRequest -32600 400 INVALID_ARGUMENT "INVALID_REQUEST" "request payload validation error";
    /// The method does not exist.
    MethodNotFound -32601 404 UNIMPLEMENTED "METHOD_NOT_FOUND" "method not found";
    /// The parameters are wrong.
    InvalidParams -32602 400 INVALID_ARGUMENT "INVALID_PARAMS" "invalid parameters";
    /// An internal failure.
    Internal -32603 500 INTERNAL "INTERNAL_ERROR" "internal error";
    /// No credentials, or wrong ones.
    Unauthenticated -32050 401 UNAUTHENTICATED "UNAUTHENTICATED" "authentication required";
    /// The credentials do not allow this.
    PermissionDenied -32051 403 PERMISSION_DENIED "PERMISSION_DENIED" "permission denied";
    /// A limit is reached; the request may succeed later.
    ResourceExhausted -32052 429 RESOURCE_EXHAUSTED "RESOURCE_EXHAUSTED" "a limit is reached";
    /// Temporarily unavailable: starting, draining, or a part is down.
    Unavailable -32053 503 UNAVAILABLE "UNAVAILABLE" "temporarily unavailable";
    /// The request is larger than allowed.
    PayloadTooLarge -32054 413 RESOURCE_EXHAUSTED "PAYLOAD_TOO_LARGE" "the request is too large";
    /// The caller's own deadline has passed.
    DeadlineExceeded -32055 504 DEADLINE_EXCEEDED "DEADLINE_EXCEEDED" "the deadline has passed";
}

/// The side that is at fault for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The caller: the same request will fail again.
    Caller,
    /// The upstream agent.
    Upstream,
    /// This server.
    Us,
}

impl ErrorKind {
    /// The row of the table.
    #[must_use]
    pub fn row(self) -> &'static ErrorRow {
        // The table is in the order of the variants; a test checks this.
        &Self::TABLE[self as usize]
    }

    /// Finds a kind by its JSON-RPC code.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.code == code).map(|row| row.kind)
    }

    /// Finds a kind by its `reason`.
    #[must_use]
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.reason == reason).map(|row| row.kind)
    }

    /// The HTTP status of a JSON-RPC answer: 200, except for errors about HTTP itself (trap T-36).
    #[must_use]
    pub fn jsonrpc_http_status(self) -> u16 {
        match self {
            Self::Unauthenticated
            | Self::PermissionDenied
            | Self::ResourceExhausted
            | Self::Unavailable
            | Self::PayloadTooLarge => self.row().http,
            _ => 200,
        }
    }

    /// The side at fault, unless the error itself sets another one.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::InvalidAgentResponse => Fault::Upstream,
            Self::Internal | Self::Unavailable => Fault::Us,
            _ => Fault::Caller,
        }
    }

    /// True if the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::ResourceExhausted | Self::Unavailable)
    }
}

/// A wrong field of a request, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field in JSON names, such as `message.parts[0]`.
    pub field: String,
    /// The expectation that the field does not meet.
    pub description: String,
}

/// An error: its message is for the caller, its source only for the log.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    /// `ErrorInfo.metadata`; public.
    metadata: BTreeMap<String, String>,
    violations: Vec<FieldViolation>,
    /// Unknown details of an upstream error; passed on.
    foreign: Vec<Value>,
    retry_after: Option<Duration>,
    /// The side at fault, if different from its kind's.
    fault: Option<Fault>,
    /// Never shown to a caller.
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            metadata: BTreeMap::new(),
            violations: Vec::new(),
            foreign: Vec::new(),
            retry_after: None,
            fault: None,
            source: None,
        }))
    }

    /// A task that does not exist or that the caller may not see: both give the same error (REQ-087).
    pub fn task_not_found(id: &crate::TaskId) -> Self {
        Self::from(ErrorKind::TaskNotFound).with_metadata("taskId", excerpt(id.as_str().to_owned()))
    }

    /// One field of the parameters is wrong.
    pub fn invalid_field(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::invalid_fields(vec![FieldViolation { field: field.into(), description: description.into() }])
    }

    /// Several fields of the parameters are wrong.
    pub fn invalid_fields(violations: Vec<FieldViolation>) -> Self {
        let mut message = String::from(ErrorKind::InvalidParams.row().message);
        for (i, violation) in violations.iter().enumerate() {
            message.push_str(if i == 0 { ": " } else { "; " });
            if !violation.field.is_empty() {
                message.push_str(&violation.field);
                message.push_str(": ");
            }
            message.push_str(&violation.description);
        }
        let mut error = Self::new(ErrorKind::InvalidParams, message);
        error.0.violations = violations;
        error
    }

    /// An internal failure: the caller gets no details, the log has the cause.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::from(ErrorKind::Internal).with_source(source)
    }

    /// Adds to the public `ErrorInfo.metadata`.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    /// Sets the cause, for the log.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The error with its words, and those about its fields, as `rewrite` has them.
    #[must_use]
    pub(crate) fn rewritten(mut self, rewrite: impl Fn(&str) -> Option<String>) -> Self {
        let descriptions = self.0.violations.iter_mut().map(|violation| &mut violation.description);
        for text in descriptions.chain([&mut self.0.message]) {
            if let Some(rewritten) = rewrite(text) {
                *text = rewritten;
            }
        }
        self
    }

    /// Sets the time after which the caller may retry.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Sets the side at fault, if it differs from the kind's.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = Some(fault);
        self
    }

    /// States that the message was not delivered, so that repeating it cannot duplicate it.
    #[must_use]
    pub fn undelivered(self) -> Self {
        self.with_metadata(DELIVERED, "false")
    }

    /// The side at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.0.fault.unwrap_or_else(|| self.kind().fault())
    }

    /// True if the message was certainly not delivered ([`Self::undelivered`]); false if that is unknown.
    #[must_use]
    pub fn is_undelivered(&self) -> bool {
        self.metadata().get(DELIVERED).is_some_and(|delivered| delivered == "false")
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The public `ErrorInfo.metadata`.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// The wrong fields.
    #[must_use]
    pub fn violations(&self) -> &[FieldViolation] {
        &self.0.violations
    }

    /// The time after which the caller may retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The typed details, for JSON-RPC (`error.data`) and HTTP+JSON (`error.details`).
    #[must_use]
    pub fn details(&self) -> Vec<Value> {
        let mut info =
            json!({ "@type": ERROR_INFO, "reason": self.kind().row().reason, "domain": ERROR_DOMAIN });
        if !self.0.metadata.is_empty() {
            info["metadata"] = json!(self.0.metadata);
        }
        let mut details = vec![info];
        if !self.0.violations.is_empty() {
            let fields: Vec<Value> = self
                .0
                .violations
                .iter()
                .map(|violation| json!({ "field": violation.field, "description": violation.description }))
                .collect();
            details.push(json!({ "@type": BAD_REQUEST, "fieldViolations": fields }));
        }
        details.extend(self.0.foreign.iter().cloned());
        details
    }

    /// The details of the upstream error.
    #[cfg(feature = "grpc")]
    pub(crate) fn foreign_details(&self) -> &[Value] {
        &self.0.foreign
    }

    /// Rebuilds an error that a peer sent. The reason of an `ErrorInfo` of our domain decides, then the
    /// code, given as `fallback` (protocol-notes.md, Errors: never by status alone).
    pub fn from_details(fallback: ErrorKind, message: impl Into<String>, details: Vec<Value>) -> Self {
        let mut error = Self::new(fallback, message);
        for detail in details {
            match detail["@type"].as_str() {
                Some(ERROR_INFO) if detail["domain"] == ERROR_DOMAIN => {
                    if let Some(kind) = detail["reason"].as_str().and_then(ErrorKind::from_reason) {
                        error.0.kind = kind;
                    }
                    for (key, value) in detail["metadata"].as_object().into_iter().flatten() {
                        if let Some(value) = value.as_str() {
                            error.0.metadata.insert(key.clone(), value.to_owned());
                        }
                    }
                }
                Some(BAD_REQUEST) => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    for violation in detail["fieldViolations"].as_array().into_iter().flatten() {
                        error.0.violations.push(FieldViolation {
                            field: text(&violation["field"]),
                            description: text(&violation["description"]),
                        });
                    }
                }
                _ => error.0.foreign.push(typed(detail)),
            }
        }
        error
    }
}

/// Adds a type to a detail without one (REQ-040, REQ-057). v0.3 peers send any JSON.
fn typed(detail: Value) -> Value {
    match detail {
        Value::Object(members) if members.get("@type").is_some_and(Value::is_string) => {
            Value::Object(members)
        }
        Value::Object(members) => json!({ "@type": STRUCT, "value": members }),
        other => json!({ "@type": VALUE, "value": other }),
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind, kind.row().message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind).field("message", &self.0.message);
        if !self.0.metadata.is_empty() {
            debug.field("metadata", &self.0.metadata);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Maximum number of bytes that an error quotes: names and values of callers may be as long as a body.
const MAX_EXCERPT_BYTES: usize = 200;

/// The beginning of a text that may be long.
#[must_use]
pub fn excerpt(mut text: String) -> String {
    if text.len() > MAX_EXCERPT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_EXCERPT_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_own_kind() {
        for row in ErrorKind::TABLE {
            assert_eq!(row.kind.row().code, row.code);
            assert_eq!(ErrorKind::from_code(row.code), Some(row.kind), "codes are unique");
            assert_eq!(ErrorKind::from_reason(row.reason), Some(row.kind), "reasons are unique");
        }
    }

    #[test]
    fn the_nine_of_the_specification() {
        // Spec 5.4 as of 1.0.1 (REQ-007, REQ-065)
        let expected = "\
            -32001 404 NOT_FOUND TASK_NOT_FOUND\n\
            -32002 400 FAILED_PRECONDITION TASK_NOT_CANCELABLE\n\
            -32003 400 FAILED_PRECONDITION PUSH_NOTIFICATION_NOT_SUPPORTED\n\
            -32004 400 FAILED_PRECONDITION UNSUPPORTED_OPERATION\n\
            -32005 400 INVALID_ARGUMENT CONTENT_TYPE_NOT_SUPPORTED\n\
            -32006 500 INTERNAL INVALID_AGENT_RESPONSE\n\
            -32007 400 FAILED_PRECONDITION EXTENDED_AGENT_CARD_NOT_CONFIGURED\n\
            -32008 400 FAILED_PRECONDITION EXTENSION_SUPPORT_REQUIRED\n\
            -32009 400 FAILED_PRECONDITION VERSION_NOT_SUPPORTED\n";
        let ours: String = ErrorKind::TABLE[..9]
            .iter()
            .map(|row| format!("{} {} {} {}\n", row.code, row.http, row.grpc.name, row.reason))
            .collect();
        assert_eq!(ours, expected);
    }

    #[test]
    fn details_survive_the_wire() {
        let error = Error::invalid_field("message.parts", "at least one part").with_metadata("taskId", "t");
        let again = Error::from_details(ErrorKind::Internal, error.message(), error.details());
        assert_eq!(again.kind(), ErrorKind::InvalidParams);
        assert_eq!(again.violations(), error.violations());
        assert_eq!(again.metadata(), error.metadata());
    }

    #[test]
    fn that_nobody_was_reached_survives_the_wire() {
        let error = Error::from(ErrorKind::Unavailable).with_fault(Fault::Upstream).undelivered();
        assert_eq!(error.fault(), Fault::Upstream);
        let again = Error::from_details(ErrorKind::Internal, error.message(), error.details());
        assert!(again.is_undelivered());
        assert_eq!(again.fault(), Fault::Us, "whose fault it is, is nobody's business");
        assert!(!Error::from(ErrorKind::Unavailable).is_undelivered(), "nobody knows");
    }

    #[test]
    fn every_detail_has_a_type() {
        // REQ-040, REQ-057
        for (sent, kept) in [
            (json!({"@type": "x/acme.Quota", "left": 3}), json!({"@type": "x/acme.Quota", "left": 3})),
            (json!({"left": 3}), json!({"@type": STRUCT, "value": {"left": 3}})),
            (json!({"@type": 5}), json!({"@type": STRUCT, "value": {"@type": 5}})),
            (json!("text"), json!({"@type": VALUE, "value": "text"})),
            (json!(null), json!({"@type": VALUE, "value": null})),
        ] {
            let error = Error::from_details(ErrorKind::Internal, "no", vec![sent]);
            assert_eq!(error.details()[1], kept);
            let again = Error::from_details(ErrorKind::Internal, "no", error.details());
            assert_eq!(again.details(), error.details(), "once is enough");
        }
    }

    #[test]
    fn the_cause_is_for_the_log_only() {
        // Invariant 10
        let error = Error::internal("SELECT secret FROM vault");
        assert_eq!(error.to_string(), "internal error");
        assert!(!error.details().iter().any(|detail| detail.to_string().contains("vault")));
    }
}
