//! Agents that callers reach in some of the versions only.

use nuncio_client::{Candidate, Credentials, Direct, Egress};
use nuncio_hub::config::{Agent, AgentKind, AgentOrigin, Config, Demo, Mode, Upstream};
use nuncio_protocol::{
    A2aService as _, AgentInterface, Binding, CallContext, ErrorKind, GetExtendedAgentCardRequest,
    GetTaskRequest, Version,
};
use url::Url;

use crate::{Running, cards::get, config};

const NAME: &str = "some";

/// The agent as it is reached in one form.
fn service(hub: &Running, binding: Binding, version: Version) -> Direct {
    let url = match binding {
        Binding::Grpc => hub.url.clone(),
        Binding::JsonRpc | Binding::HttpJson => format!("{}/agents/{NAME}", hub.url),
    };
    let interface = AgentInterface {
        url,
        protocol_binding: binding.as_str().to_owned(),
        protocol_version: version.as_str().to_owned(),
        tenant: None,
    };
    let candidate = Candidate { interface, version, binding };
    let home = Url::parse(&hub.url).unwrap();
    Direct::new(&Egress::operator().unwrap(), &candidate, &Credentials::none(), &home).unwrap()
}

fn kinds(far: &Running) -> Vec<AgentKind> {
    let url: Url = format!("{}/agents/echo", far.url).parse().unwrap();
    let upstream = |mode| Box::new(Upstream { mode, ..Upstream::new(url.clone()) });
    vec![
        AgentKind::Demo(Demo::Conformance),
        AgentKind::Upstream(upstream(Mode::Durable)),
        AgentKind::Upstream(upstream(Mode::Proxy)),
    ]
}

#[tokio::test]
async fn only_the_versions_of_an_agent_are_shown_and_answered() {
    let far = Running::start(config()).await;
    let (new, old) = (Version::V1_0, Version::V0_3);
    for kind in kinds(&far) {
        for versions in [&[new, old][..], &[new], &[old]] {
            let case = format!("{kind:?} {versions:?}");
            let mut agent = Agent::new(NAME.parse().unwrap(), kind.clone(), AgentOrigin::File);
            agent.versions = versions.to_vec();
            let hub = Running::start(Config {
                agents: vec![agent],
                demo: false,
                // 0.3 over gRPC has no place for the name of an agent.
                default_agent: Some(NAME.to_owned()),
                ..config()
            })
            .await;
            let card = get(&hub, &format!("/agents/{NAME}"), &[]).await.json;
            let shown: Vec<_> = card["supportedInterfaces"].as_array().unwrap().iter().collect();
            assert_eq!(shown.len(), 3 * versions.len(), "{case} {card}");
            for interface in shown {
                let is_its = |version: &Version| interface["protocolVersion"] == version.as_str();
                assert!(versions.iter().any(is_its), "{case} {card}");
            }
            // Members of 0.3 beside those of 1.0.
            assert_eq!(card["preferredTransport"].is_string(), versions.contains(&old), "{case} {card}");
            for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
                for version in [new, old] {
                    let service = service(&hub, binding, version);
                    let req = GetTaskRequest { id: "unknown".into(), ..GetTaskRequest::default() };
                    let error = service.get_task(&CallContext::new(version), req).await.unwrap_err();
                    let is_its = versions.contains(&version);
                    let expected =
                        if is_its { ErrorKind::TaskNotFound } else { ErrorKind::VersionNotSupported };
                    assert_eq!(error.kind(), expected, "{case} {binding:?} {version:?}: {error}");
                }
            }
            if matches!(kind, AgentKind::Demo(_)) {
                let service = service(&hub, Binding::JsonRpc, versions[0]);
                let req = GetExtendedAgentCardRequest::default();
                let cx = CallContext::new(versions[0]);
                let extended = service.get_extended_agent_card(&cx, req).await.unwrap();
                let others = |interface: &&AgentInterface| {
                    !interface.version().is_some_and(|version| versions.contains(&version))
                };
                assert_eq!(extended.supported_interfaces.iter().find(others), None, "{case}");
            }
        }
    }
}
