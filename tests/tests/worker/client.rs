//! The worker's client: lines arrive once and in order, whatever happens between it and the hub.

use std::time::Duration;

use nuncio_client::worker::{Line, Release, Worker, WorkerError};
use nuncio_tests::{
    mailbox::{FakeHub, Fault, MAILBOX_KEY},
    within,
};
use serde_json::json;

const WAIT: Duration = Duration::from_secs(50);

fn worker(hub: &FakeHub) -> Worker {
    Worker::builder(hub.url(), "coder").key(MAILBOX_KEY).name("w1").build().unwrap()
}

async fn lease(hub: &FakeHub) -> nuncio_client::worker::Lease {
    within("a lease", worker(hub).next()).await.unwrap()
}

#[tokio::test]
async fn a_worker_reads_its_work_and_writes_the_answer() {
    let hub = FakeHub::start().await;
    hub.offer(
        "hello",
        &json!({
            "principal": "ann", "tenant": "north", "resumed": true, "memo": { "at": 3 },
            "traceparent": "00-aa-bb-01", "hops": ["h/a"], "acceptedOutputModes": ["text/plain"],
            "earlier": [{ "id": "t-0", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" } }],
        }),
    );
    let lease = lease(&hub).await;
    let claim = lease.claim();
    assert_eq!((&*claim.message.text(), claim.task_id.as_str()), ("hello", "t-1"));
    assert_eq!((claim.principal.as_deref(), claim.tenant.as_deref()), (Some("ann"), Some("north")));
    assert_eq!(claim.memo.as_ref().map(|memo| memo.as_str()), Some(r#"{"at":3}"#));
    assert_eq!((claim.repeat_id.as_deref(), claim.resumed), (Some("r-1"), true));
    assert_eq!(claim.trace().unwrap().parent, "00-aa-bb-01");
    assert_eq!(
        (claim.earlier.len(), &*claim.hops, &*claim.accepted_output_modes),
        (1, &["h/a".to_owned()][..], &["text/plain".to_owned()][..])
    );
    lease.write(Line::working());
    lease.write(Line::memo(&json!({ "at": 4 })).unwrap());
    lease.finish(Line::completed("done")).await.unwrap();
    let seen = hub.leases().remove(0);
    assert_eq!(seen.brief(), ["status working", "memo", "completed done"]);
    assert_eq!(seen.worker, "w1");
}

/// Each way in which a call can fail, at the beginning and in the middle: no line is missing, and none comes twice.
#[tokio::test]
async fn lines_arrive_once_and_in_order() {
    for faults in [
        &[Fault::CutBefore][..],
        &[Fault::CutAfter],
        &[Fault::CutWithin],
        &[Fault::Busy, Fault::Busy],
        &[Fault::Gap],
        &[Fault::TooLarge],
        &[Fault::CutWithin, Fault::CutAfter, Fault::Busy, Fault::CutBefore],
    ] {
        let hub = FakeHub::start().await;
        hub.offer("hello", &json!({}));
        let lease = lease(&hub).await;
        hub.fail(faults);
        lease.write_all((0..5).map(|number| Line::text(number.to_string())));
        within("the lines", lease.flush()).await.unwrap();
        lease.write(Line::text("5"));
        within("the end", lease.finish(Line::completed(""))).await.unwrap();
        let expected: Vec<String> =
            (0..6).map(|number| format!("text {number}")).chain(["completed ".to_owned()]).collect();
        assert_eq!(hub.leases()[0].brief(), expected, "{faults:?}");
    }
}

#[tokio::test]
async fn a_line_that_the_hub_cannot_read_fails_the_task() {
    let hub = FakeHub::start().await;
    hub.offer("hello", &json!({}));
    let lease = lease(&hub).await;
    lease.write_all([Line::working(), Line::json(&json!({ "invalid": 1 })).unwrap(), Line::completed("")]);
    within("the end", lease.flush()).await.unwrap();
    assert_eq!(hub.leases()[0].brief(), ["status working", "failed for the test: invalid-line"]);
}

#[tokio::test]
async fn a_lost_lease_is_told_at_once_and_writes_nothing() {
    let hub = FakeHub::start().await;
    hub.offer("one", &json!({}));
    let idle = lease(&hub).await;
    hub.lose(0);
    within("the loss by heartbeat", idle.lost().cancelled()).await;
    idle.write(Line::completed("late"));
    assert!(matches!(idle.flush().await, Err(WorkerError::Lost(_))));
    hub.offer("two", &json!({}));
    let writing = lease(&hub).await;
    hub.fail(&[Fault::Lost]);
    writing.write(Line::working());
    assert!(matches!(within("the loss by a line", writing.flush()).await, Err(WorkerError::Lost(_))));
    assert!(writing.lost().is_cancelled());
    assert!(hub.leases().iter().all(|lease| lease.lines.is_empty()));
}

#[tokio::test]
async fn a_cancel_is_told_at_once_and_acknowledged_by_release() {
    let hub = FakeHub::start().await;
    hub.offer("hello", &json!({}));
    let lease = lease(&hub).await;
    lease.write(Line::working());
    lease.flush().await.unwrap();
    hub.cancel(0);
    within("the cancel", lease.canceled().cancelled()).await;
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(hub.leases()[0].released);
}

#[tokio::test]
async fn what_was_not_begun_is_handed_back_and_what_was_is_not() {
    let hub = FakeHub::start().await;
    hub.offer("one", &json!({}));
    assert_eq!(lease(&hub).await.release().await.unwrap(), Release::Released);
    hub.offer("two", &json!({}));
    let begun = lease(&hub).await;
    begun.write(Line::working());
    begun.flush().await.unwrap();
    assert_eq!(begun.release().await.unwrap(), Release::Begun);
    let released: Vec<bool> = hub.leases().iter().map(|lease| lease.released).collect();
    assert_eq!(released, [true, false]);
}

/// The answer to a claim that nobody awaits any more is a lease that would have to expire.
#[tokio::test]
async fn a_claim_that_was_given_up_is_handed_back() {
    let hub = FakeHub::start().await;
    let worker = worker(&hub);
    {
        let claim = worker.claim(WAIT);
        tokio::pin!(claim);
        // Sent, and not answered.
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut claim).await;
        assert!(waits.is_err());
        hub.offer("hello", &json!({}));
        hub.until(0, "the lease", |_| true).await;
    }
    worker.abandon_claim().await.unwrap();
    let leases = hub.leases();
    assert_eq!((leases.len(), leases[0].released), (1, true));
}

#[tokio::test]
async fn a_heartbeat_keeps_a_silent_lease() {
    let hub = FakeHub::start().await;
    hub.offer("hello", &json!({ "ttlSeconds": 1 }));
    let lease = lease(&hub).await;
    let seen = hub.until(0, "heartbeats", |lease| lease.heartbeats > 2).await;
    assert!(seen.lines.is_empty() && !lease.lost().is_cancelled());
}

#[tokio::test]
async fn only_the_first_claim_takes_over() {
    let hub = FakeHub::start().await;
    let worker = Worker::builder(hub.url(), "coder").key(MAILBOX_KEY).take_over(true).build().unwrap();
    hub.set_down(true);
    assert!(worker.claim(Duration::ZERO).await.unwrap_err().is_temporary());
    hub.set_down(false);
    for _ in 0..2 {
        assert!(worker.claim(Duration::ZERO).await.unwrap().is_none());
    }
    assert_eq!(hub.take_overs(), [true, false]);
}

#[tokio::test]
async fn a_wrong_key_is_no_reason_to_try_again() {
    let hub = FakeHub::start().await;
    let worker = Worker::builder(hub.url(), "coder").key("wrong").build().unwrap();
    assert!(matches!(within("the refusal", worker.next()).await, Err(WorkerError::Unauthorized(_))));
    for wrong in ["agents.example.com", "ftp://agents.example.com"] {
        assert!(matches!(Worker::builder(wrong, "coder").build(), Err(WorkerError::Invalid(_))), "{wrong}");
    }
}

#[tokio::test]
async fn a_worker_waits_for_a_hub_that_is_away() {
    let hub = FakeHub::start().await;
    hub.set_down(true);
    let worker = worker(&hub);
    assert!(worker.claim(WAIT).await.unwrap_err().is_temporary());
    hub.offer("hello", &json!({}));
    hub.set_down(false);
    let lease = within("a lease", worker.next()).await.unwrap();
    assert_eq!(&*lease.claim().message.text(), "hello");
}
