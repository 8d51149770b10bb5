//! Interfaces of a card at other hosts than the operator has named.

use nuncio_protocol::SendMessageRequest;
use serde_json::json;
use url::Host;

use super::*;

/// A host that nobody has named.
const FOREIGN: &str = "elsewhere.example";

/// The interval between two refreshes of a card.
const REFRESH_INTERVAL: Duration = Duration::from_millis(5);

/// A card with interfaces at these addresses.
fn card(urls: &[&str]) -> Value {
    let interface = |url: &&str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    json!({
        "name": "peer", "description": "A peer.", "version": "1", "capabilities": {"streaming": true},
        "skills": [], "defaultInputModes": ["*/*"], "defaultOutputModes": ["*/*"],
        "supportedInterfaces": urls.iter().map(interface).collect::<Vec<_>>(),
    })
}

#[test]
fn an_interface_is_where_the_operator_has_named_it() {
    let url = Url::parse("http://127.0.0.1:7/").unwrap();
    let foreign = format!("http://{FOREIGN}/");
    for (interfaces, allow, expected) in [
        (&["http://127.0.0.1:9/"][..], &[][..], Ok(&["http://127.0.0.1:9/"][..])),
        (&["http://localhost/", "http://[::1]/"], &[], Ok(&["http://localhost/", "http://[::1]/"])),
        (&[&foreign, "http://127.0.0.1/"], &[], Ok(&["http://127.0.0.1/"])),
        (&[&foreign, "http://127.0.0.1/"], &[FOREIGN], Ok(&[&foreign, "http://127.0.0.1/"])),
        (&[&foreign], &[FOREIGN], Ok(&[&foreign])),
        (&[&foreign], &[], Err(FOREIGN)),
        (&[&foreign], &["another.example"], Err(FOREIGN)),
        (&["http://169.254.169.254/latest/", "http://127.0.0.1/"], &[FOREIGN], Ok(&["http://127.0.0.1/"])),
        (&["http://169.254.169.254/latest/"], &[FOREIGN], Err("169.254.169.254")),
        (&["http://[fe80::1]/"], &[FOREIGN], Err("[fe80::1]")),
        (&["http://[fd00:ec2::254]/"], &[FOREIGN], Err("[fd00:ec2::254]")),
        (&["http://169.254.7.7/"], &["169.254.7.7"], Ok(&["http://169.254.7.7/"])),
        (&["http://[fe80::1]/"], &["[fe80::1]"], Ok(&["http://[fe80::1]/"])),
    ] {
        let case = format!("{interfaces:?} {allow:?}");
        let allow_hosts = allow.iter().map(|host| Host::parse(host).unwrap()).collect();
        let settings = Upstream { allow_hosts, ..Upstream::new(url.clone()) };
        let link = Link::open("billing", settings, Arc::default(), Default::default()).unwrap();
        let card = FetchedCard::read(&url, card(interfaces).to_string().as_bytes()).unwrap();
        match (link.connect(Arc::new(card)), expected) {
            (Ok(_), Ok(expected)) => {
                let connected = link.connected().unwrap();
                let used: Vec<_> =
                    connected.client.candidates().iter().map(|it| &*it.interface.url).collect();
                assert_eq!(used, expected, "{case}");
            }
            (Err(error), Err(host)) => {
                let why = error.message();
                let line = format!("add allow_hosts = [\"{host}\"] to [agents.billing]");
                let flag = format!("--agent-allow-host billing={host}");
                assert!(why.contains(&line) && why.contains(&flag), "{case}: {why}");
                assert!(link.connected().is_none(), "{case}");
            }
            (connected, _) => panic!("{case}: {connected:?}"),
        }
    }
}

/// Says something to an agent in either mode.
async fn send(agent: &ServedAgent) -> nuncio_protocol::Result<SendMessageResponse> {
    let (cx, req) = (CallContext::default(), Say::from("two").into_request());
    let service: Arc<dyn nuncio_protocol::A2aService> = match (agent.runtime(), proxy_of(agent)) {
        (Some(runtime), _) => Arc::new(runtime.clone()),
        (None, proxy) => Arc::clone(proxy.unwrap()) as _,
    };
    let req: SendMessageRequest = req;
    service.send_message(&cx, req).await
}

#[tokio::test]
async fn what_callers_say_stays_where_the_operator_has_named_the_agent() {
    for mode in [Mode::Durable, Mode::Proxy] {
        let peer = Peer::start(Manners::good()).await;
        let foreign = format!("http://{FOREIGN}:9/");
        peer.show(card(&[&foreign, peer.url.as_str()]).to_string());
        let wanted = Upstream { mode, card_refresh: REFRESH_INTERVAL, ..settings(&peer.url) };
        let agent = agent(&factory(Arc::new(MemoryStore::default())).await, wanted, None).await;
        let behind = || agent.upstream().unwrap();
        assert_eq!(behind().health().condition, Condition::Up, "{mode:?}");
        send(&agent).await.unwrap();
        assert_eq!(peer.sends(), 1, "{mode:?}");
        // A card that moves away is not followed.
        peer.show(card(&[&foreign]).to_string());
        let is_ill =
            || matches!(&behind().health().condition, Condition::Degraded(why) if why.contains(FOREIGN));
        eventually("what is thought of it", is_ill).await;
        send(&agent).await.unwrap();
        assert_eq!(peer.sends(), 2, "{mode:?}: by the last good card");
    }
}

/// A card in a file is judged by the address of its agent, and one of an address of its own by both.
#[tokio::test]
async fn a_card_from_elsewhere_is_judged_by_the_hosts_of_the_settings() {
    let folder = Folder::new();
    let file = folder.0.join("card.json");
    let peer = Peer::start(Manners::good()).await;
    let foreign = format!("http://{FOREIGN}:9/");
    for (interface, expected) in [(peer.url.as_str(), true), (&foreign, false)] {
        std::fs::write(&file, card(&[interface]).to_string()).unwrap();
        let wanted = Upstream { card: Some(CardSource::File(file.clone())), ..settings(&peer.url) };
        let hub = hub(wanted).await;
        assert_eq!(hub.health().condition == Condition::Up, expected, "{:?}", hub.health());
        assert_eq!(hub.harness.task("two").await.is_ok(), expected, "{interface}");
    }
    let away = Url::parse(&foreign).unwrap();
    peer.show(card(&[&foreign, peer.url.as_str()]).to_string());
    let at = peer.url.join(".well-known/agent-card.json").unwrap();
    let hub = hub(Upstream { card: Some(CardSource::Url(at)), ..settings(&away) }).await;
    assert_eq!(hub.health().condition, Condition::Up, "both are named: {:?}", hub.health());
}
