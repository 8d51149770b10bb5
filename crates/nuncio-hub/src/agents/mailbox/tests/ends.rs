//! Waits and leases that are over, takeovers, and cancels.

use nuncio_server::store::RecordQuery;

use super::*;

#[tokio::test]
async fn nobody_comes_and_the_task_fails_with_that_reason() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        hub.sweep().await;
        assert_eq!(hub.get(&task).await.status.state, TaskState::Submitted);
        hub.later(Duration::from_secs(24 * 3600 + 1));
        hub.sweep().await;
        let told = hub.told(&task).await;
        assert!(told.starts_with("failed \"no worker of coder took it until 2"), "{told}");
        assert_eq!(hub.turns().await, 0);
    }
}

#[tokio::test]
async fn a_lease_that_ends_before_its_first_line_is_offered_again() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        let old = hub.claim().await.unwrap();
        hub.later(Duration::from_secs(59));
        hub.sweep().await;
        assert!(hub.claim_as("w2", None).await.is_none());
        hub.later(Duration::from_secs(2));
        let new = hub.claim_as("w2", None).await.unwrap();
        assert_eq!(
            (&new["generation"], &new["attempt"], &new["resumed"]),
            (&json!(2), &json!(2), &json!(false))
        );
        assert_eq!(new["repeatId"], old["repeatId"]);
        assert_eq!(reason(hub.update(&old, 1, &[json!({"completed": ""})]).await), Reason::LeaseLost);
        assert_eq!(reason(hub.heartbeat(&old).await), Reason::LeaseLost);
        assert_eq!(hub.get(&task).await.status.state, TaskState::Submitted, "a stale lease writes nothing");
        hub.update(&new, 1, &[json!({"completed": "new"})]).await.unwrap();
        assert!(hub.told(&task).await.contains("new"));
    }
}

#[tokio::test]
async fn a_heartbeat_and_a_line_renew_a_lease() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        hub.begin("hi").await;
        let lease = hub.claim().await.unwrap();
        for _ in 0..3 {
            hub.later(Duration::from_secs(50));
            hub.heartbeat(&lease).await.unwrap();
            hub.sweep().await;
        }
        hub.later(Duration::from_secs(50));
        hub.update(&lease, 1, &[json!({"status": "working"})]).await.unwrap();
        hub.later(Duration::from_secs(50));
        hub.sweep().await;
        hub.heartbeat(&lease).await.unwrap();
    }
}

/// Redelivery, a memo, how often it is lost; the end of the task, and whether it is poison.
#[tokio::test]
async fn a_lease_that_ends_after_its_first_line() {
    for kind in 0..3 {
        for (redeliver, memo, expected, poison) in [
            (false, false, "the worker was lost after it had begun", false),
            (true, false, "it was offered to workers 3 times", true),
            (false, true, "it was offered to workers 3 times", true),
        ] {
            let data = Data::nth(kind);
            let hub = Hub::new(&data, Settings { redeliver, ..Settings::default() }).await;
            let task = hub.begin("hi").await;
            let mut line = vec![json!({"status": "working", "text": "half"})];
            if memo {
                line.push(json!({"memo": {}}));
            }
            let mut offers = 0;
            while let Some(lease) = hub.claim().await {
                offers += 1;
                assert_eq!(lease["resumed"], offers > 1);
                assert_eq!(lease["task"].is_object(), offers > 1, "with the task so far");
                hub.update(&lease, 1, &line).await.unwrap();
                hub.later(Duration::from_secs(61));
                hub.sweep().await;
                assert_eq!(reason(hub.update(&lease, 2, &line).await), Reason::LeaseLost);
            }
            assert_eq!(offers, if poison { 3 } else { 1 });
            let told = hub.told(&task).await;
            assert!(told.starts_with(&format!("failed \"{expected}")), "{told}");
            let overview = hub.mailboxes.overview(NAME).await.unwrap().unwrap();
            assert_eq!(overview.poison.len(), usize::from(poison));
            assert_eq!((overview.waiting, overview.leased), (0, 0));
            if poison {
                let begun = hub.mailboxes.retry_poison(NAME, None).await.unwrap().unwrap();
                assert_eq!(begun.len(), 1);
                hub.parked().await;
                let lease = hub.claim().await.unwrap();
                assert_eq!((&lease["taskId"], &lease["attempt"]), (&json!(begun[0].as_str()), &json!(1)));
                assert_eq!(lease["message"]["parts"][0]["text"], "hi");
                hub.update(&lease, 1, &[json!({"completed": ""})]).await.unwrap();
                assert_eq!(hub.mailboxes.overview(NAME).await.unwrap().unwrap().poison.len(), 0);
            }
        }
    }
}

#[tokio::test]
async fn a_takeover_ends_a_lease_at_once() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        let first = hub.claim_as("w1", Some("k1")).await.unwrap();
        assert_eq!(hub.mailboxes.take_over_leases(NAME, Some("w9"), None).await.unwrap(), Some(0));
        assert_eq!(hub.mailboxes.take_over_leases(NAME, Some("w1"), None).await.unwrap(), Some(1));
        assert_eq!(reason(hub.heartbeat(&first).await), Reason::LeaseLost);
        let second = hub.claim_as("w1", Some("k2")).await.unwrap();
        // The worker has been restarted: what it held before is lost.
        let claim = Claim {
            worker: "w1".to_owned(),
            key: Some("k3".to_owned()),
            take_over: true,
            wait: Duration::ZERO,
        };
        let third = hub.mailboxes.claim(&hub.mailbox, &claim).await.unwrap().unwrap();
        let third: Value = serde_json::from_slice(&third.json).unwrap();
        assert_eq!(reason(hub.heartbeat(&second).await), Reason::LeaseLost);
        hub.update(&third, 1, &[json!({"status": "working"})]).await.unwrap();
        assert_eq!(
            hub.mailboxes.take_over_leases(NAME, None, Some(task.id.as_str())).await.unwrap(),
            Some(1)
        );
        assert!(hub.told(&task).await.starts_with("failed \"the worker was lost"));
    }
}

/// The heartbeat waits when the takeover comes, and answers because of it: the wait is longer than any test.
#[tokio::test]
async fn a_heartbeat_that_waits_learns_of_a_takeover() {
    let [data, ..] = Data::all();
    let hub =
        Arc::new(Hub::new(&data, Settings { lease: Duration::from_secs(7200), ..Settings::default() }).await);
    hub.begin("hi").await;
    let lease = hub.claim().await.unwrap();
    let (waiting, held) = (Arc::clone(&hub), id(&lease));
    let beat = tokio::spawn(async move {
        waiting.mailboxes.heartbeat(&waiting.mailbox, &held, Duration::from_secs(3600)).await
    });
    tokio::task::yield_now().await;
    hub.mailboxes.take_over_leases(NAME, None, None).await.unwrap();
    assert_eq!(reason(beat.await.unwrap()), Reason::LeaseLost);
}

#[tokio::test]
async fn a_cancel_before_the_first_line_is_at_once() {
    for kind in 0..3 {
        for claimed in [false, true] {
            let data = Data::nth(kind);
            let hub = Hub::new(&data, Settings::default()).await;
            let task = hub.begin("hi").await;
            let lease = if claimed { hub.claim().await } else { None };
            let canceled = hub.harness.cancel(&task.id).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled);
            assert!(hub.claim().await.is_none());
            if let Some(lease) = lease {
                assert_eq!(
                    reason(hub.update(&lease, 1, &[json!({"completed": ""})]).await),
                    Reason::LeaseLost
                );
            }
            assert_eq!(hub.turns().await, 0);
        }
    }
}

#[tokio::test]
async fn a_worker_is_told_of_a_cancel_and_may_end_the_task_in_its_own_words_or_stop() {
    for kind in 0..3 {
        for (line, expected) in
            [(Some(json!({"failed": "half of it is done"})), "failed"), (None, "canceled")]
        {
            let data = Data::nth(kind);
            let hub = Arc::new(Hub::new(&data, Settings::default()).await);
            let task = hub.begin("hi").await;
            let lease = hub.claim().await.unwrap();
            hub.update(&lease, 1, &[json!({"status": "working"})]).await.unwrap();
            let (caller, id_of_task) = (Arc::clone(&hub), task.id.clone());
            let canceling = tokio::spawn(async move { caller.harness.cancel(&id_of_task).await });
            let told =
                hub.mailboxes.heartbeat(&hub.mailbox, &id(&lease), Duration::from_secs(20)).await.unwrap();
            assert_eq!(serde_json::to_value(told).unwrap()["cancel"], true);
            match line {
                Some(line) => drop(hub.update(&lease, 2, &[line]).await.unwrap()),
                None => hub.mailboxes.release(&hub.mailbox, &id(&lease)).await.unwrap(),
            }
            let _ = canceling.await.unwrap();
            let told = hub.told(&task).await;
            assert!(told.starts_with(expected), "{told}");
            assert_eq!(reason(hub.update(&lease, 3, &[json!({"text": "late"})]).await), Reason::LeaseLost);
            assert_eq!(hub.turns().await, 0);
        }
    }
}

#[tokio::test]
async fn an_offer_that_is_handed_back_does_not_count_and_a_begun_one_is_not_handed_back() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        hub.begin("hi").await;
        for _ in 0..5 {
            let lease = hub.claim().await.unwrap();
            assert_eq!(lease["attempt"], 1);
            hub.mailboxes.release(&hub.mailbox, &id(&lease)).await.unwrap();
            assert_eq!(reason(hub.mailboxes.release(&hub.mailbox, &id(&lease)).await), Reason::LeaseLost);
        }
        let lease = hub.claim().await.unwrap();
        hub.update(&lease, 1, &[json!({"status": "working"})]).await.unwrap();
        assert_eq!(reason(hub.mailboxes.release(&hub.mailbox, &id(&lease)).await), Reason::Begun);
    }
}

#[tokio::test]
async fn an_erased_caller_leaves_no_turn() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        for caller in ["ann", "bob"] {
            hub.harness.as_caller(caller).begin("hi").await.unwrap();
            hub.parked().await;
        }
        hub.harness.runtime.erase(None, &Caller::authenticated("ann")).await.unwrap();
        let whose =
            nuncio_server::store::ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
        hub.mailboxes.erase(&whose).await.unwrap();
        assert_eq!(hub.turns().await, 1);
        assert_eq!(hub.claim().await.unwrap()["principal"], "bob");
        assert!(hub.claim().await.is_none());
    }
}

/// A message that kills each worker before its first line.
#[tokio::test]
async fn a_message_that_was_offered_too_often_is_poison_though_nobody_has_begun() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings { max_attempts: 2, ..Settings::default() }).await;
        let task = hub.begin("hi").await;
        for attempt in 1..=2 {
            assert_eq!(hub.claim().await.unwrap()["attempt"], attempt);
            hub.later(Duration::from_secs(61));
        }
        assert!(hub.claim().await.is_none());
        hub.sweep().await;
        let told = hub.told(&task).await;
        assert!(told.starts_with("failed \"it was offered to workers 2 times"), "{told}");
        assert_eq!(hub.mailboxes.overview(NAME).await.unwrap().unwrap().poison.len(), 1);
    }
}

/// An erased task takes along the memos of its worker: the one in the row, and the one that the task keeps.
#[tokio::test]
async fn an_erased_caller_leaves_no_memo_and_no_poison() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings { max_attempts: 1, ..Settings::default() }).await;
        let ann = hub.harness.as_caller("ann");
        let secret = || json!({"memo": {"secret": "hunter2"}});
        for (said, last) in [("asks", json!({"inputRequired": "?"})), ("waits", json!({"text": "x"}))] {
            ann.begin(said).await.unwrap();
            hub.parked().await;
            let lease = hub.claim().await.unwrap();
            hub.update(&lease, 1, &[secret(), last]).await.unwrap();
        }
        // One becomes poison, another is held by a worker when the caller is erased.
        hub.later(Duration::from_secs(61));
        hub.sweep().await;
        ann.begin("runs").await.unwrap();
        hub.parked().await;
        let lease = hub.claim().await.unwrap();
        hub.update(&lease, 1, &[secret()]).await.unwrap();
        assert_eq!(hub.mailboxes.overview(NAME).await.unwrap().unwrap().poison.len(), 1);
        hub.harness.runtime.erase(None, &Caller::authenticated("ann")).await.unwrap();
        let whose =
            nuncio_server::store::ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
        hub.mailboxes.erase(&whose).await.unwrap();
        assert_eq!(hub.turns().await, 0);
        assert_eq!(reason(hub.update(&lease, 2, &[json!({"text": "late"})]).await), Reason::LeaseLost);
        assert_eq!(hub.mailboxes.overview(NAME).await.unwrap().unwrap().poison.len(), 0);
        for kind in ["lease", "lease-call", "lease-poison", "lease-done", "lease-claim"] {
            let query = RecordQuery { kind: kind.into(), limit: 100, ..RecordQuery::default() };
            for record in hub.factory.store.records(&query).await.unwrap() {
                let text = String::from_utf8_lossy(&record.value).into_owned();
                assert!(!text.contains("hunter2") && !text.contains("ann"), "{kind} {}: {text}", record.key);
            }
        }
    }
}
