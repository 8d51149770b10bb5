//! A turn from its message to its last line.

use super::*;

#[tokio::test]
async fn a_message_waits_is_claimed_and_its_lines_are_the_task() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("build it").await;
        assert_eq!(task.status.state, TaskState::Submitted);
        assert!(
            task.status.message.as_ref().unwrap().text().starts_with("waits for a worker of coder until 2")
        );
        assert_eq!(metadata(&task, "nuncio.waitsFor")["agent"], "coder");
        assert_eq!(hub.harness.runtime.live_tasks(), 0, "it costs no memory");
        let lease = hub.claim().await.unwrap();
        assert_eq!(hub.get(&task).await.status.state, TaskState::Submitted, "unchanged by a claim");
        assert_eq!(lease["message"]["parts"][0]["text"], "build it");
        assert_eq!(lease["taskId"], task.id.as_str());
        let numbers = ["generation", "attempt", "ttlSeconds", "have"].map(|name| lease[name].as_u64());
        assert_eq!(numbers, [Some(1), Some(1), Some(60), Some(0)]);
        assert_eq!((&lease["resumed"], &lease["task"]), (&json!(false), &Value::Null));
        assert!(lease["traceparent"].as_str().is_some_and(|parent| parent.len() == 55), "{lease}");
        assert!(lease["hops"].as_array().is_some_and(|hops| hops.len() == 1), "{lease}");
        assert!(hub.claim().await.is_none(), "there is one");
        let told = hub.update(&lease, 1, &[json!({"text": "half"})]).await.unwrap();
        let expected = json!({"have": 1, "cancel": false, "waiting": 0, "ttlSeconds": 60, "done": false});
        assert_eq!(told, expected);
        let working = hub.get(&task).await;
        assert_eq!(working.status.state, TaskState::Working);
        assert_eq!(metadata(&working, "nuncio.worker"), json!({"name": "w1", "generation": 1}));
        assert_eq!(metadata(&working, "nuncio.waitsFor"), Value::Null);
        let lines =
            [json!({"text": " done"}), json!({"artifact": {"artifactId": "a", "parts": [{"text": "A"}]}})];
        assert_eq!(hub.update(&lease, 2, &lines).await.unwrap()["have"], 3);
        let told = hub.update(&lease, 4, &[json!({"completed": "ready"})]).await.unwrap();
        assert_eq!((&told["have"], &told["done"]), (&json!(4), &json!(true)));
        let done = hub.get(&task).await;
        assert_eq!(done.status.state, TaskState::Completed);
        let texts: Vec<_> = done.artifacts.iter().map(|artifact| artifact.text()).collect();
        assert_eq!(texts, ["half done", "A"]);
        assert_eq!(done.artifacts[0].parts.len(), 1, "text is one part");
        assert_eq!(hub.turns().await, 0);
        let again = hub.update(&lease, 4, &[json!({"completed": "ready"})]).await.unwrap();
        assert_eq!(again["done"], true, "a repeat of the last lines");
        assert_eq!(reason(hub.update(&lease, 5, &[json!({"text": "more"})]).await), Reason::LeaseLost);
        assert_eq!(reason(hub.heartbeat(&lease).await), Reason::LeaseLost);
    }
}

#[tokio::test]
async fn lines_are_numbered_dropped_if_known_and_refused_after_a_gap() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        let lease = hub.claim().await.unwrap();
        let text = |text: &str| json!({"text": text});
        for (first, lines, expected) in [
            (1, vec![text("1"), text("2")], Ok(2)),
            (1, vec![text("1"), text("2")], Ok(2)),
            (2, vec![text("2"), text("3")], Ok(3)),
            (5, vec![text("5")], Err(Reason::Gap)),
            (4, vec![text("4"), json!({"txt": 1})], Err(Reason::InvalidLine)),
            (4, vec![json!({"completed": ""}), text("5")], Err(Reason::InvalidLine)),
            (4, vec![], Ok(3)),
            (4, vec![text("4")], Ok(4)),
        ] {
            let answer = hub.update(&lease, first, &lines).await;
            let have = answer.map(|progress| progress["have"].as_u64().unwrap());
            assert_eq!(have.map_err(|problem| problem.reason), expected, "{first} {lines:?}");
        }
        assert_eq!(hub.get(&task).await.artifacts[0].text(), "1234", "no line twice or missing");
    }
}

#[tokio::test]
async fn a_question_ends_the_lease_and_its_answer_is_a_new_turn_with_the_whole_task() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("build it").await;
        let lease = hub.claim().await.unwrap();
        let lines = [json!({"memo": {"id": 7}}), json!({"inputRequired": "which one?"})];
        assert_eq!(hub.update(&lease, 1, &lines).await.unwrap()["done"], true);
        assert_eq!(hub.get(&task).await.status.state, TaskState::InputRequired);
        assert!(hub.claim().await.is_none());
        assert_eq!(reason(hub.heartbeat(&lease).await), Reason::LeaseLost);
        let asked = hub.begin(Say::to(&task, "the red one")).await;
        assert_eq!(asked.status.state, TaskState::Submitted);
        let next = hub.claim().await.unwrap();
        assert_ne!(next["lease"], lease["lease"]);
        assert_eq!(next["message"]["parts"][0]["text"], "the red one");
        assert_eq!(next["memo"], json!({"id": 7}));
        assert_eq!(next["resumed"], false);
        assert_eq!(next["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "as it was when asked");
        let said = next["task"]["history"].as_array().unwrap().len();
        assert!(said >= 3, "{}", next["task"]);
        hub.update(&next, 1, &[json!({"completed": ""})]).await.unwrap();
        assert_eq!(hub.get(&task).await.status.state, TaskState::Completed);
        assert_eq!(hub.turns().await, 0);
    }
}

#[tokio::test]
async fn a_memo_alone_is_a_line_and_the_last_one_counts() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings { redeliver: false, ..Settings::default() }).await;
        hub.begin("hi").await;
        let lease = hub.claim().await.unwrap();
        for (first, memo) in [(1, json!({"step": 1})), (2, json!({"step": 2}))] {
            let told = hub.update(&lease, first, &[json!({"memo": memo})]).await.unwrap();
            assert_eq!(told["have"], first);
        }
        hub.later(Duration::from_secs(61));
        let next = hub.claim_as("w2", None).await.unwrap();
        assert_eq!((&next["memo"], &next["resumed"]), (&json!({"step": 2}), &json!(true)));
        hub.update(&next, 1, &[json!({"memo": null})]).await.unwrap();
        hub.later(Duration::from_secs(61));
        assert!(hub.claim().await.is_none(), "without a memo it is not repeated");
    }
}

#[tokio::test]
async fn data_of_the_call_and_its_conversation_reach_the_worker() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let hub = Hub { harness: hub.harness.as_caller("ann"), ..hub };
        hub.begin(in_context("c", "one")).await;
        let lease = hub.claim().await.unwrap();
        assert_eq!(lease["principal"], "ann");
        assert_ne!(lease["contextId"], "c", "no worker sees a caller's own context id");
        hub.update(&lease, 1, &[json!({"completed": "first"})]).await.unwrap();
        hub.begin(in_context("c", "two")).await;
        let next = hub.claim().await.unwrap();
        assert_eq!(next["contextId"], lease["contextId"]);
        assert_eq!(next["earlier"][0]["history"][0]["parts"][0]["text"], "one");
    }
}
