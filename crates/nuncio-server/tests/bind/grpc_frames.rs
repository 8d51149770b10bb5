//! The gRPC binding, both packages: what is wrong before a call means anything.

use axum::body::Body;
use bytes::Bytes;
use http::{StatusCode, Version};
use nuncio_server::protocol::{
    ErrorKind, GetTaskRequest,
    op::{Call, Op},
};
use serde_json::json;
use tonic::Code;

use crate::{
    Wire,
    grpc::{BOTH, Outcome, encode, frame, path, request, send},
    probe::Probe,
};

fn get(id: &str) -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: id.into(), ..GetTaskRequest::default() }))
}

#[tokio::test]
async fn a_call_is_one_message_in_one_whole_frame() {
    let (probe, port) = Probe::on_the_wire();
    for codec in BOTH {
        let good = frame(&encode(codec, &get("t")));
        let cut = |from: usize| good[..from].to_vec();
        let flagged = |flag: u8| [&[flag], &good[1..]].concat();
        let invalid = (Code::InvalidArgument, Some(ErrorKind::InvalidRequest));
        let parse = (Code::InvalidArgument, Some(ErrorKind::ParseError));
        for (what, body, (code, kind)) in [
            ("nothing", Vec::new(), invalid),
            ("the flag alone", cut(1), parse),
            ("half a head", cut(4), parse),
            ("a head alone", cut(5), parse),
            ("half a message", cut(good.len() - 1), parse),
            ("much less than it says", vec![0, 0xff, 0xff, 0xff, 0xff, 1], parse),
            ("nothing of what it says", vec![0, 0xff, 0xff, 0xff, 0xff], parse),
            ("two messages", [good.clone(), good.clone()].concat(), invalid),
            ("a message and an empty one", [good.clone(), frame(&[])].concat(), invalid),
            ("a message and half a head", [good.clone(), vec![0, 0]].concat(), invalid),
            ("JSON", br#"{"id":"t"}"#.to_vec(), parse),
            ("JSON in a frame", frame(br#"{"id":"t"}"#), parse),
            ("a wire type that does not exist", frame(&[0x0f]), parse),
            ("a field cut off", frame(&[0x12, 0x05, b't']), parse),
            (
                "a length without end",
                frame(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
                parse,
            ),
            ("text that is not UTF-8", frame(&[0x0a, 0x01, 0xff, 0x12, 0x01, 0xff]), parse),
            ("the field number 0", frame(&[0x02, 0x01, b't']), parse),
            ("groups without end", frame(&vec![0x0b; 100_000]), parse),
            // The specification of gRPC's compression demands this code.
            ("compressed, but not how", flagged(1), (Code::Internal, None)),
            ("another flag", flagged(2), (Code::Internal, None)),
            ("another flag", flagged(0xff), (Code::Internal, None)),
        ] {
            let outcome = port.grpc(&path(codec, Op::GetTask), &[], body).await;
            assert_eq!((outcome.http, outcome.code()), (StatusCode::OK, code), "{what}: {outcome:?}");
            if let Some(kind) = kind {
                assert_eq!(outcome.error(codec).kind(), kind, "{what}: {outcome:?}");
            }
            assert!(!outcome.status.unwrap().message().is_empty(), "{what}");
            assert_eq!(probe.seen(), json!(null), "{what}");
        }
        let outcome = port.grpc(&path(codec, Op::GetTask), &[("grpc-encoding", "gzip")], flagged(1)).await;
        assert_eq!(outcome.code(), Code::Unimplemented, "an encoding that we do not have");
        let outcome =
            port.grpc(&path(codec, Op::GetTask), &[("grpc-encoding", "identity")], good.clone()).await;
        assert_eq!((outcome.code(), probe.seen()), (Code::Ok, json!({ "GetTask": { "id": "t" } })));
        // However it is cut into pieces on its way.
        let pieces = good.iter().map(|byte| Ok::<_, std::io::Error>(Bytes::copy_from_slice(&[*byte])));
        let body = Body::from_stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()));
        assert_eq!(port.grpc(&path(codec, Op::GetTask), &[], body).await.code(), Code::Ok);
        probe.seen();
    }
}

#[tokio::test]
async fn fields_that_nobody_knows_are_ignored() {
    // REQ-010 in this binding
    let (probe, port) = Probe::on_the_wire();
    for codec in BOTH {
        // Field 1000: a number, a text, and a group.
        let unknown = [0xc0, 0x3e, 7, 0xc2, 0x3e, 1, b'x', 0xc3, 0x3e, 0xc4, 0x3e];
        let message = [encode(codec, &get("t")), unknown.to_vec()].concat();
        let outcome = port.grpc(&path(codec, Op::GetTask), &[], frame(&message)).await;
        assert_eq!((outcome.code(), probe.seen()), (Code::Ok, json!({ "GetTask": { "id": "t" } })));
    }
}

#[tokio::test]
async fn a_message_that_is_none_names_its_field() {
    // REQ-018 to REQ-020, REQ-067
    let wire = Wire::new([]);
    for codec in BOTH {
        let mut parts = send("hi");
        parts.message.parts = Vec::new();
        let mut length = send("hi");
        length.configuration.get_or_insert_default().history_length = Some(-1);
        for (call, field) in [
            (Call::SendMessage(Box::default()), "message.messageId"),
            (Call::SendMessage(parts.into()), "message.parts"),
            (Call::SendMessage(length.into()), "configuration.historyLength"),
        ] {
            let error = wire.call_grpc(codec, &[], &call).await.error(codec);
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{} {error}", codec.service);
            let fields: Vec<&str> = error.violations().iter().map(|violation| &*violation.field).collect();
            assert!(fields.contains(&field), "{} {fields:?}", codec.service);
        }
        let error = wire.grpc(&path(codec, Op::GetTask), &[], frame(&[])).await.error(codec);
        let field = if std::ptr::eq(codec, BOTH[0]) { "id" } else { "name" };
        assert_eq!((error.kind(), &*error.violations()[0].field), (ErrorKind::InvalidParams, field));
        // Nothing at all, and an empty message in a message.
        for (message, field) in [
            (vec![], "message.messageId"),
            (vec![0x0a, 0x00], "message.messageId"),
            (vec![0x12, 0x00, 0x0a, 0x00], "message.messageId"),
        ] {
            let outcome = wire.grpc(&path(codec, Op::SendMessage), &[], frame(&message)).await;
            let error = outcome.error(codec);
            let fields: Vec<&str> = error.violations().iter().map(|violation| &*violation.field).collect();
            assert!(fields.contains(&field), "{message:?}: {error}");
        }
    }
    // A name of the old package that names no task.
    let old = BOTH[1];
    for name in ["t", "tasks/", "task/t", "/tasks/t"] {
        let message = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        let outcome = wire.grpc(&path(old, Op::GetTask), &[], frame(&message)).await;
        assert_eq!(outcome.error(old).kind(), ErrorKind::InvalidParams, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_grpc_is_told_so_in_the_terms_of_http() {
    let (probe, port) = Probe::on_the_wire();
    for codec in BOTH {
        let good = frame(&encode(codec, &get("t")));
        for (content_type, fine) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=x", true),
            ("Application/GRPC", true),
            ("application/json", false),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpc-web-text", false),
            ("application/grpc+json", false),
            ("application/grpcx", false),
            ("text/plain", false),
            ("", false),
        ] {
            let outcome =
                port.grpc(&path(codec, Op::GetTask), &[("content-type", content_type)], good.clone()).await;
            if fine {
                assert_eq!((outcome.code(), probe.seen().is_null()), (Code::Ok, false), "{content_type}");
            } else {
                assert_eq!(
                    (outcome.http, outcome.status.is_none()),
                    (StatusCode::UNSUPPORTED_MEDIA_TYPE, true),
                    "{content_type}"
                );
                assert_eq!(probe.seen(), json!(null), "{content_type}");
            }
        }
        for (verb, version, status) in [
            ("GET", Version::HTTP_2, StatusCode::METHOD_NOT_ALLOWED),
            ("PUT", Version::HTTP_2, StatusCode::METHOD_NOT_ALLOWED),
            ("POST", Version::HTTP_11, StatusCode::HTTP_VERSION_NOT_SUPPORTED),
            ("POST", Version::HTTP_10, StatusCode::HTTP_VERSION_NOT_SUPPORTED),
        ] {
            let mut request = request(&path(codec, Op::GetTask), &[], good.clone());
            *request.method_mut() = verb.parse().unwrap();
            *request.version_mut() = version;
            let outcome = Outcome::read(port.request(request).await).await;
            assert_eq!((outcome.http, outcome.status.is_none()), (status, true), "{verb} {version:?}");
            assert_eq!(outcome.headers.contains_key("allow"), status == StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(probe.seen(), json!(null), "{verb} {version:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_or_never_arrives_is_refused() {
    // REQ-023
    for codec in BOTH {
        let body = frame(&encode(codec, &Call::SendMessage(send("hi").into())));
        let path = path(codec, Op::SendMessage);
        for (limit, code) in [(body.len(), Code::Ok), (body.len() - 1, Code::ResourceExhausted)] {
            let wire = Wire::with([], |options| options.body_bytes = limit);
            let outcome = wire.grpc(&path, &[], body.clone()).await;
            assert_eq!((outcome.http, outcome.code()), (StatusCode::OK, code), "{limit}");
            if code != Code::Ok {
                assert_eq!(outcome.error(codec).kind(), ErrorKind::PayloadTooLarge);
            }
        }
        let wire = Wire::new([]);
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let outcome = wire.grpc(&path, &[], never).await;
        assert_eq!(outcome.error(codec).kind(), ErrorKind::DeadlineExceeded);
        let broken = futures_util::stream::iter([Ok(Bytes::from(body)), Err(std::io::Error::other("cut"))]);
        let outcome = wire.grpc(&path, &[], Body::from_stream(broken)).await;
        assert_eq!(outcome.error(codec).kind(), ErrorKind::InvalidRequest);
        assert_eq!(wire.harness.runtime.running(), 0);
    }
}
