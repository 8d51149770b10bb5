//! Several workers, the order of a conversation, and mailboxes that are full.

use nuncio_protocol::ErrorKind;

use super::*;
use crate::config::Serial;

#[tokio::test]
async fn a_repeat_of_a_claim_gets_the_same_lease() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        hub.begin("one").await;
        hub.begin("two").await;
        let first = hub.claim_as("w1", Some("k1")).await.unwrap();
        assert_eq!(hub.claim_as("w1", Some("k1")).await.unwrap()["lease"], first["lease"]);
        let second = hub.claim_as("w1", Some("k2")).await.unwrap();
        assert_ne!(second["lease"], first["lease"]);
        hub.update(&first, 1, &[json!({"completed": ""})]).await.unwrap();
        assert!(hub.claim_as("w1", Some("k1")).await.is_none(), "its turn is over");
    }
}

#[tokio::test]
async fn tasks_of_one_conversation_go_out_one_at_a_time_unless_the_mailbox_says_otherwise() {
    for kind in 0..3 {
        for (serial, expected) in
            [(Serial::Context, vec!["a1", "b1"]), (Serial::None, vec!["a1", "a2", "b1"])]
        {
            let data = Data::nth(kind);
            let hub = Hub::new(&data, Settings { serial, ..Settings::default() }).await;
            for (context, text) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
                hub.begin(in_context(context, text)).await;
            }
            let mut leases = Vec::new();
            while let Some(lease) = hub.claim().await {
                leases.push(lease);
            }
            let texts: Vec<_> =
                leases.iter().map(|lease| lease["message"]["parts"][0]["text"].clone()).collect();
            assert_eq!(texts, expected);
            for lease in &leases {
                hub.update(lease, 1, &[json!({"completed": ""})]).await.unwrap();
            }
            if let Some(rest) = hub.claim().await {
                hub.update(&rest, 1, &[json!({"completed": ""})]).await.unwrap();
            }
            assert_eq!(hub.turns().await, 0);
        }
    }
}

#[tokio::test]
async fn of_many_workers_each_gets_another_turn() {
    for data in Data::all() {
        let hub = Arc::new(Hub::new(&data, Settings::default()).await);
        for number in 0..20 {
            hub.begin(format!("{number}").as_str()).await;
        }
        let workers: Vec<_> = (0..30)
            .map(|number| {
                let hub = Arc::clone(&hub);
                tokio::spawn(async move { hub.claim_as(&format!("w{number}"), None).await })
            })
            .collect();
        let mut texts = Vec::new();
        for worker in workers {
            let lease = worker.await.unwrap();
            texts
                .extend(lease.map(|lease| lease["message"]["parts"][0]["text"].as_str().unwrap().to_owned()));
        }
        texts.sort_by_key(|text| text.parse::<u32>().unwrap());
        assert_eq!(texts, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_claim_that_waits_gets_the_next_message() {
    for data in Data::all() {
        let hub = Arc::new(Hub::new(&data, Settings::default()).await);
        let waiting = Arc::clone(&hub);
        let claiming = tokio::spawn(async move {
            let claim = Claim {
                worker: "w1".to_owned(),
                key: None,
                take_over: false,
                wait: Duration::from_secs(3600),
            };
            waiting.mailboxes.claim(&waiting.mailbox, &claim).await.unwrap().is_some()
        });
        tokio::task::yield_now().await;
        hub.begin("hi").await;
        assert!(claiming.await.unwrap());
    }
}

#[tokio::test]
async fn a_full_mailbox_refuses_messages_until_there_is_room() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings { max_waiting: 2, ..Settings::default() }).await;
        hub.begin("one").await;
        hub.begin("two").await;
        // Not immediately: the refusal may come after the task is told, and is its end then.
        let refused = hub.harness.task("three").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(refused.retry_after().is_some() && refused.message().contains("is full"), "{refused}");
        let lease = hub.claim().await.unwrap();
        assert!(hub.harness.task("three").await.is_err(), "a message at a worker counts as well");
        hub.update(&lease, 1, &[json!({"completed": ""})]).await.unwrap();
        hub.begin("three").await;
    }
}
