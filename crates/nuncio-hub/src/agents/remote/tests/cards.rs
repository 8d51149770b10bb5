//! The card of an agent, looked for again and again by the hub itself.

use serde_json::json;

use super::*;

const REFRESH_INTERVAL: Duration = Duration::from_millis(5);

#[tokio::test]
async fn a_card_that_changes_is_followed_and_a_bad_one_changes_nothing() {
    for mode in [Mode::Durable, Mode::Proxy] {
        let peer = Peer::start(Manners::good()).await;
        let wanted = Upstream { mode, card_refresh: REFRESH_INTERVAL, ..settings(&peer.url) };
        let factory = factory(Arc::new(MemoryStore::default())).await;
        let agent = agent(&factory, wanted, None).await;
        let behind = || agent.upstream().unwrap();
        let shown = || agent.shown().card.description.clone();
        assert_eq!(shown(), "A peer.");
        let original = behind().card().unwrap();
        let other = |name: &str, value: Value| {
            let mut card = original.clone();
            card[name] = value;
            card.to_string()
        };
        for number in 0..2 {
            let good = format!("It has changed {number} times.");
            peer.show(other("description", good.clone().into()));
            eventually("the new card", || shown() == good).await;
            eventually("good health", || behind().health().condition == Condition::Up).await;
            assert_eq!(behind().card().unwrap()["description"], good, "the original follows, too");
            for bad in [
                "{".to_owned(),
                "[]".to_owned(),
                other("name", json!(7)),
                // A good card of an agent that nobody can speak to.
                json!({
                    "name": "peer", "description": "", "version": "1", "capabilities": {}, "skills": [],
                    "defaultInputModes": [], "defaultOutputModes": [], "supportedInterfaces": [
                        {"url": "http://127.0.0.1:9", "protocolBinding": "SMOKE", "protocolVersion": "1.0"},
                    ],
                })
                .to_string(),
            ] {
                peer.show(bad.clone());
                let is_ill = || matches!(behind().health().condition, Condition::Degraded(_));
                eventually(&format!("what is thought of {bad}"), is_ill).await;
                assert_eq!(shown(), good, "{bad}");
                assert_eq!(behind().card().unwrap()["description"], good, "{bad}");
                peer.show(other("description", good.clone().into()));
                eventually("good health", || behind().health().condition == Condition::Up).await;
            }
        }
    }
}
