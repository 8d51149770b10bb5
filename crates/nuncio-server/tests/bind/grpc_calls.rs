//! The gRPC binding, both packages: what calls mean.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use nuncio_server::{
    bind::{Agent, BindOptions, Directory, Grpc},
    protocol::{
        AgentExtension, Binding, Caller, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error,
        ErrorKind, Event, FileBytes, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest,
        GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest, Part, SendMessageResponse,
        SubscribeToTaskRequest, TaskPushNotificationConfig, TaskState, Version,
        op::{Call, Op, Reply},
        pb::{self, Codec},
        v03,
    },
    store::MemoryStore,
    testing::{Harness, STORE_SECRET, ScriptedExecutor, Step, card},
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    Port, V1, Wire,
    grpc::{BOTH, Outcome, encode, frame, path, request, send},
    probe::Probe,
};

fn get(id: &str) -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: id.into(), ..GetTaskRequest::default() }))
}

fn subscribe(id: &str) -> Call {
    Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id: id.into(), tenant: None }))
}

fn say(text: &str) -> Call {
    Call::SendMessage(Box::new(send(text)))
}

fn stream(text: &str) -> Call {
    Call::SendStreamingMessage(Box::new(send(text)))
}

/// One call of each operation, with what the service sees of it.
fn calls() -> Vec<(Call, Value)> {
    let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let config = TaskPushNotificationConfig {
        task_id: Some("t".into()),
        id: Some("p".into()),
        url: "https://hook.test/".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let get = GetTaskRequest { id: "t".into(), history_length: Some(2), ..Default::default() };
    let list = ListTasksRequest { page_size: Some(5), ..Default::default() };
    let cancel = CancelTaskRequest { id: "t".into(), ..Default::default() };
    let get_config =
        GetTaskPushNotificationConfigRequest { task_id: "t".into(), id: "p".into(), ..Default::default() };
    let delete =
        DeleteTaskPushNotificationConfigRequest { task_id: "t".into(), id: "p".into(), ..Default::default() };
    let list_configs = ListTaskPushNotificationConfigsRequest { task_id: "t".into(), ..Default::default() };
    let ids = json!({ "taskId": "t", "id": "p" });
    vec![
        (say("hi"), json!({ "SendMessage": { "message": message } })),
        (stream("hi"), json!({ "SendStreamingMessage": { "message": message } })),
        (Call::GetTask(get.into()), json!({ "GetTask": { "id": "t", "historyLength": 2 } })),
        (Call::ListTasks(list.into()), json!({ "ListTasks": { "pageSize": 5 } })),
        (Call::CancelTask(cancel.into()), json!({ "CancelTask": { "id": "t" } })),
        (subscribe("t"), json!({ "SubscribeToTask": { "id": "t" } })),
        (
            Call::CreateTaskPushNotificationConfig(config.into()),
            json!({ "CreateTaskPushNotificationConfig": {
                "taskId": "t", "id": "p", "url": "https://hook.test/",
            } }),
        ),
        (
            Call::GetTaskPushNotificationConfig(get_config.into()),
            json!({ "GetTaskPushNotificationConfig": ids }),
        ),
        (
            Call::ListTaskPushNotificationConfigs(list_configs.into()),
            json!({ "ListTaskPushNotificationConfigs": { "taskId": "t" } }),
        ),
        (
            Call::GetExtendedAgentCard(GetExtendedAgentCardRequest::default().into()),
            json!({ "GetExtendedAgentCard": {} }),
        ),
        (
            Call::DeleteTaskPushNotificationConfig(delete.into()),
            json!({ "DeleteTaskPushNotificationConfig": ids }),
        ),
    ]
}

#[tokio::test]
async fn every_operation_has_its_rpc_in_both_packages() {
    // REQ-060, REQ-061, REQ-066
    let (probe, port) = Probe::on_the_wire();
    assert_eq!(calls().len(), Op::TABLE.len());
    for codec in BOTH {
        for (call, expected) in calls() {
            let op = call.op();
            if (codec.rpc_name)(op).is_none() {
                assert_eq!((codec.version, op), (Version::V0_3, Op::ListTasks));
                continue;
            }
            let outcome = port.call_grpc(codec, &[], &call).await;
            let mut seen = probe.seen();
            seen[op.name()].as_object_mut().unwrap().remove("configuration");
            assert_eq!(seen, expected, "{} {op:?}", codec.service);
            assert_eq!(
                (outcome.http, outcome.headers["content-type"].as_bytes()),
                (StatusCode::OK, &b"application/grpc"[..])
            );
            if op.row().streaming {
                assert_eq!(outcome.code(), Code::Ok);
                assert!(
                    matches!(&*outcome.events(codec), [Event::Message(reply)] if reply.text() == "hello")
                );
                continue;
            }
            match outcome.reply(codec, op) {
                Reply::Sent(SendMessageResponse::Task(task)) => assert_eq!(task.id.as_str(), "t-new"),
                Reply::Task(task) => assert_eq!(task.id.as_str(), "t"),
                Reply::Tasks(page) => assert_eq!(page.total_size, 1),
                Reply::PushConfig(config) => assert_eq!(config.id.unwrap().as_str(), "p"),
                Reply::PushConfigs(page) => assert_eq!(page.configs.len(), 1),
                Reply::Card(card) => assert_eq!(card.description, "for you"),
                Reply::Empty => {
                    assert_eq!((op, &*outcome.messages[0]), (Op::DeleteTaskPushNotificationConfig, &b""[..]))
                }
                Reply::Sent(_) | Reply::Stream(_) => panic!("{op:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_total_that_is_an_estimate_is_told_so_in_a_header() {
    let (_, wire) = Probe::on_the_wire();
    for (context, wanted) in [("small", None), ("large", Some("estimate"))] {
        let list = ListTasksRequest { context_id: Some(context.into()), ..ListTasksRequest::default() };
        let outcome = wire.call_grpc(&pb::CODEC, &[], &Call::ListTasks(list.into())).await;
        let told = outcome.headers.get("nuncio-total-size").map(|value| value.to_str().unwrap());
        assert_eq!(told, wanted, "gRPC, {context}");
        let answer = wire.ask("GET", &format!("/tasks?contextId={context}"), V1, "").await;
        assert_eq!((answer.status.as_u16(), answer.header("nuncio-total-size")), (200, wanted), "{context}");
        let params = json!({ "contextId": context });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params });
        let answer = wire.post("/", V1, &body.to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.header("nuncio-total-size")), (200, wanted), "{context}");
        assert_eq!(answer.json()["result"].get("totalIsEstimate"), None, "it is no member of the message");
    }
}

#[tokio::test]
async fn what_is_not_there_is_unimplemented() {
    let (probe, port) = Probe::on_the_wire();
    for path in [
        "/lf.a2a.v1.A2AService/Nope",
        "/lf.a2a.v1.A2AService/sendmessage",
        "/lf.a2a.v1.A2AService/TaskSubscription",
        "/lf.a2a.v1.A2AService/GetAgentCard",
        "/lf.a2a.v1.A2AService/",
        "/lf.a2a.v1.A2AService/SendMessage/",
        "/lf.a2a.v1.A2AService/Send%4Dessage",
        "/a2a.v1.A2AService/ListTasks",
        "/a2a.v1.A2AService/SubscribeToTask",
        "/a2a.v1.A2AService/GetExtendedAgentCard",
        "/lf.a2a.v2.A2AService/SendMessage",
        "/A2AService/SendMessage",
        "/",
        "/nowhere",
        "/tasks",
        "/message:send",
        "/v1/message:send",
    ] {
        for body in [frame(&[]), Vec::new(), b"garbage".to_vec()] {
            let outcome = port.grpc(path, &[], body).await;
            assert_eq!((outcome.http, outcome.code()), (StatusCode::OK, Code::Unimplemented), "{path}");
            assert!(!outcome.status.unwrap().message().is_empty(), "{path}");
        }
        assert_eq!(probe.seen(), json!(null), "{path}");
    }
}

#[tokio::test]
async fn the_version_is_that_of_the_package_and_may_be_left_unsaid() {
    // REQ-062, REQ-063, REQ-071, REQ-073, trap T-06
    let (_, both) = Probe::on_the_wire();
    let only = |version: &str| {
        let mut card = card();
        card.supported_interfaces.retain(|interface| {
            interface.protocol_version == version || interface.protocol_binding != "GRPC"
        });
        let agent = Agent::new(Arc::new(Probe::default()), &card, BindOptions::default()).unwrap();
        Port::of(&agent, "")
    };
    let (new_only, old_only, neither) = (only("1.0"), only("0.3"), only("none"));
    let (new, old): (&Codec, &Codec) = (&pb::CODEC, &v03::pb::CODEC);
    for (port, codec, said, expected) in [
        (&both, new, &[][..], None),
        (&both, new, &["1.0"], None),
        (&both, new, &["1.0.9"], None),
        (&both, new, &[""], None),
        (&both, new, &["1.0", "1.0"], None),
        (&both, new, &["0.3"], Some(("VERSION_NOT_SUPPORTED", "1.0"))),
        (&both, new, &["99.0"], Some(("VERSION_NOT_SUPPORTED", "1.0"))),
        (&both, new, &["one"], Some(("VERSION_NOT_SUPPORTED", "1.0"))),
        (&both, new, &["1.0", "0.3"], Some(("INVALID_REQUEST", ""))),
        (&both, old, &[], None),
        (&both, old, &["0.3"], None),
        (&both, old, &["1.0"], Some(("VERSION_NOT_SUPPORTED", "0.3"))),
        (&new_only, new, &[], None),
        (&new_only, old, &[], Some(("VERSION_NOT_SUPPORTED", "1.0"))),
        (&old_only, old, &[], None),
        (&old_only, new, &[], Some(("VERSION_NOT_SUPPORTED", "0.3"))),
        (&neither, new, &["1.0"], Some(("VERSION_NOT_SUPPORTED", ""))),
    ] {
        let headers: Vec<_> = said.iter().map(|version| ("a2a-version", *version)).collect();
        let outcome = port.call_grpc(codec, &headers, &get("t")).await;
        match expected {
            None => assert_eq!(outcome.code(), Code::Ok, "{} {said:?}", codec.service),
            Some((reason, supported)) => {
                let error = outcome.error(codec);
                assert_eq!(error.kind().row().reason, reason, "{} {said:?}", codec.service);
                let metadata = error.metadata().get("supportedVersions").map(String::as_str);
                assert_eq!(metadata.unwrap_or_default(), supported, "{} {said:?}", codec.service);
            }
        }
    }
}

#[tokio::test]
async fn every_error_has_its_code_and_its_details() {
    // REQ-007, REQ-064, REQ-065
    let (probe, port) = Probe::on_the_wire();
    for codec in BOTH {
        for row in ErrorKind::TABLE {
            for call in [get("t"), subscribe("t")] {
                probe.refuse(|| {
                    let after = Duration::from_secs(7);
                    Error::new(row.kind, "so: ä%\n").with_metadata("taskId", "t").with_retry_after(after)
                });
                let outcome = port.call_grpc(codec, &[], &call).await;
                probe.seen();
                assert_eq!(i32::from(outcome.code()), (codec.status_code)(row.kind).number, "{:?}", row.kind);
                let error = outcome.error(codec);
                assert_eq!((error.kind(), error.message()), (row.kind, "so: ä%\n"));
                assert_eq!(error.metadata()["taskId"], "t");
                assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
            }
        }
        probe.refuse(|| Error::invalid_field("id", "too odd"));
        let error = port.call_grpc(codec, &[], &get("t")).await.error(codec);
        assert_eq!((&*error.violations()[0].field, &*error.violations()[0].description), ("id", "too odd"));
        probe.seen();
        probe.refuse(|| Error::internal("the secret"));
        let outcome = port.call_grpc(codec, &[], &get("t")).await;
        assert!(!format!("{outcome:?}").contains("secret"), "invariant 10");
        probe.seen();
    }
}

/// The codes by which SDKs of the 0.3 line know errors, and SDKs of the 1.x line when they speak 0.3.
#[tokio::test]
async fn errors_of_the_old_package_have_the_code_that_the_callers_sdk_knows() {
    let (probe, port) = Probe::on_the_wire();
    let codec = &v03::pb::CODEC;
    for (kind, old, new, class) in [
        (ErrorKind::TaskNotFound, Code::NotFound, Code::NotFound, "TaskNotFoundError: "),
        (
            ErrorKind::TaskNotCancelable,
            Code::FailedPrecondition,
            Code::FailedPrecondition,
            "TaskNotCancelableError: ",
        ),
        (
            ErrorKind::PushNotificationNotSupported,
            Code::Unimplemented,
            Code::FailedPrecondition,
            "PushNotificationNotSupportedError: ",
        ),
        (
            ErrorKind::UnsupportedOperation,
            Code::Unimplemented,
            Code::FailedPrecondition,
            "UnsupportedOperationError: ",
        ),
        (ErrorKind::InvalidParams, Code::InvalidArgument, Code::InvalidArgument, "InvalidParamsError: "),
        (ErrorKind::VersionNotSupported, Code::Unimplemented, Code::FailedPrecondition, ""),
        (ErrorKind::Unavailable, Code::Unavailable, Code::Unavailable, ""),
    ] {
        probe.refuse(move || Error::new(kind, "no"));
        for (headers, code) in [(&[][..], old), (&[("a2a-version", "0.3")], new)] {
            let outcome = port.call_grpc(codec, headers, &get("t")).await;
            probe.seen();
            let status = outcome.status.as_ref().unwrap();
            assert_eq!((status.code(), status.message()), (code, &*format!("{class}no")), "{kind:?}");
            // grpc-go takes the code of the details.
            assert_eq!(status.details()[..2], [8, u8::try_from(i32::from(code)).unwrap()], "{kind:?}");
            let error = outcome.error(codec);
            assert_eq!((error.kind(), error.message()), (kind, "no"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn files_of_the_old_package_have_the_form_that_the_callers_sdk_uses() {
    // Writes content as it is, as if it were of another SDK.
    let codec = v03::pb::codec(FileBytes::Raw, false);
    let file = |content: &'static str| Part::raw(content.as_bytes()).with_media_type("text/plain");
    for (user_agent, said) in [
        ("grpc-python-asyncio/1.70.0 grpc-c/45.0.0 (linux; chttp2)", "aGVsbG8="),
        ("grpc-go/1.70.0", "aGVsbG8="),
        ("grpc-java-netty/1.70.0", "aGVsbG8="),
        ("grpc-node-js/1.13.4", "hello"),
    ] {
        let wire = Wire::new([]);
        let mut call = send("hi");
        call.message.parts = vec![file(said)];
        let headers = [("user-agent", user_agent)];
        let outcome = wire.call_grpc(codec, &headers, &Call::SendMessage(call.into())).await;
        let is_there = |text: &str| outcome.messages[0].windows(text.len()).any(|at| at == text.as_bytes());
        assert_eq!((is_there("hello"), is_there("aGVsbG8=")), (said == "hello", said != "hello"));
        let Reply::Sent(SendMessageResponse::Task(task)) = outcome.reply(codec, Op::SendMessage) else {
            panic!("expected a task");
        };
        let kept = wire.call_grpc(&pb::CODEC, &[], &get(task.id.as_str())).await;
        let Reply::Task(kept) = kept.reply(&pb::CODEC, Op::GetTask) else { panic!("expected a task") };
        assert_eq!(kept.history[0].parts, [file("hello")], "{user_agent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_size_of_zero_is_none_here_and_refused_elsewhere() {
    // REQ-121; a2a-go and the official CLI send 0 when nobody has set a size.
    let wire = Wire::new([]);
    let list = |size| ListTasksRequest { page_size: Some(size), ..ListTasksRequest::default() };
    // One field: its number and its value. Our own client refuses to say 0.
    let mut zero = encode(&pb::CODEC, &Call::ListTasks(list(1).into()));
    assert_eq!(zero.pop(), Some(1));
    zero.push(0);
    let outcome = wire.grpc(&path(&pb::CODEC, Op::ListTasks), &[], frame(&zero)).await;
    assert_eq!(outcome.code(), Code::Ok);
    let refused = (pb::CODEC.encode_call)(&Call::ListTasks(list(0).into()), &mut zero).unwrap_err();
    assert_eq!(refused.violations()[0].field, "pageSize");
    let outcome = wire.call_grpc(&pb::CODEC, &[], &Call::ListTasks(list(-1).into())).await;
    assert_eq!(outcome.error(&pb::CODEC).kind(), ErrorKind::InvalidParams);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": { "pageSize": 0 } });
    assert_eq!(wire.post("/", V1, &body.to_string()).await.code(), -32602);
    assert_eq!(wire.ask("GET", "/tasks?pageSize=0", V1, "").await.status, 400);
}

#[tokio::test]
async fn an_error_fits_into_the_trailers_that_clients_take() {
    // 8 KiB in all is what most take
    let (probe, port) = Probe::on_the_wire();
    let book = "ä".repeat(100_000);
    for codec in BOTH {
        let told = book.clone();
        probe.refuse(move || {
            Error::invalid_field(told.clone(), told.clone()).with_metadata("k", told.clone())
        });
        let outcome = port.call_grpc(codec, &[], &get("t")).await;
        probe.seen();
        let size: usize =
            outcome.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(size < 8192, "{size} bytes");
        assert_eq!(
            (outcome.code(), outcome.error(codec).kind()),
            (Code::InvalidArgument, ErrorKind::InvalidParams)
        );
    }
    let wire = Wire::new([]);
    for codec in BOTH {
        let outcome = wire.call_grpc(codec, &[], &get(&book)).await;
        let size: usize =
            outcome.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(size < 8192, "{size} bytes");
        let error = outcome.error(codec);
        assert_eq!(error.kind(), ErrorKind::TaskNotFound);
        assert!(error.metadata()["taskId"].starts_with("ää"), "as much of it as fits");
        let version = "9".repeat(5000);
        let outcome = wire.call_grpc(codec, &[("a2a-version", &version)], &get("t")).await;
        assert!(outcome.error(codec).message().len() < 1000);
    }
}

/// Several agents behind one port.
struct Shared {
    ann: Arc<Probe>,
    bob: Arc<Probe>,
    port: Port,
}

impl Shared {
    fn new(default: bool) -> Self {
        let (ann, bob) = (Arc::new(Probe::default()), Arc::new(Probe::default()));
        let directory = Two { ann: ann.agent(), bob: bob.agent(), default };
        let grpc = Grpc::shared(Arc::new(directory), BindOptions::default());
        Self { ann, bob, port: Port { router: grpc.router() } }
    }
}

struct Two {
    ann: Agent,
    bob: Agent,
    /// Ann gets what is for nobody in particular.
    default: bool,
}

impl Directory for Two {
    fn find(&self, name: Option<&str>, _extensions: &http::Extensions) -> Option<Agent> {
        match name {
            Some("ann") => Some(self.ann.clone()),
            Some("bob") => Some(self.bob.clone()),
            Some(_) => None,
            None => self.default.then(|| self.ann.clone()),
        }
    }
}

/// A port knows no agent before it has read the message, whose size is the agent's to bound.
#[tokio::test]
async fn what_is_too_large_for_its_agent_is_refused_on_a_shared_port() {
    let mut call = Call::SendMessage(send("hi").into());
    call.set_tenant(Some("ann".to_owned()));
    let size = frame(&encode(&pb::CODEC, &call)).len();
    for (body_bytes, refused) in [(size, false), (size - 1, true)] {
        let (ann, bob) = (Arc::new(Probe::default()), Arc::new(Probe::default()));
        let options = BindOptions { body_bytes, ..BindOptions::default() };
        let directory = Two { ann: ann.agent_with(options), bob: bob.agent(), default: false };
        let port = Port { router: Grpc::shared(Arc::new(directory), BindOptions::default()).router() };
        let outcome = port.call_grpc(&pb::CODEC, &[], &call).await;
        let is_refused = outcome.code() == Code::ResourceExhausted;
        assert_eq!((is_refused, ann.seen().is_null()), (refused, refused), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_tenant_names_the_agent_and_is_used_up() {
    let (with, without) = (Shared::new(true), Shared::new(false));
    let call = |tenant: Option<&str>| {
        let mut call = get("t");
        call.set_tenant(tenant.map(str::to_owned));
        call
    };
    for (shared, tenant, expected) in [
        (&with, Some("ann"), "ann"),
        (&with, Some("bob"), "bob"),
        (&with, Some("carl"), ""),
        (&with, Some("Ann"), ""),
        (&with, None, "ann"),
        (&with, Some(""), "ann"),
        (&without, Some("bob"), "bob"),
        (&without, None, ""),
        (&without, Some(""), ""),
    ] {
        let outcome = shared.port.call_grpc(&pb::CODEC, &[], &call(tenant)).await;
        let seen = [("ann", shared.ann.seen()), ("bob", shared.bob.seen())];
        if expected.is_empty() {
            let error = outcome.error(&pb::CODEC);
            assert_eq!((error.kind(), &*error.violations()[0].field), (ErrorKind::InvalidParams, "tenant"));
        }
        for (name, seen) in seen {
            let expected = if name == expected { json!({ "GetTask": { "id": "t" } }) } else { json!(null) };
            assert_eq!(seen, expected, "{name} {tenant:?}: the name is not part of the task's scope");
        }
    }
    for (call, _) in calls() {
        let mut call = call;
        call.set_tenant(Some("bob".to_owned()));
        assert_eq!(with.port.call_grpc(&pb::CODEC, &[], &call).await.code(), Code::Ok);
        let seen = with.bob.seen();
        assert!(seen[call.op().name()].get("tenant").is_none(), "{seen}");
    }
    // The version that has no tenant reaches the default agent only.
    assert_eq!(with.port.call_grpc(&v03::pb::CODEC, &[], &get("t")).await.code(), Code::Ok);
    assert_eq!(with.ann.seen(), json!({ "GetTask": { "id": "t" } }));
    let error = without.port.call_grpc(&v03::pb::CODEC, &[], &get("t")).await.error(&v03::pb::CODEC);
    assert!(error.message().contains("there is no default agent"), "{error}");
}

#[tokio::test]
async fn the_tenant_of_an_only_agent_is_its_own_affair() {
    let (probe, port) = Probe::on_the_wire();
    let mut call = get("t");
    call.set_tenant(Some("acme".to_owned()));
    port.call_grpc(&pb::CODEC, &[], &call).await;
    assert_eq!(probe.seen(), json!({ "GetTask": { "id": "t", "tenant": "acme" } }));
}

#[tokio::test]
async fn metadata_reaches_the_service() {
    // REQ-062
    let (probe, port) = Probe::on_the_wire();
    for codec in BOTH {
        let mut request = request(
            &path(codec, Op::SubscribeToTask),
            &[
                ("last-event-id", "7"),
                ("idempotency-key", "k"),
                ("a2a-extensions", "urn:a"),
                ("traceparent", "00-1-2-3"),
                ("tracestate", "x=y"),
                ("grpc-timeout", "5S"),
            ],
            frame(&encode(codec, &subscribe("t"))),
        );
        request.extensions_mut().insert(Caller::authenticated("ann"));
        assert_eq!(Outcome::read(port.request(request).await).await.code(), Code::Ok);
        let (cx, _) = probe.seen_with_context().unwrap();
        assert_eq!((cx.version, cx.last_event_id.map(|seq| seq.0)), (codec.version, Some(7)));
        assert_eq!((cx.binding, cx.version_inferred), (Some(Binding::Grpc), false));
        assert_eq!((cx.idempotency_key.as_deref(), &*cx.extensions), (Some("k"), &["urn:a".to_owned()][..]));
        let trace = cx.trace.unwrap();
        assert_eq!((&*trace.parent, trace.state.as_deref()), ("00-1-2-3", Some("x=y")));
        assert_eq!((cx.caller, cx.deadline.is_some()), (Caller::authenticated("ann"), true));

        let bad = port.call_grpc(codec, &[("last-event-id", "x")], &subscribe("t")).await.error(codec);
        assert_eq!((bad.kind(), &*bad.violations()[0].field), (ErrorKind::InvalidParams, "Last-Event-ID"));
        port.call_grpc(codec, &[("grpc-timeout", "soon")], &get("t")).await;
        assert_eq!(probe.seen_with_context().unwrap().0.deadline, None, "what cannot be read is none");
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_that_are_active_are_echoed_under_the_name_of_the_version() {
    // REQ-077 to REQ-082
    let mut known = card();
    known.capabilities.extensions = ["urn:a", "urn:b"]
        .map(|uri| AgentExtension { uri: uri.to_owned(), ..AgentExtension::default() })
        .into();
    known.capabilities.extensions[0].required = true;
    let harness = Harness::of(known, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| builder);
    let wire = Wire::of(harness, "", |_| {});
    let (now, then) = ("a2a-extensions", "x-a2a-extensions");
    for codec in BOTH {
        let (own, other) = if codec.version == Version::V1_0 { (now, then) } else { (then, now) };
        for (asked, echoed) in [
            (vec![(own, "urn:a")], Some("urn:a")),
            (vec![(other, "urn:a")], Some("urn:a")),
            (vec![(now, "urn:b,urn:a,urn:x"), (then, "urn:b")], Some("urn:b, urn:a")),
            (vec![(own, "urn:x")], None),
            (vec![], None),
        ] {
            for (call, fine) in [(say("hi"), true), (stream("hi"), true), (get("unknown"), false)] {
                let outcome = wire.call_grpc(codec, &asked, &call).await;
                let found = outcome.headers.get(own).map(|value| value.to_str().unwrap());
                assert_eq!(found, echoed, "{} {asked:?} {:?}", codec.service, call.op());
                assert_eq!(outcome.headers.get(other), None);
                let kind = match (echoed, fine) {
                    (None, _) => Some(ErrorKind::ExtensionSupportRequired),
                    (Some(_), false) => Some(ErrorKind::TaskNotFound),
                    (Some(_), true) => None,
                };
                let seen = (outcome.code() != Code::Ok).then(|| outcome.error(codec).kind());
                assert_eq!(seen, kind, "{} {asked:?} {:?}", codec.service, call.op());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_messages_and_then_ok() {
    // REQ-066, REQ-135, REQ-147
    for codec in BOTH {
        let wire =
            Wire::new([Step::Working, Step::Artifact("a", "x"), Step::Sleep(Duration::from_secs(100))]);
        let outcome = wire.call_grpc(codec, &[], &stream("hi")).await;
        assert_eq!(outcome.code(), Code::Ok);
        assert_eq!(outcome.status.as_ref().unwrap().details(), b"");
        let kinds: Vec<&str> = outcome
            .events(codec)
            .iter()
            .map(|event| match event {
                Event::Task(_) => "task",
                Event::Message(_) => "message",
                Event::StatusUpdate(_) => "status",
                Event::ArtifactUpdate(_) => "artifact",
            })
            .collect();
        assert_eq!(kinds, ["task", "status", "artifact", "status"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_mid_stream_stands_in_the_trailers() {
    // Trap T-34, invariants 4 and 10
    for codec in BOTH {
        let wire = Wire::new([Step::Working, Step::Sleep(Duration::from_secs(1)), Step::Working]);
        let body = frame(&encode(codec, &stream("hi")));
        let response = wire.request(request(&path(codec, Op::SendStreamingMessage), &[], body)).await;
        wire.harness.store.fail_writes(true);
        let outcome = Outcome::read(response).await;
        assert!(outcome.messages.len() <= 2 && !outcome.headers.contains_key("grpc-status"), "{outcome:?}");
        assert_eq!(outcome.error(codec).kind(), ErrorKind::Unavailable);
        assert!(!format!("{outcome:?}").contains(STORE_SECRET));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_before_a_stream_begins_is_all_that_comes() {
    // Trap T-34, REQ-144, REQ-145
    let wire = Wire::new([]);
    for codec in BOTH {
        let Reply::Sent(SendMessageResponse::Task(done)) =
            wire.call_grpc(codec, &[], &say("hi")).await.reply(codec, Op::SendMessage)
        else {
            panic!("expected a task");
        };
        for (call, kind) in [
            (subscribe("unknown"), ErrorKind::TaskNotFound),
            (subscribe(done.id.as_str()), ErrorKind::UnsupportedOperation),
            (stream(""), ErrorKind::InvalidParams),
        ] {
            let mut message = encode(codec, &call);
            if kind == ErrorKind::InvalidParams {
                message.clear();
            }
            let outcome = wire.grpc(&path(codec, call.op()), &[], frame(&message)).await;
            assert_eq!(outcome.error(codec).kind(), kind, "{} {call:?}", codec.service);
            assert!(outcome.headers.contains_key("grpc-status") && outcome.messages.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_no_longer_than_so_is_told_by_then() {
    // The task goes on: a deadline of the caller is not one of the task.
    for codec in BOTH {
        let wire = Wire::new([Step::Working, Step::Hang]);
        let mut call = send("hi");
        call.configuration = Some(Default::default());
        let call = Call::SendMessage(call.into());
        let outcome = wire.call_grpc(codec, &[("grpc-timeout", "3S")], &call).await;
        let Reply::Sent(SendMessageResponse::Task(task)) = outcome.reply(codec, Op::SendMessage) else {
            panic!("expected a task");
        };
        assert_eq!(task.status.state, TaskState::Working);
        assert_eq!(wire.harness.runtime.running(), 1);
    }
}
