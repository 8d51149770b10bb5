//! Calls over gRPC that name no agent: who answers them, and whom the caller may name.

use nuncio_hub::config::{Agent, Config};
use nuncio_protocol::{
    GetTaskRequest, Message, Part, SendMessageRequest, Version,
    op::Call,
    pb::{self, Codec},
    v03,
};

use crate::{
    Running,
    refusals::header,
    wire::{Answer, read},
};

fn codec(version: Version) -> &'static Codec {
    match version {
        Version::V1_0 => &pb::CODEC,
        Version::V0_3 => &v03::pb::CODEC,
    }
}

/// Calls the agent of this tenant, or of none.
async fn call(
    hub: &Running,
    version: Version,
    tenant: Option<&str>,
    key: Option<&str>,
    mut call: Call,
) -> Answer {
    let codec = codec(version);
    call.set_tenant(tenant.map(str::to_owned));
    let url = format!("{}/{}/{}", hub.url, codec.service, (codec.rpc_name)(call.op()).unwrap());
    let mut message = Vec::new();
    (codec.encode_call)(&call, &mut message).unwrap();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0][..], &length, &message].concat();
    let mut request = hub.http2.post(url).header("content-type", "application/grpc").body(frame);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    read(request).await
}

fn calls() -> [Call; 3] {
    let send = || {
        let message = Message::user("m", [Part::text("hello")]);
        Box::new(SendMessageRequest { message, ..Default::default() })
    };
    [
        Call::SendMessage(send()),
        Call::SendStreamingMessage(send()),
        Call::GetTask(Box::new(GetTaskRequest { id: "t".into(), ..Default::default() })),
    ]
}

/// A hub with this default agent, and `secret`, which is not listed.
async fn hub(far: &Running, default: Option<&str>) -> Running {
    Running::before(far, |config: &mut Config, agent| {
        let secret = Agent { name: "secret".parse().unwrap(), visible: false, ..agent.clone() };
        config.agents.push(secret);
        config.default_agent = default.map(str::to_owned);
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_names_the_agent_where_the_call_did_not() {
    let far = Running::start(|_| {}).await;
    for default in ["echo", "far"] {
        let hub = hub(&far, Some(default)).await;
        for version in [Version::V1_0, Version::V0_3] {
            for asked in calls() {
                let what = format!("{default} {version:?} {:?}", asked.op());
                let answer = call(&hub, version, None, None, asked).await;
                assert_eq!(header(&answer, "nuncio-agent"), default, "{what}: {}", answer.text());
            }
        }
        for asked in calls() {
            let answer = call(&hub, Version::V1_0, Some(default), None, asked).await;
            assert_eq!(header(&answer, "nuncio-agent"), "", "{}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_default_agent_the_error_lists_whom_the_caller_may_call() {
    let far = Running::start(|_| {}).await;
    let hub = hub(&far, None).await;
    // The default agent of others is none of theirs.
    let with_default = self::hub(&far, Some("conformance")).await;
    let cases: [(&str, Option<&[&str]>, &str); 4] = [
        ("all", None, "conformance, echo, far, slow"),
        ("two", Some(&["slow", "far"]), "far, slow"),
        ("one", Some(&["echo", "secret"]), "echo"),
        ("none", Some(&["secret"]), ""),
    ];
    for (name, allowed, listed) in cases {
        for (hub, is_refused) in [(&hub, true), (&with_default, allowed.is_some())] {
            let key = hub.key(name, allowed).await;
            for version in [Version::V1_0, Version::V0_3] {
                for asked in calls() {
                    let what = format!("{name} {version:?} {:?}", asked.op());
                    let answer = call(hub, version, None, Some(&key), asked).await;
                    let told = header(&answer, "grpc-message").replace("%20", " ");
                    let tenants = told.split_once("; tenants are ").map_or("", |(_, tenants)| tenants);
                    if is_refused {
                        assert_eq!(header(&answer, "grpc-status"), "3", "{what}: {told}");
                        assert_eq!(tenants, listed, "{what}: {told}");
                    }
                    assert_eq!(header(&answer, "nuncio-agent").is_empty(), is_refused, "{what}: {told}");
                }
            }
        }
    }
}
