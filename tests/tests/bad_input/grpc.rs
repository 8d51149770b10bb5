//! gRPC that is none.

use nuncio_protocol::{
    ErrorKind, GetTaskRequest,
    op::{Call, Op},
};
use nuncio_tests::http2::{encode, frame, rpc};
use serde_json::json;

use crate::{
    BODY_BYTES, NESTING_DEPTH, VERSIONS, Victim, message, send,
    ways::{check_grpc, codec},
};

/// Every beginning of a good call but the whole of it, and good calls with bytes changed: an answer each,
/// on one connection.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_off_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        let get = GetTaskRequest { id: "t".into(), ..GetTaskRequest::default() };
        let good = frame(&encode(codec, &Call::GetTask(get.into())));
        let mut connection = victim.http2().await;
        for length in 0..good.len() {
            let outcome = connection.ask(&rpc(codec, Op::GetTask), &[], good[..length].to_vec()).await;
            let kind = if length == 0 { ErrorKind::InvalidRequest } else { ErrorKind::ParseError };
            check_grpc(version, &outcome, kind, "", &format!("{length} bytes"));
        }
        // The frame is whole, the message is not.
        let message = &good[5..];
        for length in 1..message.len() {
            let outcome = connection.ask(&rpc(codec, Op::GetTask), &[], frame(&message[..length])).await;
            check_grpc(version, &outcome, ErrorKind::ParseError, "", &format!("{length} bytes in a frame"));
        }
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = good.clone();
                changed[at] = byte;
                let outcome = connection.ask(&rpc(codec, Op::GetTask), &[], changed).await;
                assert!(outcome.code().is_some(), "byte {at} as {byte}: {outcome:?}");
            }
        }
    }
    victim.still_works().await;
}

/// REQ-023: to the byte, and without waiting for what is too much.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        for (length, is_fine) in
            [(BODY_BYTES, true), (BODY_BYTES + 1, false), (2 * BODY_BYTES, false), (8 * BODY_BYTES, false)]
        {
            // An unknown field fills it up: field 1000, of bytes.
            let json: Box<serde_json::value::RawValue> =
                serde_json::from_str(&send(version, "completed")).unwrap();
            let call = crate::dialect(version).decode_call(Op::SendMessage, Some(&json)).unwrap();
            let mut body = encode(codec, &call);
            let filler = length - 5 - body.len() - 6;
            body.extend([0xc2, 0x3e]);
            for shift in [0, 7, 14, 21] {
                let more = if shift == 21 { 0 } else { 0x80 };
                body.push(u8::try_from(filler >> shift & 0x7f).unwrap() | more);
            }
            body.resize(body.len() + filler, b'x');
            let body = frame(&body);
            assert_eq!(body.len(), length);
            let outcome = victim.http2().await.ask(&rpc(codec, Op::SendMessage), &[], body).await;
            if is_fine {
                assert_eq!(outcome.code(), Some(0), "{outcome:?}");
            } else {
                check_grpc(version, &outcome, ErrorKind::PayloadTooLarge, "", &format!("{length} bytes"));
            }
        }
        // A head that promises 4 GiB, and nothing.
        let outcome =
            victim.http2().await.ask(&rpc(codec, Op::SendMessage), &[], vec![0, 255, 255, 255, 255]).await;
        check_grpc(version, &outcome, ErrorKind::ParseError, "", "4 GiB of nothing");
    }
    victim.still_works().await;
}

/// Messages in messages in messages: far deeper than any stack.
#[tokio::test(flavor = "multi_thread")]
async fn bottomless_nesting_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        // google.protobuf.Value { list_value = 6: ListValue { values = 1: Value ... } }, inside out.
        let mut value = Vec::new();
        for depth in 0..NESTING_DEPTH / 100 {
            let tag = if depth % 2 == 0 { 0x32 } else { 0x0a };
            let mut outer = vec![tag];
            let mut length = value.len();
            while length > 0x7f {
                outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            outer.push(u8::try_from(length).unwrap());
            outer.append(&mut value);
            value = outer;
        }
        // SendMessageRequest.metadata, fields: key = 1, value = 2 of an entry of fields = 1.
        let tag = match version {
            nuncio_protocol::Version::V1_0 => 0x22,
            nuncio_protocol::Version::V0_3 => 0x1a,
        };
        let wrap = |tag: u8, inner: &[u8]| {
            let mut outer = vec![tag];
            let mut length = inner.len();
            while length > 0x7f {
                outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            outer.push(u8::try_from(length).unwrap());
            outer.extend_from_slice(inner);
            outer
        };
        let entry = [wrap(0x0a, b"a"), wrap(0x12, &value)].concat();
        let metadata = wrap(tag, &wrap(0x0a, &entry));
        let outcome = victim.http2().await.ask(&rpc(codec, Op::SendMessage), &[], frame(&metadata)).await;
        check_grpc(version, &outcome, ErrorKind::ParseError, "", "deep metadata");
    }
    victim.still_works().await;
}

/// An error stands in trailers, of which clients take little.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_not_thrown_back() {
    let victim = Victim::new().await;
    let flood = "\u{e9}".repeat(100_000);
    for version in VERSIONS {
        let mut to = message(version, "completed");
        to["taskId"] = json!(flood);
        let mut media = message(version, "completed");
        media["parts"] = match version {
            nuncio_protocol::Version::V1_0 => {
                json!([{"raw": "AA==", "mediaType": format!("application/x-unsupported{flood}")}])
            }
            nuncio_protocol::Version::V0_3 => {
                let media_type = format!("application/x-unsupported{flood}");
                json!([{"kind": "file", "file": {"bytes": "AA==", "mimeType": media_type}}])
            }
        };
        for (op, params) in [
            (Op::GetTask, json!({ "id": flood })),
            (Op::CancelTask, json!({ "id": flood })),
            (Op::SubscribeToTask, json!({ "id": flood })),
            (Op::SendMessage, json!({ "message": to })),
            (Op::SendMessage, json!({ "message": media })),
        ] {
            let outcome = victim.grpc(version, op, &params.to_string()).await.unwrap();
            let error = outcome.error(codec(version));
            assert!(error.message().len() < 1000 && outcome.details().len() < 5000, "{op:?}");
        }
    }
    victim.still_works().await;
}

/// The paths of gRPC are for gRPC, and gRPC needs HTTP/2.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_grpc_is_told_so_in_the_terms_of_http() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let path = rpc(codec(version), Op::SendMessage);
        let path = path.strip_prefix('/').unwrap();
        // Over HTTP/1.1.
        for (verb, content_type, body, status) in [
            ("GET", "", "", 415),
            ("POST", "application/json", "{}", 415),
            ("POST", "application/grpc-web+proto", "\0\0\0\0\0", 415),
            ("GET", "application/grpc", "", 405),
            ("POST", "application/grpc", "\0\0\0\0\0", 505),
            ("POST", "application/grpc+proto", "", 505),
        ] {
            let answer = victim.raw.ask(verb, path, &[("content-type", content_type)], body).await;
            assert_eq!((answer.status, answer.header("grpc-status")), (status, ""), "{verb} {content_type}");
        }
        let mut connection = victim.http2().await;
        for content_type in ["application/json", "application/grpc-web", "application/grpc+json", ""] {
            let outcome = connection.ask(&format!("/{path}"), &[("content-type", content_type)], "{}").await;
            assert_eq!((outcome.http.as_u16(), outcome.code()), (415, None), "{content_type}");
        }
        for unknown in
            ["/lf.a2a.v1.A2AService/Nope", "/nope.Service/SendMessage", "/message:send", "/tasks/t"]
        {
            let outcome = connection.ask(unknown, &[], frame(&[])).await;
            assert_eq!((outcome.http.as_u16(), outcome.code()), (200, Some(12)), "{unknown}");
        }
    }
    victim.still_works().await;
}
