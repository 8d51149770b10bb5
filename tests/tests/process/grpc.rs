//! gRPC on the hub's port: what tools ask for beside the agents, reflection and health; and which agent a
//! call is for.

use std::net::SocketAddr;

use nuncio_protocol::{
    Message, Part, SendMessageRequest, SendMessageResponse,
    op::{Call, Op, Reply},
    pb, v03,
};
use nuncio_tests::{
    http2::{Http2, frame},
    hub::{Hub, cli},
    raw::Raw,
};

use crate::text;

async fn connect(hub: &Hub) -> Http2 {
    let address: SocketAddr = hub.base.strip_prefix("http://").unwrap().parse().unwrap();
    Http2::connect(address).await
}

/// A protobuf field of text.
fn field(number: u8, text: &str) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// The services that are there, by either version of reflection.
#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services_and_describes_them() {
    let hub = Hub::start(&[]).await;
    let mut connection = connect(&hub).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        // ServerReflectionRequest.list_services
        let outcome = connection.ask(&path, &[], frame(&field(7, "*"))).await;
        assert_eq!((outcome.code(), outcome.messages.len()), (Some(0), 1), "{outcome:?}");
        let listed = String::from_utf8_lossy(&outcome.messages[0]).into_owned();
        for service in ["lf.a2a.v1.A2AService", "a2a.v1.A2AService", "grpc.health.v1.Health"] {
            // A field of its own: the one name ends with the other.
            let name = String::from_utf8(field(1, service)).unwrap();
            assert!(listed.contains(&name), "{version} {service}: {listed:?}");
            // ServerReflectionRequest.file_containing_symbol
            let outcome = connection.ask(&path, &[], frame(&field(4, service))).await;
            let described = String::from_utf8_lossy(&outcome.messages[0]).into_owned();
            assert!(described.contains(service.rsplit('.').next().unwrap()), "{version} {service}");
        }
        let outcome = connection.ask(&path, &[], frame(&field(4, "nope.Service"))).await;
        assert_eq!(outcome.code(), Some(5), "NOT_FOUND: {outcome:?}");
    }
}

/// HealthCheckResponse.status
const SERVING: &[u8] = &[8, 1];
const NOT_SERVING: &[u8] = &[8, 2];

#[tokio::test(flavor = "multi_thread")]
async fn health_is_good_until_the_hub_drains() {
    let mut hub = Hub::start(&["--drain-seconds", "3600"]).await;
    let services = ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"];
    let mut connection = connect(&hub).await;
    let check = "/grpc.health.v1.Health/Check";
    for service in services {
        let outcome = connection.ask(check, &[], frame(&field(1, service))).await;
        assert_eq!((outcome.code(), &*outcome.messages[0]), (Some(0), SERVING), "{service:?}");
    }
    let outcome = connection.ask(check, &[], frame(&field(1, "nope.Service"))).await;
    assert_eq!(outcome.code(), Some(5), "NOT_FOUND");

    // A task that does not end keeps the hub draining.
    let url = hub.agent("echo");
    let sent = cli(&["send", &url, "hold", "--no-wait", "-o", "json"]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let mut watches = Vec::new();
    for service in services {
        let watch = connection.begin("/grpc.health.v1.Health/Watch", &[], frame(&field(1, service)));
        let mut watch = watch.await;
        assert_eq!(watch.message().await.as_deref(), Some(SERVING), "{service:?}");
        watches.push(watch);
    }
    hub.process.signal("TERM").await;
    for (watch, service) in watches.iter_mut().zip(services) {
        assert_eq!(watch.message().await.as_deref(), Some(NOT_SERVING), "{service:?}");
        let outcome = connection.ask(check, &[], frame(&field(1, service))).await;
        assert_eq!((outcome.code(), &*outcome.messages[0]), (Some(0), NOT_SERVING), "{service:?}");
    }
    hub.process.says("waiting for running tasks").await;
    hub.process.signal("TERM").await;
    hub.process.end().await;
}

/// A caller that watches the health does not delay the shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn a_watched_hub_ends_all_the_same() {
    let mut hub = Hub::start(&["--drain-seconds", "0"]).await;
    let mut connection = connect(&hub).await;
    let mut watch = connection.begin("/grpc.health.v1.Health/Watch", &[], frame(&[])).await;
    assert_eq!(watch.message().await.as_deref(), Some(SERVING));
    hub.process.signal("TERM").await;
    assert_eq!(watch.message().await.as_deref(), Some(NOT_SERVING));
    assert_eq!(hub.process.end().await.code(), Some(0), "{}", hub.process.stderr());
}

/// The tenant is the agent's name, and the card says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_reaches_the_agent_that_the_card_says() {
    let hub = Hub::start(&["--default", "slow"]).await;
    let mut connection = connect(&hub).await;
    for (agent, tenant) in [("echo", Some("echo")), ("slow", None)] {
        let card = Raw::new(hub.agent(agent)).get("/.well-known/agent-card.json", &[]).await.json();
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        let interface = interfaces.iter().find(|interface| {
            interface["protocolBinding"] == "GRPC" && interface["protocolVersion"] == "1.0"
        });
        let interface = interface.unwrap();
        assert!(hub.base.ends_with(text(&interface["url"]).trim_start_matches("http://")), "{interface}");
        assert_eq!(interface["tenant"].as_str(), tenant, "{interface}");
        let message = Message::user("m", Part::text("0"));
        let request = SendMessageRequest {
            message,
            tenant: tenant.map(str::to_owned),
            ..SendMessageRequest::default()
        };
        let outcome = connection.call(&pb::CODEC, &[], &Call::SendMessage(request.into())).await;
        assert_eq!(outcome.code(), Some(0), "{outcome:?}");
        let reply = (pb::CODEC.decode_reply)(Op::SendMessage, outcome.messages[0].clone()).unwrap();
        let Reply::Sent(SendMessageResponse::Task(task)) = reply else { panic!("expected a task") };
        assert_eq!(task.artifacts[0].name, if agent == "echo" { "echo" } else { "countdown" });
        // The same task over another binding: the tenant was the way there, not a scope.
        let path = format!("/tasks/{}", task.id.as_str());
        let answer = Raw::new(hub.agent(agent)).get(&path, &[("a2a-version", "1.0")]).await;
        assert_eq!((answer.status, &answer.json()["id"]), (200, &task.id.as_str().into()), "{answer:?}");
    }
    for (path, code) in [
        ("/lf.a2a.v1.A2AService/Nope", 12),
        ("/nope.Service/Nope", 12),
        ("/agents/echo", 12),
        ("/grpc.health.v1.Health/Nope", 12),
    ] {
        let outcome = connection.ask(path, &[], frame(&[])).await;
        assert_eq!((outcome.http.as_u16(), outcome.code()), (200, Some(code)), "{path}: {outcome:?}");
    }
    // 0.3 has no tenant: it reaches the default agent, and its card lists it there only.
    let request = SendMessageRequest { message: Message::user("m", Part::text("0")), ..Default::default() };
    let outcome = connection.call(&v03::pb::CODEC, &[], &Call::SendMessage(request.into())).await;
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
}
