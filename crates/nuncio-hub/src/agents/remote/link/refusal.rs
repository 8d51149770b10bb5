//! Errors for callers when a remote agent fails or refuses. The agent's own message is kept if it is about
//! the call; internal addresses are never shown.
//!
//! | outcome | without a task | with a task |
//! |---|---|---|
//! | the agent refused the message | the same error | the same question again, if there was one; else failed |
//! | not connected, or no free permit | `Unavailable` or `ResourceExhausted`, with retry-after | the same |
//! | no complete answer | a failed task, because the agent may have begun | failed |
//!
//! A message is sent again only if a repeat is harmless: the agent is configured as idempotent, or its card
//! declares that it recognises repeats. It is also sent again if the answer proves that nothing was done:
//! no connection was made, or the agent does not support the operation (then another one is used). A 503
//! proves nothing, because a proxy may send it after the agent has begun. With a retry-after it is a
//! refusal, and the retry is up to the caller.

use nuncio_client::was_not_sent;
use nuncio_protocol::{Error, ErrorKind, Fault};
use serde_json::Value;

use super::DEFAULT_RETRY_AFTER;
pub(in crate::agents) use crate::agents::delegation::lacks_operation;

/// Delivery of a message that was not answered properly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::agents) enum Fate {
    /// The agent has not received it, or has refused it.
    Refused,
    /// It may have been received.
    Unknown,
}

/// Derives the delivery from the error.
pub(in crate::agents) fn fate(error: &Error) -> Fate {
    if was_not_sent(error) {
        return Fate::Refused;
    }
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded if error.retry_after().is_none() => {
            Fate::Unknown
        }
        // The agent answered, but the answer cannot be decoded.
        ErrorKind::InvalidAgentResponse => Fate::Unknown,
        _ => Fate::Refused,
    }
}

/// The error for an agent that cannot be reached. The cause is only logged.
pub(crate) fn out_of_reach(cause: &str) -> Error {
    let told = Error::new(ErrorKind::Unavailable, "the agent cannot be reached at present").undelivered();
    told.with_retry_after(DEFAULT_RETRY_AFTER).with_fault(Fault::Upstream).with_source(cause)
}

/// The error for the caller. `as_caller`: the call had the caller's own credentials.
pub(crate) fn shown(error: &Error, as_caller: bool) -> Error {
    let ours = |kind, words: &str| Error::new(kind, words).with_source(error.message());
    let told = match error.kind() {
        _ if was_not_sent(error) => out_of_reach(error.message()),
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied if !as_caller => ours(
            ErrorKind::Internal,
            "the agent does not accept the credentials of the hub; tell its operator",
        ),
        ErrorKind::Unavailable => ours(ErrorKind::Unavailable, "the agent is not available at present"),
        ErrorKind::DeadlineExceeded => ours(ErrorKind::Unavailable, "the agent took too long to answer"),
        ErrorKind::InvalidAgentResponse => {
            ours(ErrorKind::InvalidAgentResponse, "the agent answered with something that is not A2A")
        }
        ErrorKind::MethodNotFound => Error::new(ErrorKind::UnsupportedOperation, words(error)),
        kind => about(error, Error::from_details(kind, words(error), fields(error))),
    };
    // Errors about the call itself stay the caller's fault.
    let told = if told.fault() == Fault::Us { told.with_fault(Fault::Upstream) } else { told };
    match error.retry_after() {
        Some(after) => told.with_retry_after(after),
        None => told,
    }
}

/// Like [`shown`], for proxy mode, where callers use the agent's own ids: all metadata of the error are
/// kept.
pub(crate) fn passed(error: &Error, as_caller: bool) -> Error {
    let told = shown(error, as_caller);
    if told.kind() != error.kind() {
        return told;
    }
    let all = error.metadata().iter();
    all.fold(told, |told, (key, value)| told.with_metadata(key, value))
}

/// Adds the agent's metadata to the error, except ids and addresses.
fn about(error: &Error, told: Error) -> Error {
    let all = error.metadata().iter();
    let plain = all.filter(|(key, value)| !key.ends_with("Id") && !value.contains("://"));
    plain.fold(told, |told, (key, value)| told.with_metadata(key, value))
}

/// The agent's error message, unless it contains a URL.
pub(in crate::agents) fn words(error: &Error) -> &str {
    if error.message().contains("://") { error.kind().row().message } else { error.message() }
}

/// The field violations of the error details. Other details may have ids that are unknown here.
fn fields(error: &Error) -> Vec<Value> {
    let is_fields = |detail: &Value| detail.get("fieldViolations").is_some();
    error.details().into_iter().filter(is_fields).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn callers_get_what_they_can_use_and_no_address() {
        for (kind, message, as_caller, expected) in [
            (
                ErrorKind::InvalidParams,
                "no such currency",
                false,
                (ErrorKind::InvalidParams, "no such currency"),
            ),
            (
                ErrorKind::ContentTypeNotSupported,
                "http://10.0.0.7/a2a answered 415",
                false,
                (ErrorKind::ContentTypeNotSupported, "content type not supported"),
            ),
            (
                ErrorKind::Unavailable,
                "http://10.0.0.7/ answered 503",
                false,
                (ErrorKind::Unavailable, "the agent is not available at present"),
            ),
            (
                ErrorKind::DeadlineExceeded,
                "late",
                false,
                (ErrorKind::Unavailable, "the agent took too long to answer"),
            ),
            (
                ErrorKind::Unauthenticated,
                "who?",
                false,
                (
                    ErrorKind::Internal,
                    "the agent does not accept the credentials of the hub; tell its operator",
                ),
            ),
            (ErrorKind::Unauthenticated, "who?", true, (ErrorKind::Unauthenticated, "who?")),
            (
                ErrorKind::MethodNotFound,
                "no such method",
                false,
                (ErrorKind::UnsupportedOperation, "no such method"),
            ),
            (ErrorKind::Internal, "out of tokens", false, (ErrorKind::Internal, "out of tokens")),
        ] {
            let error = Error::new(kind, message).with_metadata("taskId", "up-1");
            let told = shown(&error, as_caller);
            assert_eq!((told.kind(), told.message()), expected);
            assert!(told.metadata().is_empty(), "names of the upstream mean nothing here");
        }
        let later = Error::from(ErrorKind::ResourceExhausted).with_retry_after(Duration::from_secs(7));
        assert_eq!(shown(&later, false).retry_after(), Some(Duration::from_secs(7)));
        let fields = Error::invalid_field("message.parts[0]", "too long");
        assert_eq!(shown(&fields, false).violations(), fields.violations());
    }

    #[test]
    fn what_an_agent_says_beside_its_words_goes_on_but_for_its_own_names() {
        let error = Error::new(ErrorKind::ContentTypeNotSupported, "no")
            .with_metadata("mediaType", "image/png")
            .with_metadata("taskId", "up-1")
            .with_metadata("at", "http://10.0.0.7/");
        let told = shown(&error, false);
        assert_eq!(told.metadata().keys().collect::<Vec<_>>(), ["mediaType"]);
        assert_eq!(passed(&error, false).metadata(), error.metadata(), "a proxy has no other names");
        let hidden = Error::from(ErrorKind::Unauthenticated).with_metadata("realm", "inner");
        assert!(passed(&hidden, false).metadata().is_empty(), "what is not for callers stays");
    }

    #[test]
    fn only_an_answer_proves_that_a_message_was_refused() {
        for (error, expected) in [
            (Error::from(ErrorKind::InvalidParams), Fate::Refused),
            (Error::from(ErrorKind::UnsupportedOperation), Fate::Refused),
            (Error::from(ErrorKind::Unauthenticated), Fate::Refused),
            (Error::from(ErrorKind::ResourceExhausted), Fate::Refused),
            (Error::from(ErrorKind::Internal), Fate::Refused),
            (Error::from(ErrorKind::Unavailable), Fate::Unknown),
            (Error::from(ErrorKind::Unavailable).with_retry_after(Duration::from_secs(1)), Fate::Refused),
            (Error::from(ErrorKind::DeadlineExceeded), Fate::Unknown),
            (Error::from(ErrorKind::InvalidAgentResponse), Fate::Unknown),
        ] {
            assert_eq!(fate(&error), expected, "{error:?}");
        }
    }
}
