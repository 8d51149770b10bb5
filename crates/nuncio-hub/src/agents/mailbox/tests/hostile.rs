//! Workers that are as hostile as any peer: what they write is refused or harmless, and their task always has an end.

use nuncio_server::store::{Expect, PutRecord};

use super::*;
use crate::clock;

/// The limit of a task's size in these tests.
const MAX_TASK_BYTES: usize = 64 << 20;

#[tokio::test]
async fn metadata_of_the_hub_cannot_be_forged() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        let lease = hub.claim().await.unwrap();
        let forged = json!({"statusUpdate": {
            "taskId": "another", "contextId": "another",
            "status": {"state": "TASK_STATE_WORKING", "timestamp": "2001-01-01T00:00:00Z"},
            "metadata": {
                "nuncio.worker": {"name": "root", "generation": 99}, "nuncio.waitsFor": {"agent": "x"}, "own": 1,
            },
        }});
        hub.update(&lease, 1, &[forged]).await.unwrap();
        let task = hub.get(&task).await;
        assert_eq!(metadata(&task, "nuncio.worker"), json!({"name": "w1", "generation": 1}));
        assert_eq!(metadata(&task, "nuncio.waitsFor"), Value::Null);
        assert_eq!(metadata(&task, "own"), 1);
        assert!(task.status.timestamp.unwrap().to_string().starts_with("20"), "{task:?}");
        assert!(!task.status.timestamp.unwrap().to_string().starts_with("2001"), "{task:?}");
    }
}

/// Whether somebody follows the task, in which case it stays in memory, must not matter.
#[tokio::test]
async fn a_task_that_grows_beyond_its_limit_can_still_be_ended() {
    for (followed, as_text) in [(false, false), (true, false), (true, true)] {
        let [data, ..] = Data::all();
        let hub = Hub::new(&data, Settings::default()).await;
        let task = hub.begin("hi").await;
        let stream = if followed { Some(hub.harness.subscribe(&task.id).await.unwrap()) } else { None };
        let lease = hub.claim().await.unwrap();
        let piece = |number: usize| {
            let text = "x".repeat(8 << 20);
            match as_text {
                true => json!({"text": text}),
                false => json!({"artifact": {"artifactId": number.to_string(), "parts": [{"text": text}]}}),
            }
        };
        let mut have = 0;
        let refused = loop {
            match hub.update(&lease, have + 1, &[piece(have as usize)]).await {
                Ok(_) => have += 1,
                Err(problem) => break problem.reason,
            }
            assert!(have as usize * (8 << 20) <= MAX_TASK_BYTES, "there is a limit");
        };
        assert_eq!(refused, Reason::TooLarge);
        let told = hub.update(&lease, have + 1, &[json!({"failed": "too much"})]).await.unwrap();
        assert_eq!(told["done"], true);
        assert!(hub.told(&task).await.starts_with("failed \"too much\""));
        drop(stream);
    }
}

/// A row that cannot be read, by whatever accident, hides none behind it.
#[tokio::test]
async fn a_damaged_row_hides_no_other() {
    for data in Data::all() {
        let hub = Hub::new(&data, Settings { serial: config::Serial::None, ..Settings::default() }).await;
        let damaged = (0..3).map(|number| PutRecord {
            kind: "lease".into(),
            key: format!("{NAME}/00000000-0000-7000-8000-00000000000{number}").into(),
            value: "{".into(),
            at: clock::now(),
            expect: Expect::Absent,
        });
        hub.factory.store.put_records(damaged.collect()).await.unwrap();
        for number in 0..20 {
            hub.begin(format!("{number}").as_str()).await;
        }
        let mut claimed = 0;
        while hub.claim().await.is_some() {
            claimed += 1;
        }
        assert_eq!(claimed, 20);
        hub.sweep().await;
        assert_eq!(hub.mailboxes.overview(NAME).await.unwrap().unwrap().leased, 20);
    }
}
