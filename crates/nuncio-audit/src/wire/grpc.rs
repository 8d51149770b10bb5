//! Messages and statuses of gRPC over HTTP/2.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use prost::Message;
use serde_json::{Value, json};

use super::Response;

/// Base64 of binary metadata, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes before a message: a flag and the length.
const PREFIX: usize = 5;

/// A message with its length, as it is sent.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Takes the complete messages from received bytes.
pub(crate) fn messages(buffer: &mut BytesMut) -> Vec<Bytes> {
    let mut found = Vec::new();
    while buffer.len() >= PREFIX {
        let length = u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]) as usize;
        if buffer.len() - PREFIX < length {
            break;
        }
        buffer.advance(PREFIX);
        found.push(buffer.split_to(length).freeze());
    }
    found
}

/// The outcome of an rpc.
#[derive(Clone, Debug)]
pub(crate) struct GrpcAnswer {
    /// The status code.
    pub(crate) code: i32,
    pub(crate) message: String,
    /// The bytes of `google.rpc.Status`.
    pub(crate) details: Bytes,
    pub(crate) messages: Vec<Bytes>,
}

impl GrpcAnswer {
    /// Reads the answer of an rpc; `None` if it is not gRPC.
    pub(crate) fn read(response: &Response) -> Option<Self> {
        if !response.media_type().starts_with("application/grpc") {
            return None;
        }
        let in_trailers = response.trailers.contains_key("grpc-status");
        let headers = if in_trailers { &response.trailers } else { &response.headers };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let code = text("grpc-status")?.trim().parse().ok()?;
        let details = text("grpc-status-details-bin").and_then(|text| BASE64.decode(text.trim()).ok());
        Some(Self {
            code,
            message: unescaped(text("grpc-message").unwrap_or_default()),
            details: details.unwrap_or_default().into(),
            messages: messages(&mut BytesMut::from(&*response.body)),
        })
    }
}

/// `google.rpc.Status`, as far as checks read it.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `google.rpc.ErrorInfo`, as far as checks read it.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

/// The details of a status as JSON: their types, and the reason and domain of an `ErrorInfo`.
pub(crate) fn status_details(status: &[u8]) -> Vec<Value> {
    let details = Status::decode(status).map(|status| status.details).unwrap_or_default();
    let json = details.into_iter().map(|detail| match ErrorInfo::decode(detail.value) {
        Ok(info) if detail.type_url.ends_with("google.rpc.ErrorInfo") => {
            json!({ "@type": detail.type_url, "reason": info.reason, "domain": info.domain })
        }
        _ => json!({ "@type": detail.type_url }),
    });
    json.collect()
}

/// A message of a status: percent-encoded UTF-8.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_when_they_are_complete() {
        let mut buffer = BytesMut::new();
        buffer.extend_from_slice(&frame(b"one"));
        buffer.extend_from_slice(&frame(b"two")[..6]);
        assert_eq!(messages(&mut buffer), vec![Bytes::from_static(b"one")]);
        buffer.extend_from_slice(b"wo");
        assert_eq!(messages(&mut buffer), vec![Bytes::from_static(b"two")]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn escapes_of_a_status_message() {
        assert_eq!(unescaped("100%25 gr%C3%BCn %"), "100% grün %");
    }
}
