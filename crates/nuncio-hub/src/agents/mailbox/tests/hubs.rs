//! Several hubs over the same data, one after the other and side by side.

use nuncio_protocol::ErrorKind;

use super::*;

#[tokio::test]
async fn after_a_hub_has_stopped_the_next_one_goes_on_at_the_lines_that_it_has() {
    for data in Data::all() {
        let first = Hub::new(&data, Settings::default()).await;
        let task = first.begin("hi").await;
        let lease = first.claim_as("w1", Some("k")).await.unwrap();
        first.update(&lease, 1, &[json!({"text": "1"}), json!({"text": "2"})]).await.unwrap();
        first.factory.store.close().await;
        drop(first);
        let second = Hub::new(&data, Settings::default()).await;
        let again = second.claim_as("w1", Some("k")).await.unwrap();
        assert_eq!((&again["lease"], &again["have"]), (&lease["lease"], &json!(2)));
        assert_eq!(second.heartbeat(&lease).await.unwrap()["have"], 2);
        second.update(&lease, 2, &[json!({"text": "2"}), json!({"text": "3"})]).await.unwrap();
        second.update(&lease, 4, &[json!({"completed": ""})]).await.unwrap();
        assert_eq!(second.get(&task).await.artifacts[0].text(), "123");
    }
}

#[tokio::test]
async fn a_lease_is_good_for_one_more_time_after_the_start_of_a_hub() {
    for data in Data::all() {
        let first =
            Hub::new(&data, Settings { lease: Duration::from_millis(1), ..Settings::default() }).await;
        first.begin("hi").await;
        let lease = first.claim().await.unwrap();
        first.factory.store.close().await;
        drop(first);
        let second = Hub::new(&data, Settings::default()).await;
        second.sweep().await;
        assert!(second.claim_as("w2", None).await.is_none());
        second.later(Duration::from_secs(61));
        assert_eq!(second.claim_as("w2", None).await.unwrap()["generation"], 2);
        assert_eq!(reason(second.heartbeat(&lease).await), Reason::LeaseLost);
    }
}

#[tokio::test]
async fn any_hub_hands_a_message_out_and_takes_its_lines() {
    for data in Data::shared() {
        let one = Hub::new(&data, Settings::default()).await;
        let other = Hub::new(&data, Settings::default()).await;
        let task = one.begin("hi").await;
        let lease = other.claim().await.unwrap();
        assert!(one.claim().await.is_none());
        for (number, hub) in (1..).zip([&one, &other, &one, &one, &other]) {
            hub.update(&lease, number, &[json!({"text": number.to_string()})]).await.unwrap();
        }
        other.heartbeat(&lease).await.unwrap();
        one.update(&lease, 6, &[json!({"completed": ""})]).await.unwrap();
        for hub in [&one, &other] {
            assert_eq!(hub.get(&task).await.artifacts[0].text(), "12345");
            assert_eq!(hub.update(&lease, 6, &[json!({"completed": ""})]).await.unwrap()["done"], true);
        }
    }
}

/// Two writers with one lease: each line is stored once, whichever hub it came to.
#[tokio::test]
async fn the_same_lines_at_two_hubs_at_once_are_stored_once() {
    for data in Data::shared() {
        let one = Arc::new(Hub::new(&data, Settings::default()).await);
        let other = Arc::new(Hub::new(&data, Settings::default()).await);
        let task = one.begin("hi").await;
        let lease = one.claim().await.unwrap();
        for number in 1..=30_u64 {
            let sent: Vec<_> = [&one, &other]
                .map(|hub| {
                    let (hub, lease) = (Arc::clone(hub), lease.clone());
                    tokio::spawn(async move { hub.update(&lease, number, &[json!({"text": "x"})]).await })
                })
                .into();
            let mut stored = 0;
            for answer in sent {
                stored += u32::from(answer.await.unwrap().is_ok());
            }
            assert!(stored > 0, "{number}");
        }
        one.update(&lease, 31, &[json!({"completed": ""})]).await.unwrap();
        assert_eq!(one.get(&task).await.artifacts[0].text(), "x".repeat(30));
    }
}

#[tokio::test]
async fn a_card_that_a_worker_puts_is_shown_and_survives_a_restart() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let shown = |hub: &Hub| hub.harness.runtime.card().description.clone();
        assert!(shown(&hub).contains("No worker has described itself yet"));
        let card = json!({
            "name": "Coder", "description": "Writes code", "version": "1", "capabilities": {},
            "supportedInterfaces": [{"url": "http://10.0.0.1/secret", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        });
        let put = |text: String| super::super::card::publish(&hub.mailboxes, &hub.mailbox, text.into());
        assert_eq!(reason(put("no card".to_owned()).await), Reason::Invalid);
        put(card.to_string()).await.unwrap();
        assert_eq!(shown(&hub), "Writes code");
        let text = serde_json::to_string(&*hub.harness.runtime.card()).unwrap();
        assert!(!text.contains("10.0.0.1"), "the address of a worker is nobody's business: {text}");
        hub.factory.store.close().await;
        drop(hub);
        assert_eq!(shown(&Hub::new(&data, Settings::default()).await), "Writes code");
    }
}

/// Each hub counts what the other one has accepted and finished, without a sweep in between.
#[tokio::test]
async fn a_mailbox_is_full_at_every_hub() {
    let [.., data] = Data::all();
    let settings = || Settings { max_waiting: 4, ..Settings::default() };
    let one = Hub::new(&data, settings()).await;
    let other = Hub::new(&data, settings()).await;
    for _ in 0..2 {
        one.begin("hi").await;
        other.begin("hi").await;
    }
    for hub in [&one, &other] {
        let refused = hub.harness.task("more").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    }
    let lease = one.claim().await.unwrap();
    one.update(&lease, 1, &[json!({"completed": ""})]).await.unwrap();
    other.begin("hi").await;
    assert!(one.harness.task("more").await.is_err());
}
